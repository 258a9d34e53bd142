"""Where results lie, and what they were made with."""

from __future__ import annotations

import datetime
import platform
from pathlib import Path

import torch

RESULTS = Path(__file__).parent / "results"
INDUCING = 64  # inducing points
AFTER = "-after-{}-{}-steps-{}"  # what training began with, and how long it went on
WITH_POINTS = ("CIPNP", "IPNP", "LBANP")


def machine(device: str) -> dict[str, object]:
    gpu = torch.cuda.get_device_name() if device == "cuda" else None
    return {"processor": platform.processor() or platform.machine(), "gpu": gpu, "torch": torch.__version__}


def find_folder(name: str) -> Path | None:
    """results/DATE-NAME, the latest."""
    return max(RESULTS.glob(f"????-??-??-{name}"), default=None)


def folder_of(name: str) -> Path:
    """An existing one of any date, or a new one of today."""
    today = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    folder = find_folder(name) or RESULTS / f"{today}-{name}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder
