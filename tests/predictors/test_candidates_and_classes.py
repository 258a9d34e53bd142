"""Candidates, IBS classes and probabilities to be copied are those of brute force."""

import itertools
from collections.abc import Callable
from functools import partial
from unittest import mock

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from spinimpute.hmm import parameters
from spinimpute.hmm.neighbours import MAX_TIES
from spinimpute.hmm.parameters import MISMATCH
from spinimpute.hmm.patterns import span_patterns
from spinimpute.hmm.pbwt import CandidateSettings, Matches, find_candidates, longest_matches, unite
from spinimpute.hmm.posteriors import copying_posteriors
from spinimpute.hmm.steps import allele_emissions, jump_probabilities
from spinimpute.hmm.typed_alleles import PanelAlleles, TypedAlleles
from spinimpute.predictors.haplotype_attention.ibs_classes import (
    DEPTH,
    LOG_COUNT,
    RUN_LENGTH,
    BlockCandidates,
    GapDistances,
    IBSClasses,
    Information,
    _sort,
    find_ibs_classes,
)
from spinimpute.predictors.haplotype_attention.tile import CANDIDATES
from tests.array_panel import candidates_from_mask
from tests.hmm.brute_force import forward_backward

Mosaic = Callable[..., np.ndarray]

MAX_PANEL_AS_STATES = [0, 10**6]  # who is found is noted in two ways, by the size of the panel


