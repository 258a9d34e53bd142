"""The rate of changes is the one that makes haplotypes most likely which the others explain."""

import numpy as np
import pytest

import spinimpute
from spinimpute.hmm import recombination_scale as copying_rate
from spinimpute.hmm.li_stephens import JUMPS_PER_CM, MISMATCH, jump_probabilities
from spinimpute.hmm.recombination_scale import QUERIES, RATES, most_likely_rate, rate_of_panel


def mosaics(
    rng: np.random.Generator, n_sites: int, n: int, jumps_per_cM: float, cM: np.ndarray
) -> np.ndarray:
    """Haplotypes by the model itself: each copies those before it, with changes at the rate."""
    alleles = rng.integers(0, 2, (n_sites, n)).astype(np.uint8)
    for h in range(20, n):
        jump = jump_probabilities(cM, n, jumps_per_cM)
        source = 0
        for t in range(n_sites):
            if rng.random() < jump[t]:
                source = int(rng.integers(h))
            alleles[t, h] = alleles[t, source] ^ (rng.random() < 0.002)
    return alleles


@pytest.mark.parametrize("true", [200.0, 1600.0, 12800.0])
def test_the_rate_of_mosaics_is_found(true: float) -> None:
    rng = np.random.default_rng(int(true))
    cM = np.cumsum(rng.exponential(0.004, 500))
    alleles = mosaics(rng, 500, 220, true, cM)
    assert true / 2 <= most_likely_rate(alleles, cM) <= true * 2


def brute_force(alleles_TN: np.ndarray, chosen: np.ndarray, cM_T: np.ndarray, rate: float) -> float:
    total = 0.0
    n = alleles_TN.shape[1]
    jump_T = jump_probabilities(cM_T, n - 1, rate).astype(float)
    for h in chosen:
        others = np.delete(np.arange(n), h)
        probability = np.full(n - 1, 1 / (n - 1))
        for t, allele in enumerate(alleles_TN[:, h]):
            probability = probability * (1 - jump_T[t]) + jump_T[t] / (n - 1)
            probability *= np.where(alleles_TN[t, others] == allele, 1 - MISMATCH, MISMATCH)
            total += np.log(probability.sum())
            probability /= probability.sum()
    return total


def test_likelihood_equals_brute_force() -> None:
    rng = np.random.default_rng(4)
    for n_sites, n in ((30, 7), (60, 33), (25, 16)):
        alleles = rng.integers(0, 2, (n_sites, n)).astype(np.uint8)
        cM = np.cumsum(rng.exponential(0.01, n_sites))
        chosen = rng.choice(n, 4, replace=False)
        for rate in (RATES[0], RATES[-1]):
            found = copying_rate._log_likelihood(
                alleles, chosen, jump_probabilities(cM, n - 1, rate), np.float32(MISMATCH)
            )
            assert found == pytest.approx(brute_force(alleles, chosen, cM, rate), rel=1e-4)


def test_the_search_finds_the_largest(example_panel: spinimpute.Panel) -> None:
    rows = np.arange(3, example_panel.n_sites, 9)[:500]
    alleles = example_panel.alleles(0, example_panel.n_sites)[rows]
    cM = example_panel.cM[rows]
    found = most_likely_rate(alleles, cM)
    order = np.random.default_rng(1).permutation(alleles.shape[1])
    assert most_likely_rate(np.ascontiguousarray(alleles[:, order]), cM) == found
    assert rate_of_panel(example_panel, rows) == found
    weight = np.random.default_rng(0).integers(1, 2**63, len(alleles), dtype=np.uint64)
    content = np.where(alleles, weight[:, None], np.uint64(0)).sum(axis=0, dtype=np.uint64)
    chosen = np.argsort(content, kind="stable")[:QUERIES]
    likelihood = {rate: brute_force(alleles, chosen, cM, rate) for rate in RATES}
    assert max(likelihood, key=lambda rate: likelihood[rate]) == found


def test_too_little_to_tell(example_panel: spinimpute.Panel) -> None:
    assert rate_of_panel(example_panel, np.arange(5)) == JUMPS_PER_CM
    assert rate_of_panel(example_panel, np.empty(0, np.int64)) == JUMPS_PER_CM
    assert most_likely_rate(np.zeros((100, 3), np.uint8), np.arange(100.0)) == JUMPS_PER_CM
    assert most_likely_rate(np.zeros((100, 9), np.uint8), np.arange(100.0)) in RATES
