"""The papers' claims, our results and a verdict for each claim, and the papers' own numbers.

Verdicts are computed from result files. A claim without results has the verdict "not run yet".
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from benchmarks.imputation.tables import markdown

HOLDS, PARTLY, FAILS = "holds", "holds in part", "does not hold here"
CANNOT, NOT_RUN = "cannot be tested here", "not run yet"
PUBLISHED = Path(__file__).parent / "published.tsv"
SPIN_PAPER, NPT_PAPER, FT_PAPER = "SPIN", "NPT", "FT-Transformer"


@dataclass(frozen=True)
class Claim:
    """A claim of a paper.

    source: paper and table; because: our result with numbers; in_short: a short version.
    """

    source: str
    says: str
    verdict: str
    because: str
    in_short: str = ""

    @property
    def row(self) -> list[str]:
        return [self.source, self.says, f"**{self.verdict}**", self.because]

    @property
    def short_row(self) -> list[str]:
        return [*self.row[:-1], self.in_short or self.because]


@dataclass(frozen=True)
class Section:
    """A section of the page: paragraphs and tables, then claims."""

    title: str
    parts: Sequence[str]
    claims: Sequence[Claim]

    @property
    def text(self) -> str:
        verdicts = markdown([["table", "claim", "verdict", "found"], *(claim.row for claim in self.claims)])
        return "\n\n".join([f"## {self.title}", *self.parts, verdicts])


def protocol(name: str) -> str:
    """Describe our protocol and its differences from the paper's."""
    return (Path(__file__).parent / "protocols" / f"{name}.md").read_text().strip()


def not_run(source: str, says: str, how: str) -> Claim:
    """Return a claim without results; `how` is the command, or the substitute."""
    return Claim(source, says, NOT_RUN, how)


def verdict(holds: Sequence[bool]) -> str:
    """Return the verdict of a claim with several parts."""
    return HOLDS if all(holds) else PARTLY if any(holds) else FAILS


def at_most_partly(found: str) -> str:
    """Return the verdict of a claim that was not tested by the paper's protocol."""
    return PARTLY if found == HOLDS else found


@cache
def published(paper: str, table: str) -> dict[tuple[str, str], str]:
    """Return the paper's numbers by row and column, with their spread."""
    with PUBLISHED.open() as file:
        return {
            (line["row"], line["column"]): line["value"] + (f" ± {line['spread']}" if line["spread"] else "")
            for line in csv.DictReader(file, delimiter="\t")
            if (line["paper"], line["table"]) == (paper, table)
        }


def published_table(paper: str, table: str) -> str:
    """Return the whole table of the paper, for tables without our own results."""
    figures = published(paper, table)
    rows, columns = (list(dict.fromkeys(key[i] for key in figures)) for i in (0, 1))
    lines = [[f"{paper} paper, Table {table}", *columns]]
    return markdown([*lines, *([row, *(figures.get((row, c), "") for c in columns)] for row in rows)])


def published_number(paper: str, table: str, row: str, column: str) -> float:
    """Return a published number without its spread; millions (16.7M) are spelled out."""
    text = published(paper, table)[row, column].partition(" ")[0]
    return float(text.removesuffix("M")) * (1e6 if text.endswith("M") else 1)


def mean_text(values: Sequence[float], digits: int = 2) -> str:
    """Return mean ± standard deviation and the number of values; – without values."""
    if not values:
        return "–"
    spread = f" ± {np.std(values, ddof=1):.{digits}f}" if len(values) > 1 else ""
    return f"{np.mean(values):.{digits}f}{spread} ({len(values)})"
