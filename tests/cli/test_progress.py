"""What a run that nobody watches says of itself: lines on stderr, and a log."""

import os
import re
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from spinimpute.cli.options import progress_bar

from spinimpute.runtime import progress

Run = Callable[..., Any]
LINE = re.compile(r"(.+): (\d+\.\d)% of the run done after \d+ min \d+ s")


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.001)


@pytest.mark.usefixtures("often")
def test_stages_are_named_and_shares_grow(run: Run, unphased: Path, panel: Path, tmp_path: Path) -> None:
    done = run("impute", "--vcf", unphased, "--panel", panel, "--out", tmp_path / "o.vcf", "--threads", 1)
    assert done.code == 0, done.err
    found = [match.groups() for match in map(LINE.fullmatch, done.err.splitlines()) if match]
    assert "phasing" in {stage for stage, _ in found}
    shares = [float(share) for _, share in found]
    assert shares == sorted(shares)
    assert len({share for (stage, _), share in zip(found, shares, strict=True) if stage == "phasing"}) > 1


@pytest.mark.usefixtures("often")
def test_stages_of_an_evaluation(run: Run, example: Path, panel: Path) -> None:
    truth = example / "truth.vcf.gz"
    done = run("evaluate", "--truth", truth, "--imputed", truth, "--panel", panel)
    assert done.code == 0, done.err
    found = [match.groups() for match in map(LINE.fullmatch, done.err.splitlines()) if match]
    assert {"reading the truth", "comparing"} <= {stage for stage, _ in found}
    shares = [float(share) for _, share in found]
    assert shares == sorted(shares)
    assert len(set(shares)) > 3
    assert max(float(share) for stage, share in found if stage == "reading the truth") <= 50
    quiet = run("evaluate", "--truth", truth, "--imputed", truth, "--panel", panel, "--quiet")
    assert (quiet.code, quiet.err) == (0, "")


@pytest.fixture
def unphased(edited_target: Callable[[Callable[[str], str]], Path]) -> Path:
    return edited_target(lambda text: text.replace("0|1", "0/1").replace("1|0", "0/1"))


@pytest.mark.usefixtures("often")
def test_quiet(run: Run, unphased: Path, panel: Path, tmp_path: Path) -> None:
    done = run("phase", "--vcf", unphased, "--panel", panel, "--out", tmp_path / "o.vcf", "--quiet")
    assert (done.code, done.err) == (0, "")


def test_short_runs_have_no_lines(run: Run, unphased: Path, panel: Path, tmp_path: Path) -> None:
    done = run("phase", "--vcf", unphased, "--panel", panel, "--out", tmp_path / "o.vcf")
    assert not any(map(LINE.fullmatch, done.err.splitlines()))


def test_parts_of_a_progress_tell_its_stages() -> None:
    found: list[object] = []

    class Shown:
        def __call__(self, fraction: float) -> None:
            found.append(fraction)

        def begin_stage(self, stage: str) -> None:
            found.append(stage)

    part = progress.split_progress(progress.split_progress(Shown(), [1, 3])[1], [1, 1])[1]
    progress.begin_stage(part, "phasing")
    assert part is not None
    part(0.5)
    assert found == ["phasing", pytest.approx(13 / 16)]
    progress.begin_stage(found.append, "nobody asks")  # a plain function gets fractions alone
    progress.begin_stage(None, "nobody is there")
    assert len(found) == 2


@pytest.mark.usefixtures("often")
def test_the_lines_end_with_the_run() -> None:
    def fail() -> None:
        with progress_bar("joining", quiet=False):
            raise ValueError("ends")

    with pytest.raises(ValueError, match="ends"):
        fail()
    assert "progress" not in {thread.name for thread in threading.enumerate()}


def test_a_log_takes_no_other_file(run: Run, example: Path, panel: Path, tmp_path: Path) -> None:
    """What a folder or a list names is not known when the log begins."""
    words = ["impute", "--vcf", example / "target.vcf.gz", "--panel", tmp_path / "panels", "--force"]
    (tmp_path / "panels").mkdir()
    kept = Path(shutil.copy(panel, tmp_path / "panels" / "20.spin"))
    failed = run(*words, "--out", tmp_path / "o.vcf", "--log", kept)
    assert failed.code == 2
    assert "20.spin exists and is no log" in failed.err
    assert kept.read_bytes() == panel.read_bytes()
    failed = run(*words, "--out", tmp_path / "o.{chrom}.vcf", "--log", tmp_path / "o.20.vcf")
    assert failed.code == 2
    assert "could be a file of --out" in failed.err
    for _ in range(2):  # a log is overwritten, with --force
        assert run(*words, "--out", tmp_path / "o.vcf", "--log", tmp_path / "run.log").code == 0


