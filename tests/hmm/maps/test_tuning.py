"""A panel's map tuned to its haplotypes: changes as by brute force, hot spots found, nothing else changed."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from spinimpute.genotypes.bit_rows import pack_rows, unpack_rows
from spinimpute.hmm import parameters
from spinimpute.hmm.maps.expected_switches import expected_switches
from spinimpute.hmm.maps.tuning import _interpolate, fair_order, tuned_map
from spinimpute.hmm.parameters import MISMATCH
from spinimpute.hmm.steps import jump_probabilities, pad_to_lanes
from spinimpute.panels.panel import Panel
from spinimpute.panels.writer import rewrite_panel
from spinimpute.quality.report_data import Provenance
from tests.array_panel import ArrayPanel


def brute_force(alleles_SN: np.ndarray, query: int, jump_S: np.ndarray) -> np.ndarray:
    """Probabilities of a change before each place, from transition matrices."""
    others = np.delete(np.arange(alleles_SN.shape[1]), query)
    n, n_places = len(others), len(alleles_SN)
    emitted_SN = np.where(alleles_SN[:, others] == alleles_SN[:, [query]], 1 - MISMATCH, MISMATCH)
    stay_S = [np.eye(n) * (1 - jump) for jump in jump_S]
    move_S = [np.full((n, n), jump / n) for jump in jump_S]
    forward = [emitted_SN[0] / n]
    for s in range(1, n_places):
        forward.append(forward[-1] @ (stay_S[s] + move_S[s]) * emitted_SN[s])
    backward = [np.ones(n)]
    for s in range(n_places - 1, 0, -1):
        backward.insert(0, (stay_S[s] + move_S[s]) @ (emitted_SN[s] * backward[0]))
    changes = np.zeros(n_places)
    for s in range(1, n_places):
        moved = forward[s - 1] @ move_S[s] @ (emitted_SN[s] * backward[s])
        changes[s] = moved / forward[-1].sum()
    return changes


@pytest.mark.parametrize(("n_places", "n"), [(12, 5), (30, 16), (25, 21), (33, 40)])
@pytest.mark.parametrize("first_place", [0, 11])
def test_expected_changes_equal_brute_force(n_places: int, n: int, first_place: int) -> None:
    rng = np.random.default_rng(n)
    alleles_SN = rng.integers(0, 2, (n_places, n)).astype(np.uint8)
    jump_S = jump_probabilities(np.cumsum(rng.exponential(0.02, n_places)), n, 100)
    padded_SN = pad_to_lanes(alleles_SN)
    queries = range(n - 3, n)
    found_QS = expected_switches(padded_SN, n, queries, jump_S, first_place)
    for query, found_S in zip(queries, found_QS, strict=True):
        expected_S = brute_force(alleles_SN, query, jump_S)
        np.testing.assert_allclose(found_S[first_place:], expected_S[first_place:], rtol=2e-3, atol=1e-5)
        # a query's result does not depend on which query is computed with it
        (alone_S,) = expected_switches(padded_SN, n, range(query, query + 1), jump_S, first_place)
        np.testing.assert_array_equal(alone_S, found_S)
        assert not found_S[:first_place].any()


def test_rows_of_bits_there_and_back() -> None:
    alleles_SX = np.random.default_rng(3).integers(0, 2, (131, 7)).astype(np.uint8)
    np.testing.assert_array_equal(unpack_rows(pack_rows(alleles_SX), 131), alleles_SX.T)


HOT = slice(140, 170)


def hot_share(cM: np.ndarray, hot: slice = HOT) -> float:
    return float(np.ptp(cM[hot]) / np.ptp(cM))


@pytest.fixture
def panel(hot_panel: Callable[..., ArrayPanel]) -> ArrayPanel:
    return hot_panel(160, 300, HOT)


def test_a_hot_spot_is_found_and_nothing_depends_on_order_or_threads(panel: ArrayPanel) -> None:
    typed = np.arange(0, 300, 2)
    tuned = tuned_map(panel, typed, 1)  # type: ignore[arg-type]
    assert (np.diff(tuned) >= 0).all()
    assert hot_share(tuned) > 0.5  # by the map that came with it 0.1
    shuffled = ArrayPanel(np.random.default_rng(1).permutation(panel.alleles_XN, axis=1), panel.cM)
    np.testing.assert_array_equal(tuned_map(shuffled, typed, 2), tuned)  # type: ignore[arg-type]


def test_several_windows_and_few_of_the_haplotypes(
    hot_panel: Callable[..., ArrayPanel], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hot spot lies across the border of two windows."""
    hot = slice(240, 270)
    monkeypatch.setattr(parameters, "TUNING_QUERIES", 60)
    monkeypatch.setattr(parameters, "MAX_HAPLOTYPES", 120)
    tuned = tuned_map(hot_panel(160, 700, hot), np.arange(700), 1)  # type: ignore[arg-type]
    assert hot_share(tuned, hot) > 0.1  # by the map that came with it 0.04


