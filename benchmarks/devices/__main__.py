"""Samples per second of `impute`, and steps per second of training, on CPUs and on a GPU.

FOLDER contains NAME.spin, a prepared panel, and NAME.t.vcf.gz, phased targets. Neither other programs nor
simulations are needed. Whole processes are timed. The most informative rows are measured first, and results
are written after each row. The report lists the rows for which --budget left no time.
"""

from __future__ import annotations

import argparse
import datetime
import shutil
import tempfile
from pathlib import Path

from benchmarks.devices.plan import IMPUTE, Row, planned
from benchmarks.devices.report import Machine, describe_set, write_results
from benchmarks.devices.rows import Runner

RESULTS = Path(__file__).parent / "results"


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.devices",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )

    def words(text: str) -> list[str]:
        return text.split(",") if text else []

    def numbers(text: str) -> list[int]:
        return [int(part) for part in words(text)]

    parser.add_argument("folder", type=Path, help="of NAME.spin and NAME.t.vcf.gz")
    parser.add_argument("--sets", type=words, help="NAMEs, the most important first (default: all)")
    parser.add_argument("--devices", type=words, default=["cpu", "cuda"], help="default: cpu,cuda")
    parser.add_argument("--threads", type=numbers, default=[1, 2, 4, 8, 16], help="default: 1,2,4,8,16")
    parser.add_argument(
        "--only", type=words, help="TASK/PREDICTOR/DEVICE of the rows, such as train/spin/cuda (default: all)"
    )
    parser.add_argument("--repeat", type=int, default=3, help="runs of a row; the median counts (default: 3)")
    parser.add_argument("--steps", type=int, default=10, help="of training that are timed (default: 10)")
    parser.add_argument("--limit", type=float, default=90, help="seconds for one command (default: 90)")
    parser.add_argument("--budget", type=float, default=3_600, help="seconds for all (default: 3600)")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--name", default="devices", help="of the result folder, after the date")
    parser.add_argument("--commit", help="of the sources, where they are no repository")
    return parser


def main() -> None:
    arguments = make_parser().parse_args()
    sets = arguments.sets or sorted(p.stem for p in arguments.folder.glob("*.spin"))
    for name in sets:
        for path in (arguments.folder / f"{name}.spin", arguments.folder / f"{name}.t.vcf.gz"):
            if not path.is_file():
                raise SystemExit(f"{path} is not there")
    if not sets:
        raise SystemExit(f"{arguments.folder} holds no .spin")
    rows = planned(sets, arguments.devices, arguments.threads, arguments.repeat)
    if arguments.only:
        rows = [row for row in rows if f"{row.task}/{row.kind}/{row.device}" in arguments.only]
    today = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    out = arguments.results / f"{today}-{arguments.name}"
    out.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="devices-"))
    runner = Runner(arguments.folder, work, arguments.steps, arguments.limit, arguments.budget)
    try:
        machine = Machine.here(arguments.devices, arguments.commit)
        described = [describe_set(arguments.folder, name) for name in sets]
        for kind, device in dict.fromkeys((row.kind, row.device) for row in rows if row.task == IMPUTE):
            runner.warm_up(kind, device, max(arguments.threads))
        measured: list[Row] = []
        for row in rows:
            measured.append(runner.measure(row))
            write_results(out, machine, described, measured, runner.agreements, vars(arguments))
            print(f"{runner.spent():6.0f} s  {measured[-1].line()}", flush=True)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    print((out / "report.md").read_text())


if __name__ == "__main__":
    main()
