"""Blocks, gaps and starting points against references that are slow and plain."""

import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import spinimpute
from spinimpute.genotypes.blocks import FAR_CM, BlockShape, gap_geometry, starting_points
from spinimpute.genotypes.windows import Window, cut_windows
from spinimpute.panels.panel_blocks import EncodedBlock, PanelBlock
from spinimpute.predictors.engine import ImputationJob
from spinimpute.predictors.spin.block_engine import BlockEngine

N_SITES = 300
UNSEEN = -5.0  # what the echo gives where the neighbouring typed site is not visible


@given(st.data())
def test_gap_geometry_site_by_site(data: st.DataObject) -> None:
    steps = st.sampled_from([0.0, 0.001, 0.5, 3.0])
    cM = np.cumsum(data.draw(st.lists(steps, min_size=1, max_size=30)))
    typed = sorted(data.draw(st.sets(st.integers(0, len(cM) - 1), min_size=1)))
    gap = np.array([sum(t < i for t in typed) for i in range(len(cM))])
    fraction, distance = gap_geometry(cM, gap, cM[typed])
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


def plain_starting_points(typed_NS: np.ndarray, count: int) -> list[tuple[int, ...]]:
    """The docstring word by word. It does not cover a quantile in the middle of a pattern."""
    middle = (typed_NS.shape[1] - 1) / 2
    order = sorted(range(typed_NS.shape[1]), key=lambda s: (abs(s - middle), s))
    rows = [tuple(int(row[s]) for s in order) for row in typed_NS]
    patterns = sorted(set(rows))
    weights = [math.sqrt(rows.count(p)) for p in patterns]
    total = sum(weights)
    count = min(count, len(patterns))
    chosen = []
    for i in range(count):
        quantile, before = (i + 0.5) / count * total, 0.0
        for pattern, weight in zip(patterns, weights, strict=True):
            before += weight
            assume(abs(before - weight / 2 - quantile) > 1e-9)
            if before - weight / 2 >= quantile or pattern == patterns[-1]:
                chosen.append(pattern)
                break
    places = [order.index(s) for s in range(len(order))]
    return [tuple(p[place] for place in places) for p in sorted(set(chosen))]


@settings(deadline=None)
@given(st.integers(1, 60), st.integers(1, 40), st.integers(2, 6), st.integers(0, 2**32 - 1))
def test_starting_points_pattern_by_pattern(n: int, count: int, different: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = BlockShape(2, 3)
    pool = rng.integers(0, 2, (2**different, shape.n_typed), dtype=np.uint8)
    typed_NS = pool[rng.integers(0, len(pool), n)]
    points = {tuple(map(int, row)) for row in starting_points(typed_NS, count, shape)}
    patterns = {tuple(map(int, row)) for row in typed_NS}
    assert points == (patterns if count >= len(patterns) else set(plain_starting_points(typed_NS, count)))


@pytest.mark.parametrize("n", [19, 100, 127])
def test_every_haplotype_is_a_starting_point_where_there_is_room(n: int) -> None:
    typed_NS = np.array([[int(bit) for bit in f"{i:07b}"] for i in range(n)], dtype=np.uint8)
    assert len(starting_points(typed_NS, n, BlockShape(2, 2))) == n


class Echo:
    """A predictor that gives, at every site, what the query has at the nearest typed site of one side."""

    kind, fingerprint = "echo", "echo"

    def __init__(self, shape: BlockShape, side: int) -> None:
        self.shape, self.side = shape, side

    def encode(self, block: PanelBlock) -> EncodedBlock:
        sites, n_places = block.sites, len(block.places.cM_S)
        points = {
            "feature_BHX": torch.zeros(1, n_places),
            "label_BHU": torch.zeros(1, len(sites.gap_U)),
            "mass_BH": torch.ones(1),
        }
        return EncodedBlock(block.places, block.frequency_S, sites, block.n_haplotypes, points)

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
    windows = cut_windows(cM, example_panel.position[:N_SITES], length, data.draw(st.floats(0, 0.05)))
    job = ImputationJob(example_panel, typed, threads=1)
    with BlockEngine(Echo(BlockShape(core, flank), side), job) as engine:
        parts = [engine.impute_window(w, typed_TQ) for w in windows]
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
            p = engine.impute_window(Window(0, site, site + 1, 0, example_panel.n_sites), typed_TQ)
            assert p.tolist() == [[expected]], site
