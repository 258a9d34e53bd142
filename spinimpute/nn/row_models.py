"""The baselines NPT and Set Transformer, in which context rows and query rows attend to each other.

The rows of context and queries form one table with masked cells. Each layer maps (B, N, D, E) to the same
shape, and every cell is predicted.

Axes: see `spinimpute.nn`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from spinimpute.nn.attention import ABA, ABD, MAB, MABOptions
from spinimpute.nn.embedding import ColumnEmbedding, ColumnHead


class RowModel(nn.Module):
    """Base class: an embedding, blocks that map (B, N, D, E) to the same shape, and a map to logits.

    Unlike in SPIN, query rows take part in the attention. The predictions of a batch of queries therefore
    depend on each other, and the context cannot be encoded in advance.

    Parameters
    ----------
    make_block : callable
        Makes a block from the columns, width and options.
    vocabulary : int
        Categories K of a column.
    columns : int
        Number of columns D.
    width : int
        Embedding width E.
    blocks : int
        Number of blocks, each with attention between rows and then between columns (the papers count
        layers: "depth 4" is two blocks).
    options : MABOptions, optional
        Options of all attention blocks; default: one head, learned residual.
    **embedding
        `continuous`, `side_width` and `pieces` of `ColumnEmbedding`.
    """

    def __init__(
        self,
        make_block: Callable[[int, int, MABOptions], nn.Module],
        vocabulary: int,
        columns: int,
        width: int = 16,
        blocks: int = 2,
        options: MABOptions | None = None,
        **embedding: Any,
    ) -> None:
        super().__init__()
        options = MABOptions(learned_residual=True) if options is None else options
        self.embedding = ColumnEmbedding(vocabulary, width, columns, **embedding)
        # made before the blocks, which keeps the order of random initial weights
        head = ColumnHead(width, vocabulary, columns)
        self.layers = nn.ModuleList(make_block(columns, width, options) for _ in range(blocks))
        self.head = head

    def rows(
        self, x: Tensor, mask: Tensor, side: Tensor | None = None, visible: Tensor | None = None
    ) -> Tensor:
        """Return logits (B, N, D, K) of all rows of a table; see `SPIN.encode` for the parameters."""
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
        """Return logits (B, Q, D, K) of the query rows; see `SPIN.forward` for the parameters."""
        if visible is not None:
            queries = torch.ones(query.shape[:2], dtype=torch.bool, device=visible.device)
            visible = torch.cat((visible, queries), 1)
        x = torch.cat((context, query), 1)
        mask = torch.cat((context_mask, query_mask), 1)
        return self.rows(x, mask, side, visible)[:, context.shape[1] :]


class NPTBlock(nn.Module):
    """Attention between datapoints (ABD), then between attributes (ABA); see `nn.attention`."""

    def __init__(self, columns: int, width: int, options: MABOptions) -> None:
        super().__init__()
        self.abd = ABD(columns, width, options)
        self.aba = ABA(width, options)

    def forward(self, d_BNDE: Tensor, visible_BN: Tensor | None = None) -> Tensor:
        """Mix visible datapoints, then attributes: (B, N, D, E) -> (B, N, D, E)."""
        return self.aba(self.abd(d_BNDE, visible_BN))


class NPT(RowModel):
    """Non-parametric transformer; time and memory are quadratic in the number of datapoints.

    Examples with learned residuals and two blocks (the papers' "depth 4"): the paper's genomics setting (20
    target and 30 array 5-mers, E = 16) has 16.7M parameters; 400 target SNPs (80 target 5-mers) with E = 64
    have 1,289M. Each ABD has about 13 (D E)^2 parameters.

    Parameters
    ----------
    *sizes, **others
        Parameters of `RowModel`, without `make_block`.

    References
    ----------
    Kossen et al., NeurIPS 2021.
    """

    def __init__(self, *sizes: Any, **others: Any) -> None:
        super().__init__(NPTBlock, *sizes, **others)


class ISAB(nn.Module):
    """Induced set attention: ISAB(X) = MAB(X, MAB(I, X)) with learned inducing points I of X's width.

    Lee et al., Set Transformer, ICML 2019, section 3.1.
    """

    def __init__(self, inducing_points: int, width: int, options: MABOptions) -> None:
        super().__init__()
        self.inducing = nn.Parameter(torch.empty(1, inducing_points, width))
        nn.init.xavier_uniform_(self.inducing)
        self.read = MAB(width, width, options)
        self.write = MAB(width, width, options)

    def forward(self, x_BLW: Tensor, visible_BL: Tensor | None = None) -> Tensor:
        """Mix the visible elements of a set: (B, L, W) -> (B, L, W)."""
        i_BHW = self.inducing.expand(x_BLW.shape[0], -1, -1)
        return self.write(x_BLW, self.read(i_BHW, x_BLW, visible_BL))


class SetTransformerBlock(nn.Module):
    """An ISAB over datapoints, each flattened to D * E numbers, then an ISAB over attributes."""

    def __init__(
        self, columns: int, width: int, options: MABOptions, inducing_points: int, latent_attributes: int
    ) -> None:
        super().__init__()
        self.columns = columns
        self.width = width
        self.datapoints = ISAB(inducing_points, columns * width, options)
        self.attributes = ISAB(latent_attributes, width, options)

    def forward(self, d_BNDE: Tensor, visible_BN: Tensor | None = None) -> Tensor:
        """Mix visible datapoints, then attributes: (B, N, D, E) -> (B, N, D, E)."""
        d_BNDE = self.datapoints(d_BNDE.flatten(-2), visible_BN).unflatten(-1, (self.columns, self.width))
        return self.attributes(d_BNDE.flatten(0, 1)).unflatten(0, d_BNDE.shape[:2])


class SetTransformer(RowModel):
    """Set Transformer baseline of the SPIN paper: induced set attention on both axes at full width.

    Time and memory are linear in the number of datapoints. With learned residuals, two blocks and the paper's
    genomics setting (50 5-mers, E = 16) the model has 33.4M parameters. The four MABs over datapoints, with
    13 (D E)^2 parameters each, have nearly all of them.

    Parameters
    ----------
    *sizes
        First parameters of `RowModel`, without `make_block`.
    inducing_points, latent_attributes : int
        Learned points of the two ISABs of a block.
    **others
        Further parameters of `RowModel`.

    References
    ----------
    Lee et al., ICML 2019.
    """

    def __init__(
        self, *sizes: Any, inducing_points: int = 10, latent_attributes: int = 10, **others: Any
    ) -> None:
        make_block = partial(
            SetTransformerBlock, inducing_points=inducing_points, latent_attributes=latent_attributes
        )
        super().__init__(make_block, *sizes, **others)
