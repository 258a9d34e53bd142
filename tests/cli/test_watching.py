"""A command that dies without a word: the process that watches over it says why, and cleans up."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .conftest import LIMIT, REPOSITORY, Result, hear_all

NEEDS_PROC = pytest.mark.skipif(
    not Path("/proc/self/task").exists(), reason="processes are listed in /proc on Linux"
)
Script = Callable[..., Result]
DIES = """
import ctypes, os, signal, sys
from spinimpute.vcf import variant_file
from spinimpute.vcf.variant_file import VariantFile

def die(*_):
    {how}

VariantFile.{where} = die
from spinimpute.cli.main import main
main()
"""


def dying(how: str, where: str, *arguments: object) -> "subprocess.CompletedProcess[str]":
    """A command whose reading of a VCF ends the process."""
    return subprocess.run(
        [sys.executable, "-c", DIES.format(how=how, where=where), *map(str, arguments)],
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", "ended with SIGSEGV"),
        ("os.abort()", "ended with SIGABRT"),
        ("os._exit(1)", "ended with status 1"),
        ("os.kill(os.getpid(), signal.SIGBUS)", "became shorter while it was read"),
    ],
)
@pytest.mark.parametrize("where", ["records", "genotypes"])
def test_a_library_that_dies_is_one_message(
    how: str, said: str, where: str, example: Path, panel: Path, tmp_path: Path
) -> None:
    out = tmp_path / "o.vcf.gz"
    done = dying(how, where, "impute", "--vcf", example / "target.vcf.gz", "--panel", panel, "--out", out)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("spinimpute: error: ")
    assert said in done.stderr
    assert f"target {example / 'target.vcf.gz'}" in done.stderr
    assert not list(tmp_path.iterdir())


def test_what_libraries_print_is_not_shown(example: Path, panel: Path, tmp_path: Path) -> None:
    quoted = (
        "[W::bcf] of a line:\n\t[##FILTER\n##A\x01\n]\n\t[10]\n[E::tbx] also\nThe offending line was: 1\n"
    )
    printed = f"[W::hts] of no use\n[E::vcf_parse] neither\n\t#CHROM\n\n{quoted}of another library\n"
    how = f"os.write(2, {printed.encode()!r}); os._exit(1)"
    done = dying(
        how,
        "records",
        "impute",
        "--vcf",
        example / "target.vcf.gz",
        "--panel",
        panel,
        "--out",
        tmp_path / "o.bcf",
    )
    assert done.returncode == 2
    assert done.stderr.startswith("spinimpute: error: target ")
    assert done.stderr.count("\n") == 1


def test_a_defect_of_ours_is_not_called_bad_input() -> None:
    script = "import os\nfrom spinimpute.cli import main\nmain._run = lambda _: end()\nmain.main()"
    end = (
        "import fcntl, os, termios, time\nfrom spinimpute.runtime.watched import *\ndef end():\n"
        "    os.write(2, b'before\\n')\n"
        "    while any(fcntl.ioctl(2, termios.FIONREAD, bytes(4))):  # until it is read\n"
        "        time.sleep(0.01)\n"
        "    begins(READING, 'x'); os.write(2, b'wh\\x01y'); ends(READING, 'x')\n"
        "    os.abort()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", end + script], env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        capture_output=True, text=True, timeout=LIMIT, check=False,
    )  # fmt: skip
    assert done.returncode == 128 + signal.SIGABRT
    assert "before\n" in done.stderr
    assert "spinimpute: a library said: wh\\x01y\n" in done.stderr
    assert "this is a defect, please report it" in done.stderr


SLOW = """
import time
from spinimpute.pipeline import impute

