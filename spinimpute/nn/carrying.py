"""Attention that carries labels: inducing points are weighted means of datapoints and of their labels.

Each datapoint is assigned softly to the inducing points. An inducing point is the mean, with these weights,
of the features of datapoints and of their labels; labels are averaged directly instead of embedded ("carried
labels" in the glossary). A query attends to the inducing points and averages their labels. A `Similarity`
defines the features and scores each pair of a datapoint and a point. It is initialized as a likelihood or a
distance, not at random.

    XABD       paper, 3.2   H = MAB(H, X): softmax over datapoints, projected values, H starts from constants
               here         r_nh = softmax over H of (score(x_n, h) + prior log(mass_h));
                            mass_h = sum_n r_nh, features and labels of h are means over n with weights r_nh;
                            H starts from datapoints or from means of several
                            (`CarryingEncoder`; its option `axis` selects the paper's softmax over datapoints)
    predictor  paper, 3.2   a query attends to H, values are projected, a network predicts the label
               here         head g averages the labels of H, p_gq = sum_h softmax_h(logit_gqh) label_h
                            (`LabelReader`); a network corrects these means
                            (`spinimpute.nn.predictors.CorrectingPredictor`)

The trained weights thus define only how to compare; all knowledge about a context comes from the context. The
same weights can be used for contexts and label columns that were absent from training.

Axes: see `spinimpute.nn`; X numbers of a datapoint, F features of an inducing point (often F = X), U labels
of a datapoint.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, Literal, NamedTuple, Protocol, TypeVar, get_args

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from spinimpute.nn import MASS_OFFSET, NO_POINT, SMALLEST_MASS
from spinimpute.nn.checks import require_choice, require_count

Keys = TypeVar("Keys")
Axis = Literal["points", "datapoints"]
LabelledChunk = tuple[Tensor, Tensor]  # x_BNX, label_BNU


class LabelledChunks(Protocol):
    """A context in chunks. It can be iterated repeatedly; a chunk may be computed during the iteration."""

    def __len__(self) -> int:
        """Return the number of chunks."""
        ...

    def __iter__(self) -> Iterator[LabelledChunk]:
        """Iterate over the chunks. Every iteration gives the same chunks."""
        ...


class CarriedPoints(NamedTuple):
    """Inducing points with their mean labels.

    Attributes
    ----------
    feature_BHF : Tensor
        Mean features of the datapoints of each point.
    label_BHU : Tensor
        Mean labels of these datapoints; (B, H, 0) for initial points.
    mass_BH : Tensor
        Number of datapoints of each point (sum of weights); 1 for an initial point, 0 for padding.
    """

    feature_BHF: Tensor
    label_BHU: Tensor
    mass_BH: Tensor

    def to(self, target: torch.device | torch.dtype) -> CarriedPoints:
        """Return the points on another device, or with another type of numbers."""
        return CarriedPoints(*(part.to(target) for part in self))

    @property
    def log_mass_BH(self) -> Tensor:
        """Log of the mass, finite for points without datapoints; NO_POINT for padding."""
        return (self.mass_BH + MASS_OFFSET).log().masked_fill(self.mass_BH <= 0, NO_POINT)


class Similarity(Protocol[Keys]):
    """Similarity of datapoints and inducing points."""

    def sums(self, r_BHN: Tensor, x_BNX: Tensor) -> Tensor:
        """Return weighted sums (B, H, F) of the features of datapoints."""
        ...

    def keys(self, feature_BHF: Tensor) -> Keys:
        """Return the part of the scores that depends on the inducing points alone. Called once per round."""
        ...

    def scores(self, x_BNX: Tensor, keys: Keys) -> Tensor:
        """Return the scores (B, N, H) of datapoints and inducing points."""
        ...


class CarryingEncoder(nn.Module, Generic[Keys]):
    """Encoder that averages the datapoints of a context and their labels into inducing points.

    Each round compares the datapoints with the points of the previous round and computes new means.

    Parameters
    ----------
    rounds : int
        Number of rounds.
    axis : {"points", "datapoints"}
        Axis of the softmax. "points": each datapoint is shared among the points; its weights sum to 1 over H.
        The mass of a point is the sum of its weights. It enters the next round's scores as a prior.
        "datapoints": each point attends to all datapoints; its weights sum to 1 over N, as in the papers.
        Points do not depend on each other, and have equal masses.
    """

    def __init__(self, rounds: int, axis: Axis = "points") -> None:
        super().__init__()
        require_count("rounds", rounds)
        require_choice("axis", axis, get_args(Axis))
        self.rounds = rounds
        self.axis = axis
        self.prior = nn.Parameter(torch.tensor(0.5)) if axis == "points" else None

    def forward(
        self, chunks: LabelledChunks, start: CarriedPoints, similarity: Similarity[Keys]
    ) -> CarriedPoints:
        """Return the inducing points of a context, which is given in chunks (x_BNX, label_BNU).

        Each chunk is computed once per round, and only sums over its datapoints are kept. The result
        therefore does not depend on how the context is cut, and one chunk is in memory at a time. The
        backward pass computes each chunk again.
        """
        return self._next(self._before_last(chunks, start, similarity), chunks, start, similarity)

    def assign(
        self, chunks: LabelledChunks, start: CarriedPoints, similarity: Similarity[Keys]
    ) -> tuple[CarriedPoints, Iterator[Tensor]]:
        """Return the points as `forward` does, and the assignment of each chunk's datapoints, (B, H, n).

        The assignments of a datapoint to all points add up to 1. They are computed during the iteration.
        The axis must be "points".
        """
        require_choice("axis", self.axis, ("points",))
        before = self._before_last(chunks, start, similarity)
        scores = self._scores(before, chunks, start, similarity)
        return self._next(before, chunks, start, similarity), (self._weights(score)[1] for score in scores)

    def shares(self, chunks: LabelledChunks, start: CarriedPoints, similarity: Similarity[Keys]) -> Tensor:
        """Return the weights (B, H, N) of datapoints in each point's means; rows sum to 1 (padding: to 0)."""
        before = self._before_last(chunks, start, similarity)
        score_BNH = torch.cat(list(self._scores(before, chunks, start, similarity)), 1)
        r_BHN = self._weights(score_BNH)[1]
        present_BH1 = (start.mass_BH > 0).unsqueeze(-1)
        return r_BHN * present_BH1 / r_BHN.sum(-1, keepdim=True).clamp(min=SMALLEST_MASS)

    def _before_last(
        self, chunks: LabelledChunks, start: CarriedPoints, similarity: Similarity[Keys]
    ) -> CarriedPoints:
        """Return the points before the last round, without labels."""
        points = start
        for _ in range(self.rounds - 1):
            points = self._next(points, chunks, start, similarity, with_labels=False)
        return points

    def _next(
        self,
        points: CarriedPoints,
        chunks: LabelledChunks,
        start: CarriedPoints,
        similarity: Similarity[Keys],
        *,
        with_labels: bool = True,
    ) -> CarriedPoints:
        """Return the points of the next round."""
        keys, prior_B1H = similarity.keys(points.feature_BHF), self._prior(points, start)

        def sums(x_BNX: Tensor, label_BNU: Tensor) -> _Sums:
            log_scale_BH1, r_BHN = self._weights(similarity.scores(x_BNX, keys) + prior_B1H)
            # disable autocast: sums over a large context need float32
            with torch.autocast(r_BHN.device.type, enabled=False):
                mass_BH, feature_BHF = r_BHN.sum(-1), similarity.sums(r_BHN, x_BNX)
                return _Sums(log_scale_BH1, mass_BH, feature_BHF, multiply(r_BHN, label_BNU))

        total: _Sums | None = None
        n_datapoints = 0
        for x_BNX, label_BNU in chunks:
            label_BNU = label_BNU if with_labels else label_BNU[..., :0]
            if torch.is_grad_enabled() and len(chunks) > 1:
                part: _Sums = checkpoint(sums, x_BNX, label_BNU, use_reentrant=False)
            else:
                part = sums(x_BNX, label_BNU)
            total = part if total is None else total.merge(part)
            n_datapoints += x_BNX.shape[1]
        if total is None:
            raise ValueError("chunks must contain at least one chunk")
        divisor_BH1 = total.mass_BH.clamp(min=SMALLEST_MASS).unsqueeze(-1)
        present_BH = start.mass_BH > 0
        mass_BH = total.mass_BH * present_BH
        if self.axis == "datapoints":
            mass_BH = n_datapoints * present_BH / present_BH.sum(1, keepdim=True).to(mass_BH.dtype)
        return CarriedPoints(total.feature_BHF / divisor_BH1, total.label_BHU / divisor_BH1, mass_BH)

    def _weights(self, score_BNH: Tensor) -> tuple[Tensor, Tensor]:
        """Return the weights (B, H, N) of a chunk's datapoints, and the log of a factor that they lack.

        The factor is 1 with the softmax over points. With the softmax over datapoints, it makes the
        weights of chunks comparable. Computed in float32 or wider.
        """
        score_BNH = score_BNH.to(torch.promote_types(score_BNH.dtype, torch.float32))
        if self.axis == "points":
            r_BHN = torch.softmax(score_BNH, dim=-1).transpose(1, 2)
            return r_BHN.new_zeros(1, 1, 1), r_BHN
        score_BHN = score_BNH.transpose(1, 2)
        # without gradient, because the factor cancels; a chunk may have no datapoints
        log_scale_BH1 = score_BHN.detach().logsumexp(-1, keepdim=True).clamp(min=NO_POINT)
        return log_scale_BH1, (score_BHN - log_scale_BH1).exp()

    def _scores(
        self,
        points: CarriedPoints,
        chunks: LabelledChunks,
        start: CarriedPoints,
        similarity: Similarity[Keys],
    ) -> Iterator[Tensor]:
        """Yield the scores (B, n, H) of each chunk's datapoints with these points, priors included."""
        keys, prior_B1H = similarity.keys(points.feature_BHF), self._prior(points, start)
        for x_BNX, _ in chunks:
            yield similarity.scores(x_BNX, keys) + prior_B1H

    def _prior(self, points: CarriedPoints, start: CarriedPoints) -> Tensor:
        """Return the log prior of the points (B, 1, H)."""
        if self.prior is None:
            return torch.zeros_like(points.mass_BH).unsqueeze(1)
        absent_BH = (start.mass_BH <= 0) | (points.mass_BH <= 0)
        return (self.prior * points.log_mass_BH).masked_fill(absent_BH, NO_POINT).unsqueeze(1)


