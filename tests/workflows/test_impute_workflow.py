"""The Snakemake workflow: the example in chunks, mistakes in configurations, and runs that are killed."""

import gzip
import json
import random
import re
import runpy
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cyvcf2
import pytest

from benchmarks.workflow.kills import round_of_kills
from benchmarks.workflow.runs import (
    CHUNKS,
    ENVIRONMENT,
    PATH,
    WORKFLOW,
    checksums,
    copy_example,
    snakemake,
    unfinished,
    unlock,
)
from spinimpute.predictors.haplotype_attention.memory import JobSizes, limits_within
from spinimpute.predictors.haplotype_attention.tile import TileSizes

pytest.importorskip("snakemake", reason="snakemake is not installed: pip install 'spinimpute[workflow]'")
import yaml
from snakemake.exceptions import WorkflowError
from snakemake.utils import validate

pytestmark = pytest.mark.slow

PROGRAM = shutil.which("spinimpute", path=PATH) or ""
JOINED = "imputed/example.20.vcf.gz"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = copy_example(tmp_path_factory.mktemp("finished") / "run")
    done = snakemake(folder, *CHUNKS)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder / "imputed"


def test_the_example_in_chunks_is_the_example_in_one_go(finished: Path, tmp_path: Path) -> None:
    chunks = (finished / "panels" / "20.chunks.tsv").read_text().splitlines()
    assert len(chunks) == 1 + 3
    whole = tmp_path / "whole.vcf.gz"
    # the same paths: the header holds the command
    files = ["--vcf", "imputed/example/20/phased.vcf.gz", "--panel", "imputed/panels/20.spin", "-o", whole]
    subprocess.run([PROGRAM, "impute", *files, "-q"], check=True, env=ENVIRONMENT, cwd=finished.parent)
    assert (finished / "example.20.vcf.gz").read_bytes() == whole.read_bytes()
    assert (finished / "example.20.vcf.gz.tbi").read_bytes() == Path(f"{whole}.tbi").read_bytes()


def test_the_report_tells_sites_and_accuracy(finished: Path) -> None:
    head, row = ((finished / "report.tsv").read_text().splitlines())[:2]
    told = dict(zip(head.split("\t"), row.split("\t"), strict=True))
    records = list(cyvcf2.VCF(str(finished / "example.20.vcf.gz")))
    assert len(records) == 4453
    assert int(told["imputed_sites"]) == sum(record.INFO.get("TYPED") is None for record in records)
    accuracy = (finished / "example" / "20" / "evaluation" / "accuracy.tsv").read_text()
    (overall,) = re.findall(r"^imputed\tall\t\d+\t([\d.]+)", accuracy, re.M)
    assert float(told["true_pooled_r2"]) == pytest.approx(float(overall), abs=1e-4)
    assert "example" in (finished / "report.html").read_text()
    assert list(json.loads((finished / "report_mqc.json").read_text())["data"]) == ["example.20"]


def test_nothing_is_made_twice(finished: Path) -> None:
    again = snakemake(finished.parent, *CHUNKS)
    assert again.returncode == 0
    assert "Nothing to be done" in again.stdout + again.stderr


def test_a_killed_run_goes_on_and_ends_the_same(finished, tmp_path, capsys) -> None:
    """The benchmark `workflow kills` repeats this."""
    ended = round_of_kills(tmp_path / "run", random.Random(1), 12.0, 2, print)
    said = capsys.readouterr().out
    assert ended.sums == checksums(finished.parent), said
    assert sum(attempt.killed for attempt in ended.attempts) > 0, said


