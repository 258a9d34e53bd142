"""The Set Transformer baseline of the SPIN paper: induced set attention on both axes at full width.

Axes: see `spinimpute.nn`.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from spinimpute.nn.attention import MAB, MABOptions
from spinimpute.nn.embedding import ColumnEmbedding, ColumnHead
from spinimpute.nn.rows import RowModel
from spinimpute.nn.shapes import require_dimensions, require_size


class ISAB(nn.Module):
    """Induced set attention: ISAB(X) = MAB(X, MAB(I, X)) with learned inducing points I of X's width.

    References
    ----------
    Lee et al., Set Transformer, ICML 2019, section 3.1.
    """

    def __init__(self, inducing_points: int, width: int, options: MABOptions) -> None:
        super().__init__()
        self.inducing = nn.Parameter(torch.empty(1, inducing_points, width))
        nn.init.xavier_uniform_(self.inducing)
        self.read = MAB(width, width, options)
        self.write = MAB(width, width, options)

    def forward(self, x_BLW: Tensor, visible_BL: Tensor | None = None) -> Tensor:
        """Mix a set: (B, L, W) -> the same. visible_BL: bool, False for padding."""
        require_dimensions("x", x_BLW, 3)
        i_BHW = self.inducing.expand(x_BLW.shape[0], -1, -1)
        return self.write(x_BLW, self.read(i_BHW, x_BLW, visible_BL))


class SetTransformerBlock(nn.Module):
    """An ISAB over datapoints, each unfolded to D * E numbers, then an ISAB over attributes."""

    def __init__(
        self,
        columns: int,
        width: int,
        inducing_points: int,
        latent_attributes: int,
        options: MABOptions,
    ) -> None:
        super().__init__()
        self.columns = columns
        self.width = width
        self.datapoints = ISAB(inducing_points, columns * width, options)
        self.attributes = ISAB(latent_attributes, width, options)

    def forward(self, d_BNDE: Tensor, visible_BN: Tensor | None = None) -> Tensor:
        """Mix datapoints, then attributes: (B, N, D, E) -> the same. visible_BN: bool, False for padding."""
        require_dimensions("d", d_BNDE, 4)
        require_size("d", d_BNDE, 2, self.columns, "columns")
        d_BNDE = self.datapoints(d_BNDE.flatten(-2), visible_BN).unflatten(-1, (self.columns, self.width))
        return self.attributes(d_BNDE.flatten(0, 1)).unflatten(0, d_BNDE.shape[:2])


class SetTransformer(RowModel):
    """Set-TF over tables of `columns` attributes, linear in the number of datapoints.

    With learned residuals, two blocks and the paper's genomics setting (50 5-mers, E = 16) it has 33.4M
    parameters, nearly all in the 13 (D E)^2 of each of the four blocks of datapoint attention.

    Parameters
    ----------
    vocabulary : int
        K.
    columns : int
        D.
    width : int
        E.
    blocks : int
        Each one ISAB over datapoints and one over attributes (the papers' "depth 4" is two).
    inducing_points, latent_attributes : int
        Learned points of the two ISABs.
    options : MABOptions, optional
        Shared by all attention blocks; default: one head, learned residual.
    continuous, side_width, pieces
        See `ColumnEmbedding`.
    """

    def __init__(
        self,
        vocabulary: int,
        columns: int,
        width: int = 16,
        blocks: int = 2,
        inducing_points: int = 10,
        latent_attributes: int = 10,
        options: MABOptions | None = None,
        *,
        continuous: Sequence[int] = (),
        side_width: int = 0,
        pieces: int = 0,
    ) -> None:
        options = MABOptions(learned_residual=True) if options is None else options
        super().__init__(
            ColumnEmbedding(
                vocabulary, width, columns, continuous=continuous, side_width=side_width, pieces=pieces
            ),
            (
                SetTransformerBlock(columns, width, inducing_points, latent_attributes, options)
                for _ in range(blocks)
            ),
            ColumnHead(width, vocabulary, columns),
        )
