"""Simulated data sets with the files that the real ones have: panel, target, truth, map and ancestry.

The history is that of Browning et al. 2018 (PLoS Genet. 14:e1007385): Africa, Europe, East Asia and a
recently admixed American population. No model of this repository is trained on it.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.imputation.phased_bcf import PhasedBcfWriter

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


def write_set(trees: tskit.TreeSequence, history: History, sizes: Sizes, folder: Path) -> None:
    """Write panel.bcf, target.phased.bcf, truth.bcf, genetic.map, samples.tsv and set.json.

    Larger panels hold the smaller ones, and so do targets: people of the panel are taken from one end of each
    population, those of the target from the other.
    """
    panel, target = _people(trees, sizes.panel_haplotypes // 2, sizes.target_haplotypes // 2)
    names = (
        [f"panel_{POPULATIONS[p]}_{i}" for p, i in panel],
        [f"target_{POPULATIONS[p]}_{i}" for p, i in target],
    )
    nodes = [_nodes(trees, people) for people in (panel, target)]
    split = len(nodes[0])
    array = set(_array(trees, sizes.typed_sites, history.seed).tolist())
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / name for name in ("panel.bcf", "truth.bcf", "target.phased.bcf")]
    with ExitStack() as stack:
        writers = [
            stack.enter_context(PhasedBcfWriter(path, CONTIG, history.length + 1, of_file, "msprime"))
            for path, of_file in zip(files, (names[0], names[1], names[1]), strict=True)
        ]
        for site, position, alleles in _sites(trees, np.concatenate(nodes)):
            of_panel = alleles[:split]
            if of_panel.min() == of_panel.max():
                continue  # a panel lists what varies among its people
            chosen = writers if site in array else writers[:2]
            for writer, its in zip(chosen, (of_panel, alleles[split:], alleles[split:]), strict=False):
                writer.write(position, REF, ALT, its)
    for path in files:
        subprocess.run(["bcftools", "index", "-f", path], check=True)
    _write_map(folder / "genetic.map", rates_of(history))
    rows = [
        f"{name}\t{POPULATIONS[p]}\t{POPULATIONS[p]}\n"
        for people, of_file in zip((panel, target), names, strict=True)
        for (p, _), name in zip(people, of_file, strict=True)
    ]
    (folder / "samples.tsv").write_text("sample\tpopulation\tsuperpopulation\n" + "".join(rows))
    counts = dict(
        zip(("panel_sites", "truth_sites", "target_sites"), (w.sites for w in writers), strict=True)
    )
    description = dataclasses.asdict(history) | dataclasses.asdict(sizes) | counts | {"msprime": _version()}
    (folder / "set.json").write_text(json.dumps(description, indent=1) + "\n")


Person = tuple[int, int]  # population, number within it


def _people(trees: tskit.TreeSequence, n_panel: int, n_target: int) -> tuple[list[Person], list[Person]]:
    """People in turns from all populations: of the panel from the first on, of the target from the last."""
    k = len(POPULATIONS)
    per_population = trees.num_samples // 2 // k
    if -(-n_panel // k) + -(-n_target // k) > per_population:
        raise SystemExit(f"{n_panel} and {n_target} people were asked for, {per_population * k} simulated")
    panel = [(i % k, i // k) for i in range(n_panel)]
    target = [(i % k, per_population - 1 - i // k) for i in range(n_target)]
    return panel, target


def _nodes(trees: tskit.TreeSequence, people: list[Person]) -> np.ndarray:
    """The sample nodes of the people, two each."""
    of_population = [trees.samples(population=p).reshape(-1, 2) for p in range(len(POPULATIONS))]
    return np.concatenate([of_population[p][i] for p, i in people])


def _sites(trees: tskit.TreeSequence, nodes: np.ndarray) -> Iterator[tuple[int, int, np.ndarray]]:
    """Site number, 1-based position and alleles of the nodes."""
    for variant in trees.variants(samples=nodes, isolated_as_missing=False):
        yield variant.site.id, int(variant.site.position) + 1, variant.genotypes.astype(np.int8)


def _array(trees: tskit.TreeSequence, n_sites: int, seed: int) -> np.ndarray:
    """Numbers of typed sites: common, spread evenly over the segment, drawn by heterozygosity.

    By the frequencies among all people, so that panels and targets of all sizes share their arrays.
    """
    rng = np.random.default_rng(seed)
    frequency = np.array([variant.genotypes.mean() for variant in trees.variants()])
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
