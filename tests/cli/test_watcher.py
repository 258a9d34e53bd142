"""A command that crashes, is killed or interrupted: one message, an exit status, and nothing left behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import NEEDS_PROC

from .conftest import LIMIT, REPOSITORY, Result, restore_signals

pytestmark = pytest.mark.slow

Start = Callable[..., "subprocess.Popen[str]"]

CRASHES = """
from spinimpute.vcf.variant_file import VariantFile

def crash(*_):
    {how}

VariantFile.{method} = crash
"""
SLOW = """
from spinimpute.pipeline import impute_target

impute, counts = impute_target.TargetImputer.impute, impute_target.WindowCounts
impute_target.TargetImputer.impute = lambda *given: (impute(*given), time.sleep(1000))
impute_target.WindowCounts = lambda *given: (print("window", flush=True), counts(*given))[1]
"""
COMMAND = """
from spinimpute.cli import main

def command(*_, **__):
    {body}

main.spinimpute = command
"""


@pytest.fixture
def begin() -> Iterator[Start]:
    """begin(edit, *words): a command in its own process group, after Python code that edits the program."""
    processes = []

    def start(
        edit: str, *words: object, prepare: Callable[[], None] = restore_signals
    ) -> "subprocess.Popen[str]":
        code = f"import atexit, os, signal, sys, time\n{edit}\nfrom spinimpute.cli.main import main\nmain()"
        process = subprocess.Popen(
            [sys.executable, "-c", code, *map(str, words)], env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
            preexec_fn=prepare,
        )  # fmt: skip
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


@pytest.fixture
def finish(begin: Start) -> Callable[..., Result]:
    """finish(edit, *words): the same process, when it has ended."""

    def run(edit: str, *words: object, **options: Any) -> Result:
        process = begin(edit, *words, **options)
        out, err = process.communicate(timeout=LIMIT)
        return Result(process.returncode, out, err)

    return run


@pytest.fixture
def words(example: Path, panel: Path, tmp_path: Path) -> list[object]:
    """An imputation of the example to made/o.vcf.gz."""
    (tmp_path / "made").mkdir()
    out = tmp_path / "made" / "o.vcf.gz"
    return ["impute", "--vcf", example / "target.vcf.gz", "--panel", panel, "--out", out]


@pytest.fixture
def imputing(begin: Start, words: list[object]) -> "subprocess.Popen[str]":
    """An imputation that has written a window and does not end by itself."""
    process = begin(SLOW, *words, "--threads", 1, "--window-cm", 0.05)
    assert process.stdout is not None
    assert process.stdout.readline() == "window\n"
    return process


def child_of(process: "subprocess.Popen[str]") -> int:
    (number,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return int(number)


def suffixes(folder: Path) -> list[str]:
    return sorted(path.suffix for path in folder.iterdir())


@pytest.mark.parametrize(
    ("how", "method", "message"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", "records", "ended with SIGSEGV"),
        ("os.abort()", "genotypes", "ended with SIGABRT"),
        ("os.write(2, b'[E::vcf]\\n#CHROM\\nThe line was:'); os._exit(1)", "records", "ended with status 1"),
        ("os.kill(os.getpid(), signal.SIGBUS)", "records", "became shorter while it was read"),
    ],
)
def test_a_crash_of_a_library_is_one_message(how, method, message, finish, words, tmp_path):
    done = finish(CRASHES.format(how=how, method=method), *words).refused()
    assert done.err.startswith(f"spinimpute: error: target {words[2]}")
    assert done.err.count("\n") == 1
    assert message in done.err
    assert not suffixes(tmp_path / "made")


def test_a_crash_without_open_files_is_a_defect(finish):
    body = (
        "import fcntl, termios\n"
        "    from spinimpute.runtime.open_files import closed, opened\n"
        "    os.write(2, b'before\\n')\n"
        "    while any(fcntl.ioctl(2, termios.FIONREAD, bytes(4))):  # until it is read\n"
        "        time.sleep(0.01)\n"
        "    opened('read', 'x'); os.write(2, b'wh\\x01y'); closed('read', 'x')\n"
        "    os.abort()\n"
    )
    done = finish(COMMAND.format(body=body))
    assert done.code == 128 + signal.SIGABRT
    before, printed, error = done.err.splitlines()
    assert before == "before"
    assert printed == "spinimpute: a library printed: wh\\x01y"
    assert "This is a defect: please report it" in error


@NEEDS_PROC
def test_a_killed_command(imputing, words, tmp_path):
    os.kill(child_of(imputing), signal.SIGKILL)
    _, err = imputing.communicate(timeout=LIMIT)
    assert imputing.returncode == 128 + signal.SIGKILL
    assert "perhaps because memory ran out" in err
    assert not suffixes(tmp_path / "made")


@NEEDS_PROC
def test_the_next_run_removes_what_two_killed_processes_left(imputing, words, script, tmp_path):
    script(*words).refused("another run is writing it")
    child = child_of(imputing)
    os.kill(imputing.pid, signal.SIGSTOP)  # so that it does not clean up
    os.kill(child, signal.SIGKILL)
    os.kill(imputing.pid, signal.SIGKILL)
    imputing.communicate(timeout=LIMIT)
    assert suffixes(tmp_path / "made") == [".part"]
    script(*words).ok()
    assert suffixes(tmp_path / "made") == [".gz", ".tbi"]


def test_a_command_ends_with_its_watcher(imputing, tmp_path):
    imputing.send_signal(signal.SIGKILL)
    imputing.communicate(timeout=LIMIT)  # until both processes have closed their pipes
    until = time.monotonic() + LIMIT
    while suffixes(tmp_path / "made"):
        assert time.monotonic() < until
        time.sleep(0.05)


def test_temporary_files_of_any_name_are_removed(finish, tmp_path):
    """Nothing else is: the other folder has the beginning of the long name."""
    folder = tmp_path / "in\ntwo lines"
    while len(str(folder)) < 1000:
        folder /= "d" * 100
    folder.mkdir(parents=True)
    (folder / "precious.txt").write_text("kept")
    body = (
        "from pathlib import Path\n"
        "    from spinimpute.runtime.partial_files import PartialFile, temporary_folder_in\n"
        f"    folder = Path({str(folder)!r})\n"
        "    partial = PartialFile(folder / 'out.vcf')\n"
        "    with temporary_folder_in(folder, 'x-') as made:\n"
        "        (made / 'file').touch()\n"
        "        os.kill(os.getpid(), 9)\n"
    )
    assert finish(COMMAND.format(body=body)).code == 128 + signal.SIGKILL
    assert suffixes(folder) == [".txt"]


def test_the_message_is_in_the_log(finish, words, tmp_path):
    crash = CRASHES.format(how="os.kill(os.getpid(), signal.SIGKILL)", method="records")
    done = finish(crash, *words, "--log", tmp_path / "run.log")
    assert done.code == 137
    command, *lines = [line[20:] for line in (tmp_path / "run.log").read_text().splitlines()]
    assert command.startswith("$ spinimpute impute --vcf ")
    assert lines == done.err.splitlines()
    assert "the process was killed" in lines[-1]


@pytest.mark.parametrize(
    ("number", "code", "message"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]
)
def test_an_interrupt(imputing, tmp_path, number, code, message):
    assert suffixes(tmp_path / "made") == [".part"]
    imputing.send_signal(number)
    _, err = imputing.communicate(timeout=LIMIT)
    lines = [line for line in err.splitlines() if not line.startswith("compiling for this processor")]
    assert lines == [f"spinimpute: {message}"]
    assert imputing.returncode == code
    assert not suffixes(tmp_path / "made")


@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM"])
def test_an_interrupt_whatever_catches_exceptions(number, finish):
    body = (
        f"try:\n        os.killpg(0, signal.{number})\n        time.sleep(1000)\n"
        "    except BaseException:\n        time.sleep(1000)"
    )
    done = finish(COMMAND.format(body=body))
    assert (done.code, done.err.count("\n")) == (128 + signal.Signals[number], 1)


def test_signals_after_the_end_change_nothing(finish):
    body = "atexit.register(lambda: os.killpg(0, signal.SIGINT)); print('done')"
    assert finish(COMMAND.format(body=body)) == Result(0, "done\n", "")


def test_a_signal_while_the_command_line_is_loaded(finish):
    """There is nothing to clean up yet: the process ends as other programs do."""
    loading = (
        "class Loading:\n    def find_spec(self, name, *_):\n"
        "        if name == 'click':\n            os.killpg(0, signal.SIGINT)\n"
        "sys.meta_path.insert(0, Loading())\nfrom spinimpute.__main__ import main\nmain()"
    )
    assert finish(loading) == Result(-signal.SIGINT, "", "")


@pytest.mark.parametrize("number", ["SIGHUP", "SIGQUIT", "SIGUSR1"])
def test_other_signals_are_no_defect(number, finish):
    done = finish(COMMAND.format(body=f"os.kill(os.getppid(), signal.{number}); time.sleep(1000)"))
    assert done == Result(128 + signal.Signals[number], "", f"spinimpute: ended by {number}\n")


def test_an_ignored_signal_stays_ignored(finish):
    """A shell script starts what runs in the background so: Ctrl-C is for the foreground."""
    body = COMMAND.format(body="os.killpg(0, signal.SIGINT); print('not interrupted')")
    done = finish(body, prepare=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN) and None)
    assert done == Result(0, "not interrupted\n", "")
