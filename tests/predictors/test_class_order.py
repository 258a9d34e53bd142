"""Classes and their members do not depend on what else is asked for, nor on what memory held before."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spinimpute.hmm.typed_alleles import PanelAlleles, TypedAlleles
from spinimpute.predictors.haplotype_attention.ibs_classes import (
    RUN,
    BlockCandidates,
    GapDistances,
    IBSClasses,
    Information,
    _sort,
    find_ibs_classes,
)

Mosaic = Callable[..., np.ndarray]


@settings(deadline=None, max_examples=60)
@given(
    st.integers(0, 10**6),
    st.sampled_from([0, 1, RUN - 1, RUN, RUN + 1, 2 * RUN, 2 * RUN + 1, 3 * RUN + 1, 300]),
    st.sampled_from([1, 2, 5, 10**9]),
)
def test_candidates_are_sorted_in_one_way(seed: int, n: int, n_orders: int) -> None:
    rng = np.random.default_rng(seed)
    order_C = rng.integers(0, n_orders, n + 3)  # room for more than are sorted
    rank_C = rng.permutation(n)
    _sort(rank_C, n, order_C, np.empty(n + 3, np.int64))
    assert rank_C.tolist() == sorted(range(n), key=lambda c: (-order_C[c], c))


def classes_of(
    both_SX: np.ndarray, n: int, first_Q1: np.ndarray, wanted_QG: np.ndarray | None, n_classes: int
) -> IBSClasses:
    """Classes of the haplotypes from the n-th on, in gaps on the right of the places 5, 6, ..."""
    panel, queries = PanelAlleles.of(both_SX[:, :n]), TypedAlleles.of(both_SX[:, n:])
    rng = np.random.default_rng(1)
    n_gaps, n_candidates = 12, int(first_Q1[-1])
    candidate_C = np.concatenate([np.arange(k, dtype=np.int32) for k in np.diff(first_Q1)])
    posterior_CP = rng.random((n_candidates, n_gaps + 1)).astype(np.float32)
    distances = GapDistances.of(np.linspace(0, 1, len(both_SX)), 5, n_gaps)
    information = Information.of(queries.alleles_SX, both_SX[:, :n].mean(1), n)
    candidates = BlockCandidates(candidate_C, posterior_CP, first_Q1)
    return find_ibs_classes(panel, queries, information, candidates, distances, n_classes, wanted_QG)


@pytest.mark.parametrize("n_classes", [1, 4, 30])
def test_a_gap_has_the_same_members_in_the_same_order_whichever_others_are_asked_for(
    mosaic: Mosaic, rng: np.random.Generator, n_classes: int
) -> None:
    """Also of a query without candidates, and where members outgrow the memory that they begin with."""
    both_SX = mosaic(rng, 40, 90 + 5, founders=4, errors=0.02)
    first_Q1 = np.array([0, 90, 90, 91, 161, 251])
    every = classes_of(both_SX, 90, first_Q1, None, n_classes)
    wanted_QG = rng.random((5, 12)) < 0.4
    some = classes_of(both_SX, 90, first_Q1, wanted_QG, n_classes)
    assert (every.count_QGK[1] == 0).all()
    assert some.count_QGK[~wanted_QG].max() == 0
    if n_classes == 1:  # more members than classes, for which there is room at first
        assert every.count_QGK.sum() > every.count_QGK.size
    for q, g in np.argwhere(wanted_QG):
        np.testing.assert_array_equal(some.features_QGFK[q, g], every.features_QGFK[q, g])
        np.testing.assert_array_equal(some.count_QGK[q, g], every.count_QGK[q, g])
        for k in np.flatnonzero(every.count_QGK[q, g]):
            one, other = (
                m.member_M[m.first_QGK[q, g, k] :][: int(m.count_QGK[q, g, k])] for m in (some, every)
            )
            np.testing.assert_array_equal(one, other)
