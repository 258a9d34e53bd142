"""The learner of SPIN: it draws training tasks and computes the loss.

A task (episode) hides all untyped alleles of its query haplotypes (chunk masking). The model predicts them
from the typed alleles and from the other haplotypes, the context.

Axes: see `network`. But in the fields of an episode, G are gaps and U the sites of a gap.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from spinimpute.genotypes.blocks import HaplotypeSource
from spinimpute.predictors.spin.decoder import SiteInformation
from spinimpute.predictors.spin.kmers import kmer_numbers
from spinimpute.predictors.spin.network import BlockContext, GenotypeSPIN
from spinimpute.predictors.spin.settings import SPINSettings
from spinimpute.predictors.spin.similarity import DenseSimilarity, HaplotypeSimilarity, haplotype_features
from spinimpute.training.episodes import Episode, EpisodeSettings, draw_episode, draw_interval
from spinimpute.training.trainer import Outcome

MIXED_LOSS = 0.5  # weight of the loss of the decoder's mixture, before its correction


class SPINLearner:
    """Training tasks and loss of `GenotypeSPIN`.

    The loss is the cross-entropy at hidden sites; the rarer the minor allele, the larger a site's weight.
    """

    def __init__(self, settings: SPINSettings, episodes: EpisodeSettings, device: torch.device) -> None:
        self.settings, self.episodes, self.device = settings, episodes, device
        self.model = GenotypeSPIN(settings).to(device)
        self.dense = device.type == "cuda"  # whether `DenseSimilarity` is used

    def draw(self, source: HaplotypeSource, rng: np.random.Generator) -> Episode:
        """Draw an episode. Equal sources and generator states give equal episodes."""
        source = draw_interval(source, rng, self.episodes.most_entries)
        s = self.settings
        # Users choose the number of inducing points, and the network computes the weights of columns from it.
        # Therefore each episode draws another number.
        min_points = min(s.fewest_points, s.inducing_points)
        n_points = int(np.exp(rng.uniform(np.log(min_points), np.log(s.inducing_points + 1))))
        return draw_episode(source, rng, self.episodes, s.shape, n_points)

    def logits(self, episode: Episode) -> tuple[Tensor, Tensor]:
        """Return two tensors of logits of P(ALT), (B, Q, U), see `LabelDecoder.forward`.

        Here, U are the sites of all gaps.
        """
        typed_BNS = self._float(episode.typed_BNS)
        b, g, u, n = episode.context_BGUN.shape
        columns = self.model.columns(
            self._float(episode.cM_BS), typed_BNS.mean(1), self._float(episode.valid_BS), n
        )
        untyped_BNU = self._float(episode.context_BGUN).view(b, g * u, n).transpose(1, 2)
        compared_BNC = self._float(episode.compared_BNC)
        k = self.settings.k
        similarity = DenseSimilarity if self.dense else HaplotypeSimilarity
        if self.dense:
            x_BNF = haplotype_features(kmer_numbers(typed_BNS, k), compared_BNC, 2**k, torch.float32)
        else:
            x_BNF = torch.cat([typed_BNS, compared_BNC], -1)
        context = BlockContext(
            columns,
            [(x_BNF, untyped_BNU)],
            self._float(episode.start_BHX),
            self._float(episode.start_mass_BH),
            compared_BNC.mean(1),
            similarity,
        )
        points = self.model.encode(context)
        logit_BGQH = self.model.attend(
            self._float(episode.query_BQS), self._float(episode.known_BQS), self.model.keys(points, columns)
        )
        gap_GU = torch.arange(g, device=self.device, dtype=torch.float32)[:, None].expand(g, u)
        sites = SiteInformation(
            self._float(episode.frequency_BGU).flatten(1),
            self._float(episode.fraction_BGU).flatten(1),
            self._float(episode.distance_BGU).flatten(1),
            (self._float(episode.fraction_BGU) + gap_GU).flatten(1) / g,
            n,
        )
        return self.model.predict(logit_BGQH, points, sites)

    def outcome(self, task: object, progress: float, rng: np.random.Generator) -> Outcome:
        """Return the loss of a task, with the predictions and the true alleles at hidden sites."""
        assert isinstance(task, Episode)
        mixed_BQU, corrected_BQU = self.logits(task)
        truth_BQU = self._float(task.truth_BGUQ).flatten(1, 2).transpose(1, 2)
        f_BU = self._float(task.frequency_BGU).flatten(1)
        weight_BU = self._float(task.valid_BGU).flatten(1) / (f_BU * (1 - f_BU) + 0.01) ** 0.3
        weight_BQU = weight_BU.unsqueeze(1).expand_as(truth_BQU)

        def cross_entropy(logit_BQU: Tensor) -> Tensor:
            each = F.binary_cross_entropy_with_logits(logit_BQU.float(), truth_BQU, reduction="none")
            return (each * weight_BQU).sum() / weight_BQU.sum().clamp(min=1e-6)

        valid = task.valid_BGU > 0
        p_BUQ = torch.sigmoid(corrected_BQU.detach().float()).transpose(1, 2).cpu().numpy()
        return Outcome(
            cross_entropy(corrected_BQU) + MIXED_LOSS * cross_entropy(mixed_BQU),
            p_BUQ[valid.reshape(len(valid), -1)].ravel(),
            task.truth_BGUQ[valid].astype(np.float32).ravel(),
            np.repeat(task.frequency_BGU[valid], truth_BQU.shape[1]),
        )

    def _float(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self.device, torch.float32)
