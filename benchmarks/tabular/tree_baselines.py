"""Tree-like and boosted networks with which FT-Transformer is compared: NODE, TabNet, GrowNet.

They use our row estimators, with sizes that fit in the budget of the comparison; nothing is tuned.

Axes: N rows, X numbers of an input, T trees, D levels of a tree, L leaves, O outputs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from entmax import entmax15  # type: ignore[import-untyped]
from pytorch_tabnet.tab_network import TabNetNoEmbeddings  # type: ignore[import-untyped]
from sklearn.base import ClassifierMixin, RegressorMixin
from torch import Tensor, nn

from spinimpute.tabular.base import ClassifierOutputs, RegressorOutputs
from spinimpute.tabular.row_estimators import RowEstimator
from spinimpute.tabular.row_networks import FlatInput
from spinimpute.tabular.table import Rows, Schema


class ObliviousTrees(nn.Module):
    """Popov et al. (2020): each level of a tree compares one soft choice of the inputs with a threshold."""

    def __init__(self, numbers: int, trees: int, depth: int, outputs: int) -> None:
        super().__init__()
        self.choice_XTD = nn.Parameter(torch.rand(numbers, trees, depth))
        self.threshold_TD = nn.Parameter(torch.zeros(trees, depth))
        self.log_width_TD = nn.Parameter(torch.zeros(trees, depth))
        self.response_TLO = nn.Parameter(torch.randn(trees, 2**depth, outputs))
        self.register_buffer("started", torch.tensor(False))

    def forward(self, x_NX: Tensor) -> Tensor:
        """Return the responses of all trees, (N, T, O)."""
        chosen_NTD = torch.tensordot(x_NX, entmax15(self.choice_XTD, dim=0), 1)
        if not self.started:
            self._start(chosen_NTD.detach())
        margin_NTD = (chosen_NTD - self.threshold_TD) * torch.exp(-self.log_width_TD)
        above_NTD = entmax15_of_two(margin_NTD)
        weight_NTL = torch.ones_like(margin_NTD[..., :1])
        for level in range(margin_NTD.shape[-1]):
            above_NTL = weight_NTL * above_NTD[:, :, level, None]
            weight_NTL = torch.cat((above_NTL, weight_NTL - above_NTL), -1)
        return torch.einsum("ntl,tlo->nto", weight_NTL, self.response_TLO)

    @torch.no_grad()
    def _start(self, chosen_NTD: Tensor) -> None:
        """Start thresholds at inputs of the first batch, so that the whole batch reaches either side."""
        row_TD = torch.randint(len(chosen_NTD), self.threshold_TD.shape)
        self.threshold_TD.copy_(chosen_NTD.gather(0, row_TD[None])[0])
        self.log_width_TD.copy_(((chosen_NTD - self.threshold_TD).abs().amax(0) + 1e-6).log())
        self.started.fill_(True)  # type: ignore[operator]


def entmax15_of_two(x: Tensor) -> Tensor:
    """The first of entmax15((x, 0)): with t so that ((x / 2 - t)^2, t^2) sum to 1, that is (x / 2 - t)^2."""
    x = x.clamp(-2, 2)  # further away one of them has all
    return ((x + (8 - x.square()).sqrt()) / 4).square()


class NODE(nn.Module):
    """Layers of trees; each layer reads the row and all trees before it. The output is their mean."""

    def __init__(self, schema: Schema, outputs: int, layers: int, trees: int, depth: int) -> None:
        super().__init__()
        self.input, self.outputs = FlatInput(schema), outputs
        own = outputs + 1  # of a tree: one number more for the layers behind
        self.layers = nn.ModuleList(
            ObliviousTrees(self.input.width + i * trees * own, trees, depth, own) for i in range(layers)
        )

    def forward(self, rows: Rows) -> Tensor:
        x_NX, found = self.input(rows), []
        for layer in self.layers:
            found.append(layer(x_NX))
            x_NX = torch.cat((x_NX, found[-1].flatten(1)), 1)
        return torch.cat(found, 1)[..., : self.outputs].mean(1)


class TabNet(nn.Module):
    """Arik & Pfister (2021), as in pytorch-tabnet, without the entropy loss of the masks."""

    def __init__(self, schema: Schema, outputs: int, width: int, decisions: int, gamma: float) -> None:
        super().__init__()
        self.input = FlatInput(schema)
        self.network = TabNetNoEmbeddings(
            self.input.width, outputs, n_d=width, n_a=width, n_steps=decisions, gamma=gamma
        )

    def forward(self, rows: Rows) -> Tensor:
        outputs: Tensor = self.network(self.input(rows))[0]
        return outputs


class Learner(nn.Module):
    """A shallow network, whose hidden layer is an input of the next learner."""

    def __init__(self, numbers: int, width: int, outputs: int) -> None:
        super().__init__()
        self.hidden = nn.Sequential(
            nn.Linear(numbers, width), nn.ReLU(), nn.BatchNorm1d(width), nn.Linear(width, width), nn.ReLU()
        )
        self.head = nn.Linear(width, outputs)

    def forward(self, x_NX: Tensor) -> tuple[Tensor, Tensor]:
        hidden_NX = self.hidden(x_NX)
        return hidden_NX, self.head(hidden_NX)


class GrowNet(nn.Module):
    """Badirli et al. (2020): learners are added one by one, each to the sum of those before.

    The last CORRECTED steps of a learner train all learners so far.
    """

    CORRECTED = 1 / 3

    def __init__(self, schema: Schema, outputs: int, learners: int, width: int, steps: int) -> None:
        super().__init__()
        self.input = FlatInput(schema)
        self.learners = nn.ModuleList(
            Learner(self.input.width + (width if k else 0), width, outputs) for k in range(learners)
        )
        self.rate_K = nn.Parameter(torch.ones(learners))
        self.bias_O = nn.Parameter(torch.zeros(outputs))
        self.steps_of_one = math.ceil(steps / learners)
        self.register_buffer("step", torch.tensor(0))  # kept with the weights: how many learners there are

    def forward(self, rows: Rows) -> Tensor:
        step = int(self.step) - (not self.training)  # type: ignore[arg-type]
        stage = min(max(step, 0) // self.steps_of_one, len(self.learners) - 1)
        all_learn = step - stage * self.steps_of_one >= (1 - self.CORRECTED) * self.steps_of_one
        x_NX = given_NX = self.input(rows)
        sum_NO = self.bias_O.expand(len(x_NX), -1)
        for k, learner in enumerate(self.learners[: stage + 1]):
            hidden_NX, out_NO = learner(given_NX)
            out_NO = self.rate_K[k] * out_NO
            if k < stage and not all_learn:
                hidden_NX, out_NO = hidden_NX.detach(), out_NO.detach()
            sum_NO = sum_NO + out_NO
            given_NX = torch.cat((x_NX, hidden_NX), 1)
        if self.training:
            self.step += 1
        return sum_NO


@dataclass(kw_only=True, eq=False, repr=False)
class NODEEstimator(RowEstimator):
    layers: int = 2
    trees: int = 128
    depth: int = 5
    learning_rate: float = 1e-2  # of few steps
    weight_decay: float = 0.0
    scaling: str = "quantile"

    def _make_network(self) -> nn.Module:
        return NODE(self.encoder_.schema_, self._n_outputs, self.layers, self.trees, self.depth)


@dataclass(kw_only=True, eq=False, repr=False)
class TabNetEstimator(RowEstimator):
    width: int = 16
    decisions: int = 4
    gamma: float = 1.5
    learning_rate: float = 1e-2
    scaling: str = "quantile"

    def _make_network(self) -> nn.Module:
        return TabNet(self.encoder_.schema_, self._n_outputs, self.width, self.decisions, self.gamma)


@dataclass(kw_only=True, eq=False, repr=False)
class GrowNetEstimator(RowEstimator):
    learners: int = 20
    width: int = 32
    scaling: str = "quantile"

    def _make_network(self) -> nn.Module:
        return GrowNet(self.encoder_.schema_, self._n_outputs, self.learners, self.width, self.steps)


class NODERegressor(RegressorMixin, RegressorOutputs, NODEEstimator):
    pass


class NODEClassifier(ClassifierMixin, ClassifierOutputs, NODEEstimator):
    pass


class TabNetRegressor(RegressorMixin, RegressorOutputs, TabNetEstimator):
    pass


class TabNetClassifier(ClassifierMixin, ClassifierOutputs, TabNetEstimator):
    pass


class GrowNetRegressor(RegressorMixin, RegressorOutputs, GrowNetEstimator):
    pass


class GrowNetClassifier(ClassifierMixin, ClassifierOutputs, GrowNetEstimator):
    pass
