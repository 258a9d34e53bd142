"""Counts of the imputation benchmarks equal brute force: trust, estimates, cuts by R2, strata."""

import itertools

import numpy as np
import pytest

from benchmarks.imputation.calibration import ALL_GENOTYPES, CARRIERS, estimates, true_r2, trust
from benchmarks.imputation.expected_r2 import Part, cuts
from benchmarks.imputation.strata import (
    OUTSIDE,
    RARE,
    Cell,
    Stratum,
    cells,
    distance_strata,
    people_strata,
    recombination_rate,
    recombination_strata,
)
from spinimpute.genotypes.genetic_map import GeneticMap


def r2_of(true: np.ndarray, dosage: np.ndarray) -> float:
    known = ~np.isnan(true)
    return float(np.corrcoef(true[known], dosage[known])[0, 1] ** 2)


def test_trust_equals_brute_force() -> None:
    rng = np.random.default_rng(4)
    probability = rng.dirichlet([0.3, 0.3, 0.3], (40, 20)).astype(np.float32)
    true = rng.integers(0, 3, (40, 20)).astype(np.float32)
    true[0, 0] = probability[1, 1] = np.nan
    rows = {(row.genotypes, row.range): row for row in trust(true, probability)}
    likeliest, most = probability.argmax(2), probability.max(2)
    for group, counted in ((ALL_GENOTYPES, ~np.isnan(true)), (CARRIERS, ~np.isnan(true) & (likeliest > 0))):
        for name, low, high in (("below 0.5", 0, 0.5), ("0.5 to 0.9", 0.5, 0.9), ("0.9 and more", 0.9, 1.1)):
            chosen = counted & (low <= most) & (most < high)
            assert rows[group, name].count == chosen.sum()
            assert rows[group, name].right == pytest.approx((likeliest == true)[chosen].mean())


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
    estimated = rng.random(30)
    estimated[7] = np.nan
    kept = [i for i in range(30) if i not in (3, 7)]
    r2 = np.array([0.0 if i == 4 else r2_of(true[i], dosage[i]) for i in kept])
    frequency = np.where(np.arange(30) < 15, 0.01, 0.3)
    everywhere, rare, common = estimates(true, dosage, estimated, frequency, (0.0, 0.05, 0.5))
    assert (everywhere.sites, everywhere.without) == (28, 1)
    assert (rare.sites, common.sites) == (13, 15)
    assert everywhere.mean_true == pytest.approx(r2.mean(), abs=1e-6)
    assert everywhere.mean_estimated == pytest.approx(estimated[kept].mean())
    assert everywhere.correlation == pytest.approx(np.corrcoef(estimated[kept], r2)[0, 1], abs=1e-6)


def test_cuts_equal_brute_force() -> None:
    rng = np.random.default_rng(6)
    true = rng.binomial(2, 0.2, (60, 40)).astype(np.float32)
    true[:5] = 0  # constant: no true r2
    dosage = (true + rng.normal(0, rng.uniform(0, 2, (60, 1)), true.shape)).astype(np.float32)
    dosage[10] = 0.25
    printed = rng.random(60)
    printed[[2, 20]] = np.nan
    rows = cuts(true_r2(true, dosage), printed, np.where(np.arange(60) % 2, 0.01, 0.3), (0.0, 0.05, 0.5))
    assert [row.bin for row in rows] == ["all", "(0,0.05]", "(0.05,0.5]"]
    all_r2 = np.array([np.nan] * 5 + [0.0 if i == 10 else r2_of(true[i], dosage[i]) for i in range(5, 60)])
    for row, chosen in zip(rows, (slice(60), slice(1, 60, 2), slice(0, 60, 2)), strict=True):
        r2, kept = all_r2[chosen], printed[chosen] >= 0.3
        groups = (np.full_like(kept, True), kept), (r2 >= 0.3, ~kept), (r2 >= 0.8, ~kept)
        groups += (r2 < 0.2, kept), (np.isnan(r2), kept)
        expected = [Part(sites.sum(), (sites & wrong).sum()) for sites, wrong in groups]
        assert [row.kept, *row.lost_good, row.kept_bad, row.kept_constant] == expected


