"""The Snakemake workflow on sequenced samples: reads in chunks, and mistakes in a sheet of files."""

import os
import re
import runpy
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cyvcf2
import numpy as np
import pysam
import pytest

from benchmarks.workflow.runs import ENVIRONMENT, PATH, WORKFLOW, copy_example, snakemake
from spinimpute.hmm.parameters import MAX_COPIED
from spinimpute.phasing.memory import COMPILED_CHAINS, ChainSizes, chain_memory, large_panel_memory

pytestmark = pytest.mark.slow

pytest.importorskip("snakemake", reason="snakemake is not installed: pip install 'spinimpute[workflow]'")

NAMES = ["target_AFR_01", "target_EUR_01", "target_EUR_02"]
DEPTH = 2
TWO_CHUNKS = ("--config", "chunk_cM=0.6")


def write_reads(folder: Path) -> Path:
    """Reads of single bases of some of the example's people, and their sheet; read groups name libraries."""
    rng = np.random.default_rng(4)
    vcf = cyvcf2.VCF(str(folder / "data" / "example" / "truth.vcf.gz"), samples=NAMES)
    names, sites = vcf.samples, [(v.POS, v.REF, v.ALT[0], v.genotype.array()[:, :2]) for v in vcf]
    rows = ["path\tlane\tsample"]
    for x, name in enumerate(names):
        header = {"HD": {"VN": "1.6", "SO": "coordinate"}, "SQ": [{"SN": "20", "LN": 1_000_000}]}
        header["RG"] = [{"ID": "g", "SM": f"library{x}"}]
        path = folder / f"{name} reads.bam"
        with pysam.AlignmentFile(str(path), "wb", header=header) as file:
            for position, ref, alt, alleles_X2 in sites:
                for copy in rng.integers(2, size=rng.poisson(DEPTH)):
                    read = pysam.AlignedSegment(file.header)
                    read.query_name, read.flag, read.reference_id = str(rng.integers(2**60)), 0, 0
                    read.reference_start, read.mapping_quality = position - 1, 60
                    read.cigarstring, read.query_sequence = "1M", (ref, alt)[alleles_X2[x, copy]]
                    read.query_qualities = pysam.qualitystring_to_array("5")
                    file.write(read)
        pysam.index(str(path))
        rows.append(f"{path.name}\t{x}\t{name}")
    sheet = folder / "sheet.tsv"
    sheet.write_text("\n".join(rows) + "\n")
    return sheet


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = copy_example(tmp_path_factory.mktemp("sequenced") / "run")
    write_reads(folder)
    (folder / "mine.yaml").write_text(
        "targets: {study: {bam: sheet.tsv, truth: data/example/truth.vcf.gz}}\nout: imputed\n"
        "panels: {'20': {vcf: data/example/panel.vcf.gz, map: data/example/genetic.map}}\n"
    )
    done = snakemake(folder, "--configfile", str(folder / "mine.yaml"), *TWO_CHUNKS)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder / "imputed"


def imputed(path: Path) -> tuple[list[str], list[int], np.ndarray, np.ndarray]:
    """Samples, positions, alleles (S, X, 2) and dosages (S, X)."""
    vcf = cyvcf2.VCF(str(path))
    rows = [(v.POS, v.genotype.array()[:, :2], v.format("DS")[:, 0]) for v in vcf]
    position, alleles, dosage = (list(column) for column in zip(*rows, strict=True))
    return list(vcf.samples), position, np.array(alleles), np.array(dosage)


def test_reads_in_chunks(finished: Path, tmp_path: Path) -> None:
    """Chunks give the genotypes of a whole run, and its phase except for one switch per sample."""
    assert len((finished / "panels" / "20.overlapping.tsv").read_text().splitlines()) == 1 + 2
    whole = tmp_path / "whole.vcf.gz"
    files = ["--bam-list", finished / "study" / "reads.txt", "--panel", finished / "panels" / "20.spin"]
    words = [shutil.which("spinimpute", path=PATH) or "", "impute", *files, "-o", whole, "-q", "-t", "1"]
    subprocess.run(words, check=True, env=ENVIRONMENT, cwd=finished.parent)
    samples, position, alleles_SX2, dosage_SX = imputed(finished / "study.20.vcf.gz")
    names, positions, whole_SX2, whole_SX = imputed(whole)
    assert samples == names == NAMES
    assert position == positions
    assert len(position) == 4453
    assert np.abs(dosage_SX - whole_SX).mean() < 0.002
    for x in range(len(NAMES)):
        one_S2, other_S2 = alleles_SX2[:, x], whole_SX2[:, x]
        het = (one_S2[:, 0] != one_S2[:, 1]) & (other_S2[:, 0] != other_S2[:, 1])
        same = one_S2[het, 0] == other_S2[het, 0]
        assert het.sum() > 200
        assert np.count_nonzero(np.diff(same)) <= 1
    (shared,) = re.findall(r"(\d+) sites in both", (finished / "logs" / "ligate.study.20.log").read_text())
    assert int(shared) > 300


def test_what_is_told(finished: Path) -> None:
    head, row = (line.split("\t") for line in (finished / "report.tsv").read_text().splitlines())
    told = dict(zip(head, row, strict=True))
    assert (told["target"], told["samples"], told["imputed_sites"]) == ("study", "3", "4453")
    assert float(told["true_pooled_r2"]) > 0.95
    for chunk in (1, 2):
        assert "Coverage by sample" in (finished / "study" / "20" / f"chunk.{chunk}.html").read_text()


