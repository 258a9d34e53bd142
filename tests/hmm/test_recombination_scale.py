"""The recombination scale is the one that makes haplotypes most likely which the others explain."""

import numpy as np
import pytest

import spinimpute
from spinimpute.hmm.parameters import JUMPS_PER_CM, MISMATCH, SCALE_QUERIES, SCALES
from spinimpute.hmm.recombination_scale import _log_likelihood, most_likely_scale, recombination_scale
from spinimpute.hmm.steps import allele_emissions, jump_probabilities, pad_to_lanes


def mosaics(
    rng: np.random.Generator, n_sites: int, n: int, jumps_per_cM: float, cM: np.ndarray
) -> np.ndarray:
    """Haplotypes by the model itself: each copies those before it, with changes at the scale."""
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
def test_the_scale_of_mosaics_is_found(true: float) -> None:
    rng = np.random.default_rng(int(true))
    cM = np.cumsum(rng.exponential(0.004, 500))
    alleles = mosaics(rng, 500, 220, true, cM)
    assert true / 2 <= most_likely_scale(alleles, cM) <= true * 2


def brute_force(alleles_TN: np.ndarray, chosen: np.ndarray, cM_T: np.ndarray, scale: float) -> float:
    total = 0.0
    n = alleles_TN.shape[1]
    jump_T = jump_probabilities(cM_T, n - 1, scale).astype(float)
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
        for scale in (SCALES[0], SCALES[-1]):
            emission_QT2 = allele_emissions(alleles[:, chosen].T, MISMATCH)
            jump_T = jump_probabilities(cM, n - 1, scale)
            found = _log_likelihood(pad_to_lanes(alleles), n, chosen, emission_QT2, jump_T)
            assert found == pytest.approx(brute_force(alleles, chosen, cM, scale), rel=1e-4)


def test_the_search_finds_the_largest(example_panel: spinimpute.Panel) -> None:
    rows = np.arange(3, example_panel.n_sites, 9)[:500]
    alleles = example_panel.alleles(0, example_panel.n_sites)[rows]
    cM = example_panel.cM[rows]
    found = most_likely_scale(alleles, cM)
    order = np.random.default_rng(1).permutation(alleles.shape[1])
    assert most_likely_scale(np.ascontiguousarray(alleles[:, order]), cM) == found
    assert recombination_scale(example_panel, rows) == found
    weight = np.random.default_rng(0).integers(1, 2**63, len(alleles), dtype=np.uint64)
    content = np.where(alleles, weight[:, None], np.uint64(0)).sum(axis=0, dtype=np.uint64)
    chosen = np.argsort(content, kind="stable")[:SCALE_QUERIES]
    likelihood = {scale: brute_force(alleles, chosen, cM, scale) for scale in SCALES}
    assert max(likelihood, key=lambda scale: likelihood[scale]) == found


def test_too_little_to_tell(example_panel: spinimpute.Panel) -> None:
    assert recombination_scale(example_panel, np.arange(5)) == JUMPS_PER_CM
    assert recombination_scale(example_panel, np.empty(0, np.int64)) == JUMPS_PER_CM
    assert most_likely_scale(np.zeros((100, 3), np.uint8), np.arange(100.0)) == JUMPS_PER_CM
    assert most_likely_scale(np.zeros((100, 9), np.uint8), np.arange(100.0)) in SCALES
