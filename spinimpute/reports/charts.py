"""Charts as inline SVG.

Pages show their numbers in tables, too, so that readers who cannot see the charts miss nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

WIDTH, HEIGHT = 720, 300
LEFT, RIGHT, TOP, BOTTOM = 56, 16, 14, 52  # around the plotted area
MARKS = ("circle", "square", "diamond")  # of the first, second, third series


@dataclass(frozen=True)
class Series:
    """One line of a chart.

    Attributes
    ----------
    name : str
        Its name in the legend.
    y : sequence of float
        Its values; NaN leaves a gap.
    """

    name: str
    y: Sequence[float]


@dataclass(frozen=True)
class Scale:
    """A linear map from values to places on the page.

    Attributes
    ----------
    low, high : float
        Range of the values.
    start, stop : float
        Where `low` and `high` are drawn, in units of the chart.
    """

    low: float
    high: float
    start: float
    stop: float

    def __call__(self, value: float) -> float:
        """The place of a value."""
        return self.start + (value - self.low) / (self.high - self.low) * (self.stop - self.start)


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Round numbers from low to high.

    Parameters
    ----------
    low, high : float
        The range.
    most : int
        About how many numbers there may be.

    Returns
    -------
    list of float
        Increasing numbers; `low` alone where the range is empty.
    """
    if high - low <= max(1e-300, 1e-9 * abs(low)):  # numbers are not finer than that
        return [low]
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
    first = math.ceil(low / step - 1e-9)
    return [round(i * step, 12) for i in range(first, math.floor(high / step + 1e-9) + 1)]


def lines_by_category(
    categories: Sequence[str], series: Sequence[Series], x_label: str, y_label: str, description: str
) -> str:
    """Draw lines over categories, with y from 0 to 1.

    Parameters
    ----------
    categories : sequence of str
        Names along the x axis, evenly spaced.
    series : sequence of Series
        The lines, with a value for each category.
    x_label, y_label : str
        Labels of the axes.
    description : str
        Caption, also read by screen readers.

    Returns
    -------
    str
        A figure element of HTML.
    """
    x = Scale(-0.5, len(categories) - 0.5, LEFT, WIDTH - RIGHT)
    y = Scale(0, 1, HEIGHT - BOTTOM, TOP)
    names = "".join(
        f'<text x="{x(i):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{escape(name)}</text>'
        for i, name in enumerate(categories)
    )
    drawn = "".join(
        _line([x(i) for i in range(len(categories))], [y(v) for v in one.y], number)
        for number, one in enumerate(series)
    )
    return _figure(_grid(y, ticks(0, 1, 5)) + names + drawn, x_label, y_label, series, description)


def lines_by_position(
    position: Sequence[float],
    series: Sequence[Series],
    x_label: str,
    y_label: str,
    description: str,
    *,
    unit_interval: bool,
) -> str:
    """Draw lines along a chromosome, or another continuous axis.

    Parameters
    ----------
    position : sequence of float
        Values of x, increasing.
    series : sequence of Series
        The lines, with a value for each position.
    x_label, y_label : str
        Labels of the axes.
    description : str
        Caption, also read by screen readers.
    unit_interval : bool
        Whether y goes from 0 to 1; else it goes from 0 to the largest value.

    Returns
    -------
    str
        A figure element of HTML.
    """
    low, high = min(position), max(position)
    x = Scale(low, high if high > low else low + 1, LEFT, WIDTH - RIGHT)
    largest = max((v for one in series for v in one.y if math.isfinite(v)), default=1.0)
    top = 1.0 if unit_interval else (largest * 1.05 or 1.0)
    y = Scale(0, top, HEIGHT - BOTTOM, TOP)
    places = "".join(
        f'<text x="{x(t):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{t:g}</text>'
        for t in ticks(low, high)
    )
    drawn = "".join(
        _line([x(p) for p in position], [y(v) for v in one.y], number, marks=len(position) <= 40)
        for number, one in enumerate(series)
    )
    return _figure(_grid(y, ticks(0, top, 5)) + places + drawn, x_label, y_label, series, description)


