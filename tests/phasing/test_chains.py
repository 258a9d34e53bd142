"""Two chains a sample, from likelihoods: beside plain references, and what must hold of the whole."""

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spinimpute.phasing import genotypes, likely_pairs
from spinimpute.phasing.chains import AVERAGED_SCALES, FREQUENCIES, MISMATCH, SCALES
from spinimpute.phasing.genotypes import genotypes_by_window, genotypes_from_likelihoods
from spinimpute.phasing.likelihood_passes import MUTATION
from tests.array_panel import ArrayPanel

MIN_JUMP = 1e-7
CERTAIN = 255


def copied(rng: np.random.Generator, source_SF: np.ndarray, n: int, leaves: float) -> np.ndarray:
    """Haplotypes that copy others, and leave them every 1 / leaves sites."""
    n_sites, n_source = source_SF.shape
    which_SN = np.empty((n_sites, n), int)
    now = rng.integers(0, n_source, n)
    for s in range(n_sites):
        now = np.where(rng.random(n) < leaves, rng.integers(0, n_source, n), now)
        which_SN[s] = now
    return np.take_along_axis(source_SF, which_SN, axis=1).astype(np.uint8)


def made_panel(rng: np.random.Generator, n_sites: int, n: int, leaves: float = 1 / 40) -> ArrayPanel:
    """Haplotypes that copy twelve founders."""
    founder_SF = rng.random((n_sites, 12)) < rng.uniform(0.02, 0.9, (n_sites, 1))
    return ArrayPanel(copied(rng, founder_SF, n, leaves), np.cumsum(rng.uniform(0, 1.2 * leaves, n_sites)))


def random_phred(rng: np.random.Generator, n_sites: int, n_samples: int, known: float = 0.6) -> np.ndarray:
    """Likelihoods, uint8 (S, X, 3), some of them flat."""
    phred_SX3 = rng.integers(0, 60, (n_sites, n_samples, 3))
    phred_SX3 -= phred_SX3.min(axis=2, keepdims=True)
    phred_SX3[rng.random((n_sites, n_samples)) < 0.1] *= 4
    phred_SX3[rng.random((n_sites, n_samples)) >= known] = 0
    return phred_SX3.clip(0, CERTAIN).astype(np.uint8)


def haploid_phred(rng: np.random.Generator, n_sites: int, n_samples: int, known: float = 0.6) -> np.ndarray:
    """Likelihoods of haploid samples: heterozygotes are impossible."""
    phred_SX3 = np.full((n_sites, n_samples, 3), CERTAIN, np.uint8)
    phred_SX3[..., ::2] = 0
    np.put_along_axis(
        phred_SX3,
        2 * rng.integers(0, 2, (n_sites, n_samples, 1)),
        rng.integers(1, 120, (n_sites, n_samples, 1), np.uint8),
        axis=2,
    )
    phred_SX3[rng.random((n_sites, n_samples)) >= known] = 0
    return phred_SX3


def copies(p_S2X: np.ndarray) -> np.ndarray:
    """Genotype probabilities (S, X, 3) of diploids."""
    p, q = p_S2X[:, 0].astype(float), p_S2X[:, 1].astype(float)
    return np.stack([(1 - p) * (1 - q), p * (1 - q) + q * (1 - p), p * q], axis=2)


def phred_of_reads(rng: np.random.Generator, genotype_SX: np.ndarray, depth: float) -> np.ndarray:
    """Likelihoods of reads with 1% errors."""
    n_SX = rng.poisson(depth, genotype_SX.shape)
    alt_SX = rng.binomial(n_SX, np.array([0.01, 0.5, 0.99])[genotype_SX])
    p_3 = np.array([0.01, 0.5, 0.99])
    phred_SX3 = -10 * (alt_SX[..., None] * np.log10(p_3) + (n_SX - alt_SX)[..., None] * np.log10(1 - p_3))
    return (phred_SX3 - phred_SX3.min(axis=2, keepdims=True)).round().clip(0, CERTAIN).astype(np.uint8)


def certain(genotype_SX: np.ndarray, known_S: np.ndarray) -> np.ndarray:
    phred_SX3 = np.where(np.arange(3) == genotype_SX[..., None], 0, CERTAIN)
    return np.where(known_S[:, None, None], phred_SX3, 0).astype(np.uint8)


