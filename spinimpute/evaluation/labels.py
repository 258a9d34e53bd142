"""`evaluate --labels`: compare imputed labels, such as HLA types, with true ones.

A person has two labels at a locus, in no order. They are matched so that as many as possible are right.
"""

from __future__ import annotations

import os
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from spinimpute.evaluation.files import EvaluationFiles, table_writers, write_folder
from spinimpute.evaluation.label_tables import (
    ComparedLabels,
    TrueTypes,
    common_samples,
    read_label_calls,
    read_populations,
)
from spinimpute.evaluation.result import check_bins
from spinimpute.pipeline.labels.types_table import plain_locus
from spinimpute.quality.metrics import ProbabilityBins, frequency_bins
from spinimpute.runtime.errors import InputError

ALL = "all"  # name of the rows of all loci
LABEL_BINS = (0.0, 0.01, 0.05, 0.1, 1.0)  # bounds of the frequencies of labels in the truth
THRESHOLDS = (0.5, 0.7, 0.9, 0.95)
TENTHS = tuple(number / 10 for number in range(11))
UNKNOWN_POPULATION = "unknown"

Rows = list[dict[str, Any]]
Resolution = tuple[str, int]  # locus, or ALL, and number of fields


@dataclass(frozen=True, repr=False)
class LabelEvaluation:
    """The result of `evaluate_labels`. A table is a list of rows, which `pandas.DataFrame` accepts.

    All tables but `by_sample` begin with the columns locus ("all" for all loci together) and fields, the
    number of fields of the compared labels.
    """

    # Columns: people, labels (known true labels), right (of them), accuracy (right / labels), pairs (people
    # whose true labels are all known), pairs_right, pair_accuracy, mean_probability (of these pairs).
    by_locus: Rows
    by_population: Rows | None  # Columns: population, and those of `by_locus`; None without populations.
    # Columns: threshold, pairs, called (pairs with at least this probability), call_rate, pair_accuracy and
    # accuracy (of the called pairs). Empty if the imputed labels have no probabilities; so is `calibration`.
    thresholds: Rows
    # Columns: bin (of the pair's probability), predictions, mean_predicted, observed, calibration_error.
    calibration: Rows
    # Columns: bin (of the frequency in the truth), distinct_labels, labels, right, accuracy.
    by_frequency: Rows
    # Columns: label, frequency (in the truth), labels, right, accuracy; and of the pairs: called (how often
    # the label is called), called_right, precision (called_right / called).
    by_label: Rows
    by_sample: Rows  # Columns: sample, fields, and those of `by_locus`, over all loci.
    samples: list[str]  # compared samples, in the order of the truth
    truth_only_samples: list[str]
    imputed_only_samples: list[str]
    truth_only_loci: list[str]
    imputed_only_loci: list[str]

    def __repr__(self) -> str:
        text = StringIO()
        console = Console(file=text, width=100, force_terminal=False, no_color=True)
        for table in label_tables(self):
            console.print(table)
        return text.getvalue().rstrip("\n")


