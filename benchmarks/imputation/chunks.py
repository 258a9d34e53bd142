"""`chunks`: a region imputed in chunks that `ligate` joins, compared with a single run.

For every division, the report says whether the records are equal. If not, it gives the number of sites with
different dosages or genotypes, the size of the differences, and their distance from the chunks' ends.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from cyvcf2 import VCF

from benchmarks.imputation.cases import Case
from benchmarks.imputation.measure import Stage, run
from benchmarks.imputation.options import Session, session
from benchmarks.imputation.programs import Ours
from benchmarks.imputation.results import write_configuration
from benchmarks.imputation.study import build_panel, target_as_vcf
from benchmarks.imputation.tables import markdown, write_tsv
from benchmarks.imputation.unphased import without_phase
from spinimpute.genotypes.genetic_map import GeneticMap

CLI = (sys.executable, "-m", "spinimpute.cli.main")
TOLERATED = 1e-3  # of a dosage


@dataclass(frozen=True)
class Way:
    """Division of a region into chunks. buffer: cM, or None. overlap: cM that two chunks share."""

    buffer: float | None = None
    overlap: float = 0.0

    @property
    def title(self) -> str:
        buffer = "all typed sites" if self.buffer is None else f"--buffer {self.buffer:g}"
        return buffer + (f", parts share {self.overlap:g} cM" if self.overlap else "")


PHASED = (Way(), Way(2), Way(0.5), Way(0))
UNPHASED = (Way(1, 0.25), Way(0.5, 0.25), Way(0, 0.25))


@dataclass(frozen=True)
class Difference:
    """Number and location of sites whose imputed values differ.

    These are sites at which a dosage differs by more than TOLERATED, or a genotype differs (ignoring phase).
    Also: the largest difference of dosages, and the largest distance (cM) of such a site from the end of a
    chunk.
    """

    same_records: bool
    sites: int
    dosage_sites: int
    genotype_sites: int
    largest: float
    farthest: float

    @property
    def row(self) -> list[str]:
        if self.same_records:
            return ["yes", str(self.sites), "0", "0", "0", "–"]
        farthest = f"{self.farthest:.2f}" if self.dosage_sites + self.genotype_sites else "–"
        counts = [str(self.sites), str(self.dosage_sites), str(self.genotype_sites)]
        return ["no", *counts, f"{self.largest:.3f}", farthest]


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--parts", type=int, default=4, help="of each region (default: 4)")


def chunks(arguments: argparse.Namespace) -> None:
    """Run all divisions, for targets with and without phase."""
    rows = [
        ["target", "way", "same records", "sites", "dosage differs", "GT differs", "largest", "farthest, cM"]
    ]
    stages: list[Stage] = []
    with session(arguments) as run_:
        for name in arguments.cases:
            full = run_.case(name)
            work = run_.work_folder(full.name)
            build_panel(full, Ours(), work)
            unphased = without_phase(full, run_.seed, work)
            by_us = work / "phased.vcf.gz"
            words = ["phase", "--vcf", unphased.target, "--panel", work / Ours().panel_name, "--out", by_us]
            stages.append(run("phase", "phase", [*CLI, *words], work / "log.txt"))
            for title, target, ways in (
                (full.name, target_as_vcf(full, work), PHASED),
                (f"{unphased.name}, phased by `phase`", by_us, PHASED),
                (unphased.name, unphased.target, UNPHASED),
            ):
                rows += _beside_single_run(full, title, target, ways, arguments.parts, work, run_, stages)
        out = run_.result_folder(run_.name or "chunks")
        write_configuration(out, run_, stages, {"parts": arguments.parts})
    write_tsv(out / "chunks.tsv", rows)
    text = (
        f"Each region is imputed in {arguments.parts} parts of equal genetic length, which "
        "`spinimpute ligate` joins, and as a whole. A dosage differs if that of any person does by more than "
        f"{TOLERATED:g}, a GT if anybody's unordered alleles do; farthest: the largest distance of such a "
        "site from an end of a part. `--buffer`: typed sites that far, in cM, beyond a part are used."
    )
    report = "\n\n".join(["# In parts and as a whole", text, markdown(rows)])
    (out / "report.md").write_text(report + "\n")
    print(report)


def _beside_single_run(
    case: Case,
    title: str,
    target: Path,
    ways: Iterable[Way],
    n_parts: int,
    work: Path,
    session: Session,
    stages: list[Stage],
) -> list[list[str]]:
    panel = work / Ours().panel_name
    genome = _Genome(case)
    cut_bp = genome.cuts(n_parts)
    whole = work / "whole.vcf.gz"

    def command(label: str, *words: object) -> None:
        stages.append(run(label, str(words[0]), [*CLI, *words, "--force"], work / "log.txt"))

    threads = ("--threads", session.threads)
    command("whole", "impute", "--vcf", target, "--panel", panel, "--out", whole, *threads)
    found = []
    for way in ways:
        parts = []
        for number, (start, end) in enumerate(pairwise(cut_bp)):
            part = work / f"part.{number}.vcf.gz"
            words = ["impute", "--vcf", target, "--panel", panel, "--out", part, *threads]
            words += ["--region", f"{genome.chromosome}:{start + 1}-{genome.further(end, way.overlap)}"]
            words += [] if way.buffer is None else ["--buffer", way.buffer]
            command(way.title, *words)
            parts.append(part)
        joined = work / "joined.vcf.gz"
        command(way.title, "ligate", *parts, "--panel", panel, "--out", joined)
        ends_cm = genome.genetic_map.cM(np.array(cut_bp[1:-1]))
        found.append([title, way.title, *difference(whole, joined, ends_cm, genome.genetic_map).row])
    return found


class _Genome:
    """The panel's sites on its chromosome, and their genetic map."""

    def __init__(self, case: Case) -> None:
        sites = [(record.CHROM, record.POS) for record in VCF(str(case.panel))]
        self.chromosome = sites[0][0]
        self.position = np.array([position for _, position in sites])
        self.genetic_map = case.read_map(self.chromosome)
        self.cm = self.genetic_map.cM(self.position)

    def cuts(self, n_parts: int) -> list[int]:
        """Last positions of parts of the same genetic length; before them the one before the first site."""
        inner = np.searchsorted(self.cm, np.linspace(self.cm[0], self.cm[-1], n_parts + 1)[1:-1])
        ends = [*(int(bp) for bp in self.position[inner]), int(self.position[-1])]
        return [int(self.position[0]) - 1, *ends]

    def further(self, bp: int, cm: float) -> int:
        """The last site within so many cM behind one."""
        reached = self.cm[np.searchsorted(self.position, bp)] + cm
        return max(bp, int(self.position[np.searchsorted(self.cm, reached, "right") - 1]))


