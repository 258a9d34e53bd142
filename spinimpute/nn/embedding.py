"""Layers that embed the cells of a table as vectors, and layers that map these vectors to logits.

Axes: see `spinimpute.nn`.
"""

from collections.abc import Sequence
from numbers import Integral

import torch
from torch import Tensor, nn

from spinimpute.nn.checks import require_shape

MAX_SCALAR = 3.0  # `ScalarPieces` divides [-MAX_SCALAR, MAX_SCALAR], in standard deviations


class ColumnEmbedding(nn.Module):
    """Embedding of every cell of a table: a linear map of the cell plus an embedding of its column.

    The input of the linear map is (one-hot category, mask bit), or (scalar, mask bit) in continuous columns.
    A masked cell has value 0 and mask bit 1, so its value has no influence. Categories have the
    codes 0 to `vocabulary` - 1. The code `vocabulary` means a missing value, which is treated as masked.

    With `pieces`, a scalar gets this number of additional features (`ScalarPieces`), and the linear map is
    followed by a ReLU. This is the Q-LR embedding of Gorishniy et al. (NeurIPS 2022, section 3) for
    standardised scalars.

    Parameters
    ----------
    vocabulary : int
        Number of categories K of a categorical column (the largest number if columns differ).
    width : int
        Embedding width E.
    columns : int, optional
        Number of columns D. None if the columns vary from call to call; then all columns share one linear
        map, and only side information distinguishes them.
    continuous : sequence of int
        Columns that hold standardised scalars instead of categories.
    side_width : int
        Number C of values that describe a column (genetic position, allele frequency, …). A linear map of
        these values replaces the learned embedding of the column's index. 0: no side information.
    pieces : int
        Number of pieces of a scalar, at least 2; 0 for a linear map alone.

    Raises
    ------
    ValueError
        `columns` is None without side information, a continuous column does not exist, or `pieces` is 1.
    """

    def __init__(
        self,
        vocabulary: int,
        width: int,
        columns: int | None,
        *,
        continuous: Sequence[int] = (),
        side_width: int = 0,
        pieces: int = 0,
    ) -> None:
        super().__init__()
        checked_pieces: object = pieces  # estimators pass this argument unchecked
        if not isinstance(checked_pieces, Integral) or pieces < 0 or pieces == 1:
            raise ValueError(f"pieces must be 0 or a whole number of at least 2, got {pieces!r}")
        if columns is None and side_width == 0:
            raise ValueError("side_width must be positive with columns=None, to distinguish columns")
        if continuous and not all(0 <= column < (columns or 0) for column in continuous):
            raise ValueError(f"continuous must hold columns below {columns}, got {list(continuous)}")
        self.vocabulary = vocabulary
        self.width = width
        self.columns = columns
        self.side_width = side_width
        maps = 1 if columns is None else columns
        self.continuous = sorted(set(continuous))
        self.categorical = [column for column in range(maps) if column not in set(continuous)]
        self.categorical_weight: nn.Parameter | None = None
        self.continuous_weight: nn.Parameter | None = None
        # exactly one number of a one-hot vector is 1, so the output has unit variance for any vocabulary
        if self.categorical:
            self.categorical_weight = nn.Parameter(torch.randn(len(self.categorical), vocabulary + 1, width))
        self.pieces: ScalarPieces | None = None
        if self.continuous:
            weight = torch.randn(len(self.continuous), pieces + 2, width)
            if pieces:
                weight *= 2 / pieces**0.5  # about half of the piece features are 1
                self.pieces = ScalarPieces(len(self.continuous), pieces, width)
            self.continuous_weight = nn.Parameter(weight)
        self.bias = nn.Parameter(torch.zeros(maps, width))
        self.index = None
        self.side = None
        if side_width:
            self.side = nn.Linear(side_width, width)
        else:
            self.index = nn.Parameter(torch.randn(maps, width))

    def forward(self, x_BND: Tensor, mask_BND: Tensor, side: Tensor | None = None) -> Tensor:
        """Embed the cells of tables (B, N, D) as (B, N, D, E).

        Categorical columns hold codes from 0 to `vocabulary`, of any integer type; in a table that also has
        continuous columns, codes are floats. Masked cells may hold any value. `side` (D, C) or (B, D, C)
        describes the columns.

        Raises ValueError if a shape does not fit or, on the CPU only, if a code is out of range.
        """
        require_shape("x", x_BND, None, None, self.columns)
        require_shape("mask", mask_BND, *x_BND.shape)
        if not self.continuous:
            cells = self._embed_categories(x_BND, mask_BND)
        elif not self.categorical:
            cells = self._embed_scalars(x_BND, mask_BND)
        else:
            both = torch.cat(
                (
                    self._embed_categories(x_BND[..., self.categorical], mask_BND[..., self.categorical]),
                    self._embed_scalars(x_BND[..., self.continuous], mask_BND[..., self.continuous]),
                ),
                dim=2,
            )
            order = [*self.categorical, *self.continuous]
            cells = both[:, :, [order.index(column) for column in range(len(order))]]
        cells = cells + self.bias
        if self.index is not None:
            if side is not None:
                raise ValueError("side must be None: this model was built with side_width=0")
            return cells + self.index
        return cells + self._embed_side(side, x_BND)

    def _embed_categories(self, x_BND: Tensor, mask_BND: Tensor) -> Tensor:
        codes = torch.where(mask_BND, self.vocabulary, x_BND.long())
        if codes.device.type == "cpu" and codes.numel():
            low, high = codes.aminmax()
            if low < 0 or high > self.vocabulary:
                raise ValueError(
                    f"x must hold codes 0..{self.vocabulary} ({self.vocabulary} = missing), "
                    f"got {int(low)}..{int(high)}"
                )
        weight = self.categorical_weight
        assert weight is not None
        # the last input is the mask bit; torch's one_hot would synchronise with the device
        one_hot = (codes[..., None] == torch.arange(self.vocabulary + 1, device=codes.device)).to(
            weight.dtype
        )
        if self.columns is None:
            return one_hot @ weight[0]
        return torch.einsum("bndk,dke->bnde", one_hot, weight)

    def _embed_scalars(self, x_BND: Tensor, mask_BND: Tensor) -> Tensor:
        weight = self.continuous_weight
        assert weight is not None
        scalar = torch.where(mask_BND, 0, x_BND).to(weight.dtype)
        features = torch.stack((scalar, mask_BND.to(weight.dtype)), -1)
        if self.pieces is None:
            return torch.einsum("bndk,dke->bnde", features, weight)
        rises = torch.where(mask_BND[..., None], 0, self.pieces(scalar))
        hidden = torch.einsum("bndk,dke->bnde", torch.cat((features, rises), -1), weight)
        return torch.relu(hidden + self.pieces.bias)

    def _embed_side(self, side: Tensor | None, x_BND: Tensor) -> Tensor:
        if side is None or self.side is None:
            raise ValueError(f"side must be given: this model was built with side_width={self.side_width}")
        if side.ndim == 2:
            side = side[None]
        require_shape("side", side, None, x_BND.shape[2], self.side_width)
        return self.side(side.to(self.bias.dtype))[:, None]