def evaluate_labels(
    labels: str | os.PathLike[str],
    types: str | os.PathLike[str],
    populations: str | os.PathLike[str] | None = None,
    out: str | os.PathLike[str] | None = None,
    bins: Sequence[float] = LABEL_BINS,
    force: bool = False,
    samples: Sequence[str] | None = None,
) -> LabelEvaluation:
    """Compare imputed labels, such as HLA types, with true ones.

    Loci are matched by name, with or without "HLA-", and samples by name. At each resolution, true labels
    with fewer fields, and missing ones, are not compared.

    Parameters
    ----------
    labels : path
        The table of `impute --labels`. Tables of other programs need the columns sample, locus, allele1,
        allele2 and, for calibration, probability.
    types : path
        Table of the true labels, in the format of `add_labels`; the column position is not needed.
    populations : path or None
        Table with the columns sample and population, for the accuracy of each population.
    out : path or None
        Folder for tables: labels.tsv and others whose names begin with "labels_".
    bins : sequence of float
        Increasing bounds of the bins of a label's frequency in the truth, between 0 and 1.
    force : bool
        Replace existing outputs.
    samples : sequence of str or None
        Compare only these samples; both tables must have them.

    Returns
    -------
    LabelEvaluation
        Tables, as lists of rows.

    Raises
    ------
    InputError
        A table cannot be read, lacks a column, contradicts itself or has an invalid value, the tables share
        no sample or no locus, no true label is known at a resolution that was imputed, one of `samples` does
        not exist, `bins` are not increasing, or an output exists and `force` is False.
    """
    check_bins(bins, 1)
    folder = None if out is None else Path(out)
    EvaluationFiles(folder, None, None, force, tuple(_FILES)).check([labels, types, populations])
    calls, truth = read_label_calls(Path(labels)), TrueTypes(Path(types))
    population_of = None if populations is None else read_populations(Path(populations))
    common, truth_only, imputed_only = common_samples(calls, truth)
    if samples is not None:
        if absent := [name for name in samples if name not in set(common)]:
            raise InputError("not-found", f"sample {absent[0]} is not in both tables, {types} and {labels}")
        wanted = set(samples)
        common, truth_only, imputed_only = [name for name in common if name in wanted], [], []
    imputed_loci = {plain_locus(locus) for locus in calls}
    if imputed_loci.isdisjoint(truth.loci):
        raise InputError(
            "mismatch",
            f"no locus is in both the table of true types ({', '.join(truth.loci[:5])}) and the table of "
            f"imputed labels ({', '.join(list(calls)[:5])})",
        )
    chosen = set(common)
    compared: dict[Resolution, list[ComparedLabels]] = {
        (locus, n_fields): rows
        for locus, by_fields in calls.items()
        for n_fields, rows in truth.compare(locus, by_fields, chosen).items()
    }
    if not compared:
        raise InputError(
            "mismatch",
            f"no true label of {types} is known at a resolution of {labels}: the labels have too few fields, "
            "or are missing",
        )
    if population_of is not None:
        _check_populations(populations, population_of, common)
    result = LabelEvaluation(
        by_locus=[_key(key) | _accuracy(rows) for key, rows in _with_all(compared)],
        by_population=None if population_of is None else _by_population(compared, population_of),
        thresholds=_thresholds(compared),
        calibration=_calibration(compared),
        by_frequency=_by_frequency(compared, bins),
        by_label=[row for key, rows in compared.items() for row in _by_label(key, rows)],
        by_sample=_by_sample(compared, common),
        samples=common,
        truth_only_samples=truth_only,
        imputed_only_samples=imputed_only,
        truth_only_loci=[locus for locus in truth.loci if locus not in imputed_loci],
        imputed_only_loci=[locus for locus in calls if plain_locus(locus) not in truth.loci],
    )
    if folder is not None:
        write_folder(folder, table_writers({name: get(result) for name, get in _FILES.items()}))
    return result


_FILES: dict[str, Callable[[LabelEvaluation], Rows | None]] = {
    "labels.tsv": lambda result: result.by_locus,
    "labels_populations.tsv": lambda result: result.by_population,
    "labels_thresholds.tsv": lambda result: result.thresholds,
    "labels_calibration.tsv": lambda result: result.calibration,
    "labels_frequencies.tsv": lambda result: result.by_frequency,
    "labels_alleles.tsv": lambda result: result.by_label,
    "labels_samples.tsv": lambda result: result.by_sample,
}


def _check_populations(path: object, population_of: Mapping[str, str], samples: Sequence[str]) -> None:
    """Warn about samples without a population. Raises InputError if all are."""
    absent = [name for name in samples if name not in population_of]
    if len(absent) == len(samples):
        raise InputError(
            "mismatch",
            f"table of populations {path}: none of the compared samples is in it ({absent[0]}, ...)",
        )
    if absent:
        warnings.warn(
            f"table of populations {path}: {len(absent)} of the compared samples are not in it, such as "
            f"{absent[0]}",
            stacklevel=3,
        )


def _key(key: Resolution) -> dict[str, Any]:
    return {"locus": key[0], "fields": key[1]}


def _with_all(
    compared: Mapping[Resolution, list[ComparedLabels]],
) -> Iterable[tuple[Resolution, list[ComparedLabels]]]:
    """Yield what is compared: all loci together at each resolution, then each locus."""
    for fields in sorted({fields for _, fields in compared}, reverse=True):
        here = {key: rows for key, rows in compared.items() if key[1] == fields}
        yield (ALL, fields), [one for rows in here.values() for one in rows]
        yield from here.items()


