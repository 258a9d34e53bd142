"""Sites of a panel whose alleles contradict the haplotypes around them.

Alleles follow the genealogy of the haplotypes. If the nearest relatives of a haplotype to the left and right
of a site have the same allele, the haplotype also has this allele, except after recurrent mutation. At some
sites this often fails, because genotypes are wrong: in repeats and segmental duplications, or after mapping
errors. This concerns ten to a hundred common sites (minor allele frequency of at least 1 %) per megabase.

Each haplotype whose two relatives agree at a site is compared with them:

    discordance = (haplotypes with another allele) / (number expected for randomly assigned alleles + PRIOR)

It is 0 for good sites, and about 1 for sites that are independent of the sites around them. The relative
on one side is the haplotype with the longest match at the common sites of this side, without the NEAR bases
next to the site: records close to it may contain the same artefact. Discordance is 0 for rare alleles, and
within NEAR bases of the first and the last common site.

Axes: X sites (or samples) of the panel, T common sites, N compared haplotypes, P bytes of packed bits.
"""

from __future__ import annotations

from hashlib import blake2b

import numpy as np

from spinimpute.genotypes.bit_rows import advance, allele_of
from spinimpute.hmm.maps.tuning import fair_samples
from spinimpute.panels.panel import Panel
from spinimpute.panels.trust.site_trust import DISCORDANCE_UNITS, NEAR
from spinimpute.runtime.kernels import kernel

MIN_FREQUENCY = 0.01  # of the minor allele; rarer alleles have too few copies to compare
MIN_COPIES = 5  # of the minor allele; a carrier needs relatives that are also carriers
MAX_HAPLOTYPES = 2_000  # compared haplotypes; more of them would find the same discordant sites
PRIOR = 30.0  # added to the expected number; keeps discordance small if there are few haplotypes
NO_RELATIVE = 2  # in place of the relative's allele: no other haplotype matches
_BLOCK, _FLANK = 2_048, 512  # common sites computed together, and further ones read on each side
_CHOOSING_SITES = 1_024  # common sites whose alleles decide the order of samples


def find_discordance(panel: Panel) -> np.ndarray:
    """Return the discordance of a panel's sites, uint8 (n_sites,), in units of 1 / DISCORDANCE_UNITS.

    The result does not depend on the order and names of samples and haplotypes.
    """
    count_X = panel.allele_count
    minor_X = np.minimum(count_X, panel.n_haplotypes - count_X)
    common_T = np.flatnonzero(minor_X >= max(MIN_FREQUENCY * panel.n_haplotypes, MIN_COPIES))
    discordance_X = np.zeros(panel.n_sites, np.uint8)
    if len(common_T) == 0:
        return discordance_X
    compared_N, sample_N = _compared_haplotypes(panel, common_T)
    for first in range(0, len(common_T), _BLOCK):
        start = max(0, first - _FLANK)
        around_T = common_T[start : first + _BLOCK + _FLANK]
        allele_TN = read_alleles(panel, around_T, compared_N)
        discordance_T = _discordance(panel.position[around_T], allele_TN, sample_N)
        here = slice(first - start, first - start + _BLOCK)
        discordance_X[around_T[here]] = np.rint(discordance_T[here] * DISCORDANCE_UNITS).clip(max=255)
    return discordance_X


def read_alleles(panel: Panel, index_T: np.ndarray, chosen_N: np.ndarray) -> np.ndarray:
    """Return the alleles of the chosen haplotypes, uint8 (T, N). Sites are read in blocks to limit memory."""
    byte_N, shift_N = chosen_N >> 3, (7 - (chosen_N & 7)).astype(np.uint8)
    allele_TN = np.empty((len(index_T), len(chosen_N)), np.uint8)
    for start in range(0, len(index_T), _BLOCK):
        packed_TP = panel.packed_rows(index_T[start : start + _BLOCK])
        allele_TN[start : start + _BLOCK] = (packed_TP[:, byte_N] >> shift_N) & np.uint8(1)
    return allele_TN


def order_samples(panel: Panel, common_T: np.ndarray) -> np.ndarray:
    """Order samples by their alleles at some common sites (see `fair_samples`), int64, axis X: samples."""
    chosen_T = common_T[np.unique(np.linspace(0, len(common_T) - 1, _CHOOSING_SITES).astype(np.int64))]
    alleles_TN = np.unpackbits(panel.packed_rows(chosen_T), axis=1, count=panel.n_haplotypes)
    return fair_samples(alleles_TN, panel.haplotype_sample)


