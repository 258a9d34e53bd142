"""Simulated data sets with the same files as the real sets: panel, target, truth, map and ancestry.

There are two histories. `people` is that of Browning et al. 2018 (PLoS Genet. 14:e1007385): Africa, Europe,
East Asia and a recently admixed American population. `cattle` is that of Holstein cattle by MacLeod et al.
2013 (Mol. Biol. Evol. 30:2209, table S1): one large population that has shrunk to 90 animals. No model of
this repository is trained on either.
"""

from __future__ import annotations

import dataclasses
import json
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.imputation.cast import (
    TEXTBOOK,
    UNRELATED,
    Cast,
    Conditions,
    Group,
    Site,
    add_family,
    relations,
    write_files,
)
from spinimpute.training.pedigrees import Person, founder

if TYPE_CHECKING:
    import msprime
    import tskit  # type: ignore[import-untyped]

POPULATIONS = {"people": ("AFR", "EUR", "ASIA", "ADMIX"), "cattle": ("HOLSTEIN",)}
CONTIG = "1"
# The rates by which the sizes of these populations were estimated.
MUTATION_RATE = {"people": 2.36e-8, "cattle": 0.94e-8}
# Cattle: generations ago until which the population had a size, and the size.
CATTLE_SIZES = (
    *((3, 90), (6, 120), (12, 250), (18, 350), (24, 1_000), (154, 1_500), (454, 2_000), (654, 2_500)),
    *((1_754, 3_500), (2_354, 7_000), (3_354, 10_000), (33_154, 17_000), (np.inf, 62_000)),
)
MAP_STEP = 2_000  # bp between changes of the recombination rate
MAP_SPREAD = 1.5  # standard deviation of its logarithm: most of the recombination is in a few places
ARRAY_MIN_FREQUENCY = 0.02
REF, ALT = "A", "G"


@dataclass(frozen=True)
class History:
    """A simulated population history, from which panels and targets are drawn."""

    people: int  # of all populations together, panel and target
    length: int = 300_000
    centimorgans: float = 0.05
    seed: int = 1
    model: str = "people"

    @property
    def populations(self) -> tuple[str, ...]:
        """Names of the populations."""
        return POPULATIONS[self.model]


@dataclass(frozen=True)
class Sizes:
    """Numbers of people that are drawn from a history."""

    panel_haplotypes: int = 5_000
    target_haplotypes: int = 500
    typed_sites: int = 150

    def people(self, conditions: Conditions = TEXTBOOK) -> int:
        """Return the number of people to simulate; each population's share is rounded up."""
        most = 4 if conditions.relatives else 1  # founders of a target's family
        rounding = 2 * max(map(len, POPULATIONS.values()))
        return (self.panel_haplotypes + most * self.target_haplotypes) // 2 + rounding


def demography(name: str) -> msprime.Demography:
    """Return the history with this name. Sizes are numbers of diploid individuals, times are generations."""
    return _people() if name == "people" else _cattle()


def _cattle() -> msprime.Demography:
    import msprime

    (end, size), *earlier = CATTLE_SIZES
    model = msprime.Demography()
    model.add_population(name="HOLSTEIN", initial_size=size)
    for next_end, size in earlier:
        model.add_population_parameters_change(time=end, initial_size=size)
        end = next_end
    return model