def _records(path: Path) -> str:
    """A checksum of all lines but the header, which tells how a file was made."""
    checksum = hashlib.sha256()
    with gzip.open(path, "rb") as lines:
        for line in lines:
            if not line.startswith(b"##"):
                checksum.update(line)
    return checksum.hexdigest()


def difference(whole: Path, joined: Path, ends_cm: np.ndarray, genetic_map: GeneticMap) -> Difference:
    """Compare two imputed files. Raises SystemExit if their sites differ."""
    position, dosage_S, genotype_S = [], [], []
    files = VCF(str(whole)), VCF(str(joined))
    for one, other in zip(*files, strict=True):
        if (one.POS, one.REF, one.ALT) != (other.POS, other.REF, other.ALT):
            raise SystemExit(f"sites differ at {one.CHROM}:{one.POS} and {other.CHROM}:{other.POS}")
        position.append(one.POS)
        dosage_S.append(np.abs(one.format("DS") - other.format("DS")).max())
        alleles, others = (np.sort(record.genotype.array()[:, :2], axis=1) for record in (one, other))
        genotype_S.append(not np.array_equal(alleles, others))
    dosage, genotype = np.array(dosage_S), np.array(genotype_S)
    at_cm = genetic_map.cM(np.array(position))[(dosage > TOLERATED) | genotype]
    away = np.abs(at_cm[:, None] - ends_cm).min(1) if len(at_cm) else np.zeros(1)
    return Difference(
        _records(whole) == _records(joined),
        len(position),
        int((dosage > TOLERATED).sum()),
        int(genotype.sum()),
        float(dosage.max()),
        float(away.max()),
    )
