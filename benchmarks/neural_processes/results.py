"""Result folders and their configurations."""

from __future__ import annotations

import datetime
import platform
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

RESULTS = Path(__file__).parent / "results"
INDUCING = 64  # inducing points
STEPS = 600  # of training, unless a folder's name says otherwise


def machine(device: str) -> dict[str, object]:
    gpu = torch.cuda.get_device_name() if device == "cuda" else None
    return {"processor": platform.processor() or platform.machine(), "gpu": gpu, "torch": torch.__version__}


def run_name(context: tuple[int, int], steps: int, track: str = "", start: str | None = None) -> str:
    """Return the name of a run's results.

    `track` names the kernel and the floor, "" for the usual ones. `start` is the run whose weights are the
    initial weights.
    """
    points = f"context-{context[0]}-{context[1]}{track}"
    if start is not None:
        return f"{points}-after-{start.removeprefix('context-')}-steps-{steps}"
    return points if steps == STEPS else f"{points}-steps-{steps}"


def find_folder(name: str, results: Path | None = None) -> Path | None:
    """Return the latest results/DATE-NAME, in this package by default."""
    return max((results or RESULTS).glob(f"????-??-??-{name}"), default=None)


def folder_of(name: str) -> Path:
    """Return an existing folder of any date, or a new folder with today's date."""
    today = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    folder = find_folder(name) or RESULTS / f"{today}-{name}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def mean_and_spread(values: Sequence[float]) -> str:
    """Return mean and standard deviation over seeds; for one seed, the mean alone."""
    sd = f" ± {np.std(values, ddof=1):.4f}" if len(values) > 1 else ""
    return f"{np.mean(values):.4f}{sd}"
