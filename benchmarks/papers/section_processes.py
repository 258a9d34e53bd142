"""Section of the page on neural processes: Figure 4 and Table 18 of the SPIN paper."""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.imputation.tables import markdown
from benchmarks.neural_processes.calibrate import calibration_name
from benchmarks.neural_processes.contexts import BEFORE, OTHER_POINTS, Run, read_runs
from benchmarks.neural_processes.results import STEPS, find_folder
from benchmarks.papers.claims import (
    BUDGET,
    SPIN_PAPER,
    Claim,
    Section,
    mean_text,
    not_run,
    protocol,
    published,
    verdict,
)
from spinimpute.neural_processes.evaluation import LEVELS
from spinimpute.neural_processes.settings import PUBLISHED

PLUS = tuple(f"{kind}+" for kind in PUBLISHED)  # the improved models of the same names
RANGES = ((64, 128), (128, 256), (256, 512), (512, 1_024), (1_024, 2_048))
PAPER_INDUCING = 32  # points, at 64 to 128 context points
FEW, MANY = ("4", "8"), "16"  # context points of Table 18
COSTS_AT = "1024"
PAPER_STEPS, PAPER_BATCHES = 100_000, 3_000
MANY_STEPS = {PUBLISHED: 60_000, PLUS: 20_000}  # of each family; not all models have been trained so long
EQUAL_STEPS = 3_000  # of all published models


def section(results: Path) -> Section:
    """Return the section, from the results of `benchmarks.neural_processes`."""
    runs = {run: rows for run, rows in read_runs(results).items() if run.after is None and not run.low_floor}
    costs, calibration = _costs(results), _calibration(results)
    parts = [
        protocol("processes"),
        "### Figure 4: log-likelihood by context", _figure4(runs),
        "### Table 18: calibration with few points", _table18(calibration),
    ]  # fmt: skip
    claims = [_ahead(runs), _cheap(costs), _calibrated(calibration)]
    claims += [
        _after_steps(runs, PUBLISHED, EQUAL_STEPS, "The same, as published, all after equally few steps"),
        *(_after_steps(runs, family, steps, _says(family)) for family, steps in MANY_STEPS.items()),
    ]
    return Section("Neural processes (SPIN 4.2, A.6)", parts, claims)


def _values(
    runs: dict[Run, list[dict[str, Any]]], context: tuple[int, int], kind: str, steps: int = STEPS
) -> list[float]:
    """Log-likelihoods by seed."""
    run = Run(context, None, steps, False)
    return [row["log_likelihood"] for row in runs.get(run, []) if row["kind"] == kind]


def _figure4(runs: dict[Run, list[dict[str, Any]]]) -> str:
    columns = [(context, STEPS) for context in RANGES]
    columns += sorted(
        (run.context, run.steps) for run in runs if run.context == RANGES[0] and run.steps != STEPS
    )
    heads = [
        f"{low:,}–{high:,}" + ("" if steps == STEPS else f", {steps:,} steps")
        for (low, high), steps in columns
    ]
    lines = [["context points", *heads]]
    for kind in [row for name in (*PUBLISHED, *PLUS) for row in _rows_of(name)]:
        cells = [mean_text(_values(runs, context, kind, steps), 3) for context, steps in columns]
        if any(cell != "–" for cell in cells):
            lines.append([kind, *cells])
    oracles = []
    for context, steps in columns:
        rows = runs.get(Run(context, None, steps, False), [])
        oracles.append(f"{np.mean([row['floored'] for row in rows]):.3f}" if rows else "–")
    lines.append(["true process (upper bound; σ ≥ .1)", *oracles])
    return (
        f"{markdown(lines)}\n\nMean ± standard deviation over seeds (number of seeds). The paper has a "
        "figure without numbers."
    )


def _rows_of(kind: str) -> list[str]:
    """Variants of a kind that have results, by the names of the rows."""
    return [kind, kind + BEFORE, OTHER_POINTS.format(kind, PAPER_INDUCING)] if _is_inducing(kind) else [kind]


def _is_inducing(kind: str) -> bool:
    return "IPNP" in kind


def _ahead(runs: dict[Run, list[dict[str, Any]]]) -> Claim:
    """Comparison of the improved models without distances, where both have them."""
    says = "CIPNP and IPNP (inducing points) are more accurate than CANP, ANP and BANP at most context sizes"
    ahead, told = [], []
    for context in RANGES:
        means = {}
        for kind in PLUS:
            values = _values(runs, context, kind + BEFORE) or _values(runs, context, kind)
            if values:
                means[kind] = float(np.mean(values))
        ours = {kind: mean for kind, mean in means.items() if _is_inducing(kind)}
        theirs = {kind: mean for kind, mean in means.items() if not _is_inducing(kind)}
        if ours and theirs:
            best, rival = max(ours, key=lambda k: ours[k]), max(theirs, key=lambda k: theirs[k])
            ahead.append(ours[best] > theirs[rival])
            told.append(
                f"{context[0]:,}–{context[1]:,}: {best} {ours[best]:.3f}, {rival} {theirs[rival]:.3f}"
            )
    form = f"Improved models without distances, {STEPS} steps"
    in_short = f"{form}: ahead at {sum(ahead)} of {len(ahead)} context sizes"
    told_all = f"{form}. {'; '.join(told)}"
    return Claim("SPIN Figure 4", says, verdict(ahead), told_all, in_short, unfinished=STEPS < PAPER_STEPS)


def _says(family: tuple[str, ...]) -> str:
    says = f"The same after {PAPER_STEPS:,} steps, {PAPER_BATCHES:,} batches of evaluation"
    return says + ("" if family == PUBLISHED else ", for the improved models")