def test_cells_equal_brute_force() -> None:
    rng = np.random.default_rng(1)
    n_sites, n_people = 60, 15
    frequency = rng.choice([0.003, 0.01, 0.2], n_sites)
    true = rng.binomial(2, 0.3, (n_sites, n_people)).astype(np.float32)
    dosages = {"a": true + rng.normal(0, 0.4, true.shape), "b": rng.random(true.shape) * 2}
    true[rng.random(true.shape) < 0.05] = np.nan
    all_sites, all_people = np.ones(n_sites, dtype=bool), np.ones(n_people, dtype=bool)
    some_sites, some_people = rng.random(n_sites) < 0.5, rng.random(n_people) < 0.5
    strata = [
        Stratum("one", "all", all_sites, all_people),
        Stratum("one", "some sites", some_sites, all_people),
        Stratum("two", "some people", all_sites, some_people),
        Stratum("two", "both", some_sites, some_people),
    ]
    found = {(cell.label, cell.frequency): cell for cell in cells(strata, frequency, true, dosages)}
    assert len(found) == 12
    classes = {"all": all_sites, "≤0.01": frequency <= RARE, ">0.01": frequency > RARE}
    for label, name in found:
        (stratum,) = (stratum for stratum in strata if stratum.label == label)
        cell, sites = found[label, name], stratum.sites & classes[name]
        chosen = np.ix_(sites, stratum.people)
        assert (cell.sites, cell.genotypes) == (sites.sum(), (~np.isnan(true[chosen])).sum())
        for imputer, dosage in dosages.items():
            assert cell.r2[imputer] == pytest.approx(r2_of(true[chosen], dosage[chosen]), abs=1e-9)


def test_distance_equals_brute_force() -> None:
    rng = np.random.default_rng(2)
    typed = np.sort(rng.choice(np.arange(10_000, 200_000), 4, replace=False))
    position = np.sort(rng.choice(300_000, 500, replace=False))
    strata = distance_strata(position, typed, 3)
    assert (sum(stratum.sites.astype(int) for stratum in strata) == 1).all()
    by_label = {stratum.label: stratum.sites for stratum in strata}
    distance = np.abs(position[:, None] - typed).min(1)
    outside = (position < typed.min()) | (position > typed.max())
    assert np.array_equal(by_label[OUTSIDE], outside)
    assert np.array_equal(by_label["500 to 2,000 bp"], ~outside & (distance >= 500) & (distance < 2_000))
    assert np.array_equal(by_label["20,000 bp and more"], ~outside & (distance >= 20_000))


def test_recombination_quartiles() -> None:
    genetic_map = GeneticMap(np.array([1, 500_000, 1_000_000]), np.array([0.0, 0.1, 5.1]))
    position = np.arange(100_000, 900_000, 1_000)
    rate = recombination_rate(position, genetic_map)
    assert rate[[0, -1]] == pytest.approx([0.2, 10], rel=1e-4)
    strata = recombination_strata(position, genetic_map, 2)
    assert (sum(stratum.sites.astype(int) for stratum in strata) == 1).all()
    for lower, higher in itertools.pairwise(strata):
        assert rate[lower.sites].max() <= rate[higher.sites].min()
    (only,) = recombination_strata(np.arange(1, 100), GeneticMap.constant(0.5), 2)  # one rate
    assert only.sites.all()
    rng = np.random.default_rng(3)
    points = np.arange(1, 2_000_000, 10_000)
    uneven = GeneticMap(points, np.cumsum(rng.lognormal(sigma=1.5, size=len(points))))
    strata = recombination_strata(np.sort(rng.integers(1, 2_000_000, 400)), uneven, 2)
    assert [int(stratum.sites.sum()) for stratum in strata] == [100, 100, 100, 100]


def test_people() -> None:
    table = {"a": ("TSI", "EUR"), "b": ("CEU", "EUR"), "c": ("YRI", "AFR")}
    strata = people_strata(["c", "a", "b", "x"], table, 5)
    members = {(s.dimension, s.label): s.people.tolist() for s in strata}
    assert members["superpopulation", "EUR"] == [False, True, True, False]
    assert members["population", "YRI"] == [True, False, False, False]
    assert members["population", "unknown"] == [False, False, False, True]
    assert people_strata(["a"], {}, 5) == []
    same = {"a": ("AFR", "AFR"), "b": ("EUR", "EUR")}
    assert {s.dimension for s in people_strata(["a", "b"], same, 5)} == {"superpopulation"}


def test_below_names_the_better_peer() -> None:
    r2 = {"Beagle": 0.9, "Minimac4": 0.92, "ours": 0.91, "best": 0.93}
    cell = Cell("d", "l", "all", 1, 1, r2)
    assert cell.below("ours") == ("Minimac4", pytest.approx(0.01))
    assert cell.below("best") is None
    assert Cell("d", "l", "all", 1, 1, r2 | {"ours": float("nan")}).below("ours") is None
