"""A simulated panel of very many people with mostly rare variants, as a phased BCF with its index."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np

from benchmarks.imputation.phased_bcf import PhasedBcfWriter

CONTIG = "1"
MUTATION_RATE = 1.25e-8
RECOMBINATION_RATE = 1e-8
ANCESTRAL_SIZE = 10_000
GROWTH = 0.02  # a generation,
GROWTH_TIME = 250  # for so many generations: 1.5 million people today


def write_panel(path: Path, n_haplotypes: int, length: int, seed: int) -> tuple[int, int]:
    """Write the BCF. Return the number of sites, and the number of sites with fewer than 1 copy in 1,000.

    With the same version of msprime, equal arguments give equal files.
    """
    import msprime

    history = msprime.Demography()
    history.add_population(name="A", initial_size=ANCESTRAL_SIZE * np.exp(GROWTH * GROWTH_TIME))
    history.populations[0].growth_rate = GROWTH
    history.add_population_parameters_change(
        time=GROWTH_TIME, initial_size=ANCESTRAL_SIZE, growth_rate=0, population="A"
    )
    trees = msprime.sim_ancestry(
        {"A": n_haplotypes // 2},
        demography=history,
        sequence_length=length,
        recombination_rate=RECOMBINATION_RATE,
        random_seed=seed,
    )
    model = msprime.BinaryMutationModel()
    trees = msprime.sim_mutations(trees, MUTATION_RATE, random_seed=seed, model=model)
    names = [f"s{i}" for i in range(n_haplotypes // 2)]
    n_rare = 0
    with PhasedBcfWriter(path, CONTIG, length + 1, names, "msprime") as writer:
        for variant in trees.variants(copy=False):
            alleles = variant.genotypes.astype(np.int8)
            count = int(np.count_nonzero(alleles))
            if 0 < count < n_haplotypes:
                writer.write(int(variant.site.position) + 1, "A", "G", alleles)
                n_rare += min(count, n_haplotypes - count) * 1_000 < n_haplotypes
        n_sites = writer.sites
    subprocess.run(["bcftools", "index", "-f", path], check=True)
    return n_sites, n_rare
