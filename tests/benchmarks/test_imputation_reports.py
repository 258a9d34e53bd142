"""Tables of the imputation benchmarks: who is ahead, sizes, costs; commands and their measures."""

import json
import os
import select
import shlex
import sys
from pathlib import Path

import pytest

from benchmarks.imputation.__main__ import make_parser
from benchmarks.imputation.cost import GENOME_MB, Law, Measured, fit
from benchmarks.imputation.measure import OverTimeLimit, ProgramFailed, Stage, run, summarise
from benchmarks.imputation.programs import our_imputers
from benchmarks.imputation.results import scrubbed
from benchmarks.imputation.scale_report import growth
from benchmarks.imputation.scoring import Accuracy
from benchmarks.imputation.tables import ahead_table, error_ratio, size_table, vcf_sizes

NAN = float("nan")
LAW = Law(1.5, 2e-5, 3e-4, 0.4, 1.0)
SIZES = [(n, q) for n in (1_000, 10_000, 50_000) for q in (100, 2_000)]


def rows(values: dict[str, tuple[float, float]]) -> list[Accuracy]:
    names = ("all", "(0,0.5]")
    return [
        Accuracy(label, name, 5, r2, r2 / 2, 0.5, 0)
        for label, of_label in values.items()
        for name, r2 in zip(names, of_label, strict=True)
    ]


def test_ahead_of_the_better_peer() -> None:
    found = {"Beagle": (0.9, NAN), "Minimac4": (0.8, 0.3), "ours": (0.92, 0.3), "other": (0.85, NAN)}
    lines = ahead_table(rows(found)).splitlines()
    assert lines[2] == "| ours | pooled r² | yes (+0.0200, Beagle) | no (+0.0000, Minimac4) |"
    assert lines[4] == "| other | pooled r² | no (-0.0500, Beagle) | – |"


def test_error_ratio() -> None:
    found = rows({"Beagle": (0.9, 0.1), "Minimac4": (0.8, 0.3), "ours": (0.95, 0.3)})
    assert error_ratio(found, "ours") == pytest.approx(0.5)


def test_sizes_are_those_of_vcf_gz(tmp_path: Path) -> None:
    names = {"Beagle": "a.vcf.gz", "mine_too": "b.vcf.gz", "nearest": "c.bcf"}
    files = {imputer: tmp_path / name for imputer, name in names.items()}
    for i, path in enumerate(files.values()):
        path.write_bytes(b"x" * 2_000_000 * (i + 1))
    sizes = vcf_sizes(files)
    assert sizes == {"Beagle": 2_000_000, "mine_too": 4_000_000}
    assert size_table(sizes).splitlines()[2:] == ["| Beagle | 2.00 | 1.00 |", "| mine too | 4.00 | 2.00 |"]


def test_commands_name_no_local_folder() -> None:
    places = {Path("/data/me/scratch"): "WORK", Path("/data/me"): "HOME"}
    program = f"{sys.executable} -m cli"
    for command, shown in {
        f"{program} --out /data/me/scratch/a --model /x/m.x": "python -m cli --out WORK/a --model m.x",
        "beagle map=/data/me/x.map": "beagle map=HOME/x.map",
        "sh -c 'view /data/me/scratch/p.bcf | bref3 > /var/tmp/p'": "sh -c 'view WORK/p.bcf | bref3 > p'",
        "--ours 'a=--model /opt/x/m.safetensors'": "--ours 'a=--model m.safetensors'",
    }.items():
        assert scrubbed(shlex.split(command), places) == shown


def test_configurations_of_ours() -> None:
    (default,) = our_imputers([])
    assert (default.label, default.arguments) == ("spinimpute", ())
    one, two = our_imputers(["fast=", "with points=--inducing-points 64 --model 'my file'"])
    assert one.arguments == ()
    assert (two.label, two.arguments) == ("with_points", ("--inducing-points", "64", "--model", "my file"))
    for wrong in (["fast"], ["=--x"], ["a=", "a="], ["Beagle="]):
        with pytest.raises(SystemExit):
            our_imputers(wrong)


def test_growth_is_the_power() -> None:
    assert growth([10, 100, 1_000], [3, 30, 300]) == pytest.approx(1)
    assert growth([10, 100, 1_000], [5, NAN, 5 * 100**0.5]) == pytest.approx(0.5)
    assert growth([10, 100], [3, NAN]) != growth([10, 100], [3, NAN])


