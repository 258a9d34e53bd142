"""Checkpoints are safetensors files with everything in their metadata that rebuilds and traces a model."""

from __future__ import annotations

from pathlib import Path

from spinimpute.errors import InputError

FORMAT = "spinimpute-checkpoint-1"
SHIPPED = ("haplotype", "inducing")


def shipped_model(predictor: str = SHIPPED[0]) -> Path:
    """The checkpoint of a predictor that comes with the package. Raises InputError for an unknown name."""
    if predictor not in SHIPPED:
        raise InputError(f"predictor must be {' or '.join(SHIPPED)}, found {predictor!r}")
    return Path(__file__).parent.parent / "weights" / f"{predictor}.safetensors"