class ScalarPieces(nn.Module):
    """Piecewise-linear encoding of scalars: (...) -> (..., pieces).

    The pieces are intervals with equal probabilities under the standard normal distribution, from
    -MAX_SCALAR to MAX_SCALAR. Feature i rises from 0 to 1 over piece i; it is 0 below and 1 above. `bias`
    (columns, width) belongs to the linear map that follows the encoding.
    """

    low: Tensor
    extent: Tensor

    def __init__(self, columns: int, pieces: int, width: int) -> None:
        super().__init__()
        inner = torch.special.ndtri(torch.arange(1, pieces) / pieces)
        ends = torch.cat((torch.tensor([-MAX_SCALAR]), inner, torch.tensor([MAX_SCALAR])))
        self.register_buffer("low", ends[:-1], persistent=False)
        self.register_buffer("extent", ends.diff(), persistent=False)
        self.bias = nn.Parameter(torch.zeros(columns, width))

    def forward(self, x: Tensor) -> Tensor:
        """Return the fraction of each piece that is below the scalar: (...) -> (..., pieces)."""
        return ((x[..., None] - self.low) / self.extent).clamp(0, 1)


class ColumnHead(nn.Module):
    """Linear map of embeddings to logits: one map for each column, or one for all if `columns` is None.

    In a continuous column, output 0 is the predicted scalar.
    """

    def __init__(self, width: int, outputs: int, columns: int | None) -> None:
        super().__init__()
        self.columns = columns
        maps = 1 if columns is None else columns
        self.weight = nn.Parameter(torch.empty(maps, width, outputs))
        self.bias = nn.Parameter(torch.zeros(maps, outputs))
        bound = width**-0.5
        nn.init.uniform_(self.weight, -bound, bound)

    def forward(self, x_BNDE: Tensor, only: slice = slice(None)) -> Tensor:
        """Return logits (B, N, D, outputs); `only` selects the maps of the columns that `x_BNDE` holds."""
        if self.columns is None:
            return x_BNDE @ self.weight[0] + self.bias[0]
        return torch.einsum("bnde,dek->bndk", x_BNDE, self.weight[only]) + self.bias[only]
