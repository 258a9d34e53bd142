"""Statistics of sites from dosages, compared with enumeration."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from spinimpute.quality.site_quality import site_quality, site_sums


def test_quality_against_brute_force(rng):
    p_UQ = rng.random((50, 9)).astype(np.float32)
    p_UQ[0] = 0
    p_UQ[1] = 1
    p_UQ[2, 3:] = np.nan
    p_UQ[3] = np.nan
    quality = site_quality(site_sums(p_UQ))
    columns = [quality[key] for key in ("AF", "MAF", "AVG_CS", "R2")]
    for row, frequency, minor, score, r2 in zip(p_UQ, *columns, strict=True):  # type: ignore[arg-type]
        known = row[~np.isnan(row)].astype(float)
        if len(known) == 0:
            assert np.isnan([frequency, minor, score, r2]).all()
            continue
        mean = known.sum() / len(known)
        assert frequency == pytest.approx(mean, rel=1e-6)
        assert minor == pytest.approx(min(mean, 1 - mean), rel=1e-5)
        assert score == pytest.approx(np.maximum(known, 1 - known).mean(), rel=1e-6)
        if mean in (0, 1):
            assert r2 == 0
            continue
        assert r2 == pytest.approx(r2_by_enumeration(known), abs=0.08)


def r2_by_enumeration(p_Q: np.ndarray) -> float:
    """Mean squared correlation of dosages with all possible alleles that vary."""
    total = weights = 0.0
    for alleles in itertools.product((0, 1), repeat=len(p_Q)):
        allele_Q = np.array(alleles)
        if 0 < allele_Q.sum() < len(p_Q):
            weight = float(np.where(allele_Q, p_Q, 1 - p_Q).prod())
            weights += weight
            total += weight * np.corrcoef(allele_Q, p_Q)[0, 1] ** 2
    return total / weights


def test_r2_of_rare_alleles_against_enumeration():
    """Few haplotypes are probable carriers, all others improbable ones."""
    for found in ([0.3], [0.9, 0.1], [0.5, 0.2, 0.1], [0.05, 0.02], [0.6, 0.6]):
        p_Q = np.array(found + [0.002] * (11 - len(found)), np.float32)
        expected = r2_by_enumeration(p_Q.astype(float))
        for p in (p_Q, 1 - p_Q):
            r2 = site_quality(site_sums(p[None]))["R2"]
            assert r2 is not None
            assert r2[0] == pytest.approx(expected, abs=0.06), found


def test_r2_without_a_carrier_in_files():
    """Probabilities that are written as 0 do not count as possible carriers."""
    p_UQ = np.array([[0, 0, 1e-20, 1e-9], [0, 0, 0, 4e-4], [0, 0, 0, 6e-4]], np.float32)
    for flipped in (p_UQ, 1 - p_UQ):
        r2 = site_quality(site_sums(flipped))["R2"]
        assert r2 is not None
        assert r2[:2].tolist() == [0, 0]
        assert r2[2] > 0.9


def test_r2_of_known_and_of_common_alleles(rng):
    known_UQ = (rng.random((30, 40)) < rng.random((30, 1))).astype(np.float32)
    known_UQ[0] = np.arange(40) == 3
    r2 = site_quality(site_sums(known_UQ))["R2"]
    varies_U = known_UQ.std(axis=1) > 0
    np.testing.assert_allclose(r2, varies_U, atol=1e-6)  # type: ignore[arg-type]
    p_UQ = rng.beta(0.3, 0.7, (20, 3_000)).astype(np.float32)
    mean_U = p_UQ.mean(axis=1, dtype=np.float64)
    np.testing.assert_allclose(
        site_quality(site_sums(p_UQ))["R2"],  # type: ignore[arg-type]
        p_UQ.var(axis=1, dtype=np.float64) / (mean_U * (1 - mean_U)),
        atol=1e-3,
    )
