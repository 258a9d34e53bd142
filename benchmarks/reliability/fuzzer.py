"""Run damaged cases one after the other, each in a forked child, and judge the results."""

from __future__ import annotations

import contextlib
import copy
import importlib.resources
import io
import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from random import Random

import spinimpute
from benchmarks.reliability.forks import FILES, Ended, Limits, run_forked
from benchmarks.reliability.forms import FORMS, Case, good_case, make_case
from benchmarks.reliability.inputs import Command, make_inputs
from benchmarks.reliability.sequenced_inputs import make_sequenced_inputs
from benchmarks.reliability.verdict import COMPLETE, FAILED, Verdict, judge, plain
from benchmarks.reliability.whole import read_whole

MODELS = ("haplotype.safetensors", "spin.safetensors")
_UNFINISHED = (".part", ".parts", ".tmp", ".state")


@dataclass(frozen=True)
class Result:
    """A case that was run; `output`: the error from reading its outputs, if they are incomplete."""

    case: Case
    ended: Ended
    verdict: Verdict
    output: str = ""


def write_good_inputs(folder: Path, run: Command) -> None:
    """Write the good inputs of all formats, and the shipped models, into an empty folder.

    Parameters
    ----------
    folder : Path
        The folder. It is the working folder in the meantime, so inputs do not contain its path.
    run : callable
        Runs a command line of spinimpute.
    """
    for name in MODELS:
        with importlib.resources.as_file(importlib.resources.files(spinimpute) / "weights" / name) as path:
            shutil.copy(path, folder / name)
    with contextlib.chdir(folder):
        make_inputs(Path(), run)
        make_sequenced_inputs(Path(), run)


class Fuzzer:
    """Makes good inputs once, and cases that depend only on the seed, the format and a number.

    Parameters
    ----------
    folder : Path
        An empty folder, best in memory.
    seed : int
        Seed of all cases.
    limits : Limits
        Limits of a case.
    """

    def __init__(self, folder: Path, seed: int, limits: Limits | None = None) -> None:
        self.folder, self.seed, self.limits = folder, seed, limits or Limits()
        self.good = folder / "good"
        self.good.mkdir()
        os.environ.pop("SPINIMPUTE_PANEL", None)
        making = get_context("fork").Process(
            target=write_good_inputs, args=(self.good, run_here)
        )  # what it loads is not copied in forks
        making.start()
        making.join()
        if making.exitcode:
            raise RuntimeError(f"good inputs were not made: exit {making.exitcode}")

    def beside(self, name: str) -> Fuzzer:
        """Return a fuzzer with the same inputs whose cases have a separate folder, so both may run at the
        same time.
        """
        other = copy.copy(self)
        other.folder = self.folder / name
        other.folder.mkdir()
        return other

    def warm_up(self, names: Sequence[str] = tuple(FORMS)) -> None:
        """Run each command of some formats on good files in this process, so that its modules are loaded."""
        for name in names:
            for number in range(len(FORMS[name].commands)):
                case = good_case(FORMS[name], number, self.good, self.folder / "run")
                self._write_files(case)
                with contextlib.suppress(spinimpute.InputError):  # phase is missing where it is needed, say
                    run_here(case.words)

    def case(self, name: str, number: int) -> Case:
        """Return the case of a format with this number."""
        return make_case(FORMS[name], self.good, Random(f"{self.seed} {name} {number}"), self.folder / "run")

    def run(self, name: str, number: int) -> Result:
        """Run a case and judge it; its files are kept until the next case."""
        form = FORMS[name]
        return self.run_case(self.case(name, number), bool(form.files), form.memory, form.seconds)

    def run_good(self, name: str) -> Result:
        """Run the first command of a format on good files."""
        return self.run_case(good_case(FORMS[name], 0, self.good, self.folder / "run"))

    def run_case(
        self, case: Case, outputs_are_known: bool = True, memory: int = 0, seconds: int = 0
    ) -> Result:
        """Run a case and judge it.

        Parameters
        ----------
        case : Case
            Its command line has the words that `make_case` returned.
        outputs_are_known : bool
            Whether it must write the files that its command line names.
        memory, seconds : int
            Bytes and processor time that it may use, if more than the limits.

        Returns
        -------
        Result
            Whether it ended as it should.
        """
        folder = self._write_files(case)
        place = folder / "cwd" / "deep" / "er"  # ../../x is still a place of ours
        place.mkdir(parents=True)

        def command() -> None:
            from spinimpute.cli.main import main

            tempfile.tempdir = str(folder / "tmp")
            main(case.words)

        limits = replace(
            self.limits, memory=max(self.limits.memory, memory), seconds=max(self.limits.seconds, seconds)
        )
        ended = run_forked(command, folder, limits, place)
        made = self._made(folder, case)
        elsewhere = ("tmp/", "in/", "cwd/") if outputs_are_known else ("tmp/", "in/")
        left = [
            path
            for path in made
            if ended.status != 0 or path.startswith(elsewhere) or _unfinished(folder / path)
        ]
        verdict = judge(ended, left, limits)
        if verdict.kind != COMPLETE:
            return Result(case, ended, verdict)
        missing = _outputs(case, folder) - set(made) if outputs_are_known else set()
        if missing:
            return Result(case, ended, Verdict(FAILED, f"exit 0 without {', '.join(sorted(missing))}"))
        return self._read_outputs(case, ended, folder, sorted(made))

    def _read_outputs(self, case: Case, ended: Ended, folder: Path, made: list[str]) -> Result:
        read = folder / "read"
        read.mkdir()

        def outputs() -> None:
            for path in made:
                read_whole(folder / path)

        found = run_forked(outputs, read, self.limits) if made else None
        if found is None or found.status == 0:
            return Result(case, ended, Verdict(COMPLETE))
        said = found.err.rstrip().rpartition("\n")[2]
        return Result(case, ended, Verdict(FAILED, f"output not whole: {plain(said)}"), found.err)

    def _made(self, folder: Path, case: Case) -> list[str]:
        """Files and folders that are there after a run and were not before."""
        own = {"out", "in", "tmp", "cwd", "cwd/deep", "cwd/deep/er", *FILES}
        own |= {f"in/{name}" for name in case.files}
        found = {str(path.relative_to(folder)) for path in folder.rglob("*")} - own
        # of a folder that is not empty, its files are named
        return sorted(path for path in found if not any(other.startswith(f"{path}/") for other in found))

    def _write_files(self, case: Case) -> Path:
        """An empty folder with the files of a case."""
        folder = self.folder / "run"
        shutil.rmtree(folder, ignore_errors=True)
        for name in ("in", "out", "tmp"):
            (folder / name).mkdir(parents=True)
        for name, content in case.files.items():
            (folder / "in" / name).write_bytes(content)
        return folder


def run_here(words: Sequence[str]) -> None:
    """Run a command line of spinimpute in this process, without output. Raises what the command raises."""
    from spinimpute.cli.main import spinimpute as group

    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        group.main(list(words), standalone_mode=False)


def _unfinished(path: Path) -> bool:
    return path.name.endswith(_UNFINISHED)


def _outputs(case: Case, folder: Path) -> set[str]:
    """Files that the command line names, as far as their suffix shows that they are files."""
    out = f"{folder / 'out'}/"
    return {
        f"out/{word.removeprefix(out)}"
        for word in case.words
        if word.startswith(out) and "." in word[len(out) :]
    }
