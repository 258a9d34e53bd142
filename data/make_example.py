#!/usr/bin/env python3
"""Simulate the example files: a small reference panel, array data of people outside it, and the truth.

usage: python data/make_example.py [--out FOLDER] [--seed N] [--length BP]

People of three continents after an out-of-Africa history, one chromosome segment with recombination
hotspots. The same arguments and the same msprime give the same bytes. Needs msprime: pip install
'spinimpute[train]'.
"""

import argparse
from pathlib import Path

import msprime
import numpy as np

from spinimpute.vcf.bgzf import BgzfWriter

CHROM = "20"
GENERATION_YEARS = 25.0
POPULATIONS = ("AFR", "EUR", "EAS")
PANEL_PEOPLE = {"AFR": 40, "EUR": 70, "EAS": 40}
TARGET_PEOPLE = {"AFR": 5, "EUR": 10, "EAS": 5}
MUTATION_RATE = 1.4e-8  # per bp and generation
MEAN_RECOMBINATION_RATE = 1.2e-8
HOTSPOT_SHARE = 0.7  # of all recombination
HOTSPOT_SPACING = 50_000  # bp, on average
HOTSPOT_WIDTH = 2_000  # bp
TRANSITION_BIAS = 4.0  # HKY kappa: about two transitions for each transversion, as in human genomes
BASE_FREQUENCIES = (0.3, 0.2, 0.2, 0.3)  # A, C, G, T
ARRAY_MIN_FREQUENCY = 0.03
ARRAY_SITES_PER_MB = 250


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).parent / "example", help="folder to write into"
    )
    parser.add_argument(
        "--seed", type=int, default=20, help="of map, ancestry, mutations and array (default: 20)"
    )
    parser.add_argument("--length", type=int, default=1_000_000, help="bp (default: 1000000)")
    return parser.parse_args()


def out_of_africa() -> msprime.Demography:
    """Africans, Europeans and East Asians: two bottlenecks, growth outside Africa, a little migration."""
    split_of_eurasia = 23_000 / GENERATION_YEARS
    out_of_africa_time = 65_000 / GENERATION_YEARS
    ancient_growth = 250_000 / GENERATION_YEARS
    demography = msprime.Demography()
    demography.add_population(name="AFR", initial_size=15_000)
    demography.add_population(name="EUR", initial_size=40_000, growth_rate=0.0040)
    demography.add_population(name="EAS", initial_size=45_000, growth_rate=0.0045)
    demography.add_population(name="OUT", initial_size=2_000)
    demography.add_population(name="ANC", initial_size=15_000)
    demography.set_symmetric_migration_rate(["AFR", "EUR"], 2e-5)
    demography.set_symmetric_migration_rate(["AFR", "EAS"], 1e-5)
    demography.set_symmetric_migration_rate(["EUR", "EAS"], 5e-5)
    demography.add_population_split(time=split_of_eurasia, derived=["EUR", "EAS"], ancestral="OUT")
    demography.add_population_split(time=out_of_africa_time, derived=["AFR", "OUT"], ancestral="ANC")
    demography.add_population_parameters_change(time=ancient_growth, population="ANC", initial_size=8_000)
    return demography


def recombination_map(length: int, rng: np.random.Generator) -> msprime.RateMap:
    """A low, uneven background with narrow hotspots of very different heat."""
    n_hotspots = max(1, length // HOTSPOT_SPACING)
    starts = np.sort(rng.choice(length // HOTSPOT_WIDTH - 1, n_hotspots, replace=False)) * HOTSPOT_WIDTH
    edges = np.unique(np.concatenate([[0, length], starts, starts + HOTSPOT_WIDTH]))
    widths = np.diff(edges)
    hot = np.isin(edges[:-1], starts)
    heat = np.where(hot, rng.gamma(0.8, size=len(widths)), rng.gamma(4.0, size=len(widths))) * widths
    total = MEAN_RECOMBINATION_RATE * length
    heat[hot] *= HOTSPOT_SHARE * total / heat[hot].sum()
    heat[~hot] *= (1 - HOTSPOT_SHARE) * total / heat[~hot].sum()
    return msprime.RateMap(position=edges.astype(float), rate=heat / widths)


def simulate(length: int, seed: int) -> tuple[msprime.RateMap, np.ndarray, np.ndarray, np.ndarray]:
    """Map, positions (n_sites,), bases (n_sites, 2) REF and ALT, alleles int8 (n_sites, n_haplotypes).

    Biallelic sites only; haplotypes 2i and 2i + 1 are of person i, panel people first.
    """
    rng = np.random.default_rng(seed)
    rates = recombination_map(length, rng)
    people = [
        msprime.SampleSet(n, population=name)
        for group in (PANEL_PEOPLE, TARGET_PEOPLE)
        for name, n in group.items()
    ]
    ancestry = msprime.sim_ancestry(
        samples=people, demography=out_of_africa(), recombination_rate=rates, random_seed=seed + 1
    )
    model = msprime.HKY(kappa=TRANSITION_BIAS, equilibrium_frequencies=BASE_FREQUENCIES)
    mutated = msprime.sim_mutations(ancestry, rate=MUTATION_RATE, model=model, random_seed=seed + 2)
    positions, bases, alleles = [], [], []
    for variant in mutated.variants():
        states = [state for state in variant.alleles if state is not None]
        seen = np.unique(variant.genotypes)
        if len(states) == 2 and len(seen) == 2 and variant.site.position >= 1:  # VCF has no position 0
            positions.append(int(variant.site.position))
            bases.append(states)
            alleles.append(variant.genotypes.astype(np.int8))
    return rates, np.array(positions), np.array(bases), np.stack(alleles)


def choose_array(
    positions: np.ndarray, panel_alleles: np.ndarray, length: int, rng: np.random.Generator
) -> np.ndarray:
    """Indices of the array's sites: common in the panel, one from each of as many slices as sites are wanted.

    Arrays are made to tag common variants evenly, so a slice's site is drawn by its heterozygosity.
    """
    frequency = panel_alleles.mean(1)
    minor = np.minimum(frequency, 1 - frequency)
    slices = positions * (length * ARRAY_SITES_PER_MB // 1_000_000) // (length + 1)
    chosen = []
    for one in np.unique(slices):
        candidates = np.flatnonzero((slices == one) & (minor >= ARRAY_MIN_FREQUENCY))
        if len(candidates):
            weight = frequency[candidates] * (1 - frequency[candidates])
            chosen.append(rng.choice(candidates, p=weight / weight.sum()))
    return np.array(chosen)


def write_vcf(
    path: Path,
    source: str,
    length: int,
    samples: list[str],
    positions: np.ndarray,
    bases: np.ndarray,
    alleles: np.ndarray,
) -> None:
    """A phased VCF, compressed; alleles int8 (n_sites, 2 * n_samples)."""
    lines = [
        "##fileformat=VCFv4.3",
        f"##source={source}",
        f"##contig=<ID={CHROM},length={length}>",
        '##FILTER=<ID=PASS,Description="All filters passed">',
        '##FORMAT=<ID=GT,Number=1,Type=String,Description="Phased genotype">',
        "\t".join(["#CHROM", "POS", "ID", "REF", "ALT", "QUAL", "FILTER", "INFO", "FORMAT", *samples]),
    ]
    calls = np.array([["0|0", "0|1"], ["1|0", "1|1"]])[alleles[:, ::2], alleles[:, 1::2]]
    for position, (ref, alt), of_site in zip(positions, bases, calls, strict=True):
        site = [CHROM, str(position), f"sim:{position}:{ref}:{alt}", ref, alt, ".", "PASS", ".", "GT"]
        lines.append("\t".join([*site, *of_site]))
    with path.open("wb") as file:
        writer = BgzfWriter(file)
        writer.write(("\n".join(lines) + "\n").encode())
        writer.finish()


def write_map(path: Path, rates: msprime.RateMap) -> None:
    """The simulated map in PLINK form: chromosome, ID, cM, position."""
    rows = [
        f"{CHROM} . {100 * rates.get_cumulative_mass(edge):.8f} {max(1, int(edge))}"
        for edge in rates.position
    ]
    path.write_text("\n".join(rows) + "\n")


def main() -> None:
    arguments = parse_arguments()
    length, seed = arguments.length, arguments.seed
    rates, positions, bases, alleles = simulate(length, seed)
    n_panel = 2 * sum(PANEL_PEOPLE.values())
    in_panel = np.ptp(alleles[:, :n_panel], axis=1) > 0
    positions, bases, alleles = positions[in_panel], bases[in_panel], alleles[in_panel]
    panel, truth = alleles[:, :n_panel], alleles[:, n_panel:]
    array = choose_array(positions, panel, length, np.random.default_rng(seed + 3))

    panel_names = [f"panel_{name}_{i:03}" for name, n in PANEL_PEOPLE.items() for i in range(1, n + 1)]
    target_names = [f"target_{name}_{i:02}" for name, n in TARGET_PEOPLE.items() for i in range(1, n + 1)]
    source = f"data/make_example.py --seed {seed} --length {length}, msprime {msprime.__version__}"
    out = arguments.out
    out.mkdir(parents=True, exist_ok=True)
    write_vcf(out / "panel.vcf.gz", source, length, panel_names, positions, bases, panel)
    write_vcf(out / "truth.vcf.gz", source, length, target_names, positions, bases, truth)
    write_vcf(
        out / "target.vcf.gz", source, length, target_names, positions[array], bases[array], truth[array]
    )
    write_map(out / "genetic.map", rates)
    (out / "array.txt").write_text("".join(f"{CHROM}\t{position}\n" for position in positions[array]))
    print(
        f"seed {seed}: {len(positions):,} sites ({(panel.sum(1) == 1).sum():,} singletons), "
        f"{len(array):,} on the array, {len(panel_names)} people in the panel, {len(target_names)} targets, "
        f"{100 * rates.get_cumulative_mass(length):.3f} cM -> {out}"
    )


if __name__ == "__main__":
    main()
