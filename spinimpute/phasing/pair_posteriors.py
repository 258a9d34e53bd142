"""Genotype probabilities of a sample from all pairs of a few hundred haplotypes.

This is a hidden Markov model whose state is a pair of haplotypes that the sample copies; each member of the
pair switches to another haplotype independently (Li & Stephens 2003, Genetics 165:2213). `likely_pairs`
chooses the haplotypes and uses the result.

The jump probability does not depend on the state. A transition therefore needs only the value of a pair, the
sums of its row and its column, and the total. Row sums equal column sums, because (i, k) and (k, i) are
equally likely. Forward values are stored at the first places of blocks. When the backward pass reaches a
block, the values within the block are computed again.

Axes: S places, K haplotypes (KK: pairs), B blocks of places, T places of a block, 2 alleles of one haplotype
of a pair; 3: genotype, as copies of ALT.
"""

from __future__ import annotations

import numpy as np

from spinimpute.runtime.kernels import kernel


def pair_posteriors(
    allele_SK: np.ndarray, likelihood_S3: np.ndarray, jump_S: np.ndarray, mismatch: float
) -> np.ndarray:
    """Return P(the copied pair has 0, 1 and 2 ALT alleles), given all other places, float32 (S, 3).

    allele_SK: uint8, 0 or 1. likelihood_S3: likelihoods of 0, 1 and 2 copies of ALT; all equal where the
    sample is not observed. mismatch: probability that an allele differs from the copied one.
    """
    n_places, n = allele_SK.shape
    block = max(1, round(n_places**0.5))
    stored_BKK = np.empty((-(-n_places // block), n, n), np.float32)
    arrived_TKK = np.empty((block, n, n), np.float32)
    genotype_S3 = np.empty((n_places, 3), np.float32)
    by_copied_S3 = likelihood_S3 @ observed_given_copied(mismatch).T
    by_copied_S3 /= by_copied_S3.max(axis=1, keepdims=True)
    _sum_pairs(allele_SK, by_copied_S3, jump_S, stored_BKK, arrived_TKK, genotype_S3)
    return genotype_S3


def observed_given_copied(mismatch: float) -> np.ndarray:
    """Return P(genotype of the sample | genotype of the copied pair), float32 (pair 3, sample 3)."""
    kept = 1 - mismatch
    one_mismatch, two_mismatches = 2 * kept * mismatch, mismatch**2
    heterozygote = [kept * mismatch, kept**2 + mismatch**2, kept * mismatch]
    return np.array(
        [[kept**2, one_mismatch, two_mismatches], heterozygote, [two_mismatches, one_mismatch, kept**2]],
        np.float32,
    )


@kernel(fast=True)
def _sum_pairs(allele_SK, likelihood_S3, jump_S, stored_BKK, arrived_TKK, genotype_S3):  # type: ignore[no-untyped-def]
    """Run the forward pass, then the backward pass block by block, and fill genotype_S3.

    stored_BKK: workspace for the forward values to the left of each block. arrived_TKK: workspace for the
    forward values at each place of a block, without the place's emissions.
    """
    n_places, n = allele_SK.shape
    block = len(arrived_TKK)
    pair_KK = np.ones((n, n), np.float32)
    sum_K, next_K = np.full(n, np.float32(n)), np.empty(n, np.float32)
    emission_2K, joined_2K = np.empty((2, n), np.float32), np.empty((2, n), np.float32)
    for s in range(n_places):
        if s % block == 0:
            stored_BKK[s // block] = pair_KK
        _emissions(allele_SK[s], likelihood_S3[s], emission_2K)
        _forward(allele_SK[s], emission_2K, jump_S[s], sum_K, next_K, pair_KK, arrived_TKK[0])
    backward_KK = np.ones((n, n), np.float32)
    backward_sum_K = np.full(n, np.float32(n))
    for b in range(len(stored_BKK) - 1, -1, -1):
        low, high = b * block, min(b * block + block, n_places)
        pair_KK[:] = stored_BKK[b]
        _sum_columns(pair_KK, sum_K)
        for s in range(low, high):
            _emissions(allele_SK[s], likelihood_S3[s], emission_2K)
            _forward(allele_SK[s], emission_2K, jump_S[s], sum_K, next_K, pair_KK, arrived_TKK[s - low])
        for s in range(high - 1, low - 1, -1):
            # No observations follow the last place, so the jump probability after it has no effect.
            jump = jump_S[s + 1] if s + 1 < n_places else np.float32(1)
            _emissions(allele_SK[s], likelihood_S3[s], emission_2K)
            _backward(
                allele_SK[s], emission_2K, jump, backward_sum_K, next_K, backward_KK, arrived_TKK[s - low],
                joined_2K,
            )  # fmt: skip
            _genotypes(allele_SK[s], joined_2K, genotype_S3[s])


@kernel(fast=True)
def _emissions(allele_K, likelihood_3, emission_2K):  # type: ignore[no-untyped-def]
    """Fill the likelihoods of pairs at a place: one haplotype has allele a, the other is haplotype k."""
    for a in range(2):
        for k in range(len(allele_K)):
            emission_2K[a, k] = likelihood_3[a + allele_K[k]]


@kernel(fast=True)
def _shares(jump, sum_K):  # type: ignore[no-untyped-def]
    """Return the coefficients of a transition, which also scales the values to a total of 1.

    The new value of a pair is first * value + second * (row sum + column sum) + third.
    """
    n = np.float32(len(sum_K))
    total = np.float32(0)
    for k in range(len(sum_K)):
        total += sum_K[k]
    keep, switch = np.float32(1) - jump, jump / n
    return keep * keep / total, keep * switch / total, switch * switch


@kernel(fast=True)
def _forward(allele_K, emission_2K, jump, sum_K, next_K, pair_KK, arrived_KK):  # type: ignore[no-untyped-def]
    """Take forward values from the right of the previous place to the right of this one.

    sum_K: column sums, updated. next_K: workspace. arrived_KK: filled with values without the emissions.
    """
    stay_both, switch_one, switch_both = _shares(jump, sum_K)
    next_K[:] = 0
    for i in range(len(sum_K)):
        row = switch_one * sum_K[i] + switch_both
        emission_K = emission_2K[allele_K[i]]
        pair_K, arrived_K = pair_KK[i], arrived_KK[i]
        for k in range(len(sum_K)):
            arrived = stay_both * pair_K[k] + (switch_one * sum_K[k] + row)
            arrived_K[k] = arrived
            value = arrived * emission_K[k]
            pair_K[k] = value
            next_K[k] += value
    for k in range(len(sum_K)):
        sum_K[k] = next_K[k]


@kernel(fast=True)
def _backward(allele_K, emission_2K, jump, sum_K, next_K, backward_KK, arrived_KK, joined_2K):  # type: ignore[no-untyped-def]
    """Take backward values from the left of the next place to the left of this one.

    jump: jump probability of the next place. joined_2K: filled with the products of forward and backward
    values at this place, without its emissions, summed over the first haplotype by its allele.
    """
    stay_both, switch_one, switch_both = _shares(jump, sum_K)
    next_K[:] = 0
    joined_2K[:] = 0
    for i in range(len(sum_K)):
        row = switch_one * sum_K[i] + switch_both
        emission_K, joined_K = emission_2K[allele_K[i]], joined_2K[allele_K[i]]
        backward_K, arrived_K = backward_KK[i], arrived_KK[i]
        for k in range(len(sum_K)):
            backward = stay_both * backward_K[k] + (switch_one * sum_K[k] + row)
            joined_K[k] += arrived_K[k] * backward
            value = backward * emission_K[k]
            backward_K[k] = value
            next_K[k] += value
    for k in range(len(sum_K)):
        sum_K[k] = next_K[k]


@kernel(fast=True)
def _sum_columns(pair_KK, sum_K):  # type: ignore[no-untyped-def]
    sum_K[:] = 0
    for i in range(len(sum_K)):
        for k in range(len(sum_K)):
            sum_K[k] += pair_KK[i, k]


@kernel(fast=True)
def _genotypes(allele_K, joined_2K, genotype_3):  # type: ignore[no-untyped-def]
    """Fill P(0, 1 and 2 ALT alleles) from joined_2K, see `_backward`."""
    genotype_3[:] = 0
    for a in range(2):
        for k in range(len(allele_K)):
            genotype_3[a + allele_K[k]] += joined_2K[a, k]
    total = genotype_3[0] + genotype_3[1] + genotype_3[2]
    for g in range(3):
        genotype_3[g] /= total
