"""Stored likelihoods, two combined inputs of the same samples, and bases of fragments."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spinimpute.genotypes.intervals import Interval
from spinimpute.runtime.errors import InputError
from spinimpute.sequencing.fragments import FragmentBases, phred_of_bases
from spinimpute.sequencing.likelihoods import (
    GenotypeLikelihoods,
    merge_likelihoods,
    stored_depth,
    stored_phred,
)


@st.composite
def likelihoods(draw: st.DrawFn, samples: list[str]) -> GenotypeLikelihoods:
    """Likelihoods at some of ten sites."""
    index = sorted(draw(st.sets(st.integers(0, 9), min_size=1)))
    n = len(samples)
    ploidy = np.array(draw(st.lists(st.integers(1, 2), min_size=n, max_size=n)), np.uint8)
    numbers = draw(st.lists(st.integers(0, 300), min_size=3 * n * len(index), max_size=3 * n * len(index)))
    depth = draw(st.none() | st.just(np.arange(len(index) * n, dtype=np.uint16).reshape(-1, n)))
    return GenotypeLikelihoods(
        samples,
        ploidy,
        np.array(index, np.int64),
        stored_phred(np.array(numbers, np.int16).reshape(-1, n, 3), ploidy == 1),
        depth,
        len(index),
        {"a": 1},
    )


def sum_of_two(first: list[int], second: list[int], haploid: bool) -> list[int]:
    total = [a + b for a, b in zip(first, second, strict=True)]
    possible = [total[0], total[2]] if haploid else total
    kept = [min(value - min(possible), 255) for value in total]
    return [kept[0], 255, kept[2]] if haploid else kept


@settings(deadline=None)
@given(likelihoods(["a", "b"]), likelihoods(["b", "a"]))
def test_joined_equals_plain_sums(first: GenotypeLikelihoods, second: GenotypeLikelihoods) -> None:
    joined = merge_likelihoods(first, second)
    assert joined.samples == ["a", "b"]
    assert joined.panel_index.tolist() == sorted({*first.panel_index.tolist(), *second.panel_index.tolist()})
    assert joined.n_sites_file == first.n_sites_file + second.n_sites_file
    assert joined.skipped == {"a": 2}
    assert joined.phred_SX3.dtype == joined.ploidy.dtype == np.uint8
    inputs = ((first, {"a": 0, "b": 1}), (second, {"a": 1, "b": 0}))
    for s, name in enumerate("ab"):
        haploid = any(one.ploidy[place[name]] == 1 for one, place in inputs)
        assert joined.ploidy[s] == (1 if haploid else 2)
        for x, site in enumerate(joined.panel_index.tolist()):
            rows, depth = [[0, 0, 0], [0, 0, 0]], 0
            for number, (one, place) in enumerate(inputs):
                for at in np.flatnonzero(one.panel_index == site).tolist():
                    rows[number] = one.phred_SX3[at, place[name]].tolist()
                    depth += 0 if one.depth_SX is None else int(one.depth_SX[at, place[name]])
            assert joined.phred_SX3[x, s].tolist() == sum_of_two(*rows, haploid)
            assert joined.depth_SX is None or joined.depth_SX[x, s] == depth
    assert (joined.depth_SX is None) == (first.depth_SX is None and second.depth_SX is None)


def one(samples: list[str], phred: list[int]) -> GenotypeLikelihoods:
    rows = np.array([[phred] * len(samples)], np.uint8)
    return GenotypeLikelihoods(samples, np.full(len(samples), 2, np.uint8), np.array([3]), rows, None, 1)


def test_a_call_and_reads_together() -> None:
    """A certain call, and reads with weak evidence against it."""
    joined = merge_likelihoods(one(["a"], [0, 255, 255]), one(["a"], [40, 0, 60]))
    assert joined.phred_SX3.tolist() == [[[0, 215, 255]]]


@pytest.mark.parametrize("reads_first", [True, False])
def test_bases_stay_with_their_sample(reads_first: bool) -> None:
    sites = (np.array([3, x], np.int32) for x in (4, 5))
    bases = [FragmentBases(np.zeros(2, np.int32), site, *np.zeros((2, 2), np.uint8)) for site in sites]
    reads, calls = replace(one(["b", "a"], [0, 3, 30]), bases_X=bases), one(["a", "b"], [0, 3, 9])
    joined = merge_likelihoods(reads, calls) if reads_first else merge_likelihoods(calls, reads)
    assert list(joined.bases_X) == (bases if reads_first else bases[::-1])
    assert merge_likelihoods(calls, calls).bases_X == ()


@pytest.mark.parametrize(
    ("names", "text"), [(["a"], "b is in only one"), (["a", "b", "c"], "c is in only one")]
)
def test_other_samples_are_refused(names: list[str], text: str) -> None:
    with pytest.raises(InputError, match=text):
        merge_likelihoods(one(["a", "b"], [0, 1, 2]), one(names, [0, 1, 2]))


def test_take() -> None:
    index, phred = np.array([1, 4, 6]), np.arange(9, dtype=np.uint8).reshape(3, 1, 3)
    whole = GenotypeLikelihoods(["a"], np.array([2], np.uint8), index, phred, index[:, None], 7, {"x": 2})
    part = whole.take(slice(1, 3))
    assert part.panel_index.tolist() == [4, 6]
    assert part.phred_SX3.tolist() == [[[3, 4, 5]], [[6, 7, 8]]]
    assert part.depth_SX.tolist() == [[4], [6]]
    assert (part.n_sites_file, part.skipped) == (7, {"x": 2})


def test_stored_numbers() -> None:
    phred = np.array([[10.4, 3.1, 400], [10.4, 3.1, 12], [0, 0, 0]])
    found = stored_phred(phred, np.array([False, True, True])).tolist()
    assert found == [[7, 0, 255], [0, 255, 2], [0, 255, 0]]
    assert stored_depth(np.array([-1, 2.0, 70_000])).tolist() == [0, 2, 65_535]


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
    columns = zip(linked.fragment, linked.panel_index, linked.quality, strict=True)
    assert list(columns) == expected
    assert bases.n_at(Interval(first, stop)) == len(inside)


def test_a_base_of_low_quality_has_no_information() -> None:
    base = FragmentBases(np.zeros(1, int), np.zeros(1, int), np.zeros(1, np.uint8), np.ones(1, np.uint8))
    phred_S3, _ = phred_of_bases(base, np.zeros(1, int))
    assert phred_S3[0].tolist() == pytest.approx([3.01] * 3, abs=0.01)
