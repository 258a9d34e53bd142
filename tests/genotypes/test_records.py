"""Which rows of a panel are one record, and what the probabilities of their alleles add up to."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spinimpute.genotypes.intervals import Interval
from spinimpute.genotypes.records import (
    LABEL_BACKGROUND,
    MAX_ALTS,
    RecordRows,
    of_other_records,
    record_order,
)
from spinimpute.genotypes.sites import Sites

ROWS = st.lists(
    st.tuples(st.integers(1, 4), st.sampled_from(["A", "a", "AC"]), st.sampled_from("CGT"), st.booleans()),
    min_size=1,
    max_size=12,
)


def sites_of(rows: list[tuple[int, str, str, bool]]) -> tuple[Sites, np.ndarray]:
    position, ref, alt, multiallelic = zip(*rows, strict=True)
    sites = Sites("20", np.array(position, np.int64), list(ref), list(alt), ["."] * len(rows))
    return sites, np.array(multiallelic)


def records_of(rows: list[tuple[int, str, str, bool]]) -> RecordRows:
    sites, multiallelic = sites_of(rows)
    return RecordRows.of(sites, multiallelic, np.linspace(0.01, 0.2, len(rows)))


@given(ROWS)
def test_neighbours_with_one_position_and_REF_are_a_record(rows):
    rows = sorted(rows, key=lambda row: row[0])
    records: list[list[int]] = []
    for index, (position, ref, _, multiallelic) in enumerate(rows):
        last = rows[records[-1][-1]] if records else None
        if last and multiallelic and last[3] and (last[0], last[1].upper()) == (position, ref.upper()):
            records[-1].append(index)
        else:
            records.append([index])
    found = records_of(rows)
    assert np.flatnonzero(~found.continues).tolist() == [one[0] for one in records]
    whole = Interval(0, len(rows))
    assert found.n_records(whole) == len(records)
    several = [Interval(one[0], one[-1] + 1) for one in records if len(one) > 1]
    assert found.multiallelic_within(whole) == several
    for one in several:
        assert found.multiallelic_within(one) == [one]
        assert found.multiallelic_within(Interval(one.stop, len(rows))) == several[several.index(one) + 1 :]


@given(ROWS, st.lists(st.integers(0, 12), max_size=4))
def test_windows_do_not_cut_a_record(rows, cuts):
    rows = sorted(rows, key=lambda row: row[0])
    bounds = sorted({0, len(rows), *(cut for cut in cuts if cut < len(rows))})
    windows = [Interval(*pair) for pair in pairwise(bounds)]
    records = records_of(rows)
    whole = records.keep_whole(windows)
    assert [row for window in whole for row in range(*window)] == list(range(len(rows)))
    assert not records.continues[[window.start for window in whole]].any()
    if not records.continues[bounds[:-1]].any():
        assert whole == windows


def test_a_record_with_too_many_alleles_stays_split():
    rows = [(1, "A", "C" * (i + 1), True) for i in range(MAX_ALTS)] + [
        (2, "A", "C", True),
        (2, "A", "G", True),
    ]
    assert records_of(rows).n_records(Interval(0, len(rows))) == 2
    one_more = [(1, "A", "C" * 99, True), *rows]
    assert records_of(one_more).n_records(Interval(0, len(one_more))) == len(one_more) - 1


def test_haplotypes_with_two_alleles_show_two_records():
    """First those of another length than REF leave the record, and then, if necessary, the others."""
    sites, multiallelic = sites_of([(1, "A", alt, True) for alt in ("AT", "ATT", "C", "G")])
    apart = np.eye(4, 6, dtype=np.uint8)
    for both, expected in (((), [0, 0, 0, 0]), ((0, 2), [1, 1, 0, 0]), ((2, 3), [1, 1, 1, 1])):
        alleles = apart.copy()
        alleles[list(both), 5] = 1
        assert of_other_records(sites, multiallelic, alleles).tolist() == [bool(one) for one in expected]


@given(ROWS, st.randoms())
def test_the_order_of_rows_keeps_records_together(rows, random):
    """So a biallelic record of the same position and REF does not cut a record."""
    rows = list(dict.fromkeys(rows))
    shuffled = random.sample(rows, len(rows))
    orders = [[some[i] for i in record_order(*sites_of(some))] for some in (rows, shuffled)]
    assert [(p, r.upper(), a, m) for p, r, a, m in orders[0]] == [
        (p, r.upper(), a, m) for p, r, a, m in orders[1]
    ]
    keys = {(p, r.upper()) for p, r, _, m in rows if m}
    n_biallelic = sum(not m for *_, m in rows)
    assert records_of(orders[0]).n_records(Interval(0, len(rows))) == len(keys) + n_biallelic


@pytest.mark.parametrize("axes", [(5,), (2, 3)])
@given(seed=st.integers(0, 10**6))
def test_shares_add_up_to_1(axes, seed):
    rng = np.random.default_rng(seed)
    rows = [(1, "A", "C", False), *((2, "A", alt, True) for alt in "CGT"), (2, "A", "TT", False)]
    rows += [(3, "A", alt, True) for alt in "CG"]
    p_UQ = (rng.random((7, *axes)) ** 2).astype(np.float32)
    before = p_UQ.copy()
    records_of(rows).share_alleles(0, p_UQ)
    np.testing.assert_array_equal(p_UQ[[0, 4]], before[[0, 4]])
    for record in (slice(1, 4), slice(5, 7)):
        total = before[record].sum(axis=0)
        np.testing.assert_allclose(p_UQ[record], before[record] / np.maximum(total, 1), rtol=1e-6)
        assert (p_UQ[record].sum(axis=0) <= 1 + 1e-6).all()
        np.testing.assert_array_equal(p_UQ[record][:, total <= 1], before[record][:, total <= 1])
    window = before[5:].copy()
    records_of(rows).share_alleles(5, window)
    np.testing.assert_array_equal(window, p_UQ[5:])


def test_typed_alleles_are_certain():
    rows = [(1, "A", "C", False), *((2, "A", alt, True) for alt in "CGT")]
    p_UQ = np.full((4, 4), 0.5, np.float32)
    typed_TQ = np.array([[1, 1, 1, 1], [1, 0, -1, -1], [-1, 0, -1, 0]], np.int8)
    records_of(rows).share_alleles(0, p_UQ, np.array([0, 1, 3]), typed_TQ)
    expected = [[0.5] * 4, [1, 0, 1 / 3, 0.5], [0, 0.5, 1 / 3, 0.5], [0, 0, 1 / 3, 0]]
    np.testing.assert_allclose(p_UQ, expected, rtol=1e-6)


def test_labels_of_a_locus_add_up_to_1():
    alts = [*(f"<A*{number:03}>" for number in range(MAX_ALTS + 1)), "<B*1>", "<B*2>", "<B*3>"]
    records = records_of([(9, "N", alt, True) for alt in alts])
    first, second = records.multiallelic_within(Interval(0, len(alts)))
    assert (first, second) == (Interval(0, MAX_ALTS + 1), Interval(MAX_ALTS + 1, len(alts)))
    p_UQ = np.random.default_rng(3).random((len(alts), 5)).astype(np.float32) / 100
    p_UQ[-3:, 4] = 0
    before = p_UQ + LABEL_BACKGROUND * np.linspace(0.01, 0.2, len(alts), dtype=np.float32)[:, None]
    records.share_alleles(0, p_UQ)
    for rows in (first, second):
        expected = before[rows.slice] / before[rows.slice].sum(axis=0)
        np.testing.assert_allclose(p_UQ[rows.slice], expected, atol=1e-6)