def histogram(values: Sequence[float], x_label: str, y_label: str, description: str, bins: int = 24) -> str:
    """Draw a histogram.

    Parameters
    ----------
    values : sequence of float
        The values; those that are not finite are ignored.
    x_label, y_label : str
        Labels of the axes.
    description : str
        Caption, also read by screen readers.
    bins : int
        Number of bars.

    Returns
    -------
    str
        A figure element of HTML.
    """
    known = np.round([v for v in values if math.isfinite(v)], 9)  # no bins for errors of rounding
    count, edge = np.histogram(known, bins=bins)
    x = Scale(float(edge[0]), float(edge[-1]), LEFT, WIDTH - RIGHT)
    top = max(1, int(count.max()))
    y = Scale(0, top * 1.05, HEIGHT - BOTTOM, TOP)
    bars = "".join(
        f'<rect class="bar s0" x="{x(a) + 1:.1f}" y="{y(n):.1f}" width="{max(1.0, x(b) - x(a) - 2):.1f}" '
        f'height="{y(0) - y(n):.1f}"/>'
        for n, a, b in zip(count.tolist(), edge[:-1].tolist(), edge[1:].tolist(), strict=True)
        if n
    )
    places = "".join(
        f'<text x="{x(t):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{t:g}</text>'
        for t in ticks(float(edge[0]), float(edge[-1]))
    )
    counts = [t for t in ticks(0, top, 4) if t == int(t)]
    return _figure(_grid(y, counts) + bars + places, x_label, y_label, [], description)


def _grid(y: Scale, values: Sequence[float]) -> str:
    return "".join(
        f'<line class="{"axis" if value == 0 else "grid"}" x1="{LEFT}" x2="{WIDTH - RIGHT}" '
        f'y1="{y(value):.1f}" y2="{y(value):.1f}"/>'
        f'<text x="{LEFT - 8}" y="{y(value) + 4:.1f}" text-anchor="end">{value:g}</text>'
        for value in values
    )


def _line(x: Sequence[float], y: Sequence[float], number: int, marks: bool = True) -> str:
    path, pen_down = [], False
    dots = []
    for a, b in zip(x, y, strict=True):
        if math.isfinite(b):
            path.append(f"{'L' if pen_down else 'M'}{a:.1f} {b:.1f}")
            dots.append(_mark(a, b, number))
        pen_down = math.isfinite(b)
    return f'<g class="s{number}"><path d="{"".join(path)}"/>{"".join(dots) if marks else ""}</g>'


def _mark(x: float, y: float, number: int) -> str:
    kind = MARKS[number % len(MARKS)]
    if kind == "circle":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4"/>'
    turned = f' transform="rotate(45 {x:.1f} {y:.1f})"' if kind == "diamond" else ""
    return f'<rect x="{x - 3.5:.1f}" y="{y - 3.5:.1f}" width="7" height="7"{turned}/>'


def _figure(content: str, x_label: str, y_label: str, series: Sequence[Series], description: str) -> str:
    names = "".join(
        f'<li><span class="s{number}"></span>{escape(one.name)}</li>' for number, one in enumerate(series)
    )
    legend = f'<ul class="legend" role="list">{names}</ul>' if names else ""
    centre, middle = (LEFT + WIDTH - RIGHT) / 2, (TOP + HEIGHT - BOTTOM) / 2
    return (
        f'<figure>{legend}<div class="chart" tabindex="0" role="group" aria-label="{escape(description)}">'
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(description)}">'
        f"{content}"
        f'<text x="{centre}" y="{HEIGHT - 8}" text-anchor="middle">{escape(x_label)}</text>'
        f'<text x="14" y="{middle}" text-anchor="middle" transform="rotate(-90 14 {middle})">'
        f"{escape(y_label)}</text></svg></div><figcaption>{escape(description)}</figcaption></figure>"
    )