def _people() -> msprime.Demography:
    import msprime

    model = msprime.Demography()
    growth = {"AFR": 0.0, "EUR": 0.0038, "ASIA": 0.0048, "ADMIX": 0.05}
    of_ooa_split, of_eurasian_split, of_admixture = 2_040, 920, 12
    size = {
        "AFR": 14_474.0,
        "EUR": 1_032 * np.exp(growth["EUR"] * of_eurasian_split),
        "ASIA": 554 * np.exp(growth["ASIA"] * of_eurasian_split),
        "ADMIX": 30_000 * np.exp(growth["ADMIX"] * of_admixture),
    }
    for name in POPULATIONS["people"]:
        # AFR lives on as the ancestor of the others, which msprime must be told
        model.add_population(
            name=name, initial_size=size[name], growth_rate=growth[name], initially_active=True
        )
    model.add_population(name="OOA", initial_size=1_861)
    model.set_symmetric_migration_rate(["AFR", "EUR"], 2.5e-5)
    model.set_symmetric_migration_rate(["AFR", "ASIA"], 0.78e-5)
    model.set_symmetric_migration_rate(["EUR", "ASIA"], 3.11e-5)
    model.add_admixture(
        time=of_admixture,
        derived="ADMIX",
        ancestral=["AFR", "EUR", "ASIA"],
        proportions=[1 / 6, 2 / 6, 3 / 6],
    )
    model.add_population_split(time=of_eurasian_split, derived=["EUR", "ASIA"], ancestral="OOA")
    model.add_symmetric_migration_rate_change(time=of_eurasian_split, populations=["AFR", "OOA"], rate=15e-5)
    model.add_population_split(time=of_ooa_split, derived=["OOA"], ancestral="AFR")
    model.add_population_parameters_change(time=5_920, population="AFR", initial_size=7_310)
    return model


def rates_of(history: History) -> msprime.RateMap:
    """Return uneven recombination rates with the history's total rate; equal seeds give equal rates."""
    import msprime

    edges = np.unique(np.append(np.arange(0, history.length, MAP_STEP), history.length))
    rate = np.random.default_rng(history.seed).lognormal(sigma=MAP_SPREAD, size=len(edges) - 1)
    rate *= history.centimorgans / 100 / (rate * np.diff(edges)).sum()
    return msprime.RateMap(position=edges, rate=rate)


