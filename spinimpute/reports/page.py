"""Self-contained HTML pages with text, sortable tables and charts. All text arguments are escaped."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from pathlib import Path

from spinimpute.reports.charts import Chart

Cell = str | int | float | None
Row = list[Cell]


def number(value: Cell, decimals: int = 4) -> str:
    """A number as text for readers: None and NaN as a dash, integers with commas, text unchanged."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    if isinstance(value, float):
        return f"{value:.{decimals}f}"
    return f"{value:,}" if isinstance(value, int) else value


def paragraph(text: str, soft: bool = False) -> str:
    """A paragraph; a soft one is less prominent."""
    return f"<p{' class=soft' if soft else ''}>{escape(text)}</p>"


def cards(values: Mapping[str, str]) -> str:
    """The main numbers of a page: {label: value}."""
    items = "".join(f"<div><dt>{escape(k)}</dt><dd>{escape(v)}</dd></div>" for k, v in values.items())
    return f'<dl class="cards">{items}</dl>'


def notes(texts: Sequence[str]) -> str:
    """A list of warnings and notes; empty without any."""
    return (
        f'<ul class="notes" role="list">{"".join(f"<li>{escape(t)}</li>" for t in texts)}</ul>'
        if texts
        else ""
    )


def table(
    head: Sequence[str], rows: Sequence[Row], caption: str, *, sortable: bool = False, wrapped: bool = False
) -> str:
    """A scrollable table; cells with the text "low" are marked.

    A click on a column of a `sortable` table sorts its rows. A `wrapped` table breaks long texts into lines;
    other tables may be wider than the page.
    """
    numeric = [
        any(isinstance(row[i], int | float) for row in rows)
        and not any(isinstance(row[i], str) for row in rows)
        for i in range(len(head))
    ]
    classes = " ".join(kind for kind, applies in (("sortable", sortable), ("wrapped", wrapped)) if applies)
    class_attribute = f' class="{classes}"' if classes else ""
    html = [f"<table{class_attribute}><caption>{escape(caption)}</caption><thead><tr>"]
    for name, is_numeric in zip(head, numeric, strict=True):
        text = f'<button type="button">{escape(name)}</button>' if sortable else escape(name)
        html.append(f'<th scope="col"{" class=number" if is_numeric else ""}>{text}</th>')
    html.append("</tr></thead><tbody>")
    for row in rows:
        html.append("<tr>")
        for cell, is_numeric in zip(row, numeric, strict=True):
            kind = ' class="number"' if is_numeric else ' class="low"' if cell == "low" else ""
            known = isinstance(cell, int | float) and not math.isnan(cell)
            exact = f' data-value="{cell if known else ""}"' if is_numeric and sortable else ""
            html.append(f"<td{kind}{exact}>{escape(number(cell))}</td>")
        html.append("</tr>")
    html.append("</tbody></table>")
    tall = " tall" if sortable else ""
    # an element with the focus can be scrolled by keyboard
    label = f'tabindex="0" role="region" aria-label="{escape(caption)}"'
    return f'<div class="scroll{tall}" {label}>{"".join(html)}</div>'


@dataclass(frozen=True)
class Section:
    """A section of a page: its title, and charts and HTML."""

    title: str
    parts: Sequence[str | Chart]

    @property
    def html(self) -> str:
        """The section as HTML."""
        parts = "".join(part.html if isinstance(part, Chart) else part for part in self.parts)
        return f"<section><h2>{escape(self.title)}</h2>{parts}</section>"


@dataclass(frozen=True)
class Page:
    """A page that loads nothing from elsewhere. Its parts are HTML or sections; None is left out."""

    title: str
    subtitle: str
    parts: Sequence[str | Section | None]
    footer: str

    @property
    def charts(self) -> list[Chart]:
        """The charts of all sections."""
        sections = [part for part in self.parts if isinstance(part, Section)]
        return [part for one in sections for part in one.parts if isinstance(part, Chart)]

    @property
    def html(self) -> str:
        """An HTML document."""
        folder = files("spinimpute.reports")
        style, script = ((folder / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
        policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
        title = escape(self.title)
        parts = [part.html if isinstance(part, Section) else part for part in self.parts]
        return (
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>{title}</title><style>\n{style}</style></head>\n<body><header><h1>{title}</h1>"
            f'<p class="soft wide">{escape(self.subtitle)}</p></header><main>\n'
            + "\n".join(part for part in parts if part)
            + f"\n</main><footer>{escape(self.footer)}</footer><script>\n{script}</script></body></html>\n"
        )

    def write(self, path: Path) -> None:
        """Write the document; raises OSError if the file cannot be written."""
        path.write_text(self.html, encoding="utf-8", errors="xmlcharrefreplace")
