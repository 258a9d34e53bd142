"""CIPNP with allele-carrying inducing points: a panel block in, h soft haplotypes out, which a query copies.

The paper's XABD averages haplotypes into latent vectors; here the same attention weights also average the
haplotypes' alleles, so that an inducing point says something about sites that the weights never saw in
training.

Axes: B blocks, N panel haplotypes, Q query haplotypes, H inducing points, K candidates of a query, S typed
places of a block, G gaps of a block, U imputed sites, D decays, V values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from spinimpute.imputation.blocks import BlockShape


@dataclass(frozen=True)
class InducingSettings:
    """Sizes of the model; all but `inducing_points` and `candidates` are fixed by the trained weights.

    core, flank: see `blocks.BlockShape`. inducing_points: h, at most. candidates: inducing points that a
    query looks at closely. rounds: times that haplotypes are shared out among inducing points. decays:
    tolerances to mismatch. width: hidden units. values: what a candidate tells the decoder beside its
    alleles.
    """

    core: int = 8
    flank: int = 28
    inducing_points: int = 128
    candidates: int = 48
    rounds: int = 3
    decays: int = 4
    width: int = 32
    values: int = 4

    @property
    def shape(self) -> BlockShape:
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
    """chosen_BQK: candidates (int64); logits_BGQK2: to the left and right; value_BGQKV."""

    chosen_BQK: Tensor
    logits_BGQK2: Tensor
    value_BGQKV: Tensor


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
        chunks: Sequence[tuple[Tensor, Tensor]],
        start_BHS: Tensor,
        start_mass_BH: Tensor,
        weight_BS: Tensor,
    ) -> InducingPoints:
        """Inducing points of a panel that comes in chunks (typed_BNS, untyped_BNU) of its haplotypes.

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


