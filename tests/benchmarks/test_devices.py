"""The benchmark of devices: the order of its rows, what is left out, and what the report says of each."""

import tomllib
from pathlib import Path

import numpy as np
import pytest

import spinimpute
from benchmarks.devices.engine import Case, Measured, compose
from benchmarks.devices.engine import report as engine_report
from benchmarks.devices.plan import (
    EXPECTED_OVER_LIMIT,
    IMPUTE,
    OK,
    OUT_OF_TIME,
    OVER_LIMIT,
    TABULAR,
    TRAIN,
    Row,
    expected_seconds,
    planned,
)
from benchmarks.devices.report import Machine, Set, report, write_results
from benchmarks.devices.rows import Agreement, Runner, differences
from benchmarks.devices.work import with_few_validations
from benchmarks.imputation.cases import REPOSITORY

pytestmark = pytest.mark.slow

EXAMPLE = REPOSITORY / "data" / "example"
MACHINE = Machine("a processor", 16, "a card", "3.12.3", "abc", {"torch": "2.11"})


def test_what_tells_most_comes_first() -> None:
    rows = planned(["a", "b", "c"], ["cpu", "cuda"], [1, 2, 4], 2)
    assert len({(row.key, row.run) for row in rows}) == len(rows)
    first = [(row.name, row.kind, row.device, row.threads) for row in rows[:4]]
    assert first == [("a", kind, device, 4) for kind in ("haplotype", "spin") for device in ("cpu", "cuda")]
    assert {row.name for row in rows[:8]} == {"a", "b"}
    assert [row.task for row in rows[8:14]] == 4 * [TRAIN] + 2 * [TABULAR]
    assert {row.threads for row in rows if row.device == "cuda"} == {2, 4}
    assert {row.threads for row in rows if row.device == "cpu"} == {1, 2, 4}


def test_fewer_threads_are_expected_to_take_longer() -> None:
    done = [Row(IMPUTE, "a", "spin", "cpu", 16, status=OK, seconds=10)]
    assert expected_seconds(Row(IMPUTE, "a", "spin", "cpu", 4), done) == 40
    assert expected_seconds(Row(IMPUTE, "a", "spin", "cpu", 16, 2), done) == 10
    assert expected_seconds(Row(IMPUTE, "a", "haplotype", "cpu", 4), done) == 0
    killed = [Row(IMPUTE, "a", "spin", "cuda", 16, status=OVER_LIMIT, seconds=60)]
    assert expected_seconds(Row(IMPUTE, "a", "spin", "cuda", 2), killed) == 60


def test_rows_beyond_limit_and_budget_are_not_run(tmp_path: Path) -> None:
    runner = Runner(tmp_path, tmp_path, 1, limit=30, budget=0)
    assert runner.measure(Row(IMPUTE, "a", "spin", "cpu", 4)).status == OUT_OF_TIME
    runner = Runner(tmp_path, tmp_path, 1, limit=30, budget=600)
    runner._done.append(Row(IMPUTE, "a", "spin", "cpu", 4, status=OK, seconds=20))
    assert runner.measure(Row(IMPUTE, "a", "spin", "cpu", 2)).status == EXPECTED_OVER_LIMIT
    runner._done.append(Row(IMPUTE, "a", "spin", "cuda", 4, status=OVER_LIMIT, seconds=30))
    assert runner.measure(Row(IMPUTE, "a", "spin", "cuda", 4, 2)).status == EXPECTED_OVER_LIMIT


