"""Tables of tokens to tensors of embeddings, and back to logits.

Axes: see `spinimpute.nn`.
"""

from collections.abc import Sequence
from itertools import pairwise
from numbers import Integral

import torch
from torch import Tensor, nn

from spinimpute.nn.shapes import require_dimensions, require_same_shape, require_size

OUTERMOST = 3.0  # standard deviations, where the outermost pieces of a scalar end
INPUT_RANGE = 2.0  # numbers are of about this size: bends and inducing points start within it
MOST_POSITIONS = 1_000_000


def mlp(input_width: int, width: int, output_width: int, layers: int) -> nn.Sequential:
    """`layers` linear layers with ReLU between them.

    Weights start as in He et al. (2015): torch's own start shrinks the differences between points at every
    layer, and attention to points that all look alike learns nothing for thousands of steps.
    """
    widths = [input_width, *[width] * (layers - 1), output_width]
    parts: list[nn.Module] = []
    for i, (a, b) in enumerate(pairwise(widths)):
        parts += [nn.ReLU()] if i else []
        linear = nn.Linear(a, b)
        nn.init.kaiming_normal_(linear.weight, nonlinearity="relu" if i < layers - 1 else "linear")
        reach = 0.0 if i else INPUT_RANGE
        nn.init.uniform_(linear.bias, -reach, reach)
        parts.append(linear)
    return nn.Sequential(*parts)


def spread_positions(x_size: int, number: int) -> Tensor:
    """Positions (H, X) over the range of inputs, evenly in all dimensions: where inducing points start.

    They are drawn one after the other, also where nothing else of a network has values yet: ValueError for
    more than MOST_POSITIONS.
    """
    if number > MOST_POSITIONS:
        raise ValueError(f"there may be {MOST_POSITIONS:,} inducing points, however: {number:,}")
    spread_HX = torch.quasirandom.SobolEngine(x_size, scramble=True).draw(number)
    return INPUT_RANGE * (2 * spread_HX - 1)


