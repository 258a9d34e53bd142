"""Charts as SVG: within pages, and as files of their own.

Pages show their numbers in tables, too, so that readers who cannot see the charts miss nothing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files

import numpy as np

WIDTH, HEIGHT = 720, 300
LEFT, RIGHT, TOP, BOTTOM = 56, 16, 14, 52  # around the plotted area
TALL = 460  # a chart of which both axes are the same
CELLS = 40  # of its plotted area, along each axis
MOST_MARKED = 1_000  # more would only cover each other
MARKS = ("circle", "square", "diamond")  # of the first, second, third series
_LEGEND_LINE, _LETTER = 22, 6.6  # of a file's legend: height of a line, and about the width of a letter
_VARIABLE = re.compile(r"var\((--[\w-]+)\)")


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
class Chart:
    """A chart, as `lines_by_category` and others draw them.

    Attributes
    ----------
    name : str
        Of its file, without a suffix.
    content : str
        What is drawn: SVG.
    x_label, y_label : str
        Labels of the axes.
    series : sequence of Series
        Those that the legend names.
    description : str
        Caption, also read by screen readers.
    height : float
        In units of the chart.
    """

    name: str
    content: str
    x_label: str
    y_label: str
    series: Sequence[Series]
    description: str
    height: float = HEIGHT

    @property
    def html(self) -> str:
        """A figure element of HTML, with legend and caption."""
        names = "".join(
            f'<li><span class="s{number}"></span>{escape(one.name)}</li>'
            for number, one in enumerate(self.series)
        )
        legend = f'<ul class="legend" role="list">{names}</ul>' if names else ""
        said = escape(self.description)
        return (
            f'<figure>{legend}<div class="chart" tabindex="0" role="group" aria-label="{said}">'
            f'<svg viewBox="0 0 {WIDTH} {self.height:g}" role="img" aria-label="{said}">{self._drawn}</svg>'
            f"</div><figcaption>{said}</figcaption></figure>"
        )

    @property
    def svg(self) -> str:
        """A file of SVG that needs no other: with legend, caption (as title) and colours by day."""
        legend, lines = self._legend()
        top = lines * _LEGEND_LINE
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{self.height + top:g}" '
            f'viewBox="0 {-top} {WIDTH} {self.height + top:g}"><title>{escape(self.description)}</title>'
            f"<style>{_style_of_files()}</style>"
            f'<rect x="0" y="{-top}" width="{WIDTH}" height="{self.height + top:g}" fill="#ffffff"/>'
            f"{legend}{self._drawn}</svg>\n"
        )

    @property
    def _drawn(self) -> str:
        centre, middle = (LEFT + WIDTH - RIGHT) / 2, (TOP + self.height - BOTTOM) / 2
        return (
            f"{self.content}"
            f'<text x="{centre}" y="{self.height - 8:g}" text-anchor="middle">{escape(self.x_label)}</text>'
            f'<text x="14" y="{middle}" text-anchor="middle" transform="rotate(-90 14 {middle})">'
            f"{escape(self.y_label)}</text>"
        )

    def _legend(self) -> tuple[str, int]:
        """Marks and names above the chart, and on how many lines they stand."""
        placed: list[tuple[int, float]] = []  # line, and where it begins
        line, x = 0, float(LEFT)
        for one in self.series:
            width = 30 + _LETTER * len(one.name)
            if x > LEFT and x + width > WIDTH:
                line, x = line + 1, LEFT
            placed.append((line, x))
            x += width
        n_lines = placed[-1][0] + 1 if placed else 0
        out = []
        for number, (one, (line, x)) in enumerate(zip(self.series, placed, strict=True)):
            y = (line - n_lines) * _LEGEND_LINE + 16
            out.append(
                f'<g class="s{number}">{_mark(x, y - 4, number)}</g>'
                f'<text x="{x + 10:.1f}" y="{y}">{escape(one.name)}</text>'
            )
        return "".join(out), n_lines


def _style_of_files() -> str:
    """The page's rules for what stands in charts, with its colours by day: programs know no variables."""
    lines = (files("spinimpute.reports") / "page.css").read_text(encoding="utf-8").splitlines()
    by_day = dict(re.findall(r"(--[\w-]+): (#\w+)", "".join(lines[: lines.index("}")])))
    rules = [line for line in lines if line.startswith("svg ") and not line.startswith("svg {")]
    return _VARIABLE.sub(lambda match: by_day[match[1]], "".join(rules))


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
    name: str,
    categories: Sequence[str],
    series: Sequence[Series],
    x_label: str,
    y_label: str,
    description: str,
) -> Chart:
    """Draw lines over categories, with y from 0 to 1.

    Parameters
    ----------
    name : str
        Of the chart's file.
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
    Chart
        For a page, and for a file.
    """
    x = Scale(-0.5, len(categories) - 0.5, LEFT, WIDTH - RIGHT)
    y = Scale(0, 1, HEIGHT - BOTTOM, TOP)
    names = "".join(
        f'<text x="{x(i):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{escape(category)}</text>'
        for i, category in enumerate(categories)
    )
    drawn = "".join(
        _line([x(i) for i in range(len(categories))], [y(v) for v in one.y], number)
        for number, one in enumerate(series)
    )
    return Chart(name, _grid(y, ticks(0, 1, 5)) + names + drawn, x_label, y_label, series, description)


