"""From a checkpoint to a predictor. Torch is loaded only for those that need it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from spinimpute.devices import choose_device
from spinimpute.errors import InputError
from spinimpute.predictors.checkpoint import FORMAT, shipped_model
from spinimpute.predictors.haplotype_attention.predictor import HaplotypePredictor
from spinimpute.predictors.haplotype_attention.settings import KIND as HAPLOTYPE
from spinimpute.predictors.haplotype_attention.settings import HaplotypeSettings
from spinimpute.tensor_files import fingerprint, load_tensors

if TYPE_CHECKING:
    from spinimpute.panels.panel_blocks import BlockPredictor

    Predictor = HaplotypePredictor | BlockPredictor

INDUCING, KMER = "allele-cipnp", "kmer-spin"
SORTS = {HAPLOTYPE: "haplotype", INDUCING: "inducing", KMER: "inducing"}


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
    of that sort. inducing_points: h of every block; by default what fits the panel. device: "auto" is the
    processor for haplotype attention, which is made for it. Raises InputError if the file is no checkpoint,
    of an unknown kind, or damaged.
    """
    if inducing_points is not None and inducing_points < 2:
        raise InputError(f"the number of inducing points must be at least 2, found {inducing_points}")
    if path is None:
        chosen = predictor or ("haplotype" if inducing_points is None else "inducing")
        path = shipped_model(chosen)
    path = Path(path)
    weights, metadata = load_tensors(path, FORMAT, "model")
    kind = metadata.get("kind")
    if kind not in SORTS:
        raise InputError(f"model {path} is of the kind {kind!r}, unknown here: update spinimpute")
    if predictor is not None and predictor != SORTS[kind]:
        raise InputError(f"model {path} is of the kind {kind!r}, not one for the predictor {predictor!r}")
    if inducing_points is not None and kind != INDUCING:
        raise InputError(
            "a number of inducing points goes with --predictor inducing; "
            f"model {path} is of the kind {kind!r}"
        )
    where = choose_device("cpu" if kind == HAPLOTYPE and device == "auto" else device)
    try:
        settings, identity = metadata["model"], fingerprint(weights)
        if kind == HAPLOTYPE:
            return HaplotypePredictor(weights, HaplotypeSettings(**settings), identity, where)
        return _block_predictor(kind, weights, settings, identity, where, inducing_points)
    except (KeyError, TypeError, ValueError, ArithmeticError, RuntimeError) as error:
        said = str(error).partition("\n")[0][:200]
        raise InputError(
            f"model {path}: its weights do not fit its description ({said}); copy it again"
        ) from error


def _block_predictor(
    kind: str,
    weights: dict[str, np.ndarray],
    settings: dict[str, Any],
    identity: str,
    device: str,
    inducing_points: int | None,
) -> BlockPredictor:
    import torch

    from spinimpute.nn.model_weights import network_of
    from spinimpute.predictors.spin.kmer_spin import KmerPredictor, KmerSettings, KmerSPIN
    from spinimpute.predictors.spin.network import AlleleCIPNP, InducingSettings
    from spinimpute.predictors.spin.predictor import AllelePredictor, at_work

    if kind == KMER:
        kmers = network_of(lambda: KmerSPIN(KmerSettings(**settings)), weights)
        return KmerPredictor(kmers, identity, torch.device(device))
    model = network_of(lambda: AlleleCIPNP(at_work(InducingSettings(**settings))), weights)
    return AllelePredictor(model, identity, torch.device(device), inducing_points)


def load_block_predictor(
    model: str | Path | Predictor | None, device: str = "auto", inducing_points: int | None = None
) -> BlockPredictor:
    """As `as_predictor`, for what makes inducing points. Raises InputError for a model that makes none."""
    found = as_predictor(shipped_model("inducing") if model is None else model, device, inducing_points)
    if isinstance(found, HaplotypePredictor):
        raise InputError("haplotype attention has no inducing points: give a model that has")
    return found
