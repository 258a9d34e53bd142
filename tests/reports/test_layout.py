"""Pages in a browser: they fit narrow windows, no labels overlap, and a printed page is short."""

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from spinimpute.reports.charts import Chart, Series, density_plot, histogram, line_chart
from spinimpute.reports.page import PRINTED_ROWS, Page, Section, table
from spinimpute.reports.sections import PRINTED_SAMPLES
from tests.conftest import CHROMIUM, HEADLESS

pytestmark = pytest.mark.slow

KINDS = ("impute", "sequenced", "evaluate", "genome")
MAX_PAGES = 6
# Counts pairs of texts of a chart whose boxes overlap. The boxes are rotated with the texts. They are a third
# lower than the lines of the font, because no label has a letter that is as high.
OVERLAPS = """
const corners = (text) => {
  const box = text.getBBox(), m = text.getScreenCTM();
  const [top, bottom] = [box.y + box.height / 6, box.y + box.height * 5 / 6];
  return [[box.x, top], [box.x + box.width, top], [box.x + box.width, bottom], [box.x, bottom]].map(
    ([x, y]) => [m.a * x + m.c * y + m.e, m.b * x + m.d * y + m.f]);
};
const apart = (p, q) => [p, q].some((r) => [0, 1].some((i) => {
  const normal = [r[i][1] - r[i + 1][1], r[i + 1][0] - r[i][0]];
  const [a, b] = [p, q].map((one) => one.map((c) => c[0] * normal[0] + c[1] * normal[1]));
  return Math.max(...a) <= Math.min(...b) || Math.max(...b) <= Math.min(...a);
}));
const overlaps = () => [...document.querySelectorAll("svg[role=img]")].flatMap((svg) => {
  const texts = [...svg.querySelectorAll("text")];
  const boxes = texts.map(corners);
  return texts.flatMap((text, i) => texts.slice(i + 1).filter((_, j) => !apart(boxes[i], boxes[i + 1 + j]))
    .map((other) => `${text.textContent} | ${other.textContent}`));
});
"""
InBrowser = Callable[[Path, str, int], str]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("width", [500, 1200])
def test_in_a_browser(pages, kind, width, found_in_browser):
    """Sorting works by keyboard, no script fails, nothing overlaps, and the page is not too wide."""
    script = (
        OVERLAPS
        + """
    const failures = [];
    addEventListener("error", (e) => failures.push(e.message));
    addEventListener("securitypolicyviolation", (e) => failures.push(e.blockedURI));
    addEventListener("load", () => {
      const table = document.querySelector("table.sortable");
      const button = table.tHead.rows[0].cells[0].querySelector("button");
      button.focus();
      const focused = document.activeElement === button;
      button.click();
      const up = [...table.tBodies[0].rows].map((r) => r.cells[0].textContent);
      const sorted = table.tHead.rows[0].cells[0].getAttribute("aria-sort");
      button.click();
      const down = [...table.tBodies[0].rows].map((r) => r.cells[0].textContent);
      const numeric = [...table.tHead.rows[0].cells].findIndex((c) => c.classList.contains("number"));
      table.tHead.rows[0].cells[numeric].querySelector("button").click();
      const values = [...table.tBodies[0].rows].map((r) => Number(r.cells[numeric].dataset.value));
      const links = [...document.querySelectorAll("a")];
      document.body.dataset.found = JSON.stringify({ focused, up, down, sorted, values, failures,
        page: document.documentElement.scrollWidth, window: innerWidth, overlaps: overlaps(),
        cut: [...document.querySelectorAll(".chart")].filter((c) => c.scrollWidth > c.clientWidth).length,
        lost: links.filter((a) => !document.getElementById(a.hash.slice(1))).length, links: links.length,
        charts: document.querySelectorAll("svg[role=img]").length });
    });
    """
    )
    found = json.loads(found_in_browser(pages[kind], script, width))
    assert found["failures"] == []
    assert found["focused"]
    assert found["sorted"] == "ascending"
    assert found["down"] == found["up"][::-1]
    assert found["values"] == sorted(found["values"])
    if kind != "genome":  # its first sortable table has positions, which sort by number
        assert found["up"] == sorted(found["up"])
    assert found["window"] == width
    assert found["page"] <= found["window"]
    assert found["overlaps"] == []
    assert found["cut"] == 0
    assert (found["links"], found["lost"]) == (1, 0)
    assert found["charts"] >= 3


