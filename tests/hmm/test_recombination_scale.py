"""The recombination scale is the one that makes haplotypes most likely which the others explain."""

import numpy as np
import pytest

import spinimpute
from spinimpute.hmm.parameters import JUMPS_PER_CM, MISMATCH, SCALE_QUERIES, SCALES
from spinimpute.hmm.recombination_scale import _log_likelihood, most_likely_scale, recombination_scale
from spinimpute.hmm.steps import allele_emissions, jump_probabilities, pad_to_lanes
from tests.hmm.brute_force import forward_backward


def mosaics(
    rng: np.random.Generator, n_sites: int, n: int, jumps_per_cM: float, cM: np.ndarray
) -> np.ndarray:
    """Each haplotype copies those before it, and changes at the given scale."""
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


def log_likelihood(
    alleles_TN: np.ndarray, chosen: np.ndarray, emission_QT2: np.ndarray, jump_T: np.ndarray
) -> float:
    return sum(
        forward_backward(np.delete(alleles_TN, h, axis=1), emission_T2, jump_T)[1]
        for h, emission_T2 in zip(chosen, emission_QT2, strict=True)
    )


@pytest.mark.parametrize(("n_sites", "n"), [(30, 7), (60, 33), (25, 16)])
def test_likelihood_equals_brute_force(rng: np.random.Generator, n_sites: int, n: int) -> None:
    """For calls, and for likelihoods of alleles."""
    alleles = rng.integers(0, 2, (n_sites, n)).astype(np.uint8)
    cM = np.cumsum(rng.exponential(0.01, n_sites))
    chosen = rng.choice(n, 4, replace=False)
    emissions = allele_emissions(alleles[:, chosen].T, MISMATCH), rng.uniform(0.01, 1, (4, n_sites, 2))
    for scale in (SCALES[0], SCALES[-1]):
        jump_T = jump_probabilities(cM, n - 1, scale)
        for emission_QT2 in emissions:
            emission_QT2 = emission_QT2.astype(np.float32)
            found = _log_likelihood(pad_to_lanes(alleles), n, chosen, emission_QT2, jump_T)
            assert found == pytest.approx(log_likelihood(alleles, chosen, emission_QT2, jump_T), rel=1e-4)


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
    emission_QT2 = allele_emissions(alleles[:, chosen].T, MISMATCH)
    likelihood = {
        scale: log_likelihood(
            alleles, chosen, emission_QT2, jump_probabilities(cM, alleles.shape[1] - 1, scale)
        )
        for scale in SCALES
    }
    assert max(likelihood, key=lambda scale: likelihood[scale]) == found


def test_too_little_to_tell(example_panel: spinimpute.Panel) -> None:
    assert recombination_scale(example_panel, np.arange(5)) == JUMPS_PER_CM
    assert recombination_scale(example_panel, np.empty(0, np.int64)) == JUMPS_PER_CM
    assert most_likely_scale(np.zeros((100, 3), np.uint8), np.arange(100.0)) == JUMPS_PER_CM
    assert most_likely_scale(np.zeros((100, 9), np.uint8), np.arange(100.0)) in SCALES
