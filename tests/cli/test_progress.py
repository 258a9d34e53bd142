"""What a run that nobody watches says of itself: lines on stderr, and a log."""

import os
import re
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from spinimpute.cli.options import progress_bar

from spinimpute.runtime import progress

LINE = re.compile(r"(.+): (\d+\.\d)% of the run done after \d+ min \d+ s")


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.001)
    monkeypatch.setattr(progress, "GROWTH", 0)


@pytest.mark.usefixtures("often")
def test_stages_are_named_and_shares_grow(run, unphased, panel, tmp_path):
    done = run.impute(unphased, panel, tmp_path / "o.vcf", "--threads", 1).ok()
    found = [match.groups() for match in map(LINE.fullmatch, done.err.splitlines()) if match]
    assert "phasing" in {stage for stage, _ in found}
    shares = [float(share) for _, share in found]
    assert shares == sorted(shares)
    assert len({share for (stage, _), share in zip(found, shares, strict=True) if stage == "phasing"}) > 1


@pytest.mark.usefixtures("often")
def test_stages_of_an_evaluation(run, example, panel, tmp_path):
    truth, imputed = example / "truth.vcf.gz", tmp_path / "imputed.vcf.gz"
    imputed.write_bytes(truth.read_bytes())
    done = run("evaluate", "--truth", truth, "--imputed", imputed, "--panel", panel).ok()
    found = [match.groups() for match in map(LINE.fullmatch, done.err.splitlines()) if match]
    assert {"reading the truth", "comparing"} <= {stage for stage, _ in found}
    shares = [float(share) for _, share in found]
    assert shares == sorted(shares)
    assert len(set(shares)) > 3
    assert max(float(share) for stage, share in found if stage == "reading the truth") <= 50
    quiet = run("evaluate", "--truth", truth, "--imputed", imputed, "--panel", panel, "--quiet")
    assert (quiet.code, quiet.err) == (0, "")


@pytest.mark.usefixtures("often")
def test_training_on_a_table_and_tuning_a_map(run, example, panel, tmp_path):
    table, random = tmp_path / "t.csv", np.random.default_rng(1)
    rows = [f"{x:.3f},{y:.3f}" for x, y in random.normal(size=(200, 2))]
    table.write_text("\n".join(["x,y", *rows]) + "\n")
    tiny = [word for one in ("steps=40", "evaluate_every=2", "width=8") for word in ("--set", one)]
    fit = ("tabular", "fit", "--table", table, "--target", "y", "--model", "mlp", *tiny, "--device", "cpu")
    tune = ("panel", "tune", "--panel", panel, "--array", example / "target.vcf.gz")
    for words, out in ((fit, tmp_path / "m"), (tune, tmp_path / "tuned.spin")):
        done = run(*words, "--out", out).ok()
        found = [match.groups() for match in map(LINE.fullmatch, done.err.splitlines()) if match]
        assert len({share for _, share in found}) > 3
        quiet = run(*words, "--out", out, "--force", "--quiet").ok()
        assert not any(map(LINE.fullmatch, quiet.err.splitlines()))
    log = run(*fit, "--out", tmp_path / "m", "--force", "--verbose").ok("step 40 of 40: loss ")
    assert not any(map(LINE.fullmatch, log.err.splitlines()))


@pytest.fixture
def unphased(edited_target: Callable[[Callable[[str], str]], Path]) -> Path:
    return edited_target(lambda text: text.replace("0|1", "0/1").replace("1|0", "0/1"))


@pytest.mark.usefixtures("often")
def test_quiet(run, unphased, panel, tmp_path):
    done = run.phase(unphased, panel, tmp_path / "o.vcf", "--quiet")
    assert (done.code, done.err) == (0, "")


def test_short_runs_have_no_lines(run, unphased, panel, tmp_path):
    done = run.phase(unphased, panel, tmp_path / "o.vcf")
    assert not any(map(LINE.fullmatch, done.err.splitlines()))


def test_parts_of_a_progress_tell_its_stages():
    found: list[object] = []

    class Shown:
        def __call__(self, fraction: float) -> None:
            found.append(fraction)

        def begin_stage(self, stage: str) -> None:
            found.append(stage)

    whole = progress.split_progress(Shown(), [1, 3], ["chromosome 1", "chromosome 2"])[1]
    part = progress.split_progress(whole, [1, 1])[1]
    progress.begin_stage(part, "phasing")
    assert part is not None
    part(0.5)
    assert found == ["chromosome 2, phasing", pytest.approx(13 / 16)]
    progress.begin_stage(found.append, "nobody asks")  # a plain function gets fractions alone
    progress.begin_stage(None, "nobody is there")
    assert len(found) == 2


