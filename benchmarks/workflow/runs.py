"""Runs of the imputation workflow on the example in three chunks, including killed runs."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
WORKFLOW = REPOSITORY / "workflows" / "impute"
# the jobs need the spinimpute command of this interpreter
PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
ENVIRONMENT = os.environ | {"PATH": PATH, "OMP_NUM_THREADS": "1"}
CHUNKS = ("--config", "chunk_cM=0.4")  # three
LIMIT = 300  # seconds


def copy_example(folder: Path) -> Path:
    """Copy the example to the place where the workflow looks for it when it runs in `folder`."""
    shutil.copytree(REPOSITORY / "data" / "example", folder / "data" / "example")
    return folder


def command(folder: Path, *arguments: str) -> list[str]:
    return [
        sys.executable, "-m", "snakemake", "--snakefile", str(WORKFLOW / "Snakefile"), "--directory",
        str(folder), "--cores", "2", *arguments,
    ]  # fmt: skip


def snakemake(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(folder, *arguments), env=ENVIRONMENT, capture_output=True, text=True, check=False,
        timeout=LIMIT,
    )  # fmt: skip


@dataclass(frozen=True)
class Attempt:
    """A run until it ended or was killed. finished, running: steps, as rule and number of the chunk."""

    seconds: float
    killed: bool
    finished: list[str]
    running: list[str]


def attempt(folder: Path, kill_after: float | None = None) -> Attempt:
    """Start or continue the workflow. Kill Snakemake and all its jobs after this number of seconds.

    Raises RuntimeError if the workflow ends with an error.
    """
    log = folder / "snakemake.log"
    started = time.perf_counter()
    with log.open("w") as said:
        run = subprocess.Popen(
            command(folder, *CHUNKS, "--rerun-incomplete"), env=ENVIRONMENT, stdout=said,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        try:
            run.wait(LIMIT if kill_after is None else kill_after)
        except subprocess.TimeoutExpired:
            os.killpg(run.pid, signal.SIGKILL)
            run.wait()
    seconds = time.perf_counter() - started
    killed = run.returncode == -signal.SIGKILL
    if run.returncode and (kill_after is None or not killed):
        raise RuntimeError(f"the workflow failed:\n{log.read_text()[-3000:]}")
    return Attempt(seconds, killed, *steps(log.read_text()))


def steps(log: str) -> tuple[list[str], list[str]]:
    """Return the steps that a run of Snakemake finished, and the steps that it only started."""
    begun: dict[str, str] = {}
    finished = []
    rule = job = ""
    for line in log.splitlines():
        if found := re.fullmatch(r"(?:local)?(?:rule|checkpoint) (\w+):", line):
            rule = found[1]
        elif found := re.fullmatch(r" +jobid: (\d+)", line):
            job = found[1]
            begun[job] = rule
        elif found := re.fullmatch(r" +wildcards: .*\bchunk=(\d+)", line):
            begun[job] = f"{rule} {found[1]}"
        elif found := re.match(r"Finished jobid: (\d+) ", line):
            finished.append(begun.pop(found[1]))
    return finished, list(begun.values())


def unlock(folder: Path) -> None:
    """Remove Snakemake's lock, which is necessary after a kill."""
    done = snakemake(folder, *CHUNKS, "--unlock")
    if done.returncode:
        raise RuntimeError(f"the workflow cannot be unlocked:\n{done.stderr[-3000:]}")


def checksums(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of all files of a run, except logs and files that killed jobs left unfinished."""
    made = folder / "imputed"
    return {
        str(path.relative_to(made)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(made.rglob("*"))
        if path.is_file() and path.parent.name != "logs" and not path.name.startswith(".")
    }


def unfinished(folder: Path) -> list[Path]:
    """Return the temporary files that killed jobs left behind."""
    return list((folder / "imputed").rglob(".*.part"))
