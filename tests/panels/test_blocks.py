"""Blocks partition a panel's sites, see the typed sites around them, and start from spread-out haplotypes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import spinimpute
from spinimpute.genotypes.blocks import (
    FAR_CM,
    BlockShape,
    gap_geometry,
    initial_groups,
    pad_typed_sites,
)
from spinimpute.panels.panel_blocks import BlockReader

shapes = st.builds(BlockShape, st.integers(1, 6), st.integers(0, 7))


@given(shapes, st.integers(1, 40), st.data())
def test_places_of_typed_sites(shape: BlockShape, n_typed: int, data: st.DataObject) -> None:
    cM = np.cumsum(np.ones(n_typed))
    block = data.draw(st.integers(0, n_typed // shape.core))
    low = data.draw(st.integers(0, n_typed))
    high = data.draw(st.integers(low, n_typed))
    places = pad_typed_sites(block, cM, shape, low, high)
    first_gap = block * shape.core
    alleles = np.arange(n_typed, dtype=np.int16)[:, None]
    filled = places.fill(alleles)[0]
    for place in range(shape.n_typed):
        typed = first_gap - 1 - shape.flank + place  # the site left of the first gap is at place `flank`
        if low <= typed < high:
            assert places.valid_S[place] == 1
            assert filled[place] == typed
        else:
            assert places.valid_S[place] == 0
            assert filled[place] == 0
    assert (np.diff(places.cM_S) >= 0).all()


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_every_site_is_imputed_by_one_block(data: st.DataObject, example_panel: spinimpute.Panel) -> None:
    shape = data.draw(shapes)
    n_sites = 400
    typed = np.array(sorted(data.draw(st.sets(st.integers(0, n_sites - 1), min_size=1, max_size=60))))
    start = data.draw(st.integers(0, n_sites - 1))
    stop = data.draw(st.integers(start + 1, n_sites))
    reader = BlockReader(example_panel, typed, shape, 0, len(typed), start, stop)
    seen = []
    for number in reader.blocks:
        block = reader.read(number)
        gap = block.sites.gap_U + number * shape.core
        np.testing.assert_array_equal(gap, [(typed < site).sum() for site in block.sites.panel_index_U])
        assert ((block.sites.gap_U >= 0) & (block.sites.gap_U < shape.core)).all()
        seen.extend(block.sites.panel_index_U.tolist())
    assert seen == list(range(start, stop))


def test_block_holds_the_panels_alleles(example_panel: spinimpute.Panel) -> None:
    typed = np.arange(3, 300, 11)
    shape = BlockShape(2, 3)
    block = BlockReader(example_panel, typed, shape, 2, 20, 50, 290).read(4)
    alleles = example_panel.alleles(0, 300)
    np.testing.assert_array_equal(block.alleles_UN, alleles[block.sites.panel_index_U])
    frequency = example_panel.frequency[:300]
    compared = [
        i for i in range(typed[7] + 1, typed[9]) if i != typed[8] and 0 < frequency[i] < 1
    ]  # gaps 8 and 9
    np.testing.assert_array_equal(block.compared_NC, alleles[compared].T)
    np.testing.assert_allclose(block.compared_frequency_C, frequency[compared], rtol=1e-6)
    visible = [i for i in range(8 - 1 - 3, 8 - 1 - 3 + shape.n_typed) if 2 <= i < 20]
    np.testing.assert_array_equal(block.typed_NS[:, block.places.valid_S > 0], alleles[typed[visible]].T)
    np.testing.assert_allclose(
        block.frequency_S[block.places.valid_S > 0], example_panel.frequency[typed[visible]], rtol=1e-6
    )


def test_geometry_of_gaps() -> None:
    typed_cM = np.array([1.0, 2.0, 2.0, 4.0])
    cM, gap = np.array([0.4, 1.25, 2.0, 3.5, 5.0]), np.array([0, 1, 2, 3, 4])
    fraction, distance, *_ = gap_geometry(cM, gap, typed_cM)
    np.testing.assert_allclose(fraction, [1, 0.25, 0.5, 0.75, 0])
    np.testing.assert_allclose(distance, [0.6, 0.25, 0, 0.5, 1.0], rtol=1e-6)
    fraction, distance, *_ = gap_geometry(cM[:1], gap[:1], np.array([]))
    assert fraction == pytest.approx(0.5)
    assert distance == pytest.approx(FAR_CM)


@given(st.integers(1, 40), st.integers(1, 12), st.integers(0, 2**32 - 1))
def test_starting_groups_do_not_depend_on_order(n: int, count: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = BlockShape(2, 2)
    typed_NS = rng.integers(0, 2, (n, shape.n_typed), dtype=np.uint8)
    group_N = initial_groups(typed_NS, count, shape)
    order = rng.permutation(n)
    np.testing.assert_array_equal(initial_groups(typed_NS[order], count, shape), group_N[order])
    assert set(group_N) == set(range(group_N.max() + 1))
    assert group_N.max() < count
    same = {row.tobytes(): group for row, group in zip(typed_NS, group_N, strict=True)}
    assert all(same[row.tobytes()] == group for row, group in zip(typed_NS, group_N, strict=True))