def test_long_runs_have_fewer_lines(monkeypatch):
    waits = []
    clock = iter([0.0, 30.0, 60.0, 400.0, 3600.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    lines: list[str] = []
    speaker = progress.ProgressLines("imputing", lines.append)
    monkeypatch.setattr(speaker._ended, "wait", lambda seconds: waits.append(seconds) or len(waits) == 5)
    speaker._speak()
    assert waits == [30, 30, 30, 40, 360]
    assert lines[-1] == "imputing: 0.0% of the run done after 60 min 0 s"


@pytest.mark.usefixtures("often")
def test_the_lines_end_with_the_run():
    def fail() -> None:
        with progress_bar("joining", quiet=False):
            raise ValueError("ends")

    with pytest.raises(ValueError, match="ends"):
        fail()
    assert "progress" not in {thread.name for thread in threading.enumerate()}


def test_a_log_takes_no_other_file(run, example, panel, tmp_path):
    """What a folder or a list names is not known when the log begins."""
    words = ["impute", "--vcf", example / "target.vcf.gz", "--panel", tmp_path / "panels", "--force"]
    (tmp_path / "panels").mkdir()
    kept = Path(shutil.copy(panel, tmp_path / "panels" / "20.spin"))
    run(*words, "--out", tmp_path / "o.vcf", "--log", kept).refused("20.spin exists and is no log")
    assert kept.read_bytes() == panel.read_bytes()
    run(*words, "--out", tmp_path / "o.{chrom}.vcf", "--log", tmp_path / "o.20.vcf").refused(
        "could be a file of --out"
    )
    for _ in range(2):  # a log is overwritten, with --force
        run(*words, "--out", tmp_path / "o.vcf", "--log", tmp_path / "run.log").ok()


def test_log(run, example, panel, tmp_path):
    words = ["impute", "--vcf", example / "target.vcf.gz", "--panel", panel, "--out", tmp_path / "o.vcf"]
    log = tmp_path / "run.log"
    done = run(*words, "--log", log).ok()
    lines = log.read_text().splitlines()
    assert all(re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d ", line) for line in lines)
    assert lines[0][20:].startswith("$ spinimpute impute --vcf ")
    assert [line[20:] for line in lines[1:]] == done.err.splitlines()
    assert b"--log" not in (tmp_path / "o.vcf").read_bytes()

    run(*words, "--log", log).refused("run.log already exists; use --force")
    failed = run(*words, "--log", tmp_path / "second.log").refused()
    assert failed.err.strip() in (tmp_path / "second.log").read_text()
    (tmp_path / "f").mkdir()
    for option, given, name in (
        ("--loo", tmp_path / "l", "l.samples.tsv"),
        ("--report-figures", tmp_path / "f", "f/samples.svg"),
    ):
        one_of_them = run(*words, option, given, "--log", tmp_path / name, "--force")
        assert (one_of_them.code, one_of_them.err.count("\n")) == (2, 1)
        assert "are to be written to the same file" in one_of_them.err
        assert not (tmp_path / name).exists()
    run(*words, "--log", tmp_path / "o.vcf", "--force").refused("are to be written to the same file")
    run(*words, "--report-figures", tmp_path / "new", "--log", log, "--force").ok()
    assert (tmp_path / "new" / "samples.svg").exists()
    words[2] = shutil.copy(example / "target.vcf.gz", tmp_path)
    for name, role in (("target.vcf.gz", "read from"), ("nowhere/x.log", "there is no folder")):
        run(*words, "--log", tmp_path / name, "--force").refused(role)


@pytest.mark.parametrize("command", ["phase", "convert"])
def test_other_commands_have_a_log(run, example, panel, tmp_path, command):
    given = ("--vcf", example / "target.vcf.gz", "--panel", panel, "--out", tmp_path / "o.vcf")
    done = run(command, *given, "--log", tmp_path / "log").ok()
    first, *lines = (line[20:] for line in (tmp_path / "log").read_text().splitlines())
    assert first.startswith(f"$ spinimpute {command} --vcf ")
    assert lines == done.err.splitlines()
    assert b"--log" not in (tmp_path / "o.vcf").read_bytes()


def test_mistakes_in_the_command_are_in_the_log(run, example, panel, tmp_path):
    log, target = tmp_path / "run.log", example / "target.vcf.gz"
    given = ["impute", "--vcf", target, "--out", tmp_path / "o.vcf"]
    for words, said in (
        ([*given, "--log", log], "no reference panel"),
        ([*given, "--panel", panel, "--threads", "none", f"--log={log}"], "'none' is not a valid integer"),
        ([*given, "--panel", panel, "--treads", "2", "--log", log], "--treads"),
        ([*given, "stray", "--panel", panel, "--log", log], "'stray' stands without an option"),
    ):
        run(*words).refused(said)
        first, last = (line[20:] for line in log.read_text().splitlines())
        assert first.startswith(f"$ spinimpute impute --vcf {target} --out ")
        assert said in last
        run(*words, "--threads", "0").refused()
        assert log.read_text().splitlines()[0][20:] == first  # without --force it stays
        log.unlink()


def test_no_other_file_is_lost_to_a_mistaken_command(run, panel, tmp_path):
    kept = tmp_path / "target.vcf"
    kept.write_text("kept")
    run("impute", "--vcf", kept, "--log", kept, "--force").refused()
    run("impute", "--vcf", kept, "--panel", panel, "--log").refused()
    run("evaluate", "--truth", kept, "--panel", panel, "--log", tmp_path / "no.log").refused()
    assert kept.read_text() == "kept"
    assert os.listdir(tmp_path) == ["target.vcf"]