class CopyingPredictor(nn.Module):
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

    def _runs(self, mismatch_SBQK: Tensor, info_SBQ: Tensor, step_SB: Tensor) -> list[Tensor]:
        """Soft match runs (B, Q, K, 2D) that end at each of the last core + 1 sites of a walk to the gaps.

        Logs of information and genetic length of the matching stretch; every mismatch lets only a learned
        share of what lies beyond it through, one share for each of D decays.
        """
        keep_D = torch.sigmoid(self.keep)
        fade_SBD = torch.exp(-step_SB.unsqueeze(-1) * F.softplus(self.fade))
        s, b, q, k = mismatch_SBQK.shape
        run = mismatch_SBQK.new_zeros(b, q, k, len(keep_D))
        length = torch.zeros_like(run)
        ends = []
        for i in range(s):
            open_BQKD = 1 - mismatch_SBQK[i].unsqueeze(-1) * (1 - keep_D)
            fade = fade_SBD[i].view(b, 1, 1, -1)
            run = open_BQKD * (run * fade + info_SBQ[i].view(b, q, 1, 1))
            length = open_BQKD * (length * fade + step_SB[i].view(b, 1, 1, 1))
            if i >= s - self.settings.core - 1:
                ends.append(torch.cat([torch.log1p(run) / 2, torch.log(length + 1e-4) / 4 + 1], dim=-1))
        return ends

    def forward(
        self,
        q_BQS: Tensor,
        known_BQS: Tensor,
        score_BQH: Tensor,
        points: InducingPoints,
        context: BlockContext,
    ) -> Attention:
        """How much each query wants of each of its best candidates at each gap.

        q_BQS: query alleles, 0 or 1; known_BQS: 1, or 0 where a call is missing; score_BQH: their similarity.
        """
        s = self.settings
        total_BQK, chosen_BQK = score_BQH.topk(min(s.candidates, score_BQH.shape[-1]), dim=-1)
        b, q, k = chosen_BQK.shape
        batch = torch.arange(b, device=q_BQS.device).view(b, 1, 1)
        soft_BQKS = points.typed_BHS[batch, chosen_BQK]
        mass_BQK = points.mass_BH[batch, chosen_BQK]
        known_BQS = known_BQS * context.valid_BS.unsqueeze(1)
        q_BQ1S = q_BQS.unsqueeze(2)
        mismatch_BQKS = (soft_BQKS + q_BQ1S - 2 * soft_BQKS * q_BQ1S) * known_BQS.unsqueeze(2)
        f = context.frequency_BS.clamp(1e-4, 1 - 1e-4).unsqueeze(1)
        info_BQS = -(q_BQS * f.log() + (1 - q_BQS) * torch.log1p(-f)) * known_BQS
        left, right = self._runs_both_ways(mismatch_BQKS, info_BQS, context)
        same = torch.stack(
            [
                (total_BQK - total_BQK[..., :1]).clamp(min=-60) / 10,
                total_BQK.clamp(min=-60) / 20,
                (mass_BQK + 0.1).log() / 3,
                torch.full_like(mass_BQK, _size_feature(context.n_haplotypes)),
            ],
            dim=-1,
        )
        logits, values = [], []
        for g in range(s.core):
            i, j = s.flank + g, s.flank + g + 1
            both_B = context.valid_BS[:, i] * context.valid_BS[:, j]
            width_B = (context.cM_BS[:, j] - context.cM_BS[:, i]) * both_B
            here = torch.stack(
                [
                    mismatch_BQKS[..., i],
                    mismatch_BQKS[..., j],
                    (torch.log(width_B + 1e-5) / 3 + 1.5).view(b, 1, 1).expand(b, q, k),
                    both_B.view(b, 1, 1).expand(b, q, k),
                ],
                dim=-1,
            )
            out = self.pair(torch.cat([left[g], right[g + 1], same, here], dim=-1))
            present = (mass_BQK + 1e-3).log().masked_fill(mass_BQK == 0, -1e4)
            logits.append(out[..., :2] + present.unsqueeze(-1))
            values.append(out[..., 2:])
        return Attention(chosen_BQK, torch.stack(logits, 1), torch.stack(values, 1))

    def _runs_both_ways(
        self, mismatch_BQKS: Tensor, info_BQS: Tensor, context: BlockContext
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Features of the runs that end at the core's typed places, from the left and from the right."""
        s = self.settings
        valid_BS = context.valid_BS
        step_BS = (context.cM_BS[:, 1:] - context.cM_BS[:, :-1]) * valid_BS[:, 1:] * valid_BS[:, :-1]
        zero = torch.zeros_like(step_BS[:, :1])
        from_left_SB = torch.cat([zero, step_BS], 1).T
        from_right_SB = torch.cat([step_BS, zero], 1).T
        mismatch_SBQK = mismatch_BQKS.permute(3, 0, 1, 2).contiguous()
        info_SBQ = info_BQS.permute(2, 0, 1).contiguous()
        end = s.flank + s.core + 1
        left = self._runs(mismatch_SBQK[:end], info_SBQ[:end], from_left_SB[:end])
        right = self._runs(
            mismatch_SBQK[s.flank :].flip(0), info_SBQ[s.flank :].flip(0), from_right_SB[s.flank :].flip(0)
        )
        return left, right[::-1]

    def copy(self, attention: Attention, sites: GapSites, n_haplotypes: int) -> tuple[Tensor, Tensor]:
        """P(ALT) (B, G, Q, U) by pure copying, and after the decoder's correction, both as logits."""
        chosen_BQK, logits_BGQK2, value_BGQKV = attention
        b, g, h, _ = sites.alleles_BGHU.shape
        q, k = chosen_BQK.shape[1:]
        w_BGQK2 = torch.softmax(logits_BGQK2, dim=3)
        v = value_BGQKV.shape[-1]
        parts = torch.cat([w_BGQK2, w_BGQK2[..., :1] * value_BGQKV, w_BGQK2[..., 1:] * value_BGQKV], dim=-1)
        # scatter the candidates' weights over all inducing points: dense products beat gathered ones
        dense = parts.new_zeros(b, g, q, h, 2 + 2 * v)
        index = chosen_BQK.view(b, 1, q, k, 1).expand(b, g, q, k, 2 + 2 * v)
        dense.scatter_(3, index, parts)
        copied = torch.einsum("bgqhc,bghu->bgquc", dense, sites.alleles_BGHU)
        t = sites.fraction_BGU.unsqueeze(2).unsqueeze(-1)
        p0 = ((1 - t) * copied[..., :1] + t * copied[..., 1:2]).squeeze(-1)
        carried = (1 - t) * copied[..., 2 : 2 + v] + t * copied[..., 2 + v :]
        total = parts.sum(3)
        pooled = (1 - t) * total[..., 2 : 2 + v].unsqueeze(3) + t * total[..., 2 + v :].unsqueeze(3)
        f = sites.frequency_BGU.clamp(1e-5, 1 - 1e-5).unsqueeze(2).expand_as(p0)
        # float32 cannot tell 1 - 1e-8 from 1
        p0 = (0.999 * p0 + 0.001 * f).clamp(1e-6, 1 - 1e-6)
        logit0 = logit(p0)
        on = carried / (p0.unsqueeze(-1) + 1e-3)
        off = (pooled - carried) / (1 - p0 + 1e-3).unsqueeze(-1)
        entropy_BGQ2 = -(w_BGQK2 * (w_BGQK2 + 1e-9).log()).sum(3)
        best_BGQ2 = w_BGQK2.max(dim=3).values
        more = torch.stack(
            [
                logit0 / 4,
                logit(f) / 4,
                torch.minimum(f, 1 - f).log() / 4 + 1,
                entropy_BGQ2.mean(-1, keepdim=True).expand_as(p0),
                best_BGQ2.mean(-1, keepdim=True).expand_as(p0),
                (t.squeeze(-1) * (1 - t.squeeze(-1))).expand_as(p0),
                (torch.log(sites.distance_BGU + 1e-5) / 3 + 1.5).unsqueeze(2).expand_as(p0),
                torch.full_like(p0, _size_feature(n_haplotypes)),
            ],
            dim=-1,
        )
        return logit0, logit0 + self.decoder(torch.cat([on, off, more], dim=-1)).squeeze(-1)


class AlleleCIPNP(nn.Module):
    """Encoder and predictor together; the weights of a checkpoint."""

    kind = "allele-cipnp"

    def __init__(self, settings: InducingSettings) -> None:
        super().__init__()
        self.settings = settings
        self.encoder = AlleleEncoder(settings)
        self.predictor = CopyingPredictor(settings)

    def encode(
        self,
        context: BlockContext,
        chunks: Sequence[tuple[Tensor, Tensor]],
        start_BHS: Tensor,
        start_mass_BH: Tensor,
    ) -> InducingPoints:
        """H: see `AlleleEncoder.forward`."""
        return self.encoder(chunks, start_BHS, start_mass_BH, self.encoder.weights(context))

    def attend(
        self, q_BQS: Tensor, known_BQS: Tensor, points: InducingPoints, context: BlockContext
    ) -> Attention:
        """What each query (0/1 alleles, known 1/0) wants to copy; queries do not influence one another."""
        visible = torch.where(known_BQS > 0, q_BQS, torch.full_like(q_BQS, 0.5))
        score_BQH = self.encoder.similarity(
            visible, points.typed_BHS, points.mass_BH, self.encoder.weights(context)
        )
        return self.predictor(q_BQS, known_BQS, score_BQH, points, context)
