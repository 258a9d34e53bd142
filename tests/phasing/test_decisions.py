"""What is known of targets side by side, decisions and votes, beside plain numpy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from spinimpute.hmm.emissions import MISSING, allele_emissions, side_by_side
from spinimpute.phasing.decisions import apply_decisions, elect, vote
from spinimpute.phasing.passes import EXCHANGED, EXCHANGED_BEHIND, HALF
from spinimpute.phasing.target_lanes import TargetLanes


def some_targets(
    seed: int, n_typed: int, n_samples: int
) -> tuple[np.random.Generator, dict[str, np.ndarray]]:
    """Calls of samples among haplotypes that are not to be phased, and which calls are unphased."""
    rng = np.random.default_rng(seed)
    n_haplotypes = 2 * n_samples + int(rng.integers(4))
    first_X = rng.permutation(n_haplotypes // 2)[:n_samples] * 2
    column_X2 = np.stack([first_X, first_X + 1], axis=1).astype(np.int64)
    alleles_TQ = rng.integers(0, 2, (n_typed, n_haplotypes)).astype(np.uint8)
    known_TQ = rng.random(alleles_TQ.shape) < 0.8
    het_TX = alleles_TQ[:, column_X2[:, 0]] != alleles_TQ[:, column_X2[:, 1]]
    open_TX = np.ascontiguousarray(het_TX & known_TQ[:, column_X2].all(axis=2))
    return rng, {"alleles": alleles_TQ, "known": known_TQ, "open": open_TX, "column": column_X2}


sizes: Callable[..., Callable[..., None]] = given(
    st.integers(0, 10**6), st.integers(1, 40), st.integers(1, 2 * HALF)
)


@settings(deadline=None, max_examples=30)
@sizes
def test_lanes_hold_what_is_known_of_targets(seed: int, n_typed: int, n_samples: int) -> None:
    rng, of = some_targets(seed, n_typed, n_samples)
    doubtful_TX = of["open"] & (rng.random(of["open"].shape) < 0.3)
    mismatch_T = rng.uniform(0.001, 0.5, n_typed).astype(np.float32)
    first_place, first_sample = int(rng.integers(n_typed)), int(rng.integers(n_samples))
    last_sample = min(first_sample + HALF, n_samples)
    lanes = TargetLanes(n_typed - first_place)
    lanes.fill(  # whatever another group has left there
        1 - of["alleles"], ~of["known"], ~of["open"], ~doubtful_TX, mismatch_T[::-1].copy(), of["column"],
        first_place, 0, 1,
    )  # fmt: skip
    lanes.fill(
        of["alleles"], of["known"], of["open"], doubtful_TX, mismatch_T, of["column"], first_place,
        first_sample, last_sample,
    )  # fmt: skip
    samples = np.minimum(np.arange(first_sample, first_sample + HALF), last_sample - 1)
    column_L = of["column"][samples].T.ravel()
    known_SL = of["known"][first_place:, column_L]
    call_SL = np.where(known_SL, of["alleles"][first_place:, column_L], MISSING)
    seen_SL = np.where(np.tile(doubtful_TX[first_place:, samples], 2), MISSING, call_SL)
    for found_S2L, expected_SL in ((lanes.call_S2L, call_SL), (lanes.seen_S2L, seen_SL)):
        expected_S2L = side_by_side(allele_emissions(expected_SL.T, mismatch_T[first_place:]))[0]
        np.testing.assert_array_equal(found_S2L, expected_S2L)
    n = last_sample - first_sample
    np.testing.assert_array_equal(lanes.open_SH[:, :n], of["open"][first_place:, first_sample:last_sample])
    assert not lanes.open_SH[:, n:].any()
    np.testing.assert_array_equal(lanes.wanted_S, ~known_SL.all(axis=1))


@settings(deadline=None, max_examples=30)
@sizes
def test_decisions_are_applied_from_left_to_right(seed: int, n_typed: int, n_samples: int) -> None:
    rng, of = some_targets(seed, n_typed, n_samples)
    ways = [0, EXCHANGED, EXCHANGED_BEHIND, EXCHANGED | EXCHANGED_BEHIND]
    way_TX = np.where(of["open"], rng.choice(ways, of["open"].shape), 0).astype(np.uint8)
    likely_T2X = rng.random((n_typed, 2, n_samples)) < 0.5
    expected_TQ = of["alleles"].copy()
    for x, columns in enumerate(of["column"]):
        behind = False
        for t in range(n_typed):
            pair = list(expected_TQ[t, columns])
            if way_TX[t, x] & EXCHANGED:
                pair.reverse()
            pair = [
                allele if of["known"][t, column] else int(likely)
                for allele, column, likely in zip(pair, columns, likely_T2X[t, :, x], strict=True)
            ]
            expected_TQ[t, columns] = pair[::-1] if behind else pair
            behind ^= bool(way_TX[t, x] & EXCHANGED_BEHIND)
    apply_decisions(of["alleles"], of["known"], of["column"], way_TX, likely_T2X)
    np.testing.assert_array_equal(of["alleles"], expected_TQ)


@settings(deadline=None, max_examples=30)
@sizes
def test_the_majority_wins(seed: int, n_typed: int, n_samples: int) -> None:
    rng, of = some_targets(seed, n_typed, n_samples)
    votes_TX = np.zeros(of["open"].shape, np.int8)
    same_VTX = rng.random((3, *of["open"].shape)) < 0.5  # whether ALT lies where it lay at the one before
    for same_TX in same_VTX:
        for x, (first, second) in enumerate(of["column"]):
            last = 0
            for t in np.flatnonzero(of["open"][:, x]):
                last = last if same_TX[t, x] else 1 - last
                of["alleles"][t, [first, second]] = last, 1 - last
        vote(of["alleles"], of["open"], of["column"], votes_TX)
    np.testing.assert_array_equal(
        votes_TX, np.where(of["open"], (2 * same_VTX.astype(int) - 1).sum(axis=0), 0)
    )
    before_TQ, free_X = of["alleles"].copy(), rng.random(n_samples) < 0.7
    elect(of["alleles"], of["open"], free_X, of["column"], votes_TX)
    for x, (first, second) in enumerate(of["column"]):
        if not free_X[x]:
            np.testing.assert_array_equal(of["alleles"][:, [first, second]], before_TQ[:, [first, second]])
            continue
        last = 0
        for t in np.flatnonzero(of["open"][:, x]):
            last = last if same_VTX[:, t, x].sum() >= 2 else 1 - last
            assert tuple(of["alleles"][t, [first, second]]) == (last, 1 - last)
