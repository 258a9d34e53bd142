"""Strata hold the sites and people that they name; their r2 is that of brute force."""

import numpy as np
import pytest

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


def pooled(true: np.ndarray, dosage: np.ndarray) -> float:
    known = ~np.isnan(true)
    return float(np.corrcoef(true[known], dosage[known])[0, 1] ** 2)


def test_cells_equal_brute_force() -> None:
    rng = np.random.default_rng(1)
    n_sites, n_people = 60, 15
    frequency = rng.choice([0.003, 0.01, 0.2], n_sites)
    true = rng.binomial(2, 0.3, (n_sites, n_people)).astype(np.float32)
    dosages = {"a": true + rng.normal(0, 0.4, true.shape), "b": rng.random(true.shape) * 2}
    true[rng.random(true.shape) < 0.05] = np.nan
    everything = np.ones(n_sites, dtype=bool), np.ones(n_people, dtype=bool)
    some_sites, some_people = rng.random(n_sites) < 0.5, rng.random(n_people) < 0.5
    strata = [
        Stratum("one", "all", *everything),
        Stratum("one", "some sites", some_sites, everything[1]),
        Stratum("two", "some people", everything[0], some_people),
        Stratum("two", "both", some_sites, some_people),
    ]
    found = {(cell.label, cell.frequency): cell for cell in cells(strata, frequency, true, dosages)}
    assert len(found) == 12
    for stratum in strata:
        for name, of_class in (
            ("all", frequency > 0),
            ("≤0.01", frequency <= RARE),
            (">0.01", frequency > RARE),
        ):
            cell = found[stratum.label, name]
            chosen = np.ix_(stratum.sites & of_class, stratum.people)
            assert cell.sites == (stratum.sites & of_class).sum()
            assert cell.genotypes == (~np.isnan(true[chosen])).sum()
            for label, dosage in dosages.items():
                assert cell.r2[label] == pytest.approx(pooled(true[chosen], dosage[chosen]), abs=1e-9)


def test_distance_equals_brute_force() -> None:
    rng = np.random.default_rng(2)
    typed = np.sort(rng.choice(np.arange(10_000, 200_000), 4, replace=False))
    position = np.sort(rng.choice(300_000, 500, replace=False))
    strata = distance_strata(position, typed, 3)
    covered = sum(stratum.sites.astype(int) for stratum in strata)
    assert (covered == 1).all()
    by_label = {stratum.label: stratum.sites for stratum in strata}
    distance = np.array([min(abs(p - t) for t in typed) for p in position])
    outside = (position < typed.min()) | (position > typed.max())
    assert np.array_equal(by_label[OUTSIDE], outside)
    assert np.array_equal(by_label["500 to 2,000 bp"], ~outside & (distance >= 500) & (distance < 2_000))
    assert np.array_equal(by_label["20,000 bp and more"], ~outside & (distance >= 20_000))


def test_recombination_quartiles() -> None:
    genetic_map = GeneticMap(np.array([1, 500_000, 1_000_000]), np.array([0.0, 0.1, 5.1]))
    position = np.arange(100_000, 900_000, 1_000)
    rate = recombination_rate(position, genetic_map)
    assert rate[0] == pytest.approx(0.2, rel=1e-4)
    assert rate[-1] == pytest.approx(10, rel=1e-4)
    strata = recombination_strata(position, genetic_map, 2)
    assert (sum(stratum.sites.astype(int) for stratum in strata) == 1).all()
    lowest = [rate[stratum.sites].max() for stratum in strata[:-1]]
    highest = [rate[stratum.sites].min() for stratum in strata[1:]]
    assert all(low <= high for low, high in zip(lowest, highest, strict=True))


def test_uneven_rates_make_four_equal_strata() -> None:
    rng = np.random.default_rng(3)
    points = np.arange(1, 2_000_000, 10_000)
    genetic_map = GeneticMap(points, np.cumsum(rng.lognormal(sigma=1.5, size=len(points))))
    strata = recombination_strata(np.sort(rng.integers(1, 2_000_000, 400)), genetic_map, 2)
    assert [int(stratum.sites.sum()) for stratum in strata] == [100, 100, 100, 100]


def test_one_rate_is_one_stratum() -> None:
    (only,) = recombination_strata(np.arange(1, 100), GeneticMap.constant(0.5), 2)
    assert only.sites.all()


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
    behind = cell.below("ours")
    assert behind is not None
    assert behind[0] == "Minimac4"
    assert behind[1] == pytest.approx(0.01)
    assert cell.below("best") is None
    assert Cell("d", "l", "all", 1, 1, r2 | {"ours": float("nan")}).below("ours") is None
