"""Blocks, gaps and groups of haplotypes against references that are slow and plain."""

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import spinimpute
from spinimpute.genotypes.blocks import (
    FAR_CM,
    LIKE_WIDTHS,
    BlockShape,
    gap_geometry,
    group_means,
    initial_groups,
    spread_evenly,
)
from spinimpute.genotypes.intervals import Interval, cut_windows
from spinimpute.panels.panel_blocks import EncodedBlock, PanelBlock
from spinimpute.predictors.interface import ImputationJob
from spinimpute.predictors.spin.engine import BlockEngine

N_SITES = 300
UNSEEN = -5.0  # what the echo gives where the neighbouring typed site is not visible


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
    """The docstring word by word. It does not cover a haplotype at the edge of a part."""
    middle = (typed_NS.shape[1] - 1) / 2
    central = sorted(range(typed_NS.shape[1]), key=lambda s: (abs(s - middle), s))
    rows = [tuple(int(row[s]) for s in central) for row in typed_NS]
    patterns = sorted(set(rows))
    if len(patterns) <= count:
        return [patterns.index(row) for row in rows]
    weights = []
    for pattern in patterns:
        weight = float(rows.count(pattern))
        for width in LIKE_WIDTHS:
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
    assert initial_groups(typed_NS, count, shape).tolist() == plain_groups(typed_NS, count)


def test_rare_haplotypes_get_groups_of_their_own() -> None:
    """90 of 100 are alike around the block; with equal weights they would take nine of ten groups."""
    rng = np.random.default_rng(1)
    shape = BlockShape(2, 60)
    typed_NS = rng.integers(0, 2, (100, shape.n_typed), dtype=np.uint8)
    typed_NS[:90, 20:103] = typed_NS[0, 20:103]
    group_N = initial_groups(typed_NS, 10, shape)
    assert len(np.unique(group_N[90:])) >= 3


@pytest.mark.parametrize("n", [19, 100, 127])
def test_every_haplotype_is_a_group_where_there_is_room(n: int) -> None:
    typed_NS = np.array([[int(bit) for bit in f"{i:07b}"] for i in range(n)], dtype=np.uint8)
    assert len(np.unique(initial_groups(typed_NS, n, BlockShape(2, 2)))) == n


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
    """A predictor that gives, at every site, what the query has at the nearest typed site of one side."""

    kind, fingerprint = "echo", "echo"

    def __init__(self, shape: BlockShape, side: int) -> None:
        self.shape, self.side = shape, side

    def encode(self, block: PanelBlock) -> EncodedBlock:
        sites = block.sites
        points = {
            "feature_BHF": torch.eye(2)[:1].tile(len(block.places.cM_S)),  # REF alone, K = 1
            "label_BHU": torch.zeros(1, len(sites.gap_U)),
            "mass_BH": torch.ones(1),
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
        parts = [engine.predict_window(w, typed_TQ) for w in windows]
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


def test_engine_passes_on_any_interval(example_panel: spinimpute.Panel) -> None:
    """Windows of one site, before the first typed site, at it, and after the last."""
    typed = np.array([40, 41, 90])
    typed_TQ = np.array([[1], [0], [1]], dtype=np.int8)
    job = ImputationJob(example_panel, typed, threads=2)
    with BlockEngine(Echo(BlockShape(2, 1), 1), job) as engine:
        for site, expected in ((0, 1), (40, 1), (41, 0), (42, 1), (90, 1), (91, UNSEEN), (4452, UNSEEN)):
            p = engine.predict_window(Interval(site, site + 1), typed_TQ)
            assert p.tolist() == [[expected]], site
