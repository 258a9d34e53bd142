"""Ctrl-C, and a scheduler's SIGTERM, leave no output and no temporary file."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.mark.parametrize(
    ("number", "code", "said"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]
)
def test_nothing_stays_behind(
    start: Callable[..., Any],
    example: Path,
    panel: Path,
    tmp_path: Path,
    number: signal.Signals,
    code: int,
    said: str,
) -> None:
    # fmt: off
    process = start(
        "impute", "--vcf", example / "target.vcf.gz", "--panel", panel, "--out", tmp_path / "o.vcf.gz",
        "--threads", "1", "--window-cm", "0.05",
    )
    # fmt: on
    try:
        until = time.monotonic() + 50
        while not list(tmp_path.iterdir()):  # the temporary file: imputation has begun
            assert time.monotonic() < until
            assert process.poll() is None
            time.sleep(0.002)
        time.sleep(0.1)  # well into the windows, which take more than a second
        process.send_signal(number)
        _, err = process.communicate(timeout=50)
    finally:
        process.kill()
    assert "Traceback" not in err
    assert err.strip().startswith(f"spinimpute: {said}")
    assert len(err.strip().splitlines()) == 1
    assert process.returncode == code
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("number", "code", "said"), [("SIGINT", 130, "interrupted"), ("SIGTERM", 143, "terminated")]
)
def test_a_signal_while_an_object_is_deleted(number: str, code: int, said: str) -> None:
    """Python ignores what a finalizer raises."""
    script = (
        "import os, signal, time\nfrom spinimpute.cli import main\n"
        "class Deleted:\n    def __del__(self):\n"
        f"        os.kill(os.getpid(), signal.{number})\n        time.sleep(0.1)\n"
        "def command(*_, **__):\n    Deleted()\n    time.sleep(20)\n"
        "main.spinimpute = command\nmain.main()"
    )
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert time.monotonic() - started < 15
    assert (done.returncode, done.stderr) == (code, f"spinimpute: {said}\n")


@pytest.mark.parametrize(
    ("number", "code", "said"), [("SIGINT", 130, "interrupted"), ("SIGTERM", 143, "terminated")]
)
@pytest.mark.parametrize("then", ["raise InputError('cannot be read') from error", "time.sleep(20)"])
def test_a_library_that_catches_all_exceptions(then: str, number: str, code: int, said: str) -> None:
    script = (
        "import os, signal, time\nfrom spinimpute.cli import main\nfrom spinimpute.errors import InputError\n"
        "def command(*_, **__):\n"
        f"    try:\n        os.kill(os.getpid(), signal.{number})\n        time.sleep(20)\n"
        f"    except BaseException as error:\n        {then}\n"
        "main.spinimpute = command\nmain.main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (code, f"spinimpute: {said}\n")


HEARD = (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


def hear_all() -> None:
    """A test run in the background, or by nohup, may ignore some, and children inherit that."""
    for number in HEARD:
        signal.signal(number, signal.SIG_DFL)


def of_a_terminal(script: str) -> "subprocess.CompletedProcess[str]":
    """A script whose signals, as those of a terminal, go to all its processes."""
    return subprocess.run(
        [sys.executable, "-c", "import atexit, os, signal, time\n" + script],
        capture_output=True, text=True, timeout=60, check=False, start_new_session=True,
        preexec_fn=hear_all,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("os.killpg(0, signal.SIGINT); time.sleep(20)", (130, "spinimpute: interrupted\n")),
        ("print('done')", (0, "")),
    ],
)
def test_signals_after_the_end_are_not_heard(command: str, expected: tuple[int, str]) -> None:
    """The process that watches passes a terminal's Ctrl-C on: it comes twice."""
    done = of_a_terminal(
        "from spinimpute.cli import main\n"
        "def again():\n    for _ in range(3):\n        os.kill(os.getpid(), signal.SIGINT)\n"
        f"def command(*_, **__):\n    atexit.register(again); {command}\n"
        "main.spinimpute = command\nmain.main()"
    )
    assert (done.returncode, done.stderr) == expected


def test_a_signal_while_the_command_line_is_loaded() -> None:
    """There is nothing to clean up yet: it ends as other programs do."""
    done = of_a_terminal(
        "import sys\nfrom spinimpute.__main__ import main\n"
        "class Loading:\n    def find_spec(self, name, *_):\n"
        "        if name == 'click':\n            os.killpg(0, signal.SIGINT)\n"
        "sys.meta_path.insert(0, Loading())\nmain()"
    )
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "")


@pytest.mark.parametrize("number", ["SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2"])
def test_other_signals_are_no_defect(number: str) -> None:
    done = of_a_terminal(
        "from spinimpute.cli import main\n"
        f"def command(*_, **__):\n    os.kill(os.getppid(), signal.{number}); time.sleep(20)\n"
        "main.spinimpute = command\nmain.main()"
    )
    assert (done.returncode, done.stderr) == (
        128 + signal.Signals[number],
        f"spinimpute: ended by {number}\n",
    )
