"""`scale`: time and memory by panel size, number of targets and number of typed sites, simulated."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import spinimpute
from benchmarks.imputation.cases import Case
from benchmarks.imputation.cast import TEXTBOOK, Conditions
from benchmarks.imputation.measure import OverTimeLimit, ProgramFailed, Stage
from benchmarks.imputation.options import Session, session
from benchmarks.imputation.programs import DEFAULT_FORMATS, Imputer, Ours
from benchmarks.imputation.results import models_used, write_configuration
from benchmarks.imputation.scale_report import AXES, Point, write_scale_report
from benchmarks.imputation.scoring import ALL
from benchmarks.imputation.simulated_set import History, Sizes, simulate, write_set
from benchmarks.imputation.study import BUILD, build_panel, impute_once, imputed_file, target_as_vcf

PANEL, TARGETS, TYPED = AXES


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command to the shared options."""

    def numbers(text: str) -> list[int]:
        return [int(part) for part in text.split(",")] if text else []

    parser.add_argument("--cache", type=Path, required=True, help="folder where simulated data are kept")
    parser.add_argument("--limit", type=float, default=1_800, help="seconds for one command (default: 1800)")
    axes = (
        ("--panel", [1_000, 3_000, 10_000, 30_000, 50_000], "panel haplotypes"),
        ("--targets", [10, 100, 1_000, 5_000], "target haplotypes"),
        ("--typed", [100, 300, 1_000], "typed sites"),
    )
    for option, sizes, text in axes:
        text += f", with commas; empty for none (default: {','.join(map(str, sizes))})"
        parser.add_argument(option, type=numbers, default=sizes, help=text)
    text = "panel haplotypes, target haplotypes and typed sites where these are not varied"
    parser.add_argument(
        "--base", type=numbers, default=[5_000, 200, 300], help=f"{text} (default: 5000,200,300)"
    )
    parser.add_argument("--length", type=int, default=500_000, help="bp of the simulated region")
    parser.add_argument("--centimorgans", type=float, default=0.5)
    parser.set_defaults(function=scale)