Batch = tuple[ArrayPanel, np.ndarray, np.ndarray]


def diploid(n: int) -> np.ndarray:
    return np.zeros(n, bool)


def mean_of_sweeps(x_KS: np.ndarray, phred_S3: np.ndarray, panel: ArrayPanel) -> np.ndarray:
    """Mean of the sweeps that count for one sample."""
    known = (phred_S3 != phred_S3[:, :1]).any(axis=1).mean()
    averaged = next(averaged for minimum, averaged in AVERAGED_SCALES if known >= minimum)
    mean_S, left_S = np.empty(x_KS.shape[1]), np.ones(x_KS.shape[1], bool)
    for edge, chosen in zip(FREQUENCIES, averaged, strict=True):
        here_S = left_S & (np.minimum(panel.frequency, 1 - panel.frequency).astype(np.float32) <= edge)
        mean_S[here_S] = x_KS[chosen, here_S].mean(axis=0)
        left_S &= ~here_S
    return mean_S


def haploid_reference(panel: ArrayPanel, phred_S3: np.ndarray) -> np.ndarray:
    """P(ALT) of a haploid sample, from forward and backward values by haplotype."""
    n_sites, n = panel.alleles_XN.shape
    ref_S, _, alt_S = 10.0 ** (phred_S3.T / -10.0)
    share_S = alt_S / (ref_S + alt_S)
    share_S = share_S + MISMATCH * (1 - 2 * share_S)
    emission_SN = np.where(panel.alleles_XN == 1, share_S[:, None], 1 - share_S[:, None])
    p_KS = []
    for scale in SCALES:
        jump_S = (1 - np.exp(-np.diff(panel.cM, prepend=panel.cM[:1]) * scale)).clip(MIN_JUMP)
        forward_SN, backward_SN = np.empty((n_sites, n)), np.ones((n_sites, n))
        before = np.full(n, 1 / n)
        for s in range(n_sites):  # forward values without the place's own emission
            forward_SN[s] = (1 - jump_S[s]) * before + jump_S[s] / n
            before = forward_SN[s] * emission_SN[s]
            before /= before.sum()
        for s in range(n_sites - 1, 0, -1):
            behind = backward_SN[s] * emission_SN[s]
            backward_SN[s - 1] = (1 - jump_S[s]) * behind + jump_S[s] * behind.mean()
            backward_SN[s - 1] /= backward_SN[s - 1].mean()
        around_SN = forward_SN * backward_SN
        p_S = (around_SN * panel.alleles_XN).sum(axis=1) / around_SN.sum(axis=1)
        p_S = p_S + float(MUTATION) * (1 - 2 * p_S)
        p_KS.append(p_S * alt_S / (p_S * alt_S + (1 - p_S) * ref_S))
    return mean_of_sweeps(np.array(p_KS), phred_S3, panel)


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 10**6),
    st.sampled_from([1, 2, 15, 16, 17, 33, 64, 230]),
    st.integers(1, 120),
    st.sampled_from([0.0, 0.1, 0.5, 1.0]),
)
def test_one_copy_is_what_the_reference_says(seed: int, n_sites: int, n: int, known: float) -> None:
    rng = np.random.default_rng(seed)
    panel = made_panel(rng, n_sites, n)
    phred_SX3 = haploid_phred(rng, n_sites, int(rng.integers(1, 4)), known)
    p_S2X = genotypes_from_likelihoods(panel, 0, phred_SX3, np.ones(phred_SX3.shape[1], bool), 1)
    assert p_S2X.dtype == np.float32
    assert p_S2X.shape == (n_sites, 2, phred_SX3.shape[1])
    np.testing.assert_array_equal(p_S2X[:, 0], p_S2X[:, 1])
    for x in range(phred_SX3.shape[1]):
        expected_S = haploid_reference(panel, phred_SX3[:, x])
        # 1 - p of what is copied is rounded by 6e-8; reads that contradict it magnify that up to 10,000 times
        sure_S = np.abs(np.diff(phred_SX3[:, x, ::2].astype(int))[:, 0]) >= 30
        np.testing.assert_allclose(p_S2X[~sure_S, 0, x], expected_S[~sure_S], atol=1e-4)
        np.testing.assert_allclose(p_S2X[sure_S, 0, x], expected_S[sure_S], atol=2e-3)


