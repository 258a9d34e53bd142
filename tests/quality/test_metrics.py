"""Metrics compared with plain loops over genotypes and with known answers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spinimpute.quality.metrics import (
    GenotypeCalibration,
    bin_labels,
    count_good_sites,
    curve,
    frequency_bins,
    frequency_rows,
    mean_variant_r2,
    minor_allele_dosage,
    minor_allele_probabilities,
    minor_concordance,
    percent,
    pooled_r2,
    site_statistics,
)


def r2_of_pairs(pairs):
    """Squared correlation of (true, dosage) pairs by the textbook formula, None where undefined."""
    n = len(pairs)
    mean_t = sum(t for t, _ in pairs) / n
    mean_d = sum(d for _, d in pairs) / n
    tt = sum((t - mean_t) ** 2 for t, _ in pairs)
    dd = sum((d - mean_d) ** 2 for _, d in pairs)
    td = sum((t - mean_t) * (d - mean_d) for t, d in pairs)
    return None if min(tt, dd) < 1e-9 else td**2 / (tt * dd)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), n_sites=st.integers(1, 12), n_samples=st.integers(2, 9))
def test_equal_to_plain_loops(seed, n_sites, n_samples):
    rng = np.random.default_rng(seed)
    true = rng.integers(0, 3, (n_sites, n_samples)).astype(np.float32)
    true[rng.random(true.shape) < 0.1] = np.nan
    dosage = rng.uniform(0, 2, true.shape).round(3).astype(np.float32)
    statistics = site_statistics(true, dosage)

    sites = [
        [(float(t), float(d)) for t, d in zip(t_row, d_row, strict=True) if not np.isnan(t)]
        for t_row, d_row in zip(true, dosage, strict=True)
    ]
    pairs = [pair for site in sites for pair in site]
    expected = r2_of_pairs(pairs) if pairs else None
    assert pooled_r2(statistics) == pytest.approx(
        np.nan if expected is None else expected, abs=1e-9, nan_ok=True
    )

    varying = [site for site in sites if len({t for t, _ in site}) > 1]
    per_site = [r2_of_pairs(site) or 0.0 for site in varying]
    mean = np.mean(per_site) if per_site else np.nan
    assert mean_variant_r2(statistics) == pytest.approx(mean, abs=1e-9, nan_ok=True)

    carriers = [(t, round(d)) for t, d in pairs if t > 0 or round(d) > 0]
    concordance = np.mean([t == best for t, best in carriers]) if carriers else np.nan
    assert minor_concordance(statistics) == pytest.approx(concordance, nan_ok=True)


def test_pooled_r2_does_not_depend_on_blocks_of_sites():
    rng = np.random.default_rng(3)
    true = rng.binomial(2, 0.001, (400, 50)).astype(np.float32)
    dosage = np.clip(true + rng.normal(0, 0.1, true.shape), 0, 2).astype(np.float32)
    whole = site_statistics(true, dosage)
    parts = np.concatenate([site_statistics(true[i : i + 7], dosage[i : i + 7]) for i in range(0, 400, 7)])
    assert pooled_r2(parts) == pooled_r2(whole)
    assert pooled_r2(whole) == pytest.approx(np.corrcoef(true.ravel(), dosage.ravel())[0, 1] ** 2, abs=1e-6)


def test_turning_to_minor_changes_sites_with_a_common_alt():
    frequency = np.array([0.1, 0.5, 0.9])
    dosage = np.array([[0.25, 1.0], [0.25, 1.0], [0.25, 1.0]])
    minor, minor_frequency = minor_allele_dosage(dosage, frequency, np.array([2, 1]))
    assert minor.tolist() == [[0.25, 1.0], [0.25, 1.0], [1.75, 0.0]]
    assert minor_frequency == pytest.approx([0.1, 0.5, 0.1])


def test_turning_probabilities():
    frequency = np.array([0.2, 0.8])
    diploid, haploid = [0.7, 0.2, 0.1], [0.6, 0.4, np.nan]
    probability = np.array([[diploid, haploid], [diploid, haploid]])
    turned = minor_allele_probabilities(probability, frequency, np.array([2, 1]))
    assert np.array_equal(turned[0], [diploid, haploid], equal_nan=True)
    assert np.array_equal(turned[1], [[0.1, 0.2, 0.7], [0.4, 0.6, np.nan]], equal_nan=True)


def test_frequencies_seem_to_explain_singletons_unless_dosages_are_turned_to_minor():
    rng = np.random.default_rng(1)
    n_sites, n_haplotypes = 400, 200
    alt_is_rare = rng.random(n_sites) < 0.5
    frequency = np.where(alt_is_rare, 1, n_haplotypes - 1) / n_haplotypes
    true = rng.binomial(2, frequency[:, None], (n_sites, 100)).astype(np.float32)
    guess = np.broadcast_to(2 * frequency[:, None], true.shape).astype(np.float32)
    assert pooled_r2(site_statistics(true, guess)) > 0.9

    minor_true, minor_frequency = minor_allele_dosage(true, frequency)
    minor_guess, _ = minor_allele_dosage(guess, frequency)
    statistics = site_statistics(minor_true, minor_guess)
    rows = frequency_rows("guess", statistics, minor_frequency, np.zeros(n_sites, dtype=bool))
    for row in rows:
        assert np.nan_to_num(row["pooled_r2"]) < 0.01
        assert row["mean_r2"] == pytest.approx(0, abs=1e-6)
        assert row["nrc"] == 0


def test_bins_contain_their_upper_edge_and_empty_bins_have_no_row():
    true = np.array([[0, 1], [1, 0], [0, 2]], dtype=np.float32)
    statistics = site_statistics(true, true)
    frequency = np.array([1 / 1000, 1 / 1000 + 1e-12, 0.3])
    missing = np.array([True, False, False])
    rows = frequency_rows("x", statistics, frequency, missing, bins=(0, 0.001, 0.01, 0.5))
    assert [(row["bin"], row["sites"], row["missing_sites"]) for row in rows] == [
        ("all", 3, 1),
        ("(0,0.001]", 2, 1),
        ("(0.01,0.5]", 1, 0),
    ]
    assert [row["genotypes"] for row in rows] == [6, 4, 2]


def test_calibration_of_known_answers():
    calibration = GenotypeCalibration(edges=(0, 0.5, 0.9, 1))
    # ten genotypes are heterozygous with probability 0.8; six of them are
    true = np.array([[1] * 6 + [0] * 4], dtype=np.float32)
    probability = np.tile(np.array([0.2, 0.8, 0.0]), (1, 10, 1))
    calibration.add(true, probability)
    rows = {(row["minor_alleles"], row["bin"]): row for row in calibration.rows()}

    heterozygous = rows["1", "[0.5,0.9)"]
    assert heterozygous["predictions"] == 10
    assert heterozygous["mean_predicted"] == pytest.approx(0.8)
    assert heterozygous["observed"] == pytest.approx(0.6)
    assert heterozygous["calibration_error"] == pytest.approx(0.2)
    assert rows["0", "[0,0.5)"]["observed"] == pytest.approx(0.4)
    assert rows["2", "all"]["calibration_error"] == pytest.approx(0)
    # for any genotype: bin [0, 0.5) has twenty predictions, mean 0.1, observed 4 of 20; [0.5, 0.9) as above
    assert rows["any", "[0,0.5)"]["calibration_error"] == pytest.approx(0.1)
    assert rows["any", "all"]["calibration_error"] == pytest.approx((20 * 0.1 + 10 * 0.2) / 30)


def test_calibration_puts_edges_into_the_upper_bin_and_ignores_missing():
    calibration = GenotypeCalibration(edges=(0, 0.1, 1))
    probability = np.array([[[0.1, 0.9, 0.0], [np.nan] * 3, [1.0, 0.0, 0.0]]], dtype=np.float32)
    calibration.add(np.array([[1, 1, np.nan]]), probability)
    found = {(row["minor_alleles"], row["bin"]): row["predictions"] for row in calibration.rows()}
    assert found == {
        ("any", "all"): 3, ("any", "[0,0.1)"): 1, ("any", "[0.1,1]"): 2,
        ("0", "all"): 1, ("0", "[0.1,1]"): 1, ("1", "all"): 1, ("1", "[0.1,1]"): 1, ("2", "all"): 1,
        ("2", "[0,0.1)"): 1,
    }  # fmt: skip


def test_a_curve_has_a_gap_where_a_bin_has_no_row():
    bins = frequency_bins((0, 0.01, 0.05, 0.5))
    assert [one.label for one in bins] == ["(0,0.01]", "(0.01,0.05]", "(0.05,0.5]"]
    assert bins[1].contains(np.array([0.01, 0.05, 0.02])).tolist() == [False, True, True]
    rows = [{"bin": label, "r2": r2} for label, r2 in [("all", 0.5), ("(0,0.01]", 0.2), ("(0.05,0.5]", 0.9)]]
    assert bin_labels(rows) == ["(0,0.01]", "(0.05,0.5]"]
    np.testing.assert_array_equal(curve(rows, [one.label for one in bins], "r2"), [0.2, np.nan, 0.9])


def test_good_sites_by_frequency():
    rng = np.random.default_rng(1)
    true = rng.binomial(2, 0.3, (300, 12)).astype(np.float32)
    true[::5] = 1  # true genotypes that do not vary
    dosage = (true + rng.normal(0, rng.random((300, 1)), true.shape)).clip(0, 2).astype(np.float32)
    minor = rng.choice([0.0, 0.004, 0.01, 0.03, 0.05, 0.4], 300)
    found = {row.pop("bin"): row for row in count_good_sites(site_statistics(true, dosage), minor)}
    classes = {"(0,0.01]": (0.004, 0.01), "(0.01,0.05]": (0.03, 0.05), "(0.05,0.5]": (0.4,)}
    for label, frequencies in classes.items():
        rows = [i for i in range(300) if i % 5 and minor[i] in frequencies]
        good = [i for i in rows if np.corrcoef(true[i], dosage[i])[0, 1] ** 2 >= 0.8]
        assert 0 < len(good) < len(rows)
        assert found.pop(label) == {"sites": len(rows), "good": len(good)}
    assert not found


def test_labels_in_percent():
    labels = [percent(label) for label in ("(0,0.0005]", "(0.001,0.002]", "(0.05,0.5]", "all")]
    assert labels == ["≤ 0.05 %", "0.1–0.2 %", "5–50 %", "all"]