def nearest_by_brute_force(
    panel_SN: np.ndarray, query_S: np.ndarray, place: int, nearest: int, most: int
) -> set[int]:
    n = panel_SN.shape[1]
    lengths = []
    for i in range(n):
        s = place
        while s >= 0 and panel_SN[s, i] == query_S[s]:
            s -= 1
        lengths.append(place - s)
    prefix = [(tuple(panel_SN[place::-1, i] if place else panel_SN[:1, i]), i) for i in range(n)]
    order = sorted(range(n), key=lambda i: prefix[i])
    own = (tuple(query_S[place::-1] if place else query_S[:1]), -1)
    below = sum(key < own for key in prefix)
    above, taken, n_taken = below - 1, set[int](), 0
    while n_taken < nearest:
        best = max(lengths[order[above]] if above >= 0 else 0, lengths[order[below]] if below < n else 0)
        if best == 0:
            break
        first, last = above + 1, below
        while first > 0 and lengths[order[first - 1]] == best:
            first -= 1
        while last < n and lengths[order[last]] == best:
            last += 1
        equal = order[first : above + 1] + order[below:last]
        asked = min(len(equal), most - n_taken)
        taken |= {equal[number * len(equal) // asked] for number in range(asked)}
        n_taken += asked
        above, below = first - 1, last
        if asked < len(equal):
            break
    return taken


@settings(deadline=None, max_examples=60)
@given(
    st.integers(0, 10**6), st.integers(1, 90), st.integers(1, 40), st.integers(1, 8), st.integers(8, 20),
    st.sampled_from(MAX_PANEL_AS_STATES),
)  # fmt: skip
def test_candidates_are_those_of_brute_force(
    mosaic: Mosaic, seed: int, n_sites: int, n: int, nearest: int, most: int, most_states: int
) -> None:
    rng = np.random.default_rng(seed)
    both = mosaic(rng, n_sites, n + 2)
    panel, queries = PanelAlleles.from_alleles(both[:, :n]), TypedAlleles.from_alleles(both[:, n:])
    margin, core = int(rng.integers(0, 4)), int(rng.integers(1, 6))
    first_B = np.arange(0, n_sites + 1, core)
    first, last = np.sort(rng.integers(0, len(first_B) + 1, 2))  # blocks of the tile; flanks have none
    first_B = first_B[first : max(last, first + 1)] if first < len(first_B) else first_B[-1:]
    n_gaps_B = np.minimum(core, n_sites + 1 - first_B)
    settings = CandidateSettings(nearest, most, margin)
    with mock.patch.object(parameters, "MAX_PANEL_AS_STATES", most_states):
        found = find_candidates(panel, panel.backwards(), queries, first_B, n_gaps_B, settings)
    for q, (b, first) in itertools.product(range(2), enumerate(first_B)):
        last = int(first + n_gaps_B[b] - 1)
        expected = set[int]()
        for panel_SN, query_S, left, right in (
            (both[:, :n], both[:, n + q], int(first) - 1, last - 1),
            (both[::-1, :n], both[::-1, n + q], n_sites - 1 - last, n_sites - 1 - int(first)),
        ):
            for place in range(max(0, left - margin), min(n_sites, right + margin + 1)):
                expected |= nearest_by_brute_force(panel_SN, query_S, place, nearest, most)
        assert found.take(b, q).tolist() == sorted(expected)
    sides = (
        longest_matches(haplotypes, queries, first_B, n_gaps_B, settings, on_left=on_left).part(1, 2)
        for haplotypes, on_left in ((panel, True), (panel.backwards(), False))
    )
    some = unite(*sides)
    assert all(np.array_equal(some.take(b, 0), found.take(b, 1)) for b in range(len(first_B)))


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 10**6), st.integers(20, 150), st.integers(1_000, 1_700))
def test_where_a_walk_begins_changes_nothing(mosaic: Mosaic, seed: int, n_sites: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    both = mosaic(rng, n_sites, n + 4, founders=30, errors=0.01)
    both[:, -1] = rng.integers(0, 2, n_sites)
    panel, queries = PanelAlleles.from_alleles(both[:, :n]), TypedAlleles.from_alleles(both[:, n:])
    first_B, n_gaps_B = np.arange(0, n_sites, 8), np.full(-(-n_sites // 8), 8)
    n_gaps_B[-1] = n_sites + 1 - first_B[-1]
    directions = panel, panel.backwards(), queries
    whole = find_candidates(*directions, first_B, n_gaps_B, CANDIDATES)
    for b in rng.choice(len(first_B), 3, replace=False):
        alone = find_candidates(*directions, first_B[b : b + 1], n_gaps_B[b : b + 1], CANDIDATES)
        for q in range(4):
            assert alone.take(0, q).tolist() == whole.take(b, q).tolist()


@settings(deadline=None, max_examples=60)
@given(
    st.integers(0, 10**6), st.integers(2, 40), st.sampled_from([60, 600, 6_000]), st.sampled_from([0, 0.5]),
    st.sampled_from(MAX_PANEL_AS_STATES),
)  # fmt: skip
def test_what_a_block_takes_is_what_its_typed_sites_take(
    seed: int, n_sites: int, n: int, missing: float, most_states: int
) -> None:
    rng = np.random.default_rng(seed)
    classes = rng.integers(0, 2, (n_sites, int(rng.integers(3, 7))))
    panel_SN = classes[:, rng.integers(0, classes.shape[1], n)] ^ (rng.random((n_sites, n)) < 1 / n)
    query_SQ = classes[:, rng.integers(0, classes.shape[1], 4)] ^ (rng.random((n_sites, 4)) < 0.05)
    query_SQ = np.where(rng.random((n_sites, 4)) < missing, 2, query_SQ)
    panel, queries = (
        PanelAlleles.from_alleles(panel_SN.astype(np.uint8)),
        TypedAlleles.from_alleles(query_SQ.astype(np.uint8)),
    )
    few = CandidateSettings(nearest=4, most=20, margin=0)
    for haplotypes, first in ((panel, 1), (panel.backwards(), 0)):
        side = partial(longest_matches, haplotypes, queries, settings=few, on_left=bool(first))
        with mock.patch.object(parameters, "MAX_PANEL_AS_STATES", most_states):
            whole = side(np.array([first]), np.array([n_sites]))
        alone = side(np.arange(n_sites) + first, np.ones(n_sites, int))
        for q in range(4):
            expected = set[int]().union(*(of_query(alone, place, q) for place in range(n_sites)))
            assert of_query(whole, 0, q) == sorted(expected)


def of_query(found: Matches, block: int, query: int) -> list[int]:
    first, last = found.start_BQ[block, query], found.stop_BQ[block, query]
    return found.haplotype_C[first:last].tolist()


def test_equal_matches_are_taken_from_all_of_them() -> None:
    n = 3_000
    panel = PanelAlleles.from_alleles(np.zeros((20, n), np.uint8))
    query = TypedAlleles.from_alleles(np.zeros((20, 1), np.uint8))
    found = find_candidates(
        panel, panel.backwards(), query, np.array([10]), np.array([4]), CandidateSettings(12, 120, 2)
    )
    taken = found.take(0, 0)
    assert taken.tolist() == [number * MAX_TIES // 120 for number in range(120)]


def differences(query_S: np.ndarray, haplotype_S: np.ndarray, place: int) -> tuple[list[int], list[int]]:
    """Places of the first DEPTH differences on both sides of the gap before `place`."""
    where = np.flatnonzero((query_S < 2) & (query_S != haplotype_S)).tolist()
    left = [s for s in where if s < place][::-1][:DEPTH]
    right = [s for s in where if s >= place][:DEPTH]
    return left + [-1] * (DEPTH - len(left)), right + [len(query_S)] * (DEPTH - len(right))


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10**6), st.integers(1, 50), st.integers(1, 30), st.integers(1, 12))
def test_classes_are_those_of_brute_force(
    mosaic: Mosaic, seed: int, n_sites: int, n: int, n_classes: int
) -> None:
    rng = np.random.default_rng(seed)
    both = mosaic(rng, n_sites, n + 1)
    query_S = np.where(rng.random(n_sites) < 0.1, 2, both[:, n])
    panel, query = PanelAlleles.from_alleles(both[:, :n]), TypedAlleles.from_alleles(query_S[:, None])
    frequency_S = both[:, :n].mean(1)
    information = Information.of(query.alleles_SX, frequency_S, n)
    first = int(rng.integers(0, n_sites + 1))
    n_gaps = int(rng.integers(1, n_sites + 2 - first))
    everyone = np.arange(n, dtype=np.int32)
    cM_S = np.sort(rng.random(n_sites))
    posterior_NP = rng.random((n, n_gaps + 1)).astype(np.float32)
    candidates = BlockCandidates(everyone, posterior_NP, np.array([0, n]))
    distances = GapDistances.of(cM_S, first, n_gaps)
    m = find_ibs_classes(panel, query, information, candidates, distances, n_classes)
    inform = information.query_QS[0].astype(float)
    for g in range(n_gaps):
        members: dict[tuple[int, ...], list[int]] = {}
        for i in range(n):
            left, right = differences(query_S, both[:, i], first + g)
            members.setdefault((left[0], left[1], right[0], right[1]), []).append(i)

        def score(key: tuple[int, ...]) -> float:
            l1, l2, r1, r2 = key
            total = inform[l2 + 1 : r2].sum()
            return total - (inform[l1] if l1 >= 0 else 0) - (inform[r1] if r1 < n_sites else 0)

        k_found = int((m.count_QGK[0, g] > 0).sum())
        assert k_found == min(n_classes, len(members))
        scores = []
        for k in range(k_found):
            start = m.first_QGK[0, g, k]
            mine = sorted(m.member_M[start : start + int(m.count_QGK[0, g, k])].tolist())
            key = next(key for key, who in members.items() if mine[0] in who)
            assert mine == members[key]
            scores.append(score(key))
            # lengths up to the 1st and 2nd difference are the same for all members
            edge = first + g
            left_cM = cM_S[max(edge - 1, 0)] - cM_S[max(key[0], 0)]
            assert m.features_QGFK[0, g, 0, k] == pytest.approx(np.log(max(left_cM, 0) + 1e-4), abs=1e-4)
            mean_2 = posterior_NP[mine, g : g + 2].mean(0)
            assert m.features_QGFK[0, g, LOG_COUNT + 7 :, k] == pytest.approx(np.log(mean_2 + 1e-6), abs=2e-4)
        assert all(a >= b - 1e-3 for a, b in itertools.pairwise(scores))
        if k_found == n_classes:  # what was left out is no better
            left_out = set(members) - {
                key for key, who in members.items()
                if any(who[0] in m.member_M[s : s + int(c)].tolist()
                       for s, c in zip(m.first_QGK[0, g], m.count_QGK[0, g], strict=True))
            }  # fmt: skip
            assert all(score(key) <= scores[-1] + 1e-3 for key in left_out)


@settings(deadline=None, max_examples=60)
@given(
    st.integers(0, 10**6),
    st.sampled_from(
        [
            0,
            1,
            RUN_LENGTH - 1,
            RUN_LENGTH,
            RUN_LENGTH + 1,
            2 * RUN_LENGTH,
            2 * RUN_LENGTH + 1,
            3 * RUN_LENGTH + 1,
            300,
        ]
    ),
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
    """Classes of the haplotypes from the n-th on, in the gaps right of the places 5, 6, ..."""
    panel, queries = PanelAlleles.from_alleles(both_SX[:, :n]), TypedAlleles.from_alleles(both_SX[:, n:])
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


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10**6), st.integers(1, 150), st.integers(1, 90), st.integers(1, 40), st.booleans())
def test_chances_to_be_copied_are_those_of_brute_force(
    mosaic: Mosaic, seed: int, n_places: int, n: int, n_queries: int, large: bool
) -> None:
    """The states of a large panel are a query's candidates. Alleles are known, missing, or likelihoods."""
    rng = np.random.default_rng(seed)
    both_SX = mosaic(rng, n_places, n + n_queries)
    query_SQ = np.where(rng.random((n_places, n_queries)) < 0.1, 2, both_SX[:, n:])
    emission_QS2 = allele_emissions(query_SQ.T, MISMATCH)
    emission_QS2[::3] = (1 - rng.random(emission_QS2[::3].shape)) ** rng.choice([1, 4])
    panel = PanelAlleles.from_alleles(both_SX[:, :n])
    # distances of 0 and gaps without any link among them
    jump_S = jump_probabilities(np.cumsum(rng.choice([0, 1e-4, 0.01, 30.0], n_places)), n)
    assert jump_S[0] == 1
    first_B = np.arange(0, n_places + 1, 16)
    n_gaps_B = np.minimum(16, n_places + 1 - first_B)
    # blocks of the tile; flanks have none
    some = slice(*sorted(rng.choice(len(first_B) + 1, 2, replace=False)))
    first_B, n_gaps_B = first_B[some], n_gaps_B[some]
    chosen_BQN = rng.random((len(first_B), n_queries, n)) < rng.choice([0.02, 0.5])
    candidates = candidates_from_mask(chosen_BQN)
    kept = mock.patch.object(parameters, "MIN_POSTERIOR_SUM", 0)  # these candidates, however unlikely
    with mock.patch.object(parameters, "MAX_PANEL_AS_STATES", 0 if large else n), kept:
        posterior_CP, candidates = copying_posteriors(
            span_patterns(panel.bits_NW, n_places), panel.bits_NW, emission_QS2, jump_S, candidates, first_B,
            n_gaps_B, 0,
        )  # fmt: skip
    for q in range(n_queries):
        possible_N = chosen_BQN[:, q].any(axis=0) if large else np.ones(n, bool)
        if not possible_N.any():
            continue
        expected_SN, _ = forward_backward(both_SX[:, :n], emission_QS2[q], jump_S, possible_N)
        for b in range(len(first_B)):
            who = np.flatnonzero(chosen_BQN[b, q])
            places = np.clip(np.arange(first_B[b] - 1, first_B[b] + n_gaps_B[b]), 0, n_places - 1)
            found = posterior_CP[slice(*candidates.first_BQ1[b, q : q + 2]), : len(places)]
            np.testing.assert_allclose(found, expected_SN[places][:, who].T, atol=2e-5)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10**6), st.integers(1, 100), st.integers(2, 90), st.sampled_from([0, 0.5]))
