"""`readme`: rewrites the tables of README.md and docs/ from results, between marks that name the tables.

    <!-- accuracy table FOLDER [FOLDER ...]: TITLE -->
    ...
    <!-- end -->

FOLDER is a folder of results/. If several folders have results of an imputer, the first folder is used. The
first word selects the table: `accuracy` is the pooled r2 and `mean-accuracy` the mean per-variant r2, both by
frequency; `time` and `cost` are the time of imputing and of whole genomes; `cuts` shows the effect of cutoffs
of the printed R2, `printed-r2` its accuracy; `leave-one-out` is leave-one-out accuracy; `sets` is the
accuracy on all sets. For the last three, TITLE is the table's title, and after semicolons the sets of the
folders.

Single numbers in a text:

    <!-- fewer-errors number FOLDER [FOLDER ...]: IMPUTER OTHER -->21 %<!-- end -->

`fewer-errors` is the relative reduction of errors (1 - pooled r2) from OTHER to IMPUTER. `file-size` is the
ratio of IMPUTER's file size to OTHER's.
"""

from __future__ import annotations

import argparse
import csv
import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.imputation.cases import REPOSITORY
from benchmarks.imputation.cost import hours_table
from benchmarks.imputation.figure import short_bin
from benchmarks.imputation.measure import Stage, summarise
from benchmarks.imputation.options import RESULTS
from benchmarks.imputation.programs import BASELINES, PEER_LABELS, better_peer
from benchmarks.imputation.scoring import ALL, Accuracy, read_accuracy
from benchmarks.imputation.study import IMPUTE
from benchmarks.imputation.tables import bins, error_ratio, labels, markdown

