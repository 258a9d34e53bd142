"""Sites of a panel whose alleles contradict the haplotypes around them.

Alleles follow the genealogy of the haplotypes: a haplotype whose nearest relatives on the left of a site and
on its right have the same allele has that allele, too, but for recurrent mutation. Where it often has not,
calls are wrong: in repeats, in segmental duplications, by mapping errors. Ten to a hundred common sites of a
megabase are such.

The *discordance* of a site is how often the allele differs where both relatives agree, as a share of how
often it would differ if alleles were dealt out at random: 0 where all is well, about 1 where the site knows
nothing of its surroundings. The relatives are those with the longest matches at common sites beyond NEAR
bases, because neighbouring records of one artefact agree. Few haplotypes give a small discordance (PRIOR).
Discordance is 0 where nothing is known: at rare alleles, and within NEAR bases of the first and the last
common site.

Axes: X sites of a panel, T common ones, N haplotypes that are compared, P bytes of packed bits.
"""

from __future__ import annotations

from hashlib import blake2b

import numpy as np

from spinimpute.hmm.maps.tuning import fair_samples
from spinimpute.panels.panel import Panel
from spinimpute.panels.trust.site_trust import NEAR, UNITS
from spinimpute.pipeline.trust.nearest_alleles import fill_nearest

COMMON = 0.01  # minor allele frequency from which alleles are compared: of rarer ones too little is known
LEAST_COPIES = 5  # of the minor allele: a carrier without a relative that carries it differs by construction
MOST_HAPLOTYPES = 2_000  # so many find these sites as well as all
PRIOR = 30.0  # differences expected by chance that are added
NOBODY = 2  # in place of an allele: no other haplotype is like this one
_BLOCK, _FLANK = 2_048, 512  # common sites whose discordance is computed together, and around them
_CHOOSING_SITES = 1_024  # common sites by whose alleles the compared samples are chosen


def find_discordance(panel: Panel) -> np.ndarray:
    """The discordance of a panel's sites.

    Parameters
    ----------
    panel : Panel
        Open. The order of samples and of their haplotypes makes no difference, nor do names.

    Returns
    -------
    uint8 (n_sites,)
        In units of 1 / UNITS.
    """
    count_X = panel.allele_count
    minor_X = np.minimum(count_X, panel.n_haplotypes - count_X)
    common_T = np.flatnonzero(minor_X >= max(COMMON * panel.n_haplotypes, LEAST_COPIES))
    discordance_X = np.zeros(panel.n_sites, np.uint8)
    if len(common_T) == 0:
        return discordance_X
    compared_N, sample_N = _compared_haplotypes(panel, common_T)
    for first in range(0, len(common_T), _BLOCK):
        before = max(0, first - _FLANK)
        around_T = common_T[before : first + _BLOCK + _FLANK]
        allele_TN = alleles_of(panel, around_T, compared_N)
        found_T = _discordance(panel.position[around_T], allele_TN, sample_N)
        here = slice(first - before, first - before + _BLOCK)
        discordance_X[around_T[here]] = np.rint(found_T[here] * UNITS).clip(max=255)
    return discordance_X


def alleles_of(panel: Panel, index_T: np.ndarray, chosen_N: np.ndarray) -> np.ndarray:
    """Alleles of some haplotypes, uint8 (T, N); only some sites are read at a time."""
    byte_N, shift_N = chosen_N >> 3, (7 - (chosen_N & 7)).astype(np.uint8)
    allele_TN = np.empty((len(index_T), len(chosen_N)), np.uint8)
    for start in range(0, len(index_T), _BLOCK):
        packed_TP = panel.packed_rows(index_T[start : start + _BLOCK])
        allele_TN[start : start + _BLOCK] = (packed_TP[:, byte_N] >> shift_N) & np.uint8(1)
    return allele_TN


def fairly_ordered(panel: Panel, common_T: np.ndarray) -> np.ndarray:
    """Samples in an order that some common sites decide, see `fair_samples`, int64 (X,)."""
    chosen_T = common_T[np.unique(np.linspace(0, len(common_T) - 1, _CHOOSING_SITES).astype(np.int64))]
    alleles_TN = np.unpackbits(panel.packed_rows(chosen_T), axis=1, count=panel.n_haplotypes)
    return fair_samples(alleles_TN, panel.haplotype_sample)


def _compared_haplotypes(panel: Panel, common_T: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """About MOST_HAPLOTYPES haplotypes, all of a sample; and the rank of each one's sample."""
    order = fairly_ordered(panel, common_T)
    rank_X = np.empty(len(order), np.int64)
    rank_X[order] = np.arange(len(order))
    ploidy_X = np.bincount(panel.haplotype_sample, minlength=len(order))
    most = int(np.searchsorted(np.cumsum(ploidy_X[order]), MOST_HAPLOTYPES)) + 1
    rank_N = rank_X[panel.haplotype_sample]
    compared_N = np.flatnonzero(rank_N < most)
    return compared_N, rank_N[compared_N]


def _discordance(position_T: np.ndarray, allele_TN: np.ndarray, sample_N: np.ndarray) -> np.ndarray:
    """Discordance of common sites, float64 (T,); sample_N: the sample of each haplotype."""
    # Of equally long matches the order decides. It must tell nothing of a site's alleles: only the two
    # haplotypes of a sample are ordered by what they are.
    packed_NP = np.ascontiguousarray(np.packbits(allele_TN, axis=0).T)
    digests = [blake2b(content_P, digest_size=8).digest() for content_P in packed_NP]
    order = np.array(sorted(range(len(digests)), key=lambda n: (sample_N[n], digests[n])))
    allele_TN = np.ascontiguousarray(allele_TN[:, order])
    left_TN, right_TN = _nearest(position_T, allele_TN), _nearest(-position_T[::-1], allele_TN[::-1])[::-1]
    agree_TN = (left_TN == right_TN) & (left_TN != NOBODY)
    n_T = agree_TN.sum(axis=1)
    related_T = (agree_TN & (left_TN == 1)).sum(axis=1)
    own_T = (agree_TN & (allele_TN == 1)).sum(axis=1)
    differ_T = (agree_TN & (allele_TN != left_TN)).sum(axis=1)
    by_chance_T = (related_T * (n_T - own_T) + (n_T - related_T) * own_T) / np.maximum(n_T, 1)
    found: np.ndarray = differ_T / (by_chance_T + PRIOR)
    return found


def _nearest(position_T: np.ndarray, allele_TN: np.ndarray) -> np.ndarray:
    """The allele of the haplotype with the longest match that ends NEAR bases before a site, or NOBODY."""
    passed_T = np.searchsorted(position_T, position_T - NEAR, side="right")
    near_TN = np.empty(allele_TN.shape, np.uint8)
    fill_nearest(np.ascontiguousarray(np.packbits(allele_TN, axis=1)), passed_T, np.uint8(NOBODY), near_TN)
    return near_TN
