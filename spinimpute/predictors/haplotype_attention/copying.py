"""The copying of alleles in haplotype attention: `network.copy_alleles`, compiled for the CPU.

`network.copy_alleles` needs an array of classes x sites. This module avoids the array. Within a gap a panel
has few distinct haplotypes, its *patterns*. The attention weights of the members of all classes are summed by
pattern. Then only the minor alleles of patterns with a positive weight are visited.

Axes: N panel haplotypes, Q queries, G gaps, B blocks, K classes, U sites of a block, D patterns of a gap,
M members of classes, V value, W 64-bit words, T slots of a hash table, I patterns of a query's class members
in a gap ("slots"), E ends of a gap, L lanes, X panel rows, entries (query, site) with a minor allele, or rows
of lanes, Y all lanes of these rows. A trailing 1 means one more than the axis.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from spinimpute.genotypes.bit_rows import trailing_zeros
from spinimpute.hmm.lanes import all_lanes, load, store
from spinimpute.hmm.parameters import LANES
from spinimpute.panels.stored_rows import StoredRows
from spinimpute.predictors.haplotype_attention.ibs_classes import IBSClasses
from spinimpute.predictors.haplotype_attention.pair_network import WeighedClasses
from spinimpute.predictors.haplotype_attention.settings import CONTRAST, COPIED_FEATURES, EPSILON
from spinimpute.runtime.kernels import kernel

BLOCK_GAPS = 16
MIN_TRUSTED_COPIES = 3  # an allele with fewer panel copies may be on the wrong haplotype of its sample
MAX_UINT16_PATTERNS = 2**16  # number of patterns that uint16 can index
INITIAL_SLOTS = 1_024  # initial number of slots of the hash table
BYTES_PER_HASHING = 512  # bytes (8 haplotypes each) that are hashed at a time: their hashes fit the L1 cache


class GapPatterns(NamedTuple):
    """The patterns of every gap of a tile, stored as bits of minor alleles."""

    # (B, N, BLOCK_GAPS), pattern of each haplotype; uint16, or int32 for more than MAX_UINT16_PATTERNS
    pattern_BNG: np.ndarray
    count_G: np.ndarray  # int32, number of patterns
    first_word_G: np.ndarray  # int64, index of a gap's first word in minor_W
    # uint64, gap by gap and pattern by pattern. Each pattern has a bit for each site of its gap, padded to
    # whole words. Bit u is set if the pattern has the minor allele of the gap's site u.
    minor_W: np.ndarray
    # uint16 (B, N): bit g is set if the haplotype has, in gap g of the block, an allele with fewer than
    # MIN_TRUSTED_COPIES copies
    rare_BN: np.ndarray


class GapSites(NamedTuple):
    """Sites of the gaps of a block. Site indices are relative to the block's first site."""

    first_gap: int  # index in the tile of the block's first gap
    start_G1: np.ndarray  # int64, first site of each gap; the last entry is the number of sites
    fraction_U: np.ndarray  # float32, position in the gap: 0 at the left typed site, 1 at the right one
    flip_U: np.ndarray  # bool, whether ALT is the major allele


class CarriedEntries(NamedTuple):
    """Entries (site, query) at which a class member or its sibling haplotype has the minor allele."""

    site_X: np.ndarray  # int32, index in the block
    query_X: np.ndarray  # int32
    pooled_XF: np.ndarray  # float32, the fields of `network.Copied` side by side


@kernel()
def scramble(x):  # type: ignore[no-untyped-def]
    """Return a 64-bit hash of x (splitmix64)."""
    x = (x + np.uint64(0x9E3779B97F4A7C15)) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@kernel()
def _listed_haplotype(stored, at, number_bytes):  # type: ignore[no-untyped-def]
    """Return the haplotype index, stored in 2 or 4 bytes, at a position of the stored bytes."""
    number = np.int64(stored[at]) | np.int64(stored[at + 1]) << 8
    if number_bytes == 4:
        number |= np.int64(stored[at + 2]) << 16 | np.int64(stored[at + 3]) << 24
    return number