class ColumnEmbedding(nn.Module):
    """Embed every cell of a table by a linear map and an embedding of its column.

    The map is of (one-hot category, mask bit), or of (scalar, mask bit) for continuous columns. With `pieces`
    a scalar becomes that many more features, each rising from 0 to 1 over one piece of the standard normal
    distribution, and their linear map goes through a ReLU, so that it is not linear in the scalar: the Q-LR
    embedding of Gorishniy et al. (NeurIPS 2022, section 3), for about normal scalars.

    A masked cell has value 0 and mask bit 1, so its value has no influence. The code `vocabulary`, one past
    the last category, stands for a missing value and is always masked.

    Parameters
    ----------
    vocabulary : int
        K, categories of a categorical column (of the largest one where they differ).
    width : int
        E.
    columns : int, optional
        D; None for tables whose columns vary from call to call. Then all columns share one linear
        map, and only side information distinguishes them.
    continuous : sequence of int
        Columns that hold standardised scalars instead of categories.
    side_width : int
        C, numbers that describe a column (its genetic position, its allele frequency, …); their
        linear map replaces the learned embedding of the column index. 0: none.
    pieces : int
        Pieces of a scalar, at least 2; 0 for its linear map.

    Raises
    ------
    ValueError
        `columns` is None and there is no side information, continuous columns lie outside, or
        there is one piece.
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
        given: object = pieces
        if not isinstance(given, Integral) or pieces < 0 or pieces == 1:
            raise ValueError(f"pieces must be 0 or a whole number from 2 on, however: {pieces!r}")
        if columns is None and side_width == 0:
            raise ValueError(
                "side_width must be positive where columns=None: nothing else tells columns apart"
            )
        if columns is None and continuous:
            raise ValueError("columns must be a number where some are continuous, however: columns=None")
        if columns is not None and not all(0 <= column < columns for column in continuous):
            raise ValueError(f"continuous must lie in 0..{columns - 1}, however: {list(continuous)}")
        self.vocabulary = vocabulary
        self.width = width
        self.columns = columns
        self.side_width = side_width
        maps = 1 if columns is None else columns
        self.continuous = sorted(set(continuous))
        self.categorical = [column for column in range(maps) if column not in set(continuous)]
        self.categorical_weight: nn.Parameter | None = None
        self.continuous_weight: nn.Parameter | None = None
        # One input of a one-hot vector is on at a time: unit variance of the sum, whatever the vocabulary.
        if self.categorical:
            self.categorical_weight = nn.Parameter(torch.randn(len(self.categorical), vocabulary + 1, width))
        self.pieces: ScalarPieces | None = None
        if self.continuous:
            weight = torch.randn(len(self.continuous), pieces + 2, width)
            if pieces:
                # about half of the pieces are on
                weight *= 2 / pieces**0.5
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
        """Embed the cells of tables.

        Parameters
        ----------
        x_BND : Tensor
            Category codes 0 … vocabulary (any integer type) when all columns are categorical; otherwise
            floats, whole-numbered codes in the categorical columns. Where the mask is set it may hold
            anything.
        mask_BND : bool Tensor
            True where a cell is hidden.
        side : Tensor (D, C) or (B, D, C), optional
            Numbers that describe the columns.

        Returns
        -------
        Tensor (B, N, D, E)
            Embedded cells.

        Raises
        ------
        ValueError
            A shape does not fit, or (checked on the CPU only) a code is out of range.
        """
        require_dimensions("x", x_BND, 3)
        require_same_shape("mask", mask_BND, "x", x_BND)
        if self.columns is not None:
            require_size("x", x_BND, 2, self.columns, "columns")
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
                    f"however: {int(low)}..{int(high)}"
                )
        weight = self.categorical_weight
        assert weight is not None
        # The last input, on for masked cells alone, is the mask bit. (torch's one_hot waits for the device.)
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
        bent = torch.einsum("bndk,dke->bnde", torch.cat((features, rises), -1), weight)
        return torch.relu(bent + self.pieces.bias)

    def _embed_side(self, side: Tensor | None, x_BND: Tensor) -> Tensor:
        if side is None or self.side is None:
            raise ValueError(f"side must be given: this model was built with side_width={self.side_width}")
        if side.ndim == 2:
            side = side[None]
        require_dimensions("side", side, 3)
        require_size("side", side, 1, x_BND.shape[2], "columns (as x has)")
        require_size("side", side, 2, self.side_width, "numbers a column")
        return self.side(side.to(self.bias.dtype))[:, None]


class ScalarPieces(nn.Module):
    """Piecewise-linear encoding of scalars: (...) -> (..., pieces), 0 below a piece, 1 above it.

    Pieces end at quantiles of the standard normal distribution; the outermost reach to `OUTERMOST`. `bias`
    (columns, width) is of the linear map that reads them.
    """

    low: Tensor
    extent: Tensor

    def __init__(self, columns: int, pieces: int, width: int) -> None:
        super().__init__()
        inner = torch.special.ndtri(torch.arange(1, pieces) / pieces)
        ends = torch.cat((torch.tensor([-OUTERMOST]), inner, torch.tensor([OUTERMOST])))
        self.register_buffer("low", ends[:-1], persistent=False)
        self.register_buffer("extent", ends.diff(), persistent=False)
        self.bias = nn.Parameter(torch.zeros(columns, width))

    def forward(self, x: Tensor) -> Tensor:
        """The share of each piece that lies below the scalar: (...) -> (..., pieces)."""
        return ((x[..., None] - self.low) / self.extent).clamp(0, 1)


class ColumnHead(nn.Module):
    """Embeddings to logits, by one linear map for each column (`columns` given) or for all (None).

    A continuous column is predicted by output 0.
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
        """Map embeddings to logits.

        Parameters
        ----------
        x_BNDE : Tensor
            Embedded cells.
        only : slice
            The columns that x holds, if not all.

        Returns
        -------
        Tensor (B, N, D, outputs)
            Logits of each cell.

        Raises
        ------
        ValueError
            A shape does not fit.
        """
        require_dimensions("x", x_BNDE, 4)
        if self.columns is None:
            return x_BNDE @ self.weight[0] + self.bias[0]
        weight_DEK, bias_DK = self.weight[only], self.bias[only]
        require_size("x", x_BNDE, 2, len(weight_DEK), "columns")
        return torch.einsum("bnde,dek->bndk", x_BNDE, weight_DEK) + bias_DK
