"""Blocks partition a panel's sites; gaps and groups of haplotypes equal slow and plain references."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import spinimpute
from spinimpute.genotypes.blocks import (
    FAR_CM,
    WEIGHT_WIDTHS,
    BlockShape,
    gap_geometry,
    group_means,
    initial_groups,
    pad_typed_sites,
    spread_evenly,
)
from spinimpute.genotypes.intervals import cut_windows
from spinimpute.panels.panel_blocks import BlockReader, EncodedBlock, PanelBlock
from spinimpute.predictors.interface import ImputationJob
from spinimpute.predictors.spin.engine import BlockEngine

N_SITES = 300
UNSEEN = -5.0  # what `Echo` predicts if the neighbouring typed site is not visible
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


@given(st.data())
def test_gap_geometry_site_by_site(data: st.DataObject) -> None:
    steps = st.sampled_from([0.0, 0.001, 0.5, 3.0])
    cM = np.cumsum(data.draw(st.lists(steps, min_size=1, max_size=30)))
    typed = sorted(data.draw(st.sets(st.integers(0, len(cM) - 1), min_size=1)))
    gap = np.array([sum(t < i for t in typed) for i in range(len(cM))])
    fraction, distance, *_ = gap_geometry(cM, gap, cM[typed])
    for i in range(len(cM)):
        left = [cM[t] for t in typed if t < i]
        right = [cM[t] for t in typed if t >= i]
        expected = min([*(cM[i] - x for x in left[-1:]), *(x - cM[i] for x in right[:1])])
        if not (left and right):
            expected = min(expected, FAR_CM)
        assert distance[i] == pytest.approx(expected, abs=1e-6)
        if not left:
            assert fraction[i] == 1
        elif not right:
            assert fraction[i] == 0
        elif right[0] > left[-1]:
            assert fraction[i] == pytest.approx((cM[i] - left[-1]) / (right[0] - left[-1]), abs=1e-6)
        else:
            assert fraction[i] == 0.5


def plain_groups(typed_NS: np.ndarray, count: int) -> list[int]:
    """The definition step by step. It leaves out haplotypes at the edge of a group."""
    middle = (typed_NS.shape[1] - 1) / 2
    central = sorted(range(typed_NS.shape[1]), key=lambda s: (abs(s - middle), s))
    rows = [tuple(int(row[s]) for s in central) for row in typed_NS]
    patterns = sorted(set(rows))
    if len(patterns) <= count:
        return [patterns.index(row) for row in rows]
    weights = []
    for pattern in patterns:
        weight = float(rows.count(pattern))
        for width in WEIGHT_WIDTHS:
            weight *= sum(row[:width] == pattern[:width] for row in rows) ** -0.25
        weights.append(weight)
    parts, before = [], 0.0
    for weight in weights:
        place = (before + weight / 2) / sum(weights) * count
        assume(abs(place - round(place)) > 1e-9)
        parts.append(int(place))
        before += weight
    different = sorted(set(parts))
    return [different.index(parts[patterns.index(row)]) for row in rows]


@settings(deadline=None)
@given(st.integers(1, 60), st.integers(1, 40), st.integers(2, 6), st.integers(0, 2**32 - 1))
def test_starting_groups_pattern_by_pattern(n: int, count: int, different: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = BlockShape(2, 40)
    pool = rng.integers(0, 2, (2**different, shape.n_typed), dtype=np.uint8)
    pool[::2, 30:50] = pool[0, 30:50]  # some are alike in the middle
    typed_NS = pool[rng.integers(0, len(pool), n)]
    group_N = initial_groups(typed_NS, count, shape)
    assert group_N.tolist() == plain_groups(typed_NS, count)
    order = rng.permutation(n)
    np.testing.assert_array_equal(initial_groups(typed_NS[order], count, shape), group_N[order])


def test_geometry_without_typed_sites() -> None:
    fraction, distance, *_ = gap_geometry(np.array([0.4]), np.array([0]), np.array([]))
    assert (fraction[0], distance[0]) == (pytest.approx(0.5), pytest.approx(FAR_CM))


def test_rare_haplotypes_get_groups_of_their_own() -> None:
    """90 of 100 are alike around the block; with equal weights they would take nine of ten groups."""
    rng = np.random.default_rng(1)
    shape = BlockShape(2, 60)
    typed_NS = rng.integers(0, 2, (100, shape.n_typed), dtype=np.uint8)
    typed_NS[:90, 20:103] = typed_NS[0, 20:103]
    group_N = initial_groups(typed_NS, 10, shape)
    assert len(np.unique(group_N[90:])) >= 3


@given(st.integers(1, 30), st.integers(1, 9), st.integers(0, 2**32 - 1))
def test_means_of_groups(n: int, count: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x_NX = rng.integers(0, 2, (n, 5), dtype=np.uint8)
    group_N = np.unique(rng.integers(0, count, n), return_inverse=True)[1]
    expected = [x_NX[group_N == group].mean(0) for group in range(group_N.max() + 1)]
    np.testing.assert_allclose(group_means(x_NX, group_N), expected, rtol=1e-6)


@given(st.integers(0, 50), st.integers(1, 20))
def test_compared_sites_are_spread_over_the_block(n: int, most: int) -> None:
    sites = np.arange(n) * 3
    chosen = spread_evenly(sites, most)
    assert len(chosen) == min(n, most)
    assert (np.diff(chosen) > 0).all()
    if n > most > 1:
        assert np.diff(chosen).max() <= 3 * (n // most + 1)


class Echo:
    """A predictor that copies the query's allele at the nearest typed site on one side."""

    kind, fingerprint = "echo", "echo"

    def __init__(self, shape: BlockShape, side: int) -> None:
        self.shape, self.side = shape, side

    def encode(self, block: PanelBlock, *, with_members: bool = False) -> EncodedBlock:
        sites = block.sites
        points = {
            "feature_BHF": np.tile(
                np.eye(2, dtype=np.float32)[:1], len(block.places.cM_S)
            ),  # REF alone, K = 1
            "label_BHU": np.zeros((1, len(sites.gap_U)), np.float32),
            "mass_BH": np.ones(1, np.float32),
        }
        return EncodedBlock(block.places, block.frequency_S, sites, block.n_haplotypes, 1, points)

    def predict(self, block: EncodedBlock, query_QS: np.ndarray, known_QS: np.ndarray) -> np.ndarray:
        place = self.shape.flank + block.sites.gap_U + self.side
        echo_QU = np.where(known_QS > 0, query_QS.astype(np.float32), np.float32(0.5))[:, place]
        return np.where(block.places.valid_S[place] > 0, echo_QU, np.float32(UNSEEN)).T


