"""Simulated errors of real call sets: phase switches, misphased or missed rare alleles, wrong calls.

In real panels, phasing places the rarest alleles on either haplotype of a sample almost at random, and
low-coverage sequencing misses some of them. A model that is trained only on error-free panels trusts rare
alleles too much. `episodes` adds these errors to training tasks.

Axes: X sites, A haplotypes, N panel haplotypes, R sites with rare alleles, C their carrier haplotypes.
sibling_A: int64, the index of the other haplotype of the same sample.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from spinimpute.runtime.kernels import kernel


@kernel()
def _count_alleles(alleles_XA, chosen_A, count_X):  # type: ignore[no-untyped-def]
    for x in range(len(alleles_XA)):
        total = np.int64(0)
        for a in range(len(chosen_A)):
            total += alleles_XA[x, a] & chosen_A[a]
        count_X[x] = total


@kernel()
def _list_carriers(alleles_XA, chosen_A, row_R, row_C, column_C):  # type: ignore[no-untyped-def]
    entry = 0
    for x in row_R:
        for a in range(len(chosen_A)):
            if alleles_XA[x, a] & chosen_A[a]:
                row_C[entry], column_C[entry] = x, a
                entry += 1


def count_alleles(alleles_XA: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Count the alleles 1 at each site in some columns, int64 (X,), without copying the array."""
    count_X = np.empty(len(alleles_XA), np.int64)
    _count_alleles(alleles_XA, _column_mask(alleles_XA, columns), count_X)
    return count_X


def _column_mask(alleles_XA: np.ndarray, columns: np.ndarray) -> np.ndarray:
    chosen_A = np.zeros(alleles_XA.shape[1], np.uint8)
    chosen_A[columns] = 1
    return chosen_A


def switch_phases(
    alleles_XA: np.ndarray,
    position_X: np.ndarray,
    sibling_A: np.ndarray,
    rng: np.random.Generator,
    rate: float,
) -> None:
    """Switch the phase of samples at random sites, in place; rate: switches per Mb and sample."""
    if rate == 0:
        return
    first = np.flatnonzero(sibling_A > np.arange(len(sibling_A)))
    megabases = (position_X[-1] - position_X[0]) / 1e6
    for i, n in zip(first, rng.poisson(rate * megabases, len(first)), strict=True):
        for site in rng.integers(0, len(alleles_XA), n):
            pair = [i, sibling_A[i]]
            alleles_XA[site:, pair] = alleles_XA[site:, pair[::-1]]


class CallErrors(NamedTuple):
    """Error rates of the calls in a panel."""

    # for an allele with one carrier; divided by n for an allele with n carriers
    rare_phase_error: float = 0.0  # probability that the allele is on the wrong haplotype
    missed_allele: float = 0.0  # probability that the allele is missed
    wrong_call: float = 0.0  # probability that an allele is replaced by the other one
    # like wrong_call, times 4 f (1 - f) at a site of frequency f: most miscalls are of heterozygotes
    wrong_common_call: float = 0.0
    max_carriers: int = 8  # the first two errors are limited to alleles with at most this many carriers


def add_call_errors(
    alleles_XA: np.ndarray,
    panel_N: np.ndarray,
    sibling_A: np.ndarray,
    rng: np.random.Generator,
    errors: CallErrors,
) -> None:
    """Add errors to the panel's haplotypes (the columns panel_N), in place."""
    rare_phase_error, missed_allele, wrong_call, wrong_common_call, max_carriers = errors
    if rare_phase_error or missed_allele:
        count_X = count_alleles(alleles_XA, panel_N)
        rare = np.flatnonzero((count_X > 0) & (count_X <= max_carriers))
        row, column = np.empty((2, int(count_X[rare].sum())), np.int64)
        _list_carriers(alleles_XA, _column_mask(alleles_XA, panel_N), rare, row, column)
        sibling = sibling_A[column]
        share = 1.0 / count_X[row]
        misphased = (rng.random(len(row)) < rare_phase_error * share) & (alleles_XA[row, sibling] == 0)
        alleles_XA[row[misphased], column[misphased]] = 0
        alleles_XA[row[misphased], sibling[misphased]] = 1
        missed = ~misphased & (rng.random(len(row)) < missed_allele * share)
        alleles_XA[row[missed], column[missed]] = 0
    if wrong_call:
        n = rng.poisson(wrong_call * len(alleles_XA) * len(panel_N))
        alleles_XA[rng.integers(0, len(alleles_XA), n), panel_N[rng.integers(0, len(panel_N), n)]] ^= 1
    if wrong_common_call:
        f_X = count_alleles(alleles_XA, panel_N) / len(panel_N)
        n_X = rng.poisson(wrong_common_call * 4 * f_X * (1 - f_X) * len(panel_N))
        row = np.repeat(np.arange(len(n_X)), n_X)
        alleles_XA[row, panel_N[rng.integers(0, len(panel_N), len(row))]] ^= 1
