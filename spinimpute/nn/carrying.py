"""Attention that carries labels: inducing points that start from data, compete for it, and carry its labels.

An inducing point is a weighted mean of datapoints: of their features and, with the same weights, of their
labels, neither of them embedded. A query attends to inducing points and pools their labels. A `Similarity`
scores pairs; it starts as a likelihood or a distance, steep and the same for both sides, not as noise.

    XABD       paper, 3.2   H = MAB(H, X): softmax over datapoints, projected values, H starts from constants
               here         r_nh = softmax over H of score(x_n, h) + prior log(mass_h);
                            mass_h = sum_n r_nh, features and labels of h are means over n with weights r_nh;
                            H starts from datapoints
    predictor  paper, 3.2   a query attends to H, values are projected, a network gives the label
               here         head g pools the labels that H carries, p_gq = sum_h softmax_h(logit_gqh) label_h;
                            a network corrects what was pooled

So weights learn how to compare; what is true of this context comes from this context. They serve contexts and
columns of labels that they never saw.

Axes: see `spinimpute.nn`; X features of a datapoint, U labels of a datapoint.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from spinimpute.nn.shapes import require_count

NO_POINT = -1e4  # logit of an inducing point that is padding
SMALLEST_MASS = 1e-6  # avoids division by 0 where a point has won nothing
MASS_OFFSET = 0.1  # in log(mass + offset): a point that has won nothing keeps a finite prior

Keys = TypeVar("Keys")
LabelledChunk = tuple[Tensor, Tensor]  # x_BNX, label_BNU


class CarriedPoints(NamedTuple):
    """Inducing points with the labels that they carry.

    Attributes
    ----------
    feature_BHX : Tensor
        Mean features of the datapoints that each point stands for.
    label_BHU : Tensor
        Their mean labels; empty (B, H, 0) of starting points, which carry none yet.
    mass_BH : Tensor
        How many datapoints each point stands for; 1 for a starting point, 0 for padding.
    """

    feature_BHX: Tensor
    label_BHU: Tensor
    mass_BH: Tensor

    @property
    def log_mass_BH(self) -> Tensor:
        """Log of the mass, finite; that of padding far below all others."""
        return (self.mass_BH + MASS_OFFSET).log().masked_fill(self.mass_BH <= 0, NO_POINT)


class Similarity(Protocol[Keys]):
    """How alike datapoints and inducing points are."""

    def keys(self, feature_BHX: Tensor) -> Keys:
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
        self, chunks: Sequence[LabelledChunk], start: CarriedPoints, similarity: Similarity[Keys]
    ) -> CarriedPoints:
        """Encode a context that comes in chunks, each read once a round.

        What is kept of a chunk is sums over its datapoints. So the result does not depend on how the context
        is cut, and the memory is that of one chunk, in the backward pass too, which reads each chunk again.

        Parameters
        ----------
        chunks : sequence of (x_BNX, label_BNU)
            Datapoints and labels; read once a round, the same each time.
        start : CarriedPoints
            Datapoints that the inducing points start from.
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
        if not len(chunks):
            raise ValueError("chunks must hold at least one chunk, however: it is empty")
        points = start
        for turn in range(self.rounds):
            keys = similarity.keys(points.feature_BHX)
            prior_B1H = (
                (self.prior * points.log_mass_BH).masked_fill(start.mass_BH <= 0, NO_POINT).unsqueeze(1)
            )
            mass_BH, feature_BHX, label_BHU = _added_up(
                chunks, similarity, keys, prior_B1H, with_labels=turn == self.rounds - 1
            )
            divisor_BH1 = (mass_BH + SMALLEST_MASS).unsqueeze(-1)
            points = CarriedPoints(
                feature_BHX / divisor_BH1, label_BHU / divisor_BH1, mass_BH * (start.mass_BH > 0)
            )
        return points


Sums = tuple[Tensor, Tensor, Tensor]


def _added_up(
    chunks: Sequence[LabelledChunk],
    similarity: Similarity[Keys],
    keys: Keys,
    prior_B1H: Tensor,
    *,
    with_labels: bool,
) -> Sums:
    """Masses (B, H), and sums of features (B, H, X) and of all or no labels (B, H, U), of all chunks."""

    def won(x_BNX: Tensor, label_BNU: Tensor) -> Sums:
        score_BNH = similarity.scores(x_BNX, keys) + prior_B1H
        # sums over a large context need more digits than autocast keeps
        with torch.autocast(score_BNH.device.type, enabled=False):
            wide = torch.promote_types(score_BNH.dtype, torch.float32)
            r_BHN = torch.softmax(score_BNH.to(wide), dim=-1).transpose(1, 2)
            return r_BHN.sum(-1), r_BHN @ x_BNX.to(r_BHN.dtype), r_BHN @ label_BNU.to(r_BHN.dtype)

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


def read_labels(logit_BGQH: Tensor, points: CarriedPoints) -> tuple[Tensor, Tensor]:
    """Attention to inducing points and all labels pooled with it, `attend_to_points` and `pooled_labels`."""
    attention_BGQH = attend_to_points(logit_BGQH, points.mass_BH)
    return attention_BGQH, pooled_labels(attention_BGQH, points.label_BHU)


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
