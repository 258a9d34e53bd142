"""HLA types, imputed from SNPs: `python -m benchmarks.labels --data FOLDER`.

FOLDER has `panel.bcf` (phased SNPs and, for each HLA allele, a biallelic pseudo-marker such as HLA_A_0101),
targets in `target*.bcf`, and `types.tsv` with the two-field types of all people (sample, population, set,
gene, allele1, allele2). Methods:

- Beagle and spinimpute with pseudo-markers: the two alleles with the largest dosages are called, and one of
  them twice if its dosage is above HOMOZYGOUS and at least twice the next.
- spinimpute with labels: pseudo-markers are removed, the types of the panel's people are added with
  `panel labels`, and `impute --labels` calls the types.
- the same with the types of one gene removed for a part of the panel's people (`--unknown`).

`--left-out N` uses N people of the panel as targets, with the SNPs of the first target, in place of all
targets: settings are chosen by them. Beagle does not run then.

`--depth X` also imputes simulated reads: at each SNP of the first target, every person has a Poisson number
of bases (mean X), of which a share of BASE_ERROR is wrong. `impute --gl` reads their genotype likelihoods.

`--own-phase` also phases the panel's SNPs (`train.unphased.bcf` in FOLDER) with `spinimpute phase`, each half
of the people with the other half of `panel.bcf` as panel.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from cyvcf2 import VCF

from benchmarks.imputation.measure import Stage, run
from benchmarks.imputation.results import commit, processor
from benchmarks.imputation.tables import markdown, write_tsv
from spinimpute.evaluation.labels import evaluate_labels

RESULTS = Path(__file__).parent / "results"
HOMOZYGOUS = 1.33
BASE_ERROR = 0.01
SPINIMPUTE = (sys.executable, "-P", "-m", "spinimpute.cli.main")
PSEUDO, LABELS = "spinimpute, pseudo-markers", "spinimpute, labels"
BEAGLE = "Beagle, pseudo-markers"
OWN_PHASE = "labels, panel phased by spinimpute"

FIELDS = 2  # resolution that is compared
CALLS = ("sample", "locus", "fields", "allele1", "allele2", "probability")
TENTHS = tuple(f"[{t / 10:g},{(t + 1) / 10:g}{']' if t == 9 else ')'}" for t in range(10))  # of probability


def main() -> None:
    """Run all methods on all targets, and write tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--unknown", type=float, default=0.3, help="share of the types that are removed")
    parser.add_argument("--left-out", type=int, metavar="N")
    parser.add_argument("--depth", type=float, action="append", default=[])
    parser.add_argument("--own-phase", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--name", default="hla")
    arguments = parser.parse_args()
    out = RESULTS / f"{datetime.now(UTC).date().isoformat()}-{arguments.name}"
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        Benchmark(arguments, Path(work)).run(out)


class Benchmark:
    """One run of the benchmark."""

    def __init__(self, arguments: argparse.Namespace, work: Path) -> None:
        self.data, self.work, self.threads = arguments.data, work, arguments.threads
        self.unknown, self.left_out, self.seed = arguments.unknown, arguments.left_out, arguments.seed
        self.name, self.depths, self.own_phase = arguments.name, arguments.depth, arguments.own_phase
        self.stages: list[Stage] = []
        with (self.data / "types.tsv").open() as file:
            self.types = list(csv.DictReader(file, delimiter="\t"))
        panel = VCF(str(self.data / "panel.bcf"))
        self.panel_samples: list[str] = panel.samples
        places = defaultdict(list)
        for record in panel:
            if (found := _pseudo_marker(record.ID)) is not None:
                places[found[0]].append(record.POS)
        self.position = {gene: int(np.mean(at)) for gene, at in places.items()}
        self.targets = {path.stem: path for path in sorted(self.data.glob("target*.bcf"))}

    def run(self, out: Path) -> None:
        """Impute, score and write."""
        panel = self.data / "panel.bcf"
        if self.left_out:
            chosen = np.random.default_rng(self.seed).permutation(len(self.panel_samples))[: self.left_out]
            names = [self.panel_samples[x] for x in sorted(chosen)]
            self.targets = {"left out": self._take(panel, names, "left_out.bcf", unphased=True)}
            self.panel_samples = [name for name in self.panel_samples if name not in set(names)]
            panel = self._take(panel, self.panel_samples, "panel.bcf")
        truth, groups = self.work / "truth.tsv", self.work / "populations.tsv"
        rows = [[row["sample"], row["gene"], row["allele1"], row["allele2"]] for row in self.types]
        write_tsv(truth, [["sample", "locus", "allele1", "allele2"], *rows])
        population_of = {row["sample"]: row["population"] for row in self.types}
        write_tsv(groups, [["sample", "population"], *map(list, population_of.items())])
        genes, populations = sorted(self.position), sorted(set(population_of.values()))
        accuracy = [["target", "method", *genes, "all"]]
        by_population = [["target", "method", *populations]]
        tenths = [["target", "method", *TENTHS]]
        for (target, method), table in self._calls(panel):
            result = evaluate_labels(table, truth, groups)
            by_locus = {
                row["locus"].removeprefix("HLA-"): row for row in result.by_locus if _is_compared(row)
            }
            accuracy.append(
                [target, method, *(f"{by_locus[gene]['accuracy']:.4f}" for gene in (*genes, "all"))]
            )
            assert result.by_population is not None
            of_group = {row["population"]: row for row in result.by_population if _is_compared(row, "all")}
            shares = (
                f"{of_group[name]['accuracy']:.4f}" if name in of_group else "–" for name in populations
            )
            by_population.append([target, method, *shares])
            if calibration := {row["bin"]: row for row in result.calibration if _is_compared(row, "all")}:
                tenths.append([target, method, *(_tenth(calibration.get(tenth)) for tenth in TENTHS)])
        report = [
            "# HLA types",
            "Share of the two-field alleles that are right, by gene:",
            markdown(accuracy),
        ]
        report += ["By population:", markdown(by_population)]
        report += [
            "Pairs of alleles by their probability: mean probability, share that is right, number:",
            markdown(tenths),
        ]
        times = [["method", "stage", "seconds", "processor seconds", "peak MB"]]
        times += [
            [s.imputer, s.stage, f"{s.seconds:.1f}", f"{s.cpu_seconds:.1f}", f"{s.peak_mb:.0f}"]
            for s in self.stages
        ]
        report += ["Whole commands:", markdown(times), f"{self.threads} threads, {processor()}."]
        (out / "report.md").write_text("\n\n".join(report) + "\n")
        for name, rows in (("accuracy", accuracy), ("populations", by_population), ("tenths", tenths)):
            write_tsv(out / f"{name}.tsv", rows)
        write_tsv(out / "timing.tsv", times)
        configuration = {
            "command": f"python -m benchmarks.labels {' '.join(sys.argv[1:])}".replace(
                str(self.data), "DATA"
            ),
            "commit": commit(),
            "seed": self.seed,
            "threads": self.threads,
            "processor": processor(),
        }
        (out / "configuration.json").write_text(json.dumps(configuration, indent=1) + "\n")
        print("\n\n".join(report))

    def _calls(self, panel: Path) -> Iterable[tuple[tuple[str, str], Path]]:
        """Yield the table of the calls of each target and method."""
        snps = self.work / "snps.bcf"
        _bcftools("view", "-e", 'ID~"^HLA_"', "-Ob", "-o", snps, panel)
        pseudo_panel, snp_panel, labelled = (
            self.work / f"{name}.spin" for name in ("pseudo", "snps", "labels")
        )
        self._ours(PSEUDO, "panel build", "panel", "build", "--vcf", panel, "--out", pseudo_panel)
        self._ours(LABELS, "panel build", "panel", "build", "--vcf", snps, "--out", snp_panel)
        self._label(snp_panel, labelled, LABELS, {})
        for target, path in self.targets.items():
            vcf = self.work / f"{target}.vcf.gz"
            _bcftools("view", "-Oz", "-o", vcf, path)
            if not self.left_out:
                yield (target, BEAGLE), self._beagle(panel, vcf)
            out = self.work / "pseudo.vcf.gz"
            self._impute(PSEUDO, target, vcf, pseudo_panel, out)
            yield (target, PSEUDO), self._pairs_of_dosages(out)
            yield (target, LABELS), self._labels(LABELS, target, vcf, labelled)
        target = next(iter(self.targets))
        for depth in self.depths:
            reads, method = self.work / "reads.vcf.gz", f"labels, reads of depth {depth:g}"
            self._simulate_reads(self.work / f"{target}.vcf.gz", depth, reads)
            yield (target, method), self._labels(method, target, reads, labelled, "--gl")
        if self.own_phase and not self.left_out:
            own_snps, own_labelled = self.work / "own.spin", self.work / "own.labels.spin"
            self._ours(
                OWN_PHASE, "panel build", "panel", "build", "--vcf", self._phase(snps), "--out", own_snps
            )
            self._label(own_snps, own_labelled, OWN_PHASE, {})
            vcf = self.work / f"{target}.vcf.gz"
            yield (target, OWN_PHASE), self._labels(OWN_PHASE, target, vcf, own_labelled)
        if self.unknown and not self.left_out:
            method = f"labels, {self.unknown:.0%} of the gene's types unknown"
            found = []
            for number, gene in enumerate(sorted(self.position)):
                rng = np.random.default_rng([self.seed, number])
                share = self.panel_samples, rng.random(len(self.panel_samples)) < self.unknown
                hidden = {name for name, is_hidden in zip(*share, strict=True) if is_hidden}
                self._label(snp_panel, labelled, method, {gene: hidden})
                table = self._labels(method, target, self.work / f"{target}.vcf.gz", labelled)
                with table.open() as file:
                    rows = [
                        row
                        for row in csv.DictReader(file, delimiter="\t")
                        if _is_compared(row, f"HLA-{gene}")
                    ]
                found += [[row[name] for name in CALLS] for row in rows]
            table = self.work / "unknown.tsv"
            write_tsv(table, [list(CALLS), *found])
            yield (target, method), table

    def _phase(self, snps: Path) -> Path:
        """Phase the SNPs of the panel's people, each half with the other half as panel."""
        halves = self.panel_samples[::2], self.panel_samples[1::2]
        phased = []
        for number, (half, others) in enumerate((halves, halves[::-1])):
            panel, out = self.work / "others.spin", self.work / f"phased.{number}.bcf"
            other_snps = self._take(snps, others, "others.bcf")
            command = ("panel", "build", "--vcf", other_snps, "--out", panel, "--force")
            self._ours(OWN_PHASE, "panel build", *command)
            unphased = self._take(self.data / "train.unphased.bcf", half, "half.bcf")
            self._ours(OWN_PHASE, "phase", "phase", "--vcf", unphased, "--panel", panel, "--out", out)
            phased.append(out)
        merged = self.work / "phased.bcf"
        _bcftools("merge", "-Ob", "-o", merged, *phased)
        return merged

    def _label(self, panel: Path, out: Path, method: str, hidden: Mapping[str, set[str]]) -> None:
        table = self.work / "types.tsv"
        known = set(self.panel_samples)
        rows: list[list[object]] = [["sample", "locus", "position", "allele1", "allele2"]]
        for row in self.types:
            gene = row["gene"]
            if row["sample"] in known and row["sample"] not in hidden.get(gene, ()):
                rows.append(
                    [row["sample"], f"HLA-{gene}", self.position[gene], row["allele1"], row["allele2"]]
                )
        write_tsv(table, rows)
        command = ("panel", "labels", "--panel", panel, "--types", table, "--out", out, "--force")
        self._ours(method, "panel labels", *command)

    def _labels(self, method: str, target: str, vcf: Path, panel: Path, option: str = "--vcf") -> Path:
        table = self.work / "labels.tsv"
        out = self.work / "labels.vcf.gz"
        self._impute(method, target, vcf, panel, out, "--labels", table, option=option)
        return table

    def _impute(
        self,
        method: str,
        target: str,
        vcf: Path,
        panel: Path,
        out: Path,
        *more: object,
        option: str = "--vcf",
    ) -> None:
        arguments = ("impute", option, vcf, "--panel", panel, "--out", out, *more, "--force")
        self._ours(method, f"impute {target}", *arguments)

    def _ours(self, method: str, stage: str, *arguments: object) -> None:
        command = [*SPINIMPUTE, *arguments, "--threads", self.threads]
        self.stages.append(run(method, stage, command, self.work / "log"))

    def _simulate_reads(self, vcf_path: Path, depth: float, out: Path) -> None:
        """Write genotype likelihoods (PL) of simulated reads."""
        rng = np.random.default_rng([self.seed, round(1000 * depth)])
        vcf = VCF(str(vcf_path))
        header = '##fileformat=VCFv4.2\n##FORMAT=<ID=PL,Number=G,Type=Integer,Description="Likelihoods">\n'
        columns = ["#CHROM", "POS", "ID", "REF", "ALT", "QUAL", "FILTER", "INFO", "FORMAT", *vcf.samples]
        contigs = "".join(f"##contig=<ID={name}>\n" for name in vcf.seqnames)
        lines = [header, contigs, "\t".join(columns), "\n"]
        p_alt = np.array([BASE_ERROR, 0.5, 1 - BASE_ERROR])  # of a base, by copies of ALT
        for record in vcf:
            copies = record.genotype.array()[:, :2].sum(axis=1)
            n = rng.poisson(depth, len(copies))
            alt = rng.binomial(n, p_alt[copies])
            phred = -10 * (alt[:, None] * np.log10(p_alt) + (n - alt)[:, None] * np.log10(1 - p_alt))
            pl = (phred - phred.min(axis=1, keepdims=True)).round().astype(int).tolist()
            site = f"{record.CHROM}\t{record.POS}\t.\t{record.REF}\t{record.ALT[0]}\t.\t.\t.\tPL\t"
            lines.append(site + "\t".join(",".join(map(str, one)) for one in pl) + "\n")
        words = ["bcftools", "view", "-Oz", "-o", out]
        subprocess.run(words, input="".join(lines), text=True, check=True)

    def _beagle(self, panel: Path, vcf: Path) -> Path:
        reference = self.work / "panel.vcf.gz"
        if not reference.exists():
            _bcftools("view", "-Oz", "-o", reference, panel)
        out = self.work / "beagle"
        command = ["beagle", f"gt={vcf}", f"ref={reference}", f"out={out}", f"nthreads={self.threads}"]
        self.stages.append(
            run(BEAGLE, f"impute {vcf.name}", [*command, f"seed={self.seed}"], self.work / "log")
        )
        return self._pairs_of_dosages(Path(f"{out}.vcf.gz"))

    def _pairs_of_dosages(self, vcf_path: Path) -> Path:
        """Write the table of the pairs that the dosages of pseudo-markers call."""
        vcf = VCF(str(vcf_path))
        dosages: dict[tuple[str, str], list[tuple[float, str]]] = defaultdict(list)
        for record in vcf:
            if (found := _pseudo_marker(record.ID)) is not None:
                gene, allele = found
                for sample, dosage in zip(vcf.samples, record.format("DS")[:, 0].tolist(), strict=True):
                    dosages[sample, gene].append((dosage, allele))
        rows: list[list[object]] = [["sample", "locus", "allele1", "allele2"]]
        for (sample, gene), alleles in dosages.items():
            (first, one), (second, other) = sorted(alleles, reverse=True)[:2]
            twice = first >= 2 * second and first > HOMOZYGOUS
            rows.append([sample, gene, one, one if twice else other])
        table = self.work / "pairs.tsv"
        write_tsv(table, rows)
        return table

    def _take(self, panel: Path, samples: Sequence[str], name: str, *, unphased: bool = False) -> Path:
        """Write some samples of the panel. Unphased files have the SNPs of the first target only."""
        listed, out = self.work / f"{name}.txt", self.work / name
        listed.write_text("".join(f"{sample}\n" for sample in samples))
        if not unphased:
            _bcftools("view", "-S", listed, "-Ob", "-o", out, panel)
            return out
        sites = self.work / "sites.txt"
        first = next(iter(self.targets.values()))
        sites.write_text("".join(f"{record.CHROM}\t{record.POS}\n" for record in VCF(str(first))))
        text = _bcftools("view", "-S", listed, "-T", sites, "-e", 'ID~"^HLA_"', "-Ov", panel)
        unphased_text = text.replace("1|0", "0/1").replace("|", "/")
        subprocess.run(["bcftools", "view", "-Ob", "-o", out], input=unphased_text, text=True, check=True)
        return out


def _bcftools(*arguments: object) -> str:
    words = ["bcftools", *map(str, arguments)]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def _pseudo_marker(name: str | None) -> tuple[str, str] | None:
    """Return gene and two-field allele of a pseudo-marker such as HLA_A_0101."""
    parts = (name or "").split("_")
    if len(parts) != 3 or parts[0] != "HLA" or len(parts[2]) != 4:
        return None
    return parts[1], f"{parts[2][:2]}:{parts[2][2:]}"


def _is_compared(row: Mapping[str, Any], locus: str | None = None) -> bool:
    """Return whether a row has the resolution that is compared, and is of a locus."""
    return int(row["fields"]) == FIELDS and locus in (None, row["locus"])


def _tenth(row: Mapping[str, Any] | None) -> str:
    return "–" if row is None else f"{row['mean_predicted']:.2f}, {row['observed']:.2f}, {row['predictions']}"


if __name__ == "__main__":
    main()
