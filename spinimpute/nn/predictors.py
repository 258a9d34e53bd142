"""Predictors: from a query's embeddings and the inducing points to logits of every attribute.

Queries never meet: each is predicted from its own attributes and H alone.

Axes: see `spinimpute.nn`.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from spinimpute.nn.attention import ABA, MAB, MABOptions
from spinimpute.nn.embedding import ColumnHead
from spinimpute.nn.shapes import require_column, require_count, require_dimensions, require_size


class TokenwiseReader(nn.Module):
    """r(x, H): every token of a query reads the latent tokens of all inducing points.

    A layer is self-attention among the tokens of one query (without it a masked token would ask the same
    question whatever its neighbours hold), then cross-attention to the H * F latent tokens. All weights are
    O(E^2), and the number of attributes may change from call to call.
    """

    def __init__(self, width: int, layers: int, options: MABOptions) -> None:
        super().__init__()
        require_count("predictor_layers", layers)
        self.width = width
        self.mix = nn.ModuleList(ABA(width, options) for _ in range(layers))
        self.read = nn.ModuleList(MAB(width, width, options) for _ in range(layers))

    def forward(self, x_BQDE: Tensor, h_BHFE: Tensor) -> Tensor:
        """Read.

        Parameters
        ----------
        x_BQDE : Tensor
            Embedded queries.
        h_BHFE : Tensor
            Inducing points.

        Returns
        -------
        Tensor (B, Q, D, E)
            Tokens of the queries that have read the inducing points.

        Raises
        ------
        ValueError
            A shape does not fit.
        """
        _check(x_BQDE, h_BHFE, self.width)
        latents = h_BHFE.flatten(1, 2)
        for mix, read in zip(self.mix, self.read, strict=True):
            x_BQDE = mix(x_BQDE)
            x_BQDE = read(x_BQDE.flatten(1, 2), latents).unflatten(1, x_BQDE.shape[1:3])
        return x_BQDE


class TokenwisePredictor(nn.Module):
    """`TokenwiseReader`, then a linear map of every token to its logits."""

    def __init__(
        self, width: int, outputs: int, columns: int | None, layers: int, options: MABOptions
    ) -> None:
        super().__init__()
        self.reader = TokenwiseReader(width, layers, options)
        self.head = ColumnHead(width, outputs, columns)

    def forward(self, x_BQDE: Tensor, h_BHFE: Tensor) -> Tensor:
        """Logits (B, Q, D, K) of every attribute; parameters as of `TokenwiseReader.forward`."""
        return self.head(self.reader(x_BQDE, h_BHFE))


class FlatPredictor(nn.Module):
    """The paper's predictor: MAB(unfold(X), unfold(H)) at width D * E, then a linear map of every token.

    Its (D * E)^2 weights dominate the model: 7.31M of SPIN-16's 8.05M.
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
        """Logits (B, Q, D, K) of every attribute; parameters as of `TokenwiseReader.forward`."""
        _check(x_BQDE, h_BHFE, self.width)
        require_size("x", x_BQDE, 2, self.columns, "columns")
        out = self.mab(x_BQDE.flatten(-2), h_BHFE.flatten(-2))
        return self.head(out.unflatten(-1, (self.columns, self.width)))


