"""Tasks and loss of `InducingNetwork`."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from spinimpute.genotypes.blocks import HaplotypeSource
from spinimpute.predictors.spin.network import BlockContext, GapSites, InducingNetwork, InducingSettings
from spinimpute.training.episodes import Episode, EpisodeSettings, draw_episode
from spinimpute.training.learner import Outcome

COPY_LOSS = 0.5  # weight of the loss before the decoder's correction


class InducingLearner:
    """Tasks and loss of `InducingNetwork`: cross-entropy at hidden sites, rare ones weighing more."""

    def __init__(self, settings: InducingSettings, episodes: EpisodeSettings, device: torch.device) -> None:
        self.settings = settings
        self.episodes = episodes
        self.device = device
        self.model = InducingNetwork(settings).to(device)

    def draw(self, source: HaplotypeSource, rng: np.random.Generator) -> Episode:
        """Draw an episode; the same source and generator state give the same one."""
        return draw_episode(source, rng, self.episodes, self.settings.shape, self.settings.inducing_points)

    def logits(self, episode: Episode) -> tuple[Tensor, Tensor]:
        """Copied and corrected logits of P(ALT), (B, G, Q, U)."""
        x_BNS = self._float(episode.typed_BNS)
        context = BlockContext(
            self._float(episode.cM_BS), x_BNS.mean(1), self._float(episode.valid_BS), x_BNS.shape[1]
        )
        b, g, u, n = episode.context_BGUN.shape
        x_BNU = self._float(episode.context_BGUN).view(b, g * u, n).transpose(1, 2)
        points = self.model.encode(
            context, [(x_BNS, x_BNU)], self._float(episode.start_BHS), self._float(episode.start_mass_BH)
        )
        attention = self.model.attend(
            self._float(episode.query_BQS), self._float(episode.known_BQS), points, context
        )
        sites = GapSites(
            points.untyped_BHU.view(b, -1, g, u).permute(0, 2, 1, 3),
            self._float(episode.frequency_BGU),
            self._float(episode.fraction_BGU),
            self._float(episode.distance_BGU),
        )
        return self.model.predictor.copy(attention, sites, context.n_haplotypes)

    def outcome(self, task: object, progress: float, rng: np.random.Generator) -> Outcome:
        """Cross-entropy at hidden sites, before and after the decoder's correction."""
        assert isinstance(task, Episode)
        copied, corrected = self.logits(task)
        truth = self._float(task.truth_BGUQ).transpose(2, 3)
        f = self._float(task.frequency_BGU)
        weight = (self._float(task.asked_BGU) / (f * (1 - f) + 0.01) ** 0.3).unsqueeze(2).expand_as(truth)

        def cross_entropy(logits: Tensor) -> Tensor:
            each = F.binary_cross_entropy_with_logits(logits.float(), truth, reduction="none")
            return (each * weight).sum() / weight.sum().clamp(min=1e-6)

        asked = task.asked_BGU > 0
        n_queries = truth.shape[2]
        p = torch.sigmoid(corrected.detach().float()).transpose(2, 3).cpu().numpy()[asked]
        return Outcome(
            cross_entropy(corrected) + COPY_LOSS * cross_entropy(copied),
            p.ravel(),
            task.truth_BGUQ[asked].astype(np.float32).ravel(),
            np.repeat(task.frequency_BGU[asked], n_queries),
        )

    def _float(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self.device, torch.float32)
