"""Table of samples for MultiQC, a program that joins the quality reports of many tools.

The file has MultiQC's format for "custom content", with a row for each sample of a run. MultiQC joins tables
with the same id from different files.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spinimpute.quality.leave_one_out import LeaveOneOutQuality
from spinimpute.quality.sample_quality import SampleQuality
from spinimpute.quality.summary import SequencedSummary

_COUNT, _TWO_DECIMALS = "{:,.0f}", "{:,.2f}"


@dataclass(frozen=True)
class Column:
    """A column of the table."""

    key: str
    title: str
    description: str
    unit: str  # "share" (0 to 1, displayed in percent), "r2" (0 to 1), "count", "depth" or "text"
    low_is_bad: bool = True  # selects the colours

    @property
    def header(self) -> dict[str, Any]:
        """Settings of the column in MultiQC's format."""
        settings: dict[str, Any] = {"title": self.title, "description": self.description}
        if self.unit == "text":
            return settings | {"scale": False}
        settings["scale"] = "RdYlGn" if self.low_is_bad else "OrRd"
        if self.unit == "share":
            return settings | {"min": 0, "max": 100, "suffix": "%", "format": _TWO_DECIMALS}
        if self.unit == "r2":
            return settings | {"min": 0, "max": 1, "format": "{:,.4f}"}
        return settings | {"min": 0, "format": _COUNT if self.unit == "count" else _TWO_DECIMALS}


_EXPECTED = Column(
    "expected_r2",
    "Expected r²",
    "Pooled r² of imputed dosages and true genotypes to expect if the imputed probabilities are calibrated, "
    "over all imputed sites of the run",
    "r2",
)
_NOTE = Column("note", "Note", "low: far below the other samples of the run", "text")
TYPED = (
    Column(
        "call_rate", "Call rate", "Share of the matched typed sites at which the sample has a call", "share"
    ),
    Column("typed", "Typed sites", "Number of matched typed sites at which the sample has a call", "count"),
    _EXPECTED,
    Column(
        "r2",
        "Left out r²",
        "Pooled r² of typed calls and their predictions from the other typed calls of the haplotype",
        "r2",
    ),
    Column(
        "minor_concordance",
        "Left out concordance",
        "Among left-out calls with a minor allele in the call or the prediction: share predicted correctly",
        "share",
    ),
    _NOTE,
)
SEQUENCED = (
    Column("depth", "Coverage", "Mean number of reads at a site of the panel", "depth"),
    Column("without_reads", "No reads", "Share of the panel's sites without reads", "share", False),
    Column("unknown", "Unknown", "Share of the panel's sites without data", "share", False),
    _EXPECTED,
    _NOTE,
)


@dataclass(frozen=True)
class SampleTable:
    """A table for MultiQC."""

    id: str  # MultiQC joins tables with the same id
    title: str
    description: str
    columns: Sequence[Column]
    rows: Mapping[str, Mapping[str, Any]]  # sample -> key of column -> value; None, NaN and "" are omitted

    @property
    def json(self) -> str:
        """Content of the file."""
        data: dict[str, dict[str, Any]] = {}
        for sample, row in self.rows.items():
            known = [column for column in self.columns if _has_value(row[column.key])]
            data[sample] = {
                column.key: 100 * row[column.key] if column.unit == "share" else row[column.key]
                for column in known
            }
        used = [column for column in self.columns if any(column.key in row for row in data.values())]
        content = {
            "id": self.id,
            "section_name": self.title,
            "description": self.description,
            "plot_type": "table",
            "pconfig": {"id": f"{self.id}_table", "title": self.title, "namespace": "spinimpute"},
            "headers": {column.key: column.header for column in used},
            "data": data,
        }
        return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"

    def write(self, path: Path) -> None:
        """Write the file; raises OSError if it cannot be written."""
        path.write_text(self.json, encoding="utf-8", errors="backslashreplace")


def _has_value(value: object) -> bool:
    return value is not None and value != "" and not (isinstance(value, float) and math.isnan(value))


def typed_samples(quality: SampleQuality, leave_one_out: LeaveOneOutQuality | None) -> SampleTable:
    """Return the table of the samples of an imputed typed target."""
    rows = {row["sample"]: row for row in quality.by_sample(leave_one_out)}
    text = f"Arrays that were imputed: {quality.typed_sites:,} typed sites, {quality.sites:,} imputed sites."
    return SampleTable("spinimpute_arrays", "spinimpute: imputed arrays", text, TYPED, rows)


def sequenced_samples(quality: SampleQuality, summary: SequencedSummary) -> SampleTable:
    """Return the table of imputed sequenced samples."""
    expected = {row["sample"]: row["expected_r2"] for row in quality.by_sample()}
    rows = {
        row["sample"]: row | {"expected_r2": expected[row["sample"]]} for row in summary.coverage.by_sample()
    }
    text = f"Sequenced samples that were imputed at {quality.sites:,} sites."
    return SampleTable("spinimpute_sequenced", "spinimpute: imputed sequences", text, SEQUENCED, rows)
