"""`python -m benchmarks.sequencing` from end to end on tiny sets."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pysam
import pytest

from benchmarks.imputation.cases import SHARED, Case, samples
from benchmarks.imputation.cast import Conditions
from benchmarks.imputation.related_set import relate
from benchmarks.sequencing.__main__ import make_parser
from benchmarks.sequencing.compare import leave_out, switch_errors
from benchmarks.sequencing.results import INSTALLED
from benchmarks.sequencing.simulated_reads import LONG, SHORT, ReadKind, SequencedPeople

pytestmark = pytest.mark.slow


def test_people_left_out(bcftools: str, simulated: Case, tmp_path: Path) -> None:
    case = leave_out(simulated, 9, tmp_path)
    stayed, left = samples(case.panel), samples(case.truth)
    assert len(left) == 9
    assert sorted(stayed + left) == sorted(samples(simulated.panel))
    assert left == samples(leave_out(simulated, 9, tmp_path).truth)


def test_the_installed_program_is_run(tmp_path: Path) -> None:
    """A folder of the same name in the working folder is not run."""
    (tmp_path / "spinimpute").mkdir()
    (tmp_path / "spinimpute" / "__main__.py").write_text("print('another program')\n")
    (tmp_path / "spinimpute" / "__init__.py").touch()
    said = subprocess.run([*INSTALLED, "--version"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "another program" not in said.stdout


def test_switch_errors_of_programs_that_share_no_pair(write_vcf: Callable[..., Path]) -> None:
    def write(name: str, *calls: str) -> Path:
        return write_vcf([(100 + i, "A", "C", [call]) for i, call in enumerate(calls)], name=name)

    truth = write("truth.vcf", "0|1", "0|1", "1|0")
    one, other = write("one.vcf", "0|1", "1|0", "1|1"), write("other.vcf", "1|1", "0|1", "1|1")
    rows = switch_errors({"one": one, "other": other}, truth)
    assert rows == {"one": ["1.0000", "1", "–", "0"], "other": ["–", "0", "–", "0"]}


def test_simulated_reads(tmp_path: Path) -> None:
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


@pytest.mark.parametrize("kind", [SHORT, LONG], ids=lambda kind: kind.name)
def test_simulated_indels(tmp_path: Path, kind: ReadKind) -> None:
    """Aligned letters are the reference's except for errors; indels are the haplotype's except for slips."""
    rng = np.random.default_rng(5)
    position = np.arange(20_000, 60_000, 100).tolist()
    ref, alt = ["GTT", "G", "A", "C"] * 100, ["G", "GCA", "C", "CTTTTTTTTTTTT"] * 100
    alleles_SQ = np.repeat(rng.integers(0, 2, (400, 1)), 2, axis=1)
    people = SequencedPeople("20", 90_000, position, ref, alt, ["one"], alleles_SQ)
    genome = people.genome(np.random.default_rng(1)).tobytes().decode()
    for place, letters in zip(position, ref, strict=True):
        at = place - 1 - people.start
        assert genome[at : at + len(letters)] == letters
    (path,) = people.write_bams(tmp_path, kind, 4, 1)
    n_letters = n_wrong = 0
    shown: list[tuple[int, int]] = []  # number of letters that are more or less, and as it should be
    with pysam.AlignmentFile(str(path)) as file:
        for read in file:
            pairs = read.get_aligned_pairs(matches_only=True)
            snps = set(position[2::4])
            for offset, at in pairs:
                if at + 1 not in snps:
                    n_letters += 1
                    n_wrong += read.query_sequence[offset] != genome[at - people.start]
            places = {at + 1: offset for offset, at in pairs}
            for s, place in enumerate(position):
                behind = place + 25
                if len(ref[s]) != len(alt[s]) and place in places and behind in places:
                    expected = (len(alt[s]) - len(ref[s])) * int(alleles_SQ[s, 0])
                    shown.append((places[behind] - places[place] - 25, expected))
    # qualities are 20 to 27
    assert n_wrong / n_letters == pytest.approx(0.0045, abs=0.002)
    right = np.mean([found == expected for found, expected in shown])
    assert len(shown) > 500
    assert 0.85 < right < 0.99


@pytest.fixture
def command(tmp_path: Path) -> Callable[..., Path]:
    """command(*words, case=None): run `benchmarks.sequencing`; returns its folder of results."""
    if not (SHARED / "tools" / "score_imputation.py").is_file():
        pytest.skip("there are no scorer and no simulator of reads: set SPINIMPUTE_SHARED")

    def run(*words: object, case: Path | None = None) -> Path:
        words = (*words, "--threads", 1, "--results", tmp_path / "results")
        arguments = make_parser().parse_args([str(word) for word in words])
        if case is not None:
            arguments.case, arguments.data = str(case), case
        arguments.work = tmp_path / "work"
        arguments.work.mkdir()
        arguments.function(arguments)
        (folder,) = (tmp_path / "results").iterdir()
        return folder

    return run


def first_column(table: Path) -> set[str]:
    return {line.split("\t")[0] for line in table.read_text().splitlines()}


def test_fragments(simulated: Case, command: Callable[..., Path]) -> None:
    words = ["fragments", "--people", 5, "--coverage", 1, "--long-coverage", ""]
    folder = command(*words, case=simulated.panel.parent)
    report = (folder / "report.md").read_text()
    assert report.count("| sites alone |") == report.count("| fragments |") == 3
    assert report.count("| 0.99 to 0.999 |") == 2
    assert {"sites alone", "fragments"} <= first_column(folder / "pairs-of-150-1x.tsv")


def test_phase_beside_another_version(simulated: Case, command: Callable[..., Path], tmp_path: Path) -> None:
    """The same version twice has equal switch errors and accuracy."""
    related = tmp_path / "related"
    relate(simulated, related, 8, Conditions(relatives=0.0), seed=1)
    other = Path(sys.executable).with_name("spinimpute")
    folder = command("phase", related, "--beside", f"other={other}", "--coverage", "1")
    report = (folder / "report.md").read_text()
    other_row, our_row = re.findall(r"^\| \S+ \| 1 \| (?:other|spinimpute) \| (.*)$", report, re.M)
    assert other_row == our_row
    configuration = json.loads((folder / "configuration.json").read_text())
    assert configuration["sets"][0]["relatives"] == 0
    assert str(tmp_path) not in json.dumps(configuration)


def with_indels(panel: Path, bcftools: str) -> None:
    """Every fifth site of a panel becomes an insertion or a deletion."""
    command = [bcftools, "view", str(panel)]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    first = next(i for i, line in enumerate(lines) if not line.startswith("#"))
    for i in range(first, len(lines), 5):
        fields = lines[i].split("\t")
        fields[3:5] = ("G", "GTA") if i % 2 else ("GT", "G")
        lines[i] = "\t".join(fields)
    text = panel.with_suffix(".vcf")
    text.write_text("\n".join(lines) + "\n")
    subprocess.run([bcftools, "view", str(text), "-Ob", "-o", str(panel)], check=True)
    subprocess.run([bcftools, "index", "-f", str(panel)], check=True)


@pytest.mark.parametrize("aligned", [False, True], ids=["as made", "by bwa"])
def test_indels(simulated, command, tmp_path, bcftools, aligned) -> None:
    if aligned and shutil.which("bwa") is None:
        pytest.skip("bwa is not installed")
    case = tmp_path / "case"
    shutil.copytree(simulated.panel.parent, case)
    with_indels(case / simulated.panel.name, bcftools)
    aligner = ["--aligner", "bwa"] if aligned else []
    folder = command("indels", "--people", 5, "--coverage", 4, *aligner, case=case)
    report = (folder / "report.md").read_text()
    assert report.count("| 0.99 to 0.999 |") == 4
    for kind in ("indels", "snps"):
        assert {"SNPs alone", "with --indels"} <= first_column(folder / f"{kind}-4x.tsv")
    rows = re.findall(r"^\| \d+ to \d+ \| (\d+) \| ([.\d]+) \| ([.\d]+) \|$", report, re.M)
    count, wrong, expected = np.array(rows, float).T
    assert count.sum() > 100
    assert count @ wrong < count @ expected + 4


def test_growth(bcftools: str, command: Callable[..., Path], tmp_path: Path) -> None:
    pytest.importorskip("msprime", reason="msprime is not installed (extra: bench)")
    words = ["growth", "--cache", tmp_path / "cache", "--haplotypes", "40", "--samples", "2,4"]
    folder = command(*words, "--length", 20_000, "--centimorgans", 0.02)
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