def test_sites_of_the_middle_of_a_panel(rng: np.random.Generator) -> None:
    panel = made_panel(rng, 300, 50)
    part = ArrayPanel(panel.alleles_XN[37:241], panel.cM[37:241])
    phred_SX3 = random_phred(rng, 204, 3)
    haploid_X = np.array([False, True, False])
    phred_SX3[:, 1] = haploid_phred(rng, 204, 1)[:, 0]
    np.testing.assert_array_equal(
        genotypes_from_likelihoods(panel, 37, phred_SX3, haploid_X, 1),
        genotypes_from_likelihoods(part, 0, phred_SX3, haploid_X, 1),
    )


def test_homozygotes_are_two_haploids(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(likely_pairs, "PAIRS", ())
    panel = made_panel(rng, 230, 60)
    truth_S1 = copied(rng, panel.alleles_XN, 1, 1 / 150).astype(int)
    phred_SX3 = certain(2 * truth_S1, np.arange(230) % 7 == 0)
    p_S2X = genotypes_from_likelihoods(panel, 0, phred_SX3, diploid(1), 1)
    expected_S = haploid_reference(panel, phred_SX3[:, 0])
    np.testing.assert_allclose(p_S2X.mean(axis=1)[:, 0], expected_S, atol=0.01)


def diploid_reference(panel: ArrayPanel, phred_SX3: np.ndarray, scale: float) -> np.ndarray:
    """Genotype probabilities (S, X, 3) of the exact model, whose states are pairs of haplotypes."""
    n_sites, n = panel.alleles_XN.shape
    likelihood_SX3 = 10.0 ** (phred_SX3 / -10.0)
    jump_S = (1 - np.exp(-np.diff(panel.cM, prepend=panel.cM[:1]) * scale)).clip(MIN_JUMP)
    written_S2N = np.stack([panel.alleles_XN == 0, panel.alleles_XN == 1], axis=1) * (1 - 2 * MISMATCH)
    written_S2N += MISMATCH

    def move(x_XNN: np.ndarray, jump: float) -> np.ndarray:
        for axis in (1, 2):
            x_XNN = (1 - jump) * x_XNN + jump * x_XNN.mean(axis=axis, keepdims=True)
        return x_XNN / x_XNN.sum(axis=(1, 2), keepdims=True)

    def emission(s: int) -> np.ndarray:
        by_pair_X22 = likelihood_SX3[s][:, [[0, 1], [1, 2]]]
        return np.einsum("xab,am,bn->xmn", by_pair_X22, written_S2N[s], written_S2N[s])

    forward_SXNN = np.empty((n_sites, phred_SX3.shape[1], n, n))
    before = np.ones(forward_SXNN.shape[1:])
    for s in range(n_sites):
        forward_SXNN[s] = move(before, jump_S[s])
        before = forward_SXNN[s] * emission(s)
    out_SX3 = np.empty(phred_SX3.shape)
    behind = np.ones_like(before)
    for s in range(n_sites - 1, -1, -1):
        around = forward_SXNN[s] * behind
        pair_X22 = np.einsum("xmn,am,bn->xab", around, written_S2N[s], written_S2N[s])
        copies_X3 = np.stack([pair_X22[:, 0, 0], pair_X22[:, 0, 1] + pair_X22[:, 1, 0], pair_X22[:, 1, 1]], 1)
        out_SX3[s] = copies_X3 * likelihood_SX3[s]
        behind = move(behind * emission(s), jump_S[s])
    return out_SX3 / out_SX3.sum(axis=2, keepdims=True)


@pytest.mark.parametrize("depth", [0.1, 0.3, 1.0, 4.0, None])
def test_nearly_the_model_of_all_pairs(rng: np.random.Generator, depth: float | None) -> None:
    """A depth of None means certain calls at every fifth site."""
    n_sites, n_samples = 240, 6
    panel = made_panel(rng, n_sites, 24, 1 / 150)
    truth_SQ = copied(rng, panel.alleles_XN, 2 * n_samples, 1 / 150)
    genotype_SX = truth_SQ.reshape(n_sites, n_samples, 2).sum(axis=2).astype(int)
    if depth is None:
        phred_SX3 = certain(genotype_SX, np.arange(n_sites) % 5 == 0)
    else:
        phred_SX3 = phred_of_reads(rng, genotype_SX, depth)
    exact_KSX = np.stack([diploid_reference(panel, phred_SX3, x) @ np.arange(3) for x in SCALES])
    exact_SX = np.stack(
        [mean_of_sweeps(exact_KSX[..., x], phred_SX3[:, x], panel) for x in range(n_samples)], axis=1
    )
    dosage_SX = genotypes_from_likelihoods(panel, 0, phred_SX3, diploid(n_samples), 1).sum(axis=1)
    assert np.corrcoef(dosage_SX.ravel(), exact_SX.ravel())[0, 1] > 0.993
    of_chains, of_pairs = (np.mean((x - genotype_SX) ** 2) for x in (dosage_SX, exact_SX))
    assert of_chains < 1.2 * of_pairs + 0.01


@pytest.fixture
def batch(rng: np.random.Generator) -> Batch:
    """Eleven samples in two groups of lanes: two are haploid, one has no reads."""
    panel = made_panel(rng, 210, 70)
    phred_SX3 = random_phred(rng, 210, 11)
    phred_SX3[:, 5] = 0
    haploid_X = np.isin(np.arange(11), [3, 9])
    phred_SX3[:, haploid_X] = haploid_phred(rng, 210, 2)
    return panel, phred_SX3, haploid_X


def test_threads_change_nothing_and_inputs_stay(batch: Batch) -> None:
    panel, phred_SX3, haploid_X = batch
    told: list[float] = []
    before = phred_SX3.copy(), haploid_X.copy()
    one = genotypes_from_likelihoods(panel, 0, phred_SX3, haploid_X, 1)
    three = genotypes_from_likelihoods(panel, 0, phred_SX3, haploid_X, 3, told.append)
    assert one.tobytes() == three.tobytes()
    assert all(np.array_equal(x, y) for x, y in zip(before, (phred_SX3, haploid_X), strict=True))
    assert told == sorted(told)
    assert told[-1] == 1


def test_order_of_the_panel(rng: np.random.Generator) -> None:
    """The order of sums changes results a little."""
    panel = made_panel(rng, 210, 70)
    genotype_SX = copied(rng, panel.alleles_XN, 8, 1 / 150).astype(int).reshape(210, 4, 2).sum(axis=2)
    phred_SX3 = phred_of_reads(rng, genotype_SX, 2.0)
    shuffled = ArrayPanel(panel.alleles_XN[:, rng.permutation(70)], panel.cM)
    one, other = (genotypes_from_likelihoods(x, 0, phred_SX3, diploid(4), 1) for x in (panel, shuffled))
    np.testing.assert_allclose(copies(one), copies(other), atol=0.02)
    assert np.abs(copies(one) - copies(other)).mean() < 1e-3


@pytest.mark.parametrize("haploid", [False, True])
def test_of_nothing_follow_frequencies(rng: np.random.Generator, haploid: bool) -> None:
    panel = made_panel(rng, 150, 80)
    phred_SX3 = np.zeros((150, 2, 3), np.uint8)
    p_S2X = genotypes_from_likelihoods(panel, 0, phred_SX3, np.full(2, haploid), 1)
    np.testing.assert_allclose(p_S2X, np.broadcast_to(panel.frequency[:, None, None], p_S2X.shape), atol=2e-3)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 90), st.integers(1, 40), st.sampled_from([0.05, 0.5, 1.0]))
