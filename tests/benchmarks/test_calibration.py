"""Calibration tables count what they say."""

import numpy as np
import pytest

from benchmarks.imputation.calibration import ALL_GENOTYPES, CARRIERS, estimates, trust


def test_trust_equals_brute_force() -> None:
    rng = np.random.default_rng(4)
    probability = rng.dirichlet([0.3, 0.3, 0.3], (40, 20)).astype(np.float32)
    true = rng.integers(0, 3, (40, 20)).astype(np.float32)
    true[0, 0] = np.nan
    probability[1, 1] = np.nan
    rows = {(row.genotypes, row.range): row for row in trust(true, probability)}
    for group in (ALL_GENOTYPES, CARRIERS):
        for name, low, high in (("below 0.5", 0, 0.5), ("0.5 to 0.9", 0.5, 0.9), ("0.9 and more", 0.9, 1.1)):
            right = []
            for i in range(40):
                for j in range(20):
                    p = probability[i, j]
                    if np.isnan(true[i, j]) or np.isnan(p).any() or (group == CARRIERS and p.argmax() == 0):
                        continue
                    if low <= p.max() < high:
                        right.append(p.argmax() == true[i, j])
            row = rows[group, name]
            assert row.count == len(right)
            assert row.right == pytest.approx(np.mean(right))


def test_a_float32_of_a_bound_belongs_above_it() -> None:
    probability = np.array([[[0.1, 0.9, 0.0]]], dtype=np.float32)
    rows = trust(np.array([[1.0]], dtype=np.float32), probability)
    assert {row.range for row in rows} == {"0.9 and more"}


def test_estimates() -> None:
    rng = np.random.default_rng(5)
    true = rng.binomial(2, 0.3, (30, 50)).astype(np.float32)
    true[3] = 0  # does not vary: has no true r2
    dosage = (true + rng.normal(0, rng.uniform(0, 2, (30, 1)), true.shape)).astype(np.float32)
    dosage[4] = 0.2
    varies = [i for i in range(30) if i != 3]
    r2 = np.array([0.0 if i == 4 else np.corrcoef(true[i], dosage[i])[0, 1] ** 2 for i in varies])
    estimated = rng.random(30)
    estimated[7] = np.nan
    frequency = np.where(np.arange(30) < 15, 0.01, 0.3)
    everywhere, rare, common = estimates(true, dosage, estimated, frequency, (0.0, 0.05, 0.5))
    kept = [k for k, i in enumerate(varies) if i != 7]
    expected = estimated[[varies[k] for k in kept]]
    assert (everywhere.sites, everywhere.without) == (28, 1)
    assert (rare.sites, common.sites) == (13, 15)
    assert everywhere.mean_true == pytest.approx(r2[kept].mean(), abs=1e-6)
    assert everywhere.mean_estimated == pytest.approx(expected.mean())
    assert everywhere.correlation == pytest.approx(np.corrcoef(expected, r2[kept])[0, 1], abs=1e-6)