def test_likely_states_join_candidates_that_are_not(
    mosaic: Mosaic, seed: int, n_places: int, n: int, least_share: float
) -> None:
    """In a large panel, if a block's candidates have less than half of a query's probability."""
    rng = np.random.default_rng(seed)
    both_SX = mosaic(rng, n_places, n + 4)
    panel, emission_QS2 = (
        PanelAlleles.from_alleles(both_SX[:, :n]),
        allele_emissions(both_SX[:, n:].T, MISMATCH),
    )
    jump_S = jump_probabilities(np.cumsum(rng.choice([1e-4, 0.01], n_places)), n)
    edges = np.unique([0, n_places + 1, *rng.integers(0, n_places + 1, 6)])  # of blocks, also of single gaps
    first_B, n_gaps_B = edges[:-1], np.diff(edges)
    chosen_BQN = rng.random((len(first_B), 4, n)) < 0.3
    with mock.patch.object(parameters, "MAX_PANEL_AS_STATES", 0):
        posterior_CP, candidates = copying_posteriors(
            None, panel.bits_NW, emission_QS2, jump_S, candidates_from_mask(chosen_BQN), first_B, n_gaps_B,
            least_share,
        )  # fmt: skip
    least, close = least_share / n, 2e-5
    for q in range(4):
        possible_N = chosen_BQN[:, q].any(axis=0)
        if not possible_N.any():
            assert not any(len(candidates.take(b, q)) for b in range(len(first_B)))
            continue
        expected_SN, _ = forward_backward(both_SX[:, :n], emission_QS2[q], jump_S, possible_N)
        for b in range(len(first_B)):
            places = np.arange(first_B[b] - 1, first_B[b] + n_gaps_B[b]).clip(0, n_places - 1)
            own_N, found = chosen_BQN[b, q], candidates.take(b, q)
            most_N = expected_SN[places].max(axis=0)
            of_found = posterior_CP[slice(*candidates.first_BQ1[b, q : q + 2]), : len(places)]
            np.testing.assert_allclose(of_found, expected_SN[places][:, found].T, atol=close)
            if (np.abs(most_N - least) < close).any():
                continue  # rounding decides who stays
            stay_N = own_N & (most_N >= least)
            mass = expected_SN[places][:, stay_N].sum(axis=1).min()
            assert (np.diff(found) > 0).all()
            assert np.isin(np.flatnonzero(stay_N), found).all()
            others = found[~stay_N[found]]
            if mass > 0.5 + close:
                assert len(others) == 0
            elif mass < 0.5 - close:
                could_N = possible_N & ~stay_N & (most_N >= least)
                n_others = min(own_N.sum() - stay_N.sum(), could_N.sum())
                likeliest = np.sort(most_N[could_N])[::-1][:n_others]
                np.testing.assert_allclose(np.sort(most_N[others])[::-1], likeliest, atol=close)


