"""Pages of `impute` and `evaluate`: their contents, and that they are self-contained."""

import html.parser
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import spinimpute
from spinimpute.quality.imputed_sites import ImputedSites
from spinimpute.reports.charts import Series, density_plot, histogram, line_chart
from spinimpute.reports.page import Page, Section, number, table
from spinimpute.runtime.errors import InputError

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).resolve().parents[2]
EXAMPLE = REPOSITORY / "data" / "example"
NASTY = "<script>alert(1)</script> \"'&"
VOID = {"meta", "link", "br", "img", "input", "line", "circle", "rect", "path"}


class Reader(html.parser.HTMLParser):
    """Checks that tags close in order; keeps text and attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] not in ("style", "script"):
            self.text.append(data)


def read(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    reader.close()
    assert not reader.open
    return reader


@pytest.mark.parametrize("kind", ["impute", "sequenced", "evaluate"])
def test_a_page_is_complete_and_self_contained(pages, kind):
    text = pages[kind].read_text()
    reader = read(text)
    assert not [name for name, _ in reader.attributes if name == "src"]
    links = [value for name, value in reader.attributes if name == "href"]
    assert links
    assert all(str(link).startswith("#") for link in links)
    assert not re.search(r"(url\(|xlink:href=\")(?!#)", text)
    assert "@import" not in text
    assert "default-src 'none'" in text
    words = " ".join(reader.text)
    titles = {
        "impute": [
            "Imputation report",
            "Quality by allele frequency",
            "R2 of imputed sites",
            "Allele frequencies of target and panel",
            "Quality by sample",
            "Along the chromosome",
            "How it was made",
        ],
        "sequenced": [
            "Imputation report",
            "Coverage by sample",
            "R2 of imputed sites",
            "Quality by allele frequency",
            "Along the chromosome",
        ],
        "evaluate": [
            "Evaluation report",
            "Accuracy by allele frequency",
            "Calibration",
            "Accuracy by sample",
        ],
    }
    for title in titles[kind]:
        assert title in words
    names = [f"target_{ancestry}_01" for ancestry in ("AFR", "EUR")]
    assert all(name in words for name in names)


def test_the_numbers_are_those_of_the_run(pages, example_panel, tmp_path):
    words = " ".join(read(pages["impute"].read_text()).text)
    output = spinimpute.OutputSettings(leave_one_out=True)
    target, out = EXAMPLE / "target.vcf.gz", tmp_path / "o.bcf"
    summary = spinimpute.impute(target, out, example_panel, output=output)
    assert summary.leave_one_out is not None
    assert f"{summary.leave_one_out.overall_r2():.3f}" in words
    assert "246 of 246" in words
    assert "4,453" in words
    worst = min(summary.leave_one_out.by_sample(), key=lambda row: row["r2"])
    assert f"{worst['r2']:.4f}" in words


def test_an_existing_page_stays(pages, example_panel, tmp_path):
    before = pages["impute"].read_bytes()
    refused = {pages["impute"]: "already exists; use force=True", tmp_path / "o.bcf": "give two names"}
    for report, message in refused.items():
        output = spinimpute.OutputSettings(report=report)
        with pytest.raises(InputError, match=message):
            spinimpute.impute(EXAMPLE / "target.vcf.gz", tmp_path / "o.bcf", example_panel, output=output)
    assert pages["impute"].read_bytes() == before
    assert not (tmp_path / "o.bcf").exists()


def test_everything_is_escaped():
    chart = line_chart("c", [NASTY], [Series(NASTY, [0.5])], NASTY, NASTY, NASTY)
    rows = table([NASTY, "n"], [[NASTY, 1]], NASTY, sortable=True)
    text = Page(NASTY, NASTY, [rows, Section(NASTY, [chart])], NASTY).html
    assert "<script>alert" not in text
    ElementTree.fromstring(chart.svg)
    assert "<script>" not in chart.svg
    assert " ".join(read(text).text).count("alert(1)") >= 8


@settings(max_examples=10, deadline=None)
@given(
    st.lists(st.one_of(st.floats(0, 1), st.just(float("nan"))), min_size=1, max_size=60), st.floats(0, 1e9)
)
def test_charts_of_any_values(values, start):
    x, finite = range(len(values)), [v for v in values if v == v] or [0.5]
    series = [Series("a", values)]
    for chart in (
        line_chart("c", [start + i for i in x], series, "x", "y", "d", unit_interval=False),
        line_chart("c", [str(i) for i in x], series, "x", "y", "d"),
        histogram("c", finite, "x", "y", "d"),
        density_plot("c", finite, finite[::-1], [v > 0.5 for v in finite], "x", "y", ("a", "b"), "d"),
    ):
        read(chart.html)
        ElementTree.fromstring(chart.svg)
        for text in (chart.html, chart.svg):
            assert not re.search(r"\b(nan|inf)\b", text)


def test_a_histogram_of_rounding_errors():
    read(histogram("c", [1.0, 1.0000000000000002, 1.0], "x", "y", "d").html)


def test_numbers():
    shown = [number(v) for v in (None, float("nan"), 0.12345, 12345, "x")]
    assert shown == ["–", "–", "0.1235", "12,345", "x"]


def test_imputed_sites_by_frequency_and_place():
    sites = ImputedSites()
    rng = np.random.default_rng(1)
    position = np.sort(rng.integers(1, 1_000_000, 400))
    frequency, r2 = rng.random(400), rng.random(400)
    typed, variance = rng.random(400) < 0.1, rng.random((400, 2))
    for part in (slice(0, 150), slice(150, 400)):
        sites.add("20", position[part], frequency[part], r2[part], typed[part], variance[part])
    minor = np.minimum(frequency, 1 - frequency)
    row = next(row for row in sites.by_frequency() if row["bin"] == "(0.05,0.5]")
    chosen = (minor > 0.05) & ~typed
    assert row["sites"] == chosen.sum()
    assert row["r2"] == pytest.approx(r2[chosen].mean(), abs=1e-6)
    assert row["expected_r2"] == pytest.approx(variance[chosen, 0].sum() / variance[chosen].sum(), abs=1e-6)
    assert row["good"] == pytest.approx((r2[chosen] >= 0.8).mean())
    along = sites.by_segment(10)
    assert sum(row["sites"] for row in along) == 400
    assert sum(row["typed"] for row in along) == typed.sum()
