"""The recombination scale: how often a haplotype switches to another best match in the panel, per cM.

In the model of Li and Stephens, a query switches (jumps) to a random haplotype at a rate of this scale
divided by the number of haplotypes. The scale depends on the panel's history, its phasing errors and the
array; it differs eightfold between two real panels. It is estimated from the panel: a few haplotypes are held
out, one at a time, and the scale that makes their typed alleles most likely is chosen. Targets are not used,
so they do not affect each other.

Axes: T typed sites, N panel haplotypes, Q held-out haplotypes, 2 alleles of a state.
"""

from __future__ import annotations

import hashlib
from functools import cache

import numpy as np

from spinimpute.hmm import parameters
from spinimpute.hmm.parameters import JUMPS_PER_CM, MAX_HAPLOTYPES, MIN_SITES, MISMATCH
from spinimpute.hmm.steps import allele_emissions, jump_probabilities, pad_to_lanes, step_forward_states
from spinimpute.hmm.windows import PhasedSites
from spinimpute.panels.panel import Panel
from spinimpute.runtime.kernels import kernel

# Header line of a VCF or BCF file. The copying rate is an old name of the recombination scale. Jumps per cM
# and a checksum of the panel's genetic map follow.
SCALE_LINE = "##spinimpute_copying_rate="


def recombination_scale(panel: PhasedSites, typed_index: np.ndarray) -> float:
    """Estimate the recombination scale from the SCALE_SITES typed sites in the middle, in jumps per cM.

    `typed_index` must increase. The result does not depend on the order of the panel's haplotypes.
    """
    extra = max(0, len(typed_index) - parameters.SCALE_SITES)
    rows = typed_index[extra // 2 : len(typed_index) - (extra + 1) // 2]
    if len(rows) < MIN_SITES:
        return JUMPS_PER_CM
    packed = panel.packed_rows(rows)
    alleles_TN = np.unpackbits(packed, axis=1, count=panel.n_haplotypes)
    return most_likely_scale(alleles_TN, panel.cM[rows])


def scale_line(panel: Panel, jumps_per_cM: float) -> str:
    """Return a header line with the scale and a checksum of the panel's genetic map, without a line end.

    `phase` and `convert` write this line. `impute` uses its scale when it reads only a part of their file,
    because an estimate from the part would differ.
    """
    return f"{SCALE_LINE}{jumps_per_cM:g} {_map_checksum(panel)}"


def scale_in_header(header: str, panel: Panel) -> float | None:
    """Return the scale in a header's `scale_line`; None if there is none for this panel's genetic map."""
    for line in header.splitlines():
        scale, _, checksum = line.removeprefix(SCALE_LINE).partition(" ")
        if line.startswith(SCALE_LINE) and checksum == _map_checksum(panel):
            try:
                return float(scale) if float(scale) in parameters.SCALES else None
            except ValueError:
                return None
    return None


def _map_checksum(panel: Panel) -> str:
    return hashlib.sha256(np.ascontiguousarray(panel.cM, dtype="<f8").tobytes()).hexdigest()[:16]


def most_likely_scale(alleles_TN: np.ndarray, cM_T: np.ndarray) -> float:
    """Return the element of SCALES at which held-out haplotypes, each copying all others, are most likely.

    Returns JUMPS_PER_CM if there are too few sites or haplotypes.
    """
    if len(alleles_TN) < MIN_SITES or alleles_TN.shape[1] < 4:
        return JUMPS_PER_CM
    order_N = np.argsort(content_hash(alleles_TN), kind="stable")
    if len(order_N) > MAX_HAPLOTYPES:
        alleles_TN = alleles_TN[:, order_N[:MAX_HAPLOTYPES]]
        order_N = np.arange(MAX_HAPLOTYPES)
    chosen_Q = order_N[: parameters.SCALE_QUERIES]
    n = len(order_N)
    emission_QT2 = allele_emissions(alleles_TN[:, chosen_Q].T, MISMATCH)
    alleles_TN = pad_to_lanes(alleles_TN)

    @cache
    def likelihood(number: int) -> float:
        jump_T = jump_probabilities(cM_T, n - 1, parameters.SCALES[number])
        return float(_log_likelihood(alleles_TN, n, chosen_Q, emission_QT2, jump_T))

    best = parameters.FIRST_SCALE  # walk uphill; the likelihood has a single maximum
    while True:
        near = [i for i in (best - 1, best, best + 1) if 0 <= i < len(parameters.SCALES)]
        better = max(near, key=likelihood)
        if better == best:
            return parameters.SCALES[best]
        best = better


def copying_log_likelihood(alleles_TN: np.ndarray, cM_T: np.ndarray, chosen_Q: np.ndarray) -> float:
    """Return the log-likelihood of the haplotypes chosen_Q, each copying all others, at the best scale."""
    n = alleles_TN.shape[1]
    jump_T = jump_probabilities(cM_T, n - 1, most_likely_scale(alleles_TN, cM_T))
    emission_QT2 = allele_emissions(alleles_TN[:, chosen_Q].T, MISMATCH)
    return float(_log_likelihood(pad_to_lanes(alleles_TN), n, chosen_Q, emission_QT2, jump_T))


def content_hash(alleles_TN: np.ndarray) -> np.ndarray:
    """Hash each haplotype's alleles, uint64 (N,). The hash chooses haplotypes whatever their order."""
    weight_T = np.random.default_rng(0).integers(1, 2**63, len(alleles_TN), dtype=np.uint64)
    hash_N = np.zeros(alleles_TN.shape[1], np.uint64)
    for weight, alleles_N in zip(weight_T, alleles_TN, strict=True):
        hash_N += weight * alleles_N
    return hash_N


@kernel(fast=True)
def _log_likelihood(alleles_TN, n, chosen_Q, emission_QT2, jump_T):  # type: ignore[no-untyped-def]
    """Return the log-likelihood of chosen_Q, each copying the other n - 1. N is n padded to whole lanes."""
    log_likelihood = 0.0
    share_N, value_N = np.zeros(alleles_TN.shape[1], np.float32), np.empty(alleles_TN.shape[1], np.float32)
    for q in range(len(chosen_Q)):
        share_N[:n] = np.float32(1) / np.float32(n - 1)
        share_N[chosen_Q[q]] = 0
        value_N[:] = share_N
        total = np.float32(1)
        for t in range(len(alleles_TN)):
            total = step_forward_states(
                alleles_TN[t], share_N, emission_QT2[q, t], jump_T[t], value_N, total, value_N
            )
            log_likelihood += np.log(np.float64(total))
    return log_likelihood
