"""Attention that carries labels: inducing points that start from data, compete for it, and carry its labels.

An inducing point is a weighted mean of datapoints: of their features and, with the same weights, of their
labels, neither of them embedded. A query attends to inducing points and pools their labels. A `Similarity`
says what the features are and scores pairs; it starts as a likelihood or a distance, steep and the same for
both sides, not as noise.

    XABD       paper, 3.2   H = MAB(H, X): softmax over datapoints, projected values, H starts from constants
               here         r_nh = softmax over H of score(x_n, h) + prior log(mass_h);
                            mass_h = sum_n r_nh, features and labels of h are means over n with weights r_nh;
                            H starts from datapoints, or from means of some
    predictor  paper, 3.2   a query attends to H, values are projected, a network gives the label
               here         head g pools the labels that H carries, p_gq = sum_h softmax_h(logit_gqh) label_h
                            (`LabelReader`); a network corrects what was pooled
                            (`spinimpute.nn.predictors.CorrectingPredictor`)

So weights learn how to compare; what is true of this context comes from this context. They serve contexts and
columns of labels that they never saw.

Axes: see `spinimpute.nn`; X numbers of a datapoint, F features of an inducing point, often the same; U labels
of a datapoint.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from spinimpute.nn.shapes import require_count, require_dimensions

NO_POINT = -1e30  # logit of an inducing point that is padding: below all others
SMALLEST_MASS = 1e-30  # avoids division by 0 where a point has won nothing
MASS_OFFSET = 0.1  # in log(mass + offset): a point that has won nothing keeps a finite prior

Keys = TypeVar("Keys")
LabelledChunk = tuple[Tensor, Tensor]  # x_BNX, label_BNU


class LabelledChunks(Protocol):
    """A context in chunks that can be gone through again; each may be made when it is asked for."""

    def __len__(self) -> int:
        """How many."""
        ...

    def __iter__(self) -> Iterator[LabelledChunk]:
        """From the first one; the same each time."""
        ...


class CarriedPoints(NamedTuple):
    """Inducing points with the labels that they carry.

    Attributes
    ----------
    feature_BHF : Tensor
        Mean features of the datapoints that each point stands for.
    label_BHU : Tensor
        Their mean labels; empty (B, H, 0) of starting points, which carry none yet.
    mass_BH : Tensor
        How many datapoints each point stands for; 1 for a starting point, 0 for padding.
    """

    feature_BHF: Tensor
    label_BHU: Tensor
    mass_BH: Tensor

    @property
    def log_mass_BH(self) -> Tensor:
        """Log of the mass, finite; that of padding far below all others."""
        return (self.mass_BH + MASS_OFFSET).log().masked_fill(self.mass_BH <= 0, NO_POINT)


class Similarity(Protocol[Keys]):
    """How alike datapoints and inducing points are."""

    def sums(self, r_BHN: Tensor, x_BNX: Tensor) -> Tensor:
        """Sums (B, H, F) of the features of datapoints, with these weights."""
        ...

    def keys(self, feature_BHF: Tensor) -> Keys:
        """What scores need of the inducing points, computed once a round."""
        ...

    def scores(self, x_BNX: Tensor, keys: Keys) -> Tensor:
        """Scores (B, N, H) of datapoints and inducing points."""
        ...


class CompetingEncoder(nn.Module, Generic[Keys]):
    """Inducing points compete for the datapoints of a context and carry what they win.

    Parameters
    ----------
    rounds : int
        How often the datapoints are shared out.

    Raises
    ------
    ValueError
        Rounds are no count.
    """

    def __init__(self, rounds: int) -> None:
        super().__init__()
        require_count("rounds", rounds)
        self.rounds = rounds
        self.prior = nn.Parameter(torch.tensor(0.5))

    def forward(
        self, chunks: LabelledChunks, start: CarriedPoints, similarity: Similarity[Keys]
    ) -> CarriedPoints:
        """Encode a context that comes in chunks, each read once a round.

        What is kept of a chunk is sums over its datapoints. So the result does not depend on how the context
        is cut, and the memory is that of one chunk, in the backward pass too, which reads each chunk again.

        Parameters
        ----------
        chunks : LabelledChunks of (x_BNX, label_BNU)
            Datapoints and labels; read once a round, the same each time.
        start : CarriedPoints
            What the inducing points start from: datapoints, or means of some.
        similarity : Similarity
            Scores datapoints and inducing points.

        Returns
        -------
        CarriedPoints
            Inducing points of the whole context.

        Raises
        ------
        ValueError
            There is no chunk.
        """
        return self._after(self.rounds, chunks, start, similarity)

    def shares(self, chunks: LabelledChunks, start: CarriedPoints, similarity: Similarity[Keys]) -> Tensor:
        """How much of each inducing point comes from each datapoint: the weights of its means.

        Parameters
        ----------
        chunks, start, similarity
            As of `forward`.

        Returns
        -------
        Tensor (B, H, N)
            Rows sum to 1; those of padding are 0.
        """
        points = self._after(self.rounds - 1, chunks, start, similarity)
        keys, prior_B1H = similarity.keys(points.feature_BHF), self._prior(points, start)
        r_BHN = torch.cat([_won(x_BNX, similarity, keys, prior_B1H) for x_BNX, _ in chunks], -1)
        present_BH1 = (start.mass_BH > 0).unsqueeze(-1)
        return r_BHN * present_BH1 / r_BHN.sum(-1, keepdim=True).clamp(min=SMALLEST_MASS)

    def _after(
        self,
        rounds: int,
        chunks: LabelledChunks,
        start: CarriedPoints,
        similarity: Similarity[Keys],
    ) -> CarriedPoints:
        if not len(chunks):
            raise ValueError("chunks must hold at least one chunk, however: it is empty")
        points = start
        for turn in range(rounds):
            keys, prior_B1H = similarity.keys(points.feature_BHF), self._prior(points, start)
            mass_BH, feature_BHF, label_BHU = _added_up(
                chunks, similarity, keys, prior_B1H, with_labels=turn == rounds - 1
            )
            divisor_BH1 = mass_BH.clamp(min=SMALLEST_MASS).unsqueeze(-1)
            points = CarriedPoints(
                feature_BHF / divisor_BH1, label_BHU / divisor_BH1, mass_BH * (start.mass_BH > 0)
            )
        return points

    def _prior(self, points: CarriedPoints, start: CarriedPoints) -> Tensor:
        """Log prior of the points (B, 1, H)."""
        absent_BH = (start.mass_BH <= 0) | (points.mass_BH <= 0)
        return (self.prior * points.log_mass_BH).masked_fill(absent_BH, NO_POINT).unsqueeze(1)


Sums = tuple[Tensor, Tensor, Tensor]


def _added_up(
    chunks: LabelledChunks,
    similarity: Similarity[Keys],
    keys: Keys,
    prior_B1H: Tensor,
    *,
    with_labels: bool,
) -> Sums:
    """Masses (B, H), and sums of features (B, H, F) and of all or no labels (B, H, U), of all chunks."""

    def won(x_BNX: Tensor, label_BNU: Tensor) -> Sums:
        r_BHN = _won(x_BNX, similarity, keys, prior_B1H)
        # sums over a large context need more digits than autocast keeps
        with torch.autocast(r_BHN.device.type, enabled=False):
            return r_BHN.sum(-1), similarity.sums(r_BHN, x_BNX), r_BHN @ label_BNU.to(r_BHN.dtype)

    total: Sums | None = None
    for x_BNX, label_BNU in chunks:
        label_BNU = label_BNU if with_labels else label_BNU[..., :0]
        if torch.is_grad_enabled() and len(chunks) > 1:
            part: Sums = checkpoint(won, x_BNX, label_BNU, use_reentrant=False)
        else:
            part = won(x_BNX, label_BNU)
        total = part if total is None else (total[0] + part[0], total[1] + part[1], total[2] + part[2])
    assert total is not None, "`forward` has counted the chunks"
    return total


def _won(x_BNX: Tensor, similarity: Similarity[Keys], keys: Keys, prior_B1H: Tensor) -> Tensor:
    """The share of each datapoint that each point wins, (B, H, N), in float32 at least."""
    score_BNH = similarity.scores(x_BNX, keys) + prior_B1H
    wide = torch.promote_types(score_BNH.dtype, torch.float32)
    return torch.softmax(score_BNH.to(wide), dim=-1).transpose(1, 2)


def attend_to_points(logit_BGQH: Tensor, mass_BH: Tensor) -> Tensor:
    """Attention of head G and query Q to points; none to padding.

    Parameters
    ----------
    logit_BGQH : Tensor
        Before the softmax.
    mass_BH : Tensor
        Of the points, 0 for padding.

    Returns
    -------
    Tensor (B, G, Q, H)
        Sums to 1 over H.
    """
    return torch.softmax(logit_BGQH.masked_fill((mass_BH <= 0)[:, None, None], NO_POINT), dim=-1)


def pooled_labels(attention_BGQH: Tensor, label_BHU: Tensor) -> Tensor:
    """Labels that points carry, pooled with this attention.

    Parameters
    ----------
    attention_BGQH : Tensor
        See `attend_to_points`.
    label_BHU : Tensor
        As of `CarriedPoints`, of all labels or some.

    Returns
    -------
    Tensor (B, G, Q, U)
        Means of the labels.
    """
    pooled_BLU = attention_BGQH.flatten(1, 2) @ label_BHU
    return pooled_BLU.unflatten(1, attention_BGQH.shape[1:3])


def correction(inputs: int, width: int) -> nn.Sequential:
    """A network of two hidden layers whose one output corrects what was pooled; it starts at zero.

    Parameters
    ----------
    inputs : int
        What is known of the query, of the label, and of the attention that pooled it.
    width : int
        Of the hidden layers.

    Returns
    -------
    nn.Sequential
        (..., inputs) -> (..., 1).
    """
    last = nn.Linear(width, 1)
    start_at_zero(last)
    return nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), last)


def start_at_zero(layer: nn.Linear) -> None:
    """Set a layer's weights to zero: training starts with what is carried, uncorrected."""
    for parameter in layer.parameters():
        nn.init.zeros_(parameter)


