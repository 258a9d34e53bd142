"""Calibration with few context points (Table 18 of the SPIN paper, whose models learned with more)."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch

from benchmarks.imputation.tables import markdown
from benchmarks.neural_processes.results import STEPS, folder_of, mean_and_spread, run_name
from benchmarks.papers.claims import SPIN_PAPER, published
from spinimpute.neural_processes.evaluation import calibration
from spinimpute.neural_processes.gaussian_tasks import parse_settings
from spinimpute.neural_processes.plots import CONTEXTS, plot_calibration, plot_predictions
from spinimpute.neural_processes.settings import KINDS
from spinimpute.neural_processes.training import load_model

PUBLISHED_CONTEXT = (64, 128)  # that models were trained with


def calibration_name(context: tuple[int, int], steps: int) -> str:
    """Return the name of the results for models that were trained with this context and number of steps."""
    if context == PUBLISHED_CONTEXT:
        return "calibration" if steps == STEPS else f"calibration-steps-{steps}"
    return f"calibration-{run_name(context, steps)}"


def calibrate(arguments: argparse.Namespace) -> None:
    """Measure the calibration of models at 4, 8 and 16 context points, next to the paper's values.

    The paper's models were trained with 64 to 128 points. The figures of calibration and of predictions
    (Figures 7 and 6) show the first seed.
    """
    torch.set_num_threads(arguments.threads)
    low, high = arguments.context
    trained, as_published = run_name((low, high), arguments.steps), (low, high) == PUBLISHED_CONTEXT
    out = folder_of(calibration_name((low, high), arguments.steps))
    rows = [["model", *map(str, CONTEXTS), "seeds"]]
    if as_published:
        rows[0] += [f"paper: {n}" for n in CONTEXTS]
    curves, shown = {}, {}
    for kind in KINDS:
        errors = []
        paths = sorted(Path(arguments.models_folder).glob(f"*-{trained}-{kind}-*.safetensors"))
        latest = {path.stem.rpartition("-")[2]: path for path in paths}  # by seed, names begin with the date
        for path in latest.values():
            model, metadata = load_model(path, arguments.device)
            tasks = parse_settings(metadata["tasks"]["gaussian"])
            found = [
                calibration(model, tasks, n, arguments.batches, arguments.samples, arguments.device)
                for n in CONTEXTS
            ]
            errors.append([one.error for one in found])
            curves[path.stem] = found
            shown.setdefault(kind, (path.stem, model.cpu()))
        if errors:
            of_paper = [published(SPIN_PAPER, "18").get((str(n), kind), "") for n in CONTEXTS]
            means = [mean_and_spread(of_context) for of_context in zip(*errors, strict=True)]
            rows.append([kind, *means, str(len(errors)), *(of_paper if as_published else [])])
    if not shown:
        raise SystemExit(
            f"there is no model in {arguments.models_folder}. Train some with --context {low} {high} "
            f"--steps {arguments.steps}"
        )
    inside = {name: [one.inside for one in found] for name, found in curves.items()}
    (out / "curves.json").write_text(json.dumps(inside, indent=1) + "\n")
    plot_calibration({kind: curves[name] for kind, (name, _) in shown.items()}, out / "calibration.png")
    plot_predictions({kind: model for kind, (_, model) in shown.items()}, tasks, out / "predictions.png")
    text = markdown(rows)
    (out / "report.md").write_text(
        f"# Calibration error (equation 1) of models trained with {low} to {high} points\n\n"
        f"Columns: context points; mean ± sd over seeds; {arguments.batches} batches, "
        f"{arguments.samples} samples\n\n{text}\n"
    )
    print(text)