def test_a_hot_spot_without_length_on_the_map(panel: ArrayPanel) -> None:
    panel.cM[HOT] = panel.cM[HOT.start]
    tuned = tuned_map(panel, np.arange(300), 1)  # type: ignore[arg-type]
    assert hot_share(tuned) > 0.01  # by the least rate of a map 0.002
    between = tuned_map(panel, np.arange(0, 300, 3), 1)  # type: ignore[arg-type]
    assert (np.diff(between[141:169]) > 0).all()  # both ends typed


def test_gaps_that_everybody_changes_in_keep_their_length() -> None:
    rng = np.random.default_rng(2)
    panel = ArrayPanel(rng.integers(0, 2, (60, 12)).astype(np.uint8), np.arange(60) * 5.0)
    tuned = tuned_map(panel, np.arange(60), 1)  # type: ignore[arg-type]
    np.testing.assert_allclose(tuned, panel.cM)


def test_the_first_of_a_fair_order_are_a_fair_sample() -> None:
    rng = np.random.default_rng(5)
    kinds_SK = rng.integers(0, 2, (20, 5)).astype(np.uint8)
    kinds_SK[:, 0] = 0
    kind_N = rng.choice(5, 2_000, p=[0.4, 0.3, 0.2, 0.06, 0.04])
    first = kind_N[fair_order([kinds_SK[:, kind_N]])[:400]]
    share_K = np.bincount(first, minlength=5) / 400
    np.testing.assert_allclose(share_K, np.bincount(kind_N) / 2_000, atol=0.07)


def test_sites_between_are_stretched_and_ends_shifted() -> None:
    cM = np.array([0.0, 1.0, 2.0, 3.0, 3.0, 3.0, 5.0])
    position = np.array([10, 20, 30, 40, 50, 60, 70])
    found = _interpolate(cM, position, np.array([1, 3, 5]), np.array([0.0, 1.0, 0.5]))
    np.testing.assert_allclose(found, [0.0, 1.0, 1.5, 2.0, 2.25, 2.5, 4.5])


def test_too_few_sites_keep_their_map(example_panel: Panel) -> None:
    np.testing.assert_array_equal(tuned_map(example_panel, np.arange(5), 1), example_panel.cM)


def test_only_the_map_changes(example_panel: Panel, tmp_path: Path) -> None:
    cM = example_panel.cM * 2
    rewrite_panel(example_panel, tmp_path / "o.spin", {"map tuned": {"array": "a.vcf"}}, cM)
    with Panel.open(tmp_path / "o.spin") as made:
        np.testing.assert_array_equal(made.cM, cM)
        assert made.provenance == example_panel.provenance | {"map tuned": {"array": "a.vcf"}}
        provenance = Provenance()
        provenance.add_panel(made)
        assert provenance.texts["genetic map"][-1] == "o.spin: tuned for the array a.vcf"
        assert made.checksum != example_panel.checksum
        assert made.sites.keys() == example_panel.sites.keys()
        assert made.sites.id == example_panel.sites.id
        for name in ("samples", "contig_line", "n_haplotypes"):
            assert getattr(made, name) == getattr(example_panel, name)
        for name in ("allele_count", "multiallelic", "ploidy"):
            np.testing.assert_array_equal(getattr(made, name), getattr(example_panel, name))
        np.testing.assert_array_equal(
            made.packed(0, made.n_sites), example_panel.packed(0, example_panel.n_sites)
        )
    rewrite_panel(example_panel, tmp_path / "same.spin", {}, example_panel.cM)
    assert (tmp_path / "same.spin").read_bytes() == Path(example_panel.path).read_bytes()