def test_the_report_has_the_median_and_says_why_rows_are_lacking(tmp_path: Path) -> None:
    rows = [
        Row(IMPUTE, "a", "haplotype", "cpu", 16, run, OK, seconds, 300.0, {"impute": 2.0, "samples": 100})
        for run, seconds in ((1, 9.0), (2, 4.0), (3, 5.0))
    ]
    rows += [
        Row(IMPUTE, "a", "haplotype", "cuda", 16, 1, OK, 8, 900, {"impute": 1, "samples": 100, "gpu_mb": 70}),
        Row(IMPUTE, "a", "spin", "cpu", 16, status=OVER_LIMIT, seconds=90),
        Row(TRAIN, "a", "haplotype", "cpu", 16, status=OUT_OF_TIME),
        Row(TABULAR, "generated", "spin", "cpu", 16, 1, OK, 8, 9,
            {"steps": 10, "step_seconds": 4, "predicted": 20, "predict_seconds": 2}),
    ]  # fmt: skip
    sets = [Set("a", 4_508, 32_781, 100, 696)]
    page = report(MACHINE, sets, rows, [Agreement("a", "haplotype", "cuda", 1_000, 0.002, 1e-5)])
    assert "| a | haplotype | cpu | 16 | 3 | 5.00 | 2.00 | 20.0 | 50.0 | 300 | – |" in page
    assert "| a | haplotype | cuda | 16 | 1 | 8.00 | 1.00 | 12.5 | 100.0 | 900 | 70 |" in page
    assert "| a | SPIN | cpu | 16 | 0 | over the limit |" in page
    assert "| a | haplotype | cpu | 16 | not run: out of time | – |" in page
    assert "| generated | SPIN | cpu | 16 | 2.50 | 10 | – |" in page
    assert "| a | haplotype | cuda | 1,000 | 0.0020 | 1.00e-05 |" in page
    write_results(tmp_path, MACHINE, sets, rows, [], {"repeat": 3, "results": tmp_path})
    assert {path.name for path in tmp_path.iterdir()} == {"report.md", "runs.tsv", "configuration.json"}
    assert len((tmp_path / "runs.tsv").read_text().splitlines()) == 1 + len(rows)


def test_the_engine_is_measured(tmp_path: Path) -> None:
    spinimpute.build_panel(EXAMPLE / "panel.vcf.gz", tmp_path / "example.spin")
    for name, ending in (("target", ".bcf"), ("truth", ".truth.bcf")):  # formats are detected from contents
        (tmp_path / f"example{ending}").write_bytes((EXAMPLE / f"{name}.vcf.gz").read_bytes())
    case = Case.read(tmp_path, "example")
    assert len(set(case.typed_index) & set(case.truth_index)) == 0
    composed_TQ = compose(case.typed_TQ, 300, np.random.default_rng(1))
    assert composed_TQ.shape == (len(case.typed_index), 600)
    frequency_2T = [alleles_TQ.clip(min=0).mean(1) for alleles_TQ in (case.typed_TQ, composed_TQ)]
    assert np.corrcoef(frequency_2T)[0, 1] > 0.95
    seconds, p_UQ = case.impute(16, "cpu", case.typed_TQ, keep=True)
    assert seconds > 0
    assert 0.3 < case.r2(p_UQ) < 1
    line = Measured("a", 16, 100, 0.5, 2.0, busy_share=0.9, r2=0.95, dosages=1_000, largest=0.01, differing=2)
    assert "| a | 16 | 100 | 0.50 | 400 | 0.90 | – | 0.95000 |" in engine_report(MACHINE, [line])
    assert "2 of 1,000" in engine_report(MACHINE, [line])


@pytest.mark.parametrize("kind", ["haplotype", "spin"])
def test_training_validates_once(kind: str) -> None:
    text = with_few_validations((REPOSITORY / f"configs/{kind}_panel.toml").read_text(), 12)
    training = tomllib.loads(text)["training"]
    assert (training["validate_every"], training["validation_tasks"]) == (12, 1)


def test_a_row_runs_and_its_dosages_are_compared(tmp_path: Path) -> None:
    spinimpute.build_panel(EXAMPLE / "panel.vcf.gz", tmp_path / "example.spin")
    (tmp_path / "example.t.vcf.gz").write_bytes((EXAMPLE / "target.vcf.gz").read_bytes())
    runner = Runner(tmp_path, tmp_path, 1, limit=120, budget=120)
    row = runner.measure(Row(IMPUTE, "example", "haplotype", "cpu", 1))
    assert row.status == OK
    assert row.seconds > row.found["impute"] > 0
    written = tmp_path / "example.haplotype.cpu.vcf.gz"
    count, *found = differences(written, written)
    assert count > 0
    assert found == [0, 0]
    # a row that fails says why
    assert "lacking.spin" in runner.measure(Row(IMPUTE, "lacking", "haplotype", "cpu", 1)).status