def charts(n: int) -> list[Chart]:
    """Charts with n categories or wide numbers."""
    names = [f"{i / 1000:g}–{i + 1} %" for i in range(n)]
    y = [i / n for i in range(n)]
    far = [123_456_789.25 + i / 1000 for i in range(n)]
    return [
        line_chart("c", names, [Series("a", y)], "x", "y", "d"),
        line_chart("c", far, [Series("a", far)], "x", "y", "d", unit_interval=False),
        histogram("c", [v * 1e9 for v in y], "x", "y", "d"),
        histogram("c", [0.9448] * n, "x", "y", "d", unit_interval=True),
        density_plot("c", y, y[::-1], [v > 0.5 for v in y], "x", "y", ("a", "b"), "d"),
    ]


def test_labels_of_any_chart(tmp_path, found_in_browser):
    """Labels are rotated or omitted where they would overlap; without this, they do."""
    page = tmp_path / "charts.html"
    Page("t", "", [Section(str(n), charts(n)) for n in (1, 7, 14, 60)], "").write(page)
    script = (
        OVERLAPS
        + 'addEventListener("load", () => {document.body.dataset.found = JSON.stringify(overlaps())})'
    )
    assert json.loads(found_in_browser(page, script, 1200)) == []
    unchanged = re.sub(r' transform="rotate\(-45[^"]*"', "", page.read_text())
    assert unchanged != page.read_text()
    page.write_text(unchanged)
    assert len(json.loads(found_in_browser(page, script, 1200))) > 20


def print_page(page: Path, folder: Path) -> Path:
    """Print a page to a PDF file."""
    if CHROMIUM is None:
        pytest.skip("no Chromium")
    pdf = folder / "page.pdf"
    command = [
        CHROMIUM, *HEADLESS, f"--user-data-dir={folder / 'profile'}", "--no-pdf-header-footer",
        f"--print-to-pdf={pdf}", page.as_uri(),
    ]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    return pdf


@pytest.mark.parametrize("kind", KINDS)
def test_a_printed_page_is_short(kind, pages, tmp_path):
    pdf = print_page(pages[kind], tmp_path).read_bytes()
    assert 2 <= len(re.findall(rb"/Type\s*/Page\b", pdf)) <= MAX_PAGES


def test_what_is_printed_of_long_tables(pages, tmp_path):
    """The 20 lowest samples, with a note."""
    pdf = print_page(pages["genome"], tmp_path)
    if shutil.which("pdftotext") is None:
        pytest.skip("pdftotext is not installed (Debian: poppler-utils)")
    text = subprocess.run(
        ["pdftotext", "-layout", pdf, "-"], check=True, capture_output=True, text=True
    ).stdout
    page = pages["genome"].read_text()
    names = re.findall("a_long_sample_name_[0-9]{4}", page)
    assert len(names) == 300
    assert re.findall("a_long_sample_name_[0-9]{4}", text) == names[:PRINTED_SAMPLES]
    assert f"Printed: the first {PRINTED_SAMPLES} of 300 rows." in text
    assert f"Printed: the first {PRINTED_ROWS} of 330 rows." in text


@pytest.mark.parametrize(("n", "cut"), [(25, False), (26, True)])
def test_a_table_of_chromosomes_is_printed_whole(n, cut):
    assert ("Printed:" in table(["chromosome"], [[str(i)] for i in range(n)], "caption")) == cut
