"""The processors and the torch device of a run."""

from __future__ import annotations

import os

from spinimpute.runtime.errors import InputError, argument

DEVICES = ("auto", "cpu", "cuda")


def choose_threads(threads: int | None) -> int:
    """Return the number of threads; None means all processors of the process. Raises InputError below 1."""
    if threads is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if threads < 1:
        raise InputError("argument", f"the number of threads must be at least 1, found {threads}")
    return threads


def choose_device(name: str) -> str:
    """Return "cpu" or "cuda"; "auto" chooses a GPU if there is one. Raises InputError without a GPU."""
    if name not in DEVICES:
        raise InputError("device", f"device must be auto, cpu or cuda, found {name!r}")
    if name == "cpu":
        return name
    import torch

    if torch.cuda.is_available():
        return "cuda"
    if name == "cuda":
        raise InputError(
            "device",
            f"device cuda: no CUDA device is available here; use {argument('device', 'cpu')} "
            f"or {argument('device', 'auto')}",
        )
    return "cpu"