class _Sums(NamedTuple):
    """Weighted sums over the datapoints of one or more chunks, all of which lack the same factor."""

    log_scale_BH1: Tensor  # logarithm of the factor
    mass_BH: Tensor
    feature_BHF: Tensor
    label_BHU: Tensor

    def merge(self, other: _Sums) -> _Sums:
        """Return the sums over the datapoints of both."""
        log_scale_BH1 = torch.maximum(self.log_scale_BH1, other.log_scale_BH1)
        a_BH1, b_BH1 = ((sums.log_scale_BH1 - log_scale_BH1).exp() for sums in (self, other))
        return _Sums(
            log_scale_BH1,
            self.mass_BH * a_BH1.squeeze(-1) + other.mass_BH * b_BH1.squeeze(-1),
            self.feature_BHF * a_BH1 + other.feature_BHF * b_BH1,
            self.label_BHU * a_BH1 + other.label_BHU * b_BH1,
        )


def multiply(a_BLM: Tensor, b_BMN: Tensor) -> Tensor:
    """Return a @ b in float32 or wider. On GPUs, one factor may be bfloat16 that holds its values exactly.

    Tensor cores multiply bfloat16 several times faster. A float32 number is the sum of three such numbers, so
    no precision is lost.
    """
    wide = torch.promote_types(a_BLM.dtype, b_BMN.dtype)
    mixed = {a_BLM.dtype, b_BMN.dtype} == {torch.float32, torch.bfloat16}
    if not mixed or a_BLM.device.type != "cuda" or b_BMN.shape[-1] == 0:
        return a_BLM.to(wide) @ b_BMN.to(wide)
    if a_BLM.dtype == torch.float32:
        pairs = [(part, b_BMN) for part in split_float32(a_BLM)]
    else:
        pairs = [(a_BLM, part) for part in split_float32(b_BMN)]
    product_BLN, *others = (torch.bmm(*pair, out_dtype=torch.float32) for pair in pairs)
    for other_BLN in others:
        product_BLN += other_BLN
    return product_BLN


