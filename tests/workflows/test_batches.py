"""The Snakemake workflow with samples divided among jobs: the results are those of one job."""

import re
import runpy
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import cyvcf2
import pytest

from benchmarks.workflow.runs import ENVIRONMENT, PATH, WORKFLOW, copy_example, snakemake
from tests.workflows.test_sequenced_workflow import write_reads

pytestmark = pytest.mark.slow

pytest.importorskip("snakemake", reason="snakemake is not installed: pip install 'spinimpute[workflow]'")

PROGRAM = shutil.which("spinimpute", path=PATH) or ""


def impute(folder: Path, *words: object) -> None:
    subprocess.run([PROGRAM, "impute", *map(str, words), "-q"], check=True, env=ENVIRONMENT, cwd=folder)


def records(path: Path) -> list[str]:
    return [str(record) for record in cyvcf2.VCF(str(path))]


def test_batches_of_typed_samples(tmp_path: Path) -> None:
    """Two chunks of 12 and 8 samples are the file of a single run, byte for byte."""
    folder = copy_example(tmp_path / "run")
    joined = "imputed/example.20.vcf.gz"
    done = snakemake(folder, joined, "--config", "chunk_cM=0.6", "samples_per_job=12")
    assert done.returncode == 0, done.stderr[-3000:]
    for rule, times in (("impute_batch", 4), ("merge", 2), ("ligate", 1)):
        assert len(re.findall(rf"rule {rule}:", done.stderr)) == times
    assert len(cyvcf2.VCF(str(folder / "imputed/example/20/chunk.1.2.vcf.gz")).samples) == 8
    # the same paths: the header holds the command
    files = ["--vcf", "imputed/example/20/phased.vcf.gz", "--panel", "imputed/panels/20.spin"]
    impute(folder, *files, "-o", "whole.vcf.gz")
    for end in ("", ".tbi"):
        assert (folder / f"{joined}{end}").read_bytes() == (folder / f"whole.vcf.gz{end}").read_bytes()


def test_batches_of_sequenced_samples(tmp_path: Path) -> None:
    folder = copy_example(tmp_path / "run")
    write_reads(folder)
    (folder / "mine.yaml").write_text(
        "targets: {study: {bam: sheet.tsv}}\nout: imputed\nchunk_cM: 0.6\nsamples_per_job: 2\n"
        "panels: {'20': {vcf: data/example/panel.vcf.gz, map: data/example/genetic.map}}\n"
    )
    merged = "imputed/study/20/chunk.1.vcf.gz"
    done = snakemake(folder, merged, "--configfile", str(folder / "mine.yaml"))
    assert done.returncode == 0, done.stderr[-3000:]
    lists = [(folder / f"imputed/study/reads.{batch}.txt").read_text() for batch in (1, 2)]
    assert [text.count("\n") for text in lists] == [2, 1]
    (folder / "all.txt").write_text("".join(lists))
    region = (folder / "imputed/panels/20.overlapping.tsv").read_text().splitlines()[1].split("\t")[1]
    files = ["--bam-list", "all.txt", "--panel", "imputed/panels/20.spin", "--region", region]
    impute(folder, *files, "-o", "whole.vcf.gz")
    assert records(folder / merged) == records(folder / "whole.vcf.gz")


def test_lint_and_plan(tmp_path: Path) -> None:
    copy_example(tmp_path)
    for option in ("--lint", "--dry-run"):
        done = snakemake(tmp_path, option, "--config", "samples_per_job=8")
        assert done.returncode == 0, done.stderr
    refused = snakemake(tmp_path, "--dry-run", "--config", "samples_per_job=0")
    assert refused.returncode != 0
    assert "samples_per_job" in refused.stdout + refused.stderr


def test_a_job_asks_for_what_its_samples_need(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = "\t".join(f"s{i}" for i in range(1_000))
    calls = "\t".join(["0|1"] * 1_000)
    text = (
        f"#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\tFORMAT\t{names}\n"
        + 200 * f"20\t1\t.\tA\tC\t.\t.\t.\tGT\t{calls}\n"
    )
    Path("t.vcf").write_text(text)
    subprocess.run(["gzip", "t.vcf"], check=True)
    Path("chunks.tsv").write_text("chunk\tregion\tsites\tcM\thaplotypes\n1\t20:1-9\t9000\t20\t400\n")
    Path("p.spin").touch()
    found = []
    for more in ({}, {"samples_per_job": 100}, {"samples_per_job": 5_000}):
        config = {
            "out": "o",
            "panels": {20: {"spin": "p.spin"}},
            "targets": {"t": {"file": "t.vcf.gz"}},
        } | more
        scope = {"config": config, "WorkflowError": ValueError, "exists": lambda _: True}
        scope = runpy.run_path(str(WORKFLOW / "files.smk"), scope)
        scope = runpy.run_path(str(WORKFLOW / "resources.smk"), scope)
        wildcards = SimpleNamespace(chrom="20", chunk="1", target="t")
        files = SimpleNamespace(vcf="t.vcf.gz", chunks="chunks.tsv")
        found.append(scope["memory_of_chunk"](wildcards, files, 2, 1))
    assert found[1] < found[0] == found[2]