impute.impute_part = lambda *_: (print('open', flush=True), time.sleep(1000))  # the output is locked by then
from spinimpute.cli.main import main
main()
"""


@pytest.fixture
def imputing(example: Path, panel: Path, tmp_path: Path) -> Any:
    """Imputing that is under way and takes long, and its arguments."""
    out = tmp_path / "made" / "o.vcf.gz"
    out.parent.mkdir()
    words = ["impute", "--vcf", example / "target.vcf.gz", "--panel", panel, "--out", out]
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW, *map(str, words)],
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=hear_all,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "open\n"
    yield process, words
    process.kill()
    process.communicate()


def worker_of(process: "subprocess.Popen[str]") -> int:
    (number,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return int(number)


@NEEDS_PROC
def test_a_command_that_is_killed_leaves_nothing(imputing: Any) -> None:
    process, words = imputing
    os.kill(worker_of(process), signal.SIGKILL)
    _, err = process.communicate(timeout=LIMIT)
    assert process.returncode == 128 + signal.SIGKILL
    assert "perhaps because memory ran out" in err
    assert not list(words[6].parent.iterdir())


@NEEDS_PROC
def test_what_two_killed_processes_left_is_removed_by_the_next_run(imputing: Any, script: Script) -> None:
    process, words = imputing
    worker = worker_of(process)
    os.kill(process.pid, signal.SIGSTOP)  # so that it does not clean up
    os.kill(worker, signal.SIGKILL)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=LIMIT)
    out = words[6]
    assert [path.suffix for path in out.parent.iterdir()] == [".part"]
    assert script(*words).code == 0
    assert sorted(path.name for path in out.parent.iterdir()) == ["o.vcf.gz", "o.vcf.gz.tbi"]


def test_a_second_run_does_not_write_the_same_file(imputing: Any, script: Script) -> None:
    _, words = imputing
    second = script(*words)
    assert second.code == 2
    assert "another run is writing it" in second.err
    assert [path.suffix for path in words[6].parent.iterdir()] == [".part"]


def test_a_command_ends_when_who_watches_it_is_killed(imputing: Any) -> None:
    process, words = imputing
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=LIMIT)  # until both have closed their pipes
    until = time.monotonic() + LIMIT
    while list(words[6].parent.iterdir()):
        assert time.monotonic() < until
        time.sleep(0.05)


def killed_while_writing(folder: Path) -> list[str]:
    """What is in a folder when a process that writes `out.vcf` and a temporary folder there was killed."""
    script = (
        "import os, sys\nfrom pathlib import Path\nfrom spinimpute.runtime import watching\n"
        "from spinimpute.runtime.partial_files import PartialFile, temporary_folder_in\n"
        "folder = Path(sys.argv[1])\nwatching.start_watched()\n"
        "partial = PartialFile(folder / 'out.vcf')\n"
        "with temporary_folder_in(folder, 'x-'):\n    os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(folder)], env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        capture_output=True, timeout=LIMIT, check=False,
    )  # fmt: skip
    assert done.returncode == 128 + signal.SIGKILL
    return sorted(path.suffix for path in folder.iterdir())


def folder_of_letters(parent: Path, n_letters: int) -> Path:
    """A folder whose absolute path has so many letters."""
    while (left := n_letters - len(str(parent))) > 0:
        parent /= "d" * (left - 1 if left < 150 else 100)
    parent.mkdir(parents=True)
    assert len(str(parent)) == n_letters
    return parent


def test_temporary_files_and_folders_are_removed_under_their_own_names_alone(tmp_path: Path) -> None:
    """What is told to who watches has a line of 1,000 letters."""
    usual, broken = tmp_path / "usual", tmp_path / "in\ntwo lines"
    usual.mkdir()
    broken.mkdir()
    assert killed_while_writing(usual) == []
    assert killed_while_writing(broken) == [".part", ".parts"]
    for n_letters in (1000, 1000 - len("/x-")):
        folder = folder_of_letters(tmp_path, n_letters)
        (folder / "precious.txt").write_text("kept")
        assert killed_while_writing(folder) == [".part", ".parts", ".txt"]


def test_what_the_watcher_says_is_in_the_log(example: Path, panel: Path, tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    words = ("impute", "--vcf", example / "target.vcf.gz", "--panel", panel, "--out", tmp_path / "o.vcf")
    done = dying("os.kill(os.getpid(), signal.SIGKILL)", "records", *words, "--log", log)
    assert done.returncode == 137
    lines = [line[20:] for line in log.read_text().splitlines()]
    assert lines[0].startswith("$ spinimpute impute --vcf ")
    assert lines[1:] == done.stderr.splitlines()
    assert "the process was killed" in lines[-1]
