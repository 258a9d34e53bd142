"""Self-contained HTML pages with text, sortable tables and charts.

The functions return HTML. They escape all text arguments.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from pathlib import Path

from spinimpute.reports.charts import Chart

Cell = str | int | float | None
Row = list[Cell]

LONG_TABLE = 25  # a table with more rows scrolls, and is cut in print
PRINTED_ROWS = 10  # of a long table


def number(value: Cell, decimals: int = 4) -> str:
    """Format a number for readers: None and NaN as a dash, integers with commas. Text stays as it is."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    if isinstance(value, float):
        return f"{value:.{decimals}f}"
    return f"{value:,}" if isinstance(value, int) else value


def paragraph(text: str, soft: bool = False, anchor: str = "") -> str:
    """Return a paragraph. A soft paragraph is less prominent. `anchor` is the target of a link."""
    identifier = f' id="{escape(anchor)}"' if anchor else ""
    return f"<p{' class=soft' if soft else ''}{identifier}>{escape(text)}</p>"


def cards(values: Mapping[str, str | tuple[str, str]]) -> str:
    """Return the main numbers of a page as cards.

    `values` maps labels to values, or to pairs of a value and an explanation.
    """
    items = []
    for label, value in values.items():
        main, explanation = (value, "") if isinstance(value, str) else value
        small = f'<dd class="detail">{escape(explanation)}</dd>' if explanation else ""
        items.append(f"<div><dt>{escape(label)}</dt><dd>{escape(main)}</dd>{small}</div>")
    return f'<dl class="cards">{"".join(items)}</dl>'


def linked_title(text: str, link: str, anchor: str) -> str:
    """Return a title of cards, with a link to the paragraph `anchor` that explains them."""
    return f'<p class="title">{escape(text)} <a href="#{escape(anchor)}">{escape(link)}</a></p>'


def notes(texts: Sequence[str]) -> str:
    """Return a list of warnings and notes; "" if there are none."""
    return (
        f'<ul class="notes" role="list">{"".join(f"<li>{escape(t)}</li>" for t in texts)}</ul>'
        if texts
        else ""
    )


def table(
    head: Sequence[str],
    rows: Sequence[Row],
    caption: str,
    *,
    sortable: bool = False,
    wrapped: bool = False,
    decimals: int = 4,
    printed_rows: int = PRINTED_ROWS,
) -> str:
    """Return a scrollable table. Cells with the text "low" are highlighted.

    With `sortable`, a click on the head of a column sorts the rows. With `wrapped`, long texts are broken
    into lines; otherwise the table may be wider than the page. In print, page.css cuts a long table
    after `printed_rows` rows, 10 or 20.
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
            html.append(f"<td{kind}{exact}>{escape(number(cell, decimals))}</td>")
        html.append("</tr>")
    html.append("</tbody></table>")
    tall, cut = "", ""
    if len(rows) > LONG_TABLE:
        tall = f" tall first-{printed_rows}"
        cut = f'<p class="printed">Printed: the first {printed_rows} of {len(rows):,} rows.</p>'
    # tabindex makes the table focusable, so that it can be scrolled with the keyboard
    label = f'tabindex="0" role="region" aria-label="{escape(caption)}"'
    return f'<div class="scroll{tall}" {label}>{"".join(html)}</div>{cut}'


@dataclass(frozen=True)
class Section:
    """A section of a page."""

    title: str
    parts: Sequence[str | Chart]  # HTML and charts

    @property
    def html(self) -> str:
        """HTML of the section."""
        parts = "".join(part.html if isinstance(part, Chart) else part for part in self.parts)
        return f"<section><h2>{escape(self.title)}</h2>{parts}</section>"


@dataclass(frozen=True)
class Page:
    """An HTML page that loads nothing from other files or servers."""

    title: str
    subtitle: str
    parts: Sequence[str | Section | None]  # HTML and sections; None is ignored
    footer: str

    @property
    def charts(self) -> list[Chart]:
        """Charts of all sections."""
        sections = [part for part in self.parts if isinstance(part, Section)]
        return [part for one in sections for part in one.parts if isinstance(part, Chart)]

    @property
    def html(self) -> str:
        """HTML document."""
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
