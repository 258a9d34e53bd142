"""The commands run from end to end on a tiny set, with the real programs."""

import json
import shutil
import sys
from pathlib import Path

import pytest

import spinimpute
from benchmarks.imputation import results, scoring
from benchmarks.imputation.__main__ import make_parser
from benchmarks.imputation.cases import SHARED, Case
from benchmarks.imputation.results import counted_by
from benchmarks.imputation.scoring import read_accuracy, score
from spinimpute import OutputSettings


def call(*arguments: object) -> None:
    parsed = make_parser().parse_args([str(argument) for argument in arguments])
    parsed.function(parsed)


@pytest.fixture
def scorer() -> Path:
    path = SHARED / "tools" / "score_imputation.py"
    if not path.is_file():
        pytest.skip(f"the scorer is not at {path}: set SPINIMPUTE_SHARED")
    return path


def test_compare(programs: None, scorer: Path, simulated: Case, tmp_path: Path) -> None:
    results = tmp_path / "results"
    shared = ["--scorer", scorer, "--results", results, "--threads", 1]
    call("compare", simulated.panel.parent, *shared, "--ours", "mine=--decimals 3", "--repeat", 1)
    (folder,) = results.iterdir()
    rows = read_accuracy(folder / "accuracy.tsv")
    found = {row.imputer: row.pooled_r2 for row in rows if row.bin == "all"}
    assert set(found) == {"allele-frequency", "Beagle", "Minimac4", "mine", "10_nearest_haplotypes"}
    assert min(found["Beagle"], found["Minimac4"], found["mine"]) > found["allele-frequency"] + 0.2
    configuration = json.loads((folder / "configuration.json").read_text())
    assert set(configuration["models"]) == {"mine"}
    assert str(tmp_path) not in json.dumps(configuration)
    assert (folder / "strata.tsv").read_text().startswith("dimension\tstratum\tfrequency")
    assert "mine is below a peer in" in (folder / "report.md").read_text()
    call("figure", folder, "--out", tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 10_000


def test_panels_too_large_for_the_scorer_are_counted_alike(
    programs: None, scorer: Path, simulated: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    imputed = {"first": tmp_path / "first.vcf.gz", "rounded": tmp_path / "rounded.vcf.gz"}
    for digits, path in zip((3, 1), imputed.values(), strict=True):
        spinimpute.impute(
            simulated.target, path, simulated.panel, output=OutputSettings(decimals=digits),
            genetic_map=simulated.genetic_map,
        )  # fmt: skip
    rows = score(simulated, scorer, imputed, tmp_path / "scorer.tsv")
    assert "which agree" in counted_by(simulated)
    monkeypatch.setattr(scoring, "LARGEST_GB", 0.0)
    monkeypatch.setattr(results, "LARGEST_GB", 0.0)
    alone = score(simulated, tmp_path / "none", imputed, tmp_path / "alone.tsv")
    assert {row.imputer for row in rows} == {"allele-frequency", "first", "rounded"}
    assert [(row.imputer, row.bin, row.sites) for row in alone] == [
        (row.imputer, row.bin, row.sites) for row in rows
    ]
    for ours, theirs in zip(alone, rows, strict=True):
        numbers = [(row.pooled_r2, row.mean_r2, row.nrc, row.missing_sites) for row in (ours, theirs)]
        assert numbers[0] == pytest.approx(numbers[1], abs=scoring.AGREEMENT, nan_ok=True)
    assert "Counted by `spinimpute evaluate` alone" in counted_by(simulated)


@pytest.mark.parametrize(
    "command",
    [["fewer-sites", "--parts", "2"], ["small-panels", "--people", "20"], ["single-target", "--people", "2"]],
    ids=lambda command: command[0],
)
def test_variations(
    command: list[str], programs: None, scorer: Path, simulated: Case, tmp_path: Path
) -> None:
    results = tmp_path / "results"
    shared = ["--scorer", scorer, "--results", results, "--threads", 1]
    call(command[0], simulated.panel.parent, *command[1:], *shared)
    (folder,) = results.iterdir()
    assert "| tiny-" in (folder / "report.md").read_text()
    (case,) = [path for path in folder.iterdir() if path.is_dir()]
    found = {row.imputer: row.pooled_r2 for row in read_accuracy(case / "accuracy.tsv") if row.bin == "all"}
    assert min(found["Beagle"], found["Minimac4"], found["spinimpute"]) > found["allele-frequency"]
    assert (case / "timing.tsv").exists()


def test_sets(programs: None, scorer: Path, simulated: Case, tmp_path: Path) -> None:
    """Without a genetic map, and beside "another" version."""
    set_ = tmp_path / "without_map"
    shutil.copytree(simulated.panel.parent, set_)
    (set_ / "genetic.map").unlink()
    shared = ["--scorer", scorer, "--results", tmp_path / "results", "--threads", 1]
    call("sets", set_, *shared, "--before", sys.executable)
    (folder,) = (tmp_path / "results").iterdir()
    for kind, peers in (("phased", {"Beagle", "Minimac4"}), ("unphased", {"Beagle"})):
        report = (folder / kind / "report.md").read_text()
        assert "| case | allele-frequency | Beagle |" in report
        assert "Bins of minor allele frequency in which a peer is ahead or level" in report
        rows = read_accuracy(folder / kind / "without_map" / "accuracy.tsv")
        found = {row.imputer: row.pooled_r2 for row in rows if row.bin == "all"}
        assert set(found) == {"allele-frequency", "before", "spinimpute", *peers}
        assert found["before"] == found["spinimpute"]


def test_left_out(simulated: Case, scorer: Path, programs: None, tmp_path: Path) -> None:
    shared = ["--scorer", scorer, "--results", tmp_path / "results", "--threads", 1]
    call("left-out", simulated.panel.parent, *shared, "--set", "SMALLEST_WEIGHT=1.0;TRAINED_RATIOS=()")
    (folder,) = (tmp_path / "results").iterdir()
    head, today, other = (line.split("\t") for line in (folder / "accuracy.tsv").read_text().splitlines())
    assert head[:2] == ["case", "settings"]
    assert today[1] == "today's"
    assert float(today[2]) > 0.5
    assert today[2:] != other[2:]
    for table in ("sums", "tenths"):
        assert len((folder / f"{table}.tsv").read_text().splitlines()) == 3
    with pytest.raises(SystemExit, match="none of SMALLEST_WEIGHT"):
        call("left-out", simulated.panel.parent, *shared, "--set", "WEIGHT=1")


def test_chromosome(programs: None, scorer: Path, tmp_path: Path) -> None:
    pytest.importorskip("msprime", reason="msprime is not installed (extra: bench)")
    sizes = ["--length", 30_000, "--centimorgans", 0.05, "--panel-haplotypes", 60, "--target-haplotypes", 16]
    shared = ["--scorer", scorer, "--results", tmp_path / "results", "--threads", 1]
    call("chromosome", "--cache", tmp_path / "cache", *sizes, "--typed-sites", 12, *shared)
    (folder,) = (tmp_path / "results").iterdir()
    report = (folder / "report.md").read_text()
    for kind in ("phased", "unphased", "one-person"):
        assert f"| {kind} | Beagle |" in report
        assert f"| {kind} | spinimpute |" in report
    assert "| unphased | Minimac4 |" not in report
    assert report.count("| Minimac4 |") == 2 + 2 + 1  # of three tables


def test_maps(programs: None, scorer: Path, simulated: Case, tmp_path: Path) -> None:
    results = tmp_path / "results"
    call("maps", simulated.panel.parent, "--scorer", scorer, "--results", results, "--threads", 1)
    (folder,) = results.iterdir()
    rows = [row for row in read_accuracy(folder / "tiny.tsv") if row.bin == "all"]
    assert len({row.imputer for row in rows}) == 5
    report = (folder / "report.md").read_text()
    assert "- given: as it was; panel built in" in report
    assert "| constant rate or estimated |" in report


def test_two_panels(programs: None, scorer: Path, simulated: Case, tmp_path: Path) -> None:
    results = tmp_path / "results"
    shared = ["--scorer", scorer, "--results", results, "--threads", 1]
    call("two-panels", simulated.panel.parent, "--people", 10, "--cut", 50, "--lost", 5, *shared)
    (folder,) = results.iterdir()
    found = {row.imputer: row.pooled_r2 for row in read_accuracy(folder / "tiny-50.tsv") if row.bin == "all"}
    assert set(found) == {"allele-frequency", "first", "second", "both", "uncut_panel"}
    assert found["both"] > max(found["first"], found["second"])
    report = (folder / "report.md").read_text()
    assert "Cut 50: 50 haplotypes with" in report
    assert "| share of the gain |" in report


def test_unphased(programs: None, scorer: Path, simulated: Case, tmp_path: Path) -> None:
    results = tmp_path / "results"
    call(
        "unphased", simulated.panel.parent, "--scorer", scorer, "--results", results, "--threads", 1,
        "--repeat", 1,
    )  # fmt: skip
    (folder,) = results.iterdir()
    found = {row.imputer: row.pooled_r2 for row in read_accuracy(folder / "accuracy.tsv") if row.bin == "all"}
    assert set(found) == {"allele-frequency", "Beagle", "spinimpute"}
    assert min(found["Beagle"], found["spinimpute"]) > found["allele-frequency"] + 0.2
    _, *rows = [line.split("\t") for line in (folder / "switches.tsv").read_text().splitlines()]
    assert [row[0] for row in rows] == ["Beagle", "spinimpute"]
    for row in rows:
        assert 0 < int(row[2]) < 24 * 15
        assert float(row[3]) < 0.3  # a coin's would be 0.5
    assert "## Phase" in (folder / "report.md").read_text()


def test_switch_errors_are_counted(simulated: Case, tmp_path: Path) -> None:
    from benchmarks.imputation.unphased import switch_errors, without_phase

    assert switch_errors(simulated.target, simulated.target)[0] == 0
    made = without_phase(simulated, 1, tmp_path)
    errors, pairs = switch_errors(simulated.target, made.target)
    assert 0.2 * pairs < errors < 0.8 * pairs


def test_calibration(programs: None, scorer: Path, simulated: Case, tmp_path: Path) -> None:
    results = tmp_path / "results"
    call("calibration", simulated.panel.parent, "--scorer", scorer, "--results", results, "--threads", 1)
    (folder,) = results.iterdir()
    rows = [line.split("\t") for line in (folder / "probabilities.tsv").read_text().splitlines()]
    sure = {row[0]: float(row[-1]) for row in rows if row[1:3] == ["all", "0.9 and more"]}
    assert set(sure) == {"Beagle", "Minimac4", "spinimpute"}
    assert min(sure.values()) > 0.9
    assert len((folder / "estimates.tsv").read_text().splitlines()) > 4


def test_budgets(programs: None, scorer: Path, tmp_path: Path) -> None:
    pytest.importorskip("msprime", reason="msprime is not installed (extra: bench)")
    results, cache = tmp_path / "results", tmp_path / "cache"
    sizes = ["--panel", "40", "--targets", "8", "--typed", 10, "--budgets", "50M,2G"]
    region = ["--length", 20_000, "--centimorgans", 0.02, "--threads", 1]
    call("budgets", "--cache", cache, "--scorer", scorer, "--results", results, *sizes, *region)
    (folder,) = results.iterdir()
    head, none, little, enough = (
        row.split("\t") for row in (folder / "budgets.tsv").read_text().splitlines()
    )
    assert head[2:4] == ["--max-memory", "measured MB"]
    assert [row[2] for row in (none, little, enough)] == ["none", "50M", "2G"]
    assert little[3] == "–"
    assert little[5].startswith("refused, needs")
    assert 50 < float(enough[3]) < 2048
    assert enough[5] == "kept"


def test_scale(programs: None, scorer: Path, tmp_path: Path) -> None:
    pytest.importorskip("msprime", reason="msprime is not installed (extra: bench)")
    results, cache = tmp_path / "results", tmp_path / "cache"
    sizes = ["--panel", "40,80", "--targets", "", "--typed", "", "--base", "40,8,10"]
    region = ["--length", 20_000, "--centimorgans", 0.02, "--threads", 1]
    call("scale", "--cache", cache, "--scorer", scorer, "--results", results, *sizes, *region)
    (folder,) = results.iterdir()
    lines = (folder / "scale.tsv").read_text().splitlines()
    assert len(lines) == 1 + 2 * 3
    columns = [line.split("\t") for line in lines]
    assert columns[0][-2:] == ["status", "cpu_seconds"]
    # the fastest take less than the hundredth of a second that is printed
    assert all(row[-2] == "ok" and float(row[-1]) >= 0 for row in columns[1:])
    assert sum(float(row[-1]) for row in columns[1:]) > 0
    assert (folder / "scale.png").stat().st_size > 10_000


def test_large_panels(programs: None, scorer: Path, tmp_path: Path) -> None:
    pytest.importorskip("msprime", reason="msprime is not installed (extra: bench)")
    results, cache = tmp_path / "results", tmp_path / "cache"
    sizes = ["--panel", "60", "--target-haplotypes", 12, "--density", "400", "--relatives", "0,0.5"]
    region = ["--length", 20_000, "--centimorgans", 0.02, "--threads", 1]
    call("large-panels", "--cache", cache, "--scorer", scorer, "--results", results, *sizes, *region)
    (folder,) = results.iterdir()
    cases = ["60-12-8-flaws", "60-12-8-relatives-0.5-flaws"]
    assert sorted(path.name for path in folder.iterdir() if path.is_dir()) == cases
    report = (folder / "report.md").read_text()
    assert all(f"| {case} |" in report for case in cases)
    assert "a peer is ahead" in report
    strata = (folder / cases[1] / "strata.tsv").read_text()
    assert all(f"superpopulation\t{relation}\t" in strata for relation in ("unrelated", "parent"))
