"""CIPNP with allele-carrying inducing points: a panel block in, h soft haplotypes out, which a query copies.

The paper's XABD averages haplotypes into latent vectors; here the same attention weights also average the
haplotypes' alleles, so that an inducing point says something about sites that the weights never saw in
training.

Axes: B blocks, N panel haplotypes, Q query haplotypes, H inducing points, K candidates of a query, S typed
places of a block, G gaps of a block, U imputed sites, D decays, V values.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from spinimpute.genotypes.blocks import BlockShape
from spinimpute.nn.shapes import require_count


@dataclass(frozen=True)
class InducingSettings:
    """Sizes of the model; decays, width and values are fixed by the trained weights, the others are not.

    core, flank: see `blocks.BlockShape`. inducing_points: largest h. candidates: inducing points that a query
    compares closely. rounds: iterations of assigning haplotypes to inducing points. decays: tolerances to
    mismatch. width: hidden units. values: inputs of the decoder from each candidate, beside its alleles.
    """

    core: int = 8
    flank: int = 28
    inducing_points: int = 128
    candidates: int = 48
    rounds: int = 3
    decays: int = 4
    width: int = 32
    values: int = 4

    def __post_init__(self) -> None:
        BlockShape(self.core, self.flank)  # raises ValueError
        for name, value in vars(self).items():
            if name != "flank":
                require_count(name, value)

    @property
    def shape(self) -> BlockShape:
        """Shape of a block."""
        return BlockShape(self.core, self.flank)


class BlockContext(NamedTuple):
    """What a block knows of its typed places; places without a site have valid 0.

    cM_BS: genetic position relative to the block's middle; frequency_BS: panel frequency of ALT;
    valid_BS: 1 or 0; n_haplotypes: panel size N.
    """

    cM_BS: Tensor
    frequency_BS: Tensor
    valid_BS: Tensor
    n_haplotypes: int


class InducingPoints(NamedTuple):
    """Soft haplotypes, alleles in 0..1.

    typed_BHS: at typed places; untyped_BHU: at the imputed sites; mass_BH: panel haplotypes each stands for,
    0 where a block has fewer than H.
    """

    typed_BHS: Tensor
    untyped_BHU: Tensor
    mass_BH: Tensor


class Attention(NamedTuple):
    """chosen_BQK: candidates (int64); logits_BG2QK: to copy from the left and the right; value_BGVQK."""

    chosen_BQK: Tensor
    logits_BG2QK: Tensor
    value_BGVQK: Tensor


class GapSites(NamedTuple):
    """Imputed sites, grouped by gap.

    alleles_BGHU: soft haplotypes there; frequency_BGU; fraction_BGU: how far (0..1, genetic) from the left
    to the right typed site; distance_BGU: cM to the nearer typed site.
    """

    alleles_BGHU: Tensor
    frequency_BGU: Tensor
    fraction_BGU: Tensor
    distance_BGU: Tensor


def logit(p: Tensor) -> Tensor:
    """Log odds of p."""
    return torch.log(p) - torch.log1p(-p)


class AlleleEncoder(nn.Module):
    """XABD whose attention weights also average alleles.

    Attention logits are the log-likelihood of a haplotype's typed alleles under each soft haplotype, with a
    learned weight for each site; inducing points compete for haplotypes (softmax over H) as in slot
    attention.
    """

    def __init__(self, settings: InducingSettings) -> None:
        super().__init__()
        self.settings = settings
        self.site_weight = nn.Sequential(nn.Linear(5, 16), nn.GELU(), nn.Linear(16, 1))
        self.log_error = nn.Parameter(torch.tensor(-4.0))
        self.log_sharpness = nn.Parameter(torch.tensor(0.0))
        self.prior = nn.Parameter(torch.tensor(0.5))

    def weights(self, context: BlockContext) -> Tensor:
        """weight_BS >= 0 of each typed place for the similarity of haplotypes; 0 where there is no site."""
        distance_BS = context.cM_BS.abs()
        s = self.settings
        place_S = torch.arange(s.shape.n_typed, device=distance_BS.device, dtype=distance_BS.dtype)
        rank_S = ((place_S - (s.shape.n_typed - 1) / 2).abs() - s.core / 2).clamp(min=0) / max(s.flank, 1)
        f = context.frequency_BS.clamp(1e-4, 1 - 1e-4)
        features = torch.stack(
            [
                torch.log(distance_BS + 1e-4) / 3 + 1,
                distance_BS.clamp(max=2.0),
                rank_S.expand_as(f),
                torch.log(torch.minimum(f, 1 - f)) / 3 + 0.5,
                torch.full_like(f, _size_feature(context.n_haplotypes)),
            ],
            dim=-1,
        )
        weight_BS = F.softplus(self.site_weight(features).squeeze(-1) + 0.5)
        return weight_BS * torch.exp(-1.5 * rank_S) * context.valid_BS

    def similarity(self, x_BNS: Tensor, points_BHS: Tensor, mass_BH: Tensor, weight_BS: Tensor) -> Tensor:
        """Score (B, N, H) of alleles x (0.5 where unknown) under each inducing point of mass > 0."""
        error = torch.sigmoid(self.log_error)
        soft = error + (1 - 2 * error) * points_BHS
        on, off = soft.log(), torch.log1p(-soft)
        weighted_BHS = (on - off) * weight_BS.unsqueeze(1)
        constant_BH = torch.einsum("bhs,bs->bh", off, weight_BS) + self.prior * torch.log(mass_BH + 0.1)
        constant_BH = constant_BH.masked_fill(mass_BH == 0, -1e4)
        return torch.einsum("bns,bhs->bnh", x_BNS, weighted_BHS) + constant_BH.unsqueeze(1)

    def forward(
        self,
        chunks: Iterable[tuple[Tensor, Tensor]],
        start_BHS: Tensor,
        start_mass_BH: Tensor,
        weight_BS: Tensor,
    ) -> InducingPoints:
        """Inducing points of a panel that comes in chunks (typed_BNS, untyped_BNU), read once every round.

        start_BHS: alleles that the inducing points start from; start_mass_BH: 1, or 0 for padding. The result
        does not depend on the chunks: everything kept is a sum over haplotypes.
        """
        points_BHS = 0.02 + 0.96 * start_BHS
        mass_BH = start_mass_BH
        sharpness = self.log_sharpness.exp()
        for turn in range(self.settings.rounds):
            total_BH = torch.zeros_like(mass_BH)
            typed_BHS = torch.zeros_like(points_BHS)
            untyped: Tensor | int = 0
            for x_BNS, x_BNU in chunks:
                r_BNH = torch.softmax(
                    self.similarity(x_BNS, points_BHS, mass_BH, weight_BS) * sharpness, dim=-1
                )
                total_BH = total_BH + r_BNH.sum(1)
                typed_BHS = typed_BHS + torch.einsum("bnh,bns->bhs", r_BNH, x_BNS)
                if turn == self.settings.rounds - 1:
                    untyped = untyped + torch.einsum("bnh,bnu->bhu", r_BNH, x_BNU)
            mass_BH = total_BH * start_mass_BH
            points_BHS = typed_BHS / (total_BH + 1e-6).unsqueeze(-1)
        assert isinstance(untyped, Tensor), "at least one round and one chunk"
        return InducingPoints(points_BHS, untyped / (mass_BH + 1e-6).unsqueeze(-1), mass_BH)


def _size_feature(count: int) -> float:
    return math.log(count) / 4 - 1.8


class InducingDecoder(nn.Module):
    """A query scores its alleles against the soft haplotypes on both sides of each gap, and copies them."""

    def __init__(self, settings: InducingSettings) -> None:
        super().__init__()
        self.settings = settings
        d = settings.decays
        self.keep = nn.Parameter(torch.linspace(-6.0, 1.0, d))
        self.fade = nn.Parameter(torch.linspace(1.0, -3.0, d))
        self.pair = nn.Sequential(
            nn.Linear(4 * d + 8, settings.width),
            nn.GELU(),
            nn.Linear(settings.width, settings.width),
            nn.GELU(),
            nn.Linear(settings.width, 2 + settings.values),
        )
        last = nn.Linear(settings.width, 1)
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
        self.decoder = nn.Sequential(
            nn.Linear(2 * settings.values + 8, settings.width),
            nn.GELU(),
            nn.Linear(settings.width, settings.width),
            nn.GELU(),
            last,
        )

    def forward(
        self,
        q_BQS: Tensor,
        known_BQS: Tensor,
        score_BQH: Tensor,
        points: InducingPoints,
        context: BlockContext,
    ) -> Attention:
        """Attention of each query to its best candidates at each gap.

        q_BQS: query alleles, 0 or 1; known_BQS: 1, or 0 where a call is missing; score_BQH: their similarity.
        """
        s = self.settings
        total_BQK, chosen_BQK = score_BQH.topk(min(s.candidates, score_BQH.shape[-1]), dim=-1)
        b, q, k = chosen_BQK.shape
        batch = torch.arange(b, device=q_BQS.device).view(b, 1, 1)
        soft_SBQK = points.typed_BHS.permute(2, 0, 1).contiguous()[:, batch, chosen_BQK]
        mass_BQK = points.mass_BH[batch, chosen_BQK]
        q_SBQ = q_BQS.permute(2, 0, 1)
        known_SBQ = known_BQS.permute(2, 0, 1) * context.valid_BS.T.unsqueeze(-1)
        # soft + q - 2 soft q, where known
        mismatch_SBQK = torch.addcmul(
            (q_SBQ * known_SBQ).unsqueeze(-1), soft_SBQK, ((1 - 2 * q_SBQ) * known_SBQ).unsqueeze(-1)
        )
        f_SB1 = context.frequency_BS.clamp(1e-4, 1 - 1e-4).T.unsqueeze(-1)
        info_SBQ = -(q_SBQ * f_SB1.log() + (1 - q_SBQ) * torch.log1p(-f_SB1)) * known_SBQ
        left, right = self._runs_both_ways(mismatch_SBQK, info_SBQ, context)
        same = torch.stack(
            [
                (total_BQK - total_BQK[..., :1]).clamp(min=-60) / 10,
                total_BQK.clamp(min=-60) / 20,
                (mass_BQK + 0.1).log() / 3,
                torch.full_like(mass_BQK, _size_feature(context.n_haplotypes)),
            ]
        )
        present_BQK = (mass_BQK + 1e-3).log().masked_fill(mass_BQK == 0, -1e4)
        logits, values = [], []
        for g in range(s.core):
            i, j = s.flank + g, s.flank + g + 1
            both_B = context.valid_BS[:, i] * context.valid_BS[:, j]
            width_B = (context.cM_BS[:, j] - context.cM_BS[:, i]) * both_B
            here = torch.stack(
                [
                    mismatch_SBQK[i],
                    mismatch_SBQK[j],
                    (torch.log(width_B + 1e-5) / 3 + 1.5).view(b, 1, 1).expand(b, q, k),
                    both_B.view(b, 1, 1).expand(b, q, k),
                ]
            )
            features_CM = torch.cat([left[g], right[g + 1], same, here]).flatten(1)
            out_BCQK = features_first(self.pair, features_CM).view(-1, b, q, k).transpose(0, 1)
            logits.append(out_BCQK[:, :2] + present_BQK.unsqueeze(1))
            values.append(out_BCQK[:, 2:])
        return Attention(chosen_BQK, torch.stack(logits, 1), torch.stack(values, 1))

    def _runs_both_ways(
        self, mismatch_SBQK: Tensor, info_SBQ: Tensor, context: BlockContext
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Features (2D, B, Q, K) of the runs that end at the core's places, from the left and the right."""
        s = self.settings
        valid_BS = context.valid_BS
        step_BS = (context.cM_BS[:, 1:] - context.cM_BS[:, :-1]) * valid_BS[:, 1:] * valid_BS[:, :-1]
        zero = torch.zeros_like(step_BS[:, :1])
        from_left_SB = torch.cat([zero, step_BS], 1).T
        from_right_SB = torch.cat([step_BS, zero], 1).T
        n = s.shape.n_typed
        left = self._runs(mismatch_SBQK, info_SBQ, from_left_SB, range(s.flank + s.core + 1))
        right = self._runs(mismatch_SBQK, info_SBQ, from_right_SB, range(n - 1, s.flank - 1, -1))
        return left, right[::-1]

    def _runs(self, mismatch_SBQK: Tensor, info_SBQ: Tensor, step_SB: Tensor, places: range) -> list[Tensor]:
        """Soft match runs that end at each of the last core + 1 places of a walk towards the gaps.

        Logs of information and genetic length of the matching segment; every mismatch lets only a learned
        share of what lies beyond it through, one share for each of D decays.
        """
        closed_D111 = torch.sigmoid(self.keep).view(-1, 1, 1, 1) - 1
        fade_SDB11 = torch.exp(-F.softplus(self.fade).view(1, -1, 1) * step_SB.unsqueeze(1))[..., None, None]
        _, b, q, k = mismatch_SBQK.shape
        d = len(closed_D111)
        one = mismatch_SBQK.new_ones(1)
        run_2DBQK = mismatch_SBQK.new_zeros(2, d, b, q, k)
        ends = []
        for count, i in enumerate(places):
            open_DBQK = torch.addcmul(one, mismatch_SBQK[i], closed_D111)
            gain_21BQ1 = torch.stack([info_SBQ[i], step_SB[i].unsqueeze(-1).expand(b, q)])[:, None, ..., None]
            run_2DBQK = torch.addcmul(gain_21BQ1, run_2DBQK, fade_SDB11[i]) * open_DBQK
            if count >= len(places) - self.settings.core - 1:
                information, length = run_2DBQK
                ends.append(torch.cat([torch.log1p(information) / 2, torch.log(length + 1e-4) / 4 + 1]))
        return ends

    def copy(self, attention: Attention, sites: GapSites, n_haplotypes: int) -> tuple[Tensor, Tensor]:
        """P(ALT) (B, G, Q, U) by pure copying, and after the decoder's correction, both as logits."""
        chosen_BQK, logits_BG2QK, value_BGVQK = attention
        b, g, h, u = sites.alleles_BGHU.shape
        q, k = chosen_BQK.shape[1:]
        w_BG2QK = torch.softmax(logits_BG2QK, dim=-1)
        v = value_BGVQK.shape[2]
        parts_BGCQK = torch.cat(
            [w_BG2QK, w_BG2QK[:, :, :1] * value_BGVQK, w_BG2QK[:, :, 1:] * value_BGVQK], dim=2
        )
        # scatter the candidates' weights over all inducing points: dense products beat gathered ones
        dense_BGCQH = parts_BGCQK.new_zeros(b, g, 2 + 2 * v, q, h)
        dense_BGCQH.scatter_(-1, chosen_BQK.view(b, 1, 1, q, k).expand(parts_BGCQK.shape), parts_BGCQK)
        copied_BGCQU = (dense_BGCQH.flatten(2, 3) @ sites.alleles_BGHU).view(b, g, 2 + 2 * v, q, u)
        t_BG11U = sites.fraction_BGU[:, :, None, None]

        def mixed(from_left: Tensor, from_right: Tensor) -> Tensor:
            return torch.lerp(from_left, from_right, t_BG11U)

        p0 = mixed(copied_BGCQU[:, :, :1], copied_BGCQU[:, :, 1:2]).squeeze(2)
        carried_BGVQU = mixed(copied_BGCQU[:, :, 2 : 2 + v], copied_BGCQU[:, :, 2 + v :])
        total_BGCQ1 = parts_BGCQK.sum(-1, keepdim=True)
        pooled_BGVQU = mixed(
            total_BGCQ1[:, :, 2 : 2 + v].expand_as(carried_BGVQU),
            total_BGCQ1[:, :, 2 + v :].expand_as(carried_BGVQU),
        )
        f_BGQU = sites.frequency_BGU.clamp(1e-5, 1 - 1e-5).unsqueeze(2).expand_as(p0)
        # in float32, 1 - 1e-8 equals 1
        p0 = (0.999 * p0 + 0.001 * f_BGQU).clamp(1e-6, 1 - 1e-6)
        logit0 = logit(p0)
        entropy_BGQ1 = -(w_BG2QK * (w_BG2QK + 1e-9).log()).sum(-1).mean(2).unsqueeze(-1)
        best_BGQ1 = w_BG2QK.amax(-1).mean(2).unsqueeze(-1)
        t = sites.fraction_BGU.unsqueeze(2)
        more_BGCQU = torch.stack(
            [
                logit0 / 4,
                logit(f_BGQU) / 4,
                torch.minimum(f_BGQU, 1 - f_BGQU).log() / 4 + 1,
                entropy_BGQ1.expand_as(p0),
                best_BGQ1.expand_as(p0),
                (t * (1 - t)).expand_as(p0),
                (torch.log(sites.distance_BGU + 1e-5) / 3 + 1.5).unsqueeze(2).expand_as(p0),
                torch.full_like(p0, _size_feature(n_haplotypes)),
            ],
            dim=2,
        )
        features_BGCQU = torch.cat(
            [
                carried_BGVQU / (p0.unsqueeze(2) + 1e-3),
                (pooled_BGVQU - carried_BGVQU) / (1 - p0 + 1e-3).unsqueeze(2),
                more_BGCQU,
            ],
            dim=2,
        )
        correction = features_first(self.decoder, features_BGCQU.movedim(2, 0).flatten(1))
        return logit0, logit0 + correction.view_as(logit0)


