"""What NPT and the Set Transformer share.

All rows of one table, masked cells included, go through layers that keep the table's shape, and every cell is
predicted.

Axes: see `spinimpute.nn`.
"""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from spinimpute.nn.embedding import ColumnEmbedding, ColumnHead


class RowModel(nn.Module):
    """embed -> layers (each (B, N, D, E), visible (B, N) | None -> (B, N, D, E)) -> logits of every cell.

    Unlike in SPIN, query rows are read by the layers: predictions of one batch of queries depend on each
    other, and nothing of the context can be kept.
    """

    def __init__(self, embedding: ColumnEmbedding, layers: Iterable[nn.Module], head: ColumnHead) -> None:
        super().__init__()
        self.embedding = embedding
        self.layers = nn.ModuleList(layers)
        self.head = head

    def rows(
        self, x: Tensor, mask: Tensor, side: Tensor | None = None, visible: Tensor | None = None
    ) -> Tensor:
        """Logits of all rows of a table.

        Parameters
        ----------
        x : Tensor (B, N, D)
            Codes, see `ColumnEmbedding`.
        mask : bool Tensor (B, N, D)
            True where a cell is hidden.
        side : Tensor (D, C) or (B, D, C), optional
            Numbers that describe the columns.
        visible : bool Tensor (B, N), optional
            False for padding.

        Returns
        -------
        Tensor (B, N, D, K)
            Logits of each cell.
        """
        d_BNDE = self.embedding(x, mask, side)
        for layer in self.layers:
            d_BNDE = layer(d_BNDE, visible)
        return self.head(d_BNDE)

    def forward(
        self,
        context: Tensor,
        context_mask: Tensor,
        query: Tensor,
        query_mask: Tensor,
        side: Tensor | None = None,
        visible: Tensor | None = None,
    ) -> Tensor:
        """Logits (B, Q, D, K) of the query rows, read together with the context rows; as `SPIN.forward`."""
        if visible is not None:
            queries = torch.ones(query.shape[:2], dtype=torch.bool, device=visible.device)
            visible = torch.cat((visible, queries), 1)
        x = torch.cat((context, query), 1)
        mask = torch.cat((context_mask, query_mask), 1)
        return self.rows(x, mask, side, visible)[:, context.shape[1] :]
