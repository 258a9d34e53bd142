"""The benchmarks of panel files, whole genomes, simulated panels, outputs and paths, on tiny inputs."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import spinimpute
from benchmarks.genome.__main__ import main as genome
from benchmarks.outputs.checksums import checksum, outputs_in
from benchmarks.outputs.commands import Runner, all_sets
from benchmarks.panels.__main__ import main as panels

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).resolve().parents[2]


def test_genome(bcftools: str, tmp_path: Path) -> None:
    options = ["--panel-people", "40", "--targets", "6", "--longest", "30000", "--chromosomes", "2"]
    genome([*options, "--repeat", "1", "--threads", "1", "--results", str(tmp_path)])
    (folder,) = tmp_path.iterdir()
    assert folder.name.endswith("-40-6")
    result = json.loads((folder / "configuration.json").read_text())
    assert result["records_same"] is True
    assert list(result["sites"]) == ["1", "X"]
    assert str(tmp_path) not in (folder / "configuration.json").read_text()
    assert len((folder / "runs.tsv").read_text().splitlines()) == 5
    assert "The records are the same" in (folder / "report.md").read_text()


def test_panels(bcftools: str, tmp_path: Path) -> None:
    results, kept = tmp_path / "results", tmp_path / "kept"
    options = ["--haplotypes", "300", "--length", "20000", "--threads", "1,2"]
    for _ in range(2):  # the second time it takes what was simulated
        panels([*options, "--keep", str(kept), "--results", str(results)])
    (folder,) = results.iterdir()
    assert folder.name.endswith("-300-20000")
    result = json.loads((folder / "result.json").read_text())
    assert result["bytes"]["they as bits"] == result["sites"] * 38
    assert 0 < result["bytes"]["its haplotypes"] < result["bytes"]["they as bits"]
    assert [build["threads"] for build in result["build"]] == [1, 2]
    assert min(build["peak_mb"] for build in result["build"]) > 10
    assert str(tmp_path) not in (folder / "configuration.json").read_text()
    assert "## Reading" in (folder / "report.md").read_text()


def test_simulated_panels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("msprime", reason="msprime is not installed (extra: bench)")
    from benchmarks.simulated import ablation

    sizes = [
        (made.shape.core, made.shape.flank, made.inducing_points, made.model.encoder.rounds)
        for _, made in ablation.variants(spinimpute.load_predictor(None, "cpu", name="spin"))
    ]
    assert sizes == ablation.SPIN_GRID
    monkeypatch.setattr(ablation, "SETS", [(77_001, 130, 1.2e-8, 60)])
    monkeypatch.setattr(ablation, "SPIN_GRID", [(8, 16, 16, 1), (4, 16, 8, 2)])
    out = tmp_path / "table.tsv"
    monkeypatch.setattr("sys.argv", ["ablation.py", "--predictor", "spin", "--out", str(out)])
    ablation.main()
    head, *lines = (line.split("\t") for line in out.read_text().splitlines())
    assert [line[2] for line in lines] == [
        "core=8 flank=16 points=16 rounds=1", "core=4 flank=16 points=8 rounds=2",
    ]  # fmt: skip
    assert all(0 < float(line[head.index("all")]) <= 1 for line in lines)


def test_records_count_and_headers_do_not(write_vcf, tmp_path: Path) -> None:
    found = []
    for words, genotype in (("Genotype", "0|1"), ("Other words", "0|1"), ("Genotype", "1|0")):
        path = write_vcf([(100, "A", "C", [genotype])])
        path.write_text(path.read_text().replace("Genotype", words))
        found.append(checksum(path))
    assert found[0] == found[1] != found[2]


def test_what_commands_read_is_no_output(tmp_path: Path) -> None:
    for name in ("inputs/a.vcf", "form/in/b.vcf", "form/out/c.vcf", "d.html", "e.spin"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    assert outputs_in(tmp_path) == {Path("form/out/c.vcf"), Path("e.spin")}


def test_all_commands_of_the_example_write_outputs(tmp_path: Path) -> None:
    run = Runner(sys.executable, tmp_path)
    for command in dict(all_sets(None))["example"](run):
        before = outputs_in(tmp_path)
        assert run(command), command
        assert outputs_in(tmp_path) - before


def test_the_functions_of_a_run_are_counted(tmp_path: Path) -> None:
    out = tmp_path / "imputed.vcf"
    command = [sys.executable, "-m", "benchmarks.path", "--out", out, "--names"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert out.is_file()
    first, *rooms = done.stdout.splitlines()
    assert " functions in " in first
    assert "spinimpute/pipeline/impute.py" in done.stdout
    counts = [int(line.split()[0]) for line in rooms if line[:5].strip().isdigit()]
    assert sum(counts) == int(first.split()[0])
