"""How fast haplotypes change whom they copy, estimated from the panel itself.

By the model of Li and Stephens the rate of changes falls with the number of haplotypes; how large it is
beyond that depends on the panel's history, on its errors of phase and on the array: it differs ten times
between real panels. Some of the panel's haplotypes are taken out, one at a time, and the rate is chosen that
makes their typed alleles most likely. The targets take no part: what is imputed for one of them does not
depend on the others.

Axes: T typed sites, N panel haplotypes.
"""

from __future__ import annotations

import hashlib

import numpy as np

from spinimpute.hmm.li_stephens import JUMPS_PER_CM, LANES, MISMATCH, jump_probabilities
from spinimpute.kernels import kernel
from spinimpute.panels.panel import Panel

RATES = tuple(100.0 * 2**i for i in range(10))  # jumps per cM, see `jump_probabilities`
STARTING_RATE = 4  # of RATES
QUERIES = 16  # haplotypes taken out
MOST_SITES = 512  # around the middle of the panel
MOST_HAPLOTYPES = 20_000
LEAST_SITES = 20
RATE_LINE = "##spinimpute_copying_rate="  # then jumps per cM, and a checksum of the panel's genetic map


def rate_of_panel(panel: Panel, typed_index: np.ndarray) -> float:
    """Jumps per cM. typed_index: int64 (T,), the typed panel sites, increasing. Does not depend on the order
    of the panel's haplotypes."""
    extra = max(0, len(typed_index) - MOST_SITES)
    rows = typed_index[extra // 2 : len(typed_index) - (extra + 1) // 2]
    if len(rows) < LEAST_SITES:
        return JUMPS_PER_CM
    packed = panel.packed_rows(rows)
    alleles_TN = np.unpackbits(packed, axis=1, count=panel.n_haplotypes)
    return most_likely_rate(alleles_TN, panel.cM[rows])


def rate_line(panel: Panel, jumps_per_cM: float) -> str:
    """A line of the header of a file whose typed sites give this rate, so that who reads a part of them knows
    the rate of all."""
    return f"{RATE_LINE}{jumps_per_cM:g} {_map_checksum(panel)}"


def told_rate(header: str, panel: Panel) -> float | None:
    """The rate that `rate_line` wrote for the panel with its genetic map; None if there is no such line."""
    for line in header.splitlines():
        rate, _, checksum = line.removeprefix(RATE_LINE).partition(" ")
        if line.startswith(RATE_LINE) and checksum == _map_checksum(panel):
            try:
                return float(rate) if float(rate) in RATES else None
            except ValueError:
                return None
    return None


def _map_checksum(panel: Panel) -> str:
    return hashlib.sha256(np.ascontiguousarray(panel.cM, dtype="<f8").tobytes()).hexdigest()[:16]


def most_likely_rate(alleles_TN: np.ndarray, cM_T: np.ndarray) -> float:
    """Of RATES. alleles_TN: uint8 (T, N), 0 or 1, phased; cM_T: float64 (T,)."""
    if len(alleles_TN) < LEAST_SITES or alleles_TN.shape[1] < 4:
        return JUMPS_PER_CM
    order_N = np.argsort(content_hash(alleles_TN), kind="stable")
    if len(order_N) > MOST_HAPLOTYPES:
        alleles_TN = np.ascontiguousarray(alleles_TN[:, order_N[:MOST_HAPLOTYPES]])
        order_N = np.arange(MOST_HAPLOTYPES)
    chosen = order_N[:QUERIES]
    n = len(order_N)
    known: dict[int, float] = {}

    def likelihood(number: int) -> float:
        if number not in known:
            jump_T = jump_probabilities(cM_T, n - 1, RATES[number])
            known[number] = _log_likelihood(alleles_TN, chosen, jump_T, np.float32(MISMATCH))
        return known[number]

    best = STARTING_RATE  # the likelihood has one top
    while True:
        near = [i for i in (best - 1, best, best + 1) if 0 <= i < len(RATES)]
        better = max(near, key=likelihood)
        if better == best:
            return RATES[best]
        best = better


def content_hash(alleles_TN: np.ndarray) -> np.ndarray:
    """uint64 (N,): of each haplotype's alleles: neither which are taken out nor which are left out of very
    many may depend on their order in the file."""
    weight_T = np.random.default_rng(0).integers(1, 2**63, len(alleles_TN), dtype=np.uint64)
    hash_N = np.zeros(alleles_TN.shape[1], np.uint64)
    for weight, alleles_N in zip(weight_T, alleles_TN, strict=True):
        hash_N += weight * alleles_N
    return hash_N


@kernel(fast=True)
def _log_likelihood(alleles_TN, chosen, jump_T, mismatch):  # type: ignore[no-untyped-def]
    """Of the alleles of the chosen haplotypes, each copying all others."""
    n_sites, n = alleles_TN.shape
    log_likelihood = 0.0
    posterior_N = np.empty(n, np.float32)
    one = np.float32(1)
    hit = one - mismatch
    total_L = np.empty(LANES, np.float32)
    for left_out in chosen:
        posterior_N[:] = one / np.float32(n - 1)
        posterior_N[left_out] = 0
        scale = one
        for t in range(n_sites):
            keep, come = (one - jump_T[t]) * scale, jump_T[t] / np.float32(n - 1)
            allele = alleles_TN[t, left_out]
            for i in range(n):
                e = hit if alleles_TN[t, i] == allele else mismatch
                posterior_N[i] = (posterior_N[i] * keep + come) * e
            posterior_N[left_out] = 0
            total_L[:] = 0
            whole = n // LANES * LANES
            for i in range(0, whole, LANES):
                for l in range(LANES):  # a sum in a fixed order that is side by side
                    total_L[l] += posterior_N[i + l]
            total = np.float32(0)
            for l in range(LANES):
                total += total_L[l]
            for i in range(whole, n):
                total += posterior_N[i]
            log_likelihood += np.log(np.float64(total))
            scale = one / total
    return log_likelihood
