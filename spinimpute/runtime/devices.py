"""What a run may compute with: processors, and a device of torch."""

from __future__ import annotations

import os

from spinimpute.runtime.errors import InputError, argument

DEVICES = ("auto", "cpu", "cuda")


def default_threads() -> int:
    """Count the processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def choose_threads(threads: int | None) -> int:
    """The number of threads to use.

    Parameters
    ----------
    threads : int or None
        What was asked for; None for all processors.

    Returns
    -------
    int
        At least 1.

    Raises
    ------
    InputError
        It is less than one.
    """
    if threads is None:
        return default_threads()
    if threads < 1:
        raise InputError("content", f"the number of threads must be at least 1, found {threads}")
    return threads


def choose_device(name: str) -> str:
    """Decide where to compute.

    Parameters
    ----------
    name : str
        "auto", "cpu" or "cuda"; "auto" is a GPU where there is one.

    Returns
    -------
    str
        "cpu" or "cuda".

    Raises
    ------
    InputError
        The name is unknown, or there is no GPU.
    """
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
