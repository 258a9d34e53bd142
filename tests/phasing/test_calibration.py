"""Genotype probabilities that are made less certain: what changes, and what must not.

Axes: S sites, H samples; 3: copies of ALT.
"""

import numpy as np
import pytest

from spinimpute.phasing.calibration import OVERCONFIDENCE, calibrated_pair, haplotype_pair
from spinimpute.phasing.chains import order_by_chain
from spinimpute.pipeline.sequenced.records import most_likely_alleles

RARE, COMMON = 0.0001, 0.3
TWO = np.zeros(1, bool)


def genotypes(pair_2SH: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    p_SH, q_SH = pair_2SH
    return np.stack([(1 - p_SH) * (1 - q_SH), p_SH + q_SH - 2 * p_SH * q_SH, p_SH * q_SH], axis=1)


def calibrated(genotype_S3: np.ndarray, frequency: float, share: float) -> np.ndarray:
    """Genotype probabilities (S, 3) of one sample."""
    frequency_S = np.full(len(genotype_S3), frequency)
    pair = calibrated_pair(genotype_S3[..., None], frequency_S, np.array([share]), TWO)
    return genotypes(pair)[..., 0]


@pytest.fixture
def some_S3() -> np.ndarray:
    """Genotypes of two haplotypes each, certain and uncertain ones."""
    rng = np.random.default_rng(3)
    p_S, q_S = 1 / (1 + np.exp(rng.normal(0, 4, (2, 5_000))))
    return genotypes((p_S[:, None], q_S[:, None]))[..., 0].astype(np.float32)


@pytest.mark.parametrize("share", [0.1, 0.6, 1.0])
@pytest.mark.parametrize("frequency", [RARE, 0.005, 0.03, COMMON, 1 - RARE])
def test_the_likeliest_genotype_stays(some_S3: np.ndarray, frequency: float, share: float) -> None:
    softer_S3 = calibrated(some_S3, frequency, share)
    np.testing.assert_array_equal(softer_S3.argmax(axis=1), some_S3.argmax(axis=1))
    np.testing.assert_allclose(softer_S3.sum(axis=1), 1, atol=1e-6)
    assert (softer_S3.max(axis=1) < some_S3.max(axis=1) + 0.02).all()
    sure_S = some_S3.max(axis=1) > 0.9
    assert softer_S3.max(axis=1)[sure_S].mean() < some_S3.max(axis=1)[sure_S].mean()


def test_genotypes_are_those_that_are_written(some_S3: np.ndarray) -> None:
    frequency_S, haploid = np.full(len(some_S3), COMMON), np.zeros(1, bool)
    before = np.stack(haplotype_pair(some_S3[..., None]), axis=1)
    after = np.stack(calibrated_pair(some_S3[..., None], frequency_S, np.ones(1), haploid), axis=1)
    for pair_S2X in (before, after):
        assert ((pair_S2X >= 0) & (pair_S2X <= 1)).all()
    copies = [most_likely_alleles(pair_S2X, haploid).sum(axis=1) for pair_S2X in (before, after)]
    np.testing.assert_array_equal(*copies)
    assert (before != after).mean() > 0.9


def test_odds_are_those_of_the_temperature() -> None:
    """Certain homozygotes are tempered more if more sites are observed."""
    p = np.array([[0.001]])
    one_S3 = genotypes((p, p))[..., 0]
    odds = np.log(one_S3[0, 0] / one_S3[0, 1])
    for frequency, loss in zip((RARE, 0.005, 0.03, COMMON), OVERCONFIDENCE, strict=True):
        for share in (0.0, 0.5, 1.0):
            softer_S3 = calibrated(one_S3, frequency, share)
            of_mean = softer_S3[0, 1] / 2 + softer_S3[0, 2]
            exponent = 1 - loss * share
            tempered_3 = one_S3[0] ** exponent / (one_S3[0] ** exponent).sum()
            assert of_mean == pytest.approx(tempered_3[1] / 2 + tempered_3[2], rel=1e-5)
            assert np.log(softer_S3[0, 0] / softer_S3[0, 1]) == pytest.approx(odds * exponent, rel=0.03)


def test_nothing_known_nothing_changed(some_S3: np.ndarray) -> None:
    np.testing.assert_allclose(calibrated(some_S3, COMMON, 0.0), some_S3, atol=1e-4)


def test_haploid_samples_are_as_they_were() -> None:
    p_SH = np.array([[0.99, 0.2]])
    genotype_S3H = np.stack([1 - p_SH, np.zeros_like(p_SH), p_SH], axis=1)
    for found_SH in calibrated_pair(genotype_S3H, np.array([COMMON]), np.ones(2), np.ones(2, bool)):
        np.testing.assert_allclose(found_SH, p_SH)


def test_genotypes_that_no_two_haplotypes_have() -> None:
    genotype_S3 = np.array([[0.46, 0.08, 0.46], [0.6, 0.05, 0.35]])
    first, second = haplotype_pair(genotype_S3[..., None])
    np.testing.assert_array_equal(first, second)
    np.testing.assert_allclose(first[:, 0], genotype_S3[:, 1] / 2 + genotype_S3[:, 2])
    as_written_S3 = genotypes((first, second))[..., 0]
    softer_S3 = calibrated(genotype_S3, COMMON, 1.0)
    np.testing.assert_array_equal(softer_S3.argmax(axis=1), as_written_S3.argmax(axis=1))


def test_phase_of_heterozygotes_that_no_two_haplotypes_have() -> None:
    """The likelier carrier has the larger number, if only in the last digit."""
    genotype_S3H = np.array([[[0.25], [0.4], [0.35]], [[1.0], [0.0], [0.0]]], np.float32)
    pair = calibrated_pair(genotype_S3H, np.full(2, COMMON), np.ones(1), TWO)
    np.testing.assert_allclose(pair[0], pair[1], rtol=1e-6)
    for alt_on_second, alleles in ((False, [1, 0]), (True, [0, 1])):
        p_S2H = order_by_chain(*pair, np.full((2, 1), alt_on_second))
        assert most_likely_alleles(p_S2H, TWO)[:, :, 0].tolist() == [alleles, [0, 0]]
