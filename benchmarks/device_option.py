"""The option --device of benchmarks that train networks with PyTorch."""

from __future__ import annotations

import argparse

from spinimpute.runtime.devices import DEVICES, choose_device
from spinimpute.runtime.errors import InputError


def add_device(parser: argparse.ArgumentParser) -> None:
    """Add `--device`, whose value is "cpu" or "cuda"."""
    text = "device of trainings, auto, cpu or cuda (default: cpu)"
    parser.add_argument(
        "--device", type=_chosen, default="cpu", metavar=f"{{{','.join(DEVICES)}}}", help=text
    )


def _chosen(name: str) -> str:
    try:
        return choose_device(name)
    except InputError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