def simulate_genealogies(history: History) -> tskit.TreeSequence:
    """Simulate genealogies of the same number of people of each population (at least as many as needed)."""
    import msprime

    per_population = -(-history.people // len(history.populations))
    return msprime.sim_ancestry(
        samples=dict.fromkeys(history.populations, per_population),
        demography=demography(history.model),
        recombination_rate=rates_of(history),
        random_seed=history.seed,
    )


def simulate(history: History) -> tskit.TreeSequence:
    """Simulate genealogies with mutations that turn one allele into another."""
    import msprime

    trees, model = simulate_genealogies(history), msprime.BinaryMutationModel()
    return msprime.sim_mutations(trees, MUTATION_RATE[history.model], random_seed=history.seed, model=model)


def write_set(
    trees: tskit.TreeSequence, history: History, sizes: Sizes, folder: Path, conditions: Conditions = TEXTBOOK
) -> None:
    """Write panel.bcf, target.phased.bcf, truth.bcf, genetic.map, samples.tsv and set.json.

    Without relatives, larger panels contain the smaller panels, and larger targets the smaller targets. The
    panel's people are taken from one end of each population, the target's people from the other end.
    """
    founders = _Founders(trees, history.populations)
    cast = _cast(founders, history, sizes, conditions)
    array = set(_array(trees, sizes.typed_sites, history.seed).tolist())
    rates = rates_of(history)
    sites = _sites(trees, founders.nodes, array, rates)
    flaws_seed = history.seed if conditions.flaws else None
    counts = write_files(folder, sites, cast, CONTIG, history.length + 1, "msprime", flaws_seed)
    write_map(folder / "genetic.map", rates)
    description = {"msprime": _version()}
    for part in (history, sizes, conditions):
        description |= dataclasses.asdict(part)
    (folder / "set.json").write_text(json.dumps(description | counts, indent=1) + "\n")


class _Founders:
    """People of each population, taken from either end; columns are numbered as they are taken."""

    def __init__(self, trees: tskit.TreeSequence, populations: tuple[str, ...]) -> None:
        self._people = [
            deque(trees.samples(population=p).reshape(-1, 2).tolist()) for p in range(len(populations))
        ]
        self._populations = populations
        self._first = [0] * len(populations)
        self.nodes: list[int] = []

    def take(self, population: int, *, last: bool) -> tuple[int, Person]:
        """The number of a person within the population, and the person."""
        people = self._people[population]
        if not people:
            name = self._populations[population]
            raise SystemExit(f"more people of {name} were asked for than were simulated")
        number = self._first[population] + (len(people) - 1 if last else 0)
        self._first[population] += not last
        self.nodes += people.pop() if last else people.popleft()
        return number, founder(len(self.nodes) - 2, len(self.nodes) - 1)


def _cast(founders: _Founders, history: History, sizes: Sizes, conditions: Conditions) -> Cast:
    """People in turns from all populations; relatives are the first of the panel."""
    cast, populations = Cast(Group(), Group()), history.populations
    rng = np.random.default_rng([history.seed, 5])
    n_panel, n_targets = sizes.panel_haplotypes // 2, sizes.target_haplotypes // 2
    for i, relation in enumerate(relations(n_targets, conditions.relatives, rng)):
        population = i % len(populations)

        def further(population: int = population) -> Person:
            return founders.take(population, last=True)[1]

        number, first = founders.take(population, last=True)
        one = chain([first], iter(further, None))
        name = f"target_{populations[population]}_{number}"
        add_family(cast, name, populations[population], relation, one.__next__, history.centimorgans, rng)
    for i in range(n_panel - len(cast.panel.people)):
        population = i % len(populations)
        number, person = founders.take(population, last=False)
        name = populations[population]
        cast.panel.add(f"panel_{name}_{number}", person, name, UNRELATED)
    return cast


def _sites(
    trees: tskit.TreeSequence, nodes: list[int], array: set[int], rates: msprime.RateMap
) -> Iterator[Site]:
    """All sites with the alleles of the nodes."""
    cM = rates.get_cumulative_mass(trees.sites_position) * 100
    for variant in trees.variants(samples=nodes, isolated_as_missing=False):
        number = variant.site.id
        position = int(variant.site.position) + 1
        yield Site(position, REF, ALT, cM[number], number in array, variant.genotypes.astype(np.int8))


def _frequencies(trees: tskit.TreeSequence) -> np.ndarray:
    """Of allele 1 among all people: every mutation turns the allele of those below it."""
    count = np.zeros(trees.num_sites)
    for tree in trees.trees():
        for site in tree.sites():
            for mutation in site.mutations:
                below = tree.num_samples(mutation.node)
                count[site.id] += below if mutation.derived_state == "1" else -below
    return count / trees.num_samples


def _array(trees: tskit.TreeSequence, n_sites: int, seed: int) -> np.ndarray:
    """Numbers of typed sites: common, spread evenly over the segment, drawn by heterozygosity.

    By the frequencies among all people, so that panels and targets of all sizes share their arrays.
    """
    rng = np.random.default_rng(seed)
    frequency = _frequencies(trees)
    heterozygosity = frequency * (1 - frequency)
    usable = np.minimum(frequency, 1 - frequency) >= ARRAY_MIN_FREQUENCY
    if usable.sum() < n_sites:
        raise SystemExit(f"{n_sites} typed sites were asked for, {usable.sum()} sites are common enough")
    # as many slices of common sites as wanted sites: where such sites are dense, so is the array
    slices = np.array_split(np.flatnonzero(usable), n_sites)
    weights = [heterozygosity[of_slice] for of_slice in slices]
    return np.array(
        [rng.choice(sites, p=weight / weight.sum()) for sites, weight in zip(slices, weights, strict=True)]
    )


def write_map(path: Path, rates: msprime.RateMap) -> None:
    """PLINK form: chromosome, ID, cM, position."""
    points = zip(rates.get_cumulative_mass(rates.position) * 100, rates.position, strict=True)
    path.write_text("".join(f"{CONTIG} . {cM:.9f} {int(position) + 1}\n" for cM, position in points))


def _version() -> str:
    import msprime

    return msprime.__version__
