"""All pairs of the likeliest haplotypes: beside plain sums over pairs, and what must hold of windows."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spinimpute.genotypes.intervals import Interval
from spinimpute.phasing import likely_pairs
from spinimpute.phasing.copied_panel import CopyingWindow
from spinimpute.phasing.genotypes import genotypes_from_likelihoods
from spinimpute.phasing.likely_pairs import LikelyPairs
from spinimpute.phasing.pair_posteriors import pair_posteriors
from spinimpute.sequencing.fragments import FragmentBases
from tests.array_panel import ArrayPanel
from tests.phasing.test_chains import copied, diploid, made_panel, phred_of_reads


def all_pairs(
    allele_SK: np.ndarray, likelihood_S3: np.ndarray, jump_S: np.ndarray, mismatch: float
) -> np.ndarray:
    """P(0, 1 and 2 copies are copied) from all other places, by matrices over all pairs."""
    n_places, n = allele_SK.shape
    written_S2K = np.stack([allele_SK == 0, allele_SK == 1], axis=1) * (1 - 2 * mismatch) + mismatch
    by_pair_S22 = likelihood_S3.astype(float)[:, [[0, 1], [1, 2]]]
    emission_SP = np.einsum("sab,sai,sbj->sij", by_pair_S22, written_S2K, written_S2K).reshape(n_places, -1)
    move_SPP = []
    for jump in jump_S.astype(float):
        one_KK = (1 - jump) * np.eye(n) + jump / n
        move_SPP.append(np.kron(one_KK, one_KK))
    forward_SP, before_P = [], np.full(n * n, 1 / n**2)
    for s in range(n_places):
        forward_SP.append(before_P @ move_SPP[s])
        before_P = forward_SP[s] * emission_SP[s]
        before_P /= before_P.sum()
    copies_SP = (allele_SK[:, :, None].astype(int) + allele_SK[:, None]).reshape(n_places, -1)
    out_S3, behind_P = np.empty((n_places, 3)), np.ones(n * n)
    for s in range(n_places - 1, -1, -1):
        out_S3[s] = np.bincount(copies_SP[s], forward_SP[s] * behind_P, minlength=3)
        behind_P = move_SPP[s] @ (behind_P * emission_SP[s])
        behind_P /= behind_P.mean()
    return out_S3 / out_S3.sum(axis=1, keepdims=True)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 40), st.integers(1, 7), st.sampled_from([0.0, 1e-3, 0.1]))
def test_the_sum_over_all_pairs(seed: int, n_places: int, n: int, mismatch: float) -> None:
    rng = np.random.default_rng(seed)
    allele_SK = rng.integers(0, 2, (n_places, n), np.uint8)
    likelihood_S3 = rng.uniform(0.01, 1, (n_places, 3)).astype(np.float32)
    likelihood_S3[rng.random(n_places) < 0.4] = 1
    jump_S = rng.choice([1e-6, 0.03, 0.5, 1.0], n_places).astype(np.float32)
    found_S3 = pair_posteriors(allele_SK, likelihood_S3, jump_S, mismatch)
    assert found_S3.dtype == np.float32
    np.testing.assert_allclose(found_S3, all_pairs(allele_SK, likelihood_S3, jump_S, mismatch), atol=1e-4)


def test_a_place_does_not_hear_its_own_reads() -> None:
    allele_SK = np.array([[0, 1], [0, 1]], np.uint8)
    jump_S = np.array([1, 1], np.float32)  # nothing links the two places
    found_S3 = pair_posteriors(allele_SK, np.array([[1, 0, 0], [0, 0, 1]], np.float32), jump_S, 0.0)
    np.testing.assert_allclose(found_S3, [[0.25, 0.5, 0.25]] * 2, atol=1e-6)


def test_windows_follow_one_another_and_overlap(rng: np.random.Generator) -> None:
    cM_S = np.sort(rng.uniform(3, 9.1, 500))
    panel = ArrayPanel(rng.integers(0, 2, (500, 8), np.uint8), cM_S)
    windows = LikelyPairs(panel, Interval(0, 500), range(9, 500, 10)).windows.windows
    assert len(windows) == 4
    assert [one.places.start for one in windows] == [0, *(one.places.stop for one in windows[:-1])]
    assert windows[-1].places.stop == 500
    for one in windows[1:]:
        assert cM_S[one.places.start] - cM_S[one.seen.start] == pytest.approx(
            likely_pairs.WINDOW_CM / 2, abs=0.1
        )
    assert LikelyPairs(panel, Interval(7, 8), [0]).windows.windows == [
        CopyingWindow(Interval(0, 1), Interval(0, 1))
    ]


def test_every_window_hears_what_is_copied(rng: np.random.Generator) -> None:
    cM_S = np.concatenate([np.linspace(0, 1, 90), np.linspace(20, 60, 10)])
    panel = ArrayPanel(rng.integers(0, 2, (100, 8), np.uint8), cM_S)
    pairs = LikelyPairs(panel, Interval(0, 100), [31, 63, 95, 99])
    assert len(pairs.windows.windows) == 4
    assert {w for windows in pairs.windows.windows_G for w in windows} == {0, 1, 2, 3}
    for window in pairs.windows.windows:
        assert window.seen.start <= window.places.start <= window.places.stop <= window.seen.stop


def test_no_genotype_is_impossible(rng: np.random.Generator) -> None:
    """A certain call prevails although no chosen haplotype has ALT."""
    panel = made_panel(rng, 90, 40)
    panel.alleles_XN[50] = np.arange(40) < 20
    usage_WN = np.zeros((1, 40), np.float32)
    usage_WN[0, 30:34] = 1
    likelihood_S3 = np.ones((90, 3), np.float32)
    likelihood_S3[50] = [1e-25, 1e-25, 1]
    row_R, genotype_R3 = LikelyPairs(panel, Interval(0, 90), [89]).genotypes(usage_WN, likelihood_S3, 4, 1e-3)
    by_place_3 = genotype_R3[row_R == 50][0]
    assert by_place_3[0] > 0.99
    assert (by_place_3 * likelihood_S3[50]).argmax() == 2


@pytest.mark.parametrize(
    ("n", "taken_K"), [(9, range(9)), (40, [3, 17, 22, 39])], ids=["all", "those copied most"]
)
def test_haplotypes_that_are_taken(rng: np.random.Generator, n: int, taken_K: Sequence[int]) -> None:
    """The sums are those over all pairs of the haplotypes that chains copy most."""
    panel = made_panel(rng, 120, n)
    panel.cM *= 0.3
    pairs = LikelyPairs(panel, Interval(0, 120), [119])
    likelihood_S3 = np.ones((120, 3), np.float32)
    likelihood_S3[::5] = rng.uniform(0.1, 1, (24, 3))
    usage_WN = np.zeros((1, n), np.float32)
    usage_WN[0, taken_K] = rng.uniform(0.1, 1, len(taken_K))
    row_R, genotype_R3 = pairs.genotypes(usage_WN, likelihood_S3, max(4, len(taken_K)), 1e-3)
    assert len(pairs.windows.windows) == 1
    varies_S = (panel.frequency > 0) & (panel.frequency < 1)
    np.testing.assert_array_equal(
        row_R,
        np.flatnonzero(
            varies_S & (np.minimum(panel.frequency, 1 - panel.frequency) >= likely_pairs.MIN_FREQUENCY)
        ),
    )
    jump_R = (-np.expm1(-np.diff(panel.cM[row_R], prepend=0) * likely_pairs.SCALE)).clip(1e-7)
    jump_R[0] = 1
    expected_R3 = all_pairs(panel.alleles_XN[row_R][:, taken_K], likelihood_S3[row_R], jump_R, 1e-3)
    np.testing.assert_allclose(genotype_R3, expected_R3, atol=2e-4)


def test_pairs_come_nearer_to_the_truth_with_few_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    panel = made_panel(rng, 400, 60, 1 / 150)
    truth_SQ = copied(rng, panel.alleles_XN, 40, 1 / 150)
    genotype_SX = truth_SQ.reshape(400, 20, 2).sum(axis=2).astype(int)
    phred_SX3 = phred_of_reads(rng, genotype_SX, 0.1)
    error = {}
    for name, chosen in (("both", likely_pairs.PAIRS), ("chains", ())):
        monkeypatch.setattr(likely_pairs, "PAIRS", chosen)
        dosage_SX = genotypes_from_likelihoods(panel, 0, phred_SX3, diploid(20), 1).sum(axis=1)
        error[name] = np.mean((dosage_SX - genotype_SX) ** 2)
    assert error["both"] < 0.95 * error["chains"]


@pytest.mark.parametrize(
    ("share", "n_common", "expected"),
    [
        (0.1, 0, (192, 0.5)),
        (0.5, 0, (128, 0.3)),
        (0.95, 0, (0, 0.0)),
        (0.1, 2, (192, 0.3)),
        (0.5, 2, (128, 0.3)),
        (0.1, 9, (0, 0.0)),
    ],
)
def test_long_fragments_know_more_than_pairs(
    rng: np.random.Generator, share: float, n_common: int, expected: tuple[int, float]
) -> None:
    """Three fragments have n_common common sites each, and one site that does not vary."""
    alleles_SN = np.ones((40, 300), np.uint8)
    alleles_SN[:30] = rng.integers(0, 2, (30, 300))
    pairs = LikelyPairs(ArrayPanel(alleles_SN, np.linspace(0, 1, 40)), Interval(0, 40), [39])
    site_B = np.concatenate([[*range(10 * k, 10 * k + n_common), 30 + k] for k in range(3)]).astype(np.int32)
    fragment_B = np.repeat(np.arange(3, dtype=np.int32), n_common + 1)
    bases = FragmentBases(
        fragment_B, site_B + 7, np.zeros(len(site_B), np.uint8), np.full(len(site_B), 30, np.uint8)
    )
    assert pairs.plan(share, bases if n_common else None, 7) == expected
