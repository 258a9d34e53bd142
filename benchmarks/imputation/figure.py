"""`figure`: r2 against minor allele frequency, with a curve for each imputer, from results."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from benchmarks.imputation.programs import BASELINES, PEER_LABELS
from benchmarks.imputation.scoring import ALL, Accuracy, read_accuracy
from benchmarks.imputation.tables import MEASURES, bins, labels

COLOURS = {"Beagle": "tab:blue", "Minimac4": "tab:green"}
OUR_COLOURS = ("tab:red", "tab:orange", "tab:purple", "tab:brown", "tab:pink")


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("results", nargs="+", type=Path, help="folders with an accuracy.tsv, a column each")
    parser.add_argument("--titles", nargs="+", help="one for each folder (default: their names)")
    parser.add_argument("--out", type=Path, required=True, help=".png, .svg or .pdf")
    parser.set_defaults(function=make_figure)


def make_figure(arguments: argparse.Namespace) -> None:
    titles = arguments.titles or [folder.name for folder in arguments.results]
    if len(titles) != len(arguments.results):
        raise SystemExit(f"{len(arguments.results)} folders and {len(titles)} titles were given")
    tables = [read_accuracy(folder / "accuracy.tsv") for folder in arguments.results]
    draw(tables, titles, arguments.out)


def colours(imputers: Sequence[str]) -> dict[str, str]:
    """Return a colour for each imputer; the peers have the same colours in all figures."""
    ours = [label for label in imputers if label not in COLOURS]
    return {
        label: COLOURS.get(label) or OUR_COLOURS[ours.index(label) % len(OUR_COLOURS)] for label in imputers
    }


def draw(tables: Sequence[list[Accuracy]], titles: Sequence[str], out: Path) -> None:
    """Draw a column for each table and a row for each measure. Bins are evenly spaced."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    shape = (len(MEASURES), len(tables))
    size = (4.2 * len(tables), 3.2 * len(MEASURES))
    figure, axes = pyplot.subplots(*shape, figsize=size, squeeze=False, sharey="row", sharex="col")
    for column, (rows, title) in enumerate(zip(tables, titles, strict=True)):
        edges = [name for name in bins(rows) if name != ALL]
        drawn = [label for label in labels(rows) if label not in BASELINES]
        colour_of = colours(drawn)
        for row, (measure, name) in enumerate(MEASURES.items()):
            axis = axes[row, column]
            for label in drawn:
                value = {r.bin: getattr(r, measure) for r in rows if r.imputer == label}
                width = 1.5 if label in PEER_LABELS else 2.5
                points = [value[edge] for edge in edges]
                text = label.replace("_", " ")
                axis.plot(range(len(edges)), points, "o-", ms=4, lw=width, color=colour_of[label], label=text)
            axis.set_ylim(0, 1)
            axis.grid(alpha=0.3)
            if column == 0:
                axis.set_ylabel(name)
        axes[0, column].set_title(title)
        axes[0, column].legend(loc="lower right", frameon=False)
        below = axes[-1, column]
        names = [short_bin(edge, first=i == 0) for i, edge in enumerate(edges)]
        below.set_xticks(range(len(edges)), names, rotation=30)
        below.set_xlabel("minor allele frequency in the panel")
    figure.tight_layout()
    figure.savefig(out, dpi=150)
    pyplot.close(figure)


def short_bin(name: str, *, first: bool) -> str:
    """Return the column head of a frequency bin: "(0.002,0.005]" becomes ".002–.005", the first "≤.002"."""
    low, high = (edge.removeprefix("0") for edge in name.strip("(]").split(","))
    return f"≤{high}" if first else f"{low}–{high}"
