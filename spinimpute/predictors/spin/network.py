"""The network of SPIN, which compresses a panel into inducing points and imputes from these points.

The network works on one block at a time: a few gaps between typed sites with their untyped sites, and the
typed sites around these gaps. It has no parameters for particular sites. A column of K typed places is
described by its genetic position, its allele frequencies and its place in the block; an untyped site by its
position in the gap and its frequency. The network can therefore be used on panels that were not in training.

    embedding    tokens of K-mers, see `similarity`
    encoder      `nn.carrying.CarryingEncoder` assigns each panel haplotype softly to the inducing points, by
                 the likelihood of its typed alleles and of its alleles at untyped sites
    attention    each query attends to the inducing points. Some heads sum the matches of all columns, with
                 weights that decrease with genetic distance; each head has its own scale. The other heads
                 ("pair heads") belong to a network that sees how far the query and the inducing point match
                 to the left and to the right (the runs of `matching`).
    decoder      averages the alleles that the inducing points carry; see `decoder`

Axes: B blocks, N panel haplotypes, Q query haplotypes, H inducing points, S typed places of a block, D
columns, V K-mers, U sites to impute, C untyped sites by which haplotypes are compared, X = S + C, G heads,
F features of a pair (query and point) or of a column, W weights of a column (1 for the encoder, then 1 per
head that sums over columns).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from spinimpute.nn import NO_POINT
from spinimpute.nn.carrying import CarriedPoints, CarryingEncoder, LabelledChunks
from spinimpute.predictors.spin.decoder import LabelDecoder, SiteInformation, features_first
from spinimpute.predictors.spin.kmers import split_columns
from spinimpute.predictors.spin.matching import AttentionKeys, Match, Matcher, match
from spinimpute.predictors.spin.settings import (
    COLUMN_FEATURES,
    DISTANCE_OFFSET,
    ENCODER_DECAY,
    FREQUENCY_OFFSET,
    MIN_FREQUENCY,
    MIN_LOG_MASS,
    MIN_SCORE,
    SPINSettings,
    size_feature,
)
from spinimpute.predictors.spin.similarity import (
    Columns,
    Confusion,
    HaplotypeSimilarity,
    Keys,
    untyped_weights,
)

MIN_SCALE, MAX_SCALE = 0.004, 2.5  # cM, smallest and largest initial scale of the heads


class BlockContext(NamedTuple):
    """The panel haplotypes of a block, from which its inducing points are computed.

    Attributes
    ----------
    columns : Columns
        The block's columns.
    chunks : LabelledChunks
        Chunks (x_BNX, untyped_BNU) of haplotypes: their alleles at the typed places and at the untyped sites
        by which they are compared, and their alleles at the sites to impute. With `DenseSimilarity`, features
        x_BNF take the place of x_BNX.
    start_BHX : Tensor
        Mean alleles of initial groups of haplotypes, one group for each point.
    present_BH : Tensor
        0 for padding, otherwise 1.
    frequency_BC : Tensor
        The panel's frequency of ALT at the compared untyped sites.
    similarity_class : type
        How haplotypes are compared with points.
    """

    columns: Columns
    chunks: LabelledChunks
    start_BHX: Tensor
    present_BH: Tensor
    frequency_BC: Tensor
    similarity_class: type[HaplotypeSimilarity] = HaplotypeSimilarity


class GenotypeSPIN(nn.Module):
    """The network of SPIN: encoder, attention and decoder."""

    def __init__(self, settings: SPINSettings) -> None:
        super().__init__()
        s = self.settings = settings
        self.confusion = Confusion(s.k)
        self.encoder: CarryingEncoder[Keys] = CarryingEncoder(s.rounds)
        self.log_sharpness = nn.Parameter(torch.tensor(0.0))
        self.column = nn.Sequential(
            nn.Linear(COLUMN_FEATURES, s.hidden), nn.GELU(), nn.Linear(s.hidden, 1 + s.heads)
        )
        scales = torch.linspace(math.log(MIN_SCALE), math.log(MAX_SCALE), s.heads)
        self.log_scale = nn.Parameter(scales)
        # Initially a quarter of the heads prefers the left, a quarter the right.
        lean_G = torch.zeros(s.heads)
        lean_G[0::4], lean_G[1::4] = -2.0, 2.0
        self.lean = nn.Parameter(lean_G)
        self.prior = nn.Parameter(torch.full((s.heads,), 0.7))
        self.tolerance = nn.Parameter(torch.tensor(-2.0))
        self.pair = nn.Sequential(
            nn.Linear(s.pair_features, s.hidden), nn.ReLU(), nn.Linear(s.hidden, s.pair_heads)
        )
        self.decoder = LabelDecoder(s.heads + s.pair_heads, s.decoder_hidden)

    def columns(self, cM_BS: Tensor, frequency_BS: Tensor, valid_BS: Tensor, n_haplotypes: int) -> Columns:
        """Return the description of a block's columns, which are means over their sites.

        frequency_BS is the panel's frequency of ALT. valid_BS is 0 for padding.
        """
        k = self.settings.k
        valid_BD = split_columns(valid_BS, k).mean(-1)
        f_BS = frequency_BS.clamp(MIN_FREQUENCY, 1 - MIN_FREQUENCY)

        def mean_of_sites(x_BS: Tensor) -> Tensor:
            return split_columns(x_BS * valid_BS, k).mean(-1) / valid_BD.clamp(min=1e-6)

        log_maf_BD = mean_of_sites(torch.minimum(f_BS, 1 - f_BS).log())
        return Columns(mean_of_sites(cM_BS), log_maf_BD, valid_BD, valid_BS, n_haplotypes)

    def encode(self, context: BlockContext) -> CarriedPoints:
        """Return the inducing points of a block, with their mean alleles at the sites to impute."""
        return self._tokens(self.encoder(context.chunks, *self._start(context)), context.columns)

    def assign(self, context: BlockContext) -> tuple[CarriedPoints, Iterator[Tensor]]:
        """Return the points of `encode`, and the assignment of each chunk's haplotypes to them, (B, H, n)."""
        points, assigned = self.encoder.assign(context.chunks, *self._start(context))
        return self._tokens(points, context.columns), assigned

    def keys(self, points: CarriedPoints, columns: Columns) -> AttentionKeys:
        """Return the part of the attention that depends on the points of `encode`, not on the queries."""
        token_BHDV = points.feature_BHF.unflatten(-1, (-1, 2**self.settings.k))
        share_BH = points.mass_BH / points.mass_BH.sum(1, keepdim=True)
        frequency_BDV = (share_BH.unsqueeze(1) @ token_BHDV.flatten(2)).unflatten(-1, token_BHDV.shape[2:])
        return AttentionKeys(
            self.confusion(token_BHDV).permute(0, 2, 3, 1).contiguous(),
            -(frequency_BDV.squeeze(1) + FREQUENCY_OFFSET).log(),
            points.log_mass_BH,
            self._weights(columns, points.mass_BH)[1],
            points_feature(points.mass_BH),
            columns,
        )

    def compare(self, allele_BQS: Tensor, known_BQS: Tensor, keys: AttentionKeys, matcher: Matcher) -> Match:
        """Compare queries with inducing points, see `attend`."""
        return matcher(
            allele_BQS, known_BQS, keys, self.settings.k, F.softplus(self.tolerance), self.settings.tolerances
        )

    def attend(self, allele_BQS: Tensor, known_BQS: Tensor, keys: AttentionKeys) -> Tensor:
        """Return the attention (B, G, Q, H) of queries to inducing points, before the softmax.

        known_BQS is 0 where a call is missing. The attention of a query does not depend on other queries.
        """
        matched = self.compare(allele_BQS, known_BQS, keys, match)
        score_BGQH = matched.score_BGQH
        b, _, q, h = score_BGQH.shape
        log_mass_B1QH = keys.log_mass_BH.clamp(min=MIN_LOG_MASS)[:, None, None].expand(b, 1, q, h)
        absent_B11H = (keys.log_mass_BH <= NO_POINT / 2)[:, None, None]
        best_BGQ1 = score_BGQH.masked_fill(absent_B11H, NO_POINT).amax(-1, keepdim=True)
        features_BFQH = torch.cat(
            [
                matched.runs_BFQH,
                (score_BGQH - best_BGQ1).clamp(min=MIN_SCORE) / 8,
                log_mass_B1QH / 3,
                torch.full_like(log_mass_B1QH, size_feature(keys.columns.n_haplotypes)),
                keys.points_B[:, None, None, None].expand_as(log_mass_B1QH),
            ],
            dim=1,
        )
        logit_BGQH = torch.cat(
            [score_BGQH, features_first(self.pair, features_BFQH.flatten(2)).unflatten(-1, (q, h))], dim=1
        )
        prior_G = torch.cat([self.prior, self.prior.new_ones(self.settings.pair_heads)])
        return logit_BGQH + (prior_G[:, None] * keys.log_mass_BH.unsqueeze(1)).unsqueeze(2)

    def predict(
        self, logit_BGQH: Tensor, points: CarriedPoints, sites: SiteInformation
    ) -> tuple[Tensor, Tensor]:
        """Return the logits (B, Q, U) of P(ALT), see `LabelDecoder.forward`."""
        return self.decoder(logit_BGQH, points, sites)

    def _start(self, context: BlockContext) -> tuple[CarriedPoints, HaplotypeSimilarity]:
        """Return the initial points and the similarity for the encoder."""
        columns, _, start_BHX, present_BH, frequency_BC, similarity_class = context
        weight_BD = self._weights(columns, present_BH)[0] * self.log_sharpness.exp()
        similarity = similarity_class(
            self.confusion, weight_BD, self.settings.k, untyped_weights(frequency_BC)
        )
        return CarriedPoints(similarity.start(start_BHX), start_BHX[..., :0], present_BH), similarity

    def _tokens(self, points: CarriedPoints, columns: Columns) -> CarriedPoints:
        """Return the points without the alleles at untyped sites among their features."""
        n_tokens = columns.valid_BD.shape[1] * 2**self.settings.k
        return points._replace(feature_BHF=points.feature_BHF[..., :n_tokens].contiguous())

    def _weights(self, columns: Columns, mass_BH: Tensor) -> tuple[Tensor, Tensor]:
        """Return the weights of the columns, for the encoder (B, D) and for the heads (B, G, D)."""
        cM_BD, log_maf_BD, valid_BD, _, n_haplotypes = columns
        far_BD = cM_BD.abs()
        offset_D = torch.arange(cM_BD.shape[1], device=cM_BD.device) - cM_BD.shape[1] // 2
        offset_D = offset_D.to(cM_BD.dtype)
        features_BDF = torch.stack(
            [
                torch.log(far_BD + DISTANCE_OFFSET) / 3 + 1,
                far_BD.clamp(max=2.0),
                (offset_D.abs() / 12).expand_as(far_BD),
                offset_D.sign().expand_as(far_BD),
                log_maf_BD / 3 + 0.5,
                valid_BD,
                torch.full_like(far_BD, size_feature(n_haplotypes)),
                points_feature(mass_BH).unsqueeze(-1).expand_as(far_BD),
            ],
            dim=-1,
        )
        weight_BDW = F.softplus(self.column(features_BDF) + 0.5)
        encoder_BD = weight_BDW[..., 0] * torch.exp(-ENCODER_DECAY * offset_D.abs()) * valid_BD
        decay_BGD = torch.exp(-far_BD.unsqueeze(1) * torch.exp(-self.log_scale)[:, None])
        lean_GD = 2 * torch.sigmoid(self.lean[:, None] * offset_D.sign())
        return encoder_BD, weight_BDW[..., 1:].transpose(1, 2) * decay_BGD * lean_GD * valid_BD.unsqueeze(1)


def points_feature(mass_BH: Tensor) -> Tensor:
    """Return the log number of inducing points, scaled to about -1 to 1."""
    return torch.log((mass_BH > 0).sum(1).to(mass_BH.dtype)) / 4 - 1.3
