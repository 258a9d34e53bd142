"""The commands run from end to end on a tiny set, with the real programs."""

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import spinimpute
from benchmarks.imputation import results, scoring
from benchmarks.imputation.__main__ import make_parser
from benchmarks.imputation.cases import Case
from benchmarks.imputation.results import counted_by
from benchmarks.imputation.scoring import read_accuracy, score
from benchmarks.imputation.unphased import switch_errors, without_phase
from spinimpute import OutputSettings

pytestmark = pytest.mark.slow

Command = Callable[..., Path]
REGION = ("--length", 20_000, "--centimorgans", 0.02)  # of a simulated set


def pooled_r2(table: Path) -> dict[str, float]:
    return {row.imputer: row.pooled_r2 for row in read_accuracy(table) if row.bin == "all"}


def rows_of(table: Path) -> list[list[str]]:
    return [line.split("\t") for line in table.read_text().splitlines()]


def test_compare(command: Command, simulated: Case, tmp_path: Path) -> None:
    folder = command("compare", simulated.panel.parent, "--ours", "mine=--decimals 3", "--repeat", 1)
    found = pooled_r2(folder / "accuracy.tsv")
    assert set(found) == {"allele-frequency", "Beagle", "Minimac4", "mine", "10_nearest_haplotypes"}
    assert min(found["Beagle"], found["Minimac4"], found["mine"]) > found["allele-frequency"] + 0.2
    configuration = json.loads((folder / "configuration.json").read_text())
    assert set(configuration["models"]) == {"mine"}
    assert str(tmp_path) not in json.dumps(configuration)
    assert (folder / "strata.tsv").read_text().startswith("dimension\tstratum\tfrequency")
    assert "mine is below a peer in" in (folder / "report.md").read_text()
    figure = make_parser().parse_args(["figure", str(folder), "--out", str(tmp_path / "figure.png")])
    figure.function(figure)
    assert (tmp_path / "figure.png").stat().st_size > 10_000