def lines_by_position(
    name: str,
    position: Sequence[float],
    series: Sequence[Series],
    x_label: str,
    y_label: str,
    description: str,
    *,
    unit_interval: bool,
) -> Chart:
    """Draw lines along a chromosome, or another continuous axis.

    Parameters
    ----------
    name : str
        Of the chart's file.
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
    Chart
        For a page, and for a file.
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
    return Chart(name, _grid(y, ticks(0, top, 5)) + places + drawn, x_label, y_label, series, description)


def histogram(
    name: str, values: Sequence[float], x_label: str, y_label: str, description: str, bins: int = 24
) -> Chart:
    """Draw a histogram.

    Parameters
    ----------
    name : str
        Of the chart's file.
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
    Chart
        For a page, and for a file.
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
    return Chart(name, _grid(y, counts) + bars + places, x_label, y_label, [], description)


def counts_in_plane(
    name: str,
    x: Sequence[float],
    y: Sequence[float],
    marked: Sequence[bool],
    x_label: str,
    y_label: str,
    legend: tuple[str, str],
    description: str,
) -> Chart:
    """Draw how often which two values between 0 and 1 go together, and a diagonal where they are the same.

    Parameters
    ----------
    name : str
        Of the chart's file.
    x, y : sequence of float
        The values.
    marked : sequence of bool
        Pairs that are drawn one by one; of more than MOST_MARKED the first.
    x_label, y_label : str
        Labels of the axes.
    legend : (str, str)
        What the cells are, and what is marked.
    description : str
        Caption, also read by screen readers.

    Returns
    -------
    Chart
        For a page, and for a file.
    """
    across, up = Scale(0, 1, LEFT, WIDTH - RIGHT), Scale(0, 1, TALL - BOTTOM, TOP)
    count = np.histogram2d(x, y, CELLS, ((0, 1), (0, 1)))[0].astype(np.int64)
    darkest = math.log1p(max(1, int(count.max())))
    width, height = (WIDTH - RIGHT - LEFT) / CELLS, (TALL - BOTTOM - TOP) / CELLS
    cells = "".join(
        f'<rect class="bar s0" x="{across(i / CELLS):.1f}" y="{up((j + 1) / CELLS):.1f}" width="{width:.1f}" '
        f'height="{height:.1f}" fill-opacity="{0.15 + 0.85 * math.log1p(count[i, j]) / darkest:.2f}"/>'
        for i, j in np.argwhere(count).tolist()
    )
    chosen = np.flatnonzero(marked)[:MOST_MARKED].tolist()
    marks = "".join(_mark(across(x[i]), up(y[i]), 1) for i in chosen)
    places = "".join(
        f'<text x="{across(t):.1f}" y="{TALL - BOTTOM + 18}" text-anchor="middle">{t:g}</text>'
        for t in ticks(0, 1, 5)
    )
    same = f'<line class="grid" x1="{across(0)}" y1="{up(0)}" x2="{across(1)}" y2="{up(1)}"/>'
    content = f'{_grid(up, ticks(0, 1, 5))}{same}{cells}{places}<g class="s1">{marks}</g>'
    series = [Series(what, []) for what in legend[: 2 if chosen else 1]]
    return Chart(name, content, x_label, y_label, series, description, TALL)


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
