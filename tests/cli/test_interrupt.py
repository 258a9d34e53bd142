"""Ctrl-C, and a scheduler's SIGTERM, leave no output and no temporary file."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import LIMIT, REPOSITORY, hear_all

# It reports each window, and does not end by itself.
IMPUTING = """
import time
from spinimpute.pipeline import impute, impute_part

part, window = impute.impute_part, impute_part._window_counts
impute.impute_part = lambda *given: (part(*given), time.sleep(1000))
impute_part._window_counts = lambda *given: (print("window", flush=True), window(*given))[1]
from spinimpute.cli.main import main
main()
"""


def run_script(script: str, prepare: Callable[[], None] = hear_all) -> "subprocess.CompletedProcess[str]":
    """A script whose signals, as those of a terminal, may go to all its processes."""
    return subprocess.run(
        [sys.executable, "-c", "import atexit, os, signal, time\n" + script],
        capture_output=True, text=True, timeout=LIMIT, check=False, start_new_session=True,
        preexec_fn=prepare,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("number", "code", "said"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]
)
def test_nothing_stays_behind(
    example: Path, panel: Path, tmp_path: Path, number: signal.Signals, code: int, said: str
) -> None:
    # fmt: off
    process = subprocess.Popen(
        [
            sys.executable, "-c", IMPUTING, "impute", "--vcf", example / "target.vcf.gz", "--panel", panel,
            "--out", tmp_path / "o.vcf.gz", "--threads", "1", "--window-cm", "0.05",
        ],
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, preexec_fn=hear_all,
    )
    # fmt: on
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "window\n"
        assert list(tmp_path.iterdir())  # the temporary file
        process.send_signal(number)
        _, err = process.communicate(timeout=LIMIT)
    finally:
        process.kill()
    lines = [line for line in err.splitlines() if not line.startswith("compiling for this processor")]
    assert lines == [f"spinimpute: {said}"]
    assert process.returncode == code
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("number", "code", "said"), [("SIGINT", 130, "interrupted"), ("SIGTERM", 143, "terminated")]
)
def test_a_signal_while_an_object_is_deleted(number: str, code: int, said: str) -> None:
    """Python ignores what a finalizer raises."""
    script = (
        "from spinimpute.cli import main\n"
        "class Deleted:\n    def __del__(self):\n"
        f"        os.kill(os.getpid(), signal.{number})\n        time.sleep(0.1)\n"
        "def command(*_, **__):\n    Deleted()\n    time.sleep(1000)\n"
        "main.spinimpute = command\nmain.main()"
    )
    done = run_script(script)
    assert (done.returncode, done.stderr) == (code, f"spinimpute: {said}\n")


@pytest.mark.parametrize(
    ("number", "code", "said"), [("SIGINT", 130, "interrupted"), ("SIGTERM", 143, "terminated")]
)
@pytest.mark.parametrize(
    "then", ["raise InputError('read', 'cannot be read') from error", "time.sleep(1000)"]
)
def test_a_library_that_catches_all_exceptions(then: str, number: str, code: int, said: str) -> None:
    script = (
        "from spinimpute.cli import main\nfrom spinimpute.runtime.errors import InputError\n"
        "def command(*_, **__):\n"
        f"    try:\n        os.kill(os.getpid(), signal.{number})\n        time.sleep(1000)\n"
        f"    except BaseException as error:\n        {then}\n"
        "main.spinimpute = command\nmain.main()"
    )
    done = run_script(script)
    assert (done.returncode, done.stderr) == (code, f"spinimpute: {said}\n")


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("os.killpg(0, signal.SIGINT); time.sleep(1000)", (130, "spinimpute: interrupted\n")),
        ("print('done')", (0, "")),
    ],
)
def test_signals_after_the_end_are_not_heard(command: str, expected: tuple[int, str]) -> None:
    """The process that watches passes a terminal's Ctrl-C on: it comes twice."""
    done = run_script(
        "from spinimpute.cli import main\n"
        "def again():\n    for _ in range(3):\n        os.kill(os.getpid(), signal.SIGINT)\n"
        f"def command(*_, **__):\n    atexit.register(again); {command}\n"
        "main.spinimpute = command\nmain.main()"
    )
    assert (done.returncode, done.stderr) == expected


def test_a_signal_while_the_command_line_is_loaded() -> None:
    """There is nothing to clean up yet: it ends as other programs do."""
    done = run_script(
        "import sys\nfrom spinimpute.__main__ import main\n"
        "class Loading:\n    def find_spec(self, name, *_):\n"
        "        if name == 'click':\n            os.killpg(0, signal.SIGINT)\n"
        "sys.meta_path.insert(0, Loading())\nmain()"
    )
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "")


@pytest.mark.parametrize("number", ["SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2"])
def test_other_signals_are_no_defect(number: str) -> None:
    done = run_script(
        "from spinimpute.cli import main\n"
        f"def command(*_, **__):\n    os.kill(os.getppid(), signal.{number}); time.sleep(1000)\n"
        "main.spinimpute = command\nmain.main()"
    )
    assert (done.returncode, done.stderr) == (
        128 + signal.Signals[number],
        f"spinimpute: ended by {number}\n",
    )


def test_an_ignored_signal_stays_ignored() -> None:
    """A shell script starts what runs in the background so: Ctrl-C is for the foreground."""
    done = run_script(
        "from spinimpute.cli import main\n"
        "def command(*_, **__):\n    os.killpg(0, signal.SIGINT); print('not interrupted')\n"
        "main.spinimpute = command\nmain.main()",
        lambda: signal.signal(signal.SIGINT, signal.SIG_IGN) and None,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "not interrupted\n", "")