@kernel()
def _hash_byte(bits, number, hash_N, first):  # type: ignore[no-untyped-def]
    """Add `number` to the hashes of the haplotypes `first` + i for which bit i is set.

    Bit 0 is the highest bit.
    """
    hash_8 = hash_N[first : first + 8]
    for bit in range(len(hash_8)):
        hash_8[bit] += number & (np.uint64(0) - np.uint64((bits >> (7 - bit)) & 1))


@kernel()
def hash_rows(rows, first_row, stop_row, salt_X, hash_N):  # type: ignore[no-untyped-def]
    """Add the rows [first_row, stop_row) of `rows` (`StoredRows`) to the hashes of haplotypes.

    Each row has a number, the hash of its salt. This number is added to the hash of each haplotype that has
    the row's minor allele. Haplotypes with equal alleles get equal hashes. salt_X (int64) starts with the
    salt of first_row.
    """
    stored, start_X1, listed_X, ref_is_minor_X, number_bytes = rows
    n = len(hash_N)
    n_bytes = (n + 7) >> 3
    for x in range(first_row, stop_row):
        if listed_X[x]:
            number = scramble(np.uint64(salt_X[x - first_row]))
            for entry in range((start_X1[x + 1] - start_X1[x]) // number_bytes):
                haplotype = _listed_haplotype(stored, start_X1[x] + entry * number_bytes, number_bytes)
                if haplotype < n:
                    hash_N[haplotype] += number
    for first in range(0, n_bytes, BYTES_PER_HASHING):
        for x in range(first_row, stop_row):
            if listed_X[x]:
                continue
            number = scramble(np.uint64(salt_X[x - first_row]))
            flip = np.uint8(255 if ref_is_minor_X[x] else 0)
            for byte in range(first, min(first + BYTES_PER_HASHING, n_bytes)):
                bits = stored[start_X1[x] + byte] ^ flip
                if bits:
                    _hash_byte(bits, number, hash_N, 8 * byte)


@kernel()
def _number_patterns(hash_N, table_T, owner_T, pattern_N, representative_N):  # type: ignore[no-untyped-def]
    """Number the distinct hashes in order of appearance, and return their count.

    pattern_N gets the number of each haplotype's hash, representative_N the first haplotype of each number.
    The number of slots of the hash table is a power of two, and at least twice the number of hashes. At first
    only INITIAL_SLOTS are used, so that they stay in the CPU's cache. Twice as many are used when half of
    them are full.
    """
    size = min(INITIAL_SLOTS, len(table_T))
    mask = np.uint64(size - 1)
    owner_T[:size] = -1
    n_patterns = 0
    for n in range(len(hash_N)):
        slot = _find_slot(hash_N[n], table_T, owner_T, mask)
        if owner_T[slot] < 0:
            table_T[slot], owner_T[slot] = hash_N[n], n_patterns
            representative_N[n_patterns] = n
            n_patterns += 1
        pattern_N[n] = owner_T[slot]
        if 2 * n_patterns > size:
            size *= 2
            mask = np.uint64(size - 1)
            owner_T[:size] = -1
            for d in range(n_patterns):
                number = hash_N[representative_N[d]]
                slot = _find_slot(number, table_T, owner_T, mask)
                table_T[slot], owner_T[slot] = number, d
    return n_patterns


@kernel()
def _find_slot(number, table_T, owner_T, mask):  # type: ignore[no-untyped-def]
    """Return the slot of a hash in the table, or a free slot if the table lacks the hash."""
    slot = scramble(number) & mask
    while owner_T[slot] >= 0 and table_T[slot] != number:
        slot = (slot + np.uint64(1)) & mask
    return slot


@kernel()
def _mark_listed(rows, x, rare, new_index_N, pattern_N, minor_W, word, width, bit, rare_N, rare_bit):  # type: ignore[no-untyped-def]
    """Set the bits of a row that is a list of haplotypes, see `_mark_minor_alleles`."""
    stored, number_bytes, first = rows.stored, rows.number_bytes, rows.start_X1[x]
    for entry in range((rows.start_X1[x + 1] - first) // number_bytes):
        haplotype = _listed_haplotype(stored, first + entry * number_bytes, number_bytes)
        if haplotype < len(pattern_N):
            minor_W[word + pattern_N[haplotype] * width] |= bit
            if rare:
                rare_N[new_index_N[haplotype]] |= rare_bit


@kernel()
def _mark_packed(rows, x, rare, new_index_N, representative_D, minor_W, word, width, bit, rare_N, rare_bit):  # type: ignore[no-untyped-def]
    """Set the bits of a row that is packed bits, see `_mark_minor_alleles`."""
    stored, first, ref_is_minor = rows.stored, rows.start_X1[x], rows.ref_is_minor_X[x]
    if rare:  # only small panels store rare alleles as bits, not as lists
        for haplotype in range(len(new_index_N)):
            is_alt = (stored[first + (haplotype >> 3)] >> (7 - (haplotype & 7))) & 1
            if is_alt != ref_is_minor:
                rare_N[new_index_N[haplotype]] |= rare_bit
    for d in range(len(representative_D)):
        haplotype = representative_D[d]
        is_alt = (stored[first + (haplotype >> 3)] >> (7 - (haplotype & 7))) & 1
        if is_alt != ref_is_minor:
            minor_W[word + d * width] |= bit


@kernel()
def _mark_minor_alleles(  # type: ignore[no-untyped-def]
    rows, first_row, stop_row, copies_X, new_index_N, pattern_N, representative_D, minor_W, first_word,
    rare_N, rare_bit,
):  # fmt: skip
    """Set the bits of the minor alleles of a gap, which has the rows [first_row, stop_row).

    The bits of the gap's patterns start at minor_W[first_word]. rare_bit is set in rare_N for haplotypes with
    an allele that has fewer than MIN_TRUSTED_COPIES copies.
    """
    width = (stop_row - first_row + 63) >> 6
    for x in range(first_row, stop_row):
        u = x - first_row
        word, bit = first_word + (u >> 6), np.uint64(1) << np.uint64(u & 63)
        rare = copies_X[x] < MIN_TRUSTED_COPIES
        if rows.listed_X[x]:
            _mark_listed(rows, x, rare, new_index_N, pattern_N, minor_W, word, width, bit, rare_N, rare_bit)
        else:
            _mark_packed(
                rows, x, rare, new_index_N, representative_D, minor_W, word, width, bit, rare_N, rare_bit
            )


@kernel()
def _gap_patterns(  # type: ignore[no-untyped-def]
    rows, gap_start_G1, order_N, copies_X, pattern_BNG, count_G, first_word_G, rare_BN
):
    """Fill the arrays of `GapPatterns`; return minor_W."""
    n = len(order_N)
    new_index_N = np.empty(n, np.int32)
    for i in range(n):
        new_index_N[order_N[i]] = i
    size = 1
    while size < 2 * n:
        size *= 2
    table_T, owner_T = np.empty(size, np.uint64), np.empty(size, np.int32)
    representative_N = np.empty(n, np.int32)
    hash_N = np.empty(n, np.uint64)
    pattern_TN = np.empty((BLOCK_GAPS, n), np.int32)
    minor_W = np.zeros(1024, np.uint64)
    salt_X = np.arange(len(rows.listed_X))
    n_words = 0
    for g in range(len(count_G)):
        first, last = gap_start_G1[g], gap_start_G1[g + 1]
        hash_N[:] = 0
        hash_rows(rows, first, last, salt_X, hash_N)
        pattern_N = pattern_TN[g % BLOCK_GAPS]
        n_patterns = _number_patterns(hash_N, table_T, owner_T, pattern_N, representative_N)
        if g % BLOCK_GAPS == BLOCK_GAPS - 1 or g == len(count_G) - 1:
            pattern_NG = pattern_BNG[g // BLOCK_GAPS]
            for haplotype in range(n):
                for t in range(g % BLOCK_GAPS + 1):
                    pattern_NG[new_index_N[haplotype], t] = pattern_TN[t, haplotype]
        width = (last - first + 63) >> 6
        count_G[g], first_word_G[g] = n_patterns, n_words
        if n_words + n_patterns * width > len(minor_W):
            enlarged = np.zeros(n_words + n_words // 2 + n_patterns * width, np.uint64)
            enlarged[:n_words] = minor_W[:n_words]
            minor_W = enlarged
        _mark_minor_alleles(
            rows,
            first,
            last,
            copies_X,
            new_index_N,
            pattern_N,
            representative_N[:n_patterns],
            minor_W,
            n_words,
            rare_BN[g // BLOCK_GAPS],
            np.uint16(1 << (g % BLOCK_GAPS)),
        )
        n_words += n_patterns * width
    return minor_W[:n_words].copy()


def gap_patterns(
    rows: StoredRows, gap_start_G1: np.ndarray, order_N: np.ndarray, copies_X: np.ndarray
) -> GapPatterns:
    """Return the patterns of the panel in all gaps.

    Gap g has the rows [gap_start_G1[g], gap_start_G1[g + 1]). order_N are the panel's haplotypes in the order
    of the result, int64. copies_X is the number of haplotypes with the minor allele of each row, int64.
    """
    n_gaps = len(gap_start_G1) - 1
    count_G, first_word_G = np.empty(n_gaps, dtype=np.int32), np.empty(n_gaps, dtype=np.int64)
    shape = -(-n_gaps // BLOCK_GAPS), len(order_N), BLOCK_GAPS
    pattern_BNG = np.empty(shape, dtype=np.uint16)  # the largest array of a tile
    rare_BN = np.zeros(shape[:2], dtype=np.uint16)
    arguments = rows, gap_start_G1, order_N, copies_X
    minor_W = _gap_patterns(*arguments, pattern_BNG, count_G, first_word_G, rare_BN)
    if count_G.max(initial=0) > MAX_UINT16_PATTERNS:
        pattern_BNG = np.empty(shape, dtype=np.int32)
        minor_W = _gap_patterns(*arguments, pattern_BNG, count_G, first_word_G, rare_BN)
    return GapPatterns(pattern_BNG, count_G, first_word_G, minor_W, rare_BN)


@kernel(fast=True)
def _copy_block(weights, classes, sibling_N, patterns, sites, entries):  # type: ignore[no-untyped-def]
    """Fill the arrays of `CarriedEntries`; return the number of entries."""
    weight_QGEK, logit_QGK, value_QGVK = weights.weight_QGEK, weights.logit_QGK, weights.value_QGVK
    count_QGK, first_QGK, member_M = classes.count_QGK, classes.first_QGK, classes.member_M
    first_gap, gap_start_G1, fraction_U = sites.first_gap, sites.start_G1, sites.fraction_U
    pattern_NG = patterns.pattern_BNG[first_gap // BLOCK_GAPS]
    count_G, first_word_G, minor_W = patterns.count_G, patterns.first_word_G, patterns.minor_W
    site_X, query_X, pooled_XF = entries
    n_queries, n_gaps, n_value, n_classes = value_QGVK.shape
    width = 1 + n_value
    max_patterns, max_sites = 1, 1
    for g in range(n_gaps):
        max_patterns = max(max_patterns, count_G[first_gap + g])
        max_sites = max(max_sites, gap_start_G1[g + 1] - gap_start_G1[g])
    # A slot is the index I of a pattern that a member of the query's classes has in this gap (or, in the
    # arrays `sibling_...`, that a member's sibling has). slot_D: slot of each pattern, -1 if there is none.
    # times_I: members of the current class with the pattern. class_slots_I: slots that this class uses.
    # rank_I: slots by decreasing logit. best_I: largest logit of a class. count_I: members of all classes.
    slot_D, sibling_slot_D = np.full(max_patterns, -1, np.int32), np.full(max_patterns, -1, np.int32)
    pattern_I, sibling_pattern_I = np.empty(max_patterns, np.int32), np.empty(max_patterns, np.int32)
    rank_I = np.empty(max_patterns, np.int32)
    times_I, sibling_times_I = np.zeros(max_patterns, np.int32), np.zeros(max_patterns, np.int32)
    class_slots_I, class_sibling_slots_I = np.empty(max_patterns, np.int32), np.empty(max_patterns, np.int32)
    # Arrays ..._XL hold n_rows rows of lanes per item: sums for the left end of the gap (the weight, then V
    # weighted values), then sums for the right end.
    n_rows = -(-2 * width // LANES)
    class_XL, all_XL = np.zeros((n_rows, LANES), np.float32), np.empty((n_rows, LANES), np.float32)
    pattern_XL = np.empty((max_patterns * n_rows, LANES), np.float32)
    site_XL = np.empty((max_sites * n_rows, LANES), np.float32)
    class_Y, all_Y, site_Y = class_XL.ravel(), all_XL.ravel(), site_XL.ravel()
    sibling_IE = np.empty((max_patterns, 2), np.float32)
    best_I, count_I = np.empty(max_patterns, np.float32), np.empty(max_patterns, np.float32)
    sibling_UE = np.empty((max_sites, 2), np.float32)
    best_carrier_U, best_non_carrier_U = np.empty(max_sites, np.float32), np.empty(max_sites, np.float32)
    count_U = np.empty(max_sites, np.float32)
    undecided_W = np.empty((max_sites + 63) >> 6, np.uint64)
    n_found = 0
    for q in range(n_queries):
        for g in range(n_gaps):
            n_sites = gap_start_G1[g + 1] - gap_start_G1[g]
            if n_sites == 0 or count_QGK[q, g, 0] == 0:
                continue
            gap, first_word = (first_gap + g) % BLOCK_GAPS, first_word_G[first_gap + g]
            n_words = (n_sites + 63) >> 6
            n_slots = n_sibling_slots = 0
            all_XL[:] = 0
            for k in range(n_classes):
                count = int(count_QGK[q, g, k])
                if count == 0:
                    break
                share = np.float32(1.0) / np.float32(count)
                left, right = weight_QGEK[q, g, 0, k] * share, weight_QGEK[q, g, 1, k] * share
                class_Y[0], class_Y[width] = left, right
                for v in range(n_value):
                    class_Y[1 + v] = left * value_QGVK[q, g, v, k]
                    class_Y[width + 1 + v] = right * value_QGVK[q, g, v, k]
                for x in range(n_rows):
                    store(all_XL, x, load(all_XL, x) + load(class_XL, x) * np.float32(count))
                logit = logit_QGK[q, g, k]
                first = first_QGK[q, g, k]
                # Many members share a pattern: count the members of each pattern, then add multiples.
                n_class_slots = n_class_sibling_slots = 0
                for m in range(first, first + count):
                    haplotype = member_M[m]
                    pattern = pattern_NG[haplotype, gap]
                    slot = slot_D[pattern]
                    if slot < 0:
                        slot = n_slots
                        n_slots += 1
                        slot_D[pattern] = slot
                        pattern_I[slot] = pattern
                        best_I[slot], count_I[slot], times_I[slot] = logit, 0, 0
                        for x in range(n_rows):
                            store(pattern_XL, slot * n_rows + x, all_lanes(np.float32(0)))
                    if times_I[slot] == 0:
                        class_slots_I[n_class_slots] = slot
                        n_class_slots += 1
                    times_I[slot] += 1
                    pattern = pattern_NG[sibling_N[haplotype], gap]
                    slot = sibling_slot_D[pattern]
                    if slot < 0:
                        slot = n_sibling_slots
                        n_sibling_slots += 1
                        sibling_slot_D[pattern] = slot
                        sibling_pattern_I[slot] = pattern
                        sibling_times_I[slot] = 0
                        sibling_IE[slot] = 0
                    if sibling_times_I[slot] == 0:
                        class_sibling_slots_I[n_class_sibling_slots] = slot
                        n_class_sibling_slots += 1
                    sibling_times_I[slot] += 1
                for i in range(n_class_slots):
                    slot = class_slots_I[i]
                    times = np.float32(times_I[slot])
                    times_I[slot] = 0
                    best_I[slot] = max(best_I[slot], logit)
                    count_I[slot] += times
                    for x in range(n_rows):
                        row = slot * n_rows + x
                        store(pattern_XL, row, load(pattern_XL, row) + load(class_XL, x) * times)
                for i in range(n_class_sibling_slots):
                    slot = class_sibling_slots_I[i]
                    times = np.float32(sibling_times_I[slot])
                    sibling_times_I[slot] = 0
                    sibling_IE[slot, 0] += times * left
                    sibling_IE[slot, 1] += times * right
            site_XL[: n_sites * n_rows] = 0
            sibling_UE[:n_sites] = 0
            count_U[:n_sites] = 0
            best_carrier_U[:n_sites] = -np.inf
            best_non_carrier_U[:n_sites] = -np.inf
            for word in range(n_words):
                undecided_W[word] = ~np.uint64(0)
            for i in range(n_slots):  # sort patterns by decreasing best logit
                j = i
                while j > 0 and best_I[rank_I[j - 1]] < best_I[i]:
                    rank_I[j] = rank_I[j - 1]
                    j -= 1
                rank_I[j] = i
            for i in range(n_slots):
                slot = rank_I[i]
                slot_D[pattern_I[slot]] = -1
                pattern_word = first_word + n_words * pattern_I[slot]
                best = best_I[slot]
                for word in range(n_words):
                    minor = minor_W[pattern_word + word]
                    # Patterns come in order of decreasing logit. At undecided sites, all patterns so far had
                    # the minor allele. The first pattern without it has the best non-carrier.
                    decided = undecided_W[word] & ~minor
                    undecided_W[word] &= minor
                    while decided:
                        u = (word << 6) + trailing_zeros(decided)
                        decided &= decided - np.uint64(1)
                        if u < n_sites:
                            best_non_carrier_U[u] = best
                    while minor:
                        u = (word << 6) + trailing_zeros(minor)
                        minor &= minor - np.uint64(1)
                        best_carrier_U[u] = max(best_carrier_U[u], best)
                        count_U[u] += count_I[slot]
                        for x in range(n_rows):
                            row = u * n_rows + x
                            store(site_XL, row, load(site_XL, row) + load(pattern_XL, slot * n_rows + x))
            for slot in range(n_sibling_slots):
                sibling_slot_D[sibling_pattern_I[slot]] = -1
                pattern_word = first_word + n_words * sibling_pattern_I[slot]
                for word in range(n_words):
                    minor = minor_W[pattern_word + word]
                    while minor:
                        u = (word << 6) + trailing_zeros(minor)
                        minor &= minor - np.uint64(1)
                        sibling_UE[u, 0] += sibling_IE[slot, 0]
                        sibling_UE[u, 1] += sibling_IE[slot, 1]
            for u in range(n_sites):
                site = gap_start_G1[g] + u
                right_share = fraction_U[site]
                left_share = np.float32(1.0) - right_share
                left = u * n_rows * LANES
                right = left + width
                p = left_share * site_Y[left] + right_share * site_Y[right]
                sibling_p = left_share * sibling_UE[u, 0] + right_share * sibling_UE[u, 1]
                if p <= 0 and sibling_p <= 0:
                    continue
                site_X[n_found], query_X[n_found] = site, q
                pooled_XF[n_found, 0], pooled_XF[n_found, 1], pooled_XF[n_found, 2] = (
                    p,
                    site_Y[left],
                    site_Y[right],
                )
                pooled_XF[n_found, 3] = sibling_p
                contrast = min(
                    max(best_carrier_U[u] - best_non_carrier_U[u], -np.float32(CONTRAST)),
                    np.float32(CONTRAST),
                )
                pooled_XF[n_found, 4], pooled_XF[n_found, 5] = contrast, count_U[u]
                carrier_scale = np.float32(1.0) / (p + np.float32(EPSILON))
                other_scale = np.float32(1.0) / (np.float32(1.0) - p + np.float32(EPSILON))
                for v in range(1, width):
                    carried = left_share * site_Y[left + v] + right_share * site_Y[right + v]
                    total = left_share * all_Y[v] + right_share * all_Y[width + v]
                    f = COPIED_FEATURES + v - 1
                    pooled_XF[n_found, f] = carried * carrier_scale
                    pooled_XF[n_found, f + n_value] = (total - carried) * other_scale
                n_found += 1
    return n_found


def copy_block(
    weights: WeighedClasses,
    classes: IBSClasses,
    sibling_N: np.ndarray,
    patterns: GapPatterns,
    sites: GapSites,
) -> CarriedEntries:
    """Return the entries of a block with a minor allele, with the features that the decoder needs.

    `weights` is the attention of each query over its classes. sibling_N and the members of the classes use
    the haplotype order of `patterns`.
    """
    n_queries, _, n_value, _ = weights.value_QGVK.shape
    max_entries = n_queries * len(sites.fraction_U)
    entries = CarriedEntries(
        np.empty(max_entries, np.int32),
        np.empty(max_entries, np.int32),
        np.empty((max_entries, COPIED_FEATURES + 2 * n_value), np.float32),
    )
    n = _copy_block(weights, classes, sibling_N, patterns, sites, entries)
    return CarriedEntries(*(array[:n] for array in entries))
