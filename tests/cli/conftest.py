"""The command line as a user runs it: arguments in; exit code, stdout and stderr out."""

import gzip
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import cyvcf2
import numpy as np
import pytest

import spinimpute
from tests.conftest import Result, Runner

REPOSITORY = Path(__file__).resolve().parents[2]
# what the installed script does
CONSOLE_SCRIPT = [sys.executable, "-c", "from spinimpute.__main__ import main; main()"]
LIMIT = 300  # seconds for a process to do what it should; none needs as many, even on a busy machine
HEARD = (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


def records(path: Path) -> list[str]:
    """Return the records of a VCF."""
    return [line for line in path.read_text().splitlines() if not line.startswith("#")]


def dosages(path: Path) -> np.ndarray:
    """Return the dosages of a VCF or BCF, (sites, samples)."""
    return np.array([record.format("DS")[:, 0] for record in cyvcf2.VCF(str(path))])


def restore_signals() -> None:
    """Restore the default signal handlers in a child process.

    A test run in the background, or by nohup, may ignore some signals, and children inherit that.
    """
    for number in HEARD:
        signal.signal(number, signal.SIG_DFL)


@pytest.fixture
def start() -> Callable[..., "subprocess.Popen[str]"]:
    """start(*arguments): the console script as a process of its own, in the repository's environment."""

    def start_script(*arguments: object) -> "subprocess.Popen[str]":
        environment = {k: v for k, v in os.environ.items() if k != "SPINIMPUTE_PANEL"}
        return subprocess.Popen(
            [*CONSOLE_SCRIPT, *map(os.fspath, arguments)],
            env=environment | {"PYTHONPATH": str(REPOSITORY)},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=restore_signals,
        )  # fmt: skip

    return start_script


@pytest.fixture
def script(start: Callable[..., "subprocess.Popen[str]"]) -> Runner:
    """The console script as a process, until it ends."""

    def run_script(*arguments: object) -> Result:
        process = start(*arguments)
        out, err = process.communicate(timeout=LIMIT)
        return Result(process.returncode, out, err)

    return Runner(run_script)


@pytest.fixture(scope="session")
def example() -> Path:
    return REPOSITORY / "data" / "example"


@pytest.fixture(scope="session")
def panel(example: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example's panel file."""
    path = tmp_path_factory.mktemp("panel") / "panel.spin"
    spinimpute.build_panel(example / "panel.vcf.gz", path, example / "genetic.map").close()
    return path


@pytest.fixture
def edited_target(example: Path, tmp_path: Path) -> Callable[[Callable[[str], str]], Path]:
    """edited_target(edit): the example's target as plain VCF, its text changed by `edit`."""

    def write(edit: Callable[[str], str]) -> Path:
        text = gzip.decompress((example / "target.vcf.gz").read_bytes()).decode()
        path = tmp_path / "edited.vcf"
        path.write_text(edit(text))
        return path

    return write


@pytest.fixture
def refused_by(run: Runner, tmp_path: Path) -> Callable[..., str]:
    """refused_by(command, *arguments, suffix): the one line that a command prints, which leaves no file."""

    def refuse(command: str, *arguments: object, suffix: str) -> str:
        folder = tmp_path / "out"
        folder.mkdir(exist_ok=True)
        failed = run(command, *arguments, "--out", folder / f"o{suffix}", "--quiet").refused()
        assert failed.out == ""
        assert failed.err.startswith("spinimpute: error: ")
        assert failed.err.count("\n") == 1
        assert not list(folder.iterdir())
        return failed.err

    return refuse
