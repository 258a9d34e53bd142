"""The papers' claims, our results and a verdict for each claim, and the papers' own numbers.

Verdicts are computed from result files. A claim without results is untested.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from benchmarks.imputation.tables import markdown

HOLDS, PARTLY, FAILS, UNTESTED = "holds", "holds in part", "does not hold", "untested"
UNDECIDED = "not decided: budget"
VERDICTS = (HOLDS, PARTLY, FAILS, UNDECIDED, UNTESTED)
CLAIM, DATA, BUDGET = "the claim", "the data", "our budget"  # why a claim does not simply hold
PUBLISHED = Path(__file__).parent / "published.tsv"
SPIN_PAPER, NPT_PAPER, FT_PAPER = "SPIN", "NPT", "FT-Transformer"


@dataclass(frozen=True)
class Claim:
    """A claim of a paper.

    source: paper and table; found: our result as a verdict; because: our result with numbers; in_short: a
    short version; blame: CLAIM, DATA or BUDGET, why the claim does not simply hold; unfinished: whether
    `found` rests on trainings whose loss still fell at their last look.
    """

    source: str
    says: str
    found: str
    because: str
    in_short: str = ""
    blame: str = CLAIM
    unfinished: bool = False

    @property
    def verdict(self) -> str:
        """A claim cannot fail by trainings that could go on."""
        return UNDECIDED if self.unfinished and self.found == FAILS else self.found

    @property
    def reason(self) -> str:
        if self.found == HOLDS:
            return "–"
        return BUDGET if self.unfinished else self.blame

    @property
    def row(self) -> list[str]:
        return [self.source, self.says, f"**{self.verdict}**", self.reason, self.because]

    @property
    def short_row(self) -> list[str]:
        return [*self.row[:-1], self.in_short or self.because]


HEAD = ["table", "claim", "verdict", "reason", "found"]  # of rows of claims


@dataclass(frozen=True)
class Section:
    """A section of the page: paragraphs and tables, then claims."""

    title: str
    parts: Sequence[str]
    claims: Sequence[Claim]

    @property
    def text(self) -> str:
        verdicts = markdown([HEAD, *(claim.row for claim in self.claims)])
        return "\n\n".join([f"## {self.title}", *self.parts, verdicts])


def protocol(name: str) -> str:
    """Describe our protocol and its differences from the paper's."""
    return (Path(__file__).parent / "protocols" / f"{name}.md").read_text().strip()


def not_run(source: str, says: str, how: str) -> Claim:
    """Return a claim without results; `how` is the command, or the substitute."""
    return Claim(source, says, UNTESTED, f"Not run yet: {how}", blame=BUDGET)


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