def _matched(one: ComparedLabels) -> Counter[str]:
    """Return the labels that are right, each with its number of copies."""
    return Counter(one.true) & Counter(one.called)


def _is_pair(one: ComparedLabels) -> bool:
    """Return whether all true labels of the sample are known."""
    return len(one.true) == len(one.called)


def _is_right(one: ComparedLabels) -> bool:
    return _matched(one).total() == len(one.called)


def _share(part: int, whole: int) -> float:
    return part / whole if whole else float("nan")


def _accuracy(rows: Sequence[ComparedLabels]) -> dict[str, Any]:
    n_labels, right = sum(len(one.true) for one in rows), sum(_matched(one).total() for one in rows)
    pairs = [one for one in rows if _is_pair(one)]
    pairs_right = sum(map(_is_right, pairs))
    probabilities = [one.probability for one in pairs]
    return {
        "people": len({one.sample for one in rows}),
        "labels": n_labels,
        "right": right,
        "accuracy": _share(right, n_labels),
        "pairs": len(pairs),
        "pairs_right": pairs_right,
        "pair_accuracy": _share(pairs_right, len(pairs)),
        "mean_probability": float(np.mean(probabilities)) if probabilities else float("nan"),
    }


def _by_population(
    compared: Mapping[Resolution, list[ComparedLabels]], population_of: Mapping[str, str]
) -> Rows:
    result = []
    for key, rows in _with_all(compared):
        groups = defaultdict(list)
        for one in rows:
            groups[population_of.get(one.sample, UNKNOWN_POPULATION)].append(one)
        result += [_key(key) | {"population": name} | _accuracy(groups[name]) for name in sorted(groups)]
    return result


def _pairs_with_probability(rows: Iterable[ComparedLabels]) -> list[ComparedLabels]:
    return [one for one in rows if _is_pair(one) and one.probability == one.probability]


def _thresholds(compared: Mapping[Resolution, list[ComparedLabels]]) -> Rows:
    result = []
    for key, rows in _with_all(compared):
        pairs = _pairs_with_probability(rows)
        for threshold in THRESHOLDS if pairs else ():
            called = [one for one in pairs if one.probability >= threshold]
            accuracy = _accuracy(called)
            result.append(
                _key(key)
                | {
                    "threshold": threshold,
                    "pairs": len(pairs),
                    "called": len(called),
                    "call_rate": _share(len(called), len(pairs)),
                    "pair_accuracy": accuracy["pair_accuracy"],
                    "accuracy": accuracy["accuracy"],
                }
            )
    return result


def _calibration(compared: Mapping[Resolution, list[ComparedLabels]]) -> Rows:
    result = []
    for key, rows in _with_all(compared):
        pairs = _pairs_with_probability(rows)
        bins = ProbabilityBins(TENTHS)
        bins.add(
            np.array([one.probability for one in pairs]), np.array([_is_right(one) for one in pairs], bool)
        )
        result += [_key(key) | row for row in bins.rows()]
    return result


def _by_label(key: Resolution, rows: Sequence[ComparedLabels]) -> Rows:
    """Return a row for each true or called label of a locus, sorted by its name."""
    true, right, called, called_right = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    for one in rows:
        matched = _matched(one)
        true.update(one.true)
        right.update(matched)
        if _is_pair(one):
            called.update(one.called)
            called_right.update(matched)
    return [
        _key(key)
        | {
            "label": label,
            "frequency": true[label] / true.total(),
            "labels": true[label],
            "right": right[label],
            "accuracy": _share(right[label], true[label]),
            "called": called[label],
            "called_right": called_right[label],
            "precision": _share(called_right[label], called[label]),
        }
        for label in sorted(true | called)
    ]


