"""Charts of reports, drawn with Matplotlib as SVG.

A chart is part of the HTML page and can also be written to its own file. The pages contain the same numbers
in tables, for readers who cannot see the charts.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH, HEIGHT, TALL_HEIGHT = 6.0, 2.9, 4.2  # inches
BARS = 20  # of a histogram
MAX_MARKERS = 40  # lines with more points are drawn without markers
MAX_MARKED_POINTS = 1_000  # in a density plot; more points would only cover each other
CELLS_PER_AXIS = 40  # of a density plot
LABEL_GAP = 0.3  # minimum distance of tick labels, in heights of a label
COLORS = ("#1b5fc1", "#b45309", "#11795a")  # of the first, second and third series
MARKERS = ("o", "s", "D")
_INK, _SOFT, _LINE, _PAPER = "#1c2430", "#566173", "#d9dee6", "#ffffff"

# colours that page.css replaces in dark mode -> the CSS variables
_VARIABLES = dict(zip(COLORS, ("--first", "--second", "--third"), strict=True)) | {
    _INK: "--ink",
    _SOFT: "--soft",
    _LINE: "--line",
    _PAPER: "--paper",
}
_STYLE: Any = {
    "axes.axisbelow": True,
    "axes.edgecolor": _SOFT,
    "axes.formatter.useoffset": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.labelcolor": _INK,
    "axes.spines.left": False,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.facecolor": _PAPER,
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],  # a part of Matplotlib
    "font.size": 9,
    "grid.color": _LINE,
    "legend.frameon": False,
    "lines.markersize": 5,
    "svg.fonttype": "none",  # text stays text
    "text.color": _INK,
    "text.parse_math": False,
    "xtick.color": _SOFT,
    "xtick.labelcolor": _INK,
    "ytick.labelcolor": _INK,
    "ytick.left": False,
}
# Without metadata, the bytes of the file depend only on the chart.
_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))


class Series(NamedTuple):
    """A line of a chart: its name in the legend, and its values. The line is interrupted at NaN."""

    name: str
    y: Sequence[float]


@dataclass(frozen=True)
class Chart:
    """A chart."""

    name: str  # file name without suffix
    svg: str  # SVG document
    description: str  # caption

    @property
    def html(self) -> str:
        """HTML figure with the caption, in the colours of the page."""
        text = escape(self.description)
        drawing = re.sub(
            r"#[0-9a-f]{6}\b",
            lambda match: f"var({_VARIABLES[match[0]]})" if match[0] in _VARIABLES else match[0],
            self.svg[self.svg.index("<svg ") :],
        )
        drawing = re.sub(r'<g id="[^"]*"', "<g", drawing)  # ids must be unique, but all charts have the same
        drawing = drawing.replace("<svg ", f'<svg role="img" aria-label="{text}" ', 1)
        return (
            f'<figure><div class="chart" tabindex="0" role="group" aria-label="{text}">{drawing}</div>'
            f"<figcaption>{text}</figcaption></figure>"
        )

    def write(self, path: Path) -> None:
        """Write the SVG document; raises OSError if the file cannot be written."""
        path.write_text(self.svg, encoding="utf-8", errors="xmlcharrefreplace")


@contextmanager
def _style() -> Iterator[None]:
    import matplotlib  # not at the top, because it takes half a second

    with matplotlib.rc_context(_STYLE):
        yield


def _new_axes(x_label: str, y_label: str, height: float = HEIGHT) -> Axes:
    from matplotlib.figure import Figure

    axes = Figure(figsize=(WIDTH, height), layout="constrained").subplots()
    axes.set(xlabel=x_label, ylabel=y_label)
    return axes


def _chart(name: str, axes: Axes, description: str) -> Chart:
    import matplotlib
    from matplotlib.figure import Figure

    figure, svg = axes.figure, io.StringIO()
    assert isinstance(figure, Figure)
    if axes.get_legend_handles_labels()[1]:
        figure.legend(loc="outside upper left", ncols=2)
    fit_tick_labels(axes)
    with matplotlib.rc_context({"svg.hashsalt": name}):
        figure.savefig(svg, format="svg", metadata=_METADATA | {"Title": description})
    return Chart(name, svg.getvalue(), description)


def fit_tick_labels(axes: Axes) -> None:
    """Change the labels of the x axis if they overlap.

    Numbers get fewer ticks. Categories are rotated by 45 degrees, and some labels are omitted if they overlap
    nevertheless.
    """
    from matplotlib.ticker import FixedLocator

    figure, axis = axes.figure, axes.xaxis
    figure.draw_without_rendering()  # type: ignore[union-attr]  # computes the layout
    labels = axis.get_ticklabels()
    boxes = [label.get_window_extent() for label in labels if label.get_text()]
    if len(boxes) < 2:
        return
    width, height = max(box.width for box in boxes), max(box.height for box in boxes)
    ticks = axes.transData.transform([(tick, 0) for tick in axes.get_xticks()])[:, 0]
    spacing = float(np.diff(ticks).min())
    if width + LABEL_GAP * height <= spacing:
        return
    if not isinstance(axis.get_major_locator(), FixedLocator):
        n_labels = axes.get_window_extent().width / (width + LABEL_GAP * height)
        axes.locator_params(axis="x", nbins=max(1, int(n_labels)))
        return
    between_lines = spacing * math.sin(math.radians(45))  # of rotated labels
    step = math.ceil((1 + LABEL_GAP) * height / between_lines)
    axes.set_xticks(axes.get_xticks()[::step], [label.get_text() for label in labels[::step]])
    axes.tick_params(axis="x", labelrotation=45)
    for label in axis.get_ticklabels():
        label.set(horizontalalignment="right", rotation_mode="anchor")


@_style()
def line_chart(
    name: str,
    x: Sequence[float] | Sequence[str],
    series: Sequence[Series],
    x_label: str,
    y_label: str,
    description: str,
    *,
    unit_interval: bool = True,
) -> Chart:
    """Draw lines over numbers or categories.

    With `unit_interval`, the y axis ends at 1. Otherwise it ends at the maximum.
    """
    axes = _new_axes(x_label, y_label)
    x_position = np.arange(len(x)) if isinstance(x[0], str) else np.asarray(x, dtype=float)
    if isinstance(x[0], str):
        axes.set_xticks(x_position, [str(category) for category in x])
        axes.set_xlim(-0.5, len(x) - 0.5)
    marked = len(x) <= MAX_MARKERS
    for line, color, marker in zip(series, COLORS, MARKERS, strict=False):
        axes.plot(
            x_position, line.y, label=line.name, color=color, marker=marker if marked else "", clip_on=False
        )
    axes.set_ylim(0, 1 if unit_interval else None)
    return _chart(name, axes, description)


@_style()
def histogram(
    name: str,
    values: Sequence[float],
    x_label: str,
    y_label: str,
    description: str,
    *,
    unit_interval: bool = False,
) -> Chart:
    """Draw a histogram of the finite values.

    With `unit_interval`, the x axis is from 0 to 1. Otherwise it is from the minimum to the maximum,
    if they differ.
    """
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter

    # rounded, because values that differ only by rounding errors would get bins of their own
    finite = np.round([v for v in values if math.isfinite(v)], 9)
    if len(np.unique(finite)) < 2 and ((finite >= 0) & (finite <= 1)).all():
        unit_interval = True
    count, edge = np.histogram(finite, BARS, (0, 1) if unit_interval else None)
    filled = count > 0
    axes = _new_axes(x_label, y_label)
    width = 0.9 * np.diff(edge)[filled]
    axes.bar((edge[:-1] + edge[1:])[filled] / 2, count[filled], width, color=COLORS[0])
    axes.set_xlim(edge[0], edge[-1])
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    return _chart(name, axes, description)


@_style()
def density_plot(
    name: str,
    x: Sequence[float],
    y: Sequence[float],
    marked: Sequence[bool],
    x_label: str,
    y_label: str,
    legend: tuple[str, str],
    description: str,
) -> Chart:
    """Draw the density of pairs of values between 0 and 1 in square cells, with a diagonal at x = y.

    The `marked` pairs are also drawn as points, up to MAX_MARKED_POINTS. `legend` has the names of the cells
    and of the points.
    """
    from matplotlib.collections import PolyCollection

    axes = _new_axes(x_label, y_label, TALL_HEIGHT)
    count = np.histogram2d(x, y, CELLS_PER_AXIS, ((0, 1), (0, 1)))[0]
    cell = np.argwhere(count)
    corners = (cell[:, None] + [[0, 0], [1, 0], [1, 1], [0, 1]]) / CELLS_PER_AXIS
    shade = 0.15 + 0.85 * np.log1p(count[count > 0]) / math.log1p(max(1, count.max()))
    colors = [(COLORS[0], round(float(alpha), 2)) for alpha in shade]
    axes.plot([0, 1], [0, 1], color=_LINE, linewidth=1)
    axes.add_collection(PolyCollection(list(corners), facecolors=colors, linewidths=0, label=legend[0]))
    marked_indices = np.flatnonzero(marked)[:MAX_MARKED_POINTS]
    if len(marked_indices):
        points = np.take(x, marked_indices), np.take(y, marked_indices)
        axes.plot(*points, linestyle="", marker=MARKERS[1], color=COLORS[1], label=legend[1], clip_on=False)
    axes.set(xlim=(0, 1), ylim=(0, 1))
    return _chart(name, axes, description)
