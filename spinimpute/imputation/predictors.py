"""From a checkpoint to a predictor."""

from __future__ import annotations

from pathlib import Path

import torch

from spinimpute.errors import InputError
from spinimpute.imputation.allele_predictor import AllelePredictor, at_work
from spinimpute.imputation.checkpoint import FORMAT, fingerprint, load_tensors, shipped_model
from spinimpute.imputation.inducing import AlleleCIPNP, InducingSettings
from spinimpute.imputation.kmer_spin import KmerPredictor, KmerSettings, KmerSPIN
from spinimpute.imputation.panel_blocks import BlockPredictor


def choose_device(name: str) -> torch.device:
    """The device for "auto", "cpu" or "cuda"; raises InputError for CUDA where there is none."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name == "cuda" and not torch.cuda.is_available():
        raise InputError("device cuda: no CUDA device is available here; use --device cpu or auto")
    if name not in ("cpu", "cuda"):
        raise InputError(f"device must be auto, cpu or cuda, found {name!r}")
    return torch.device(name)


def as_predictor(
    model: str | Path | BlockPredictor | None, device: str = "auto", inducing_points: int | None = None
) -> BlockPredictor:
    """`load_predictor` unless a predictor is given; raises InputError for sizes that could not be heeded."""
    if model is None or isinstance(model, str | Path):
        return load_predictor(model, device, inducing_points)
    if inducing_points is not None:
        raise InputError("inducing_points goes with a checkpoint: give it to load_predictor")
    return model


def load_predictor(
    path: str | Path | None = None, device: str = "auto", inducing_points: int | None = None
) -> BlockPredictor:
    """The predictor of a checkpoint, by default the shipped one.

    inducing_points: h of every block; by default what fits the panel. Raises InputError if the file is no
    checkpoint, of an unknown kind, or damaged.
    """
    path = shipped_model() if path is None else Path(path)
    if inducing_points is not None and inducing_points < 2:
        raise InputError(f"the number of inducing points must be at least 2, found {inducing_points}")
    tensors, metadata = load_tensors(path, FORMAT, "model")
    where = choose_device(device)
    model: AlleleCIPNP | KmerSPIN
    try:
        kind = metadata["kind"]
        if kind == AlleleCIPNP.kind:
            model = AlleleCIPNP(at_work(InducingSettings(**metadata["model"])))
        elif kind == KmerSPIN.kind:
            model = KmerSPIN(KmerSettings(**metadata["model"]))
        else:
            raise InputError(f"model {path} is of the kind {kind!r}, unknown here: update spinimpute")
        model.load_state_dict(tensors)
    except (KeyError, TypeError, ValueError, ArithmeticError, RuntimeError) as error:
        raise InputError(
            f"model {path}: its weights do not fit its description ({error}); copy it again"
        ) from error
    if isinstance(model, KmerSPIN):
        if inducing_points is not None:
            raise InputError(f"model {path} has a fixed number of inducing points")
        return KmerPredictor(model, fingerprint(tensors), where)
    return AllelePredictor(model, fingerprint(tensors), where, inducing_points)
