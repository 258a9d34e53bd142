"""Variants of `GenotypeSPIN`, each of which lacks one of its ideas.

Axes: as of `spinimpute.predictors.spin.network`; E numbers of an embedding, W width of the decoder.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from spinimpute.nn.carrying import CarriedPoints, CarryingEncoder, pooled_labels
from spinimpute.predictors.spin.decoder import HeadAttention, LabelDecoder, SiteInformation
from spinimpute.predictors.spin.learner import SPINLearner
from spinimpute.predictors.spin.network import BlockContext, GenotypeSPIN
from spinimpute.predictors.spin.settings import SPINSettings
from spinimpute.training.episodes import EpisodeSettings

OF_A_SITE, OF_A_BLOCK = 4, 32  # numbers that labels are embedded in


class VariantLearner(SPINLearner):
    """`SPINLearner` with another network."""

    def __init__(
        self,
        network: Callable[[SPINSettings], GenotypeSPIN],
        settings: SPINSettings,
        episodes: EpisodeSettings,
        device: str = "cpu",
    ) -> None:
        super().__init__(settings, episodes, torch.device(device))
        self.model = network(settings).to(device)


class EmbeddingDecoder(LabelDecoder, ABC):
    """Decoder that embeds the labels that were read; initial predictions are the panel's frequency."""

    def __init__(self, settings: SPINSettings) -> None:
        super().__init__(settings.heads + settings.pair_heads, settings.decoder_hidden)
        self.heads = settings.heads + settings.pair_heads
        del self.gate_query, self.gate_site  # nothing is carried that could be mixed

    @abstractmethod
    def of_labels(self, attention_BGQH: Tensor, label_BHU: Tensor) -> Tensor:
        """Return what the heads read: (B, Q, U, W)."""

    def decode(
        self, attention: HeadAttention, label_BHU: Tensor, sites: SiteInformation
    ) -> tuple[Tensor, Tensor]:
        f_BU = sites.frequency_BU.clamp(1e-5, 1 - 1e-5)
        of_query_BQ1W = self.from_query(attention.summary_BQC).unsqueeze(2)
        of_site_B1UW = self.from_site(self._site_features(sites, f_BU)).unsqueeze(1)
        hidden_BQUW = F.relu(
            self.of_labels(attention.attention_BGQH, label_BHU) + of_query_BQ1W + of_site_B1UW
        )
        correction_BQU = self.last(F.relu(self.middle(hidden_BQUW))).squeeze(-1)
        start_BQU = torch.logit(f_BU).unsqueeze(1).expand_as(correction_BQU)
        return start_BQU, start_BQU + correction_BQU


class SiteEmbedding(EmbeddingDecoder):
    """Each label is embedded by a projection that all sites share; a network reads the heads' means."""

    def __init__(self, settings: SPINSettings) -> None:
        super().__init__(settings)
        self.embed = nn.Linear(1, OF_A_SITE)
        self.from_heads = nn.Linear(self.heads * OF_A_SITE, settings.decoder_hidden)

    def of_labels(self, attention_BGQH: Tensor, label_BHU: Tensor) -> Tensor:
        value_BHUE = self.embed(label_BHU.unsqueeze(-1))
        read_BGQUE = pooled_labels(attention_BGQH, value_BHUE.flatten(2)).unflatten(-1, value_BHUE.shape[2:])
        return self.from_heads(read_BGQUE.permute(0, 2, 3, 1, 4).flatten(3))


class BlockEmbedding(EmbeddingDecoder):
    """The labels of a block are embedded together by one projection, like tokens of the paper's datapoints.

    Each place of a block has its own weights. A network reads the heads' means, place by place.
    """

    def __init__(self, settings: SPINSettings, places: int) -> None:
        super().__init__(settings)
        self.embed = nn.Linear(places, OF_A_BLOCK)
        self.from_heads = nn.Linear(self.heads * OF_A_BLOCK, settings.decoder_hidden)
        self.place = nn.Parameter(torch.randn(places, settings.decoder_hidden))

    def of_labels(self, attention_BGQH: Tensor, label_BHU: Tensor) -> Tensor:
        read_BGQE = pooled_labels(attention_BGQH, self.embed(label_BHU))
        # a product of what was read and the place: a sum could not say which of the sites it is about
        return self.from_heads(read_BGQE.transpose(1, 2).flatten(2)).unsqueeze(2) * self.place


def site_embedding(settings: SPINSettings) -> GenotypeSPIN:
    model = GenotypeSPIN(settings)
    model.decoder = SiteEmbedding(settings)
    return model


def block_embedding(
    settings: SPINSettings, sites_per_gap: int, network: Callable[[SPINSettings], GenotypeSPIN] = GenotypeSPIN
) -> GenotypeSPIN:
    model = network(settings)
    model.decoder = BlockEmbedding(settings, settings.core * sites_per_gap)
    return model


class ConstantStarts(GenotypeSPIN):
    """Inducing points start from learned constants; their number is that of the groups in `GenotypeSPIN`.

    If the sites by which haplotypes are compared differ between blocks, points start from the panel's
    frequencies at these sites.
    """

    def __init__(self, settings: SPINSettings) -> None:
        super().__init__(settings)
        self.start = nn.Parameter(torch.randn(settings.inducing_points, settings.shape.n_typed))

    def encode(self, context: BlockContext) -> CarriedPoints:
        b, h, _ = context.start_BHX.shape
        start_BHS = torch.sigmoid(self.start[:h]).expand(b, -1, -1)
        frequency_BHC = context.frequency_BC.unsqueeze(1).expand(-1, h, -1)
        return super().encode(context._replace(start_BHX=torch.cat([start_BHS, frequency_BHC], dim=-1)))


class TokensAlone(GenotypeSPIN):
    """Inducing points compete for haplotypes by their tokens alone, without the alleles at untyped sites."""

    def encode(self, context: BlockContext) -> CarriedPoints:
        return super().encode(context._replace(frequency_BC=torch.zeros_like(context.frequency_BC)))


class NoCompetition(GenotypeSPIN):
    """Softmax over the haplotypes: inducing points do not compete for them."""

    def __init__(self, settings: SPINSettings) -> None:
        super().__init__(settings)
        self.encoder = CarryingEncoder(settings.rounds, axis="datapoints")


class ConstantsWithoutCompetition(ConstantStarts, NoCompetition):
    """As in the paper: points start from constants and read independently."""


class NoiseStart(GenotypeSPIN):
    """The confusion of K-mers and the sharpness start as noise, so queries and keys do not start alike."""

    def __init__(self, settings: SPINSettings) -> None:
        super().__init__(settings)
        nn.init.normal_(self.confusion.log_confusion)
        nn.init.normal_(self.log_sharpness)


class NoiseStartOfConstants(NoiseStart, ConstantsWithoutCompetition):
    """`ConstantsWithoutCompetition` with the initialization of `NoiseStart`."""