def test_probabilities_are_some(seed: int, n_sites: int, n: int, known: float) -> None:
    """Likelihoods may contradict the panel, and sites may lie at one genetic position."""
    rng = np.random.default_rng(seed)
    panel = made_panel(rng, n_sites, n)
    panel.cM = np.round(panel.cM, 1)
    phred_SX3 = random_phred(rng, n_sites, 9, known)
    phred_SX3[rng.random((n_sites, 9)) < 0.2] = rng.permutation([0, CERTAIN, CERTAIN])
    haploid_X = rng.random(9) < 0.3
    phred_SX3[:, haploid_X] = haploid_phred(rng, n_sites, int(haploid_X.sum()), known)
    p_S2X = genotypes_from_likelihoods(panel, 0, phred_SX3, haploid_X, 2)
    assert ((p_S2X >= 0) & (p_S2X <= 1)).all()
    genotype_SX3 = copies(p_S2X)
    assert (genotype_SX3 >= 0).all()
    np.testing.assert_allclose(genotype_SX3.sum(axis=2), 1, atol=1e-6)
    # what the likelihoods exclude comes out nowhere, but for two that no chains can have: as p = q
    sure_SX = (np.sort(phred_SX3, axis=2)[..., 1] == CERTAIN) & ~haploid_X
    likeliest_SX = phred_SX3.argmin(axis=2)
    for s, x in np.argwhere(sure_SX):
        assert genotype_SX3[s, x, likeliest_SX[s, x]] > 0.99, (s, x, p_S2X[s, :, x], phred_SX3[s, x])


