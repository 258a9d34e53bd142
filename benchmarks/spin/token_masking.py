"""Token masking for SPIN on genotypes: only a random share of a query's labels is hidden in training.

A query of this model consists of its typed alleles; inducing points carry the labels. A query therefore has
no label tokens. Shown labels enter the match instead, like typed alleles: weight_g times their log-likelihood
is added to the logits of head g, given the alleles that the point carries and an error rate. The weights and
the error rate are learned. Without shown labels (in imputation, and under chunk masking) the model is
`GenotypeSPIN` itself. If shown labels became typed places of the block, K-mers, runs and the block's geometry
would change as well.

Axes: as of `spinimpute.predictors.spin.network`; U labels.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.spin.variants import VariantLearner
from spinimpute.nn.carrying import CarriedPoints
from spinimpute.predictors.spin.decoder import SiteInformation
from spinimpute.predictors.spin.network import GenotypeSPIN
from spinimpute.predictors.spin.settings import SPINSettings
from spinimpute.training.episodes import Episode, EpisodeSettings
from spinimpute.training.trainer import Outcome

START_LOGIT = -4.6  # of the rate of errors: .01


class ShownLabels(GenotypeSPIN):
    """Attention that also uses shown labels.

    shown: alleles (B, Q, U), and 1 for a shown label (B, U); None without shown labels.
    """

    def __init__(self, settings: SPINSettings) -> None:
        super().__init__(settings)
        self.shown: tuple[Tensor, Tensor] | None = None
        self.shown_weight = nn.Parameter(torch.ones(settings.heads + settings.pair_heads))
        self.shown_error = nn.Parameter(torch.tensor(START_LOGIT))

    def predict(
        self, logit_BGQH: Tensor, points: CarriedPoints, sites: SiteInformation
    ) -> tuple[Tensor, Tensor]:
        if self.shown is not None:
            match_BQH = self.log_likelihood(*self.shown, points.label_BHU)
            logit_BGQH = logit_BGQH + self.shown_weight[:, None, None] * match_BQH.unsqueeze(1)
        return super().predict(logit_BGQH, points, sites)

    def log_likelihood(self, allele_BQU: Tensor, shown_BU: Tensor, label_BHU: Tensor) -> Tensor:
        """Return the log-likelihood of shown alleles, given the points, (B, Q, H)."""
        error = torch.sigmoid(self.shown_error)
        p_BUH = (error + (1 - 2 * error) * label_BHU).transpose(1, 2)
        shown_BU1 = shown_BU.unsqueeze(-1)
        return allele_BQU @ (p_BUH.log() * shown_BU1) + (1 - allele_BQU) @ (torch.log1p(-p_BUH) * shown_BU1)


class TokenMaskingLearner(VariantLearner):
    """Learner that hides this share of the labels in training, the same for all queries of a block.

    Outside training, all labels are hidden.
    """

    model: ShownLabels

    def __init__(
        self, settings: SPINSettings, episodes: EpisodeSettings, hidden_share: float, device: str = "cpu"
    ) -> None:
        super().__init__(ShownLabels, settings, episodes, device)
        self.hidden_share = hidden_share

    def outcome(self, task: object, progress: float, rng: np.random.Generator) -> Outcome:
        """See `SPINLearner`. Without gradients, nothing is learned and no label is shown."""
        assert isinstance(task, Episode)
        if not torch.is_grad_enabled():
            return super().outcome(task, progress, rng)
        hidden_BGU = (rng.random(task.valid_BGU.shape) < self.hidden_share).astype(np.float32)
        allele_BQU = self._float(task.truth_BGUQ).flatten(1, 2).transpose(1, 2)
        self.model.shown = (allele_BQU, self._float(task.valid_BGU * (1 - hidden_BGU)).flatten(1))
        outcome = super().outcome(replace(task, valid_BGU=task.valid_BGU * hidden_BGU), progress, rng)
        self.model.shown = None
        return outcome
