"""Expected accuracy by sample, compared with genotypes drawn from the probabilities."""

import numpy as np
import pytest

from spinimpute.quality.metrics import minor_allele_dosage, pooled_r2, site_statistics
from spinimpute.quality.sample_quality import SampleQuality

PLOIDY = np.array([2, 1, 2], np.uint8)
FIRST = np.array([0, 2, 3])


def drawn(n_sites: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Probabilities of five haplotypes, true alleles, and the panel's frequencies."""
    rng = np.random.default_rng(7)
    frequency = rng.beta(0.3, 0.5, n_sites)
    certainty = np.array([20, 2, 0.5, 1, 1])  # distance of the probabilities from the frequency
    p = rng.beta(frequency[:, None] / certainty + 1e-3, (1 - frequency[:, None]) / certainty + 1e-3)
    return p.astype(np.float32), (rng.random(p.shape) < p).astype(np.float32), frequency


def test_expected_r2_equals_the_r2_of_drawn_genotypes():
    p, alleles, frequency = drawn(40_000)
    quality = SampleQuality(["a", "b", "c"])
    for some in (slice(0, 15_000), slice(15_000, 15_000), slice(15_000, None)):
        quality.add_dosages(p[some], frequency[some], PLOIDY)
    found = []
    for x, (first, copies) in enumerate(zip(FIRST, PLOIDY, strict=True)):
        mine = slice(first, first + copies)
        both = [
            minor_allele_dosage(of[:, mine].sum(1)[:, None], frequency, int(copies))[0] for of in (alleles, p)
        ]
        found.append(pooled_r2(site_statistics(both[0].T, both[1].T)))
        assert 0.05 < found[x] < 0.99
    assert quality.expected_r2_X == pytest.approx(found, abs=0.01)
    assert quality.sites == 40_000


def test_dosages_without_uncertainty_or_variance():
    quality = SampleQuality(["a", "b", "c"])
    assert np.isnan(quality.expected_r2_X).all()
    assert np.isnan(quality.call_rate_X).all()
    p = np.array([[1, 0, 0.5, 0, 0], [0, 0, 0.5, 0, 0]], np.float32)
    quality.add_dosages(p, np.array([0.1, 0.2]), PLOIDY)
    assert quality.expected_r2_X[:2].tolist() == [1, 0]
    assert np.isnan(quality.expected_r2_X[2])


def test_calls():
    quality = SampleQuality(["a", "b", "c"])
    alleles = np.array([[0, 1, 1, -1, -1], [0, -1, -1, 1, 1]], np.int8)
    quality.add_calls(alleles, PLOIDY)
    quality.add_calls(alleles[:1], PLOIDY)
    assert quality.called_X.tolist() == [2, 2, 1]
    assert quality.call_rate_X.tolist() == pytest.approx([2 / 3, 2 / 3, 1 / 3])
