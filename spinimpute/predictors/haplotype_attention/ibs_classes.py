"""IBS (identical by state) classes: candidates that match a query equally far on both sides of a gap.

Terms (docs/glossary.md): a *gap* lies between two neighbouring typed sites, and a *block* is 16 gaps. A
*place* is a typed site's index in a tile. *Candidates* are panel haplotypes with long matches to the query.

Two candidates are in the same class at a gap if their first and second differences from the query, on each
side of the gap, are at the same places. From the second difference on the left to the second difference on
the right, all members of a class therefore have the same alleles, except where a call of the query is
missing. The *information* of a typed site is -log(panel frequency of the query's allele). A class is ranked
by the sum of the information of the typed sites between its two second differences, without the two first
differences.

Axes: S places of a tile, N panel haplotypes, Q queries, G gaps of a block, K classes, F features,
C candidates, M members of classes, W 64-bit words, P places around a block's gaps or places of differences.
A trailing 1 means one more than the axis: S1 has S + 1 entries.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from spinimpute.genotypes.bit_rows import bit_at_or_after, bit_at_or_before, count_bits
from spinimpute.hmm.typed_alleles import PanelAlleles, TypedAlleles
from spinimpute.runtime.fast_math import bits_of_float, fast_log
from spinimpute.runtime.kernels import kernel

DEPTH = 2  # number of differences on each side that define a class
LOG_COUNT = 4 * DEPTH  # index of the feature that is the log of the number of members
FEATURES = 4 * DEPTH + 9
SCANNED_PLACES = 128  # differences within this many typed sites on each side of a block are counted
RUN_LENGTH = 32  # length of the runs that are insertion-sorted before merging
# These are added before taking logs.
CM_OFFSET = 1e-4
INFORMATION_OFFSET = 0.1
PROBABILITY_OFFSET = 1e-6


class BlockCandidates(NamedTuple):
    """Candidates of all queries in one block of gaps."""

    haplotype_C: np.ndarray  # int32
    posterior_CP: np.ndarray  # float32, at both ends of each gap, see `copying_posteriors`
    first_Q1: np.ndarray  # int64, index of each query's first candidate


class IBSClasses(NamedTuple):
    """Classes of some queries at the gaps of a block.

    ====== ===== ============================================================================
    index  side  feature
    ====== ===== ============================================================================
    0, 1   left  log of the genetic length (cM) up to the first and up to the second difference
    2, 3   left  log of the information up to the first and up to the second difference
    4 to 7 right the same four features
    8            log of the number of members
    9, 10  left  information of the query's allele and of the other allele at the first difference
    11, 12 right the same two features
    13     left  log of the share of typed sites near the block at which the best member differs
    14     right the same feature
    15     left  log of the members' mean copying probability at the left end of the gap
    16     right the same feature at the right end
    ====== ===== ============================================================================

    Features 9 to 12 are not logs, and are 0 if there is no difference. All features are 0 for absent classes,
    and undefined at gaps that are not computed.
    """

    features_QGFK: np.ndarray  # float32
    count_QGK: np.ndarray  # float32, number of members; 0 for absent classes, which come last
    first_QGK: np.ndarray  # int32, index in member_M of a class's first member
    member_M: np.ndarray  # int32, panel haplotypes, class by class


@kernel(inline=True)
def _find_differences(differ_W, n_places, first_gap_place, n_gaps, differences_CP, c):  # type: ignore[no-untyped-def]
    """Fill row c of differences_CP with the places of differences, from left to right.

    These are the DEPTH nearest differences to the left of the block (-1 if there are fewer), the differences
    between the block's first and last gap, and the DEPTH nearest differences to the right (n_places if there
    are fewer). Return the number of differences between the first and the last gap. first_gap_place is the
    place to the right of the first gap.
    """
    place = first_gap_place - 1
    for j in range(DEPTH):
        place = bit_at_or_before(differ_W, place)
        differences_CP[c, DEPTH - 1 - j] = place
        place -= 1
    end = min(first_gap_place + n_gaps - 1, n_places)
    between = 0
    place = bit_at_or_after(differ_W, first_gap_place, n_places)
    while place < end:
        differences_CP[c, DEPTH + between] = place
        between += 1
        place = bit_at_or_after(differ_W, place + 1, n_places)
    for j in range(DEPTH):
        differences_CP[c, DEPTH + between + j] = place
        place = bit_at_or_after(differ_W, place + 1, n_places)
    return between


@kernel(inline=True)
def _key(left_1, left_2, right_1, right_2):  # type: ignore[no-untyped-def]
    """Encode four places, each below 2^15 - 1, as one integer."""
    base = np.int64(1) << np.int64(15)
    return (((left_1 + 1) * base + left_2 + 1) * base + right_1) * base + right_2


@kernel()
def _class_key(differences_CP, c, column, cumulative_S1, information_S, n_places):  # type: ignore[no-untyped-def]
    """Return the key of a candidate's class and the sort value of that class.

    `column` is that of the first difference to the right of the gap. The sort value increases with the
    information of the class. Ties are broken by a hash of the key.
    """
    left_1, left_2 = differences_CP[c, column - 1], differences_CP[c, column - 2]
    right_1, right_2 = differences_CP[c, column], differences_CP[c, column + 1]
    key = _key(left_1, left_2, right_1, right_2)
    # Both entries are read in any case: numba then counts no references to the arrays.
    left, right = information_S[max(left_1, 0)], information_S[min(right_1, n_places - 1)]
    information = cumulative_S1[right_2] - cumulative_S1[left_2 + 1]
    information -= left if left_1 >= 0 else np.float32(0)
    information -= right if right_1 < n_places else np.float32(0)
    tie_breaker = ((key * np.int64(-7046029254386353131)) >> np.int64(33)) & np.int64(0x7FFFFFFF)
    # The bit patterns of non-negative floats sort like the floats.
    return key, (np.int64(bits_of_float(max(information, np.float32(0)))) << np.int64(32)) | tie_breaker


@kernel()
def _best_member(member_C, first, last, outside_C2):  # type: ignore[no-untyped-def]
    """Return the member with the fewest differences outside the block; on a tie, the first candidate."""
    best = member_C[first]
    fewest = outside_C2[best, 0] + outside_C2[best, 1]
    for i in range(first + 1, last):
        c = member_C[i]
        outside = outside_C2[c, 0] + outside_C2[c, 1]
        if outside < fewest or (outside == fewest and c < best):
            best, fewest = c, outside
    return best


@kernel()
def _describe_differences(q, g, n_found, information, distances, work, classes):  # type: ignore[no-untyped-def]
    """Write the features of n_found classes that depend on the two differences on each side.

    Query q has these classes at gap g. The differences are read from the best member of each class, because
    all members have the same ones. The inner loops run over classes, because these loops can be vectorized.
    """
    information_S, other_S = information.query_QS[q], information.other_QS[q]
    log_left_S1, log_right_S1 = distances.log_left_GS1[g], distances.log_right_GS1[g]
    cumulative_S1, differences_CP, column_C = work.cumulative_S1, work.differences_CP, work.column_C
    best_K, skipped_2K, features_FK = work.best_K, work.skipped_2K, classes.features_QGFK[q, g]
    n_places = len(information_S)
    up_to_gap = cumulative_S1[distances.first_place + g]
    offset, zero = np.float32(INFORMATION_OFFSET), np.float32(0)
    for k in range(n_found):
        skipped_2K[0, k] = skipped_2K[1, k] = 0
    for j in range(DEPTH):
        for k in range(n_found):
            c = best_K[k]
            left, right = differences_CP[c, column_C[c] - 1 - j], differences_CP[c, column_C[c] + j]
            features_FK[j, k] = log_left_S1[left + 1]
            features_FK[2 * DEPTH + j, k] = log_right_S1[right]
            features_FK[DEPTH + j, k] = up_to_gap - cumulative_S1[left + 1] - skipped_2K[0, k]
            features_FK[3 * DEPTH + j, k] = cumulative_S1[right] - up_to_gap - skipped_2K[1, k]
            left_exists, right_exists = np.float32(left >= 0), np.float32(right < n_places)
            left, right = max(left, 0), min(right, n_places - 1)
            skipped_2K[0, k] += left_exists * information_S[left]
            skipped_2K[1, k] += right_exists * information_S[right]
            if j == 0:
                features_FK[LOG_COUNT + 1, k] = left_exists * information_S[left]
                features_FK[LOG_COUNT + 2, k] = left_exists * other_S[left]
                features_FK[LOG_COUNT + 3, k] = right_exists * information_S[right]
                features_FK[LOG_COUNT + 4, k] = right_exists * other_S[right]
        for k in range(n_found):
            features_FK[DEPTH + j, k] = fast_log(max(features_FK[DEPTH + j, k], zero) + offset)
            features_FK[3 * DEPTH + j, k] = fast_log(max(features_FK[3 * DEPTH + j, k], zero) + offset)


@kernel()
def _describe_members(q, g, n_found, work, classes):  # type: ignore[no-untyped-def]
    """Write the other features of the n_found classes of query q at gap g."""
    best_K, posterior_2K, n_scanned_2 = work.best_K, work.posterior_2K, work.n_scanned_2
    column_C, between_C, outside_C2 = work.column_C, work.between_C, work.outside_C2
    count_K, features_FK = classes.count_QGK[q, g], classes.features_QGFK[q, g]
    for k in range(n_found):
        c = best_K[k]
        n_left = column_C[c] - DEPTH
        features_FK[LOG_COUNT, k] = fast_log(count_K[k])
        left, right = outside_C2[c, 0] + n_left, outside_C2[c, 1] + between_C[c] - n_left
        features_FK[LOG_COUNT + 5, k] = (np.float32(left) + np.float32(0.5)) / n_scanned_2[0]
        features_FK[LOG_COUNT + 6, k] = (np.float32(right) + np.float32(0.5)) / n_scanned_2[1]
        for side in range(2):
            mean = posterior_2K[side, k] / count_K[k]
            features_FK[LOG_COUNT + 7 + side, k] = mean + np.float32(PROBABILITY_OFFSET)
    for j in range(LOG_COUNT + 5, LOG_COUNT + 9):
        for k in range(n_found):
            features_FK[j, k] = fast_log(features_FK[j, k])


@kernel(inline=True)
def _comes_before(score_C, c, other_c):  # type: ignore[no-untyped-def]
    return score_C[c] > score_C[other_c] or (score_C[c] == score_C[other_c] and c < other_c)


@kernel()
def _sort(rank_C, n, score_C, merged_C):  # type: ignore[no-untyped-def]
    """Sort the first n candidates of rank_C by decreasing score_C, ties by index.

    This is a merge sort with insertion-sorted runs, which is fast if the candidates are almost sorted.
    merged_C is scratch memory.
    """
    for first in range(0, n, RUN_LENGTH):
        for i in range(first + 1, min(first + RUN_LENGTH, n)):
            c = rank_C[i]
            j = i
            while j > first and _comes_before(score_C, c, rank_C[j - 1]):
                rank_C[j] = rank_C[j - 1]
                j -= 1
            rank_C[j] = c
    width = RUN_LENGTH
    while width < n:
        for first in range(0, n - width, 2 * width):
            middle, last = first + width, min(first + 2 * width, n)
            if _comes_before(score_C, rank_C[middle - 1], rank_C[middle]):
                continue
            for i in range(first, middle):
                merged_C[i] = rank_C[i]
            i, j, k = first, middle, first
            while i < middle:
                if j < last and _comes_before(score_C, rank_C[j], merged_C[i]):
                    rank_C[k] = rank_C[j]
                    j += 1
                else:
                    rank_C[k] = merged_C[i]
                    i += 1
                k += 1
        width *= 2


class _Workspace(NamedTuple):
    """Scratch arrays for one query. Axis C: its candidates."""

    cumulative_S1: np.ndarray  # float32, cumulative information: entry s is the sum over places 0 to s - 1
    differ_W: np.ndarray  # uint64, a bit for each place, set where the candidate differs from the query
    differences_CP: np.ndarray  # int32, see `_find_differences`
    column_C: np.ndarray  # int32, column of differences_CP with the first difference to the right of the gap
    between_C: np.ndarray  # int32, number of differences between the block's first and last gap
    # int32, number of differences within SCANNED_PLACES places left and right of the block
    outside_C2: np.ndarray
    key_C: np.ndarray  # int64, see `_class_key`
    score_C: np.ndarray  # int64, sort value, see `_class_key`
    rank_C: np.ndarray  # int64, candidates, sorted by `_sort`
    merged_C: np.ndarray  # int64, scratch memory of `_sort`
    best_K: np.ndarray  # int32, member of each class with the fewest differences, see `_best_member`
    skipped_2K: np.ndarray  # float32, per side, information of differences passed while walking outwards
    posterior_2K: np.ndarray  # float32, members' summed copying probability at both ends of the gap
    n_scanned_2: np.ndarray  # float32, number of places scanned on the left and on the right

    @classmethod
    def of(cls, max_candidates: int, n_places: int, n_words: int, n_gaps: int, n_classes: int) -> _Workspace:
        """Allocate the arrays for at most `max_candidates` candidates."""
        i32, i64, f32 = np.int32, np.int64, np.float32
        return cls(
            np.empty(n_places + 1, f32),
            np.empty(n_words, np.uint64),
            np.empty((max_candidates, 2 * DEPTH + n_gaps), i32),
            np.empty(max_candidates, i32),
            np.empty(max_candidates, i32),
            np.empty((max_candidates, 2), i32),
            np.empty(max_candidates, i64),
            np.empty(max_candidates, i64),
            np.empty(max_candidates, i64),
            np.empty(max_candidates, i64),
            np.empty(n_classes, i32),
            np.empty((2, n_classes), f32),
            np.empty((2, n_classes), f32),
            np.empty(2, f32),
        )


@kernel()
def _compare(panel_NW, queries, q, candidates, n_places, n_gaps, first_place, work):  # type: ignore[no-untyped-def]
    """Write the places and counts of differences between query q and each of its candidates."""
    bits_QW, known_QW = queries
    haplotype_C, first = candidates.haplotype_C, candidates.first_Q1[q]
    differ_W, differences_CP, outside_C2 = work.differ_W, work.differences_CP, work.outside_C2
    between_C, n_scanned_2 = work.between_C, work.n_scanned_2
    scan_start, block_end = max(0, first_place - SCANNED_PLACES), min(first_place + n_gaps - 1, n_places)
    scan_stop = min(block_end + SCANNED_PLACES, n_places)
    n_scanned_2[0], n_scanned_2[1] = block_end - scan_start + 1, scan_stop - first_place + 1
    for c in range(candidates.first_Q1[q + 1] - first):
        haplotype = haplotype_C[first + c]
        for word in range(len(differ_W)):
            differ_W[word] = (panel_NW[haplotype, word] ^ bits_QW[q, word]) & known_QW[q, word]
        outside_C2[c, 0] = count_bits(differ_W, scan_start, first_place)
        outside_C2[c, 1] = count_bits(differ_W, block_end, scan_stop)
        between_C[c] = _find_differences(differ_W, n_places, first_place, n_gaps, differences_CP, c)


@kernel()
def _classes_of_query(  # type: ignore[no-untyped-def]
    q, information, candidates, wanted_QG, distances, work, classes, member_M, n_members
):
    """Write the classes of query q. Append their members to member_M and return its new length."""
    haplotype_C, posterior_CP, first_Q1 = candidates
    count_QGK, first_QGK, features_QGFK = classes.count_QGK, classes.first_QGK, classes.features_QGFK
    cumulative_S1, differences_CP, column_C, outside_C2 = (
        work.cumulative_S1,
        work.differences_CP,
        work.column_C,
        work.outside_C2,
    )
    key_C, score_C, rank_C, merged_C = work.key_C, work.score_C, work.rank_C, work.merged_C
    best_K, posterior_2K = work.best_K, work.posterior_2K
    information_S = information.query_QS[q]
    n_places, first_candidate = len(information_S), first_Q1[q]
    n_candidates = first_Q1[q + 1] - first_candidate
    n_gaps, n_classes = count_QGK.shape[1:]
    cumulative_S1[0] = 0
    for s in range(n_places):
        cumulative_S1[s + 1] = cumulative_S1[s] + information_S[s]
    for c in range(n_candidates):
        column_C[c], rank_C[c] = DEPTH, c
        key_C[c], score_C[c] = _class_key(differences_CP, c, DEPTH, cumulative_S1, information_S, n_places)
    is_sorted = False
    for g in range(n_gaps):
        if not wanted_QG[q, g]:
            continue
        gap_place = distances.first_place + g
        for c in range(n_candidates):
            if differences_CP[c, column_C[c]] < gap_place:
                while differences_CP[c, column_C[c]] < gap_place:
                    column_C[c] += 1
                key_C[c], score_C[c] = _class_key(
                    differences_CP, c, column_C[c], cumulative_S1, information_S, n_places
                )
                is_sorted = False
        if not is_sorted:
            _sort(rank_C, n_candidates, score_C, merged_C)
            is_sorted = True
        k, i = 0, 0
        while i < n_candidates and k < n_classes:
            first, key = i, key_C[rank_C[i]]
            first_QGK[q, g, k] = n_members
            left = right = np.float32(0)
            while i < n_candidates and key_C[rank_C[i]] == key:
                c = first_candidate + rank_C[i]
                member_M[n_members] = haplotype_C[c]
                n_members += 1
                left += posterior_CP[c, g]
                right += posterior_CP[c, g + 1]
                i += 1
            posterior_2K[0, k], posterior_2K[1, k] = left, right
            count_QGK[q, g, k] = i - first
            best_K[k] = _best_member(rank_C, first, i, outside_C2)
            k += 1
        _describe_differences(q, g, k, information, distances, work, classes)
        _describe_members(q, g, k, work, classes)
        for absent in range(k, n_classes):
            first_QGK[q, g, absent] = n_members
        for f in range(FEATURES):
            for absent in range(k, n_classes):
                features_QGFK[q, g, f, absent] = 0
    return n_members


@kernel()
def _find_ibs_classes(  # type: ignore[no-untyped-def]
    panel_NW, queries, information, candidates, wanted_QG, distances, work, classes
):
    """Fill the arrays of `IBSClasses`, and return its member_M."""
    n_queries, n_places = information.query_QS.shape
    n_gaps, first_Q1 = wanted_QG.shape[1], candidates.first_Q1
    member_M, n_members = classes.member_M, 0
    for q in range(n_queries):
        n_wanted = wanted_QG[q].sum()
        if n_wanted == 0:
            continue
        needed = n_members + n_wanted * (first_Q1[q + 1] - first_Q1[q])
        if needed > len(member_M):
            enlarged_M = np.empty(2 * needed, np.int32)
            enlarged_M[:n_members] = member_M[:n_members]
            member_M = enlarged_M
        _compare(panel_NW, queries, q, candidates, n_places, n_gaps, distances.first_place, work)
        n_members = _classes_of_query(
            q, information, candidates, wanted_QG, distances, work, classes, member_M, n_members
        )
    return member_M[:n_members].copy()


class Information(NamedTuple):
    """The information of both alleles at each place: -log(panel frequency); 0 where a call is missing."""

    query_QS: np.ndarray  # float32, information of the query's allele
    other_QS: np.ndarray  # float32, information of the other allele: -log(1 - exp(-information))

    @classmethod
    def of(cls, query_SQ: np.ndarray, frequency_S: np.ndarray, n_haplotypes: int) -> Information:
        """Return the information of the queries' alleles (0, 1 or MISSING).

        frequency_S is the panel's frequency of allele 1. An allele that the panel lacks is treated as if half
        a haplotype carried it.
        """
        min_frequency = 0.5 / n_haplotypes
        table_S3 = np.stack([1 - frequency_S, frequency_S, np.ones_like(frequency_S)], axis=1).clip(
            min_frequency, 1
        )
        information_S3 = -np.log(table_S3).astype(np.float32)
        with np.errstate(divide="ignore"):
            other_S3 = -np.log(-np.expm1(-information_S3))
        other_S3 = np.where(information_S3 > 0, other_S3, 0).astype(np.float32)
        column_SQ = query_SQ.astype(np.int64)
        return cls(*(np.take_along_axis(x, column_SQ, axis=1).T.copy() for x in (information_S3, other_S3)))


class GapDistances(NamedTuple):
    """The logs of the genetic lengths (cM) from each gap of a block to each place.

    Place -1 stands for the first place of the tile, place S for the last one.
    """

    first_place: int  # gap g lies to the left of place first_place + g
    log_left_GS1: np.ndarray  # float32, from the gap's left end leftwards to places -1 to S - 1
    log_right_GS1: np.ndarray  # float32, from the gap's right end rightwards to places 0 to S

    @classmethod
    def of(cls, typed_cM_S: np.ndarray, first_place: int, n_gaps: int) -> GapDistances:
        """Return the distances for n_gaps consecutive gaps; the first lies to the left of first_place."""
        n_places = len(typed_cM_S)
        edges = np.clip(first_place + np.arange(n_gaps)[:, None], 0, n_places)
        left_edge = typed_cM_S[np.maximum(edges - 1, 0)]
        right_edge = typed_cM_S[np.minimum(edges, n_places - 1)]
        left = left_edge - np.concatenate([typed_cM_S[:1], typed_cM_S])
        right = np.concatenate([typed_cM_S, typed_cM_S[-1:]]) - right_edge
        logs = (np.log(np.maximum(d, 0) + CM_OFFSET).astype(np.float32) for d in (left, right))
        return cls(first_place, *logs)


def find_ibs_classes(
    panel: PanelAlleles,
    queries: TypedAlleles,
    information: Information,
    candidates: BlockCandidates,
    distances: GapDistances,
    n_classes: int,
    wanted_QG: np.ndarray | None = None,
) -> IBSClasses:
    """Return at most n_classes classes of every query at the gaps of a block, by decreasing information.

    wanted_QG (bool) selects the gaps to compute for each query; by default all.
    """
    n_queries, n_places = information.query_QS.shape
    n_gaps = len(distances.log_left_GS1)
    max_candidates = int(np.diff(candidates.first_Q1).max(initial=1))
    classes = IBSClasses(
        np.empty((n_queries, n_gaps, FEATURES, n_classes), np.float32),  # not zeroed, because it is large
        np.zeros((n_queries, n_gaps, n_classes), np.float32),
        np.zeros((n_queries, n_gaps, n_classes), np.int32),
        np.empty(n_queries * n_gaps * n_classes, np.int32),
    )
    member_M = _find_ibs_classes(
        panel.bits_NW,
        (queries.bits_XW, queries.known_XW),
        information,
        candidates,
        np.ones((n_queries, n_gaps), bool) if wanted_QG is None else wanted_QG,
        distances,
        _Workspace.of(max_candidates, n_places, panel.bits_NW.shape[1], n_gaps, n_classes),
        classes,
    )
    return classes._replace(member_M=member_M)