def split_float32(x: Tensor) -> list[Tensor]:
    """Return three bfloat16 tensors that sum to x, which is float32."""
    parts = []
    for _ in range(3):
        parts.append(x.to(torch.bfloat16))
        x = x - parts[-1]
    return parts


def attend_to_points(logit_BGQH: Tensor, mass_BH: Tensor) -> Tensor:
    """Return the attention (B, G, Q, H) of queries to points: softmax over H of the logits, 0 for padding."""
    return torch.softmax(logit_BGQH.masked_fill((mass_BH <= 0)[:, None, None], NO_POINT), dim=-1)


def pooled_labels(attention_BGQH: Tensor, label_BHU: Tensor) -> Tensor:
    """Return the means (B, G, Q, U) of the points' labels, weighted by this attention."""
    pooled_BLU = attention_BGQH.flatten(1, 2) @ label_BHU
    return pooled_BLU.unflatten(1, attention_BGQH.shape[1:3])


def correction(inputs: int, width: int) -> nn.Sequential:
    """Return a network (..., inputs) -> (..., 1) that corrects mean labels; its initial output is 0."""
    last = nn.Linear(width, 1)
    start_at_zero(last)
    return nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), last)


def start_at_zero(layer: nn.Linear) -> None:
    """Set the weights of a layer to 0, so that training starts from the uncorrected labels."""
    for parameter in layer.parameters():
        nn.init.zeros_(parameter)


