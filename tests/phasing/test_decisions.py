"""Calls of targets side by side, decisions and votes, beside plain numpy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from spinimpute.genotypes.intervals import Interval
from spinimpute.hmm.steps import allele_emissions, side_by_side
from spinimpute.hmm.typed_alleles import MISSING
from spinimpute.phasing.passes import EXCHANGED, EXCHANGED_BEHIND, HALF
from spinimpute.phasing.targets import (
    Decisions,
    TargetLanes,
    Targets,
    apply_decisions,
    elect,
    fill_lanes,
    vote,
)


def random_targets(seed: int, n_typed: int, n_samples: int) -> tuple[np.random.Generator, Targets]:
    """Samples among haplotypes that are not phased."""
    rng = np.random.default_rng(seed)
    n_haplotypes = 2 * n_samples + int(rng.integers(4))
    first_X = rng.permutation(n_haplotypes // 2)[:n_samples] * 2
    column_X2 = np.stack([first_X, first_X + 1], axis=1).astype(np.int64)
    alleles_TQ = rng.integers(0, 2, (n_typed, n_haplotypes)).astype(np.uint8)
    known_TQ = rng.random(alleles_TQ.shape) < 0.8
    het_TX = alleles_TQ[:, column_X2[:, 0]] != alleles_TQ[:, column_X2[:, 1]]
    open_TX = np.ascontiguousarray(het_TX & known_TQ[:, column_X2].all(axis=2))
    mismatch_T = rng.uniform(0.001, 0.5, n_typed).astype(np.float32)
    none = np.empty(0, np.int64)
    return rng, Targets(alleles_TQ, known_TQ, open_TX, column_X2, none, none[:, None], mismatch_T)


sizes: Callable[..., Callable[..., None]] = given(
    st.integers(0, 10**6), st.integers(1, 40), st.integers(1, 2 * HALF)
)


@settings(deadline=None, max_examples=30)
@sizes
def test_lanes_hold_the_calls_of_targets(seed: int, n_typed: int, n_samples: int) -> None:
    rng, targets = random_targets(seed, n_typed, n_samples)
    doubtful_TX = targets.open_TX & (rng.random(targets.open_TX.shape) < 0.3)
    first_site, start = int(rng.integers(n_typed)), int(rng.integers(n_samples))
    group = Interval(start, min(start + HALF, n_samples))
    lanes = TargetLanes.allocate(n_typed - first_site)
    other = targets._replace(
        alleles_TQ=1 - targets.alleles_TQ,
        known_TQ=~targets.known_TQ,
        open_TX=~targets.open_TX,
        mismatch_T=targets.mismatch_T[::-1].copy(),
    )
    fill_lanes(other, ~doubtful_TX, first_site, Interval(0, 1), lanes)  # must leave nothing
    fill_lanes(targets, doubtful_TX, first_site, group, lanes)
    samples = np.minimum(np.arange(start, start + HALF), group.stop - 1)
    column_L = targets.column_X2[samples].T.ravel()
    known_SL = targets.known_TQ[first_site:, column_L]
    call_SL = np.where(known_SL, targets.alleles_TQ[first_site:, column_L], MISSING)
    seen_SL = np.where(np.tile(doubtful_TX[first_site:, samples], 2), MISSING, call_SL)
    for found_S2L, expected_SL in ((lanes.call_S2L, call_SL), (lanes.seen_S2L, seen_SL)):
        emission_LS2 = allele_emissions(expected_SL.T, targets.mismatch_T[first_site:])
        np.testing.assert_array_equal(found_S2L, side_by_side(emission_LS2)[0])
    n = group.stop - group.start
    np.testing.assert_array_equal(lanes.open_SH[:, :n], targets.open_TX[first_site:, group.slice])
    assert not lanes.open_SH[:, n:].any()
    np.testing.assert_array_equal(lanes.wanted_S, ~known_SL.all(axis=1))


@settings(deadline=None, max_examples=30)
@sizes
def test_decisions_are_applied_from_left_to_right(seed: int, n_typed: int, n_samples: int) -> None:
    rng, targets = random_targets(seed, n_typed, n_samples)
    alternatives = [0, EXCHANGED, EXCHANGED_BEHIND, EXCHANGED | EXCHANGED_BEHIND]
    decision_TX = np.where(targets.open_TX, rng.choice(alternatives, targets.open_TX.shape), 0).astype(
        np.uint8
    )
    likely_T2X = rng.random((n_typed, 2, n_samples)) < 0.5
    expected_TQ = targets.alleles_TQ.copy()
    for x, columns in enumerate(targets.column_X2):
        behind = False
        for t in range(n_typed):
            pair = list(expected_TQ[t, columns])
            if decision_TX[t, x] & EXCHANGED:
                pair.reverse()
            pair = [
                allele if targets.known_TQ[t, column] else int(likely)
                for allele, column, likely in zip(pair, columns, likely_T2X[t, :, x], strict=True)
            ]
            expected_TQ[t, columns] = pair[::-1] if behind else pair
            behind ^= bool(decision_TX[t, x] & EXCHANGED_BEHIND)
    apply_decisions(targets, Decisions(decision_TX, np.ones(decision_TX.shape, np.float32), likely_T2X))
    np.testing.assert_array_equal(targets.alleles_TQ, expected_TQ)


@settings(deadline=None, max_examples=30)
@sizes
def test_the_majority_wins(seed: int, n_typed: int, n_samples: int) -> None:
    rng, targets = random_targets(seed, n_typed, n_samples)
    votes_TX = np.zeros(targets.open_TX.shape, np.int8)
    same_VTX = rng.random((3, *targets.open_TX.shape)) < 0.5  # ALT lies where it lay before
    for same_TX in same_VTX:
        for x, (first, second) in enumerate(targets.column_X2):
            last = 0
            for t in np.flatnonzero(targets.open_TX[:, x]):
                last = last if same_TX[t, x] else 1 - last
                targets.alleles_TQ[t, [first, second]] = last, 1 - last
        vote(targets, votes_TX)
    np.testing.assert_array_equal(
        votes_TX, np.where(targets.open_TX, (2 * same_VTX.astype(int) - 1).sum(axis=0), 0)
    )
    before_TQ, free_X = targets.alleles_TQ.copy(), rng.random(n_samples) < 0.7
    elect(targets, free_X, votes_TX)
    for x, (first, second) in enumerate(targets.column_X2):
        if not free_X[x]:
            np.testing.assert_array_equal(
                targets.alleles_TQ[:, [first, second]], before_TQ[:, [first, second]]
            )
            continue
        last = 0
        for t in np.flatnonzero(targets.open_TX[:, x]):
            last = last if same_VTX[:, t, x].sum() >= 2 else 1 - last
            assert tuple(targets.alleles_TQ[t, [first, second]]) == (last, 1 - last)
