"""PNG figures: predictions of models and of the oracle (see `evaluation`), and calibration curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from spinimpute.neural_processes.evaluation import LEVELS, Calibration
from spinimpute.neural_processes.gaussian_tasks import ProcessSettings, TaskBatch, draw_tasks, oracle
from spinimpute.neural_processes.models import NeuralProcess

POSITIONS = 200  # number of inputs at which a plotted prediction is computed
CONTEXTS = (4, 8, 16)  # numbers of context points


@torch.no_grad()
def plot_predictions(
    models: Mapping[str, NeuralProcess], tasks: ProcessSettings, path: str | Path, number: int = 0
) -> None:
    """Plot predictions (mean and two standard deviations) for one task, with 4, 8 and 16 context points.

    Rows of the figure are numbers of context points, columns are models; the last column is the oracle (see
    Figure 6 of the SPIN paper).
    """
    from matplotlib.figure import Figure

    names = [*models, "oracle"]
    figure = Figure(figsize=(3 * len(names), 2.2 * len(CONTEXTS)), layout="constrained")
    axes = figure.subplots(len(CONTEXTS), len(names), sharex=True, sharey=True, squeeze=False)
    low, high = tasks.inputs
    settings = ProcessSettings(**{**vars(tasks), "context": (max(CONTEXTS),) * 2, "target": (1, 1)})
    task, process = draw_tasks(settings, 0, number)
    x_target = torch.linspace(low, high, POSITIONS)[None, :, None].expand(len(task.x_BNX), -1, -1)
    for row, context in zip(axes, CONTEXTS, strict=True):
        x, y = task.x_BNX[:, :context], task.y_BNY[:, :context]
        for ax, name in zip(row, names, strict=True):
            torch.manual_seed(number)
            prediction = (
                oracle(TaskBatch(x, y, x_target, torch.zeros_like(x_target)), process)
                if name == "oracle"
                else models[name].eval()(x, y, x_target, 50)
            )
            mean, sd = prediction.mean[0, :, 0].float(), prediction.stddev[0, :, 0].float()
            positions = x_target[0, :, 0]
            ax.fill_between(positions, mean - 2 * sd, mean + 2 * sd, alpha=0.25, linewidth=0)
            ax.plot(positions, mean, linewidth=1.2)
            ax.plot(x[0, :, 0], y[0, :, 0], "k.", markersize=4)
            if context == CONTEXTS[0]:
                ax.set_title(name)
        row[0].set_ylabel(f"{context} points")
    figure.savefig(path, dpi=130, format="png")


def plot_calibration(curves: Mapping[str, Sequence[Calibration]], path: str | Path) -> None:
    """Plot the fraction of targets inside central intervals (see Figure 7 of the SPIN paper).

    `curves` holds for each model the calibrations with each number of context points in CONTEXTS.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4 * len(CONTEXTS), 3.6), layout="constrained")
    for i, (ax, context) in enumerate(zip(figure.subplots(1, len(CONTEXTS)), CONTEXTS, strict=True)):
        ax.plot([0, 1], [0, 1], color="0.7", linewidth=1)
        for name, calibrations in curves.items():
            ax.plot(LEVELS, calibrations[i].inside, marker="o", markersize=3, label=name)
        ax.set(title=f"{context} context points", xlabel="interval", ylabel="targets inside")
    ax.legend(fontsize=8)
    figure.savefig(path, dpi=130, format="png")