class SquaredDistance:
    """A `Similarity`: minus the squared distance of a datapoint and an inducing point.

    The rest is one matrix product if the squared norm that is equal along the axis of the softmax is left
    out: that of the datapoint with axis "points", that of the point with axis "datapoints".
    """

    def __init__(self, axis: Axis = "points") -> None:
        self.axis = axis

    def sums(self, r_BHN: Tensor, x_BNX: Tensor) -> Tensor:
        """Return weighted sums (B, H, X) of the datapoints; the features are the datapoints themselves."""
        return r_BHN @ x_BNX.to(r_BHN.dtype)

    def keys(self, feature_BHF: Tensor) -> tuple[Tensor, Tensor]:
        """Return the features and their squared norms (B, 1, H)."""
        return feature_BHF, feature_BHF.square().sum(-1).unsqueeze(1)

    def scores(self, x_BNX: Tensor, keys: tuple[Tensor, Tensor]) -> Tensor:
        """Return the scores (B, N, H)."""
        feature_BHF, square_B1H = keys
        # disable autocast: terms that nearly cancel need float32
        with torch.autocast(x_BNX.device.type, enabled=False):
            x_BNX = x_BNX.to(feature_BHF.dtype)
            square = square_B1H if self.axis == "points" else x_BNX.square().sum(-1, keepdim=True)
            return 2 * x_BNX @ feature_BHF.mT - square


