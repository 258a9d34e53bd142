"""Presets: the networks of the SPIN paper and its baselines in their published form.

All take rows of cells, some of them hidden, as context and queries. Labels are cells like others: they are
embedded, not carried. Weights and inducing points start from random numbers.

    SPIN             XABA, XABD and ABLA encode the context as inducing points; flat predictor
    CIPNP            the same encoder; every token of a query reads the inducing points
    NPT              ABD and ABA over context and queries (Kossen et al., NeurIPS 2021)
    SetTransformer   ISABs over both axes (Lee et al., ICML 2019)
"""

from dataclasses import replace
from typing import Any, Literal

from spinimpute.nn.attention import MABOptions
from spinimpute.nn.row_models import NPT, RowModel, SetTransformer
from spinimpute.nn.spin import CIPNP, SPIN, LayerOrder, SPINConfig

Form = Literal["SPIN", "CIPNP", "NPT", "SetTransformer"]


def published_network(
    form: Form,
    vocabulary: int,
    columns: int,
    *,
    width: int = 16,
    blocks: int = 2,
    heads: int = 1,
    dropout: float = 0.0,
    inducing_points: int = 10,
    latent_attributes: int = 10,
    layer_order: LayerOrder = "paper",
    **embedding: Any,
) -> SPIN | RowModel:
    """Return an untrained network in its published form.

    Parameters
    ----------
    form : {"SPIN", "CIPNP", "NPT", "SetTransformer"}
        The network, see the module's header.
    vocabulary : int
        Number of categories of a column.
    columns : int
        Number of columns of a row, the label included.
    width : int
        Width of the embedding of a cell.
    blocks : int
        Number of blocks. The papers count layers: "depth 4" is two blocks.
    heads : int
        Number of attention heads; must divide the width.
    dropout : float
        Dropout of attention weights and feed-forward outputs.
    inducing_points, latent_attributes : int
        Numbers of inducing points and of latent attributes. NPT has neither.
    layer_order : {"paper", "released"}
        Order of the layers of SPIN and CIPNP, see `nn.spin.EncoderBlock`.
    **embedding
        `continuous`, `side_width` and `pieces` of `ColumnEmbedding`.

    Returns
    -------
    SPIN or RowModel
        The network.

    References
    ----------
    Rastogi et al., ICLR 2023, sections 3 and 4, appendix A.
    """
    options = MABOptions(heads, learned_residual=True, dropout=dropout)
    if form == "NPT":
        return NPT(vocabulary, columns, width, blocks, options, **embedding)
    points: dict[str, Any] = {"inducing_points": inducing_points, "latent_attributes": latent_attributes}
    if form == "SetTransformer":
        return SetTransformer(vocabulary, columns, width, blocks, options, **points, **embedding)
    config = SPINConfig(
        vocabulary,
        columns,
        width,
        blocks=blocks,
        predictor="flat",
        heads=heads,
        learned_residual=True,
        dropout=dropout,
        layer_order=layer_order,
        **points,
        **embedding,
    )
    return SPIN(config) if form == "SPIN" else CIPNP(replace(config, predictor="tokenwise"))