def switches(found_S2: np.ndarray, truth_S2: np.ndarray) -> int:
    het = truth_S2[:, 0] != truth_S2[:, 1]
    same = (found_S2[het, 0] > found_S2[het, 1]) == (truth_S2[het, 0] == 1)
    return sum(a != b for a, b in pairwise(same.tolist()))


def test_mosaics_of_the_panel_are_recovered(rng: np.random.Generator) -> None:
    n_sites, n_samples = 900, 8
    panel = made_panel(rng, n_sites, 60, 1 / 400)
    truth_S2X = copied(rng, panel.alleles_XN, 2 * n_samples, 1 / 300).reshape(n_sites, 2, n_samples)
    genotype_SX = truth_S2X.sum(axis=1).astype(int)
    known_S = np.arange(n_sites) % 5 == 0
    p_S2X = genotypes_from_likelihoods(panel, 0, certain(genotype_SX, known_S), diploid(n_samples), 1)
    found_SX = copies(p_S2X).argmax(axis=2)
    np.testing.assert_array_equal(found_SX[known_S], genotype_SX[known_S])
    assert (found_SX == genotype_SX)[~known_S].mean() > 0.97
    wrong = sum(switches(p_S2X[:, :, x], truth_S2X[:, :, x]) for x in range(n_samples))
    hets = int((genotype_SX == 1).sum())
    assert hets > 1500
    assert wrong < 0.02 * hets


def test_reads_beat_frequencies_and_themselves(rng: np.random.Generator) -> None:
    n_sites, n_samples = 600, 8
    panel = made_panel(rng, n_sites, 80, 1 / 400)
    truth_S2X = copied(rng, panel.alleles_XN, 2 * n_samples, 1 / 300).reshape(n_sites, 2, n_samples)
    genotype_SX = truth_S2X.sum(axis=1).astype(int)
    phred_SX3 = phred_of_reads(rng, genotype_SX, 0.5)
    p_S2X = genotypes_from_likelihoods(panel, 0, phred_SX3, diploid(n_samples), 1)
    f_S1 = panel.frequency[:, None]
    prior_SX3 = np.stack(np.broadcast_arrays((1 - f_S1) ** 2, 2 * f_S1 * (1 - f_S1), f_S1**2), axis=2)
    alone_SX3 = prior_SX3 * 10 ** (phred_SX3 / -10)
    alone_SX = alone_SX3 @ np.arange(3) / alone_SX3.sum(axis=2)
    error, by_frequency, by_reads = (
        np.mean((x - genotype_SX) ** 2) for x in (p_S2X.sum(axis=1), 2 * f_S1, alone_SX)
    )
    assert error < 0.2 * by_frequency
    assert error < 0.3 * by_reads


Small = Callable[[int, float], None]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Small:
    """small(sites, cM): windows and flanks of this size."""

    def resize(sites: int, cM: float) -> None:
        monkeypatch.setattr(genotypes, "WINDOW_SITES", sites)
        monkeypatch.setattr(genotypes, "FLANK_CM", cM)

    return resize


