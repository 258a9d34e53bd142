"""The decoder of SPIN: it turns the attention of queries into P(ALT) at the sites to impute.

1. Each attention head averages ("pools") the carried alleles of the inducing points: one P(ALT) per head.
2. A gate mixes the heads. The weight of a head depends on the query and on the site.
3. A network adds a correction to the log odds of the mixture.

Axes: B blocks, Q queries, H inducing points, G heads, U sites to impute, C summaries of a query's attention
(two per head), F features of a site, L pairs of a query and a site, W width of the correction network.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from spinimpute.nn.carrying import CarriedPoints, attend_to_points, pooled_labels, start_at_zero
from spinimpute.predictors.spin.settings import (
    CORRECTION_FEATURES,
    ENTROPY_OFFSET,
    FREQUENCY_SHARE,
    GATE_FEATURES,
    GATE_QUERY_WIDTH,
    GATE_SITE_WIDTH,
    LOGIT_SCALE,
    MIN_PROBABILITY,
    MIN_SITE_FREQUENCY,
    MIN_TOTAL,
    size_feature,
)


class SiteInformation(NamedTuple):
    """Description of the sites to impute, as the decoder sees them."""

    frequency_BU: Tensor  # panel frequency of ALT
    fraction_BU: Tensor  # position within the gap, see `blocks.gap_geometry`
    distance_BU: Tensor  # genetic distance, see `blocks.gap_geometry`
    place_BU: Tensor  # position within the block, 0 to 1, see `BlockSites`
    n_haplotypes: int  # number of panel haplotypes


def features_first(network: Iterable[nn.Module], x_BFL: Tensor) -> Tensor:
    """Apply linear maps and activations to the features on axis 1: (B, F, L) -> (B, outputs, L).

    The long axis L comes last, so each operation runs over contiguous memory. This is several times faster on
    a CPU than features on the last axis.
    """
    for layer in network:
        if isinstance(layer, nn.Linear):
            weight_BOF = layer.weight.expand(len(x_BFL), -1, -1)
            x_BFL = torch.baddbmm(layer.bias[:, None].expand(len(x_BFL), -1, 1), weight_BOF, x_BFL)
        else:
            x_BFL = layer(x_BFL)
    return x_BFL


class HeadAttention(NamedTuple):
    """The attention of queries to inducing points, with summaries of it."""

    attention_BGQH: Tensor  # weights, sum 1 over the inducing points
    summary_BQC: Tensor  # entropy of each head's weights, then the largest weight of each head


def _clamped(frequency_BU: Tensor) -> Tensor:
    """Return frequencies that have finite log odds."""
    return frequency_BU.clamp(MIN_SITE_FREQUENCY, 1 - MIN_SITE_FREQUENCY)


class LabelDecoder(nn.Module):
    """Network that mixes the pooled labels of the heads and corrects the mixture (see the module's header).

    The correction is initialized to 0.
    """

    def __init__(self, heads: int, width: int) -> None:
        super().__init__()
        n_summaries = 2 * heads
        self.gate_query = nn.Sequential(
            nn.Linear(n_summaries, GATE_QUERY_WIDTH), nn.GELU(), nn.Linear(GATE_QUERY_WIDTH, heads)
        )
        self.gate_site = nn.Sequential(
            nn.Linear(GATE_FEATURES, GATE_SITE_WIDTH), nn.GELU(), nn.Linear(GATE_SITE_WIDTH, heads)
        )
        self.from_heads = nn.Linear(heads + 1, width)
        self.from_query = nn.Linear(n_summaries, width, bias=False)
        self.from_site = nn.Linear(GATE_FEATURES + CORRECTION_FEATURES, width, bias=False)
        self.middle = nn.Linear(width, width)
        self.last = nn.Linear(width, 1)
        start_at_zero(self.last)

    def forward(
        self, logit_BGQH: Tensor, points: CarriedPoints, sites: SiteInformation
    ) -> tuple[Tensor, Tensor]:
        """Return the logits (B, Q, U) of P(ALT) of the mixture, and of the corrected mixture.

        logit_BGQH is the attention before the softmax. The labels of the points are mean alleles at the sites
        to impute.
        """
        return self.decode(self.read(logit_BGQH, points), points.label_BHU, sites)

    def read(self, logit_BGQH: Tensor, points: CarriedPoints) -> HeadAttention:
        """Return the attention of the heads. It does not depend on the site to impute."""
        attention_BGQH = attend_to_points(logit_BGQH, points.mass_BH)
        entropy_BGQ = -(attention_BGQH * (attention_BGQH + ENTROPY_OFFSET).log()).sum(-1) / 3
        summary_BQC = torch.cat([entropy_BGQ, attention_BGQH.amax(-1)], dim=1).transpose(1, 2)
        return HeadAttention(attention_BGQH, summary_BQC)

    def decode(
        self, attention: HeadAttention, label_BHU: Tensor, sites: SiteInformation
    ) -> tuple[Tensor, Tensor]:
        """Return the logits of P(ALT), see `forward`. label_BHU are the points' labels at the sites."""
        summary_BQC = attention.summary_BQC
        pooled_BGQU = pooled_labels(attention.attention_BGQH, label_BHU)
        f_BU = _clamped(sites.frequency_BU)
        p_BGQU = torch.lerp(pooled_BGQU, f_BU[:, None, None], FREQUENCY_SHARE)
        p_BGQU = p_BGQU.clamp(MIN_PROBABILITY, 1 - MIN_PROBABILITY)
        site_BUF = self._site_features(sites, f_BU)
        mixed_BQU = torch.logit(self._mix_heads(p_BGQU, summary_BQC, site_BUF[..., :GATE_FEATURES]))
        logit_BGQU = torch.cat([torch.logit(p_BGQU), mixed_BQU.unsqueeze(1)], dim=1) * LOGIT_SCALE
        hidden_BWL = features_first([self.from_heads], logit_BGQU.flatten(2))
        query_BWQ1 = self.from_query(summary_BQC).transpose(1, 2).unsqueeze(-1)
        site_BW1U = self.from_site(site_BUF).transpose(1, 2).unsqueeze(2)
        hidden_BWQU = hidden_BWL.unflatten(-1, mixed_BQU.shape[1:]) + query_BWQ1 + site_BW1U
        hidden_BWL = features_first([self.middle], F.relu(hidden_BWQU).flatten(2))
        correction_B1L = features_first([self.last], F.relu(hidden_BWL))
        return mixed_BQU, mixed_BQU + correction_B1L.view_as(mixed_BQU)

    def _mix_heads(self, p_BGQU: Tensor, summary_BQC: Tensor, site_BUF: Tensor) -> Tensor:
        """Return the mean of the heads, weighted by softmax(gate of the query + gate of the site)."""
        # exp(a + b) = exp(a) exp(b), so the softmax over heads needs no (B, G, Q, U) array of exponentials
        query_BQG = torch.softmax(self.gate_query(summary_BQC), dim=-1)
        site_BUG = torch.softmax(self.gate_site(site_BUF), dim=-1)
        total_BQU = query_BQG @ site_BUG.transpose(1, 2)
        weighted_BGQU = (
            p_BGQU * query_BQG.transpose(1, 2).unsqueeze(-1) * site_BUG.transpose(1, 2).unsqueeze(2)
        )
        mixed_BQU = weighted_BGQU.sum(1) / total_BQU.clamp(min=MIN_TOTAL)
        return mixed_BQU.clamp(MIN_PROBABILITY, 1 - MIN_PROBABILITY)

    def _site_features(self, sites: SiteInformation, f_BU: Tensor) -> Tensor:
        t_BU = sites.fraction_BU
        return torch.stack(
            [
                t_BU,
                sites.place_BU,
                torch.log(sites.distance_BU + 1e-5) / 3 + 1.5,
                torch.minimum(f_BU, 1 - f_BU).log() / 4 + 1,
                torch.full_like(t_BU, size_feature(sites.n_haplotypes)),
                t_BU * (1 - t_BU),
                torch.logit(f_BU) / 4,
            ],
            dim=-1,
        )
