"""The commands `fuzz`, which tries damaged inputs of all formats, and `again`, which repeats one of them."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from benchmarks.imputation.results import commit
from benchmarks.imputation.tables import markdown
from benchmarks.reliability.forms import FORMS
from benchmarks.reliability.fuzzer import Fuzzer
from benchmarks.reliability.results import begin_results, configuration_of
from benchmarks.reliability.verdict import COMPLETE, FAILED, REFUSED

COMMON = "target VCF"  # the form whose command loads what most others need
ROUND = 50  # cases of a form, before the next form has its turn
SHOWN = 3  # numbers of cases of a group of failures
MEMORY = Path("/dev/shm")
Round = tuple[str, dict[str, float], list[Any]]  # a form, its counts, and its failures: number and group


def fuzz(arguments: argparse.Namespace) -> None:
    """Run the command `fuzz`."""
    names = list(FORMS) if arguments.forms is None else arguments.forms.split(",")
    if unknown := [name for name in names if name not in FORMS]:
        raise SystemExit(f"there is no form {', '.join(unknown)}; choose of {', '.join(FORMS)}")
    folder, state = _begin(arguments, names)
    wanted = -(-arguments.mutations // len(names))
    with fuzzer_in_memory(state["seed"]) as fuzzer:
        missing = {name: range(_done(state, name), wanted) for name in names}
        for name, counts, failures in _rounds(fuzzer, missing, arguments.processes):
            _keep(name, counts, failures, folder, state)
    print((folder / "report.md").read_text())


def again(arguments: argparse.Namespace) -> None:
    """Run the command `again`: run one case, and print all of its output."""
    with fuzzer_in_memory(arguments.seed) as fuzzer:
        result = fuzzer.run(arguments.form, arguments.number)
        print("spinimpute", shlex.join(result.case.words).encode(errors="backslashreplace").decode())
        for name, text in (("stdout", result.ended.out), ("stderr", result.ended.err)):
            print(f"--- {name}\n{text}")
        print(f"--- fault\n{result.ended.fault}{result.output}")
        print(f"status {result.ended.status}, {result.ended.seconds:.2f} s, {result.ended.memory >> 20} MiB")
        print(f"{result.verdict.kind}: {result.verdict.group}")
        if arguments.keep is not None:
            shutil.copytree(fuzzer.folder, arguments.keep)


@contextmanager
def fuzzer_in_memory(seed: int) -> Iterator[Fuzzer]:
    """Return a fuzzer whose files are kept in memory, if that is possible."""
    place = MEMORY if os.access(MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="fuzz-", dir=place) as folder:
        yield Fuzzer(Path(folder), seed)


def _begin(arguments: argparse.Namespace, names: list[str]) -> tuple[Path, dict[str, Any]]:
    """The folder of results and what is known of it so far."""
    given = f" --forms {shlex.quote(arguments.forms)}" if arguments.forms else ""
    command = f"fuzz --mutations {arguments.mutations} --seed {arguments.seed}{given}"
    if arguments.resume is None:
        folder = begin_results(arguments, command, seed=arguments.seed, forms=names)
        return folder, {"seed": arguments.seed, "forms": {}, "failures": {}}
    configuration = json.loads((arguments.resume / "configuration.json").read_text())
    now = configuration_of(command, seed=arguments.seed, forms=names)
    if other := [key for key in ("seed", "versions") if configuration[key] != now[key]]:
        raise SystemExit(f"the results that are to be continued are of another {other[0]}")
    state: dict[str, Any] = json.loads((arguments.resume / "state.json").read_text())
    for name in names:
        if arguments.anew:
            state["forms"].pop(name, None)
            state["failures"].pop(name, None)
        elif name in state["forms"] and state["forms"][name]["commit"] != now["commit"]:
            raise SystemExit(f"the results of {name} are of another commit: give --anew, or other --forms")
    return arguments.resume, state


def _done(state: dict[str, Any], name: str) -> int:
    form = state["forms"].get(name, {})
    return sum(form.get(kind, 0) for kind in (COMPLETE, REFUSED, FAILED))


def _rounds(fuzzer: Fuzzer, missing: dict[str, range], processes: int) -> Iterator[Round]:
    """Run cases: each form in a process of its own, which loads what it needs and is forked often.

    What nearly all forms need is loaded here, once; torch is not, as its threads do not live on in forks.
    """
    forked = get_context("fork")
    names = [name for name, cases in missing.items() if cases]
    if len(names) > 1:
        fuzzer.warm_up([COMMON])
    running: dict[Connection[Any, Any], Any] = {}
    while names or running:
        while names and len(running) < processes:
            hearing, telling = forked.Pipe(duplex=False)
            name = names.pop(0)
            process = forked.Process(target=_run_form, args=(fuzzer, name, missing[name], telling))
            process.start()
            telling.close()
            running[hearing] = process
        for hearing in [
            connection for connection in wait(list(running)) if isinstance(connection, Connection)
        ]:
            try:
                yield hearing.recv()
            except EOFError:
                process = running.pop(hearing)
                process.join()
                if process.exitcode:
                    raise SystemExit(f"the process of a form ended with {process.exitcode}") from None


def _run_form(fuzzer: Fuzzer, name: str, cases: range, telling: Connection[Any, Any]) -> None:
    """Tell of each round: the form, its counts, and its failures."""
    fuzzer = fuzzer.beside(name.replace(" ", "-"))
    fuzzer.warm_up([name])
    good = fuzzer.run_good(name)
    if good.verdict.kind != COMPLETE:
        raise SystemExit(f"{name}: what is not damaged fails\n{good.ended.err}{good.output}")
    for first in range(cases.start, cases.stop, ROUND):
        started = time.perf_counter()
        counts: dict[str, float] = {COMPLETE: 0, REFUSED: 0, FAILED: 0, "seconds": 0.0, "most": 0.0}
        failures = []
        for number in range(first, min(first + ROUND, cases.stop)):
            result = fuzzer.run(name, number)
            counts[result.verdict.kind] += 1
            counts["most"] = max(counts["most"], round(result.ended.seconds, 2))
            if result.verdict.kind == FAILED:
                failures.append([number, result.verdict.group])
        counts["seconds"] = round(time.perf_counter() - started, 2)
        telling.send((name, counts, failures))


def _keep(
    name: str, counts: dict[str, float], failures: list[Any], folder: Path, state: dict[str, Any]
) -> None:
    """Add a round to what is known, and write all of it."""
    form = state["forms"].setdefault(name, {"commit": commit(), **dict.fromkeys(counts, 0)})
    for key, count in counts.items():
        form[key] = max(form[key], count) if key == "most" else form[key] + count
    state["failures"].setdefault(name, []).extend(failures)
    partial = folder / "state.json.part"
    partial.write_text(json.dumps(state, indent=1) + "\n")
    partial.replace(folder / "state.json")
    rows = [
        f"{form}\t{number}\t{group}\n" for form, found in state["failures"].items() for number, group in found
    ]
    (folder / "failures.tsv").write_text("form\tnumber\tgroup\n" + "".join(rows))
    (folder / "report.md").write_text(report(state))
    print(f"{name}: {_done(state, name)} cases, {form[FAILED]} failures", flush=True)


def report(state: dict[str, Any]) -> str:
    """Return the report in Markdown: a row for each format, and one for each group of failures."""
    seed = state["seed"]
    rows = [
        [
            "form",
            "commit",
            "inputs",
            "complete",
            "refused",
            "failed",
            "inputs a second",
            "slowest, s of processor",
        ]
    ]
    total: dict[str, float] = defaultdict(float)
    for name, form in state["forms"].items():
        counts = [_done(state, name), form[COMPLETE], form[REFUSED], form[FAILED]]
        rate = f"{counts[0] / max(form['seconds'], 0.01):.1f}"
        rows.append(
            [name, form["commit"][:7], *(f"{count:,}" for count in counts), rate, f"{form['most']:.1f}"]
        )
        for key, count in zip(("inputs", COMPLETE, REFUSED, FAILED), counts, strict=True):
            total[key] += count
        total["seconds"] += form["seconds"]
    counted = [f"{total[key]:,.0f}" for key in ("inputs", COMPLETE, REFUSED, FAILED)]
    rows.append(["all", "", *counted, f"{total['inputs'] / max(total['seconds'], 0.01):.1f}", ""])
    groups: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for name, found in state["failures"].items():
        for number, group in found:
            groups[group].append((name, number))
    failed = [["failure", "times", "cases"]]
    for group, cases in sorted(groups.items(), key=lambda item: -len(item[1])):
        shown = ", ".join(f"{name} {number}" for name, number in cases[:SHOWN])
        failed.append([group.replace("|", "\\|"), str(len(cases)), shown])
    parts = [
        "# Damaged inputs",
        "An input is *complete* if the command exits with 0 and its outputs can be read to their ends, "
        "*refused* if it exits with 2 and one message, and leaves nothing behind. All else has failed.",
        markdown(rows),
        f"{len(groups)} kinds of failures" + (":" if groups else "."),
        *([markdown(failed)] if groups else []),
        f"A case is made again by `python -m benchmarks.reliability again FORM NUMBER --seed {seed}`; all "
        "failures are in `failures.tsv`.",
    ]
    return "\n\n".join(parts) + "\n"
