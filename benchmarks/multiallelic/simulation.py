"""A simulated panel and target with multi-allelic SNPs, structural variants and repeats.

`benchmarks.imputation.simulated_set` simulates the genealogies. Some positions mutate much faster than
others, so that one position often has several mutations:

- SNPs mutate to any other base (Jukes & Cantor 1969). Positions of `HOT_SHARE` of the sequence mutate
  `HOT_FACTOR` times faster.
- Of the slow SNPs, `SHARE_SV` become a deletion (`<DEL>`), and as many an insertion (`<INS>`).
- Repeats (STRs) are single positions with a high rate. Each mutation adds or removes one unit.

Axes: H haplotypes, panel first.
"""

from __future__ import annotations

import heapq
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from benchmarks.imputation.simulated_set import (
    CONTIG,
    MUTATION_RATE,
    History,
    rates_of,
    simulate_genealogies,
    write_map,
)

if TYPE_CHECKING:
    import tskit  # type: ignore[import-untyped]

HOT_SHARE, HOT_FACTOR = 0.02, 40.0
REPEAT_SHARE, REPEAT_RATE = 1 / 5_000, 1e-4  # STRs a bp, and their mutations a generation
REPEAT_UNIT, MIN_UNITS, MAX_UNITS = "CA", 1, 40
SHARE_SV = 0.05
SV_LENGTHS = (50, 5_000)
TYPED_MIN_FREQUENCY = 0.02
SNP, MULTIALLELIC, DELETION, INSERTION, REPEAT = "SNP", "multi-allelic SNP", "deletion", "insertion", "STR"


class Record(NamedTuple):
    """A record with the alleles of all people."""

    position: int
    kind: str
    alleles: tuple[str, ...]  # REF and ALTs
    info: str
    number_H: np.ndarray  # int8, number of each haplotype's allele


@dataclass(frozen=True)
class Files:
    """The files of a simulated set."""

    panel: Path
    target: Path
    truth: Path
    genetic_map: Path
    kinds: dict[tuple[int, str], str]  # kind of each ALT, by position and ALT
    frequency: dict[tuple[int, str], float]  # frequency of each ALT in the panel


def simulate_records(history: History) -> Iterator[Record]:
    """Yield the records that vary among all people, by position."""
    trees = simulate_genealogies(history)
    rng = np.random.default_rng([history.seed, 1])
    hot, repeat = rng.random(history.length) < HOT_SHARE, rng.random(history.length) < REPEAT_SHARE
    slow = MUTATION_RATE[history.model]
    bases = _mutate(trees, np.where(repeat, 0, np.where(hot, slow * HOT_FACTOR, slow)), "JC69", history.seed)
    units = _mutate(trees, np.where(repeat, REPEAT_RATE, 0), "SMM", history.seed + 1)
    streams = _base_records(bases, hot, rng), _repeat_records(units)
    yield from heapq.merge(*streams, key=lambda record: record.position)


def _mutate(trees: tskit.TreeSequence, rate: np.ndarray, model: str, seed: int) -> tskit.TreeSequence:
    import msprime

    models = {"JC69": msprime.JC69, "SMM": lambda: msprime.SMM(lo=MIN_UNITS, hi=MAX_UNITS)}
    starts = np.flatnonzero(np.diff(rate, prepend=-1))  # fewer intervals are faster
    rates = msprime.RateMap(position=np.append(starts, len(rate)), rate=rate[starts])
    return msprime.sim_mutations(
        trees, rates, random_seed=seed, model=models[model](), record_provenance=False
    )


def _present(variant: tskit.Variant) -> tuple[list[str], np.ndarray]:
    """Return the ancestral allele and the other alleles that people have, and the numbers of the alleles."""
    present = np.bincount(variant.genotypes, minlength=len(variant.alleles)) > 0
    present[0] = True  # the ancestral allele
    number_H = (np.cumsum(present) - 1)[variant.genotypes].astype(np.int8)
    return [a for a, is_present in zip(variant.alleles, present, strict=True) if is_present], number_H


def _base_records(trees: tskit.TreeSequence, hot: np.ndarray, rng: np.random.Generator) -> Iterator[Record]:
    for variant in trees.variants(isolated_as_missing=False):
        alleles, number_H = _present(variant)
        position = int(variant.site.position) + 1
        draw, length = rng.random(), int(rng.integers(*SV_LENGTHS))
        if len(alleles) > 2:
            yield Record(position, MULTIALLELIC, tuple(alleles), ".", number_H)
        elif len(alleles) == 2 and (hot[position - 1] or draw > 2 * SHARE_SV):
            yield Record(position, SNP, tuple(alleles), ".", number_H)
        elif len(alleles) == 2 and draw < SHARE_SV:
            info = f"SVTYPE=DEL;SVLEN=-{length};END={position + length}"
            yield Record(position, DELETION, (alleles[0], "<DEL>"), info, number_H)
        elif len(alleles) == 2:
            info = f"SVTYPE=INS;SVLEN={length};END={position}"
            yield Record(position, INSERTION, (alleles[0], "<INS>"), info, number_H)


