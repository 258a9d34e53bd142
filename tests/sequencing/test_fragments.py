"""Bases counted once for each fragment, compared with a plain loop."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spinimpute.genotypes.intervals import Interval
from spinimpute.sequencing.fragments import FragmentBases, ReadBases, fragment_bases, phred_of_bases

Base = tuple[int, int, int, int]  # hash of the name, site, allele, quality
bases = st.lists(
    st.tuples(
        st.sampled_from([3, 2**63, 5, 2**64 - 1, 8]),
        st.integers(0, 4),
        st.integers(0, 2),
        st.integers(10, 60),
    ),
    max_size=40,
)


def arrays(rows: list[Base]) -> ReadBases:
    columns = list(zip(*rows, strict=True)) or [(), (), (), ()]
    kinds = (np.uint64, np.int64, np.uint8, np.uint8)
    return ReadBases(*(np.array(column, kind) for column, kind in zip(columns, kinds, strict=True)))


def counted_in_a_loop(rows: list[Base], max_depth: int) -> dict[int, dict[int, tuple[int, int]]]:
    """Site -> hash -> allele and quality."""
    counted: dict[int, dict[int, tuple[int, int]]] = {}
    for site in {row[1] for row in rows}:
        of_site = {}
        for name in {row[0] for row in rows if row[1] == site}:
            shown = [(allele, quality) for n, x, allele, quality in rows if (n, x) == (name, site)]
            alleles = {allele for allele, _ in shown}
            if len(alleles) == 1 and alleles <= {0, 1}:
                of_site[name] = (alleles.pop(), max(quality for _, quality in shown))
        counted[site] = {name: of_site[name] for name in sorted(of_site)[:max_depth]}
    return counted


@settings(deadline=None)
@given(bases, st.integers(1, 4), st.randoms())
def test_fragments_equal_a_plain_loop(rows: list[Base], max_depth: int, random: object) -> None:
    counted = counted_in_a_loop(rows, max_depth)
    skipped: Counter[str] = Counter()
    found = fragment_bases(arrays(rows), max_depth, skipped)
    n_groups = len({row[:2] for row in rows})
    assert n_groups - len(found.fragment) == sum(skipped.values())
    names = sorted({name for of_site in counted.values() for name in of_site})
    expected = [
        (names.index(name), site, *counted[site][name])
        for site in sorted(counted)
        for name in sorted(counted[site])
    ]
    columns = (found.fragment, found.panel_index, found.allele, found.quality)
    assert list(zip(*(column.tolist() for column in columns), strict=True)) == expected
    random.shuffle(rows)
    again = fragment_bases(arrays(rows), max_depth, Counter())
    np.testing.assert_array_equal(again.fragment, found.fragment)
    np.testing.assert_array_equal(again.quality, found.quality)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9)), max_size=25, unique=True), st.data())
def test_linked_bases_are_of_fragments_with_several_sites(rows: list[tuple[int, int]], data: object) -> None:
    """Bases beyond the sites do not matter."""
    rows = sorted(rows, key=lambda row: row[::-1])
    fragment, site = (np.array([row[i] for row in rows], np.int32) for i in range(2))
    quality = np.arange(len(rows), dtype=np.uint8)
    bases = FragmentBases(fragment, site, quality % 2, quality)
    first, stop = sorted((data.draw(st.integers(0, 10)), data.draw(st.integers(0, 10))))
    inside = [(f, s) for f, s in rows if first <= s < stop]
    linked = bases.linked(Interval(first, stop))
    expected = [(f, s, rows.index((f, s))) for f, s in inside if sum(g == f for g, _ in inside) > 1]
    columns = (linked.fragment, linked.panel_index, linked.quality)
    assert list(zip(*(column.tolist() for column in columns), strict=True)) == expected
    assert bases.n_at(Interval(first, stop)) == len(inside)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 1), st.integers(4, 93)), max_size=30))
def test_likelihoods_are_products_over_bases(rows: list[tuple[int, int, int]]) -> None:
    panel_index = np.array([10, 20, 30, 40])
    site, allele, quality = (np.array([row[i] for row in rows], np.int64) for i in range(3))
    found = FragmentBases(
        np.arange(len(rows)), panel_index[site], allele.astype(np.uint8), quality.astype(np.uint8)
    )
    phred_S3, depth_S = phred_of_bases(found, panel_index)
    for x in range(4):
        likelihood = np.ones(3)
        for _, a, q in (row for row in rows if row[0] == x):
            e = 10 ** (-q / 10)
            likelihood *= (1 - e, 0.5, e) if a == 0 else (e, 0.5, 1 - e)
        np.testing.assert_allclose(phred_S3[x], -10 * np.log10(likelihood), atol=1e-4)
        assert depth_S[x] == sum(row[0] == x for row in rows)


def test_a_base_of_low_quality_has_no_information() -> None:
    base = FragmentBases(np.zeros(1, int), np.zeros(1, int), np.zeros(1, np.uint8), np.ones(1, np.uint8))
    phred_S3, _ = phred_of_bases(base, np.zeros(1, int))
    assert phred_S3[0].tolist() == pytest.approx([3.01] * 3, abs=0.01)
