"""A disk that runs full: exit status 2, a message that names file and cause, and no file left behind."""

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import spinimpute

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).resolve().parents[2]
FULL = "No space left on device"
PAGE_KIB = 4


@pytest.fixture(scope="module")
def chunks(example: Path, panel: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("chunks")
    made = []
    for number, region in enumerate(("20:1-400000", "20:400001-")):
        made.append(folder / f"{number}.vcf.gz")
        spinimpute.impute(
            example / "target.vcf.gz", made[-1], panel, region=spinimpute.RegionSettings(region=region)
        )
    return made


@pytest.fixture
def arguments(example: Path, panel: Path, chunks: list[Path]) -> Callable[[str], list[object]]:
    """arguments(name): of a command, all but --out."""
    target = ["--vcf", example / "target.vcf.gz", "--panel", panel]
    source = ["--vcf", example / "panel.vcf.gz", "--map", example / "genetic.map"]
    commands: dict[str, list[object]] = {
        "impute": ["impute", *target],
        "phase": ["phase", *target],
        "convert": ["convert", "--vcf", example / "truth.vcf.gz", "--panel", panel],
        "ligate": ["ligate", *chunks],
        "panel build": ["panel", "build", *source],
        "inducing": ["panel", "build", *source, "--inducing", 16, "--array", example / "array.txt"],
        "panel tune": ["panel", "tune", "--panel", panel, "--array", example / "array.txt"],
    }
    return commands.__getitem__


def said_once(err: str, name: str) -> None:
    (line,) = [line for line in err.splitlines() if line.startswith("spinimpute: error")]
    assert FULL in line
    assert name in line


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize(
    ("command", "name", "kib"),
    [
        ("impute", "o.vcf.gz", 60),
        ("impute", "o.bcf", 60),
        ("impute", "o.vcf", 60),
        ("phase", "o.bcf", 4),
        ("convert", "o.vcf", 60),
        ("ligate", "o.vcf.gz", 60),
        ("panel build", "o.spin", 60),
        ("panel tune", "o.spin", 60),
        ("inducing", "o.spip", 4),
    ],
)
def test_outputs(run, arguments, small_disk, command, name, kib, at_once):
    """With no space at all, or with space for a part of the output."""
    disk = small_disk(kib).folder
    if at_once:
        (disk / "other").write_bytes(b"0" * 1024 * kib)
    done = run(*arguments(command), "--out", disk / name, "--quiet").refused()
    said_once(done.err, str(disk / name))
    assert [path.name for path in disk.iterdir()] == ["other"] * at_once


@pytest.mark.parametrize(("command", "name"), [("panel build", "o.spin"), ("impute", "o.bcf")])
def test_read_only(run, arguments, small_disk, command, name):
    disk = small_disk(60).folder
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    done = run(*arguments(command), "--out", disk / name, "--quiet").refused()
    (line,) = [line for line in done.err.splitlines() if line.startswith("spinimpute: error")]
    assert f"cannot write {disk / name}: Read-only file system" in line


@pytest.mark.parametrize("option", ["--report", "--multiqc", "--loo", "--sites"])
def test_a_read_only_folder_is_noticed_before_the_target_is_read(
    run, arguments, small_disk, tmp_path, option
):
    disk = small_disk(60).folder
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    name = {"--multiqc": "a_mqc.json", "--sites": "a.tsv.gz"}.get(option, "a")
    given = list(arguments("impute"))
    (tmp_path / "damaged.vcf").write_text("##fileformat=VCFv4.2\n")
    given[given.index("--vcf") + 1] = tmp_path / "damaged.vcf"
    done = run(*given, "--out", tmp_path / "o.vcf", option, disk / name).refused("Read-only file system")
    assert f"cannot write {disk / name}" in done.err


@pytest.mark.parametrize("command", ["impute", "ligate"])
def test_room_for_all_but_the_index(run, arguments, small_disk, tmp_path, command):
    out = tmp_path / "o.vcf.gz"
    run(*arguments(command), "--out", out, "--quiet").ok()
    disk = small_disk(-(-out.stat().st_size // 4096) * PAGE_KIB).folder
    done = run(*arguments(command), "--out", disk / "o.vcf.gz", "--quiet").refused()
    said_once(done.err, str(disk / "o.vcf.gz"))
    assert not list(disk.iterdir())


def test_what_was_there_stays(run, arguments, small_disk):
    disk = small_disk(8).folder
    (disk / "o.vcf.gz").write_text("of yesterday")
    run(*arguments("impute"), "--out", disk / "o.vcf.gz", "--force", "--quiet").refused()
    assert (disk / "o.vcf.gz").read_text() == "of yesterday"


@pytest.mark.parametrize(
    ("option", "name"),
    [("--report", "page.html"), ("--multiqc", "a_mqc.json"), ("--loo", "quality.sites.tsv")],
)
def test_what_comes_with_the_output(run, arguments, small_disk, tmp_path, option, name):
    disk = small_disk(PAGE_KIB).folder
    given = disk / name.removesuffix(".sites.tsv")
    done = run(*arguments("impute"), "--out", tmp_path / "o.vcf.gz", option, given, "--quiet").refused()
    said_once(done.err, str(disk / name))
    assert not list(disk.iterdir())


def as_a_process(*arguments: object, before: str = "", **options: Any) -> "subprocess.CompletedProcess[str]":
    """The command line in a process of its own, so that its temporary files are not pytest's."""
    return subprocess.run(
        [sys.executable, "-c", f"{before}\nfrom cli.main import main; main()", *map(str, arguments)],
        text=True, cwd=REPOSITORY, timeout=120, check=False, **{"stderr": subprocess.PIPE, **options},
    )  # fmt: skip


@pytest.mark.parametrize("command", ["impute", "inducing"])
def test_temporary_files(example, arguments, small_disk, tmp_path, command):
    """A panel that is VCF is compiled there."""
    disk = small_disk(32).folder
    given = arguments(command)
    if command == "impute":
        given = [*given[:3], "--panel", example / "panel.vcf.gz", "--map", example / "genetic.map"]
    out = tmp_path / ("o.spip" if command == "inducing" else "o.vcf.gz")
    done = as_a_process(*given, "--out", out, "--quiet", env=os.environ | {"TMPDIR": str(disk)})
    assert done.returncode == 2
    said_once(done.stderr, str(disk))
    assert "TMPDIR" in done.stderr
    assert not list(disk.iterdir())
    assert [path.name for path in tmp_path.iterdir()] == ["disk0"]


def test_no_folder_for_temporary_files(example, tmp_path):
    done = as_a_process(
        "impute", "--vcf", example / "target.vcf.gz", "--panel", example / "panel.vcf.gz", "--map",
        example / "genetic.map", "--out", tmp_path / "o.vcf.gz",
        before=f"import tempfile; tempfile.tempdir = {str(tmp_path / 'nowhere')!r}",
    )  # fmt: skip
    assert done.returncode == 2
    assert str(tmp_path / "nowhere") in done.stderr
    assert "TMPDIR" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
@pytest.mark.parametrize("command", ["info", "chunks", "verify"])
def test_standard_output(panel, command):
    with open("/dev/full", "w") as full:
        done = as_a_process("panel", command, panel, stdout=full)
    assert done.returncode == 2
    assert done.stderr == f"spinimpute: error: cannot write standard output: {FULL}\n"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
def test_standard_error():
    """Nothing can be said, but the status tells."""
    with open("/dev/full", "w") as full:
        done = as_a_process("panel", "info", "absent.spin", stderr=full)
    assert done.returncode == 2
    with open("/dev/full", "w") as full:
        done = as_a_process("panel", "info", "--no-such-option", stderr=full)
    assert done.returncode == 2


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
def test_standard_error_of_a_run_that_succeeds(example, tmp_path):
    """It warns that there is no genetic map, and says what it has made."""
    out = tmp_path / "o.spin"
    with open("/dev/full", "w") as full:
        done = as_a_process("panel", "build", "--vcf", example / "panel.vcf.gz", "--out", out, stderr=full)
    assert done.returncode == 0
    assert out.is_file()


def test_standard_error_is_closed(example, panel, tmp_path):
    """That is no reason not to impute."""
    out = tmp_path / "o.vcf.gz"
    words = ["impute", "--vcf", example / "target.vcf.gz", "--panel", panel, "--out", out]
    python = [sys.executable, "-c", "from spinimpute.cli.main import main; main()", *map(str, words)]
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" 2>&-', "sh", *python], cwd=REPOSITORY, timeout=120, check=False
    )
    assert done.returncode == 0
    assert out.is_file()


@pytest.mark.parametrize("option", ["--report", "--report-figures", "--multiqc", "--loo"])
def test_without_what_stands_beside_them_there_are_no_genotypes(
    run, arguments, tmp_path, monkeypatch, option
):
    """A file under its final name says that the command has succeeded."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("spinimpute.reports.page.Page.write", full)
    monkeypatch.setattr("spinimpute.reports.charts.Chart.write", full)
    monkeypatch.setattr("spinimpute.reports.multiqc.SampleTable.write", full)
    monkeypatch.setattr("spinimpute.quality.leave_one_out.LeaveOneOutQuality.write", full)
    beside = tmp_path / "beside_mqc.json"
    done = run(*arguments("impute"), "--out", tmp_path / "o.vcf.gz", option, beside, "--quiet").refused()
    said_once(done.err, str(beside))
    assert not list(tmp_path.glob("*o.vcf*")), list(tmp_path.iterdir())
    assert not beside.exists()