class Nearness:
    """A `Similarity`: minus the squared distance.

    Of it the datapoint's own square is left out, which is the same for all points: no softmax over points
    sees it. What is left is one matrix product.
    """

    def sums(self, r_BHN: Tensor, x_BNX: Tensor) -> Tensor:
        """Sums (B, H, X): a datapoint's numbers are its features."""
        return r_BHN @ x_BNX.to(r_BHN.dtype)

    def keys(self, feature_BHF: Tensor) -> tuple[Tensor, Tensor]:
        """Features and their squares (B, 1, H)."""
        return feature_BHF, feature_BHF.square().sum(-1).unsqueeze(1)

    def scores(self, x_BNX: Tensor, keys: tuple[Tensor, Tensor]) -> Tensor:
        """Scores (B, N, H)."""
        feature_BHF, square_B1H = keys
        # squares that nearly cancel need more digits than autocast keeps
        with torch.autocast(x_BNX.device.type, enabled=False):
            return 2 * x_BNX.to(feature_BHF.dtype) @ feature_BHF.mT - square_B1H


def spread_out(x_BNX: Tensor, count: int) -> CarriedPoints:
    """Datapoints that inducing points start from: quantiles along the feature that varies most.

    The choice depends on what the datapoints are, never on their order. Of no more than `count` datapoints
    it is all of them.

    Parameters
    ----------
    x_BNX : Tensor
        Datapoints.
    count : int
        How many points are wanted.

    Returns
    -------
    CarriedPoints
        `count` points, or N where that is less, without labels.

    Raises
    ------
    ValueError
        x has not three dimensions, or count is none.
    """
    require_dimensions("x", x_BNX, 3)
    require_count("count", count)
    n = x_BNX.shape[1]
    start_BHX = x_BNX
    if n > count:
        with torch.no_grad():
            widest_B11 = x_BNX.var(1).argmax(-1)[:, None, None]
            # where that feature ties, as classes do, along a direction that tells different datapoints apart
            direction_X = torch.arange(1, x_BNX.shape[2] + 1, device=x_BNX.device).to(x_BNX.dtype).sqrt()
            tied_BN = (x_BNX @ direction_X).argsort(1)
            feature_BN = x_BNX.gather(2, widest_B11.expand(-1, n, 1)).squeeze(-1)
            order_BN = tied_BN.gather(1, feature_BN.gather(1, tied_BN).argsort(stable=True))
            middle_H = (2 * torch.arange(count, device=x_BNX.device) + 1) * n // (2 * count)
            chosen_BH1 = order_BN[:, middle_H].unsqueeze(-1)
        start_BHX = x_BNX.gather(1, chosen_BH1.expand(-1, -1, x_BNX.shape[2]))
    return CarriedPoints(start_BHX, start_BHX[..., :0], start_BHX.new_ones(start_BHX.shape[:2]))