def test_typed_and_sequenced_targets_are_planned(finished: Path, tmp_path: Path) -> None:
    folder = copy_example(tmp_path)
    for path in finished.parent.glob("*.bam*"):
        shutil.copy(path, folder)
    shutil.copy(finished.parent / "sheet.tsv", folder)
    (folder / "mine.yaml").write_text(
        "targets: {study: {bam: sheet.tsv}, array: {file: data/example/target.vcf.gz, "
        "truth: data/example/truth.vcf.gz}}\nout: imputed\n"
        "panels: {'20': {vcf: data/example/panel.vcf.gz, map: data/example/genetic.map}}\n"
    )
    planned = snakemake(folder, "--dry-run", "--configfile", str(folder / "mine.yaml"))
    said = planned.stdout + planned.stderr
    assert planned.returncode == 0, said
    for rule, times in (("panel", 1), ("phase", 1), ("check", 1), ("ligate", 2)):
        assert re.search(rf"^{rule} +{times}$", said, re.M), rule


@pytest.fixture
def names_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """names_of(sheet, name=value): what files.smk makes of a target; a.bam has an index, b.bam has none."""
    monkeypatch.chdir(tmp_path)
    for name in ("a.bam", "a.bai", "b.bam", "p.spin", "s.txt", "my genome.fa"):
        (tmp_path / name).touch()

    def run(sheet: str, **target: Any) -> dict[str, Any]:
        (tmp_path / "sheet.tsv").write_text(sheet)
        config = {"out": "o", "panels": {20: {"spin": "p.spin"}}}
        config["targets"] = {"t": {"bam": "sheet.tsv", **target}}
        names = {"config": config, "WorkflowError": ValueError, "exists": os.path.exists}
        return runpy.run_path(str(WORKFLOW / "files.smk"), names)

    return run


def test_a_sheet(names_of: Callable[[str], dict[str, Any]]) -> None:
    names = names_of("\ufeffsample\tpath\nme\ta.bam\n")
    assert names["READS"] == {"t": {"me": "a.bam"}}
    assert names["INDEXES"] == {"t": {"me": "a.bai"}}
    assert re.fullmatch(names["SEQUENCED"], "t")
    assert not re.fullmatch(names["TYPED"], "t")


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ({}, ""),
        ({"indels": False, "reference": "my genome.fa"}, "--reference 'my genome.fa'"),
        ({"indels": True, "sex": "s.txt"}, "--sex s.txt --indels"),
    ],
)
def test_options_of_a_target(names_of, target, words) -> None:
    names = names_of("sample\tpath\nme\ta.bam\n", **target)
    assert names["options_of"](SimpleNamespace(target="t")) == words


@pytest.mark.parametrize(
    ("sheet", "said"),
    [
        ("name\tpath\nme\ta.bam\n", "target t: sheet.tsv must have the columns sample and path"),
        ("sample path\nme a.bam\n", "target t: sheet.tsv must have the columns sample and path"),
        ("", "target t: sheet.tsv must have the columns sample and path"),
        ("sample\tpath\n", "target t: there is no sample in sheet.tsv"),
        ("sample\tpath\nme\ta.bam\nyou\n", "sheet.tsv, line 3: there must be a sample and a path"),
        ("sample\tpath\nme\ta.bam\nme\ta.bam\n", "sheet.tsv, line 3: sample me is there twice"),
        ("sample\tpath\nme\tc.bam\n", "sheet.tsv, line 2: there is no file c.bam"),
        ("sample\tpath\nme\tb.bam\n", "sheet.tsv, line 2: b.bam has no index"),
    ],
)
def test_mistakes_in_a_sheet(names_of: Callable[[str], dict[str, Any]], sheet: str, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        names_of(sheet)


@pytest.mark.parametrize(
    ("sites", "haplotypes", "samples", "threads"),
    [
        (5_000, 300, 3, 2),
        (33_000, 4_500, 64, 2),
        (130_000, 5_000, 1_000, 16),
        (130_000, 40_000, 10, 4),
        (130_000, 20_000, 500, 16),
        (60_000, 200_000, 64, 2),
    ],
)
def test_what_a_chunk_of_reads_asks_for_is_enough(sites, haplotypes, samples, threads) -> None:
    names = runpy.run_path(str(WORKFLOW / "resources.smk"))
    assert names["LARGE_PANEL"] == MAX_COPIED
    asked = names["reads_memory_mb"](sites, haplotypes, samples, threads) * 1e6
    held = 160e6 + COMPILED_CHAINS + 100 * sites * samples  # the program, and bases of four reads a site
    if haplotypes > MAX_COPIED:
        # one site in four is common; at the others a hundred haplotypes have the minor allele
        sizes = ChainSizes(haplotypes, sites, samples, 0, sites // 4, 100 * sites)
        needed = held + large_panel_memory(sizes, threads)
    else:
        needed = held + chain_memory(ChainSizes(haplotypes, sites, samples), threads)
    assert needed < asked < 2 * needed
    # measured: 64 people, 32,781 sites, 4,508 haplotypes took 18 s
    assert 18 / 60 < names["reads_minutes"](32_781, 4_508, 64, 1) - 5 < 10 * 18 / 60