@pytest.mark.parametrize("allele", [0, 1])
def test_candidates_that_are_all_alike_stay(allele: int) -> None:
    """If the query is unlike all of them, the bound of the posteriors is infinite."""
    panel = PanelAlleles.from_alleles(np.zeros((100, 40), np.uint8))
    query = TypedAlleles.from_alleles(np.full((100, 1), allele, np.uint8))
    everyone = candidates_from_mask(np.ones((1, 1, 40), bool))
    with mock.patch.object(parameters, "MAX_PANEL_AS_STATES", 0):
        posterior_CP, kept = copying_posteriors(
            None, panel.bits_NW, allele_emissions(query.alleles_SX.T, MISMATCH),
            jump_probabilities(np.arange(100) * 0.01, 40), everyone, np.array([0]), np.array([101]), 5.0,
        )  # fmt: skip
    assert kept.take(0, 0).tolist() == list(range(40))
    np.testing.assert_allclose(posterior_CP, 1 / 40, rtol=1e-4)


def test_a_wrong_call_does_not_hide_what_is_copied(mosaic: Mosaic) -> None:
    """Behind a wrong call at the end of a chromosome, other haplotypes match as well as the copied one."""
    rng = np.random.default_rng(1)
    panel_SN = np.concatenate([mosaic(rng, 90, 300, errors=0.2), np.zeros((18, 300), np.uint8)])
    panel, query_SQ = PanelAlleles.from_alleles(panel_SN), panel_SN[:, :20].copy()
    query_SQ[89] ^= 1
    queries, first_B = TypedAlleles.from_alleles(query_SQ), np.arange(0, 108, 16)
    blocks = first_B, np.minimum(16, 109 - first_B)
    few = CandidateSettings(nearest=2, most=8, margin=2)
    candidates = find_candidates(panel, panel.backwards(), queries, *blocks, few)
    hidden = [q for q in range(20) if q not in candidates.take(6, q)]
    assert len(hidden) > 5
    with mock.patch.object(parameters, "MAX_PANEL_AS_STATES", 0):
        posterior_CP, candidates = copying_posteriors(
            None, panel.bits_NW, allele_emissions(queries.alleles_SX.T, MISMATCH),
            jump_probabilities(np.arange(108) * 0.01, 300), candidates, *blocks, 0.5,
        )  # fmt: skip
    for q in hidden:
        first, last = candidates.first_BQ1[6, q : q + 2]
        of_copied_P = posterior_CP[first:last][candidates.take(6, q) == q, :13]
        assert of_copied_P.size == 13
        assert (of_copied_P > 0.1).all()


