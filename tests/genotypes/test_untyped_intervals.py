"""Intervals without typed sites: against plain loops, and whatever part of the panel is looked at."""

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from spinimpute.genotypes.intervals import Interval
from spinimpute.genotypes.untyped_intervals import (
    EQUAL_LENGTH_CM,
    FAR_CM,
    FEW_TYPED,
    cut_equal_lengths,
    far_from_typed,
    untyped_intervals,
)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 120), st.floats(0, 0.3), st.sampled_from([0.02, 0.3, 3.0]))
def test_as_plain_loops_say(seed: int, n: int, share: float, step: float) -> None:
    rng = np.random.default_rng(seed)
    cM = np.cumsum(rng.choice([0.0, step, 4 * step], n))
    position = np.arange(n) * 10 + 7
    typed = np.flatnonzero(rng.random(n) < share)
    far = far_from_typed(cM, typed, Interval(0, n))
    assert far.tolist() == [all(abs(cM[i] - cM[t]) > FAR_CM for t in typed) for i in range(n)]
    first, last = sorted(rng.integers(0, n + 1, 2).tolist())
    np.testing.assert_array_equal(far_from_typed(cM, typed, Interval(first, last)), far[first:last])
    intervals = untyped_intervals("20", position, cM, typed, Interval(0, n))
    assert [s.imputed for s in intervals] == sorted((s.imputed for s in intervals), reverse=True)
    covered = np.zeros(n, int)
    for s in intervals:
        inside = (position >= s.start) & (position <= s.end)
        covered += inside
        assert s.typed == inside[typed].sum()
        assert s.typed + s.imputed == inside.sum()
        assert far[(s.start - 7) // 10]
        assert far[(s.end - 7) // 10]
    assert covered.max(initial=0) <= 1
    assert covered[far].all()
    in_order = sorted(intervals, key=lambda s: s.start)
    for a, b in pairwise(in_order):
        assert ((position[typed] > a.end) & (position[typed] < b.start)).sum() > FEW_TYPED


def test_the_panel_is_cut_into_equal_lengths() -> None:
    cM = np.sort(np.random.default_rng(1).uniform(3, 64, 2_000))
    cut = cut_equal_lengths(cM)
    assert [first for first, _ in cut] == [0, *(last for _, last in cut[:-1])]
    assert cut[-1][1] == 2_000
    lengths = np.array([cM[last - 1] - cM[first] for first, last in cut])
    assert (np.abs(lengths - EQUAL_LENGTH_CM) < 0.4).all()
    assert cut_equal_lengths(np.array([2.0])) == [(0, 1)]
    assert cut_equal_lengths(np.array([0.0, 100.0])) == [(0, 1), (1, 2)]  # no empty ones
