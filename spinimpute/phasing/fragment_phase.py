"""Fragments with bases at several sites: which of a sample's two chains they come from.

A fragment comes from either haplotype with probability 1/2. Its probability is the mean of two products
over its sites, one for each chain, of the probability that the chain's allele is read as this base. Each
site sends the fragment a message: the logarithm of how much likelier its base is if the fragment comes from
the first chain, without what the fragment itself says there. The sum of the messages of the other sites
weighs the two chains at a site. Messages left of the sweep's place are as of this sweep, those right of it
as of the last one. For homozygotes a base means the same whatever that weight.

Messages assume that the likelier chain has the ALT of a heterozygote, or the first of equally likely
chains. So nothing but the order of the chains is decided where nothing tells them apart, as at the first
heterozygote.

Axes: S places, H samples side by side, B bases by sample, place and fragment, F fragments, O open
fragments, which have sites on both sides of a place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np

from spinimpute.runtime.kernels import kernel
from spinimpute.sequencing.fragments import FragmentBases, error_of_quality

TIE = np.float32(1e-3)  # alternatives that are better by less count as equal
_MIN_ERROR = 1e-6  # of a base, so that nothing is impossible
_MAX_LOG_ODDS = 500.0  # logarithm of odds whose exponential is still finite


class SweptFragments(NamedTuple):
    """Fragments of samples side by side, and the state of a sweep."""

    first_H1: np.ndarray  # int64, index of a sample's first base
    # place_B, fragment_B: int32, place of a base, and its fragment among those of all samples
    place_B: np.ndarray
    fragment_B: np.ndarray
    # float32, probability that a haplotype with REF is read as this base; with ALT it is one less that
    ref_B: np.ndarray
    # first_F, last_F: int32, a fragment's first and last base
    first_F: np.ndarray
    last_F: np.ndarray
    message_B: np.ndarray  # float32, the logarithm of the odds for the first chain
    # left_F, right_F: float64, sums of the messages on either side of the place
    left_F: np.ndarray
    right_F: np.ndarray
    next_H: np.ndarray  # int64, the first base that is not passed
    # open_HO, n_open_H: int32, int64, the open fragments
    open_HO: np.ndarray
    n_open_H: np.ndarray

    @classmethod
    def from_bases(cls, bases_H: Sequence[FragmentBases], known_SH: np.ndarray, first: int) -> Self:
        """Return the fragments of some samples, without messages.

        bases_H: see `FragmentBases.linked`. known_SH: bool, where a diploid sample is observed; other bases
        are left out. first: the panel site of the first place.
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
        at_B = np.arange(len(fragment_B), dtype=np.int32)
        first_F, last_F = np.empty(n_fragments, np.int32), np.empty(n_fragments, np.int32)
        last_F[fragment_B] = at_B  # the last assignment stays
        first_F[fragment_B[::-1]] = at_B[::-1]
        opened_B = np.bincount(first_F, minlength=len(at_B)) - np.bincount(last_F, minlength=len(at_B))
        most_open = int(np.cumsum(opened_B).max(initial=0)) + 1
        return cls(
            first_H1,
            np.concatenate(place),
            fragment_B,
            np.concatenate(ref),
            first_F,
            last_F,
            np.zeros(len(at_B), np.float32),
            np.zeros(n_fragments),
            np.zeros(n_fragments),
            np.zeros(n_samples, np.int64),
            np.zeros((n_samples, most_open), np.int32),
            np.zeros(n_samples, np.int64),
        )

    def rewind(self) -> None:
        """Return to the first place."""
        self.next_H[:] = self.first_H1[:-1]
        self.n_open_H[:] = 0
        self.left_F[:] = 0
        self.right_F[:] = np.bincount(self.fragment_B, self.message_B, len(self.right_F))

    def exchange_chains(self, behind_SH: np.ndarray) -> None:
        """Exchange the chains at some places, bool."""
        sample_B = np.repeat(np.arange(len(self.next_H)), np.diff(self.first_H1))
        self.message_B[behind_SH[self.place_B, sample_B]] *= -1


@kernel()
def enter_place(fragments, lane, place):  # type: ignore[no-untyped-def]
    """Take a place's own messages out of the sums; returns the first base beyond it."""
    b = fragments.next_H[lane]
    while b < fragments.first_H1[lane + 1] and fragments.place_B[b] == place:
        fragments.right_F[fragments.fragment_B[b]] -= fragments.message_B[b]
        b += 1
    return b


@kernel()
def exchange_odds(fragments, lane):  # type: ignore[no-untyped-def]
    """Return how much likelier the open fragments are if everything behind the place is exchanged."""
    log_odds = 0.0
    for o in range(fragments.n_open_H[lane]):
        f = fragments.open_HO[lane, o]
        unchanged = abs(fragments.left_F[f] + fragments.right_F[f])
        crossed = abs(fragments.left_F[f] - fragments.right_F[f])
        log_odds += (crossed - unchanged) / 2 + np.log1p(np.exp(-crossed)) - np.log1p(np.exp(-unchanged))
    return np.exp(min(max(log_odds, -_MAX_LOG_ODDS), _MAX_LOG_ODDS))


@kernel()
def heterozygote_factors(fragments, lane, stop, exchanged, factor_2H):  # type: ignore[no-untyped-def]
    """Fill the factors of a heterozygote's likelihood from a place's bases, which end at `stop`.

    factor_2H: if the first chain has the ALT, and if the second one has it. exchanged: everything behind is.
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
    """Return the probability that a fragment comes from the first chain, by its other sites."""
    right = -fragments.right_F[f] if exchanged else fragments.right_F[f]
    return 1 / (1 + np.exp(-min(max(fragments.left_F[f] + right, -_MAX_LOG_ODDS), _MAX_LOG_ODDS)))


@kernel()
def leave_place(fragments, lane, stop, exchanged, joint_4):  # type: ignore[no-untyped-def]
    """Send the messages of a place's bases, which end at `stop`, and go to the next place.

    joint_4: probabilities, up to a factor, of both chains' alleles and the observations at the place: REF
    and REF, ALT of the first chain, ALT of the second chain, ALT and ALT.
    """
    ref_ref, alt_ref, ref_alt, alt_alt = joint_4
    # a heterozygote counts as that of the likelier chain: if both are equally likely, nothing else would tell
    # the other sites of its fragments that the chains have different alleles here
    either = alt_ref + ref_alt
    alt_ref, ref_alt = (0.0, either) if ref_alt > alt_ref * (1 + TIE) else (either, 0.0)
    for b in range(fragments.next_H[lane], stop):
        f, ref = fragments.fragment_B[b], np.float64(fragments.ref_B[b])
        alt = 1 - ref
        share = _share_of_first(fragments, f, exchanged)
        # without this base
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
    last = fragments.n_open_H[lane] - 1
    for o in range(last):
        if fragments.open_HO[lane, o] == f:
            fragments.open_HO[lane, o] = fragments.open_HO[lane, last]
            break
    fragments.n_open_H[lane] = last


@kernel()
def exchange_left(fragments, lane):  # type: ignore[no-untyped-def]
    """Exchange the chains on the left side of the place."""
    for o in range(fragments.n_open_H[lane]):
        f = fragments.open_HO[lane, o]
        fragments.left_F[f] = -fragments.left_F[f]