def test_windows_make_up_the_whole(rng: np.random.Generator, small: Small) -> None:
    n_sites, first = 640, 30
    panel = made_panel(rng, n_sites, 60, 1 / 150)
    truth_SQ = copied(rng, panel.alleles_XN, 18, 1 / 150)[first:]
    genotype_SX = truth_SQ.reshape(len(truth_SQ), 9, 2).sum(axis=2).astype(int)
    phred_SX3 = phred_of_reads(rng, genotype_SX, 3.0)
    haploid_X = diploid(9)
    ((start, whole),) = genotypes_by_window(panel, first, phred_SX3, haploid_X, 1)
    assert start == first
    np.testing.assert_array_equal(whole, genotypes_from_likelihoods(panel, first, phred_SX3, haploid_X, 1))
    small(100, 1.0)
    told: list[float] = []
    parts = list(genotypes_by_window(panel, first, phred_SX3, haploid_X, 1, told.append))
    assert [start for start, _ in parts] == list(range(first, n_sites, 100))
    joined = np.concatenate([p for _, p in parts])
    assert joined.shape == whole.shape
    assert np.abs(joined.sum(axis=1) - whole.sum(axis=1)).mean() < 0.01
    truth_S2X = truth_SQ.reshape(len(truth_SQ), 9, 2).transpose(0, 2, 1)
    more = [
        switches(joined[:, :, x], truth_S2X[:, :, x]) - switches(whole[:, :, x], truth_S2X[:, :, x])
        for x in range(9)
    ]
    assert sum(more) <= 3  # 54 borders
    assert told == sorted(told)
    assert told[-1] == 1


def test_phase_continues_from_window_to_window(rng: np.random.Generator, small: Small) -> None:
    """The two haplotypes differ everywhere, so that each window could start with either."""
    n_sites = 300
    panel = made_panel(rng, n_sites, 40)
    panel.alleles_XN[:, 1] = 1 - panel.alleles_XN[:, 0]
    truth_S2X = np.stack([panel.alleles_XN[:, :2], panel.alleles_XN[:, 1::-1]], axis=2)
    phred_SX3 = certain(np.ones((n_sites, 2), int), np.arange(n_sites) % 3 == 0)
    small(50, 0.2)
    joined = np.concatenate([p for _, p in genotypes_by_window(panel, 0, phred_SX3, diploid(2), 1)])
    for x in range(2):
        assert switches(joined[:, :, x], truth_S2X[:, :, x]) == 0


def test_flanks_stay_within_what_is_given(rng: np.random.Generator, small: Small) -> None:
    panel = made_panel(rng, 120, 30)
    phred_SX3 = random_phred(rng, 77, 2)
    for sites, cM in ((10, 5.0), (7, 0.0), (76, 0.01), (1, 0.02)):
        small(sites, cM)
        parts = list(genotypes_by_window(panel, 20, phred_SX3, np.array([False, True]), 1))
        assert [start for start, _ in parts] == list(range(20, 97, sites))
        joined = np.concatenate([p for _, p in parts])
        assert joined.shape == (77, 2, 2)
        assert np.isfinite(joined).all()
        np.testing.assert_array_equal(joined[:, 0, 1], joined[:, 1, 1])


def test_sites_without_trust_tell_nothing_of_others(rng: np.random.Generator) -> None:
    panel = made_panel(rng, 120, 40)
    bad = np.array([30, 31, 77])
    panel.trust[bad] = 0
    phred_SX3 = random_phred(rng, 120, 2)
    phred_SX3[bad] = np.array([60, 10, 0], np.uint8)
    p_S2X = genotypes_from_likelihoods(panel, 0, phred_SX3, diploid(2), 1)
    phred_SX3[bad] = 0
    without_S2X = genotypes_from_likelihoods(panel, 0, phred_SX3, diploid(2), 1)
    others = np.setdiff1d(np.arange(120), bad)
    # calibration counts the sites of which something is known
    np.testing.assert_allclose(p_S2X[others], without_S2X[others], atol=0.02)
    f = panel.frequency[bad, None]
    prior_S3 = np.concatenate([(1 - f) ** 2, 2 * f * (1 - f), f**2], axis=1)
    np.testing.assert_allclose(copies(without_S2X)[bad], prior_S3[:, None].repeat(2, axis=1), atol=0.05)
    said_S3 = prior_S3 * 10.0 ** (-np.array([60, 10, 0]) / 10)
    said_S3 /= said_S3.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(copies(p_S2X)[bad], said_S3[:, None].repeat(2, axis=1), atol=0.05)
