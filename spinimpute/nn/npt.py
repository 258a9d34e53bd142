"""The non-parametric transformer (Kossen et al., NeurIPS 2021).

Attention between datapoints alternates with attention between attributes. Time and memory are quadratic in
the number of datapoints.

Axes: see `spinimpute.nn`.
"""

from collections.abc import Sequence

from torch import Tensor, nn

from spinimpute.nn.attention import ABA, ABD, MABOptions
from spinimpute.nn.embedding import ColumnEmbedding, ColumnHead
from spinimpute.nn.rows import RowModel


class NPTBlock(nn.Module):
    """ABD, then ABA."""

    def __init__(self, columns: int, width: int, options: MABOptions) -> None:
        super().__init__()
        self.abd = ABD(columns, width, options)
        self.aba = ABA(width, options)

    def forward(self, d_BNDE: Tensor, visible_BN: Tensor | None = None) -> Tensor:
        """Mix datapoints, then attributes: (B, N, D, E) -> the same. visible_BN: bool, False for padding."""
        return self.aba(self.abd(d_BNDE, visible_BN))


class NPT(RowModel):
    """Non-parametric transformer over tables of `columns` attributes.

    With learned residuals, two blocks ("depth 4") and the paper's genomics setting (20 + 30 5-mers, E = 16)
    it has 16.7M parameters; with E = 64 and 400 targets (80 + 30 5-mers: the 150 array SNPs stay) 1,289M.
    Each ABD holds 13 (D E)^2 of them.

    Parameters
    ----------
    vocabulary : int
        K.
    columns : int
        D.
    width : int
        E.
    blocks : int
        Each ABD and ABA.
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
            (NPTBlock(columns, width, options) for _ in range(blocks)),
            ColumnHead(width, vocabulary, columns),
        )
