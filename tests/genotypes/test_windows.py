"""Windows: their cores partition the sites, whatever the map looks like."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spinimpute.genotypes.windows import Window, cut_windows
from spinimpute.runtime.errors import InputError


@st.composite
def chromosomes(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Positions (some with several records) and a map with flat segments, hot spots and gaps."""
    n_sites = draw(st.integers(1, 120))
    steps = draw(st.lists(st.sampled_from([0, 0, 1, 7, 1000]), min_size=n_sites, max_size=n_sites))
    rates = draw(st.lists(st.sampled_from([0.0, 1e-4, 0.01, 3.0]), min_size=n_sites, max_size=n_sites))
    position = 100 + np.cumsum(steps)
    cM = -3 + np.cumsum(np.array(steps) * np.array(rates))
    return cM, position


@settings(deadline=None)
@given(chromosomes(), st.sampled_from([0.05, 2.0, 1e6]), st.sampled_from([0.0, 0.5, 1e6]), st.integers(1, 40))
def test_cores_partition_the_sites_and_overlaps_are_as_long_as_asked(
    chromosome: tuple[np.ndarray, np.ndarray], length: float, overlap: float, max_sites: int
) -> None:
    cM, position = chromosome
    windows = cut_windows(cM, position, length, overlap, max_sites)
    assert [window.index for window in windows] == list(range(len(windows)))
    assert np.concatenate([np.arange(w.start, w.stop) for w in windows]).tolist() == list(
        range(len(position))
    )
    for window in windows:
        assert 0 <= window.left <= window.start < window.stop <= window.right <= len(position)
        for cut in (window.left, window.start, window.stop, window.right):
            assert cut in (0, len(position)) or position[cut - 1] < position[cut]
        core = slice(window.start, window.stop)
        one_position = position[window.start] == position[window.stop - 1]
        assert window.stop - window.start <= max_sites or one_position
        assert np.ptp(cM[core]) <= length * (1 + 1e-9)
        at_left = np.sum(position == position[window.left])
        at_right = np.sum(position == position[window.right - 1])
        assert window.start - window.left < max_sites + at_left
        assert window.right - window.stop < max_sites + at_right
        # what is left out is beyond the overlap, unless the overlap is full
        if window.left > 0 and window.start - window.left < max_sites:
            assert cM[window.left - 1] < cM[window.start] - overlap
        if window.right < len(position) and window.right - window.stop < max_sites:
            assert cM[window.right] > cM[window.stop - 1] + overlap


def test_even_map_gives_even_windows() -> None:
    position = np.arange(1, 10_001)
    windows = cut_windows(position / 1000, position, length_cM=3, overlap_cM=0.5)
    assert len(windows) == 4  # 10 cM in parts of 2.5
    assert [w.stop - w.start for w in windows] == pytest.approx([2500] * 4, abs=1)
    assert windows[0].left == 0
    assert windows[-1].right == 10_000
    assert [w.start - w.left for w in windows[1:]] == [500] * 3
    assert [w.right - w.stop for w in windows[:-1]] == [500] * 3


def test_flat_map_is_cut_by_number_of_sites() -> None:
    position = np.arange(1, 1001)
    windows = cut_windows(np.zeros(1000), position, max_sites=300)
    assert [w.stop - w.start for w in windows] == [250] * 4
    assert max(w.right - w.left for w in windows) <= 900


def test_gap_makes_no_empty_window() -> None:
    position = np.array([1, 2, 10**8, 10**8 + 1])
    windows = cut_windows(position / 1e6, position, length_cM=1, overlap_cM=0.5)
    assert [(w.left, w.start, w.stop, w.right) for w in windows] == [(0, 0, 2, 2), (2, 2, 4, 4)]


def test_more_records_at_one_position_than_a_window_holds_stay_together() -> None:
    position = np.array([1, 5, 5, 5, 5, 5, 9])
    cores = [(w.start, w.stop) for w in cut_windows(np.zeros(7), position, max_sites=2)]
    assert cores == [(0, 1), (1, 6), (6, 7)]


def test_windows_shorter_than_any_distance() -> None:
    windows = cut_windows(np.linspace(0, 1, 60), np.arange(60), 1e-320, 0.0, 10)
    assert [(window.start, window.stop) for window in windows] == [(i, i + 1) for i in range(60)]


def test_no_sites_and_one_site() -> None:
    assert cut_windows(np.array([]), np.array([])) == []
    assert cut_windows(np.array([3.0]), np.array([7])) == [Window(0, 0, 1, 0, 1)]


@pytest.mark.parametrize(
    "bad", [{"length_cM": 0}, {"length_cM": float("nan")}, {"overlap_cM": -1}, {"max_sites": 0}]
)
def test_impossible_sizes_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(InputError, match="must have a positive length"):
        cut_windows(np.array([0.0]), np.array([1]), **bad)
