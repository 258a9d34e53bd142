"""A small simulated genome: 22 chromosomes and X, with a panel for each chromosome and one target file."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import numpy as np

X_START = 5_000_000  # behind the pseudo-autosomal region
X_LENGTH = 155_270_560
EFFECTIVE_PEOPLE, RATE = 10_000, 1.25e-8  # per base pair and generation, of recombination and of mutation
TYPED_MAF, ONE_OF = 0.02, 6  # typed is one of so many sites that are common


@dataclass(frozen=True)
class Sizes:
    """Sizes of the simulation. longest: length of chromosome 1 in base pairs; chromosome 22 has a third."""

    panel_people: int
    target_people: int
    longest: int
    chromosomes: int
    seed: int

    @property
    def lengths(self) -> dict[str, int]:
        """Lengths by chromosome; X is about as long as chromosome 8."""
        numbers = range(self.chromosomes - 1)
        found = {str(i + 1): round(self.longest * (1 - i / 21 * 2 / 3)) for i in numbers}
        return {**found, "X": round(self.longest * 0.78)}


def simulate(sizes: Sizes, folder: Path) -> dict[str, int]:
    """Write panel.CHROMOSOME.vcf and target.vcf.gz with its index. Return numbers of sites by chromosome."""
    n_sites: dict[str, int] = {}
    target = folder / "target.vcf"
    with target.open("w") as of_target:
        _write_head(of_target, "t", sizes.target_people, sizes)
        for number, (chrom, length) in enumerate(sizes.lengths.items()):
            n_sites[chrom] = 0
            with (folder / f"panel.{chrom}.vcf").open("w") as of_panel:
                _write_head(of_panel, "p", sizes.panel_people, sizes)
                n_common = 0
                for position, alleles_Q in _sites(sizes, length, sizes.seed * 100 + number):
                    at = position + (X_START if chrom == "X" else 0)
                    panel_Q, target_Q = np.split(alleles_Q, [2 * sizes.panel_people])
                    frequency = panel_Q.mean()
                    if not 0 < frequency < 1:
                        continue
                    n_sites[chrom] += 1
                    _write(of_panel, chrom, at, panel_Q)
                    if TYPED_MAF <= frequency <= 1 - TYPED_MAF:
                        n_common += 1
                        if n_common % ONE_OF == 0:
                            _write(of_target, chrom, at, target_Q)
    packed = folder / "target.vcf.gz"
    subprocess.run(["bcftools", "view", "-O", "z", "-o", packed, target], check=True)
    subprocess.run(["bcftools", "index", packed], check=True)
    target.unlink()
    return n_sites


def _sites(sizes: Sizes, length: int, seed: int) -> Iterator[tuple[int, np.ndarray]]:
    """Positions, increasing, and the alleles of all haplotypes."""
    import msprime

    trees = msprime.sim_ancestry(
        sizes.panel_people + sizes.target_people,
        sequence_length=length,
        recombination_rate=RATE,
        population_size=EFFECTIVE_PEOPLE,
        random_seed=seed,
    )
    model = msprime.BinaryMutationModel()
    for variant in msprime.sim_mutations(trees, RATE, random_seed=seed, model=model).variants():
        yield int(variant.site.position) + 1, variant.genotypes.astype(np.uint8)


def _write_head(file: TextIO, prefix: str, n_people: int, sizes: Sizes) -> None:
    lines = ["##fileformat=VCFv4.2"]
    for chrom, length in sizes.lengths.items():
        lines.append(f"##contig=<ID={chrom},length={X_LENGTH if chrom == 'X' else length + 1}>")
    lines.append('##FORMAT=<ID=GT,Number=1,Type=String,Description="Genotype">')
    names = [f"{prefix}{i}" for i in range(n_people)]
    columns = ["#CHROM", "POS", "ID", "REF", "ALT", "QUAL", "FILTER", "INFO", "FORMAT", *names]
    file.write("\n".join([*lines, "\t".join(columns)]) + "\n")


def _write(file: TextIO, chrom: str, position: int, alleles_Q: np.ndarray) -> None:
    """On X every second person is a man."""
    first, second = ("".join(map(str, alleles_Q[side::2].tolist())) for side in (0, 1))
    calls = [f"{a}|{b}" for a, b in zip(first, second, strict=True)]
    if chrom == "X":
        calls[::2] = first[::2]
    file.write("\t".join([chrom, str(position), ".", "A", "G", ".", "PASS", ".", "GT", *calls]) + "\n")
