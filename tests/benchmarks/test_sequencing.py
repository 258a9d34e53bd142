"""`python -m benchmarks.sequencing` from end to end on tiny sets."""

import json
from pathlib import Path

import pytest

from benchmarks.imputation.cases import SHARED, Case, samples
from benchmarks.sequencing.__main__ import make_parser
from benchmarks.sequencing.compare import leave_out


def test_people_left_out(bcftools: str, simulated: Case, tmp_path: Path) -> None:
    case = leave_out(simulated, 9, tmp_path)
    stayed, left = samples(case.panel), samples(case.truth)
    assert len(left) == 9
    assert sorted(stayed + left) == sorted(samples(simulated.panel))
    assert left == samples(leave_out(simulated, 9, tmp_path).truth)


def test_growth(bcftools: str, tmp_path: Path) -> None:
    pytest.importorskip("msprime", reason="msprime is not installed (extra: bench)")
    if not (SHARED / "tools" / "simulate_gl.py").is_file():
        pytest.skip("there is no simulator of reads: set SPINIMPUTE_SHARED")
    words = ["growth", "--cache", tmp_path / "cache", "--results", tmp_path / "results", "--threads", 1]
    words += ["--haplotypes", "40", "--samples", "2,4", "--length", 20_000, "--centimorgans", 0.02]
    arguments = make_parser().parse_args([str(word) for word in words])
    arguments.work = tmp_path / "work"
    arguments.work.mkdir()
    arguments.function(arguments)
    (folder,) = (tmp_path / "results").iterdir()
    head, *rows = (line.split("\t") for line in (folder / "growth.tsv").read_text().splitlines())
    assert [(row[0], row[2]) for row in rows] == [("40", "2"), ("40", "4")]
    for row in rows:
        found = dict(zip(head, map(float, row), strict=True))
        assert found["processor_seconds"] > 0.1
        assert found["of_a_sample"] == pytest.approx(found["processor_seconds"] / found["samples"], abs=0.01)
        assert found["peak_mb"] > 20
    configuration = json.loads((folder / "configuration.json").read_text())
    assert len(configuration["commands"]) == 2
    assert str(tmp_path) not in json.dumps(configuration)
    assert "20,000 bases at 1x" in (folder / "report.md").read_text()
