"""The command line as a user runs it: arguments in; exit code, stdout and stderr out."""

import gzip
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

import spinimpute

REPOSITORY = Path(__file__).resolve().parents[2]
CONSOLE_SCRIPT = [
    sys.executable,
    "-c",
    "from spinimpute.__main__ import main; main()",
]  # what the installed script does
LIMIT = 300  # seconds for a process to do what it should; none needs as many, even on a busy machine
HEARD = (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


def restore_signals() -> None:
    """Restore the default signal handlers in a child process.

    A test run in the background, or by nohup, may ignore some signals, and children inherit that.
    """
    for number in HEARD:
        signal.signal(number, signal.SIG_DFL)


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str


@pytest.fixture
def start() -> Callable[..., "subprocess.Popen[str]"]:
    """start(*arguments): the console script as a process of its own, in the repository's environment."""

    def start_script(*arguments: object) -> "subprocess.Popen[str]":
        environment = {k: v for k, v in os.environ.items() if k != "SPINIMPUTE_PANEL"}
        environment["PYTHONPATH"] = str(REPOSITORY)
        return subprocess.Popen(
            [*CONSOLE_SCRIPT, *map(os.fspath, arguments)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=restore_signals,
        )

    return start_script


@pytest.fixture
def script(start: Callable[..., "subprocess.Popen[str]"]) -> Callable[..., Result]:
    """script(*arguments): the same, until it ends."""

    def run_script(*arguments: object) -> Result:
        process = start(*arguments)
        out, err = process.communicate(timeout=LIMIT)
        return Result(process.returncode, out, err)

    return run_script


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


@pytest.fixture(scope="session")
def bcftools_view() -> Callable[[Path], list[str]]:
    """A file as the lines of a VCF."""
    import shutil

    if shutil.which("bcftools") is None:
        pytest.skip("bcftools is not installed")

    def view(path: Path) -> list[str]:
        done = subprocess.run(["bcftools", "view", path], capture_output=True, text=True, check=True)
        return done.stdout.splitlines()

    return view