def _after_steps(
    runs: dict[Run, list[dict[str, Any]]], family: tuple[str, ...], steps: int, says: str
) -> Claim:
    """Models of a family with the fewest points; each inducing-point model beside each of the others."""
    values = {kind: _values(runs, RANGES[0], kind, steps) for kind in family}
    means = {kind: float(np.mean(of_seeds)) for kind, of_seeds in values.items() if of_seeds}
    ahead = [means[a] > means[b] for a in means if _is_inducing(a) for b in means if not _is_inducing(b)]
    low, high = RANGES[0]
    if not ahead:
        command = f"python -m benchmarks.neural_processes train --context {low} {high} --steps {steps}"
        command += " --learning-rate 5e-4" if family == PUBLISHED else ""
        return not_run("SPIN Figure 4", says, f"`{command} --batches {PAPER_BATCHES}`")
    lacking = [kind for kind in family if kind not in means]
    found = ", ".join(f"{kind} {mean_text(values[kind], 3)}" for kind in means)
    told = f"{steps:,} steps, {low}–{high} points: {found}"
    if lacking:
        told += f"; not run: {', '.join(lacking)}"
    holds = verdict([*ahead, not lacking]) if any(ahead) else verdict(ahead)
    unfinished = steps < PAPER_STEPS
    return Claim("SPIN Figure 4", says, holds, told, blame=BUDGET, unfinished=unfinished)


def _costs(results: Path) -> dict[str, tuple[float, float]]:
    """Seconds of a step and MB kept, by kind, at COSTS_AT points."""
    folder = find_folder("cost", results)
    if folder is None:
        return {}
    with (folder / "cost.tsv").open() as file:
        return {
            row["kind"]: (float(row["seconds"]), float(row["MB"]))
            for row in csv.DictReader(file, delimiter="\t")
            if row["context"] == COSTS_AT
        }


def _family(found: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the published models if all of them have results, otherwise the improved models."""
    return PUBLISHED if set(PUBLISHED) <= set(found) else PLUS


def _few_steps(kind: str) -> str:
    return f"{kind}, {EQUAL_STEPS:,} steps"


def _cheap(costs: dict[str, tuple[float, float]]) -> Claim:
    says = "Models with inducing points use up to 50 % less time and memory"
    if not costs:
        return not_run("SPIN Figure 4", says, "`python -m benchmarks.neural_processes cost`")
    kinds = _family(costs)
    canp, anp, _, cipnp, ipnp = kinds
    pairs = [(cipnp, canp), (ipnp, anp)]
    holds = [costs[a][i] <= 0.5 * costs[b][i] for a, b in pairs for i in (0, 1)]
    told = "; ".join(f"{k} {costs[k][0]:.2f} s and {costs[k][1]:.0f} MB" for k in kinds if k in costs)
    return Claim("SPIN Figure 4", says, verdict(holds), f"A step with {COSTS_AT} context points: {told}")


def _calibration(results: Path) -> dict[str, dict[str, list[float]]]:
    """Calibration error (equation 1) for every seed, by kind and context points."""
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for steps in (STEPS, EQUAL_STEPS, MANY_STEPS[PUBLISHED]):
        folder = find_folder(calibration_name(RANGES[0], steps), results)
        if folder is None:
            continue
        curves: dict[str, list[list[float]]] = json.loads((folder / "curves.json").read_text())
        for name, of_context in curves.items():
            kind = name.split("-")[-2]
            kind = _few_steps(kind) if steps == EQUAL_STEPS else kind
            for points, inside in zip((*FEW, MANY), of_context, strict=True):
                error = float(np.mean([(p - level) ** 2 for p, level in zip(inside, LEVELS, strict=True)]))
                found[kind][points].append(error)
    return found


def _table18(calibration: dict[str, dict[str, list[float]]]) -> str:
    theirs = published(SPIN_PAPER, "18")
    points = (*FEW, MANY)
    lines = [["", *(x for n in points for x in (f"{n} points", "paper"))]]
    rows = (*PUBLISHED, *map(_few_steps, PUBLISHED), *PLUS)
    for kind in [kind for kind in rows if kind in calibration]:
        of_paper = {n: theirs[n, kind.partition(",")[0]] if kind not in PLUS else "" for n in points}
        lines.append([kind, *(x for n in points for x in (mean_text(calibration[kind][n], 4), of_paper[n]))])
    return (
        f"{markdown(lines)}\n\nModels trained with 64 to 128 points, the published ones for "
        f"{MANY_STEPS[PUBLISHED]:,} steps unless stated, the improved ones (+) for {STEPS}; lower is better."
    )


def _calibrated(calibration: dict[str, dict[str, list[float]]]) -> Claim:
    says = "With 4 and 8 points CIPNP and IPNP are far better calibrated than the others"
    if not calibration:
        return not_run("SPIN 18", says, "`python -m benchmarks.neural_processes calibration`")
    few = tuple(map(_few_steps, PUBLISHED))
    kinds = few if set(few) <= set(calibration) else PLUS
    means = {(kind, n): float(np.mean(calibration[kind][n])) for kind in kinds for n in FEW}
    rivals = [kind for kind in kinds if not _is_inducing(kind)]
    holds = [
        means[kind, n] < min(means[rival, n] for rival in rivals)
        for kind in kinds
        if _is_inducing(kind)
        for n in FEW
    ]
    names = {kind: kind.partition(",")[0] for kind in kinds}
    told = "; ".join(
        f"{n} points: {', '.join(f'{names[kind]} {means[kind, n]:.3f}' for kind in kinds)}" for n in FEW
    )
    steps = EQUAL_STEPS if kinds == few else STEPS
    told += f" ({steps:,} steps of training, in the paper {PAPER_STEPS:,})"
    return Claim("SPIN 18", says, verdict(holds), told, unfinished=steps < PAPER_STEPS)
