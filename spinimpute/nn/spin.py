"""SPIN: semi-parametric inducing point networks (Rastogi et al., ICLR 2023).

    D = embed(context)        H = encoder(D)        logits = predictor(embed(query), H)

H is all that a prediction needs of the context: it can be computed once and kept. Queries never enter the
encoder and do not depend on one another.

Axes: see `spinimpute.nn`; n datapoints of one chunk.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, cast

import torch
from torch import Tensor, nn

from spinimpute.nn.attention import ABLA, XABA, XABD, MABOptions, Scale
from spinimpute.nn.embedding import ColumnEmbedding
from spinimpute.nn.predictors import FlatPredictor, RowPredictor, TokenwisePredictor
from spinimpute.nn.shapes import require_column, require_count, require_dimensions, require_size
from spinimpute.nn.streaming import Chunk, KeysValues, streamed_attention
from spinimpute.runtime.processes import ALONE, Processes

EmbeddedChunk = Tensor | Callable[[], Tensor]
TokenChunk = tuple[Tensor, Tensor] | Callable[[], tuple[Tensor, Tensor]]


class EncoderBlock(nn.Module):
    """XABA, ABLA and XABD once. The first two never see another datapoint, nor the inducing points."""

    def __init__(
        self, latent_attributes: int, width: int, options: MABOptions, latent_self_attention: bool
    ) -> None:
        super().__init__()
        self.xaba = XABA(width, options)
        self.abla = ABLA(width, options) if latent_self_attention else nn.Identity()
        self.xabd = XABD(latent_attributes, width, options)

    def latents(self, a_BNFE: Tensor, d_BNDE: Tensor) -> Tensor:
        """Compute the part that is local to a datapoint: (B, N, F, E), (B, N, D, E) -> (B, N, F, E)."""
        return self.abla(self.xaba(a_BNFE, d_BNDE))


class SPINEncoder(nn.Module):
    """A context of embedded datapoints (B, N, D, E) to inducing points H (B, H, F, E), linear in N and D.

    Parameters
    ----------
    width : int
        E.
    columns : int, optional
        D; may be None with `latent_start="learned"`.
    inducing_points, latent_attributes : int
        H and F.
    blocks : int
        Each XABA, ABLA, XABD. The papers' "depth 4" is two blocks.
    latent_start : {"linear", "learned"}
        Where a datapoint's latent attributes come from before the first block: "linear", a
        linear map over the attribute axis (D -> F, shared over E), or "learned", constants.
    latent_self_attention : bool
        Whether blocks have ABLA layers.
    options : MABOptions, optional
        Shared by all attention blocks.

    Raises
    ------
    ValueError
        `latent_start="linear"` without a number of columns.
    """

    def __init__(
        self,
        width: int,
        columns: int | None,
        *,
        inducing_points: int = 10,
        latent_attributes: int = 10,
        blocks: int = 2,
        latent_start: Literal["linear", "learned"] = "linear",
        latent_self_attention: bool = True,
        options: MABOptions | None = None,
    ) -> None:
        super().__init__()
        options = MABOptions() if options is None else options
        for name, value in (
            ("blocks", blocks),
            ("inducing_points", inducing_points),
            ("latent_attributes", latent_attributes),
        ):
            require_count(name, value)
        if latent_start not in ("linear", "learned"):
            raise ValueError(f"latent_start must be 'linear' or 'learned', however: {latent_start!r}")
        self.width = width
        self.dropout = options.dropout
        self.start_map: nn.Linear | None = None
        self.start_latents: nn.Parameter | None = None
        if latent_start == "linear":
            if columns is None:
                raise ValueError("columns must be a number with latent_start='linear'; use 'learned' instead")
            self.start_map = nn.Linear(columns, latent_attributes)
        else:
            self.start_latents = nn.Parameter(torch.randn(1, 1, latent_attributes, width))
        self.start_points = nn.Parameter(torch.randn(1, inducing_points, latent_attributes, width))
        self.blocks = nn.ModuleList(
            EncoderBlock(latent_attributes, width, options, latent_self_attention) for _ in range(blocks)
        )

    def forward(self, d_BNDE: Tensor, visible_BN: Tensor | None = None) -> Tensor:
        """Encode.

        Parameters
        ----------
        d_BNDE : Tensor
            Embedded datapoints.
        visible_BN : bool Tensor, optional
            False for padding, which is ignored.

        Returns
        -------
        Tensor (B, H, F, E)
            Inducing points of the context.

        Raises
        ------
        ValueError
            A shape does not fit.
        """
        self._check(d_BNDE)
        a_BNFE = self._start(d_BNDE)
        h_BHFE = self.start_points.expand(d_BNDE.shape[0], -1, -1, -1)
        for block in self._blocks():
            a_BNFE = block.latents(a_BNFE, d_BNDE)
            h_BHFE = block.xabd(h_BHFE, a_BNFE, visible_BN)
        return h_BHFE

    def encode_stream(
        self,
        chunks: Sequence[EmbeddedChunk],
        *,
        sources: Sequence[Tensor] = (),
        keep_latents: bool = False,
        processes: Processes = ALONE,
    ) -> Tensor:
        """The same H as `forward` of the concatenated chunks, gradients included, one chunk at a time.

        Parameters
        ----------
        chunks : sequence of EmbeddedChunk
            Embedded datapoints (B, n, D, E), or functions that give them; B is the same in all.
        sources : sequence of Tensor
            Tensors that functions among the chunks compute from and that gradients should reach
            (parameters of an embedding). Parameters of the encoder and chunks that are tensors need not
            be named.
        keep_latents : bool
            False: nothing that grows with N is held, and every chunk is read once a block.
            True: every chunk is read once, and blocks * N * F * E numbers a task are held during the
            forward pass. The backward pass reads every chunk once a block either way.
        processes : Processes
            Processes that have some of the chunks each (see `streamed_attention`); all get the H of the
            whole context, and gradients that need no further adding up.

        Returns
        -------
        Tensor (B, H, F, E)
            Inducing points of the whole context.

        Raises
        ------
        ValueError
            There is no chunk, a shape does not fit, or dropout is on (each reading would differ).
        """
        if not chunks:
            raise ValueError("chunks must hold at least one chunk, however: it is empty")
        if self.training and self.dropout:
            raise ValueError(f"dropout must be 0 to train on a stream, however: dropout={self.dropout}")
        readers = [_reader(chunk) for chunk in chunks]
        # Function inputs, so that gradients reach what the chunks were computed from.
        sources = [*self.parameters(), *sources, *(chunk for chunk in chunks if isinstance(chunk, Tensor))]
        with torch.no_grad():
            kept = [self._latents(read(), len(self.blocks)) for read in readers] if keep_latents else None
        # B = 1 until the first block has read the chunks and learned how many tasks there are.
        h_BHFE: Tensor = self.start_points
        for depth, block in enumerate(self._blocks()):
            mab = block.xabd.mab
            x_BHW = h_BHFE.flatten(-2)
            recompute = [self._chunk(read, depth, block.xabd) for read in readers]
            attended = streamed_attention(
                mab.queries(x_BHW),
                recompute if kept is None else [_kept_chunk(latents[depth], block.xabd) for latents in kept],
                scale=mab.attention.scale,
                sources=sources,
                recompute=recompute,
                processes=processes,
            )
            out = mab.close(x_BHW, mab.attention.join(attended))
            h_BHFE = out.unflatten(-1, h_BHFE.shape[-2:])
        return h_BHFE

    def _blocks(self) -> list[EncoderBlock]:
        return cast(list[EncoderBlock], list(self.blocks))

    def _chunk(self, read: Callable[[], Tensor], depth: int, xabd: XABD) -> Chunk:
        def keys_values() -> KeysValues:
            latents = self._latents(read(), depth + 1)[-1]
            return KeysValues(*xabd.mab.attention.keys_values(latents.flatten(-2)))

        return keys_values

    def _latents(self, d_BNDE: Tensor, depth: int) -> list[Tensor]:
        """The latent attributes (B, N, F, E) of these datapoints after each of the first `depth` blocks."""
        self._check(d_BNDE)
        latents = [self._start(d_BNDE)]
        for block in self._blocks()[:depth]:
            latents.append(block.latents(latents[-1], d_BNDE))
        return latents[1:]

    def _start(self, d_BNDE: Tensor) -> Tensor:
        if self.start_map is not None:
            return self.start_map(d_BNDE.transpose(-1, -2)).transpose(-1, -2)
        assert self.start_latents is not None
        return self.start_latents.expand(*d_BNDE.shape[:2], -1, -1)

    def _check(self, d_BNDE: Tensor) -> None:
        require_dimensions("d", d_BNDE, 4)
        require_size("d", d_BNDE, 3, self.width, "numbers (the embedding width)")
        if self.start_map is not None:
            require_size("d", d_BNDE, 2, self.start_map.in_features, "columns")


def _reader(chunk: EmbeddedChunk) -> Callable[[], Tensor]:
    return (lambda: chunk) if isinstance(chunk, Tensor) else chunk


def _kept_chunk(latents_BNFE: Tensor, xabd: XABD) -> Chunk:
    return lambda: KeysValues(*xabd.mab.attention.keys_values(latents_BNFE.flatten(-2)))


@dataclass(frozen=True)
class SPINConfig:
    """Everything that determines the shape of a `SPIN`; `dataclasses.asdict` of it is plain JSON.

    Attributes
    ----------
    vocabulary : int
        K, categories of an attribute (2^k for k-mers of SNPs).
    columns : int, optional
        D; None where it varies from call to call (needs `side_width`, `latent_start="learned"`).
    continuous, pieces
        Columns that hold standardised scalars (see `ColumnEmbedding`).
    side_width : int
        Numbers that describe a column; they replace the column-index embedding.
    predictor : {"tokenwise", "flat", "row"}
        "tokenwise" (O(E^2) weights), "flat" (the paper's) or "row" (between the two).
    predictor_layers : int
        Layers of the predictor, unless it is flat.
    row_width, members : int
        See `RowPredictor`; with several members logits are those of A * Q queries.

    Notes
    -----
    The other attributes are those of `SPINEncoder` and `MABOptions`.
    """

    vocabulary: int
    columns: int | None
    width: int = 16
    inducing_points: int = 10
    latent_attributes: int = 10
    blocks: int = 2
    predictor: Literal["tokenwise", "flat", "row"] = "tokenwise"
    predictor_layers: int = 2
    row_width: int = 256
    members: int = 1
    latent_start: Literal["linear", "learned"] = "linear"
    latent_self_attention: bool = True
    continuous: tuple[int, ...] = ()
    pieces: int = 0
    side_width: int = 0
    heads: int = 1
    scale: Scale = "head"
    learned_residual: bool = False
    dropout: float = 0.0

    def __post_init__(self) -> None:
        # JSON knows no tuples: read back, the field is a list.
        object.__setattr__(self, "continuous", tuple(self.continuous))

    @property
    def options(self) -> MABOptions:
        """What all attention blocks share."""
        return MABOptions(self.heads, self.scale, self.learned_residual, self.dropout)


def _build_predictor(config: SPINConfig) -> nn.Module:
    width, outputs = config.width, config.vocabulary
    if config.predictor == "tokenwise":
        return TokenwisePredictor(width, outputs, config.columns, config.predictor_layers, config.options)
    if config.predictor not in ("flat", "row"):
        raise ValueError(f"predictor must be 'tokenwise', 'flat' or 'row', however: {config.predictor!r}")
    if config.columns is None:
        raise ValueError(f"columns must be a number with predictor={config.predictor!r}")
    latents, options = config.latent_attributes, config.options
    if config.predictor == "flat":
        return FlatPredictor(width, outputs, config.columns, latents, options)
    return RowPredictor(
        width,
        outputs,
        config.columns,
        latents,
        config.row_width,
        config.predictor_layers,
        options,
        config.members,
        config.continuous,
    )


class SPIN(nn.Module):
    """Predict every attribute of query datapoints from their visible attributes and a context.

    With `predictor="flat"`, `learned_residual=True` and the paper's genomics setting (50 5-mers, E = 16) it
    has the 8.05M parameters of SPIN-16.

    Parameters
    ----------
    config : SPINConfig
        The shape of the model.
    predictor : nn.Module, optional
        A module that maps (query (B, Q, D, E), H (B, H, F, E)) to (B, Q, D, outputs), to be used
        instead of the one that `config.predictor` names.

    Raises
    ------
    ValueError
        The configuration contradicts itself.

    References
    ----------
    Rastogi et al., ICLR 2023, section 3.
    """

    def __init__(self, config: SPINConfig, predictor: nn.Module | None = None) -> None:
        super().__init__()
        self.config = config
        self.embedding = ColumnEmbedding(
            config.vocabulary,
            config.width,
            config.columns,
            continuous=config.continuous,
            side_width=config.side_width,
            pieces=config.pieces,
        )
        self.encoder = SPINEncoder(
            config.width,
            config.columns,
            inducing_points=config.inducing_points,
            latent_attributes=config.latent_attributes,
            blocks=config.blocks,
            latent_start=config.latent_start,
            latent_self_attention=config.latent_self_attention,
            options=config.options,
        )
        self.predictor = _build_predictor(config) if predictor is None else predictor

    def encode(
        self, context: Tensor, mask: Tensor, side: Tensor | None = None, visible: Tensor | None = None
    ) -> Tensor:
        """Inducing points of a context.

        Parameters
        ----------
        context : Tensor (B, N, D)
            Codes, see `ColumnEmbedding`.
        mask : bool Tensor (B, N, D)
            True where a cell is hidden.
        side : Tensor (D, C) or (B, D, C), optional
            Numbers that describe the columns.
        visible : bool Tensor (B, N), optional
            False for padding.

        Returns
        -------
        Tensor (B, H, F, E)
            All that predictions need of the context.
        """
        return self.encoder(self.embedding(context, mask, side), visible)

    def encode_stream(
        self,
        chunks: Sequence[TokenChunk],
        side: Tensor | None = None,
        *,
        keep_latents: bool = False,
        processes: Processes = ALONE,
    ) -> Tensor:
        """`encode` for a context in chunks: the same H and gradients of the parameters, memory of one chunk.

        Parameters
        ----------
        chunks : sequence of TokenChunk
            Each (context (B, n, D), mask (B, n, D)), or a function that gives it.
        side : Tensor (D, C) or (B, D, C), optional
            Numbers that describe the columns.
        keep_latents, processes
            See `SPINEncoder.encode_stream`.

        Returns
        -------
        Tensor (B, H, F, E)
            All that predictions need of the context.
        """

        def embedded(chunk: TokenChunk) -> Callable[[], Tensor]:
            return lambda: self.embedding(*(chunk() if callable(chunk) else chunk), side)

        sources = [*self.embedding.parameters(), *([] if side is None else [side])]
        return self.encoder.encode_stream(
            [embedded(chunk) for chunk in chunks],
            sources=sources,
            keep_latents=keep_latents,
            processes=processes,
        )

    def predict(
        self,
        query: Tensor,
        mask: Tensor,
        h_BHFE: Tensor,
        side: Tensor | None = None,
        only: int | None = None,
    ) -> Tensor:
        """Predict queries from inducing points.

        Parameters
        ----------
        query : Tensor (B, Q, D)
            Codes.
        mask : bool Tensor (B, Q, D)
            True where a cell is hidden.
        h_BHFE : Tensor
            What `encode` gave.
        side
            As of `encode`.
        only : int, optional
            The one column whose logits are wanted; negative numbers count from the last.
            `RowPredictor` computes no others.

        Returns
        -------
        Tensor (B, Q, D, K), or (B, Q, 1, K) with `only`
            Logits. With several members Q is A * Q.

        Raises
        ------
        ValueError
            A shape does not fit or there is no such column.
        """
        require_column(only, query.shape[-1])
        x_BQDE = self.embedding(query, mask, side)
        if isinstance(self.predictor, RowPredictor):
            return self.predictor(x_BQDE, h_BHFE, only)
        logits_BQDK: Tensor = self.predictor(x_BQDE, h_BHFE)
        return logits_BQDK if only is None else logits_BQDK[:, :, [only]]

    def forward(
        self,
        context: Tensor,
        context_mask: Tensor,
        query: Tensor,
        query_mask: Tensor,
        side: Tensor | None = None,
        visible: Tensor | None = None,
        only: int | None = None,
    ) -> Tensor:
        """Logits (B, Q, D, K) of the query given the context; shapes as in `encode` and `predict`."""
        return self.predict(query, query_mask, self.encode(context, context_mask, side, visible), side, only)
