"""`page`: every table of the papers with our results, and a verdict for each claim.

tables.md has all tables, README.md the five most important verdicts. Both are made from result files alone.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from benchmarks.imputation.tables import markdown
from benchmarks.neural_processes.results import RESULTS as PROCESSES
from benchmarks.papers import (
    section_california,
    section_genomics,
    section_many_windows,
    section_measures,
    section_probes,
    section_processes,
    section_tables,
)
from benchmarks.papers.cells import RESULTS
from benchmarks.papers.claims import HEAD, VERDICTS, Claim, Section, protocol
from benchmarks.tabular.report import RESULTS as TABULAR

HERE = Path(__file__).parent
# by what they say
FOREMOST = (
    "SPIN-16 is as accurate as Beagle, or more accurate",
    "SPIN-16, NPT-16 and the Set Transformer have similar R² (within .5 points)",
    "SPIN uses the training set in predictions, through its inducing points",
    "SPIN needs half of NPT's memory, the Set Transformer more than NPT",
    "CIPNP and IPNP (inducing points) are more accurate than CANP, ANP and BANP at most context sizes",
)


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    sub = commands.add_parser("page", help="tables.md and README.md from all results")
    sub.set_defaults(function=page)
    sub.add_argument("--results", type=Path, default=RESULTS)
    sub.add_argument("--out", type=Path, default=HERE)


def page(arguments: argparse.Namespace) -> None:
    sections = make_sections(arguments.results)
    (arguments.out / "tables.md").write_text(tables(sections))
    (arguments.out / "README.md").write_text(readme(sections))


def make_sections(results: Path) -> list[Section]:
    return [
        section_genomics.section(results),
        section_many_windows.section(results),
        section_tables.section(TABULAR, results),
        section_measures.section(TABULAR, results),
        section_california.section(TABULAR),
        section_processes.section(PROCESSES),
        section_probes.section(TABULAR / "probes", results),
    ]


def tables(sections: Sequence[Section]) -> str:
    head = (
        "# The papers' tables\n\nMade by `python -m benchmarks.papers page`: do not edit. Figures of the "
        "papers are in `published.tsv`, all others are read from result files."
    )
    head += "\n\n" + protocol("reasons")
    return "\n\n".join([head, *(section.text for section in sections), protocol("without_figures")]) + "\n"


def readme(sections: Sequence[Section]) -> str:
    claims = [claim for section in sections for claim in section.claims]
    counts = Counter(claim.verdict for claim in claims)
    counted = "; ".join(f"{verdict}: {counts[verdict]}" for verdict in VERDICTS)
    by_words: dict[str, Claim] = {claim.says: claim for claim in claims}
    foremost = [HEAD, *(by_words[says].short_row for says in FOREMOST)]
    told = f"All {len(claims)} claims by verdict: {counted}."
    parts = [protocol("readme_head"), markdown(foremost), told, protocol("readme_commands")]
    return "\n\n".join(parts) + "\n"