@pytest.mark.parametrize("name", ["o.{chrom}.vcf", "o.{chr}.vcf"])
def test_one_output_has_no_place_for_chromosomes(
    run: Run, example: Path, panel: Path, tmp_path: Path, name: str
) -> None:
    words = ["--vcf", example / "target.vcf.gz", "--panel", panel, "--out", tmp_path / name]
    for command in ("phase", "convert"):
        failed = run(command, *words)
        assert failed.code == 2
        assert "{chrom} is for the output of 'impute' only. Give a name" in failed.err
    assert not list(tmp_path.iterdir())


def test_log(run: Run, example: Path, panel: Path, tmp_path: Path) -> None:
    words = ["impute", "--vcf", example / "target.vcf.gz", "--panel", panel, "--out", tmp_path / "o.vcf"]
    log = tmp_path / "run.log"
    done = run(*words, "--log", log)
    assert done.code == 0, done.err
    lines = log.read_text().splitlines()
    assert all(re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d ", line) for line in lines)
    assert lines[0][20:].startswith("$ spinimpute impute --vcf ")
    assert [line[20:] for line in lines[1:]] == done.err.splitlines()
    assert b"--log" not in (tmp_path / "o.vcf").read_bytes()

    again = run(*words, "--log", log)
    assert again.code == 2
    assert "run.log already exists; use --force" in again.err
    failed = run(*words, "--log", tmp_path / "second.log")
    assert failed.code == 2
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
    same = run(*words, "--log", tmp_path / "o.vcf", "--force")
    assert same.code == 2
    assert "are to be written to the same file" in same.err
    words[2] = shutil.copy(example / "target.vcf.gz", tmp_path)
    for name, role in (("target.vcf.gz", "read from"), ("nowhere/x.log", "there is no folder")):
        wrong = run(*words, "--log", tmp_path / name, "--force")
        assert wrong.code == 2
        assert role in wrong.err


@pytest.mark.parametrize("command", ["phase", "convert"])
def test_other_commands_have_a_log(
    run: Run, example: Path, panel: Path, tmp_path: Path, command: str
) -> None:
    given = ("--vcf", example / "target.vcf.gz", "--panel", panel, "--out", tmp_path / "o.vcf")
    done = run(command, *given, "--log", tmp_path / "log")
    assert done.code == 0
    first, *lines = (line[20:] for line in (tmp_path / "log").read_text().splitlines())
    assert first.startswith(f"$ spinimpute {command} --vcf ")
    assert lines == done.err.splitlines()
    assert b"--log" not in (tmp_path / "o.vcf").read_bytes()


def test_mistakes_in_the_command_are_in_the_log(run: Run, example: Path, panel: Path, tmp_path: Path) -> None:
    log, target = tmp_path / "run.log", example / "target.vcf.gz"
    given = ["impute", "--vcf", target, "--out", tmp_path / "o.vcf"]
    for words, said in (
        ([*given, "--log", log], "no reference panel"),
        ([*given, "--panel", panel, "--threads", "none", f"--log={log}"], "'none' is not a valid integer"),
        ([*given, "--panel", panel, "--treads", "2", "--log", log], "--treads"),
        ([*given, "stray", "--panel", panel, "--log", log], "'stray' stands without an option"),
    ):
        failed = run(*words)
        assert (failed.code, said in failed.err) == (2, True)
        first, last = (line[20:] for line in log.read_text().splitlines())
        assert first.startswith(f"$ spinimpute impute --vcf {target} --out ")
        assert said in last
        again = run(*words, "--threads", "0")
        assert again.code == 2
        assert log.read_text().splitlines()[0][20:] == first  # without --force it stays
        log.unlink()


def test_no_other_file_is_lost_to_a_mistaken_command(run: Run, panel: Path, tmp_path: Path) -> None:
    kept = tmp_path / "target.vcf"
    kept.write_text("kept")
    assert run("impute", "--vcf", kept, "--log", kept, "--force").code == 2
    assert run("impute", "--vcf", kept, "--panel", panel, "--log").code == 2
    assert run("evaluate", "--truth", kept, "--panel", panel, "--log", tmp_path / "no.log").code == 2
    assert kept.read_text() == "kept"
    assert os.listdir(tmp_path) == ["target.vcf"]