def test_panels_too_large_for_the_scorer_are_counted_alike(
    programs: None, scorer: Path, simulated: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    imputed = {"first": tmp_path / "first.vcf.gz", "rounded": tmp_path / "rounded.vcf.gz"}
    for digits, path in zip((3, 1), imputed.values(), strict=True):
        output, genetic_map = OutputSettings(decimals=digits), simulated.genetic_map
        spinimpute.impute(simulated.target, path, simulated.panel, output=output, genetic_map=genetic_map)
    rows = score(simulated, scorer, imputed, tmp_path / "scorer.tsv")
    assert "which agree" in counted_by(simulated)
    monkeypatch.setattr(scoring, "LARGEST_GB", 0.0)
    monkeypatch.setattr(results, "LARGEST_GB", 0.0)
    alone = score(simulated, tmp_path / "none", imputed, tmp_path / "alone.tsv")
    assert {row.imputer for row in rows} == {"allele-frequency", "first", "rounded"}
    for ours, theirs in zip(alone, rows, strict=True):
        names = [(row.imputer, row.bin, row.sites) for row in (ours, theirs)]
        assert names[0] == names[1]
        numbers = [(row.pooled_r2, row.mean_r2, row.nrc, row.missing_sites) for row in (ours, theirs)]
        assert numbers[0] == pytest.approx(numbers[1], abs=scoring.AGREEMENT, nan_ok=True)
    assert "Counted by `spinimpute evaluate` alone" in counted_by(simulated)


@pytest.mark.parametrize(
    "words",
    [["fewer-sites", "--parts", "2"], ["small-panels", "--people", "20"], ["single-target", "--people", "2"]],
    ids=lambda words: words[0],
)
def test_variations(words: list[str], command: Command, simulated: Case) -> None:
    folder = command(words[0], simulated.panel.parent, *words[1:])
    assert "| tiny-" in (folder / "report.md").read_text()
    (case,) = [path for path in folder.iterdir() if path.is_dir()]
    found = pooled_r2(case / "accuracy.tsv")
    assert min(found["Beagle"], found["Minimac4"], found["spinimpute"]) > found["allele-frequency"]
    assert (case / "timing.tsv").exists()


def test_sets(command: Command, simulated: Case, tmp_path: Path) -> None:
    """Without a genetic map, and beside "another" version."""
    set_ = tmp_path / "without_map"
    shutil.copytree(simulated.panel.parent, set_)
    (set_ / "genetic.map").unlink()
    folder = command("sets", set_, "--before", sys.executable)
    for kind, peers in (("phased", {"Beagle", "Minimac4"}), ("unphased", {"Beagle"})):
        report = (folder / kind / "report.md").read_text()
        assert "| case | allele-frequency | Beagle |" in report
        assert "Bins of minor allele frequency in which a peer is ahead or level" in report
        found = pooled_r2(folder / kind / "without_map" / "accuracy.tsv")
        assert set(found) == {"allele-frequency", "before", "spinimpute", *peers}
        assert found["before"] == found["spinimpute"]


def test_left_out(command: Command, simulated: Case) -> None:
    folder = command("left-out", simulated.panel.parent, "--set", "SMALLEST_WEIGHT=1.0;TRAINED_RATIOS=()")
    head, today, other = rows_of(folder / "accuracy.tsv")
    assert head[:2] == ["case", "settings"]
    assert today[1] == "today's"
    assert float(today[2]) > 0.5
    assert today[2:] != other[2:]
    assert [len(rows_of(folder / f"{table}.tsv")) for table in ("sums", "tenths")] == [3, 3]
    with pytest.raises(SystemExit, match="none of SMALLEST_WEIGHT"):
        command("left-out", simulated.panel.parent, "--set", "WEIGHT=1")


def test_maps(command: Command, simulated: Case) -> None:
    folder = command("maps", simulated.panel.parent)
    assert len(pooled_r2(folder / "tiny.tsv")) == 5
    report = (folder / "report.md").read_text()
    assert "- given: as it was; panel built in" in report
    assert "| constant rate or estimated |" in report


def test_two_panels(command: Command, simulated: Case) -> None:
    folder = command("two-panels", simulated.panel.parent, "--people", 10, "--cut", 50, "--lost", 5)
    found = pooled_r2(folder / "tiny-50.tsv")
    assert set(found) == {"allele-frequency", "first", "second", "both", "uncut_panel"}
    assert found["both"] > max(found["first"], found["second"])
    report = (folder / "report.md").read_text()
    assert "Cut 50: 50 haplotypes with" in report
    assert "| share of the gain |" in report


def test_unphased(command: Command, simulated: Case) -> None:
    folder = command("unphased", simulated.panel.parent, "--repeat", 1)
    found = pooled_r2(folder / "accuracy.tsv")
    assert set(found) == {"allele-frequency", "Beagle", "spinimpute"}
    assert min(found["Beagle"], found["spinimpute"]) > found["allele-frequency"] + 0.2
    _, *rows = rows_of(folder / "switches.tsv")
    assert [row[0] for row in rows] == ["Beagle", "spinimpute"]
    for row in rows:
        assert 0 < int(row[2]) < 24 * 15
        assert float(row[3]) < 0.3  # 0.5 by chance
    assert "## Phase" in (folder / "report.md").read_text()


def test_switch_errors_are_counted(simulated: Case, tmp_path: Path) -> None:
    assert switch_errors(simulated.target, simulated.target)[0] == 0
    errors, pairs = switch_errors(simulated.target, without_phase(simulated, 1, tmp_path).target)
    assert 0.2 * pairs < errors < 0.8 * pairs


def test_calibration(command: Command, simulated: Case) -> None:
    folder = command("calibration", simulated.panel.parent)
    rows = rows_of(folder / "probabilities.tsv")
    certain = {row[0]: float(row[-1]) for row in rows if row[1:3] == ["all", "0.9 and more"]}
    assert set(certain) == {"Beagle", "Minimac4", "spinimpute"}
    assert min(certain.values()) > 0.9
    assert len(rows_of(folder / "estimates.tsv")) > 4


def test_expected_r2(command: Command, simulated: Case) -> None:
    folder = command("r2", simulated.panel.parent)
    assert folder.name.endswith(f"-r2-{simulated.name}")
    assert set(json.loads((folder / "configuration.json").read_text())["models"]) == {"spinimpute"}
    assert "## What is kept with R2 ≥ 0.3" in (folder / "report.md").read_text()
    for table in ("estimates", "cuts"):
        imputers = {row[0] for row in rows_of(folder / f"{table}.tsv")[1:]}
        assert imputers == {"Beagle", "Minimac4", "spinimpute"}
    estimates = {(row[0], row[1]): row for row in rows_of(folder / "estimates.tsv")}
    assert estimates["spinimpute", "all"][3] == "0"  # every site has an R2
    assert all(int(size) > 1000 for _, size in rows_of(folder / "sizes.tsv")[1:])


def test_panel_files(command: Command, simulated: Case) -> None:
    folder = command("panel-files", "--warm", simulated.panel.parent)
    table = [line for line in (folder / "report.md").read_text().splitlines() if line.startswith("| ")]
    assert [row.split(" | ")[0][2:] for row in table[2:]] == ["Beagle", "Minimac4", "spinimpute"]
    numbers = [[float(number) for number in row.strip("| ").split(" | ")[1:]] for row in table[2:]]
    assert numbers[1][1] == 1
    assert 0 < numbers[2][1] < 1  # of Minimac4's bytes
    assert numbers[2][2] > 0
    assert json.loads((folder / "configuration.json").read_text())["warm"] is True


@pytest.fixture
def simulate(command: Command, tmp_path: Path) -> Command:
    """simulate(*words): run a command that simulates its own sets."""
    pytest.importorskip("msprime", reason="msprime is not installed (extra: bench)")
    return lambda name, *words: command(name, "--cache", tmp_path / "cache", *words)


def test_chromosome(simulate: Command) -> None:
    sizes = ["--length", 30_000, "--centimorgans", 0.05, "--panel-haplotypes", 60, "--target-haplotypes", 16]
    folder = simulate("chromosome", *sizes, "--typed-sites", 12)
    report = (folder / "report.md").read_text()
    for kind in ("phased", "unphased", "one-person"):
        assert f"| {kind} | Beagle |" in report
        assert f"| {kind} | spinimpute |" in report
    assert "| unphased | Minimac4 |" not in report
    assert report.count("| Minimac4 |") == 2 + 2 + 1  # in three tables


def test_budgets(simulate: Command) -> None:
    sizes = ["--panel", "40", "--targets", "8", "--typed", 10, "--budgets", "50M,2G"]
    head, none, little, enough = rows_of(simulate("budgets", *sizes, *REGION) / "budgets.tsv")
    assert head[2:4] == ["--max-memory", "measured MB"]
    assert [row[2] for row in (none, little, enough)] == ["none", "50M", "2G"]
    assert little[3] == "–"
    assert little[5].startswith("refused, needs")
    assert 50 < float(enough[3]) < 2048
    assert enough[5] == "kept"


def test_scale(simulate: Command) -> None:
    sizes = ["--panel", "40,80", "--targets", "", "--typed", "", "--base", "40,8,10"]
    folder = simulate("scale", *sizes, *REGION)
    head, *rows = rows_of(folder / "scale.tsv")
    assert len(rows) == 2 * 3
    assert head[-2:] == ["status", "cpu_seconds"]
    # the fastest programs take less than the hundredth of a second that is printed
    assert all(row[-2] == "ok" and float(row[-1]) >= 0 for row in rows)
    assert sum(float(row[-1]) for row in rows) > 0
    assert (folder / "scale.png").stat().st_size > 10_000


def test_large_panels(simulate: Command) -> None:
    sizes = ["--panel", "60", "--target-haplotypes", 12, "--density", "400", "--relatives", "0,0.5"]
    folder = simulate("large-panels", *sizes, *REGION)
    cases = ["60-12-8-flaws", "60-12-8-relatives-0.5-flaws"]
    assert sorted(path.name for path in folder.iterdir() if path.is_dir()) == cases
    report = (folder / "report.md").read_text()
    assert all(f"| {case} |" in report for case in cases)
    assert "a peer is ahead" in report
    strata = (folder / cases[1] / "strata.tsv").read_text()
    assert all(f"superpopulation\t{relation}\t" in strata for relation in ("unrelated", "parent"))