@pytest.mark.parametrize(
    ("step", "lacking"), [("impute", "chunk.2.vcf.gz*"), ("ligate", "example.20.vcf.gz*")]
)
def test_a_full_disk(finished: Path, small_disk: Callable[[int], Any], step: str, lacking: str) -> None:
    """A chunk does not fit, or the joined file does not; with more space it goes on and ends the same."""

    def kib_of(files: Iterable[Path]) -> int:
        return sum(-(-path.stat().st_size // 4096) * 4 for path in files if path.is_file())

    whole = kib_of(finished.parent.rglob("*"))
    disk = small_disk(4 * whole)
    folder = disk.folder / "run"
    shutil.copytree(finished.parent, folder)
    missing = kib_of(folder.rglob(lacking))
    for path in [*folder.rglob(lacking), *folder.rglob("example.20.vcf.gz*")]:
        path.unlink(missing_ok=True)
    disk.resize(kib_of(folder.rglob("*")) + missing // 2)
    arguments = [JOINED, *CHUNKS, "--rerun-triggers", "mtime"]
    failed = snakemake(folder, *arguments)
    assert failed.returncode != 0
    logs = (path.read_text() for path in (folder / "imputed" / "logs").glob(f"{step}.*"))
    assert any("No space left on device" in text for text in logs)
    assert not unfinished(folder)
    disk.resize(4 * whole)
    unlock(folder)
    done = snakemake(folder, *arguments, "--rerun-incomplete")
    assert done.returncode == 0, done.stderr[-3000:]
    assert checksums(folder) == checksums(finished.parent)


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    """A copy of the finished run without its joined file."""
    shutil.copytree(finished.parent, tmp_path / "copy")
    (tmp_path / "copy" / "imputed" / "example.20.vcf.gz").unlink()
    return tmp_path / "copy"


def test_a_damaged_chunk_is_found_and_made_again(finished: Path, copy: Path) -> None:
    chunk = copy / "imputed" / "example" / "20" / "chunk.2.vcf.gz"
    chunk.write_bytes(chunk.read_bytes()[:-100])
    failed = snakemake(copy, JOINED, *CHUNKS, "--rerun-triggers", "mtime")
    assert failed.returncode != 0
    log = (copy / "imputed" / "logs" / "ligate.example.20.log").read_text()
    assert "chunk.2.vcf.gz" in log
    chunk.unlink()
    assert snakemake(copy, JOINED, *CHUNKS, "--rerun-triggers", "mtime").returncode == 0
    found = (copy / "imputed" / "example.20.vcf.gz").read_bytes()
    assert found == (finished / "example.20.vcf.gz").read_bytes()


def test_a_dry_run_plans_every_step(tmp_path: Path) -> None:
    copy_example(tmp_path)
    planned = snakemake(tmp_path, "--dry-run")
    assert planned.returncode == 0, planned.stderr
    for rule in ("panel", "chunks", "check", "phase", "ligate", "evaluate", "report"):
        assert re.search(rf"^{rule} +1$", planned.stdout + planned.stderr, re.M)
    assert not (tmp_path / "imputed").exists()


def planned_with(folder: Path, targets: str, *chromosomes: str) -> subprocess.CompletedProcess[str]:
    """A dry run of a user's own configuration, with the example's panel for every chromosome."""
    copy_example(folder)
    files = "{vcf: data/example/panel.vcf.gz, map: data/example/genetic.map}"
    panels = ", ".join(f"'{name}': {files}" for name in chromosomes)
    config = folder / "mine.yaml"
    config.write_text(f"targets: {targets}\nout: o\npanels: {{{panels}}}\n")
    return snakemake(folder, "--dry-run", "--configfile", str(config))


def test_the_example_is_not_part_of_other_runs(tmp_path: Path) -> None:
    planned = planned_with(tmp_path, "{me: {file: data/example/target.vcf.gz}}", "20")
    said = planned.stdout + planned.stderr
    assert planned.returncode == 0, said
    assert "o/me.20.vcf.gz" in said
    assert "example.20" not in said


def test_lint(tmp_path: Path) -> None:
    copy_example(tmp_path)
    linted = snakemake(tmp_path, "--lint")
    assert linted.returncode == 0, linted.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("targets: {a: {file: t.vcf}}\nout: o\npanels: {}\n", "panels"),
        ("targets: {a: {fiel: t.vcf}}\nout: o\npanels: {'20': {spin: p.spin}}\n", "fiel"),
        ("targets: {a: {file: t.vcf, bam: s.tsv}}\nout: o\npanels: {'20': {spin: p.spin}}\n", "s.tsv"),
        ("targets: {a: {file: t.vcf, indels: true}}\nout: o\npanels: {'20': {spin: p.spin}}\n", "indels"),
        ("targets: {a: {file: t.vcf}}\nout: o\npanels: {'20': {vcf: p.vcf}}\n", "panels"),
        ("targets: {a/b: {file: t.vcf}}\nout: o\npanels: {'20': {spin: p.spin}}\n", "a/b"),
        ("targets: {a: {file: t.vcf}}\nout: o\npanels: {'20': {spin: p.spin}}\nformat: GT;rm\n", "GT;rm"),
        ("targets: {a: {file: t.vcf}}\nout: o\npanels: {'20': {spin: p.spin}}\nthreads: 0\n", "threads"),
        ("targets: {a: {file: t.vcf}}\nout: o\npanels: {'20': {spin: p.spin}}\ndecimals: 9\n", "decimals"),
        ("targets: {..: {file: t.vcf}}\nout: o\npanels: {'20': {spin: p.spin}}\n", "'..'"),
        ("targets: {logs: {file: t.vcf}}\nout: o\npanels: {'20': {spin: p.spin}}\n", "logs"),
        ("targets: {a: {file: t.vcf}}\nout: 'o{x}'\npanels: {'20': {spin: p.spin}}\n", "o{x}"),
    ],
)
def test_mistakes_in_a_configuration(text: str, said: str) -> None:
    with pytest.raises(WorkflowError, match=re.escape(said)):
        validate(yaml.safe_load(text), WORKFLOW / "schema.yaml")


def test_a_configuration_of_ones_own_is_checked(tmp_path: Path) -> None:
    """The shipped configuration is not merged in."""
    shutil.copytree(WORKFLOW, tmp_path / "workflow")
    (tmp_path / "workflow" / "config.yaml").write_text("targets: {a: {fiel: t.vcf}}\nout: o\npanels: {}\n")
    failed = subprocess.run(
        [sys.executable, "-m", "snakemake", "--snakefile", "workflow/Snakefile", "--dry-run"],
        env=ENVIRONMENT, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=120,
    )  # fmt: skip
    assert failed.returncode != 0
    assert "Error validating config file" in failed.stdout + failed.stderr
    assert "fiel" in failed.stdout + failed.stderr


def test_a_missing_file_is_said_before_anything_is_made(tmp_path: Path) -> None:
    failed = planned_with(tmp_path, "{me: {file: data/example/target.vcf.gz, sex: who.txt}}", "20")
    assert failed.returncode != 0
    assert "target me: there is no file who.txt (sex)" in failed.stdout + failed.stderr


def test_a_target_of_some_chromosomes(tmp_path: Path) -> None:
    file = "file: data/example/target.vcf.gz"
    targets = f"{{some: {{{file}, chromosomes: ['CHROM']}}, all: {{{file}}}}}"
    planned = planned_with(tmp_path / "some", targets.replace("CHROM", "20"), "20", "21")
    refused = planned_with(tmp_path / "none", targets.replace("CHROM", "22"), "20", "21")
    said = planned.stdout + planned.stderr
    for name in ("some.20", "all.20", "all.21"):
        assert f"o/{name}.vcf.gz" in said
    assert "o/some.21.vcf.gz" not in said
    assert refused.returncode != 0
    assert "target some: there is no panel of chromosome 22" in refused.stdout + refused.stderr


def test_names_of_files_are_not_run_by_the_shell(tmp_path: Path) -> None:
    copy_example(tmp_path)
    odd = tmp_path / "Anna's $(touch run).txt"
    names = cyvcf2.VCF(str(tmp_path / "data" / "example" / "target.vcf.gz")).samples
    odd.write_text("".join(f"{name} F\n" for name in names))
    (tmp_path / "mine.yaml").write_text(
        f'targets: {{me: {{file: data/example/target.vcf.gz, sex: "{odd}"}}}}\nout: o\n'
        "panels: {'20': {vcf: data/example/panel.vcf.gz, map: data/example/genetic.map}}\n"
    )
    done = snakemake(tmp_path, "--configfile", str(tmp_path / "mine.yaml"), "--until", "check")
    assert not (tmp_path / "run").exists()
    said = "".join(path.read_text() for path in (tmp_path / "o" / "logs").glob("check*"))
    assert done.returncode == 0, said


def estimates() -> SimpleNamespace:
    return SimpleNamespace(**runpy.run_path(str(WORKFLOW / "resources.smk")))


def test_a_chunk_with_too_little_memory_is_tried_again_with_more(finished: Path, copy: Path) -> None:
    (copy / "imputed" / "example" / "20" / "chunk.2.vcf.gz").unlink()
    little = "impute:mem_mb=400 + 130 * attempt ** 2"
    done = snakemake(copy, JOINED, *CHUNKS, "--set-resources", little, "--rerun-triggers", "mtime")
    said = done.stdout + done.stderr
    assert done.returncode == 0, said[-3000:]
    assert "Error in rule impute:" in said
    assert checksums(copy) == checksums(finished.parent)


@pytest.mark.parametrize(
    ("haplotypes", "people", "typed", "threads"),
    [(400, 20, 300, 32), (5_000, 10_000, 20_000, 4), (100_000, 100, 20_000, 2), (100_000, 100, 20_000, 16)],
)
def test_what_a_chunk_asks_for_is_enough(haplotypes: int, people: int, typed: int, threads: int) -> None:
    calls = 2 * people * typed
    asked = estimates().chunk_memory_mb(500_000, haplotypes, people, threads, calls)
    held = 160 * 2**20 + 4 * calls  # the program, the target
    tiles = TileSizes(50, 600, 8_000, 800, 12_800, 400_000)
    limits = limits_within(int(asked * 2**20), held, JobSizes(haplotypes, 2 * people, threads, tiles))
    assert limits.window > 2_000_000, "as much is written at once as is sensible"


def test_calls_of_a_target_are_estimated(finished: Path, tmp_path: Path) -> None:
    phased = finished / "example" / "20" / "phased.vcf.gz"
    records = sum(1 for _ in cyvcf2.VCF(str(phased)))
    assert estimates().calls_of(str(phased)) == 2 * len(cyvcf2.VCF(str(phased)).samples) * records
    draw = random.Random(1)
    rows = ["\t".join(["."] * 9 + draw.choices(["0|0", "0|1", "1|0", "1|1"], k=2_000)) for _ in range(100)]
    large = tmp_path / "large.vcf.gz"
    with gzip.open(large, "wt", compresslevel=1) as file:
        file.write("\t".join(["#CHROM"] * 9 + ["a"] * 2_000) + "\n")
        file.writelines(f"{row}\n" for row in draw.choices(rows, k=6_000))
    known = estimates()
    calls = known.calls_of(str(large))
    assert calls == pytest.approx(2 * 2_000 * 6_000, rel=0.1)
    # of a chunk with a twentieth of the sites, and of what is not larger than a chunk
    assert known.calls_read(100 * calls, 0.05, 2_000) < 20 * calls
    assert known.calls_read(1_000, 0.05, 20) == 1_000


def test_a_chunk_gets_the_memory_and_time_it_needs(finished: Path, tmp_path: Path) -> None:
    """Measured on the example's second chunk, by the kernel."""
    known = estimates()
    region = (finished / "panels" / "20.chunks.tsv").read_text().splitlines()[2].split("\t")
    code = "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True); "
    code += "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024)"
    files = ["--vcf", finished / "example/20/phased.vcf.gz", "--panel", finished / "panels/20.spin"]
    words = [PROGRAM, "impute", *files, "--region", region[1], "-o", tmp_path / "c.vcf.gz", "-q"]
    started = time.perf_counter()
    said = subprocess.check_output([sys.executable, "-c", code, *words], env=ENVIRONMENT, text=True)
    elapsed, used = time.perf_counter() - started, float(said.splitlines()[-1])
    size = SimpleNamespace(sites=int(region[2]), haplotypes=400, samples=20)
    asked = known.chunk_memory_mb(size.sites, size.haplotypes, size.samples, 2, 2 * size.samples * 300)
    assert used < asked < 4 * used
    assert elapsed / 60 < known.chunk_minutes(size.sites, size.haplotypes, size.samples, 1)
