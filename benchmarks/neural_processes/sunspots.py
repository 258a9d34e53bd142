"""Gaps in a real time series: yearly sunspot numbers, the example of docs/neural-processes.md.

A neural process is fitted to windows of the years before 1900. It predicts ten hidden years in the middle of
windows after 1900 from the other years of the window. Gaussian processes, whose kernels are fitted to the
years before 1900, and linear interpolation predict the same years from the same years.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib import rc_context
from matplotlib.figure import Figure
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ExpSineSquared, Kernel, WhiteKernel

from benchmarks.imputation.results import commit
from benchmarks.imputation.tables import markdown
from benchmarks.neural_processes import results
from benchmarks.neural_processes.results import machine
from spinimpute.neural_processes import FittedProcess, fit

REPOSITORY = Path(__file__).resolve().parents[2]
SERIES = REPOSITORY / "data" / "sunspots.csv"
PICTURE = REPOSITORY / "docs" / "pictures" / "sunspots.svg"
NAME = "sunspots"  # of the results
FIRST_TEST_YEAR = 1900
WINDOW, GAP = 40, 10  # years
HIDDEN = slice((WINDOW - GAP) // 2, (WINDOW + GAP) // 2)  # years of a window
STEPS = 3_000
# as in docs/neural-processes.md
SETTINGS: dict[str, Any] = {"kind": "CIPNP+", "context": (3, 20), "width": 64, "heads": 4}
SHOWN = (1920, 1960)  # first years of the windows in the picture
PERIODIC = 1.0 * RBF(20.0) * ExpSineSquared(1.0, 11.0) + 0.5 * RBF(3.0) + WhiteKernel(0.1)
SMOOTH = 1.0 * RBF(3.0) + WhiteKernel(0.1)
INTERVALS = {"50 %": 0.6745, "90 %": 1.6449}  # half widths of central intervals, in standard deviations
MEASURES = ("log-likelihood", "RMSE", *INTERVALS)
PROCESS, INTERPOLATION = SETTINGS["kind"], "linear interpolation"


class Gaps(NamedTuple):
    """Windows with a gap: years (relative to a window's first) and values (windows, years)."""

    x_context: np.ndarray
    y_context: np.ndarray
    x_gap: np.ndarray
    y_gap: np.ndarray


Predict = Callable[[Gaps], tuple[np.ndarray, np.ndarray]]  # means and standard deviations (windows, years)


def read_series(path: Path = SERIES) -> tuple[np.ndarray, np.ndarray]:
    """Return years, and square roots of the sunspot numbers: their spread depends less on the level."""
    year, number = np.loadtxt(path, delimiter=",", skiprows=1, unpack=True)
    return year.astype(int), np.sqrt(number)


def windows(y: np.ndarray) -> np.ndarray:
    """Return all windows of a series, (windows, years)."""
    return np.lib.stride_tricks.sliding_window_view(y, WINDOW)


def hide(y_BL: np.ndarray) -> Gaps:
    x = np.arange(WINDOW)
    return Gaps(np.delete(x, HIDDEN), np.delete(y_BL, HIDDEN, axis=1), x[HIDDEN], y_BL[:, HIDDEN])


def neural_process(y: np.ndarray, steps: int, seed: int) -> FittedProcess:
    tables = [(np.arange(WINDOW), window) for window in windows(y)]
    return fit(tables, steps=steps, seed=seed, **SETTINGS)


def by_process(process: FittedProcess) -> Predict:
    def predict(gaps: Gaps) -> tuple[np.ndarray, np.ndarray]:
        n = len(gaps.y_context)
        x_context, x_gap = (np.tile(x[:, None], (n, 1, 1)) for x in (gaps.x_context, gaps.x_gap))
        return process.predict(x_context, gaps.y_context, x_gap)

    return predict


def interpolation(y: np.ndarray) -> Predict:
    """Interpolate linearly; the standard deviation of each hidden year is that of the training windows."""

    def means(gaps: Gaps) -> np.ndarray:
        return np.stack([np.interp(gaps.x_gap, gaps.x_context, known) for known in gaps.y_context])

    trained = hide(windows(y))
    sd = np.sqrt(np.mean((trained.y_gap - means(trained)) ** 2, axis=0))

    def predict(gaps: Gaps) -> tuple[np.ndarray, np.ndarray]:
        mean = means(gaps)
        return mean, np.broadcast_to(sd, mean.shape)

    return predict


def gaussian_process(y: np.ndarray, kernel: Kernel) -> Predict:
    """Fit the kernel to the training years as one series; condition it on the known years of a window."""
    mean, sd = y.mean(), y.std()
    fitted = GaussianProcessRegressor(kernel).fit(np.arange(len(y))[:, None], (y - mean) / sd).kernel_

    def predict(gaps: Gaps) -> tuple[np.ndarray, np.ndarray]:
        # all windows have the same known years: each is an output of one process
        of_windows = GaussianProcessRegressor(fitted, optimizer=None)
        of_windows.fit(gaps.x_context[:, None], (gaps.y_context.T - mean) / sd)
        mean_QB, sd_QB = of_windows.predict(gaps.x_gap[:, None], return_std=True)
        return mean_QB.T * sd + mean, sd_QB.T * sd

    return predict


def score(gaps: Gaps, mean: np.ndarray, sd: np.ndarray) -> dict[str, float]:
    """Return mean log-likelihood, RMSE and the share of hidden years inside the central intervals."""
    error = gaps.y_gap - mean
    likelihood = -0.5 * (error / sd) ** 2 - np.log(sd) - 0.5 * np.log(2 * np.pi)
    inside = {name: float(np.mean(np.abs(error) < width * sd)) for name, width in INTERVALS.items()}
    return {
        "log-likelihood": float(likelihood.mean()), "RMSE": float(np.sqrt(np.mean(error**2))), **inside,
    }  # fmt: skip


def sunspots(arguments: argparse.Namespace) -> None:
    """Fit and score all methods; write the results and the picture."""
    torch.set_num_threads(arguments.threads)
    year, y = read_series()
    trained, gaps = y[year < FIRST_TEST_YEAR], hide(windows(y[year >= FIRST_TEST_YEAR]))
    shown = hide(np.stack([y[(year >= first) & (year < first + WINDOW)] for first in SHOWN]))
    others = {
        INTERPOLATION: interpolation(trained),
        "Gaussian process, RBF kernel": gaussian_process(trained, SMOOTH),
        "Gaussian process, periodic kernel": gaussian_process(trained, PERIODIC),
    }
    scores = {name: [score(gaps, *predict(gaps))] for name, predict in others.items()}
    scores[PROCESS], drawn, seconds = [], {}, []
    for seed in arguments.seeds:
        started = time.process_time()
        predict = by_process(neural_process(trained, arguments.steps, seed))
        seconds.append(round(time.process_time() - started, 1))
        scores[PROCESS].append(score(gaps, *predict(gaps)))
        drawn.setdefault(PROCESS, predict(shown))
    drawn[INTERPOLATION] = others[INTERPOLATION](shown)
    found = {
        "commit": commit(), "machine": machine("cpu"), "settings": SETTINGS, "steps": arguments.steps,
        "seeds": arguments.seeds, "training windows": len(windows(trained)), "windows": len(gaps.y_gap),
        "CPU seconds of fits": seconds, "scores": scores,
        "shown": {name: np.round(both, 4).tolist() for name, both in drawn.items()},
    }  # fmt: skip
    out = results.folder_of(NAME)
    (out / "scores.json").write_text(json.dumps(found, indent=1) + "\n")
    draw(found, arguments.picture)
    print(table(results.RESULTS))


def read(folder: Path) -> dict[str, Any]:
    path = results.find_folder(NAME, folder)
    if path is None:
        raise SystemExit(f"there are no results of {NAME}. Run: python -m benchmarks.neural_processes {NAME}")
    found: dict[str, Any] = json.loads((path / "scores.json").read_text())
    return found


def table(folder: Path) -> str:
    """Return the table of scores; for the neural process, mean and standard deviation over seeds."""
    scores = read(folder)["scores"]
    order = sorted(scores, key=lambda name: -float(np.mean([row["log-likelihood"] for row in scores[name]])))
    rows = [["", "log-likelihood", "RMSE", *(f"inside {name} intervals" for name in INTERVALS)]]
    for name in order:
        cells = []
        for measure in MEASURES:
            values = np.array([row[measure] for row in scores[name]])
            spread = f" ± {values.std(ddof=1):.2f}" if len(values) > 1 else ""
            percent = f" ± {100 * values.std(ddof=1):.0f}" if len(values) > 1 else ""
            is_share = measure in INTERVALS
            cells.append(
                f"{100 * values.mean():.0f}{percent} %" if is_share else f"{values.mean():.2f}{spread}"
            )
        rows.append([name, *cells])
    return markdown(rows)


def draw(found: dict[str, Any], path: Path) -> None:
    """Draw the predictions of two windows, in sunspot numbers, with 90 % intervals."""
    year, y = read_series()
    with rc_context({"svg.hashsalt": NAME, "svg.fonttype": "none", "font.size": 9}):
        picture = Figure(figsize=(9, 3), layout="constrained")
        for number, (axes, first) in enumerate(zip(picture.subplots(1, 2, sharey=True), SHOWN, strict=True)):
            x = np.arange(first, first + WINDOW)
            true = y[np.isin(year, x)]
            axes.axvspan(x[HIDDEN][0] - 0.5, x[HIDDEN][-1] + 0.5, color="0.94")
            axes.plot(x, true**2, color="0.7", linewidth=0.8)
            axes.plot(np.delete(x, HIDDEN), np.delete(true, HIDDEN) ** 2, "k.", label="known years")
            axes.plot(
                x[HIDDEN], true[HIDDEN] ** 2, "ko", fillstyle="none", markersize=4, label="hidden years"
            )
            for color, (name, both) in enumerate(found["shown"].items()):
                mean, sd = (np.array(part[number]) for part in both)
                low, high = (mean + sign * INTERVALS["90 %"] * sd for sign in (-1, 1))
                axes.plot(x[HIDDEN], mean.clip(0) ** 2, color=f"C{color}", label=name)
                axes.fill_between(
                    x[HIDDEN], low.clip(0) ** 2, high.clip(0) ** 2, color=f"C{color}", alpha=0.2, linewidth=0
                )
            axes.set(xlabel="year", xlim=(first - 1, first + WINDOW))
            axes.spines[["top", "right"]].set_visible(False)
        picture.axes[0].set_ylabel("sunspot number")
        picture.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
        picture.savefig(path, format="svg", metadata={"Date": None})
