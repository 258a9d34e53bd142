"""The network of haplotype attention, in torch. Training uses it; imputation on the CPU uses compiled copies.

As in SPIN, queries attend to groups of panel haplotypes and average the alleles that these carry
(`nn.carrying`). Here the groups are IBS classes (`ibs_classes`) instead of inducing points. The mass of a
class is the number of its haplotypes. A query and a class are compared by features of their match.

1. The pair network maps these features to two attention logits, one for each end of the gap, and to a value:
   a vector that describes the class to the decoder.
2. Alleles are averaged with weights that change linearly from the left end of the gap to the right end.
3. The decoder corrects these averages. Its inputs include the mean values of the classes with the allele and
   of the classes without it.

In this module, allele 1 is the panel's minor allele.

Axes: Q queries, G gaps, K IBS classes, U sites of a gap, F features, V value, E ends of a gap, I = 1 + V
heads, L pairs of a query and a gap, X any shape.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from spinimpute.nn.carrying import attend_to_points, correction, pooled_labels, start_at_zero
from spinimpute.predictors.haplotype_attention.ibs_classes import FEATURES, LOG_COUNT
from spinimpute.predictors.haplotype_attention.settings import (
    ABSENT_CLASS_LOGIT,
    ABSENT_LOGIT,
    CONTRAST,
    COPIED_FEATURES,
    EPSILON,
    GAP_FEATURES,
    SCALE,
    SITE_FEATURES,
    SPREAD_FEATURES,
    HaplotypeSettings,
)


class ClassWeights(NamedTuple):
    """Attention over IBS classes, float32."""

    weight_QGEK: Tensor  # softmax over classes at the left and right end of the gap
    logit_QGK: Tensor  # mean of the logits at both ends
    value_QGVK: Tensor  # description of the class for the decoder


class Copied(NamedTuple):
    """Averages over a query's classes at sites, float32, of any shape X; carrier_V and other_V: (*X, V)."""

    p: Tensor  # weight of the carriers (class members with the minor allele), interpolated in the gap
    left_p: Tensor  # weight of the carriers at the left end of the gap
    right_p: Tensor  # weight of the carriers at the right end
    sibling_p: Tensor  # weight of the members whose sibling haplotypes are carriers
    contrast: Tensor  # logit of the best carrier minus logit of the best non-carrier
    carriers: Tensor  # number of carriers
    carrier_V: Tensor  # mean value of carriers
    other_V: Tensor  # mean value of the other class members


