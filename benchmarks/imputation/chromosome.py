"""`chromosome`: a simulated whole chromosome, phased, unphased and for one person, compared with both peers.

On a megabase, a program spends most of its time on starting. Users impute chromosomes.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.imputation.cases import Case
from benchmarks.imputation.cast import Conditions
from benchmarks.imputation.compare import judged
from benchmarks.imputation.derived import draw_targets, only_targets
from benchmarks.imputation.measure import Timing, summarise
from benchmarks.imputation.options import Session, session
from benchmarks.imputation.programs import Beagle, Imputer
from benchmarks.imputation.results import Outcome, write_configuration, write_outcome
from benchmarks.imputation.scale import simulated_sets
from benchmarks.imputation.scoring import ALL
from benchmarks.imputation.simulated_set import History, Sizes
from benchmarks.imputation.study import IMPUTE, impute_case
from benchmarks.imputation.tables import labels, markdown, number
from benchmarks.imputation.unphased import without_phase


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command to the shared options."""
    parser.add_argument("--cache", type=Path, required=True, help="folder where simulated data are kept")
    parser.add_argument("--length", type=int, default=40_000_000, help="bp (default: 40 million)")
    parser.add_argument("--centimorgans", type=float, default=40.0)
    parser.add_argument("--panel-haplotypes", type=int, default=5_008)
    parser.add_argument("--target-haplotypes", type=int, default=500)
    parser.add_argument("--typed-sites", type=int, default=20_000)
    parser.set_defaults(function=chromosome)


def chromosome(arguments: argparse.Namespace) -> None:
    """Impute all three kinds of targets from the same compiled panels."""
    sizes = Sizes(arguments.panel_haplotypes, arguments.target_haplotypes, arguments.typed_sites)
    conditions = Conditions(flaws=True)
    history = History(sizes.people(conditions), arguments.length, arguments.centimorgans, arguments.seed)
    with session(arguments) as run:
        (full,) = simulated_sets(history, [sizes], arguments.cache, conditions).values()
        out = run.result_folder(run.name or "chromosome")
        panels = run.work_folder("panels")
        outcomes = []
        for kind in ("phased", "unphased", "one-person"):
            work = run.work_folder(kind)
            case, imputers = _targets(full, kind, run, work)
            imputed = impute_case(case, imputers, work, run.threads, run.repeat, panels=panels)
            folder = out / kind
            folder.mkdir(exist_ok=True)
            outcomes.append(judged(case, imputed, run, folder, strata=False))
            write_outcome(outcomes[-1], folder, run)
        bytes_of = {imputer.program: (panels / imputer.panel_name).stat().st_size for imputer in run.imputers}
        report = _report(outcomes, bytes_of)
        (out / "report.md").write_text(report + "\n")
        stages = [stage for outcome in outcomes for stage in outcome.stages]
        write_configuration(out, run, stages, {"models": outcomes[0].models})
        print(report)


def _targets(full: Case, kind: str, run: Session, work: Path) -> tuple[Case, Sequence[Imputer]]:
    if kind == "unphased":
        # Minimac4 needs phased targets
        return replace(without_phase(full, run.seed, work), name=kind), (Beagle(), *run.ours)
    if kind == "one-person":
        alone = only_targets(full, draw_targets(full, 1, run.seed), work)
        return replace(alone, name=kind), run.imputers
    return replace(full, name=kind), run.imputers


def _report(outcomes: Sequence[Outcome], bytes_of: dict[str, int]) -> str:
    head = ["targets", "program", "wall s", "Beagle = 1", "Minimac4 = 1", "peak GB", "r²", "mean r²"]
    table = [head]
    timings: list[Timing] = []
    for outcome in outcomes:
        of_case = summarise(outcome.stages)
        timings += of_case
        seconds = {t.imputer: t.seconds for t in of_case if t.stage == IMPUTE}
        overall = {row.imputer: row for row in outcome.rows if row.bin == ALL}
        for t in of_case:
            if t.stage == IMPUTE:
                ratios = [
                    f"{t.seconds / seconds[peer]:.2f}" if peer in seconds else "–"
                    for peer in ("Beagle", "Minimac4")
                ]
                found = overall[t.imputer]
                accuracy = [number(found.pooled_r2), number(found.mean_r2)]
                peak = f"{t.peak_mb / 1024:.2f}"
                table.append([outcome.case.name, t.imputer, f"{t.seconds:.1f}", *ratios, peak, *accuracy])
    built = [["panel file", "MB", "processor s to build", "peak GB"]]
    processor = {s.imputer: s.cpu_seconds for o in outcomes for s in o.stages if s.stage != IMPUTE}
    for t in timings:
        if t.stage != IMPUTE:
            size, seconds = f"{bytes_of[t.imputer] / 1e6:.0f}", f"{processor[t.imputer]:.0f}"
            built.append([t.imputer, size, seconds, f"{t.peak_mb / 1024:.2f}"])
    errors = [["targets", "program", "error / Beagle's", "error / Minimac4's"]]
    for outcome in outcomes:
        error = {row.imputer: 1 - row.pooled_r2 for row in outcome.rows if row.bin == ALL}
        for label in labels(outcome.rows):
            if label in {stage.imputer for stage in outcome.stages}:
                of_peers = [
                    number(error[label] / error[peer], 3) if peer in error else "–"
                    for peer in ("Beagle", "Minimac4")
                ]
                errors.append([outcome.case.name, label, *of_peers])
    first = outcomes[0].case
    return "\n\n".join(
        [
            "# A simulated whole chromosome",
            f"{first.panel_haplotypes:,} panel haplotypes, {first.typed_sites:,} typed sites, flaws as in "
            "real panels and targets. Accuracy by frequency is in the folders.",
            markdown(table),
            markdown(errors),
            markdown(built),
        ]
    )
