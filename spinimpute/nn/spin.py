"""SPIN: semi-parametric inducing point networks, and CIPNP: neural processes with inducing points.

    D = embed(context)        H = encoder(D)        logits = predictor(embed(query), H)

D are the embedded datapoints of the context, H the inducing points. Predictions depend on the context only
through H, so H can be computed once and stored. Predictions of different queries do not depend on each other.
It follows Rastogi et al., ICLR 2023. The predictor "spin" for genotypes is in `spinimpute.predictors.spin`.

Axes: see `spinimpute.nn`. In shapes, n is the number of datapoints of one chunk: a part of the context.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, cast

import torch
from torch import Tensor, nn
from torch.distributions import Bernoulli, Categorical

from spinimpute.nn.attention import ABLA, XABA, XABD, MABOptions, Scale
from spinimpute.nn.checks import require_choice, require_column, require_count, require_shape
from spinimpute.nn.embedding import ColumnEmbedding
from spinimpute.nn.predictors import FlatPredictor, RowPredictor, TokenwisePredictor, TokenwiseReader
from spinimpute.nn.streaming import Chunk, KeysValues, streamed_attention
from spinimpute.runtime.processes import SINGLE_PROCESS, Processes

EmbeddedChunk = Tensor | Callable[[], Tensor]
TokenChunk = tuple[Tensor, Tensor] | Callable[[], tuple[Tensor, Tensor]]
DistributionName = Literal["categorical", "bernoulli"]


LayerOrder = Literal["paper", "released"]


class EncoderBlock(nn.Module):
    """XABA, ABLA and XABD (see `nn.attention`). XABA and ABLA use only the attributes of one datapoint.

    Order "released" (the paper's code): XABA, ABLA, XABD. Order "paper" (section 3.2.1): XABA, XABD, ABLA.
    With the latter, a block begins with the ABLA of the paper's previous layer, and the first block has no
    ABLA. The ABLA of the paper's last layer has no effect and is left out.
    """

    def __init__(
        self, latent_attributes: int, width: int, options: MABOptions, has_abla: bool, layer_order: LayerOrder
    ) -> None:
        super().__init__()
        self.layer_order = layer_order
        self.xaba = XABA(width, options)
        self.abla = ABLA(width, options) if has_abla else nn.Identity()
        self.xabd = XABD(latent_attributes, width, options)

    def latents(self, a_BNFE: Tensor, d_BNDE: Tensor) -> Tensor:
        """Update the latent attributes of each datapoint: (B, N, F, E), (B, N, D, E) -> (B, N, F, E)."""
        if self.layer_order == "paper":
            return self.xaba(self.abla(a_BNFE), d_BNDE)
        return self.abla(self.xaba(a_BNFE, d_BNDE))


class SPINEncoder(nn.Module):
    """Encoder of embedded datapoints (B, N, D, E) as inducing points (B, H, F, E), in time linear in N and D.

    It has `blocks` blocks of XABA, ABLA and XABD. The papers count layers: "depth 4" is two blocks.
    `latent_start` selects the initial latent attributes. "linear": a linear map D -> F of the attributes,
    shared over E. "learned": learned constants; then `columns` may be None. For `layer_order` see
    `EncoderBlock`.
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
        layer_order: LayerOrder = "paper",
        options: MABOptions | None = None,
    ) -> None:
        super().__init__()
        options = MABOptions() if options is None else options
        require_count("blocks", blocks)
        require_count("inducing_points", inducing_points)
        require_count("latent_attributes", latent_attributes)
        require_choice("latent_start", latent_start, ("linear", "learned"))
        require_choice("layer_order", layer_order, ("paper", "released"))
        self.width = width
        self.columns = columns
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
            EncoderBlock(latent_attributes, width, options, has_abla, layer_order)
            for has_abla in [latent_self_attention and layer_order == "released"]
            + [latent_self_attention] * (blocks - 1)
        )

    def forward(self, d_BNDE: Tensor, visible_BN: Tensor | None = None) -> Tensor:
        """Return the inducing points (B, H, F, E) of the visible datapoints of a context."""
        require_shape("d", d_BNDE, None, None, self.columns, self.width)
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
        processes: Processes = SINGLE_PROCESS,
    ) -> Tensor:
        """Return the result of `forward` on the concatenated chunks (B, n, D, E), with equal gradients.

        One chunk is in memory at a time. A chunk is a tensor or a function that returns one. `sources` are
        the tensors that such functions use and that need gradients, such as the parameters of an embedding.
        The encoder's own parameters, and chunks that are tensors, need not be listed.

        By default memory does not grow with N, and every chunk is computed once per block. With
        `keep_latents`, every chunk is computed once in the forward pass, which stores blocks * N * F * E
        numbers per task. The backward pass computes every chunk once per block in both cases. The chunks may
        be divided among several processes (see `streamed_attention`); all processes get the same H and
        complete gradients.

        Dropout must be 0 in training, because a chunk that is computed again would get another dropout mask.
        """
        if not chunks:
            raise ValueError("chunks must contain at least one chunk")
        if self.training and self.dropout:
            raise ValueError(f"dropout must be 0 to train on a stream, got {self.dropout}")
        read_functions = [_reader(chunk) for chunk in chunks]
        sources = [*self.parameters(), *sources, *(chunk for chunk in chunks if isinstance(chunk, Tensor))]
        with torch.no_grad():
            stored_latents = (
                [self._latents(read(), len(self.blocks)) for read in read_functions] if keep_latents else None
            )
        h_BHFE: Tensor = self.start_points  # B = 1 until the first block has read the chunks
        for block_index, block in enumerate(self._blocks()):
            mab = block.xabd.mab
            x_BHW = h_BHFE.flatten(-2)
            recompute = [self._chunk(read, block_index, block.xabd) for read in read_functions]
            attended = streamed_attention(
                mab.queries(x_BHW),
                recompute
                if stored_latents is None
                else [_chunk_of_latents(latents[block_index], block.xabd) for latents in stored_latents],
                scale=mab.attention.scale,
                sources=sources,
                recompute=recompute,
                processes=processes,
            )
            out = mab.finish(x_BHW, mab.attention.join_heads(attended))
            h_BHFE = out.unflatten(-1, h_BHFE.shape[-2:])
        return h_BHFE

    def _blocks(self) -> list[EncoderBlock]:
        return cast(list[EncoderBlock], list(self.blocks))

    def _chunk(self, read: Callable[[], Tensor], block_index: int, xabd: XABD) -> Chunk:
        def keys_values() -> KeysValues:
            latents = self._latents(read(), block_index + 1)[-1]
            return KeysValues(*xabd.mab.attention.keys_values(latents.flatten(-2)))

        return keys_values

    def _latents(self, d_BNDE: Tensor, n_blocks: int) -> list[Tensor]:
        """Return the latent attributes (B, N, F, E) of datapoints after each of the first `n_blocks`."""
        require_shape("d", d_BNDE, None, None, self.columns, self.width)
        latents = [self._start(d_BNDE)]
        for block in self._blocks()[:n_blocks]:
            latents.append(block.latents(latents[-1], d_BNDE))
        return latents[1:]

    def _start(self, d_BNDE: Tensor) -> Tensor:
        if self.start_map is not None:
            return self.start_map(d_BNDE.transpose(-1, -2)).transpose(-1, -2)
        assert self.start_latents is not None
        return self.start_latents.expand(*d_BNDE.shape[:2], -1, -1)