def test_a_law_of_cost_is_recovered() -> None:
    points = [Measured(n, q, LAW.seconds(n, q)) for n, q in SIZES]
    law = fit(points)
    found = (law.start, law.panel, law.target, law.power, law.worst)
    assert found == pytest.approx((1.5, 2e-5, 3e-4, 0.4, 1.0), rel=1e-6)
    points[2] = Measured(10_000, 100, 2 * points[2].seconds)
    assert fit(points).worst > 1.2
    with pytest.raises(ValueError, match="two or more panels"):
        fit(points[:3])


def test_a_genome_pays_its_start_for_every_chunk() -> None:
    hours = LAW.genome_hours(10_000, 500, length_mb=0.5, chunk_mb=10)
    by_length = 2e-5 * 10_000 + 1_000 * 3e-4 * 10_000**0.4
    assert hours * 3_600 == pytest.approx(GENOME_MB * (by_length / 0.5 + 1.5 / 10))


def test_costs_from_tables_to_a_report(tmp_path: Path) -> None:
    for q in (100, 2_000):
        folder = tmp_path / str(q)
        folder.mkdir()
        rows = ["axis\tpanel haplotypes\ttarget haplotypes\timputer\tstatus\tcpu_seconds"]
        rows += [f"panel haplotypes\t{n}\t{q}\tX\tok\t{LAW.seconds(n, q)}" for n, of in SIZES if of == q]
        rows.append(f"panel haplotypes\t9\t{q}\tX\tfailed\tnan")
        (folder / "scale.tsv").write_text("\n".join(rows) + "\n")
        configuration = {"history": {"length": 500_000}, "commit": "abc"}
        (folder / "configuration.json").write_text(json.dumps(configuration))
    words = ["cost", str(tmp_path / "100"), str(tmp_path / "2000"), "--out", str(tmp_path / "cost")]
    arguments = make_parser().parse_args([*words, "--price", "0.1"])
    arguments.function(arguments)
    report = (tmp_path / "cost" / "report.md").read_text()
    hours = LAW.genome_hours(50_000, 10_000, 0.5, 20)
    assert f"| 10,000 | 50,000 | {hours:,.0f} | {hours * 0.1 / 10_000:.1g} |" in report
    assert "1,000,000 (larger than the largest measured panel)" in report
    assert "6.00e-04 N^0.40" in report


def test_memory_is_that_of_the_command_alone(tmp_path: Path) -> None:
    held = bytearray(150 * 2**20)  # of this process, which must not be counted
    stage = run("a", "b", ["sh", "-c", "true"], tmp_path / "log.txt")
    assert stage.peak_mb < 60
    grow = "held = b'1' * (200 * 2**20)"
    assert 200 < run("a", "b", [sys.executable, "-c", grow], tmp_path / "log.txt").peak_mb < 300
    del held


def test_failure_shows_the_log(tmp_path: Path) -> None:
    with pytest.raises(ProgramFailed, match="no such thing"):
        run("a", "b", ["sh", "-c", "echo no such thing; exit 3"], tmp_path / "log.txt")
    with pytest.raises(ProgramFailed, match="there-is-no-such-program"):
        run("a", "b", ["there-is-no-such-program"], tmp_path / "log.txt")


def test_limit_stops_the_whole_pipeline(tmp_path: Path) -> None:
    held = tmp_path / "held"
    os.mkfifo(held)
    reading = os.open(held, os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(OverTimeLimit):
        run("a", "b", ["sh", "-c", f"(sleep 1000; true) 3> {held} | cat"], tmp_path / "log.txt", limit=0.5)
    ready, _, _ = select.select([reading], [], [], 300)  # when nobody has it open to write
    assert ready
    os.close(reading)


def test_median_and_extremes() -> None:
    stages = [Stage("a", "impute", i, s, m, []) for i, (s, m) in enumerate([(3, 10), (1, 30), (2, 20)])]
    (timing,) = summarise(stages)
    assert (timing.runs, timing.seconds, timing.fastest, timing.slowest, timing.peak_mb) == (3, 2, 1, 3, 30)
