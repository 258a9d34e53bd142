"""The rows of each table: learner and training data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from benchmarks.spin.budget import SEGMENTS, Budget
from benchmarks.spin.paper_form import PUBLISHED_TRAINING, Frequencies, PaperLearner
from benchmarks.spin.token_masking import TokenMaskingLearner
from benchmarks.spin.variants import (
    ConstantStarts,
    ConstantsWithoutCompetition,
    NoCompetition,
    NoiseStart,
    NoiseStartOfConstants,
    TokensAlone,
    VariantLearner,
    block_embedding,
    site_embedding,
)
from spinimpute.nn.presets import Form
from spinimpute.predictors.loading import load_predictor
from spinimpute.predictors.spin.learner import SPINLearner
from spinimpute.predictors.spin.network import GenotypeSPIN
from spinimpute.predictors.spin.predictor import DEFAULT_INDUCING_POINTS, SPINPredictor

FEWER_SEGMENTS = (1, 10)
HIDDEN_SHARES = (0.5, 0.15)  # of token masking; the second is BERT's and NPT's
LONGER = 4  # times the steps, for the paper's form


@dataclass(frozen=True)
class Row:
    """A learner and its training.

    segments: number of different training segments. steps: multiple of the budget's steps, 0 if the model is
    not trained here. training: settings that differ from the budget's.
    """

    name: str
    learner: Callable[[Budget], SPINLearner]
    segments: int = SEGMENTS
    steps: int = 1
    training: Mapping[str, Any] = field(default_factory=dict)


def variant(network: Callable[..., GenotypeSPIN], budget: Budget) -> VariantLearner:
    return VariantLearner(network, budget.spin, budget.episodes, budget.device)


def _block_embedding(budget: Budget, network: type[GenotypeSPIN] = GenotypeSPIN) -> VariantLearner:
    sites = budget.episodes.sites_per_gap
    return variant(partial(block_embedding, sites_per_gap=sites, network=network), budget)


def _token_masking(hidden_share: float, budget: Budget) -> TokenMaskingLearner:
    return TokenMaskingLearner(budget.spin, budget.episodes, hidden_share, budget.device)


def _paper(budget: Budget, form: Form = "SPIN", hidden_share: float = 1.0) -> PaperLearner:
    return PaperLearner(budget.spin, budget.episodes, form, hidden_share, budget.device)


def frequencies(budget: Budget) -> Frequencies:
    return Frequencies(budget.spin, budget.episodes)


def shipped(budget: Budget) -> VariantLearner:
    """Return the shipped model, with the flanks and inducing points that it uses in imputation."""
    loaded = load_predictor(name="spin", device="cpu")
    assert isinstance(loaded, SPINPredictor)
    settings = replace(loaded.settings, inducing_points=DEFAULT_INDUCING_POINTS)
    assert settings.core == budget.spin.core, "other blocks would ask for other sites"
    learner = VariantLearner(GenotypeSPIN, settings, budget.episodes, budget.device)
    learner.model.load_state_dict(loaded.model.state_dict())
    return learner


FREQUENCIES = Row("the panel's frequencies", frequencies, steps=0)
SPIN = Row("SPIN", partial(variant, GenotypeSPIN))


def masking() -> list[Row]:
    """Return the rows of the table of masking. Chunk masking is `SPIN` itself: no label is shown."""

    def token(share: float) -> Row:
        return Row(f"token masking, {share:.0%} hidden", partial(_token_masking, share))

    return [replace(SPIN, name="chunk masking"), *map(token, HIDDEN_SHARES), FREQUENCIES]


def segments() -> list[Row]:
    fewer = [replace(SPIN, name=f"{n} segment{'s'[: n > 1]}", segments=n) for n in FEWER_SEGMENTS]
    return [*fewer, replace(SPIN, name=f"{SEGMENTS} segments"), FREQUENCIES]


def ablation() -> list[Row]:
    networks = {
        "points compete by tokens alone": TokensAlone,
        "points start from constants": ConstantStarts,
        "points do not compete (softmax over N)": NoCompetition,
        "points start from constants and do not compete": ConstantsWithoutCompetition,
        "similarity starts as noise": NoiseStart,
        "labels embedded, site by site": site_embedding,
    }
    return [
        SPIN,
        *(Row(name, partial(variant, network)) for name, network in networks.items()),
        Row("labels embedded, a block together", _block_embedding),
        Row("without all of that", partial(_block_embedding, network=NoiseStartOfConstants)),
        FREQUENCIES,
    ]


def paper() -> list[Row]:
    flat = Row("the paper's form", _paper, training=PUBLISHED_TRAINING)
    share = HIDDEN_SHARES[-1]
    return [
        FREQUENCIES,
        flat,
        replace(
            flat,
            name=f"the paper's form, token masking, {share:.0%} hidden",
            learner=partial(_paper, hidden_share=share),
        ),
        replace(flat, name="the paper's form, Adam", training={}),
        replace(flat, name="the paper's form with the CIPNP head", learner=partial(_paper, form="CIPNP")),
        SPIN,
        Row("SPIN as shipped", shipped, steps=0),
        replace(flat, name=f"the paper's form, {LONGER} times the steps", steps=LONGER),
    ]
