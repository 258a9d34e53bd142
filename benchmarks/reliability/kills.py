"""The command `kills`: commands are killed at random moments, and run again."""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from benchmarks.imputation.tables import markdown
from benchmarks.reliability.examples import prepare, words_of
from benchmarks.reliability.results import begin_results
from benchmarks.reliability.verdict import plain
from benchmarks.reliability.whole import read_whole
from benchmarks.workflow.kills import round_of_kills
from benchmarks.workflow.runs import attempt, checksums, copy_example

KILLED = ("impute", "impute, with report", "impute, panel as VCF", "panel build", "ligate")
LOADED = 0.3  # seconds
GRACE = 10.0  # seconds for what was killed to be gone
LIMIT = 300
SCRIPT = "from spinimpute.__main__ import main; main()"


@dataclass
class Tally:
    """Results of a command; `found` counts violations."""

    kills: int = 0
    too_late: int = 0
    found: Counter[str] = field(default_factory=Counter)


class Killer:
    """Runs a command in separate processes, in a folder with an empty $TMPDIR."""

    def __init__(self, name: str, made: Path, folder: Path) -> None:
        self.out, self.temporary, self.log = folder / "out", folder / "tmp", folder / "log.txt"
        self.words = words_of(name, made, self.out)
        shutil.rmtree(folder, ignore_errors=True)
        for path in (self.out, self.temporary):
            path.mkdir(parents=True)

    def start(self) -> subprocess.Popen[bytes]:
        with self.log.open("wb") as said:
            return subprocess.Popen(
                [sys.executable, "-c", SCRIPT, *self.words],
                env=os.environ | {"TMPDIR": str(self.temporary)},
                stdout=said,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                # a benchmark that runs in the background ignores SIGINT, and children inherit that
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            )

    def finish(self) -> float:
        """Run the command to its end, and return its seconds."""
        started = time.perf_counter()
        process = self.start()
        if process.wait(LIMIT):
            raise RuntimeError(self.log.read_text(errors="replace"))
        return time.perf_counter() - started

    def checksums(self) -> dict[str, str]:
        return {
            str(path.relative_to(self.out)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(self.out.rglob("*"))
            if path.is_file()
        }

    def unfinished(self) -> list[str]:
        found = [path.name for path in self.out.rglob(".*")] + [
            path.name for path in self.out.rglob("*.part")
        ]
        return sorted(set(found))

    def left_in_temporary(self) -> int:
        return len(list(self.temporary.iterdir()))


def kill_once(
    killer: Killer, draw: random.Random, longest: float, expected: dict[str, str], tally: Tally
) -> None:
    """Kill a command at a random moment and check its files; run it again, and check again."""
    kind = draw.choice((signal.SIGKILL, signal.SIGTERM, signal.SIGINT))
    whole_group = draw.random() < 0.5
    process = killer.start()
    time.sleep(draw.uniform(LOADED if kind == signal.SIGINT else 0, longest))
    if process.poll() is not None:
        tally.too_late += 1
        return
    tally.kills += 1
    with contextlib.suppress(ProcessLookupError):
        (os.killpg if whole_group else os.kill)(process.pid, kind)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(GRACE)
    if process.returncode is None:
        tally.found["not ended 10 s after a signal"] += 1
    if not _gone(process.pid):
        tally.found["processes go on without their parent"] += 1
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    _look(killer, tally, "after a kill")
    if kind != signal.SIGKILL:
        said = killer.log.read_text(errors="replace")
        if process.returncode not in (128 + kind, -kind, 0):
            last = plain((said.strip().splitlines() or ["nothing said"])[-1])
            tally.found[f"exit status {process.returncode} after {kind.name}: {last}"] += 1
        if "Traceback" in said:
            last = plain(said.strip().splitlines()[-1])
            tally.found[f"traceback after {kind.name}: {last}"] += 1
        if killer.unfinished():
            tally.found[f".part files after {kind.name}"] += 1
        if killer.left_in_temporary():
            tally.found[f"temporary folders after {kind.name}"] += 1
    killer.finish()
    _look(killer, tally, "after the next run")
    if killer.unfinished():
        tally.found[".part files after the next run"] += 1
    if killer.left_in_temporary():
        tally.found["temporary folders after the next run"] += 1
    if {path: digest for path, digest in killer.checksums().items() if path in expected} != expected:
        tally.found["other bytes after the next run"] += 1


def kills(arguments: argparse.Namespace) -> None:
    """Run the command `kills`."""
    command = f"kills --kills {arguments.kills} --workflow {arguments.workflow} --seed {arguments.seed}"
    folder = begin_results(arguments, command)
    draw = random.Random(arguments.seed)
    tallies: dict[str, Tally] = {}
    with tempfile.TemporaryDirectory(prefix="kills-") as name:
        work = Path(name)
        (work / "made").mkdir()
        prepare(work / "made")
        for number, killed in enumerate(KILLED):
            tally = tallies[killed] = Tally()
            killer = Killer(killed, work / "made", work / "run")
            killer.finish()
            before = killer.checksums()
            seconds = killer.finish()
            # a report says how long the run took
            expected = {path: sha for path, sha in killer.checksums().items() if before[path] == sha}
            wanted = len(range(number, arguments.kills, len(KILLED)))
            while tally.kills < wanted:
                kill_once(Killer(killed, work / "made", work / "run"), draw, seconds, expected, tally)
            print(f"{killed} ({seconds:.2f} s): {tally.kills} kills, {dict(tally.found)}", flush=True)
        if arguments.workflow:
            tallies["workflow"] = _kill_workflow(work, draw, arguments.workflow)
    text = report(tallies)
    (folder / "report.md").write_text(text)
    print(text)


def report(tallies: dict[str, Tally]) -> str:
    rows = [["command", "kills", "ended before", "found"]]
    for name, tally in tallies.items():
        found = "; ".join(f"{count} × {what}" for what, count in sorted(tally.found.items()))
        rows.append([name, str(tally.kills), str(tally.too_late), found or "nothing"])
    parts = [
        "# Killed commands",
        "SIGKILL, SIGTERM or SIGINT, to the process or to its group, at a moment drawn between the start and "
        f"the time that an undisturbed run takes (SIGINT from {LOADED:g} s on: before, Python is loaded "
        "and says where it was); then the same command again, to its end. Counted is what must not be.",
        markdown(rows),
    ]
    return "\n\n".join(parts) + "\n"


def _look(killer: Killer, tally: Tally, when: str) -> None:
    """What has its final name must be whole."""
    for path in sorted(killer.out.rglob("*")):
        if path.is_dir() or path.name.startswith("."):
            continue
        index_is_missing = path.name.endswith((".vcf.gz", ".bcf")) and not list(
            killer.out.glob(f"{path.name}.*i")
        )
        try:
            if not index_is_missing:
                read_whole(path)
        except Exception as error:
            tally.found[f"{path.name} not whole {when} ({type(error).__name__})"] += 1
        if index_is_missing:
            tally.found[f"{path.name} without its index {when}"] += 1


def _gone(group: int) -> bool:
    """Whether all processes of a group have ended, or do soon."""
    end = time.perf_counter() + GRACE
    while time.perf_counter() < end:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


def _kill_workflow(work: Path, draw: random.Random, wanted: int) -> Tally:
    """Rounds of the workflow on the example, as of `python -m benchmarks.workflow kills`."""
    tally = Tally()
    alone = copy_example(work / "alone")
    seconds = attempt(alone).seconds
    expected = checksums(alone)
    for number in count():
        if tally.kills >= wanted:
            break
        ended = round_of_kills(work / f"workflow{number}", draw, seconds, wanted - tally.kills, print)
        killed = sum(each.killed for each in ended.attempts)
        tally.kills += killed
        tally.too_late += not killed
        if ended.sums != expected:
            tally.found["other bytes in the end"] += 1
        if ended.left:
            tally.found["rounds with .part files in the end"] += 1
    return tally
