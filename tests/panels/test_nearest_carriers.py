"""Haplotypes that match carriers longest are those of the definition."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from spinimpute.panels.merging import nearest_carriers
from spinimpute.panels.merging.nearest_carriers import match_carriers_longer


def match_lengths(alleles_TN: np.ndarray, query: int, place: int, others: np.ndarray, flank: int) -> int:
    """The sum of the longest match before `place` and the longest match from `place` on."""
    total = 0
    for rows in (alleles_TN[:place][::-1], alleles_TN[place:]):
        lengths = [0]
        for other in others:
            differs = np.flatnonzero(rows[:, query] != rows[:, other])
            lengths.append(min(int(differs[0]) if len(differs) else len(rows), flank))
        total += max(lengths)
    return total


@settings(max_examples=40, deadline=None)
@given(data=st.data(), below_mutation=st.booleans())
def test_as_defined(data: st.DataObject, below_mutation: bool) -> None:
    random = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    n_first, n_second, n_sites, n_lacking = random.integers(2, 12, 4)
    n_sites = 3 * (n_sites - 2)  # panels may share no site
    width = -(-n_first // 8), -(-n_second // 8)
    founders = random.integers(0, 2, (n_sites, 4))
    alleles_TN = founders[:, random.integers(0, 4, n_first + n_second)] ^ (
        random.random((n_sites, n_first + n_second)) < 0.05
    )
    alleles_TN = alleles_TN.astype(np.uint8)
    place_U = np.sort(random.integers(0, n_sites + 1, n_lacking))
    second_has_U = random.random(n_lacking) < 0.5
    carries_UN = (random.random((n_lacking, n_first + n_second)) < 0.4).astype(np.uint8)
    is_second_N = np.arange(n_first + n_second) >= n_first
    carries_UN[second_has_U[:, None] != is_second_N] = 0

    def bits(rows: np.ndarray) -> np.ndarray:
        return np.hstack([np.packbits(rows[:, :n_first], axis=1), np.packbits(rows[:, n_first:], axis=1)])

    bit_N = np.concatenate([np.arange(n_first), 8 * width[0] + np.arange(n_second)]).astype(np.int32)
    found = match_carriers_longer(
        bits(alleles_TN), bit_N, 8 * width[0], place_U, bits(carries_UN), second_has_U, below_mutation
    )
    flank = nearest_carriers.FLANK
    for u in range(n_lacking):
        carriers = np.flatnonzero(carries_UN[u])
        others = np.flatnonzero((carries_UN[u] == 0) & (is_second_N == second_has_U[u]))
        for query in range(n_first + n_second):
            if is_second_N[query] == second_has_U[u]:
                assert not found[u, bit_N[query]]
                continue
            with_carriers = match_lengths(alleles_TN, query, place_U[u], carriers, flank)
            with_others = match_lengths(alleles_TN, query, place_U[u], others, flank)
            more = (1 + 1 / len(carriers) if len(carriers) else 1) if below_mutation else 1
            assert found[u, bit_N[query]] == (with_carriers > more * with_others + 1e-9)


def test_long_matches_count_up_to_the_flank() -> None:
    """Sites further away make no difference, so windows may be cut anywhere."""
    n_sites, place = 2 * nearest_carriers.FLANK + 200, nearest_carriers.FLANK + 100
    alleles_TN = np.zeros((n_sites, 4), np.uint8)  # query, carrier, other
    alleles_TN[:50, 2] = 1  # differs from the query beyond the flank
    packed = np.hstack([np.packbits(alleles_TN[:, :1], axis=1), np.packbits(alleles_TN[:, 1:3], axis=1)])
    bits = np.array([0, 8, 9], np.int32)
    carriers = np.array([[0, 0b1000_0000]], np.uint8)
    args = (bits, 8, np.array([place]), carriers, np.array([True]))
    assert not match_carriers_longer(packed, *args)[0, 0]
    alleles_TN[150, 2] = 1
    packed = np.hstack([np.packbits(alleles_TN[:, :1], axis=1), np.packbits(alleles_TN[:, 1:3], axis=1)])
    assert match_carriers_longer(packed, *args)[0, 0]
