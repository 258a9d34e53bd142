"""Sites of a panel whose alleles contradict the haplotypes around them.

Alleles follow the genealogy of the haplotypes: one whose nearest relatives on the left of a site and on its
right have the same allele has that allele, too, but for recurrent mutation. Where it often has not, calls
are wrong: in repeats, segmental duplications, among mapping errors. Ten to a hundred common sites of a
megabase are such, and predictions of their alleles from the haplotypes around are wrong as often, however
certain they seem.

The discordance of a site is how often the allele differs where both relatives agree, as a share of how often
it would if alleles were dealt out at random: 0 where all is well, about 1 where the site knows nothing of its
surroundings. The relatives are those with the longest matches at common sites beyond NEAR bases, as
neighbouring records of one artefact go together. Few haplotypes give a small discordance (PRIOR). It is 0 as
well where nothing is known: at rarer alleles, and within NEAR bases of the first and the last common site.

`trust` turns it into what a prediction is worth.

Axes: X consecutive sites of a panel, T common ones, N haplotypes that are compared, P bytes of packed bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np

COMMON = 0.01  # minor allele frequency from which alleles are compared: of rarer ones too little is known
LEAST_COPIES = 5  # of the minor allele: a carrier without a relative that carries it differs by construction
NEAR = 200  # bases
MOST_HAPLOTYPES = 2_000  # so many find these sites as well as all
PRIOR = 30.0  # differences expected by chance that are added
POORLY = 0.7  # trust below which a site is called poorly predictable
UNITS = 200  # of 1 in a file, one byte for each site
NOBODY = 2  # in place of an allele: no other haplotype is like this one
_BLOCK, _FLANK = 2_048, 512  # common sites whose discordance is computed together, and around them

# Fitted to predictions of people left out of the real panels, see benchmarks/tried.md.
_STEEPNESS, _POWER = 1.3, 1.5


def trust(discordance: np.ndarray) -> np.ndarray:
    """What predictions of alleles from the haplotypes around are worth.

    Parameters
    ----------
    discordance : floats (n,)
        Of n sites.

    Returns
    -------
    float32 (n,)
        From 1 to 0: a prediction p of an allele of frequency f means f + trust (p - f).
    """
    return np.clip(1 - _STEEPNESS * discordance**_POWER, 0, 1).astype(np.float32)


class Discordance:
    """Computes the discordance of a panel's sites as they come.

    The order of samples and of their haplotypes makes no difference.

    Parameters
    ----------
    samples : sequence of str
        Names.
    ploidy_X : integers (n_samples,)
        Haplotypes of each.
    """

    def __init__(self, samples: Sequence[str], ploidy_X: np.ndarray) -> None:
        self._n_haplotypes = int(ploidy_X.sum())
        compared_N, self._sample_N = _some_haplotypes(samples, ploidy_X.astype(np.int64))
        n_compared = len(compared_N)
        self._byte_N, self._shift_N = compared_N >> 3, (7 - (compared_N & 7)).astype(np.uint8)
        self._n_sites = 0
        self._done: list[tuple[np.ndarray, np.ndarray]] = []  # numbers of sites, and their discordance
        # common sites that wait, behind those that are done and lie around them
        self._site_T, self._position_T = np.empty(0, np.int64), np.empty(0, np.int64)
        self._allele_TN = np.empty((0, n_compared), np.uint8)
        self._n_before = 0

    def add(self, position_X: np.ndarray, packed_XP: np.ndarray, allele_count_X: np.ndarray) -> None:
        """Take the next sites.

        Parameters
        ----------
        position_X : int64 (X,)
            Never decreasing.
        packed_XP : uint8 (X, P)
            Alleles, as `numpy.packbits` packs them.
        allele_count_X : integers (X,)
            Haplotypes with ALT.
        """
        count_X = allele_count_X.astype(np.int64, copy=False)
        minor_X = np.minimum(count_X, self._n_haplotypes - count_X)
        common = np.flatnonzero(minor_X >= max(COMMON * self._n_haplotypes, LEAST_COPIES))
        allele_TN = (packed_XP[common[:, None], self._byte_N] >> self._shift_N) & np.uint8(1)
        self._site_T = np.concatenate([self._site_T, self._n_sites + common])
        self._position_T = np.concatenate([self._position_T, position_X[common]])
        self._allele_TN = np.concatenate([self._allele_TN, allele_TN])
        self._n_sites += len(count_X)
        while len(self._site_T) >= self._n_before + _BLOCK + _FLANK:
            self._compute(_BLOCK)

    def finish(self) -> np.ndarray:
        """The discordance of all sites, uint8 (n_sites,), in units of 1 / UNITS."""
        if len(self._site_T) > self._n_before:
            self._compute(len(self._site_T) - self._n_before)
        discordance_X = np.zeros(self._n_sites, np.uint8)
        for sites, found in self._done:
            discordance_X[sites] = np.rint(found * UNITS).clip(max=255)
        return discordance_X

    def _compute(self, n: int) -> None:
        """Compute the next n common sites, by those around them."""
        first, end = self._n_before, self._n_before + n
        around = slice(0, min(end + _FLANK, len(self._site_T)))
        found_T = _discordance(self._position_T[around], self._allele_TN[around], self._sample_N)
        self._done.append((self._site_T[first:end], found_T[first:end]))
        kept = max(0, end - _FLANK)
        self._n_before = end - kept
        self._site_T, self._position_T = self._site_T[kept:], self._position_T[kept:]
        self._allele_TN = self._allele_TN[kept:].copy()


def _some_haplotypes(samples: Sequence[str], ploidy_X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """About MOST_HAPLOTYPES haplotypes, all of a sample, by a hash of its name; and the order of samples."""
    first_X = np.cumsum(ploidy_X) - ploidy_X
    digests = [blake2b(name.encode(), digest_size=8).digest() for name in samples]
    order = np.array(sorted(range(len(samples)), key=digests.__getitem__))
    chosen = order[np.cumsum(ploidy_X[order]) - ploidy_X[order] < MOST_HAPLOTYPES]
    haplotypes = [np.arange(first_X[x], first_X[x] + ploidy_X[x]) for x in chosen]
    return np.concatenate(haplotypes), np.repeat(np.arange(len(chosen)), ploidy_X[chosen])


def _discordance(position_T: np.ndarray, allele_TN: np.ndarray, sample_N: np.ndarray) -> np.ndarray:
    """Of common sites, float64 (T,), as far as these sites know; sample_N: whose haplotypes they are."""
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
    # numba takes long to load: what only reads panels need not wait for it
    from spinimpute.panels.trust.nearest_alleles import fill_nearest

    passed_T = np.searchsorted(position_T, position_T - NEAR, side="right")
    near_TN = np.empty(allele_TN.shape, np.uint8)
    fill_nearest(np.ascontiguousarray(np.packbits(allele_TN, axis=1)), passed_T, np.uint8(NOBODY), near_TN)
    return near_TN