def features_first(network: nn.Sequential, x_CM: Tensor) -> Tensor:
    """A network of linear maps and activations on features that are rows: (C, M) -> (outputs, M).

    The long axis comes last: every elementwise step then runs over contiguous memory, several times faster on
    a CPU.
    """
    for layer in network:
        if isinstance(layer, nn.Linear):
            x_CM = torch.addmm(layer.bias.unsqueeze(-1), layer.weight, x_CM)
        else:
            x_CM = layer(x_CM)
    return x_CM


class InducingNetwork(nn.Module):
    """Encoder and predictor together; the weights of a checkpoint."""

    def __init__(self, settings: InducingSettings) -> None:
        super().__init__()
        self.settings = settings
        self.encoder = AlleleEncoder(settings)
        self.predictor = InducingDecoder(settings)

    def encode(
        self,
        context: BlockContext,
        chunks: Iterable[tuple[Tensor, Tensor]],
        start_BHS: Tensor,
        start_mass_BH: Tensor,
    ) -> InducingPoints:
        """H: see `AlleleEncoder.forward`."""
        return self.encoder(chunks, start_BHS, start_mass_BH, self.encoder.weights(context))

    def attend(
        self, q_BQS: Tensor, known_BQS: Tensor, points: InducingPoints, context: BlockContext
    ) -> Attention:
        """Attention of each query (0/1 alleles, known 1/0); queries do not influence one another."""
        visible = torch.where(known_BQS > 0, q_BQS, torch.full_like(q_BQS, 0.5))
        score_BQH = self.encoder.similarity(
            visible, points.typed_BHS, points.mass_BH, self.encoder.weights(context)
        )
        return self.predictor(q_BQS, known_BQS, score_BQH, points, context)