def _repeat_records(trees: tskit.TreeSequence) -> Iterator[Record]:
    for variant in trees.variants(isolated_as_missing=False):
        units, number_H = _present(variant)
        if len(units) > 1:
            alleles = tuple("G" + REPEAT_UNIT * int(n) for n in units)
            yield Record(int(variant.site.position) + 1, REPEAT, alleles, ".", number_H)


def write_files(history: History, panel_people: int, typed_sites: int, folder: Path) -> Files:
    """Simulate, and write panel.vcf.gz, target.vcf.gz (typed SNPs), truth.vcf.gz and genetic.map.

    The people of each population are divided between panel and target at random.
    """
    records = list(simulate_records(history))
    rng = np.random.default_rng([history.seed, 2])
    n_people = len(records[0].number_H) // 2
    people = rng.permutation(n_people)
    panel_H, target_H = (
        np.stack([2 * chosen, 2 * chosen + 1], axis=1).ravel()
        for chosen in (np.sort(people[:panel_people]), np.sort(people[panel_people : history.people]))
    )
    records = [r for r in records if r.number_H[panel_H].any()]
    typed = _typed(records, panel_H, typed_sites, rng)
    paths = [folder / f"{name}.vcf.gz" for name in ("panel", "target", "truth")]
    _write(paths[0], records, panel_H, "panel", history.length)
    _write(paths[1], [records[r] for r in typed], target_H, "target", history.length)
    _write(paths[2], records, target_H, "target", history.length)
    write_map(folder / "genetic.map", rates_of(history))
    kinds, frequency = {}, {}
    untyped = set(range(len(records))) - set(typed)
    for r in sorted(untyped):
        record = records[r]
        for k, alt in enumerate(record.alleles[1:], 1):
            kinds[record.position, alt] = record.kind
            frequency[record.position, alt] = float((record.number_H[panel_H] == k).mean())
    return Files(paths[0], paths[1], paths[2], folder / "genetic.map", kinds, frequency)


def _typed(
    records: Sequence[Record], panel_H: np.ndarray, n_sites: int, rng: np.random.Generator
) -> list[int]:
    """Choose common biallelic SNPs, one from each of `n_sites` parts with equal numbers of such SNPs."""
    common = []
    for r, record in enumerate(records):
        frequency = (record.number_H[panel_H] == 1).mean()
        if record.kind == SNP and min(frequency, 1 - frequency) >= TYPED_MIN_FREQUENCY:
            common.append(r)
    return [int(rng.choice(part)) for part in np.array_split(common, n_sites)]


def _write(path: Path, records: Sequence[Record], columns_H: np.ndarray, name: str, length: int) -> None:
    """Write records as VCF.gz."""
    samples = [f"{name}_{number}" for number in range(len(columns_H) // 2)]
    header = [
        "##fileformat=VCFv4.3",
        f"##contig=<ID={CONTIG},length={length + 2 * SV_LENGTHS[1]}>",
        '##INFO=<ID=END,Number=1,Type=Integer,Description="Last position">',
        '##INFO=<ID=SVLEN,Number=A,Type=Integer,Description="Length">',
        '##INFO=<ID=SVTYPE,Number=1,Type=String,Description="Type">',
        '##ALT=<ID=DEL,Description="Deletion">',
        '##ALT=<ID=INS,Description="Insertion">',
        '##FORMAT=<ID=GT,Number=1,Type=String,Description="Genotype">',
        "\t".join(["#CHROM", "POS", "ID", "REF", "ALT", "QUAL", "FILTER", "INFO", "FORMAT", *samples]),
    ]
    command = ["bcftools", "view", "-Oz", "-o", str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, text=True) as bcftools:
        assert bcftools.stdin is not None
        bcftools.stdin.writelines(f"{line}\n" for line in header)
        for record in records:
            ref, *alts = record.alleles
            pairs = record.number_H[columns_H].reshape(-1, 2).tolist()
            calls = "\t".join(f"{a}|{b}" for a, b in pairs)
            place = f"{CONTIG}\t{record.position}\t.\t{ref}\t{','.join(alts)}"
            bcftools.stdin.write(f"{place}\t.\t.\t{record.info}\tGT\t{calls}\n")
    if bcftools.returncode:
        raise SystemExit(f"bcftools did not write {path}")
