"""Writes figures as PNG or SVG: attention weights as a heat map, the importance of columns as bars."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from spinimpute.runtime.errors import InputError
from spinimpute.runtime.output_files import check_writable, written_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = {".png": "png", ".svg": "svg"}
MAX_BARS = 40


def attention_figure(
    weights: Any,
    path: str | Path,
    *,
    rows: str = "queries",
    columns: str = "inducing points",
    order_rows: Sequence[int] | np.ndarray | None = None,
) -> None:
    """Draw attention weights (N, M) as a heat map.

    `rows` and `columns` are the labels of the axes. `order_rows` holds the indices of the rows from top to
    bottom, for example sorted by class. Raises InputError if the path is neither .png nor .svg, or cannot be
    written.
    """
    from matplotlib.figure import Figure

    weight_NM = np.asarray(weights)
    if weight_NM.ndim != 2:
        raise ValueError(f"weights must have 2 dimensions, got {weight_NM.ndim}")
    if order_rows is not None:
        weight_NM = weight_NM[np.asarray(order_rows)]
    figure = Figure(figsize=(6, 4.5), layout="constrained")
    ax = figure.subplots()
    image = ax.imshow(weight_NM, aspect="auto", interpolation="nearest", vmin=0)
    ax.set(xlabel=columns, ylabel=rows)
    figure.colorbar(image, label="attention")
    _write(figure, path)


def importance_figure(names: Sequence[str], importance: Any, path: str | Path) -> None:
    """Draw the importance (D,) of named columns as horizontal bars, for at most the 40 most important.

    Raises InputError if the path is neither .png nor .svg, or cannot be written.
    """
    from matplotlib.figure import Figure

    importance_D = np.asarray(importance)
    if importance_D.shape != (len(names),):
        raise ValueError(f"importance must have the shape ({len(names)},), got {importance_D.shape}")
    order = np.argsort(-importance_D, kind="stable")[:MAX_BARS]
    figure = Figure(figsize=(6, 0.8 + 0.22 * len(order)), layout="constrained")
    ax = figure.subplots()
    ax.barh(np.arange(len(order)), importance_D[order])
    # dollar signs in a name do not start a formula
    ax.set_yticks(np.arange(len(order)), [str(names[i]) for i in order], fontsize=8, parse_math=False)
    ax.invert_yaxis()
    left_out = len(names) - len(order)
    ax.set_xlabel("importance" + (f" ({left_out} columns left out)" if left_out else ""))
    _write(figure, path)


def _write(figure: Figure, path: str | Path) -> None:
    path = Path(path)
    kind = FORMATS.get(path.suffix.lower())
    if kind is None:
        raise InputError("argument", f"picture {path}: the name must end with .png or .svg")
    check_writable(path)
    with written_whole(path) as partial:
        figure.savefig(partial, dpi=130, format=kind)