class RowPredictor(nn.Module):
    """The paper's predictor with rows folded to R numbers.

    It is X + unfold(MAB(fold(X), unfold(H))), with any number of MABs, then a linear map of every token. Its
    weights grow with D * E * R, not with (D * E)^2.

    Parameters
    ----------
    width : int
        E.
    outputs : int
        K.
    columns : int
        D.
    latent_attributes : int
        F.
    row_width : int
        R.
    layers : int
        Number of MABs.
    options : MABOptions
        Shared by the attention blocks.
    members : int
        A: predictors that share all weights but a scaling of what they fold and the map to logits. Each is
        to be trained on its own loss; their mean is what to predict. The scaling starts normal for the
        numbers of `continuous` columns, and with one random sign for a column of categories, which keeps
        categories as far apart as before.
    continuous : sequence of int
        Columns of numbers.

    References
    ----------
    Rastogi et al., ICLR 2023; members: Gorishniy et al., TabM, ICLR 2025, section 3, "TabM-mini".
    """

    def __init__(
        self,
        width: int,
        outputs: int,
        columns: int,
        latent_attributes: int,
        row_width: int,
        layers: int,
        options: MABOptions,
        members: int = 1,
        continuous: Sequence[int] = (),
    ) -> None:
        super().__init__()
        for name, value in (("predictor_layers", layers), ("members", members)):
            require_count(name, value)
        self.width = width
        self.columns = columns
        self.members = members
        self.scaling: nn.Parameter | None = None
        if members > 1:
            scaling_A1DE = (2.0 * torch.randint(2, (members, 1, columns, 1)) - 1).repeat(1, 1, 1, width)
            scaling_A1DE[:, :, list(continuous)] = torch.randn(members, 1, len(continuous), width)
            self.scaling = nn.Parameter(scaling_A1DE.flatten(-2))
        self.fold = nn.Linear(columns * width, row_width)
        self.read = nn.ModuleList(MAB(row_width, latent_attributes * width, options) for _ in range(layers))
        self.unfold = nn.Linear(row_width, columns * width)
        self.head = ColumnHead(width, outputs, members * columns)

    def forward(self, x_BQDE: Tensor, h_BHFE: Tensor, only: int | None = None) -> Tensor:
        """Predict.

        Parameters
        ----------
        x_BQDE : Tensor
            Embedded queries.
        h_BHFE : Tensor
            Inducing points.
        only : int, optional
            The one column whose logits are wanted; negative numbers count from the last. It costs less.

        Returns
        -------
        Tensor (B, A * Q, D, K), or (B, A * Q, 1, K) with `only`
            Logits of all queries by the first member, then by the next.

        Raises
        ------
        ValueError
            A shape does not fit or there is no such column.
        """
        _check(x_BQDE, h_BHFE, self.width)
        require_size("x", x_BQDE, 2, self.columns, "columns")
        require_column(only, self.columns)
        row_BLR = self._folded(x_BQDE.flatten(-2)).flatten(1, 2)
        for read in self.read:
            row_BLR = read(row_BLR, h_BHFE.flatten(-2))
        first, after = (0, self.columns) if only is None else (only % self.columns, only % self.columns + 1)
        numbers = slice(first * self.width, after * self.width)
        unfolded_BLU = functional.linear(row_BLR, self.unfold.weight[numbers], self.unfold.bias[numbers])
        row_BAQDE = unfolded_BLU.unflatten(1, (self.members, -1)).unflatten(-1, (-1, self.width))
        token_BAQDE = x_BQDE[:, None, :, first:after] + row_BAQDE
        # a member's maps are columns of their own
        heads = slice(first, None, 1 if only is None else self.columns)
        logit_BQLK = self.head(token_BAQDE.transpose(1, 2).flatten(2, 3), heads)
        return logit_BQLK.unflatten(2, (self.members, -1)).transpose(1, 2).flatten(1, 2)

    def _folded(self, x_BQU: Tensor) -> Tensor:
        """(B, A, Q, R). Weights are scaled in place of queries, which would be copied for every member."""
        if self.scaling is None:
            return self.fold(x_BQU)[:, None]
        weight_ARU = self.fold.weight * self.scaling
        row_BQAR = functional.linear(x_BQU, weight_ARU.flatten(0, 1)).unflatten(-1, weight_ARU.shape[:2])
        return (row_BQAR + self.fold.bias).transpose(1, 2)


def _check(x_BQDE: Tensor, h_BHFE: Tensor, width: int) -> None:
    for name, tensor in (("x", x_BQDE), ("h", h_BHFE)):
        require_dimensions(name, tensor, 4)
        require_size(name, tensor, 3, width, "numbers (the embedding width)")
    require_size("h", h_BHFE, 0, x_BQDE.shape[0], "tasks (as x has)")
