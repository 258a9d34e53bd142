"""Windows partition the sites, whatever the map looks like."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spinimpute.genotypes.intervals import cut_windows
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
