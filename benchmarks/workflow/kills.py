"""The workflow on the example is killed at random moments and restarted, until it is complete."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import random
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from benchmarks.imputation.results import commit, processor
from benchmarks.imputation.tables import markdown
from benchmarks.workflow.runs import Attempt, attempt, checksums, copy_example, unfinished, unlock

EARLIEST = 1.0  # seconds: before, Snakemake has hardly been loaded
FINAL = ("example.20.vcf.gz", "example.20.vcf.gz.tbi", "report.tsv")


@dataclass(frozen=True)
class Round:
    """A run from an empty folder to the end. left: temporary files that were not removed."""

    attempts: list[Attempt]
    sums: dict[str, str]
    left: int

    @property
    def made_twice(self) -> list[str]:
        """Steps that were complete, and were run again after a kill."""
        finished = [step for each in self.attempts for step in each.finished]
        return [step for step in sorted(set(finished)) for _ in range(finished.count(step) - 1)]


def round_of_kills(
    folder: Path, draw: random.Random, longest: float, most: int, say: Callable[[str], None]
) -> Round:
    """Run the workflow in `folder`. Kill it up to the given number of times, each time at a random moment."""
    copy_example(folder)
    attempts: list[Attempt] = []
    while not attempts or attempts[-1].killed:
        if attempts:
            unlock(folder)
        after = draw.uniform(EARLIEST, longest) if len(attempts) < most else None
        latest = attempt(folder, after)
        attempts.append(latest)
        ended = "killed" if latest.killed else "ended"
        say(
            f"{ended} after {latest.seconds:.2f} s; finished: {', '.join(latest.finished) or '-'}; "
            f"running: {', '.join(latest.running) or '-'}"
        )
    return Round(attempts, checksums(folder), len(unfinished(folder)))


def kills(arguments: argparse.Namespace) -> None:
    """The command."""
    today = datetime.datetime.now(tz=datetime.UTC)
    folder = arguments.results / f"{today.date().isoformat()}-kills"
    folder.mkdir(parents=True, exist_ok=True)
    rounds: list[Round] = []
    with (folder / "log.txt").open("w") as log, tempfile.TemporaryDirectory() as work:

        def say(text: str) -> None:
            line = f"{datetime.datetime.now(tz=datetime.UTC):%H:%M:%S} {text}"
            print(line, flush=True)
            print(line, file=log, flush=True)

        say(f"seed {arguments.seed}, {arguments.kills} kills; times are UTC")
        alone = copy_example(Path(work) / "alone")
        undisturbed = attempt(alone)
        expected = checksums(alone)
        say(f"undisturbed: {undisturbed.seconds:.2f} s; finished: {', '.join(undisturbed.finished)}")
        draw = random.Random(arguments.seed)
        missing = arguments.kills
        while missing:
            say(f"round {len(rounds) + 1}: an empty folder")
            place = Path(work) / str(len(rounds))
            rounds.append(round_of_kills(place, draw, undisturbed.seconds, missing, say))
            missing -= sum(each.killed for each in rounds[-1].attempts)
            same = rounds[-1].sums == expected
            say(f"round {len(rounds)}: {len(expected)} files, {'all the same' if same else 'NOT the same'}")
    (folder / "report.md").write_text(report(undisturbed, expected, rounds))
    configuration = {
        "date": today.date().isoformat(),
        "command": f"python -m benchmarks.workflow kills --kills {arguments.kills} --seed {arguments.seed}",
        "commit": commit(),
        "seed": arguments.seed,
        "kills": arguments.kills,
        "processor": processor(),
        "cores": os.cpu_count(),
        "versions": {
            "spinimpute": version("spinimpute"),
            "snakemake": version("snakemake"),
            "python": platform.python_version(),
        },
    }
    (folder / "configuration.json").write_text(json.dumps(configuration, indent=1) + "\n")
    if any(each.sums != expected for each in rounds):
        raise SystemExit("results differ: see the report")


def report(undisturbed: Attempt, expected: dict[str, str], rounds: list[Round]) -> str:
    kill_rows = [["round", "killed after, s", "finished in this run", "running, and lost", "steps finished"]]
    for number, each in enumerate(rounds, 1):
        done: set[str] = set()
        for one in each.attempts:
            done |= set(one.finished)
            cells = [", ".join(one.finished) or "–", ", ".join(one.running) or "–"]
            when = f"{one.seconds:.2f}" if one.killed else f"not ({one.seconds:.2f})"
            kill_rows.append([str(number), when, *cells, f"{len(done)} of {len(undisturbed.finished)}"])
    round_rows = [["round", "kills", "files as undisturbed", "steps made twice", "temporary files left"]]
    for number, each in enumerate(rounds, 1):
        same = sum(each.sums.get(name) == value for name, value in expected.items())
        more = len(each.sums.keys() - expected.keys())
        round_rows.append(
            [
                str(number), str(sum(one.killed for one in each.attempts)),
                f"{same} of {len(expected)}" + (f", {more} more" if more else ""),
                ", ".join(each.made_twice) or "none", str(each.left),
            ]
        )  # fmt: skip
    final_rows = [["file", "SHA-256, undisturbed", "of the rounds, the same"]]
    for name in FINAL:
        same = sum(each.sums.get(name) == expected[name] for each in rounds)
        final_rows.append([name, expected[name], f"{same} of {len(rounds)}"])
    parts = [
        "# The workflow, killed at random moments",
        "The example in three chunks. Snakemake and all of its jobs are killed (SIGKILL to the process "
        f"group) after a time drawn between {EARLIEST:.0f} s and the {undisturbed.seconds:.1f} s that an "
        "undisturbed run took, unlocked, and continued with `--rerun-incomplete`, until the run ends; then "
        "another one begins in an empty folder, until there were enough kills.",
        markdown(final_rows),
        "All files but logs:",
        markdown(round_rows),
        "## Kills",
        markdown(kill_rows),
    ]
    return "\n\n".join(parts) + "\n"
