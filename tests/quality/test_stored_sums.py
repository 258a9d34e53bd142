"""Sums of any parts add up to those of the whole, in whole numbers, and survive as text."""

from functools import reduce

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spinimpute.quality.leave_one_out import call_sums, empirical_r2
from spinimpute.quality.site_quality import ONE, add_sums, site_quality, site_sums
from spinimpute.quality.stored_sums import decode_call_sums, decode_sums, encode_call_sums, encode_sums

PROBABILITIES = st.one_of(
    st.sampled_from([0.0, 1.0, 1e-7, 4e-4, 6e-4, 0.5, 1 - 1e-6]), st.floats(0, 1, width=32), st.just(np.nan)
)


@settings(max_examples=100, deadline=None)
@given(st.lists(PROBABILITIES, min_size=1, max_size=60), st.lists(st.integers(0, 60), max_size=4))
def test_parts_add_up(probabilities: list[float], cuts: list[int]) -> None:
    p_UQ = np.array([probabilities, probabilities[::-1]], np.float32)
    parts = [site_sums(part) for part in np.split(p_UQ, sorted(cuts), axis=1)]
    whole_KU = site_sums(p_UQ)
    np.testing.assert_array_equal(reduce(add_sums, parts), whole_KU)
    np.testing.assert_array_equal(whole_KU[:, 0], whole_KU[:, 1])  # the order does not matter
    np.testing.assert_array_equal(decode_sums(encode_sums(whole_KU)), whole_KU)


@settings(max_examples=100, deadline=None)
@given(st.lists(PROBABILITIES, min_size=1, max_size=60))
def test_sums_against_python(probabilities: list[float]) -> None:
    p_Q = np.array(probabilities, np.float32)
    units = [round(float(p) * ONE) for p in p_Q if not np.isnan(p)]
    n, first, second, high3, low3, high4, low4, doubt, *_ = site_sums(p_Q[None])[:, 0].tolist()
    assert (n, first, second) == (len(units), sum(units), sum(q**2 for q in units))
    assert (high3 * ONE + low3, high4 * ONE**2 + low4) == (sum(q**3 for q in units), sum(q**4 for q in units))
    assert doubt == sum(min(q, ONE - q) for q in units)


@settings(max_examples=100, deadline=None)
@given(st.lists(PROBABILITIES, min_size=1, max_size=60))
def test_alleles_are_treated_alike(probabilities: list[float]) -> None:
    """Exchanging REF and ALT exchanges the frequency and keeps the rest."""
    p_UQ = np.array([probabilities], np.float32).round(4)
    one, another = (site_quality(site_sums(p)) for p in (p_UQ, 1 - p_UQ))
    np.testing.assert_allclose(one["AF"], 1 - another["AF"], atol=1e-6)  # type: ignore[operator,arg-type]
    for key in ("MAF", "AVG_CS", "R2"):
        np.testing.assert_allclose(one[key], another[key], atol=1e-5)  # type: ignore[arg-type]


def test_many_haplotypes() -> None:
    """Sums of a million haplotypes do not overflow."""
    p_Q = np.full(1_000_000, 1.0, np.float32)
    p_Q[:10] = 0.25
    quality = site_quality(reduce(add_sums, [site_sums(part[None]) for part in np.split(p_Q, 4)]))
    m_Q = 1 - p_Q.astype(float)
    assert quality["AF"][0] == pytest.approx(p_Q.astype(float).mean(), rel=1e-12)  # type: ignore[index]
    expected = m_Q.var() / (m_Q.mean() * (1 - m_Q.mean()))
    assert quality["R2"][0] == pytest.approx(expected, rel=0.02)  # type: ignore[index]


def test_dosages_that_do_not_vary() -> None:
    p_UQ = np.repeat(np.array([[0.3], [0.7], [1e-3], [0.0], [1.0]], np.float32), 41, axis=1)
    assert site_quality(site_sums(p_UQ))["R2"].tolist() == [0] * 5  # type: ignore[union-attr]


def test_calls_add_up(rng: np.random.Generator) -> None:
    ploidy = rng.integers(1, 3, 30)
    n = int(ploidy.sum())
    alleles_TQ = rng.integers(-1, 2, (50, n)).astype(np.int8)
    p_TQ = rng.random((50, n)).astype(np.float32)
    first_X = np.cumsum(ploidy) - ploidy
    missing_TX = np.logical_or.reduceat(alleles_TQ < 0, first_X, axis=1)
    major_T = rng.random(50) < 0.5
    whole_KT = call_sums(alleles_TQ, p_TQ, missing_TX, ploidy, major_T)
    parts = []
    for samples in (slice(0, 7), slice(7, 8), slice(8, 30)):
        stop = n if samples.stop == 30 else first_X[samples.stop]
        columns = slice(first_X[samples.start], stop)
        parts.append(
            call_sums(
                alleles_TQ[:, columns], p_TQ[:, columns], missing_TX[:, samples], ploidy[samples], major_T
            )
        )
    np.testing.assert_array_equal(sum(parts), whole_KT)
    np.testing.assert_array_equal(decode_call_sums(encode_call_sums(whole_KT)), whole_KT)
    no_calls = np.zeros((6, 1), np.int64)
    assert encode_call_sums(no_calls) == [""]
    np.testing.assert_array_equal(decode_call_sums([""]), no_calls)
    assert np.isnan(empirical_r2(no_calls)).all()


DAMAGED = (
    "", "2", "2/1/1/1/1/1/1/1", "2/1/1/1/1/1/1/1/1/1", "2/200001/1/1/1/1/1/1/1", "2/-1/1/1/1/1/1/1/1",
    "z////////", "500000////////", "2/////200001///", "2//////1000001//", "2////////8",
    "2" + "f" * 30 + "////////",
)  # fmt: skip


@pytest.mark.parametrize("text", DAMAGED)
def test_damaged_texts(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode_sums([text])


@pytest.mark.parametrize(
    "text", ["2", "2/5////", "2//9///", "2///400001//", "2/////800001", "2//////", "-2/////"]
)
def test_damaged_texts_of_calls(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode_call_sums([text])