def scale(arguments: argparse.Namespace) -> None:
    """Run every size with every imputer. An imputer that fails at a size is not run at larger sizes."""
    base = Sizes(*arguments.base)
    axes = {
        PANEL: [replace(base, panel_haplotypes=n) for n in sorted(arguments.panel)],
        TARGETS: [replace(base, target_haplotypes=n) for n in sorted(arguments.targets)],
        TYPED: [replace(base, typed_sites=n) for n in sorted(arguments.typed)],
    }
    wanted = list(dict.fromkeys(sizes for along in axes.values() for sizes in along))
    if not wanted:
        raise SystemExit("no size was asked for")
    largest = [max(getattr(s, field) for s in wanted) for field in ("panel_haplotypes", "target_haplotypes")]
    history = History(sum(largest) // 2 + 8, arguments.length, arguments.centimorgans, arguments.seed)
    with session(arguments) as run:
        sets = simulated_sets(history, wanted, arguments.cache)
        measured: dict[Sizes, list[Point]] = {}
        stages: list[Stage] = []
        models: dict[str, str] = {}
        for along in axes.values():
            stopped: set[str] = set()
            for sizes in along:
                if sizes not in measured:
                    work = run.work_folder(sets[sizes].name)
                    measured[sizes] = _measure(
                        sets[sizes], sizes, run, work, arguments.limit, stopped, stages
                    )
                    models |= models_used(_outputs(run.imputers, work))
                stopped |= {point.imputer for point in measured[sizes] if point.status != "ok"}
        out = run.result_folder(run.name or "scale")
        points = {axis: [p for sizes in along for p in measured[sizes]] for axis, along in axes.items()}
        more = {"models": models, "limit": arguments.limit, "history": dataclasses.asdict(history)}
        write_configuration(out, run, stages, more)
        print(write_scale_report(points, out))


def simulated_sets(
    history: History, wanted: Sequence[Sizes], cache: Path, conditions: Conditions = TEXTBOOK
) -> dict[Sizes, Case]:
    """Return the sets of all sizes. They are simulated once and kept in the folder `cache`."""
    import tskit  # type: ignore[import-untyped]

    name = f"{history.people}-people-{history.length}-bp-{history.centimorgans:g}-cM-seed-{history.seed}"
    folder = cache / name
    folder.mkdir(parents=True, exist_ok=True)
    cases = {sizes: _case(folder / set_name(sizes, conditions)) for sizes in wanted}
    lacking = [sizes for sizes, case in cases.items() if not (case.panel.parent / "set.json").exists()]
    if lacking:
        trees_file = folder / "history.trees"
        if not trees_file.exists():
            print(f"simulating {name}", flush=True)
            partial = folder / "history.part"
            simulate(history).dump(partial)
            partial.replace(trees_file)
        trees = tskit.load(trees_file)
        for sizes in lacking:
            print(f"writing {sizes}", flush=True)
            write_set(trees, history, sizes, cases[sizes].panel.parent, conditions)
    return cases


def set_name(sizes: Sizes, conditions: Conditions) -> str:
    """Return the name of a set's folder within the folder of its history."""
    name = f"{sizes.panel_haplotypes}-{sizes.target_haplotypes}-{sizes.typed_sites}"
    if conditions.relatives:
        name += f"-relatives-{conditions.relatives:g}"
    return name + ("-flaws" if conditions.flaws else "")


def _case(folder: Path) -> Case:
    target = folder / "target.phased.bcf"
    files = folder / "panel.bcf", target, folder / "truth.bcf", folder / "genetic.map"
    people = folder / "samples.tsv"
    return Case(folder.name, *files, scored_without=target, people=people)


def _outputs(imputers: Sequence[Imputer], work: Path) -> dict[str, Path]:
    """The imputed files that there are."""
    files = {imputer.label: imputed_file(imputer, work) for imputer in imputers}
    return {label: path for label, path in files.items() if path.exists()}


def _measure(
    case: Case, sizes: Sizes, run: Session, work: Path, limit: float, stopped: set[str], stages: list[Stage]
) -> list[Point]:
    """Build, impute and score; `stages` is added to. One that is in `stopped` or fails has no times."""
    sites = json.loads((case.panel.parent / "set.json").read_text())["panel_sites"]
    print(f"-- {case.name}: {sites} sites", flush=True)
    target = target_as_vcf(case, work)
    status = {i.label: "not run" if i.label in stopped else "ok" for i in run.imputers}
    found: list[Stage] = []
    for number in range(run.repeat + 1):  # 0 builds the panels
        for imputer in run.imputers:
            if status[imputer.label] != "ok":
                continue
            try:
                if number == 0:
                    found += build_panel(case, imputer, work, limit)
                else:
                    panel = work / imputer.panel_name
                    found.append(
                        impute_once(
                            case, imputer, panel, target, work, DEFAULT_FORMATS, run.threads, number, limit
                        )
                    )
            except ProgramFailed as error:
                status[imputer.label] = "over the limit" if isinstance(error, OverTimeLimit) else "failed"
                print(error, flush=True)
    stages += found
    bins = (0.0, 0.5)
    compiled = work / Ours().panel_name  # the frequencies of a large panel are read from it at once
    panel = compiled if compiled.is_file() else case.panel
    points = []
    for imputer in run.imputers:
        r2 = float("nan")
        if status[imputer.label] == "ok":
            imputed = imputed_file(imputer, work)
            result = spinimpute.evaluate(case.truth, imputed, panel, case.scored_without, bins=bins)
            r2 = next(
                row["pooled_r2"]
                for row in result.by_frequency
                if (row["imputer"], row["bin"]) == ("imputed", ALL)
            )
        own = [s for s in found if s.imputer == (imputer.program if s.stage == BUILD else imputer.label)]
        points.append(Point(imputer.label, sizes, sites, tuple(own), r2, status[imputer.label]))
    return points