@settings(deadline=None, max_examples=60)
@given(
    st.integers(0, 10**6), st.integers(1, 120), st.integers(2, 150), st.integers(1, 40),
    st.sampled_from([0.01, 0.2, 1, 5]), st.booleans(),
)  # fmt: skip
@example(seed=9, n_places=2, n=26, n_queries=19, least_share=1, large=False)  # posteriors of exactly 1 / n
def test_candidates_that_are_never_likely_are_left_out(
    mosaic: Mosaic, seed: int, n_places: int, n: int, n_queries: int, least_share: float, large: bool
) -> None:
    rng = np.random.default_rng(seed)
    both_SX = mosaic(rng, n_places, n + n_queries, founders=6, errors=0.02)
    query_SQ = np.where(rng.random((n_places, n_queries)) < 0.05, 2, both_SX[:, n:])
    panel, queries = PanelAlleles.from_alleles(both_SX[:, :n]), TypedAlleles.from_alleles(query_SQ)
    jump_S = jump_probabilities(np.cumsum(rng.choice([0, 1e-3, 0.05], n_places)), n)
    edges = np.unique([*rng.integers(0, n_places + 2, 2), *rng.integers(0, n_places + 2, 5)])
    if len(edges) == 1:
        return
    blocks = edges[:-1], np.diff(edges)
    candidates = candidates_from_mask(rng.random((len(blocks[0]), n_queries, n)) < rng.choice([0.1, 0.9]))
    patterns = span_patterns(panel.bits_NW, n_places)
    model = allele_emissions(queries.alleles_SX.T, MISMATCH), jump_S
    with (
        mock.patch.object(parameters, "MAX_PANEL_AS_STATES", 0 if large else n),
        mock.patch.object(parameters, "MIN_POSTERIOR_SUM", 0),  # no others join them
        mock.patch.object(parameters, "MAX_THRESHOLD_SHARE", np.inf),
    ):
        every_CP, same = copying_posteriors(patterns, panel.bits_NW, *model, candidates, *blocks, 0)
        kept_CP, kept = copying_posteriors(patterns, panel.bits_NW, *model, candidates, *blocks, least_share)
    assert all(np.array_equal(x, y) for x, y in zip(same, candidates, strict=True))
    likely_C = (every_CP >= np.float32(least_share / n)).any(axis=1)
    np.testing.assert_array_equal(kept_CP, every_CP[likely_C])
    np.testing.assert_array_equal(kept.haplotype_C, candidates.haplotype_C[likely_C])
    before_C1 = np.concatenate([[0], np.cumsum(likely_C)])
    np.testing.assert_array_equal(kept.first_BQ1, before_C1[candidates.first_BQ1])