def _by_frequency(compared: Mapping[Resolution, list[ComparedLabels]], bins: Sequence[float]) -> Rows:
    of_locus = {key: _by_label(key, rows) for key, rows in compared.items()}
    result = []
    for key, _ in _with_all(compared):
        labels = [
            row
            for (locus, fields), rows in of_locus.items()
            if fields == key[1] and key[0] in (ALL, locus)
            for row in rows
        ]
        frequency = np.array([row["frequency"] for row in labels])
        for one in frequency_bins(bins):
            here = [labels[x] for x in np.flatnonzero(one.contains(frequency)).tolist()]
            if here:
                n_labels, right = sum(row["labels"] for row in here), sum(row["right"] for row in here)
                result.append(
                    _key(key)
                    | {
                        "bin": one.label,
                        "distinct_labels": len(here),
                        "labels": n_labels,
                        "right": right,
                        "accuracy": _share(right, n_labels),
                    }
                )
    return result


def _by_sample(compared: Mapping[Resolution, list[ComparedLabels]], samples: Sequence[str]) -> Rows:
    rows: dict[tuple[str, int], list[ComparedLabels]] = defaultdict(list)
    for (_, fields), ones in compared.items():
        for one in ones:
            rows[one.sample, fields].append(one)
    order = {sample: x for x, sample in enumerate(samples)}
    keys = sorted(rows, key=lambda key: (-key[1], order[key[0]]))
    return [
        {"sample": key[0], "fields": key[1]}
        | {name: value for name, value in _accuracy(rows[key]).items() if name != "people"}
        for key in keys
    ]


def label_tables(evaluation: LabelEvaluation) -> list[Table]:
    """Return the tables for the terminal: accuracy by locus and, if they are known, by population."""
    rate_of = {(row["locus"], row["fields"], row["threshold"]): row for row in evaluation.thresholds}
    shown = (0.5, 0.9) if rate_of else ()
    n_loci = len({row["locus"] for row in evaluation.by_locus} - {ALL})
    table = Table(
        title=f"{len(evaluation.samples):,} people, {n_loci} {'locus' if n_loci == 1 else 'loci'}",
        caption=_caption(evaluation),
        caption_justify="left",
        padding=(0, 1, 0, 0),  # so that two thresholds fit into 80 columns
    )
    for name in ("\nlocus", "\nfields", "\npeople", "labels\nright", "pairs\nright"):
        table.add_column(name, justify="left" if "locus" in name else "right", no_wrap=True)
    for threshold in shown:  # of the pairs' probability
        for name in ("called", "right"):
            table.add_column(f"≥ {threshold:g}\n{name}", justify="right", no_wrap=True)
    for row in evaluation.by_locus:
        cells = [row["locus"], str(row["fields"]), f"{row['people']:,}"]
        cells += [_percent(row["accuracy"]), _percent(row["pair_accuracy"])]
        for threshold in shown:
            rate = rate_of.get((row["locus"], row["fields"], threshold))
            cells += (
                ["–", "–"] if rate is None else [_percent(rate["call_rate"]), _percent(rate["pair_accuracy"])]
            )
        table.add_row(*cells)
    return (
        [table] if evaluation.by_population is None else [table, _population_table(evaluation.by_population)]
    )


def _population_table(by_population: Rows) -> Table:
    table = Table(title="All loci, by population")
    table.add_column("population")
    for name in ("fields", "people", "labels right", "pairs right"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in by_population:
        if row["locus"] == ALL:
            cells = [row["population"], str(row["fields"]), f"{row['people']:,}"]
            table.add_row(*cells, _percent(row["accuracy"]), _percent(row["pair_accuracy"]))
    return table


def _percent(share: float) -> str:
    return "–" if np.isnan(share) else f"{share:.1%}"


def _caption(evaluation: LabelEvaluation) -> str:
    lines = []
    if evaluation.thresholds:
        lines.append("≥ 0.5, ≥ 0.9: pairs with at least this probability")
    for what, where, names in (
        ("people", "the truth", evaluation.truth_only_samples),
        ("people", "the imputed labels", evaluation.imputed_only_samples),
        ("loci", "the truth", evaluation.truth_only_loci),
        ("loci", "the imputed labels", evaluation.imputed_only_loci),
    ):
        if names:
            some = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
            lines.append(f"{len(names):,} {what} only in {where}: {some}")
    lines += [
        f"calibration error of pairs, {row['fields']} fields: {row['calibration_error']:.4f}"
        for row in evaluation.calibration
        if (row["locus"], row["bin"]) == (ALL, "all")
    ]
    return "\n".join(lines)