class Read(NamedTuple):
    """What queries have read of inducing points, with several heads.

    Attributes
    ----------
    attention_BGQH : Tensor
    label_BGQU : Tensor
        Pooled labels.
    feature_BQX : Tensor
        Pooled features less those of the query: a head's own of each head.
    density_BGQ : Tensor
        Log of the summed weights before they are normalised: how near a query is to any point. It has no
        gradient.
    """

    attention_BGQH: Tensor
    label_BGQU: Tensor
    feature_BQX: Tensor
    density_BGQ: Tensor


class LabelReader(nn.Module):
    """Queries attend to inducing points with several heads and pool what they carry.

    The features are shared out among the heads: head g has the logit -||q_g - h_g||^2 + prior_g log(mass_h).
    Where each point is a datapoint, a head is a kernel regression with a learned metric.

    Parameters
    ----------
    heads : int
        G; must divide the features.

    Raises
    ------
    ValueError
        Heads are no count.

    References
    ----------
    Neighbourhood components: Goldberger et al., NeurIPS 2004; for tables: Ye et al., ModernNCA, ICLR 2025.
    """

    def __init__(self, heads: int) -> None:
        super().__init__()
        require_count("heads", heads)
        self.heads = heads
        self.prior_G = nn.Parameter(torch.ones(heads))

    def forward(self, q_BQX: Tensor, points: CarriedPoints) -> Read:
        """Read.

        Parameters
        ----------
        q_BQX : Tensor
            Queries, as the encoder's datapoints.
        points : CarriedPoints
            Padding among them gets no attention.

        Returns
        -------
        Read
            Attention, and what it pools.
        """
        with torch.autocast(q_BQX.device.type, enabled=False):
            wide = torch.promote_types(q_BQX.dtype, torch.float32)
            points = CarriedPoints(*(part.to(wide) for part in points))
            q_BGQP = q_BQX.to(wide).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            h_BGHP = points.feature_BHF.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            prior_BGH = self.prior_G[:, None] * points.log_mass_BH.unsqueeze(1)
            key_BGH = prior_BGH - h_BGHP.square().sum(-1)
            # below any point that is there, however far
            nowhere = torch.finfo(wide).min / 2
            key_BGH = key_BGH.masked_fill((points.mass_BH <= 0).unsqueeze(1), nowhere)
            logit_BGQH = torch.baddbmm(
                key_BGH.flatten(0, 1).unsqueeze(1),
                2 * q_BGQP.flatten(0, 1),
                h_BGHP.flatten(0, 1).mT,
            ).unflatten(0, key_BGH.shape[:2])
            attention_BGQH = torch.softmax(logit_BGQH, -1)
            label_BGQU = pooled_labels(attention_BGQH, points.label_BHU)
            feature_BGQP = attention_BGQH @ h_BGHP - q_BGQP
            with torch.no_grad():  # of the point that is read most
                most_BGQ1 = attention_BGQH.argmax(-1, keepdim=True)
                logit_BGQ, share_BGQ = (
                    x.gather(-1, most_BGQ1).squeeze(-1) for x in (logit_BGQH, attention_BGQH)
                )
                density_BGQ = logit_BGQ - share_BGQ.log() - q_BGQP.square().sum(-1)
        return Read(attention_BGQH, label_BGQU, feature_BGQP.transpose(1, 2).flatten(2), density_BGQ)
