"""Estimate from which of a sample's two chains each fragment comes, for fragments that cover several sites.

A fragment lies on one haplotype, so its bases show which alleles belong together. The two chains model the
two haplotypes:

    P(fragment) = 1/2 sum_chain prod_site P(base at site | allele of the chain at the site)

Each base of a fragment has a message: the log likelihood ratio of the base, first chain against second. It
uses the chains' allele probabilities without the base itself. At each site, the log odds that the fragment
comes from the first chain are the sum of the messages of the fragment's other sites. Messages to the left of
the current place come from the current sweep, messages to the right from the previous sweep.
`likelihood_passes` uses the odds at heterozygous sites and when it tests whether to exchange the chains.

Messages are computed as if the ALT of a heterozygote were certainly on the chain that more likely carries it;
on a tie, on the first chain. At a sample's first heterozygote the chains are interchangeable, so there this
choice only decides which chain is called the first.

Axes: S typed sites (places), H samples processed together (a sample's index is its lane), B bases sorted by
sample, site and fragment, F fragments, O open fragments, which have sites on both sides of the current place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np

from spinimpute.runtime.kernels import kernel
from spinimpute.sequencing.fragments import FragmentBases, error_of_quality

TIE = np.float32(1e-3)  # relative difference below which two alternatives are a tie
_MIN_ERROR = 1e-6  # minimum error probability of a base, so that no allele is impossible
_MAX_LOG_ODDS = 500.0  # log odds are clipped here, because their exponential must be finite


class SweptFragments(NamedTuple):
    """The fragments of samples that are processed together, and the state of a sweep over them."""

    first_H1: np.ndarray  # int64, index of each sample's first base, and the number of bases
    # place_B, fragment_B: int32, place and fragment of each base; fragments are numbered over all samples
    place_B: np.ndarray
    fragment_B: np.ndarray
    ref_B: np.ndarray  # float32, P(base | haplotype has REF); P(base | haplotype has ALT) is 1 - ref_B
    # first_F, last_F: int32, index of the first and last base of each fragment
    first_F: np.ndarray
    last_F: np.ndarray
    message_B: np.ndarray  # float32, log likelihood ratio of the base, first chain against second
    # left_F, right_F: float64, sums of a fragment's messages to the left and to the right of the place
    left_F: np.ndarray
    right_F: np.ndarray
    next_H: np.ndarray  # int64, index of the next base that the sweep has to process
    # open_HO, n_open_H: int32 and int64, the open fragments of each sample, and their number
    open_HO: np.ndarray
    n_open_H: np.ndarray

    @classmethod
    def from_bases(cls, bases_H: Sequence[FragmentBases], known_SH: np.ndarray, first: int) -> Self:
        """Return the fragments of some samples, with all messages 0.

        bases_H: see `FragmentBases.linked`. known_SH: bool, sites at which the sample is diploid and has
        data; bases elsewhere are dropped. first: panel index of the first place.
        """
        place, fragment, ref = ([np.empty(0, kind)] for kind in (np.int32, np.int32, np.float32))
        n_samples = known_SH.shape[1]
        first_H1, n_fragments = np.zeros(n_samples + 1, np.int64), 0
        for h, bases in enumerate(bases_H):
            used = bases.take(known_SH[bases.panel_index - first, h])
            error = error_of_quality(used.quality).clip(_MIN_ERROR)
            names, number = np.unique(used.fragment, return_inverse=True)
            place.append((used.panel_index - first).astype(np.int32))
            fragment.append((n_fragments + number).astype(np.int32))
            ref.append(np.where(used.allele == 0, 1 - error, error).astype(np.float32))
            first_H1[h + 1 :] += len(error)
            n_fragments += len(names)
        fragment_B = np.concatenate(fragment)
        index_B = np.arange(len(fragment_B), dtype=np.int32)
        first_F, last_F = np.empty(n_fragments, np.int32), np.empty(n_fragments, np.int32)
        last_F[fragment_B] = index_B  # numpy keeps the last of several assignments to an element
        first_F[fragment_B[::-1]] = index_B[::-1]
        opened_B = np.bincount(first_F, minlength=len(index_B)) - np.bincount(last_F, minlength=len(index_B))
        max_open = int(np.cumsum(opened_B).max(initial=0)) + 1
        return cls(
            first_H1,
            np.concatenate(place),
            fragment_B,
            np.concatenate(ref),
            first_F,
            last_F,
            np.zeros(len(index_B), np.float32),
            np.zeros(n_fragments),
            np.zeros(n_fragments),
            np.zeros(n_samples, np.int64),
            np.zeros((n_samples, max_open), np.int32),
            np.zeros(n_samples, np.int64),
        )

    def rewind(self) -> None:
        """Prepare for a new sweep from the first place."""
        self.next_H[:] = self.first_H1[:-1]
        self.n_open_H[:] = 0
        self.left_F[:] = 0
        self.right_F[:] = np.bincount(self.fragment_B, self.message_B, len(self.right_F))

    def exchange_chains(self, swap_SH: np.ndarray) -> None:
        """Exchange the chains at the sites where swap_SH (bool) is True."""
        sample_B = np.repeat(np.arange(len(self.next_H)), np.diff(self.first_H1))
        self.message_B[swap_SH[self.place_B, sample_B]] *= -1


@kernel()
def enter_place(fragments, lane, place):  # type: ignore[no-untyped-def]
    """Subtract the messages of a place from right_F; return the index of the first base after the place."""
    b = fragments.next_H[lane]
    while b < fragments.first_H1[lane + 1] and fragments.place_B[b] == place:
        fragments.right_F[fragments.fragment_B[b]] -= fragments.message_B[b]
        b += 1
    return b


@kernel()
def exchange_odds(fragments, lane):  # type: ignore[no-untyped-def]
    """Return P(open fragments | chains exchanged right of the place) / P(open fragments | unchanged)."""
    log_odds = 0.0
    for o in range(fragments.n_open_H[lane]):
        f = fragments.open_HO[lane, o]
        unchanged = abs(fragments.left_F[f] + fragments.right_F[f])
        crossed = abs(fragments.left_F[f] - fragments.right_F[f])
        log_odds += (crossed - unchanged) / 2 + np.log1p(np.exp(-crossed)) - np.log1p(np.exp(-unchanged))
    return np.exp(min(max(log_odds, -_MAX_LOG_ODDS), _MAX_LOG_ODDS))


@kernel()
def heterozygote_factors(fragments, lane, stop, exchanged, factor_2H):  # type: ignore[no-untyped-def]
    """Fill factor_2H with the likelihood factors of a heterozygote, from the bases at this site.

    Row 0 is the factor with ALT on the first chain, row 1 with ALT on the second. exchanged: assume that the
    chains are exchanged to the right of the site. stop: index after the site's last base.
    """
    first = second = 1.0
    for b in range(fragments.next_H[lane], stop):
        f, ref = fragments.fragment_B[b], np.float64(fragments.ref_B[b])
        share = _share_of_first(fragments, f, exchanged)
        p_base_alt_first = share * (1 - ref) + (1 - share) * ref
        first *= 2 * p_base_alt_first
        second *= 2 * (1 - p_base_alt_first)
    factor_2H[0, lane], factor_2H[1, lane] = first, second


@kernel()
def _share_of_first(fragments, f, exchanged):  # type: ignore[no-untyped-def]
    """Return the probability that a fragment comes from the first chain, given its other sites."""
    right = -fragments.right_F[f] if exchanged else fragments.right_F[f]
    return 1 / (1 + np.exp(-min(max(fragments.left_F[f] + right, -_MAX_LOG_ODDS), _MAX_LOG_ODDS)))


@kernel()
def leave_place(fragments, lane, stop, exchanged, joint_4):  # type: ignore[no-untyped-def]
    """Compute the messages of a site's bases and go to the next site.

    joint_4: joint probabilities, up to a common factor, of the observations at the site and of the alleles of
    the first and second chain: (REF, REF), (ALT, REF), (REF, ALT), (ALT, ALT). exchanged, stop: see
    `heterozygote_factors`.
    """
    ref_ref, alt_ref, ref_alt, alt_alt = joint_4
    # Put ALT on the more likely chain, on a tie on the first. If both orders kept their probabilities, the
    # messages of a tie would be 0, and fragments would never link this heterozygote to the next.
    either = alt_ref + ref_alt
    alt_ref, ref_alt = (0.0, either) if ref_alt > alt_ref * (1 + TIE) else (either, 0.0)
    for b in range(fragments.next_H[lane], stop):
        f, ref = fragments.fragment_B[b], np.float64(fragments.ref_B[b])
        alt = 1 - ref
        share = _share_of_first(fragments, f, exchanged)
        # joint probabilities of both chains' alleles without this base
        rr, aa = ref_ref / ref, alt_alt / alt
        ar, ra = alt_ref / (share * alt + (1 - share) * ref), ref_alt / (share * ref + (1 - share) * alt)
        by_first = (rr + ra) * ref + (ar + aa) * alt
        by_second = (rr + ar) * ref + (ra + aa) * alt
        message = np.float32(np.log(by_first / by_second))
        fragments.message_B[b] = message
        fragments.left_F[f] += message
        if fragments.first_F[f] == b < fragments.last_F[f]:
            fragments.open_HO[lane, fragments.n_open_H[lane]] = f
            fragments.n_open_H[lane] += 1
        elif fragments.first_F[f] < b == fragments.last_F[f]:
            _close(fragments, lane, f)
    fragments.next_H[lane] = stop


@kernel()
def _close(fragments, lane, f):  # type: ignore[no-untyped-def]
    """Remove a fragment from a sample's open fragments."""
    last = fragments.n_open_H[lane] - 1
    for o in range(last):
        if fragments.open_HO[lane, o] == f:
            fragments.open_HO[lane, o] = fragments.open_HO[lane, last]
            break
    fragments.n_open_H[lane] = last


@kernel()
def exchange_left(fragments, lane):  # type: ignore[no-untyped-def]
    """Exchange the chains to the left of the place: change the sign of the open fragments' left sums."""
    for o in range(fragments.n_open_H[lane]):
        f = fragments.open_HO[lane, o]
        fragments.left_F[f] = -fragments.left_F[f]