class HaplotypeAttention(nn.Module):
    """Pair network and decoder, see the module's docstring."""

    def __init__(self, settings: HaplotypeSettings) -> None:
        super().__init__()
        self.settings = settings
        h, v, d = settings.hidden, settings.value, settings.decoder_hidden
        self.pair = nn.Sequential(
            nn.Linear(FEATURES + GAP_FEATURES, h), nn.ReLU(), nn.Linear(h, h), nn.ReLU(), nn.Linear(h, 2 + v)
        )
        self.decoder = correction(COPIED_FEATURES + 2 * v + SPREAD_FEATURES + SITE_FEATURES, d)
        self.absent = nn.Linear(SPREAD_FEATURES + SITE_FEATURES, 1)
        start_at_zero(self.absent)

    def first_layer(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return the first layer's weights for unscaled features of classes and of gaps, and its bias."""
        first = self.pair[0]
        assert isinstance(first, nn.Linear)
        from_pair, from_gap = torch.split(first.weight * SCALE, [FEATURES, GAP_FEATURES], dim=1)
        return from_pair, from_gap, first.bias

    def weigh(self, features_QGFK: Tensor, count_QGK: Tensor, gap_GF: Tensor) -> ClassWeights:
        """Return the attention over classes; absent classes have weight 0.

        features_QGFK and count_QGK are fields of `IBSClasses`. gap_GF are the features of `gap_features`.
        """
        from_pair, from_gap, bias = self.first_layer()
        x = F.linear(features_QGFK.transpose(-1, -2), from_pair) + F.linear(gap_GF, from_gap, bias)[:, None]
        x = self.pair[1:](x)
        logit_QGEK = x[..., :2].float().transpose(-1, -2)
        # Each end of a gap is a head of the query's attention. The prior weight of a class is its size.
        prior_QG1K = features_QGFK[..., LOG_COUNT, :].unsqueeze(-2)
        weight_LE1K = attend_to_points(
            (logit_QGEK + prior_QG1K).flatten(0, 1).unsqueeze(2), count_QGK.flatten(0, 1)
        )
        return ClassWeights(
            weight_LE1K.squeeze(2).view_as(logit_QGEK),
            logit_QGEK.mean(2).masked_fill(count_QGK <= 0, ABSENT_CLASS_LOGIT),
            x[..., 2:].float().transpose(-1, -2),
        )

    def decode(self, copied: Copied, spread_XE: Tensor, site_XF: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits of P(minor allele), of shape X: the copied ones, and those after the correction.

        spread_XE is the entropy of the weights at both ends. site_XF are the features of `site_features`.
        """
        logit, left, right, sibling = (
            torch.logit(p.float().clamp(EPSILON, 1 - EPSILON))
            for p in (copied.p, copied.left_p, copied.right_p, copied.sibling_p)
        )
        carriers = torch.log1p(copied.carriers)
        copied_features = (
            torch.stack([logit, left, right, sibling, copied.contrast, carriers], dim=-1) * SCALE
        )
        x = torch.cat([copied_features, copied.carrier_V, copied.other_V, spread_XE, site_XF], dim=-1)
        return logit, logit + self.decoder(x)[..., 0].float()

    def decode_absent(self, spread_XE: Tensor, site_XF: Tensor) -> Tensor:
        """Return the logits of P(minor allele) where no class member and no sibling has this allele."""
        spread_E, site_F = self.absent.weight[0].split([SPREAD_FEATURES, SITE_FEATURES])
        return ABSENT_LOGIT + self.absent.bias + spread_XE @ spread_E + site_XF @ site_F


def copy_alleles(
    weights: ClassWeights, count_QGK: Tensor, alleles_QGUK: Tensor, sibling_QGUK: Tensor, fraction_GU: Tensor
) -> Copied:
    """Average the alleles of classes; return `Copied` of shape (Q, G, U).

    alleles_QGUK is the share of the members of a class that carry the minor allele, sibling_QGUK the share of
    siblings that do. fraction_GU is the position in the gap: 0 at the left typed site, 1 at the right one.
    """
    t_GU1 = fraction_GU.unsqueeze(-1)
    value_QGVK = weights.value_QGVK
    # at each end of a gap, one head averages the alleles, and V more heads average allele times value
    head_QGE1K = weights.weight_QGEK.unsqueeze(3)
    head_QGEIK = torch.cat([head_QGE1K, head_QGE1K * value_QGVK.unsqueeze(2)], dim=3)

    def pool(head_QGEIK: Tensor, label_QGUK: Tensor) -> Tensor:
        """Return the averaged labels at both ends, (Q, G, U, E, I)."""
        pooled = pooled_labels(head_QGEIK.flatten(0, 1), label_QGUK.flatten(0, 1).transpose(-1, -2))
        return pooled.unflatten(0, label_QGUK.shape[:2]).permute(0, 1, 4, 2, 3)

    def interpolate(ends_QGUEI: Tensor) -> Tensor:
        """Return values interpolated between both ends of the gap, (Q, G, U, I)."""
        left_QGUI, right_QGUI = ends_QGUEI.unbind(3)
        return (1 - t_GU1) * left_QGUI + t_GU1 * right_QGUI

    ends_QGUEI = pool(head_QGEIK, alleles_QGUK)
    carried_QGUI = interpolate(ends_QGUEI)
    p, value_of_carriers = carried_QGUI[..., 0], carried_QGUI[..., 1:]
    total_QGUI = interpolate(pool(head_QGEIK, torch.ones_like(alleles_QGUK[:, :, :1])))
    logit_QG1K = weights.logit_QGK[:, :, None]
    best_carrier = logit_QG1K.masked_fill(alleles_QGUK <= 0, ABSENT_CLASS_LOGIT).amax(-1)
    best_other = logit_QG1K.masked_fill(alleles_QGUK >= 1, ABSENT_CLASS_LOGIT).amax(-1)
    return Copied(
        p,
        ends_QGUEI[..., 0, 0],
        ends_QGUEI[..., 1, 0],
        interpolate(pool(head_QGE1K, sibling_QGUK))[..., 0],
        (best_carrier - best_other).clamp(-CONTRAST, CONTRAST),
        (count_QGK[:, :, None] * alleles_QGUK).sum(-1),
        value_of_carriers / (p[..., None] + EPSILON),
        (total_QGUI[..., 1:] - value_of_carriers) / (1 - p[..., None] + EPSILON),
    )


def spread(weight_QGEK: Tensor) -> Tensor:
    """Return the entropy of the weights, (Q, G, E), times SCALE."""
    return -(weight_QGEK * torch.log(weight_QGEK.clamp(min=1e-9))).sum(-1) * SCALE
