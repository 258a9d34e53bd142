"""Command-line options that the commands share, and the session that they define."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.imputation.cases import DATA, SHARED, Case, find_case
from benchmarks.imputation.programs import PEERS, Imputer, Ours, check_programs, our_imputers

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Session:
    """One run of a command: its imputers, how they are run, and its input and output folders."""

    ours: tuple[Ours, ...]
    scorer: Path
    threads: int
    repeat: int
    seed: int
    data: Path
    results: Path
    work: Path
    name: str | None

    @property
    def imputers(self) -> tuple[Imputer, ...]:
        return (*PEERS, *self.ours)

    @property
    def places(self) -> dict[Path, str]:
        """Folders that the configuration names by a symbol."""
        return {self.work: "WORK", self.data: "DATA", self.results: "RESULTS"}

    def case(self, name: str) -> Case:
        return find_case(name, self.data)

    def result_folder(self, name: str) -> Path:
        """Create results/DATE-NAME. Files of an earlier run on the same day are replaced."""
        today = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
        folder = self.results / f"{today}-{name}"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def work_folder(self, name: str) -> Path:
        """Create a new folder for intermediate files."""
        folder = self.work / name
        folder.mkdir()
        return folder


def shared_options(repeat: int = 1) -> argparse.ArgumentParser:
    """Return a parent parser for commands that run imputers; by default each runs `repeat` times."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the real data sets")
    parser.add_argument("--scorer", type=Path, default=SHARED / "tools" / "score_imputation.py")
    parser.add_argument(
        "--ours",
        action="append",
        default=[],
        metavar="NAME=ARGUMENTS",
        help="a configuration of ours: arguments of `spinimpute impute`; repeatable (default: spinimpute=)",
    )
    text = "the Python of another version's environment, which is measured, too, as `before`"
    parser.add_argument("--before", type=Path, metavar="PYTHON", help=text)
    parser.add_argument("--threads", type=int, default=2)
    text = f"runs of each imputer; the median counts (default: {repeat})"
    parser.add_argument("--repeat", type=int, default=repeat, help=text)
    parser.add_argument("--seed", type=int, default=1, help="of whatever is drawn")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--name", help="of the result folder, after the date (default: of the command)")
    parser.add_argument("--work", type=Path, help="keep the files here (default: a temporary folder)")
    return parser


@contextlib.contextmanager
def session(arguments: argparse.Namespace) -> Iterator[Session]:
    """Yield the session of the options. Its work folder is removed at the end unless --work names it.

    Raises:
        SystemExit: a program or the scorer is missing, or --work is not empty.
    """
    check_programs()
    if not arguments.scorer.is_file():
        raise SystemExit(f"the scorer {arguments.scorer} is not there: give --scorer")
    with contextlib.ExitStack() as stack:
        work = arguments.work
        if work is None:
            work = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        else:
            work.mkdir(parents=True, exist_ok=True)
            if any(work.iterdir()):
                raise SystemExit(f"--work {work} is not empty")
        before = []
        if arguments.before is not None:
            python = str(arguments.before.absolute())
            before.append(Ours("before", program="before", panel_name="before.spin", python=python))
        yield Session(
            ours=(*before, *our_imputers(arguments.ours)),
            scorer=arguments.scorer,
            threads=arguments.threads,
            repeat=arguments.repeat,
            seed=arguments.seed,
            data=arguments.data,
            results=arguments.results,
            work=work,
            name=arguments.name,
        )
