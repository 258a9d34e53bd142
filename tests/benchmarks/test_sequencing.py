"""`python -m benchmarks.sequencing` from end to end on tiny sets."""

import json
from pathlib import Path

import numpy as np
import pysam
import pytest

from benchmarks.imputation.cases import SHARED, Case, samples
from benchmarks.sequencing.__main__ import make_parser
from benchmarks.sequencing.compare import leave_out
from benchmarks.sequencing.simulated_reads import LONG, SHORT, SequencedPeople


def test_people_left_out(bcftools: str, simulated: Case, tmp_path: Path) -> None:
    case = leave_out(simulated, 9, tmp_path)
    stayed, left = samples(case.panel), samples(case.truth)
    assert len(left) == 9
    assert sorted(stayed + left) == sorted(samples(simulated.panel))
    assert left == samples(leave_out(simulated, 9, tmp_path).truth)


def test_simulated_reads(tmp_path: Path) -> None:
    """Depth, mates, qualities that are right, and alleles of one haplotype."""
    rng = np.random.default_rng(3)
    position = np.sort(rng.choice(np.arange(20_000, 60_000), 800, replace=False)).tolist()
    alleles_SQ = np.repeat([[0, 1]], 800, axis=0)
    people = SequencedPeople("20", 90_000, position, ["A"] * 800, ["C"] * 800, ["one"], alleles_SQ)
    for kind, n_ends in ((SHORT, 2), (LONG, 1)):
        (path,) = people.write_bams(tmp_path, kind, 4, 1)
        shown: dict[str, list[str]] = {}
        with pysam.AlignmentFile(str(path)) as file:
            reads = list(file)
            depth = file.count("20", 40_000, 40_001)
        for read in reads:
            at = np.array(position) - 1 - read.reference_start
            inside = at[(at >= 0) & (at < read.query_length)]
            shown.setdefault(read.query_name, []).extend(read.query_sequence[i] for i in inside)
        assert sum(read.query_length for read in reads) / 60_000 == pytest.approx(4, rel=0.3)
        assert 0 < depth < 15
        assert len(reads) == n_ends * len({read.query_name for read in reads})
        minor = [min(letters.count("A"), letters.count("C")) for letters in shown.values()]
        assert sum(minor) + sum(letters.count("T") for letters in shown.values()) > 0
        assert sum(minor) < 0.02 * sum(map(len, shown.values()))


def test_fragments(simulated: Case, tmp_path: Path) -> None:
    if not (SHARED / "tools" / "score_imputation.py").is_file():
        pytest.skip("there is no scorer: set SPINIMPUTE_SHARED")
    words = ["fragments", "--people", 5, "--coverage", 1, "--long-coverage", "", "--threads", 1]
    arguments = make_parser().parse_args([str(word) for word in [*words, "--results", tmp_path / "results"]])
    arguments.case, arguments.data = str(simulated.panel.parent), simulated.panel.parent
    arguments.work = tmp_path / "work"
    arguments.work.mkdir()
    arguments.function(arguments)
    (folder,) = (tmp_path / "results").iterdir()
    report = (folder / "report.md").read_text()
    assert report.count("| sites alone |") == report.count("| fragments |") == 3
    assert report.count("| 0.99 to 0.999 |") == 2
    table = (folder / "pairs-of-150-1x.tsv").read_text()
    assert {"sites alone", "fragments"} <= {line.split("\t")[0] for line in table.splitlines()}


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