def _reader(chunk: EmbeddedChunk) -> Callable[[], Tensor]:
    return (lambda: chunk) if isinstance(chunk, Tensor) else chunk


def _chunk_of_latents(latents_BNFE: Tensor, xabd: XABD) -> Chunk:
    return lambda: KeysValues(*xabd.mab.attention.keys_values(latents_BNFE.flatten(-2)))


@dataclass(frozen=True)
class SPINConfig:
    """Sizes and options of a `SPIN`. `dataclasses.asdict` converts them to a dictionary for JSON.

    Attributes
    ----------
    vocabulary : int
        Number of categories K of an attribute (2^k for k-mers of SNPs).
    columns : int, optional
        Number of columns D. None if it varies from call to call; this requires `side_width` and
        `latent_start="learned"`.
    continuous, pieces
        Columns that hold standardised scalars, and pieces of each scalar (0: linear); see `ColumnEmbedding`.
    side_width : int
        Number of values that describe a column; they replace the embedding of the column's index.
    predictor : {"tokenwise", "flat", "row"}
        "tokenwise" has O(E^2) weights, "flat" (the paper's predictor) O((D E)^2), "row" O(D E R).
    predictor_layers : int
        Number of layers of the predictor; "flat" ignores it.
    row_width, members : int
        See `RowPredictor`. With A members, logits have A * Q rows.

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
    layer_order: LayerOrder = "paper"
    continuous: tuple[int, ...] = ()
    pieces: int = 0
    side_width: int = 0
    heads: int = 1
    scale: Scale = "head"
    learned_residual: bool = False
    dropout: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "continuous", tuple(self.continuous))  # JSON gives a list

    @property
    def options(self) -> MABOptions:
        """Options of all attention blocks."""
        return MABOptions(self.heads, self.scale, self.learned_residual, self.dropout)


def _build_predictor(config: SPINConfig) -> nn.Module:
    require_choice("predictor", config.predictor, ("tokenwise", "flat", "row"))
    width, outputs, layers = config.width, config.vocabulary, config.predictor_layers
    if config.predictor == "tokenwise":
        return TokenwisePredictor(width, outputs, config.columns, layers, config.options)
    if config.columns is None:
        raise ValueError(f"columns must be a number with predictor={config.predictor!r}")
    latents, options = config.latent_attributes, config.options
    if config.predictor == "flat":
        return FlatPredictor(width, outputs, config.columns, latents, options)
    return RowPredictor(
        width,
        outputs,
        config.columns,
        latent_attributes=latents,
        row_width=config.row_width,
        layers=layers,
        options=options,
        members=config.members,
        continuous=config.continuous,
    )


class SPIN(nn.Module):
    """Network that predicts every attribute of query datapoints from their visible attributes and a context.

    With `predictor="flat"`, `learned_residual=True` and the paper's genomics setting (50 5-mers, E = 16) the
    model has 8.05M parameters, like SPIN-16 in the paper.

    Parameters
    ----------
    config : SPINConfig
        Sizes and options of the model.
    predictor : nn.Module, optional
        Module that replaces the predictor named by `config.predictor`. It maps queries (B, Q, D, E) and
        H (B, H, F, E) to (B, Q, D, outputs).

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
            layer_order=config.layer_order,
            options=config.options,
        )
        self.predictor = _build_predictor(config) if predictor is None else predictor

    def encode(
        self, context: Tensor, mask: Tensor, side: Tensor | None = None, visible: Tensor | None = None
    ) -> Tensor:
        """Encode a context as inducing points.

        Parameters
        ----------
        context : Tensor (B, N, D)
            Codes, see `ColumnEmbedding`.
        mask : bool Tensor (B, N, D)
            True where a cell is hidden.
        side : Tensor (D, C) or (B, D, C), optional
            Values that describe the columns.
        visible : bool Tensor (B, N), optional
            False for padding.

        Returns
        -------
        Tensor (B, H, F, E)
            Inducing points; predictions need nothing else of the context.
        """
        return self.encoder(self.embedding(context, mask, side), visible)

    def encode_stream(
        self,
        chunks: Sequence[TokenChunk],
        side: Tensor | None = None,
        *,
        keep_latents: bool = False,
        processes: Processes = SINGLE_PROCESS,
    ) -> Tensor:
        """Encode a context in chunks, with less memory than `encode` and the same result and gradients.

        Each chunk is a pair (context (B, n, D), mask (B, n, D)), or a function that returns a pair. For
        `side` see `encode`, for `keep_latents` and `processes` see `SPINEncoder.encode_stream`.
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
        self, query: Tensor, mask: Tensor, h_BHFE: Tensor, side: Tensor | None = None, only: int | None = None
    ) -> Tensor:
        """Predict queries from inducing points.

        Parameters
        ----------
        query : Tensor (B, Q, D)
            Codes.
        mask : bool Tensor (B, Q, D)
            True where a cell is hidden.
        h_BHFE : Tensor
            Result of `encode`.
        side
            As in `encode`.
        only : int, optional
            Return the logits of this column alone; negative numbers count from the last column.

        Returns
        -------
        Tensor (B, Q, D, K), or (B, Q, 1, K) with `only`
            Logits. With A members, A * Q replaces Q.

        Raises
        ------
        ValueError
            A shape does not fit or there is no such column.
        """
        require_column(only, query.shape[-1])
        require_shape("h", h_BHFE, query.shape[0], None, None, self.config.width)
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
        """Return logits (B, Q, D, K) of the queries; see `encode` and `predict` for the parameters."""
        return self.predict(query, query_mask, self.encode(context, context_mask, side, visible), side, only)


class CIPNPHead(nn.Module):
    """Network that maps (x, r(x, H)) to `outputs` numbers per attribute, where r is a `TokenwiseReader`.

    With `pooled`, the mean of all inducing points is a third input, as in conditional neural processes.
    """

    def __init__(self, width: int, outputs: int, layers: int, options: MABOptions, *, pooled: bool) -> None:
        super().__init__()
        hidden = 4 * width
        self.reader = TokenwiseReader(width, layers, options)
        self.pooled = (
            nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width)) if pooled else None
        )
        self.decoder = nn.Sequential(
            nn.Linear((3 if pooled else 2) * width, hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, outputs),
        )

    def forward(self, x_BQDE: Tensor, h_BHFE: Tensor) -> Tensor:
        """Return the parameters (B, Q, D, outputs) of the distribution of each attribute."""
        inputs = [x_BQDE, self.reader(x_BQDE, h_BHFE)]
        if self.pooled is not None:
            pooled_BE = self.pooled(h_BHFE).mean((1, 2))
            inputs.append(pooled_BE[:, None, None].expand_as(x_BQDE))
        return self.decoder(torch.cat(inputs, -1))


class CIPNP(SPIN):
    """Conditional inducing point neural process over tokens: a `SPIN` that predicts distributions.

    H = encoder(context), r(x, H) = MAB(x, H), a multi-head attention block (the paper writes r_c for H). A
    small network maps (x, r) to the parameters of a distribution for every attribute.

    Parameters
    ----------
    config : SPINConfig
        Sizes and options; `config.predictor` must be "tokenwise".
    distribution : {"categorical", "bernoulli"}
        "categorical": K logits per attribute; "bernoulli": one logit per attribute, for category 1.
    pooled : bool
        Also pass the mean of all inducing points to the decoder.

    References
    ----------
    Rastogi et al., ICLR 2023, section 3.3.
    """

    def __init__(
        self, config: SPINConfig, distribution: DistributionName = "categorical", *, pooled: bool = False
    ) -> None:
        if config.predictor != "tokenwise":
            raise ValueError(f"predictor must be 'tokenwise' for CIPNP, got {config.predictor!r}")
        require_choice("distribution", distribution, ("categorical", "bernoulli"))
        if distribution == "bernoulli" and config.vocabulary != 2:
            raise ValueError(f"vocabulary must be 2 for a Bernoulli distribution, got {config.vocabulary}")
        outputs = config.vocabulary if distribution == "categorical" else 1
        head = CIPNPHead(config.width, outputs, config.predictor_layers, config.options, pooled=pooled)
        super().__init__(config, predictor=head)
        self.distribution_name = distribution

    def distribution(self, parameters: Tensor) -> Categorical | Bernoulli:
        """Return the distributions of all attributes, batch shape (B, Q, D), from the logits of `predict`."""
        if self.distribution_name == "categorical":
            return Categorical(logits=parameters)
        return Bernoulli(logits=parameters.squeeze(-1))
