"""Reading what `evaluate_labels` compares: imputed labels, true types, and the populations of samples."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from spinimpute.pipeline.labels.types_table import (
    MISSING,
    UNKNOWN,
    combine_rows,
    is_part,
    parse_alleles,
    plain_locus,
    read_type_rows,
    single_label,
)
from spinimpute.runtime.errors import InputError
from spinimpute.runtime.text_tables import TextTable


class LabelCall(NamedTuple):
    """The imputed labels of a sample at a locus, at one resolution."""

    alleles: tuple[str, ...]  # one or two
    probability: float  # of the pair; NaN if unknown


# by locus, number of fields, and sample
LabelCallsByLocus = dict[str, dict[int, dict[str, LabelCall]]]


class ComparedLabels(NamedTuple):
    """The true and the imputed labels of a sample at a locus, at one resolution."""

    sample: str
    true: tuple[str, ...]  # those that are known at this resolution
    called: tuple[str, ...]
    probability: float  # of the called pair; NaN if unknown


def read_label_calls(path: str | Path) -> LabelCallsByLocus:
    """Read the table of `impute --labels`.

    Columns: sample, locus, allele1, allele2 (empty for a haploid sample) and, if they are there, fields and
    probability. Without fields, a row has the resolution of its finer allele.

    Raises InputError if the table cannot be read, has no such column or no row, an invalid value, or two rows
    of the same sample, locus and resolution.
    """
    table = TextTable(path, "table of imputed labels")
    calls: LabelCallsByLocus = {}
    names: dict[str, str] = {}  # of loci without "HLA-"
    columns = ("sample", "locus", "allele1", "allele2"), ("fields", "probability")
    for line, (sample, locus, first, second, fields, probability) in table.rows(*columns):
        pair = parse_alleles(table, line, locus, (first, second))
        alleles = tuple(allele for allele in pair if allele != UNKNOWN)
        if not alleles:
            continue  # not called
        if not fields:
            n_fields = max(allele.count(":") for allele in alleles) + 1
        elif fields.isascii() and fields.isdigit() and len(fields) < 3 and int(fields):
            n_fields = int(fields)
        else:
            raise table.error(f"the number of fields is {fields!r}, expected 1, 2, ...", line)
        name = names.setdefault(plain_locus(locus), locus)
        one_locus = calls.setdefault(name, {}).setdefault(n_fields, {})
        if sample in one_locus:
            raise table.error(f"sample {sample} has two rows of {locus} with fields = {n_fields}", line)
        one_locus[sample] = LabelCall(alleles, _parse_probability(table, line, probability))
    if not calls:
        raise table.error("it has no labels")
    return calls


def _parse_probability(table: TextTable, line: int, text: str) -> float:
    if text in MISSING:
        return float("nan")
    try:
        probability = float(text)
    except ValueError:
        probability = -1
    if not 0 <= probability <= 1:
        raise table.error(f"the probability is {text!r}, expected a number between 0 and 1", line)
    return probability


class TrueTypes:
    """A table of true types, in the format of `panel labels --types`. The positions are not needed.

    Raises InputError if the table cannot be read, has no row, an invalid allele or two names of a locus, or
    if rows of a sample contradict each other.
    """

    def __init__(self, path: str | Path) -> None:
        self._table = TextTable(path, "table of true types")
        # by locus without "HLA-" and sample: the last line, and the pair
        self._pairs = {
            plain_locus(locus): combine_rows(self._table, locus, rows)
            for locus, rows in read_type_rows(self._table, positions=False).items()
        }
        if not self._pairs:
            raise self._table.error("it has no row")

    @property
    def loci(self) -> list[str]:
        """Names of the loci, without "HLA-"."""
        return list(self._pairs)

    @property
    def samples(self) -> list[str]:
        """Names of the samples, in the order of the table."""
        return list(dict.fromkeys(sample for pairs in self._pairs.values() for sample in pairs))

    def compare(
        self, locus: str, calls: dict[int, dict[str, LabelCall]], samples: Collection[str]
    ) -> dict[int, list[ComparedLabels]]:
        """Return what is compared at a locus, by number of fields.

        Samples without a known label are left out. `calls` are the labels of the locus by number of fields. A
        true label with fewer fields is unknown, unless it is complete: no label of either table has the same
        beginning and more fields. Raises InputError if a sample has two true labels and one imputed one.
        """
        true_pairs = self._pairs.get(plain_locus(locus), {})
        pairs = {sample: found for sample, found in true_pairs.items() if sample in samples}
        texts = {allele for _, pair in pairs.values() for allele in pair}
        texts |= {allele for rows in calls.values() for call in rows.values() for allele in call.alleles}
        partial = {short for short in texts if any(is_part(short, text) for text in texts)}
        compared: dict[int, list[ComparedLabels]] = {}
        for n_fields, rows in sorted(calls.items(), reverse=True):
            for sample, call in rows.items():
                if sample not in pairs:
                    continue
                line, pair = pairs[sample]
                if len(call.alleles) == 1:
                    where = "in the table of imputed labels"
                    pair = single_label(self._table, line, sample, locus, pair, where), UNKNOWN
                known = tuple(
                    _shorten(text, n_fields)
                    for text in pair
                    if text != UNKNOWN and (text.count(":") + 1 >= n_fields or text not in partial)
                )
                if known:
                    called = tuple(_shorten(allele, n_fields) for allele in call.alleles)
                    one = ComparedLabels(sample, known, called, call.probability)
                    compared.setdefault(n_fields, []).append(one)
        return compared


def _shorten(allele: str, n_fields: int) -> str:
    """Return the first fields of an allele."""
    return ":".join(allele.split(":")[:n_fields])


def read_populations(path: str | Path) -> dict[str, str]:
    """Read a table with the columns sample and population. Raises InputError if a sample has two of them."""
    table = TextTable(path, "table of populations")
    population_of: dict[str, str] = {}
    for line, (sample, population) in table.rows(("sample", "population")):
        if not population:
            raise table.error(f"sample {sample} has no population", line)
        before = population_of.setdefault(sample, population)
        if before != population:
            raise table.error(f"sample {sample} is of two populations, {before} and {population}", line)
    return population_of


def common_samples(calls: LabelCallsByLocus, types: TrueTypes) -> tuple[list[str], list[str], list[str]]:
    """Return the samples of both tables, only of the truth, and only of the imputed labels."""
    imputed = dict.fromkeys(
        sample for by_fields in calls.values() for rows in by_fields.values() for sample in rows
    )
    true = types.samples
    common = [sample for sample in true if sample in imputed]
    if not common:
        raise InputError(
            "mismatch",
            f"no sample is in both the table of true types ({', '.join(true[:3])}) and the table of imputed "
            f"labels ({', '.join(list(imputed)[:3])}). Samples are matched by name",
        )
    in_truth = set(true)
    return common, [s for s in true if s not in imputed], [s for s in imputed if s not in in_truth]
