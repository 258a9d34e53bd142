"""From a checkpoint to a predictor."""

from __future__ import annotations

from pathlib import Path

import torch

from spinimpute.errors import InputError
from spinimpute.imputation.allele_predictor import AllelePredictor, at_work
from spinimpute.imputation.checkpoint import FORMAT, fingerprint, load_tensors, shipped_model
from spinimpute.imputation.haplotype_attention import HaplotypeAttention, HaplotypeSettings
from spinimpute.imputation.haplotype_predictor import HaplotypePredictor
from spinimpute.imputation.inducing import AlleleCIPNP, InducingSettings
from spinimpute.imputation.kmer_spin import KmerPredictor, KmerSettings, KmerSPIN
from spinimpute.imputation.panel_blocks import BlockPredictor

Predictor = HaplotypePredictor | BlockPredictor
SORTS = {HaplotypeAttention.kind: "haplotype", AlleleCIPNP.kind: "inducing", KmerSPIN.kind: "inducing"}


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
    model: str | Path | Predictor | None,
    device: str = "auto",
    inducing_points: int | None = None,
    predictor: str | None = None,
) -> Predictor:
    """`load_predictor` unless a predictor is given; raises InputError for sizes that could not be heeded."""
    if model is None or isinstance(model, str | Path):
        return load_predictor(model, device, inducing_points, predictor)
    if inducing_points is not None or predictor is not None:
        raise InputError("inducing_points and predictor go with a checkpoint: give them to load_predictor")
    return model


def load_predictor(
    path: str | Path | None = None,
    device: str = "auto",
    inducing_points: int | None = None,
    predictor: str | None = None,
) -> Predictor:
    """The predictor of a checkpoint, by default a shipped one.

    predictor: "haplotype" (the default) or "inducing": which shipped one; a checkpoint that is named must be
    of that sort. inducing_points: h of every block; by default what fits the panel. Raises InputError if the
    file is no checkpoint, of an unknown kind, or damaged.
    """
    if inducing_points is not None and inducing_points < 2:
        raise InputError(f"the number of inducing points must be at least 2, found {inducing_points}")
    if path is None:
        chosen = predictor or ("haplotype" if inducing_points is None else "inducing")
        path = shipped_model(chosen)
    path = Path(path)
    tensors, metadata = load_tensors(path, FORMAT, "model")
    where = choose_device(device)
    try:
        kind, settings = metadata["kind"], metadata["model"]
        if kind not in SORTS:
            raise InputError(f"model {path} is of the kind {kind!r}, unknown here: update spinimpute")
        if predictor is not None and predictor != SORTS[kind]:
            raise InputError(f"model {path} is of the kind {kind!r}, not one for the predictor {predictor!r}")
        if inducing_points is not None and kind != AlleleCIPNP.kind:
            raise InputError(
                "a number of inducing points goes with --predictor inducing; "
                f"model {path} is of the kind {kind!r}"
            )
        model: AlleleCIPNP | KmerSPIN | HaplotypeAttention
        if kind == HaplotypeAttention.kind:
            model = HaplotypeAttention(HaplotypeSettings(**settings))
        elif kind == AlleleCIPNP.kind:
            model = AlleleCIPNP(at_work(InducingSettings(**settings)))
        else:
            model = KmerSPIN(KmerSettings(**settings))
        model.load_state_dict(tensors)
    except (KeyError, TypeError, ValueError, ArithmeticError, RuntimeError) as error:
        raise InputError(
            f"model {path}: its weights do not fit its description ({error}); copy it again"
        ) from error
    identity = fingerprint(tensors)
    if isinstance(model, HaplotypeAttention):
        return HaplotypePredictor(model, identity, where)
    if isinstance(model, KmerSPIN):
        return KmerPredictor(model, identity, where)
    return AllelePredictor(model, identity, where, inducing_points)


def load_block_predictor(
    model: str | Path | Predictor | None, device: str = "auto", inducing_points: int | None = None
) -> BlockPredictor:
    """As `as_predictor`, for what makes inducing points. Raises InputError for a model that makes none."""
    found = as_predictor(shipped_model("inducing") if model is None else model, device, inducing_points)
    if isinstance(found, HaplotypePredictor):
        raise InputError("haplotype attention has no inducing points: give a model that has")
    return found