PAGES = (REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md")))
BLOCK = re.compile(r"(<!-- ([\w-]+) table ([^:>]+): (.*?) -->\n).*?(<!-- end -->)", re.DOTALL)
NUMBER = re.compile(r"(<!-- ([\w-]+) number ([^:>]+): (.*?) -->).*?(<!-- end -->)")
SHARE = re.compile(r"\(([\d.]+)%\)")  # as the results write one, behind its numbers
OURS, BEFORE = "spinimpute", "before"  # an earlier version is shown beside ours in the table of sets alone
BINS_BEHIND = "bins in which a peer is more accurate: by pooled r², by mean r² per variant"
NAMES = {
    "allele-frequency": "panel frequencies alone",
    "10_nearest_haplotypes": "copying the 10 nearest haplotypes",
    "Beagle": "Beagle 5.4",
    "Minimac4": "Minimac4 4.1.2",
    "spinimpute": "**spinimpute**, shipped model",
    BEFORE: "previous version",
    "no_map": "spinimpute, no genetic map given",
    "SPIN_64": "SPIN, 64 inducing points (`--predictor spin`)",
    "SPIN_256": "SPIN, 256 inducing points",
    "SPIN_600": "SPIN, 600 inducing points",
    "SPIN_1024": "SPIN, 1,024 inducing points",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--pages", type=Path, nargs="+", default=PAGES, help="README.md and all of docs/")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--check", action="store_true", help="only say whether anything would change")
    parser.set_defaults(function=refresh)


def refresh(arguments: argparse.Namespace) -> None:
    for page in arguments.pages:
        before = page.read_text()
        after = with_tables(before, arguments.results)
        if after == before:
            continue
        if arguments.check:
            raise SystemExit(f"{page}: tables differ from the results; run without --check")
        page.write_text(after)


def with_tables(text: str, results: Path) -> str:
    """Return the text with tables and numbers from the results.

    Raises:
        SystemExit: a kind of table or number, or a folder, is unknown.
    """

    def folders_of(names: str) -> list[Path]:
        paths = [results / name for name in names.split()]
        missing = [path.name for path in paths if not path.is_dir()]
        if missing:
            raise SystemExit(f"{results} has no folder {', '.join(missing)}")
        return paths

    def table(match: re.Match[str]) -> str:
        start, kind, folders, title, end = match.groups()
        if kind not in KINDS:
            raise SystemExit(f"there is no {kind} table, only: {', '.join(KINDS)}")
        return f"{start}{markdown(KINDS[kind](folders_of(folders), title))}\n{end}"

    def number(match: re.Match[str]) -> str:
        start, kind, folders, imputers, end = match.groups()
        if kind not in NUMBERS:
            raise SystemExit(f"there is no {kind} number, only: {', '.join(NUMBERS)}")
        ours, other = imputers.split()
        return f"{start}{NUMBERS[kind](folders_of(folders), ours, other)}{end}"

    return NUMBER.sub(number, BLOCK.sub(table, text))


def pooled_table(folders: Sequence[Path], title: str) -> list[list[str]]:
    """Return pooled r2 by frequency, and the mean r2 per variant over all sites."""
    rows = _accuracy(folders)
    table = _by_bin(rows, title, "pooled_r2")
    mean = {row.imputer: row.mean_r2 for row in rows if row.bin == ALL}
    table[0].append("mean r² per variant")
    for line, label in zip(table[1:], _order(labels(rows)), strict=True):
        line.append(_decimals(mean[label]))
    return table


def mean_table(folders: Sequence[Path], title: str) -> list[list[str]]:
    """Return mean per-variant r2 by frequency."""
    return _by_bin(_accuracy(folders), title, "mean_r2")


def time_table(folders: Sequence[Path], title: str) -> list[list[str]]:
    """Return median seconds and peak memory of imputing, also as multiples of the peers'."""
    stages: dict[str, list[Stage]] = {}
    for folder in folders:
        rows = _rows(folder / "timing.tsv")
        known = set(stages)  # an imputer's runs are those of one folder
        for row in rows:
            label = row["imputer"]
            if row["stage"] == IMPUTE and label not in known:
                measured = float(row["seconds"]), float(row["peak_mb"])
                stages.setdefault(label, []).append(Stage(label, IMPUTE, int(row["run"]), *measured, []))
    timings = {t.imputer: t for runs in stages.values() for t in summarise(runs)}
    peers = [peer for peer in PEER_LABELS if peer in timings]
    ratio_heads = [f"{peer} = 1" for peer in peers]
    table = [[title, "seconds", *ratio_heads, "peak memory, GB"]]
    for label in _order(list(timings)):
        t = timings[label]
        ratios = [f"{t.seconds / timings[peer].seconds:.2f}" for peer in peers]
        table.append([_name(label), f"{t.seconds:.1f}", *ratios, f"{t.peak_mb / 1024:.2f}"])
    return table


def cost_table(folders: Sequence[Path], title: str) -> list[list[str]]:
    """Return core-hours of a genome; the title begins with the number of samples."""
    return hours_table(folders[0], int(title.split()[0].replace(",", "")))


def cuts_table(folders: Sequence[Path], title: str) -> list[list[str]]:
    """Return the sites that a cutoff of the printed R2 loses and keeps over all frequencies, as shares."""
    name, *sets = title.split("; ")
    table: list[list[str]] = []
    for folder, where in zip(folders, sets, strict=True):
        for i, row in enumerate(row for row in _rows(folder / "cuts.tsv") if row["bin"] == ALL):
            columns = [column for column in row if column.startswith(("lost of", "kept of"))]
            table = table or [[name, *(_in_words(column) for column in columns)]]
            label = NAMES[BEFORE] if row["imputer"] == BEFORE else row["imputer"]
            shares = [f"{SHARE.findall(row[column])[0]} %" for column in columns]
            table.append([f"{where}: {label}" if i == 0 else label, *shares])
    return table


def _in_words(column: str) -> str:
    return column.replace("of constant", "of sites without variation").replace(
        "of true", "of sites with true"
    )


def printed_r2_table(folders: Sequence[Path], title: str) -> list[list[str]]:
    """Return mean printed R2 and mean true r2 of the sites of a frequency that vary in the truth."""
    name, *sets = title.split("; ")
    table: list[list[str]] = []
    for folder, where in zip(folders, sets, strict=True):
        rows = _rows(folder / "estimates.tsv")
        names = [one for one in dict.fromkeys(row["bin"] for row in rows) if one != ALL]
        table.append([f"{name}; {where}", *(short_bin(one, first=i == 0) for i, one in enumerate(names))])
        value = {
            (row["imputer"], row["bin"]): [f"{float(row[x]):.2f}"[1:] for x in ("mean R2", "mean true r²")]
            for row in rows
        }
        imputers = dict.fromkeys(row["imputer"] for row in rows)
        table += [
            [NAMES[BEFORE] if label == BEFORE else label, *(" / ".join(value[label, one]) for one in names)]
            for label in imputers
        ]
    return table


def sets_table(folders: Sequence[Path], title: str) -> list[list[str]]:
    """Return pooled r2 of every set of a folder of `sets`, errors, and bins in which a peer is better."""
    table: list[list[str]] = []
    for case in sorted(path for path in folders[0].iterdir() if path.is_dir()):
        rows = read_accuracy(case / "accuracy.tsv")
        known = [label for label in labels(rows) if label not in BASELINES]
        head = [title, *map(_name, known), "error relative to the better peer", BINS_BEHIND]
        table = table or [head]
        overall = {row.imputer: row.pooled_r2 for row in rows if row.bin == ALL}
        behind = [
            sum(not _ahead(rows, one, measure) for one in bins(rows) if one != ALL)
            for measure in ("pooled_r2", "mean_r2")
        ]
        ratio = f"{error_ratio(rows, OURS):.3f}".lstrip("0")
        of_all = f"{behind[0]} and {behind[1]} of {len(bins(rows)) - 1}"
        table.append([case.name, *(_decimals(overall[label]) for label in known), ratio, of_all])
    return table


def _ahead(rows: Sequence[Accuracy], one: str, measure: str) -> bool:
    values = {row.imputer: getattr(row, measure) for row in rows if row.bin == one}
    peer = better_peer(values)
    return peer is None or values[OURS] > peer[1]


def leave_one_out_table(folders: Sequence[Path], title: str) -> list[list[str]]:
    """Return leave-one-out accuracy of typed calls, and true accuracy of imputed genotypes."""
    name, *sets = title.split("; ")
    wanted = (
        "typed calls left out, mean r² of a sample",
        "imputed genotypes, mean r² of a sample against the truth",
        "rank correlation",
    )
    told = []
    for folder in folders:
        with (folder / "table.tsv").open() as file:
            told.append(dict(list(csv.reader(file, delimiter="\t"))[1:]))
    return [[name, *sets], *([what, *(_decimals(float(of[what])) for of in told)] for what in wanted)]


def fewer_errors(folders: Sequence[Path], ours: str, other: str) -> str:
    """Return the relative reduction of our errors, 1 - pooled r2 over all sites, from another imputer's."""
    error = {row.imputer: 1 - row.pooled_r2 for row in _accuracy(folders) if row.bin == ALL}
    return f"{1 - error[ours] / error[other]:.0%}".replace("%", " %")


def file_size(folders: Sequence[Path], ours: str, other: str) -> str:
    """Return the ratio of our file size to the other imputer's; a range if the folders differ."""
    found = set()
    for folder in folders:
        size = {row["imputer"]: int(row["bytes"]) for row in _rows(folder / "sizes.tsv")}
        found.add(f"{size[ours] / size[other]:.2f}")
    return " to ".join(sorted(found))


NUMBERS: dict[str, Callable[[Sequence[Path], str, str], str]] = {
    "fewer-errors": fewer_errors,
    "file-size": file_size,
}
KINDS: dict[str, Callable[[Sequence[Path], str], list[list[str]]]] = {
    "accuracy": pooled_table,
    "mean-accuracy": mean_table,
    "time": time_table,
    "cost": cost_table,
    "cuts": cuts_table,
    "printed-r2": printed_r2_table,
    "leave-one-out": leave_one_out_table,
    "sets": sets_table,
}


def _rows(table: Path) -> list[dict[str, str]]:
    with table.open() as file:
        return list(csv.DictReader(file, delimiter="\t"))


def _accuracy(folders: Sequence[Path]) -> list[Accuracy]:
    """The rows of all folders, each imputer from the first that has it."""
    rows: list[Accuracy] = []
    for folder in folders:
        known = set(labels(rows))
        known.add(BEFORE)
        rows += [row for row in read_accuracy(folder / "accuracy.tsv") if row.imputer not in known]
    return rows


def _by_bin(rows: Sequence[Accuracy], title: str, measure: str) -> list[list[str]]:
    value = {(row.imputer, row.bin): getattr(row, measure) for row in rows}
    names = bins(rows)
    edges = [name for name in names if name != ALL]
    table = [[title, ALL, *(short_bin(edge, first=i == 0) for i, edge in enumerate(edges))]]
    table += [
        [_name(label), *(_decimals(value[label, name]) for name in names)] for label in _order(labels(rows))
    ]
    return table


def _order(found: Sequence[str]) -> list[str]:
    """Baselines, peers, ours."""
    first = [label for label in (*BASELINES, *PEER_LABELS) if label in found]
    return first + [label for label in found if label not in first]


def _name(label: str) -> str:
    return NAMES.get(label, label.replace("_", " "))


def _decimals(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.4f}".removeprefix("0")
