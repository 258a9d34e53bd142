"""Choose the number of threads and the torch device (CPU or GPU) of a run from the user's options."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from spinimpute.runtime.errors import InputError, argument
from spinimpute.runtime.packages import check_package, is_installed

DEVICES = ("auto", "cpu", "cuda")
# Linux has one of these files if it has a driver for NVIDIA's GPUs, for GPUs under WSL, or for AMD's GPUs.
GPU_FILES = ("/dev/nvidiactl", "/proc/driver/nvidia/version", "/dev/dxg", "/dev/kfd")


def choose_threads(threads: int | None) -> int:
    """Return the number of threads to use. None stands for all processors that this process may use.

    Raises InputError if the number is below 1.
    """
    if threads is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if threads < 1:
        raise InputError("argument", f"the number of threads must be at least 1, found {threads}")
    return threads


def choose_device(name: str) -> str:
    """Return "cpu" or "cuda". "auto" stands for "cuda" if there is a GPU, otherwise for "cpu".

    Raises InputError for another name, and for "cuda" if there is no GPU or PyTorch is not installed.
    """
    if name not in DEVICES:
        raise InputError("device", f"device must be auto, cpu or cuda, found {name!r}")
    if name == "cpu":
        return name
    if name == "cuda":
        check_package("torch", "device cuda")
    if name == "auto" and sys.platform == "linux" and not any(Path(file).exists() for file in GPU_FILES):
        return "cpu"  # without loading PyTorch
    if name_gpu() is not None:
        return "cuda"
    if name == "cuda":
        raise InputError(
            "device",
            f"device cuda: no CUDA device is available here; use {argument('device', 'cpu')} "
            f"or {argument('device', 'auto')}",
        )
    return "cpu"


def name_gpu() -> str | None:
    """Return the name of the GPU that PyTorch uses. None without a GPU or without PyTorch."""
    if not is_installed("torch"):
        return None
    import torch  # slow to load

    return torch.cuda.get_device_name() if torch.cuda.is_available() else None
