"""The predictors of SPIN models: networks that map a query and the inducing points H to logits.

The prediction of a query depends only on its own attributes and on H, not on other queries. There are three
predictors with different numbers of weights (tokenwise, flat and row), and one that corrects mean labels.

Axes: see `spinimpute.nn`.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from spinimpute.nn.attention import ABA, MAB, MABOptions
from spinimpute.nn.carrying import Reading
from spinimpute.nn.checks import require_column, require_count
from spinimpute.nn.embedding import ColumnHead

SHARE_OFFSET = 0.01  # added to the mean share of each class before taking logarithms
DENSITY_SCALE = 10.0  # log densities are divided by this number, then mapped to -1 ... 1 by softsign


class TokenwiseReader(nn.Module):
    """The function r(x, H) of the paper: tokens of a query attend to the latent tokens of inducing points.

    A layer is self-attention among the tokens of one query, then cross-attention to the H * F latent tokens.
    Without the self-attention, a masked token could not use the query's other tokens to choose inducing
    points. The number of weights is O(E^2), and the number of attributes may change from call to call.
    """

    def __init__(self, width: int, layers: int, options: MABOptions) -> None:
        super().__init__()
        require_count("predictor_layers", layers)
        self.mix = nn.ModuleList(ABA(width, options) for _ in range(layers))
        self.read = nn.ModuleList(MAB(width, width, options) for _ in range(layers))

    def forward(self, x_BQDE: Tensor, h_BHFE: Tensor) -> Tensor:
        """Return the tokens (B, Q, D, E) of embedded queries after attending to the inducing points."""
        latents = h_BHFE.flatten(1, 2)
        for mix, read in zip(self.mix, self.read, strict=True):
            x_BQDE = mix(x_BQDE)
            x_BQDE = read(x_BQDE.flatten(1, 2), latents).unflatten(1, x_BQDE.shape[1:3])
        return x_BQDE


class TokenwisePredictor(nn.Module):
    """A `TokenwiseReader`, then a linear map of every token to its logits."""

    def __init__(
        self, width: int, outputs: int, columns: int | None, layers: int, options: MABOptions
    ) -> None:
        super().__init__()
        self.reader = TokenwiseReader(width, layers, options)
        self.head = ColumnHead(width, outputs, columns)

    def forward(self, x_BQDE: Tensor, h_BHFE: Tensor) -> Tensor:
        """Return logits (B, Q, D, K) of every attribute."""
        return self.head(self.reader(x_BQDE, h_BHFE))


class FlatPredictor(nn.Module):
    """The paper's predictor: MAB(flatten(X), flatten(H)) at width D * E, then a linear map of every token.

    `flatten` joins the tokens of a row to one vector. The predictor has O((D * E)^2) weights: 7.31M of the
    8.05M weights of SPIN-16.
    """

    def __init__(
        self, width: int, outputs: int, columns: int, latent_attributes: int, options: MABOptions
    ) -> None:
        super().__init__()
        self.width = width
        self.columns = columns
        self.mab = MAB(columns * width, latent_attributes * width, options)
        self.head = ColumnHead(width, outputs, columns)

    def forward(self, x_BQDE: Tensor, h_BHFE: Tensor) -> Tensor:
        """Return logits (B, Q, D, K) of every attribute."""
        out = self.mab(x_BQDE.flatten(-2), h_BHFE.flatten(-2))
        return self.head(out.unflatten(-1, (self.columns, self.width)))


class MemberFold(nn.Linear):
    """Linear projection of rows to R numbers for each of A ensemble members.

    Members share all weights except the factors by which the numbers of a row are multiplied. In
    `continuous` columns these factors are initialized with normal numbers; in categorical columns with one
    random sign per column, which preserves the distances between categories. Gorishniy et al., TabM, ICLR
    2025, section 3, "TabM-mini".
    """

    def __init__(
        self, width: int, columns: int, row_width: int, members: int, continuous: Sequence[int] = ()
    ) -> None:
        super().__init__(columns * width, row_width)
        require_count("members", members)
        self.scaling: nn.Parameter | None = None
        if members > 1:
            scaling_A1DE = (2.0 * torch.randint(2, (members, 1, columns, 1)) - 1).repeat(1, 1, 1, width)
            scaling_A1DE[:, :, list(continuous)] = torch.randn(members, 1, len(continuous), width)
            self.scaling = nn.Parameter(scaling_A1DE.flatten(-2))

    def forward(self, x_BQDE: Tensor) -> Tensor:
        """Project rows: (B, Q, D, E) -> (B, A, Q, R)."""
        x_BQU = x_BQDE.flatten(-2)
        if self.scaling is None:
            return super().forward(x_BQU)[:, None]
        # scale the weights, not the queries, which would need a copy for every member
        weight_ARU = self.weight * self.scaling
        row_BQAR = functional.linear(x_BQU, weight_ARU.flatten(0, 1)).unflatten(-1, weight_ARU.shape[:2])
        return (row_BQAR + self.bias).transpose(1, 2)


class RowPredictor(nn.Module):
    """Variant of the paper's predictor with fewer weights: rows are first projected to R numbers.

    It computes X + unfold(MAB(fold(X), flatten(H))) with one or more MABs, then a linear map of every token;
    fold and unfold are linear maps to and from R numbers. It has O(D * E * R) weights instead of
    O((D * E)^2). The A members share all weights except the factors of `MemberFold` and the map to logits.
    Each member is trained on its own loss; the prediction is the mean over members.
    """

    def __init__(
        self,
        width: int,
        outputs: int,
        columns: int,
        *,
        latent_attributes: int,
        row_width: int,
        layers: int,
        options: MABOptions,
        members: int = 1,
        continuous: Sequence[int] = (),
    ) -> None:
        super().__init__()
        require_count("predictor_layers", layers)
        self.width = width
        self.columns = columns
        self.members = members
        self.fold = MemberFold(width, columns, row_width, members, continuous)
        self.read = nn.ModuleList(MAB(row_width, latent_attributes * width, options) for _ in range(layers))
        self.unfold = nn.Linear(row_width, columns * width)
        self.head = ColumnHead(width, outputs, members * columns)

    def forward(self, x_BQDE: Tensor, h_BHFE: Tensor, only: int | None = None) -> Tensor:
        """Return logits (B, A * Q, D, K): all queries by the first member, then all by the second, and so on.

        With `only`, compute only the logits (B, A * Q, 1, K) of that column.
        """
        require_column(only, self.columns)
        row_BLR = self.fold(x_BQDE).flatten(1, 2)
        for read in self.read:
            row_BLR = read(row_BLR, h_BHFE.flatten(-2))
        first, after = (0, self.columns) if only is None else (only % self.columns, only % self.columns + 1)
        numbers = slice(first * self.width, after * self.width)
        unfolded_BLU = functional.linear(row_BLR, self.unfold.weight[numbers], self.unfold.bias[numbers])
        row_BAQDE = unfolded_BLU.unflatten(1, (self.members, -1)).unflatten(-1, (-1, self.width))
        token_BAQDE = x_BQDE[:, None, :, first:after] + row_BAQDE
        # the head has separate maps for each member's columns
        heads = slice(first, None, 1 if only is None else self.columns)
        logit_BQLK = self.head(token_BAQDE.transpose(1, 2).flatten(2, 3), heads)
        return logit_BQLK.unflatten(2, (self.members, -1)).transpose(1, 2).flatten(1, 2)


class CorrectionLayer(nn.Module):
    """Residual layer x + narrow(dropout(relu(widen(norm(x))))). All members share one dropout mask."""

    def __init__(self, row_width: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(row_width)
        self.widen = nn.Linear(row_width, 2 * row_width)
        self.narrow = nn.Linear(2 * row_width, row_width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x_BAQR: Tensor) -> Tensor:
        """Transform rows, (B, A, Q, R) -> (B, A, Q, R)."""
        hidden_BAQR = torch.relu(self.widen(self.norm(x_BAQR)))
        if self.training and self.dropout.p:
            hidden_BAQR = hidden_BAQR * self.dropout(torch.ones_like(hidden_BAQR[:, :1]))
        return x_BAQR + self.narrow(hidden_BAQR)


class CorrectingPredictor(nn.Module):
    """Mean labels of inducing points plus a correction that a network computes from the query.

        p_a   = sum_g softmax_g(gate_a)_g label_g             mean labels of the heads g, mixed by member a
        row_a = relu(fold_a(x) + read(label, feature, density))
        out_a = base(p_a) + head_a(layers(row_a))             head_a is initialized with zeros

    `base` is the logarithm for probabilities and the identity for numbers. An untrained predictor therefore
    returns the mean labels. Each of the A members (see `MemberFold`) is trained on its own loss; the
    prediction is the mean over members. The correction follows TabR (Gorishniy et al., ICLR 2024, section 3).
    """

    def __init__(
        self,
        *,
        width: int,
        columns: int,
        outputs: int,
        features: int,
        heads: int,
        row_width: int,
        layers: int,
        members: int,
        continuous: Sequence[int] = (),
        probabilities: bool,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        require_count("predictor_layers", layers)
        self.members = members
        self.probabilities = probabilities
        self.gate_AG = nn.Parameter(torch.zeros(members, heads))
        self.fold = MemberFold(width, columns, row_width, members, continuous)
        self.read = nn.Linear(heads * (outputs + 1) + features, row_width)
        self.layers = nn.ModuleList(CorrectionLayer(row_width, dropout) for _ in range(layers))
        self.head_A1RO = nn.Parameter(torch.zeros(members, 1, row_width, outputs))
        self.bias_A1O = nn.Parameter(torch.zeros(members, 1, outputs))

    def forward(self, x_BQDE: Tensor, read: Reading) -> tuple[Tensor, Tensor]:
        """Return the logits or numbers (B, A, Q, O) of all members, with and without the correction."""
        label_BQGU = read.label_BGQU.transpose(1, 2)
        pooled_BAQU = torch.einsum("ag,bqgu->baqu", self.mixture().to(label_BQGU.dtype), label_BQGU)
        base_BAQO = log_of_shares(pooled_BAQU) if self.probabilities else pooled_BAQU
        # bounded: for a row far from all points, the input stays in the range of training
        density_BQG = functional.softsign(read.density_BGQ.transpose(1, 2) / DENSITY_SCALE)
        reading_BQI = torch.cat((label_BQGU.flatten(2), read.feature_BQX, density_BQG), -1)
        read_BQR = self.read(reading_BQI.to(x_BQDE.dtype))
        row_BAQR = torch.relu(self.fold(x_BQDE) + read_BQR[:, None])
        for layer in self.layers:
            row_BAQR = layer(row_BAQR)
        correction_BAQO = (row_BAQR.unsqueeze(-2) @ self.head_A1RO).squeeze(-2) + self.bias_A1O
        return base_BAQO + correction_BAQO, base_BAQO

    def mixture(self) -> Tensor:
        """Return the weights of the heads for each member, (A, G); rows sum to 1."""
        return torch.softmax(self.gate_AG, -1)


def log_of_shares(share: Tensor) -> Tensor:
    """Return the logits of mean class shares; they are finite even for a class with share 0."""
    return (share + SHARE_OFFSET).log()