def _compared_haplotypes(panel: Panel, common_T: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Choose about MAX_HAPLOTYPES haplotypes of whole samples. Return them and the ranks of their samples."""
    order = order_samples(panel, common_T)
    rank_X = np.empty(len(order), np.int64)
    rank_X[order] = np.arange(len(order))
    ploidy_X = np.bincount(panel.haplotype_sample, minlength=len(order))
    n_samples = int(np.searchsorted(np.cumsum(ploidy_X[order]), MAX_HAPLOTYPES)) + 1
    rank_N = rank_X[panel.haplotype_sample]
    compared_N = np.flatnonzero(rank_N < n_samples)
    return compared_N, rank_N[compared_N]


def _discordance(position_T: np.ndarray, allele_TN: np.ndarray, sample_N: np.ndarray) -> np.ndarray:
    """Return the discordance of common sites, float64 (T,). sample_N: rank of each haplotype's sample."""
    # The order of haplotypes decides which of several equally long matches is used. An order by alleles would
    # favour some alleles, so haplotypes are sorted by the rank of their sample. A hash sorts the two
    # haplotypes of a sample, because their order in the file must not matter.
    packed_NP = np.ascontiguousarray(np.packbits(allele_TN, axis=0).T)
    digests = [blake2b(content_P, digest_size=8).digest() for content_P in packed_NP]
    order = np.array(sorted(range(len(digests)), key=lambda n: (sample_N[n], digests[n])))
    allele_TN = np.ascontiguousarray(allele_TN[:, order])
    left_TN, right_TN = _nearest(position_T, allele_TN), _nearest(-position_T[::-1], allele_TN[::-1])[::-1]
    relatives_agree_TN = (left_TN == right_TN) & (left_TN != NO_RELATIVE)
    n_T = relatives_agree_TN.sum(axis=1)
    n_related_alt_T = (relatives_agree_TN & (left_TN == 1)).sum(axis=1)
    n_own_alt_T = (relatives_agree_TN & (allele_TN == 1)).sum(axis=1)
    n_differ_T = (relatives_agree_TN & (allele_TN != left_TN)).sum(axis=1)
    chance_T = n_related_alt_T * (n_T - n_own_alt_T) + (n_T - n_related_alt_T) * n_own_alt_T
    expected_T = chance_T / np.maximum(n_T, 1)
    discordance_T: np.ndarray = n_differ_T / (expected_T + PRIOR)
    return discordance_T


def _nearest(position_T: np.ndarray, allele_TN: np.ndarray) -> np.ndarray:
    """Return, for each site and haplotype, the allele of the relative before the site, or NO_RELATIVE."""
    passed_T = np.searchsorted(position_T, position_T - NEAR, side="right")
    relative_allele_TN = np.empty(allele_TN.shape, np.uint8)
    bits_TP = np.ascontiguousarray(np.packbits(allele_TN, axis=1))
    _fill_nearest(bits_TP, passed_T, np.uint8(NO_RELATIVE), relative_allele_TN)
    return relative_allele_TN


@kernel()
def _fill_nearest(bits_TP, passed_T, no_relative, relative_allele_TN):  # type: ignore[no-untyped-def]
    """Fill relative_allele_TN with the allele of each haplotype's relative before each site.

    passed_T: matches for site t end just before site passed_T[t], int64, non-decreasing. Of two equally long
    matches, the first one in PBWT order is used. no_relative: value to write if no other haplotype matches.
    """
    n = relative_allele_TN.shape[1]
    order_N, start_N = np.arange(n).astype(np.int32), np.zeros(n, np.int32)
    next_order_N, next_start_N = np.empty_like(order_N), np.empty_like(start_N)
    ones_N, one_start_N = np.empty_like(order_N), np.empty_like(start_N)
    zeros_N1, relative_N = np.empty(n + 1, np.int32), np.empty(n, np.int32)
    n_advanced, n_at_update = 0, -1
    for t in range(len(bits_TP)):
        while n_advanced < passed_T[t]:
            advance(
                bits_TP[n_advanced], order_N, start_N, n_advanced, zeros_N1, ones_N, one_start_N,
                next_order_N, next_start_N,
            )  # fmt: skip
            order_N, next_order_N = next_order_N, order_N
            start_N, next_start_N = next_start_N, start_N
            n_advanced += 1
        # A neighbour in PBWT order has the longest match. start_N: first site shared with the one before.
        if n_at_update != n_advanced:
            n_at_update = n_advanced
            for i in range(n):
                start_before = start_N[i] if i else n_advanced
                start_after = start_N[i + 1] if i + 1 < n else n_advanced
                if min(start_before, start_after) == n_advanced:
                    relative_N[order_N[i]] = -1
                else:
                    relative_N[order_N[i]] = order_N[i - 1] if start_before <= start_after else order_N[i + 1]
        for i in range(n):
            relative_allele_TN[t, i] = (
                no_relative if relative_N[i] < 0 else allele_of(bits_TP[t], relative_N[i])
            )
