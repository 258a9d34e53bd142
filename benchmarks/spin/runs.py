"""Train and score the rows of a table; each result is written as soon as it is known."""

from __future__ import annotations

import argparse
import csv
import datetime
import json
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import torch

from benchmarks.imputation.results import PACKAGES, commit, processor
from benchmarks.imputation.tables import markdown
from benchmarks.inducing.report import result_folder
from benchmarks.neural_processes.results import find_folder, mean_and_spread
from benchmarks.spin.budget import Budget
from benchmarks.spin.rows import Row
from benchmarks.spin.scoring import BINS, LARGER, SCORES, UNSEEN, held_out, score
from spinimpute.predictors.loading import load_predictor
from spinimpute.predictors.spin.learner import SPINLearner
from spinimpute.training.sources import SimulatedSource
from spinimpute.training.trainer import Trainer

HEAD = ["row", "seed", "steps", "segments", "weights", "seconds", *SCORES]
NEVER = 0  # the seed of what is not trained


def run_table(name: str, about: str, rows: Sequence[Row], arguments: argparse.Namespace) -> None:
    """Run the rows of a table that have no result in its folder. All results of a folder have the same
    budget.
    """
    budget: Budget = replace(arguments.budget, device=arguments.device)
    folder = find_folder(name, arguments.results) or result_folder(arguments.results, name)
    _write_configuration(folder / "configuration.json", budget)
    table = folder / "scores.tsv"
    if not table.exists():
        _append(table, HEAD)
    began = time.monotonic()
    for seed in arguments.seeds:
        source = {n: SimulatedSource(seed, n, budget.simulation) for n in {row.segments for row in rows}}
        for row in rows:
            key = row.name, str(seed if row.steps else NEVER)
            if key in {(line["row"], line["seed"]) for line in _read(table)}:
                continue
            if time.monotonic() - began > arguments.limit:
                raise SystemExit(f"{arguments.limit:.0f} seconds are over: call again to go on")
            torch.manual_seed(seed)
            learner = row.learner(budget)
            started = time.process_time()
            if row.steps:
                _train(learner, row, budget, seed, source[row.segments])
            seconds = time.process_time() - started
            weights = sum(p.numel() for p in learner.model.parameters())
            scores = score(learner, budget)
            cells = [*key, row.steps * budget.steps, row.segments if row.steps else "", weights]
            _append(table, [*cells, f"{seconds:.0f}", *(f"{scores[name]:.4f}" for name in SCORES)])
            print(*key, f"{seconds:.0f} s", {k: round(v, 4) for k, v in scores.items()}, flush=True)
    report = f"# {name}\n\n{about}\n\n{_report(rows, _read(table), budget)}\n"
    (folder / "report.md").write_text(report)
    print(report)


def _train(learner: SPINLearner, row: Row, budget: Budget, seed: int, source: SimulatedSource) -> None:
    settings = budget.training(seed, {"steps": row.steps * budget.steps, **row.training})
    trainer = Trainer(learner, settings, source, source.validation(4), {})
    # the last weights count: nothing is chosen by what is held out
    trainer.train(lambda entry: print(row.name, seed, entry, flush=True), lambda best: None)


def _append(table: Path, cells: Sequence[object]) -> None:
    with table.open("a") as file:
        file.write("\t".join(map(str, cells)) + "\n")


def _read(table: Path) -> list[dict[str, str]]:
    with table.open() as file:
        return list(csv.DictReader(file, delimiter="\t"))


def _report(rows: Sequence[Row], lines: list[dict[str, str]], budget: Budget) -> str:
    """Mean and standard deviation over seeds, a line a row."""
    found = [["pooled r²", "seeds", "steps", "weights", "CPU s", *SCORES]]
    for row in rows:
        mine = [line for line in lines if line["row"] == row.name]
        if not mine:
            continue
        means = [mean_and_spread([float(line[name]) for line in mine]) for name in SCORES]
        seconds = sum(float(line["seconds"]) for line in mine) / len(mine)
        seeds = str(len(mine)) if row.steps else "–"
        found.append([row.name, seeds, mine[0]["steps"], mine[0]["weights"], f"{seconds:.0f}", *means])
    episodes = held_out(budget, budget.spin.shape, budget.spin.inducing_points)
    counted = ", ".join(
        f"{len(part)} episodes with {sum(int(e.valid_BGU.sum()) for e in part):,} hidden sites ({group})"
        for group, part in episodes.items()
    )
    rare, common = BINS["rare"][1], BINS["common"][0]
    note = (
        "Pooled r² of minor-allele dosages, mean ± standard deviation over seeds; rare: frequency at most "
        f"{rare} in the context, common: above {common}. No run trains on any of these segments: {counted}. "
        f'"{UNSEEN}": simulated as in training; "{LARGER}": those of `benchmarks/simulated`. CPU seconds of '
        "training include the simulation of segments that the process had not seen yet."
    )
    return f"{markdown(found)}\n\n{note}"


def _write_configuration(path: Path, budget: Budget) -> None:
    """commits, devices: of all calls that added rows; older results were computed on a CPU."""
    before = json.loads(path.read_text()) if path.exists() else {"commits": [], "devices": []}
    configuration = {
        "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        "commits": list(dict.fromkeys([*before["commits"], commit()])),
        "devices": list(dict.fromkeys([*before.get("devices", ["cpu"]), budget.device])),
        "shipped model": load_predictor(name="spin", device="cpu").fingerprint,
        "processor": processor(),
        "cores": os.cpu_count(),
        "versions": {name: version(name) for name in PACKAGES},
        "budget": json.loads(json.dumps(budget.as_dict())),
    }
    if before.get("budget", configuration["budget"]) != configuration["budget"]:
        raise SystemExit(f"{path.parent} was made with another budget: move it away first")
    path.write_text(json.dumps(configuration, indent=1) + "\n")