@settings(deadline=None, max_examples=40)
@given(data=st.data())
@pytest.mark.parametrize("side", [0, 1])
def test_windows_and_blocks_impute_every_site_once_from_its_own_neighbours(
    side: int, data: st.DataObject, example_panel: spinimpute.Panel
) -> None:
    core, flank = data.draw(st.integers(1, 5)), data.draw(st.integers(0, 4))
    typed = np.array(sorted(data.draw(st.sets(st.integers(0, N_SITES - 1), min_size=1, max_size=40))))
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    typed_TQ = rng.integers(-1, 2, (len(typed), 3)).astype(np.int8)
    cM = example_panel.cM[:N_SITES]
    length = data.draw(st.floats(0.002, float(cM[-1] - cM[0]) + 0.01))
    windows = cut_windows(cM, example_panel.position[:N_SITES], length)
    job = ImputationJob(example_panel, typed, threads=1)
    with BlockEngine(Echo(BlockShape(core, flank), side), job) as engine:
        parts = list(engine.predict_spin(windows, typed_TQ))
    whole = np.concatenate(parts)
    assert len(whole) == N_SITES
    for window, part in zip(windows, parts, strict=True):
        for site in range(window.start, window.stop):
            neighbour = int((typed < site).sum()) - 1 + side
            if not 0 <= neighbour < len(typed):
                expected = np.full(3, UNSEEN)
            else:
                expected = np.where(typed_TQ[neighbour] < 0, 0.5, typed_TQ[neighbour])
            np.testing.assert_allclose(part[site - window.start], expected, rtol=1e-6)