def spread_out(x_BNX: Tensor, count: int) -> CarriedPoints:
    """Return `count` initial points: the datapoints at quantiles of the feature with the largest variance.

    The choice does not depend on the order of the datapoints. All are returned if there are at most `count`.
    """
    n = x_BNX.shape[1]
    start_BHX = x_BNX
    if n > count:
        with torch.no_grad():
            column_B11 = x_BNX.var(1).argmax(-1)[:, None, None]
            # sort ties, which are frequent in categories, by a projection that separates unequal datapoints
            direction_X = torch.arange(1, x_BNX.shape[2] + 1, device=x_BNX.device).to(x_BNX.dtype).sqrt()
            tie_order_BN = (x_BNX @ direction_X).argsort(1)
            feature_BN = x_BNX.gather(2, column_B11.expand(-1, n, 1)).squeeze(-1)
            order_BN = tie_order_BN.gather(1, feature_BN.gather(1, tie_order_BN).argsort(stable=True))
            middle_H = (2 * torch.arange(count, device=x_BNX.device) + 1) * n // (2 * count)
            selected_BH1 = order_BN[:, middle_H].unsqueeze(-1)
        start_BHX = x_BNX.gather(1, selected_BH1.expand(-1, -1, x_BNX.shape[2]))
    return CarriedPoints(start_BHX, start_BHX[..., :0], start_BHX.new_ones(start_BHX.shape[:2]))


class Reading(NamedTuple):
    """Results of multi-head attention from queries to inducing points."""

    attention_BGQH: Tensor
    label_BGQU: Tensor  # mean labels
    feature_BQX: Tensor  # mean features minus the features of the query; each head has its own features
    # log of the mean of exp(-||q - h||^2) over the points (weighted by mass), without a gradient
    density_BGQ: Tensor


class LabelReader(nn.Module):
    """Multi-head attention from queries to inducing points that averages the labels of the points.

    The features are divided among the heads: head g has the logit -||q_g - h_g||^2 + log(mass_h), as if the
    datapoints of a point were copies of it. Thus a head is a kernel regression with a learned metric:
    neighbourhood components analysis (Goldberger et al., NeurIPS 2004), for tables ModernNCA (Ye et al., ICLR
    2025).
    """

    def __init__(self, heads: int) -> None:
        super().__init__()
        require_count("heads", heads)
        self.heads = heads

    def forward(self, q_BQX: Tensor, points: CarriedPoints) -> Reading:
        """Attend to the points from queries with the features of the encoder; padding gets no attention."""
        with torch.autocast(q_BQX.device.type, enabled=False):
            wide = torch.promote_types(q_BQX.dtype, torch.float32)
            points = points.to(wide)
            q_BGQP = q_BQX.to(wide).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            h_BGHP = points.feature_BHF.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            prior_B1H = points.log_mass_BH.unsqueeze(1)
            padding = torch.finfo(wide).min / 2  # below the logit of any point, however distant
            key_BGH = prior_B1H - h_BGHP.square().sum(-1)
            key_BGH = key_BGH.masked_fill((points.mass_BH <= 0).unsqueeze(1), padding)
            logit_BGQH = torch.baddbmm(
                key_BGH.flatten(0, 1).unsqueeze(1), 2 * q_BGQP.flatten(0, 1), h_BGHP.flatten(0, 1).mT
            ).unflatten(0, key_BGH.shape[:2])
            attention_BGQH = torch.softmax(logit_BGQH, -1)
            label_BGQU = pooled_labels(attention_BGQH, points.label_BHU)
            feature_BGQP = attention_BGQH @ h_BGHP - q_BGQP
            # logit - log(weight) is equal for all points; compute it from the largest weight, which is not 0
            with torch.no_grad():
                best_BGQ1 = attention_BGQH.argmax(-1, keepdim=True)
                best_logit_BGQ, best_weight_BGQ = (
                    x.gather(-1, best_BGQ1).squeeze(-1) for x in (logit_BGQH, attention_BGQH)
                )
                density_BGQ = best_logit_BGQ - best_weight_BGQ.log() - q_BGQP.square().sum(-1)
                # a mean instead of a sum, so that contexts of all sizes are on one scale
                density_BGQ -= prior_B1H.logsumexp(-1, keepdim=True)
        return Reading(attention_BGQH, label_BGQU, feature_BGQP.transpose(1, 2).flatten(2), density_BGQ)
