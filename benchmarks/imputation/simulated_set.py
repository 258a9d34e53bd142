"""Simulated data sets with the files that the real ones have: panel, target, truth, map and ancestry.

The history is that of Browning et al. 2018 (PLoS Genet. 14:e1007385): Africa, Europe, East Asia and a
recently admixed American population. No model of this repository is trained on it.
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

POPULATIONS = ("AFR", "EUR", "ASIA", "ADMIX")
CONTIG = "1"
MUTATION_RATE = 2.36e-8  # the one by which the sizes of these populations were estimated
MAP_STEP = 2_000  # bp between changes of the recombination rate
MAP_SPREAD = 1.5  # standard deviation of its logarithm: most of the recombination is in a few places
ARRAY_MIN_FREQUENCY = 0.02
REF, ALT = "A", "G"


@dataclass(frozen=True)
class History:
    """What is simulated: everything that panels and targets are taken from."""

    people: int  # of all populations together, panel and target
    length: int = 300_000
    centimorgans: float = 0.05
    seed: int = 1


@dataclass(frozen=True)
class Sizes:
    """What is taken from a history."""

    panel_haplotypes: int = 5_000
    target_haplotypes: int = 500
    typed_sites: int = 150

    def people(self, conditions: Conditions = TEXTBOOK) -> int:
        """How many have to be simulated; each population's share is rounded up."""
        most = 4 if conditions.relatives else 1  # founders of a target's family
        return (self.panel_haplotypes + most * self.target_haplotypes) // 2 + 2 * len(POPULATIONS)


def demography() -> msprime.Demography:
    """Browning et al. 2018; sizes are of diploid people, times in generations."""
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
    for name in POPULATIONS:
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
    """Uneven rates of recombination with the history's total; the same for the same seed."""
    import msprime

    edges = np.unique(np.append(np.arange(0, history.length, MAP_STEP), history.length))
    rate = np.random.default_rng(history.seed).lognormal(sigma=MAP_SPREAD, size=len(edges) - 1)
    rate *= history.centimorgans / 100 / (rate * np.diff(edges)).sum()
    return msprime.RateMap(position=edges, rate=rate)


def simulate(history: History) -> tskit.TreeSequence:
    """Genealogies with mutations; equally many people of each population, at least as many as asked for."""
    import msprime

    per_population = -(-history.people // len(POPULATIONS))
    trees = msprime.sim_ancestry(
        samples=dict.fromkeys(POPULATIONS, per_population),
        demography=demography(),
        recombination_rate=rates_of(history),
        random_seed=history.seed,
    )
    model = msprime.BinaryMutationModel()
    return msprime.sim_mutations(trees, MUTATION_RATE, random_seed=history.seed, model=model)


def write_set(
    trees: tskit.TreeSequence,
    history: History,
    sizes: Sizes,
    folder: Path,
    conditions: Conditions = TEXTBOOK,
) -> None:
    """Write panel.bcf, target.phased.bcf, truth.bcf, genetic.map, samples.tsv and set.json.

    Without relatives larger panels hold the smaller ones, and so do targets: people of the panel are taken
    from one end of each population, those of the target from the other.
    """
    founders = _Founders(trees)
    cast = _cast(founders, history, sizes, conditions)
    array = set(_array(trees, sizes.typed_sites, history.seed).tolist())
    rates = rates_of(history)
    sites = _sites(trees, founders.nodes, array, rates)
    flaws_seed = history.seed if conditions.flaws else None
    counts = write_files(folder, sites, cast, CONTIG, history.length + 1, "msprime", flaws_seed)
    _write_map(folder / "genetic.map", rates)
    description = {"msprime": _version()}
    for part in (history, sizes, conditions):
        description |= dataclasses.asdict(part)
    (folder / "set.json").write_text(json.dumps(description | counts, indent=1) + "\n")


class _Founders:
    """People of each population, taken from either end; columns are numbered as they are taken."""

    def __init__(self, trees: tskit.TreeSequence) -> None:
        self._people = [
            deque(trees.samples(population=p).reshape(-1, 2).tolist()) for p in range(len(POPULATIONS))
        ]
        self._first = [0] * len(POPULATIONS)
        self.nodes: list[int] = []

    def take(self, population: int, *, last: bool) -> tuple[int, Person]:
        """The number of a person within the population, and the person."""
        people = self._people[population]
        if not people:
            raise SystemExit(f"more people of {POPULATIONS[population]} were asked for than were simulated")
        number = self._first[population] + (len(people) - 1 if last else 0)
        self._first[population] += not last
        self.nodes += people.pop() if last else people.popleft()
        return number, founder(len(self.nodes) - 2, len(self.nodes) - 1)


def _cast(founders: _Founders, history: History, sizes: Sizes, conditions: Conditions) -> Cast:
    """People in turns from all populations; relatives are the first of the panel."""
    cast = Cast(Group(), Group())
    rng = np.random.default_rng([history.seed, 5])
    n_panel, n_targets = sizes.panel_haplotypes // 2, sizes.target_haplotypes // 2
    for i, relation in enumerate(relations(n_targets, conditions.relatives, rng)):
        population = i % len(POPULATIONS)

        def further(population: int = population) -> Person:
            return founders.take(population, last=True)[1]

        number, first = founders.take(population, last=True)
        one = chain([first], iter(further, None))
        name = f"target_{POPULATIONS[population]}_{number}"
        add_family(cast, name, POPULATIONS[population], relation, one.__next__, history.centimorgans, rng)
    for i in range(n_panel - len(cast.panel.people)):
        population = i % len(POPULATIONS)
        number, person = founders.take(population, last=False)
        name = POPULATIONS[population]
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


def _write_map(path: Path, rates: msprime.RateMap) -> None:
    """PLINK form: chromosome, ID, cM, position."""
    points = zip(rates.get_cumulative_mass(rates.position) * 100, rates.position, strict=True)
    path.write_text("".join(f"{CONTIG} . {cM:.9f} {int(position) + 1}\n" for cM, position in points))


def _version() -> str:
    import msprime

    return msprime.__version__
