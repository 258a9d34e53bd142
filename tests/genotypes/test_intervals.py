"""Windows and chunks partition the sites, whatever the map looks like."""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spinimpute.genotypes.intervals import Interval, cut_chunks, cut_windows
from spinimpute.genotypes.untyped_intervals import (
    EQUAL_LENGTH_CM,
    FAR_CM,
    MAX_IGNORED_TYPED,
    cut_equal_lengths,
    far_from_typed,
    untyped_intervals,
)
from spinimpute.runtime.errors import InputError


@st.composite
def chromosomes(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Several records share a position; maps have flat segments, hot spots and gaps."""
    n_sites = draw(st.integers(1, 120))
    steps = draw(st.lists(st.sampled_from([0, 0, 1, 7, 1000]), min_size=n_sites, max_size=n_sites))
    rates = draw(st.lists(st.sampled_from([0.0, 1e-4, 0.01, 3.0]), min_size=n_sites, max_size=n_sites))
    position = 100 + np.cumsum(steps)
    cM = -3 + np.cumsum(np.array(steps) * np.array(rates))
    return cM, position


@settings(deadline=None)
@given(chromosomes(), st.sampled_from([0.05, 2.0, 1e6]), st.integers(1, 40))
def test_windows_partition_the_sites(
    chromosome: tuple[np.ndarray, np.ndarray], length: float, max_sites: int
) -> None:
    cM, position = chromosome
    windows = cut_windows(cM, position, length, max_sites)
    assert [site for window in windows for site in range(*window)] == list(range(len(position)))
    for window in windows:
        assert window.n_sites > 0
        for cut in window:
            assert cut in (0, len(position)) or position[cut - 1] < position[cut]
        first, last = window.positions(position)
        assert window.n_sites <= max_sites or first == last
        assert window.length_cM(cM) <= length * (1 + 1e-9)


@pytest.mark.parametrize(
    ("cM", "position", "sizes", "n_sites"),
    [
        pytest.param(np.arange(10_000) / 1000, np.arange(10_000), (3, 50_000), [2500] * 4, id="even map"),
        pytest.param(np.zeros(1000), np.arange(1000), (2, 300), [250] * 4, id="flat map"),
        pytest.param([0, 0, 100, 100], [1, 2, 10**8, 10**8 + 1], (1, 300), [2, 2], id="gap"),
        pytest.param(np.zeros(7), [1, 5, 5, 5, 5, 5, 9], (2, 2), [1, 5, 1], id="many records at a position"),
        pytest.param(np.linspace(0, 1, 60), np.arange(60), (1e-320, 10), [1] * 60, id="tiny length"),
        pytest.param([], [], (2, 300), [], id="no site"),
        pytest.param([3.0], [7], (2, 300), [1], id="one site"),
    ],
)
def test_sizes_of_windows(
    cM: np.ndarray, position: np.ndarray, sizes: tuple[float, int], n_sites: list[int]
) -> None:
    windows = cut_windows(np.array(cM), np.array(position), *sizes)
    assert [window.n_sites for window in windows] == pytest.approx(n_sites, abs=1)


@pytest.mark.parametrize("bad", [{"length_cM": 0}, {"length_cM": float("nan")}, {"max_sites": 0}])
def test_impossible_sizes_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(InputError, match="must have a positive length"):
        cut_windows(np.array([0.0]), np.array([1]), **bad)


class Positions(NamedTuple):
    chrom: str
    position: np.ndarray
    cM: np.ndarray


@st.composite
def panels(draw: st.DrawFn) -> list[Positions]:
    """One to three consecutive panels; records may share a position."""
    parts, first = [], 1
    for _ in range(draw(st.integers(1, 3))):
        steps = draw(st.lists(st.integers(0, 50), min_size=1, max_size=40))
        position = first + np.cumsum(steps)
        cM = np.cumsum(np.asarray(steps) * draw(st.sampled_from([0.0, 0.01, 1.0])))
        parts.append(Positions("20", position, cM))
        first = int(position[-1]) + 1
    return parts


@given(parts=panels(), length=st.sampled_from([0.1, 5.0, 1000.0]), most=st.integers(1, 60))
def test_every_site_is_in_one_chunk(parts: list[Positions], length: float, most: int) -> None:
    chunks = cut_chunks(parts, length, most)
    position = np.concatenate([part.position for part in parts])
    inside = [(position >= c.region.start) & (position <= c.region.end) for c in chunks]
    assert (np.sum(inside, 0) == 1).all()
    assert [int(rows.sum()) for rows in inside] == [chunk.sites for chunk in chunks]
    assert all(a.region.end + 1 == b.region.start for a, b in pairwise(chunks))
    same_position = max(np.unique(position, return_counts=True)[1])
    assert max(chunk.sites for chunk in chunks) <= most + same_position - 1
    assert max(chunk.cM for chunk in chunks) <= length + 1e-9
    for part in parts[1:]:  # a chunk begins with each part
        assert part.position[0] in [chunk.region.start for chunk in chunks]


@given(parts=panels(), length=st.sampled_from([0.1, 5.0]), overlap=st.sampled_from([0.0, 0.05, 3.0, 1e9]))
def test_overlaps_reach_into_the_chunk_before(parts: list[Positions], length: float, overlap: float) -> None:
    """They do not reach into its first half or into another panel, as `ligate` needs it."""
    plain, chunks = (cut_chunks(parts, length, 8, o) for o in (0.0, overlap))
    assert [chunk.region.end for chunk in chunks] == [chunk.region.end for chunk in plain]
    firsts = {int(part.position[0]) for part in parts}
    position, cM = (np.concatenate([part[i] for part in parts]) for i in (1, 2))
    for before, core, chunk in zip([plain[0], *plain], plain, chunks, strict=False):
        rows = (position >= chunk.region.start) & (position <= chunk.region.end)
        assert chunk.sites == rows.sum()
        assert chunk.cM == pytest.approx(np.ptp(cM[rows]))
        if overlap == 0 or core.region.start in firsts:
            assert chunk == core
            continue
        assert before.region.start < chunk.region.start <= core.region.start
        first, stop = np.searchsorted(position, [before.region.start, core.region.start])
        wanted = np.arange((first + stop + 1) // 2, stop)
        wanted = wanted[cM[wanted] >= cM[stop] - overlap]
        if len(wanted) and position[wanted[0]] > before.region.start:
            assert chunk.region.start == position[wanted[0]]
        else:
            assert chunk.region == core.region


def test_an_overlap_that_is_negative() -> None:
    with pytest.raises(InputError, match=r"an overlap must be at least 0 cM, got -0\.5"):
        cut_chunks([Positions("1", np.array([5]), np.array([0.0]))], 1.0, 9, -0.5)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 120), st.floats(0, 0.3), st.sampled_from([0.02, 0.3, 3.0]))
def test_as_plain_loops_say(seed: int, n: int, share: float, step: float) -> None:
    rng = np.random.default_rng(seed)
    cM = np.cumsum(rng.choice([0.0, step, 4 * step], n))
    position = np.arange(n) * 10 + 7
    typed = np.flatnonzero(rng.random(n) < share)
    far = far_from_typed(cM, typed, Interval(0, n))
    assert far.tolist() == [all(abs(cM[i] - cM[t]) > FAR_CM for t in typed) for i in range(n)]
    first, last = sorted(rng.integers(0, n + 1, 2).tolist())
    np.testing.assert_array_equal(far_from_typed(cM, typed, Interval(first, last)), far[first:last])
    intervals = untyped_intervals("20", position, cM, typed, Interval(0, n))
    assert [s.imputed for s in intervals] == sorted((s.imputed for s in intervals), reverse=True)
    covered = np.zeros(n, int)
    for s in intervals:
        inside = (position >= s.start) & (position <= s.end)
        covered += inside
        assert s.typed == inside[typed].sum()
        assert s.typed + s.imputed == inside.sum()
        assert far[(s.start - 7) // 10]
        assert far[(s.end - 7) // 10]
    assert covered.max(initial=0) <= 1
    assert covered[far].all()
    in_order = sorted(intervals, key=lambda s: s.start)
    for a, b in pairwise(in_order):
        assert ((position[typed] > a.end) & (position[typed] < b.start)).sum() > MAX_IGNORED_TYPED


def test_the_panel_is_cut_into_equal_lengths() -> None:
    cM = np.sort(np.random.default_rng(1).uniform(3, 64, 2_000))
    cut = cut_equal_lengths(cM)
    assert [first for first, _ in cut] == [0, *(last for _, last in cut[:-1])]
    assert cut[-1][1] == 2_000
    lengths = np.array([cM[last - 1] - cM[first] for first, last in cut])
    assert (np.abs(lengths - EQUAL_LENGTH_CM) < 0.4).all()
    assert cut_equal_lengths(np.array([2.0])) == [(0, 1)]
    assert cut_equal_lengths(np.array([0.0, 100.0])) == [(0, 1), (1, 2)]  # no empty ones
