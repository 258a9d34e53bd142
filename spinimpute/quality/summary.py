"""Summaries of runs: counts, warnings, time and memory.

A run fills its summary while it works. The command line prints `lines` at the end, and Python callers get the
summary as the result. Axes: T typed sites, X samples.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from spinimpute.genotypes.untyped_intervals import IntervalCounts
from spinimpute.quality.coverage import Coverage
from spinimpute.runtime.errors import argument, call, printable

if TYPE_CHECKING:
    from spinimpute.quality.label_calls import LabelCalls
    from spinimpute.quality.leave_one_out import LeaveOneOutQuality
    from spinimpute.quality.report_data import ReportData
    from spinimpute.sequencing.likelihoods import GenotypeLikelihoods

MAX_LISTED_INTERVALS = 10
# A window is listed if at least so many of the target's sites are not in the panel, and if the share of sites
# that are is below this part of the whole target's share.
MIN_UNMATCHED, LOW_MATCHED = 20, 0.5
RELIABLE_SAMPLES = 50  # with this many samples, the standard error of a correlation of 0.9 is 0.03


class WindowCounts(NamedTuple):
    """A window that was imputed, from position `start` to `end`."""

    chrom: str
    start: int
    end: int
    sites: int  # number of panel sites
    typed: int  # number of typed sites
    target_sites: int  # number of sites of the target
    matched: int  # number of these that are panel sites


def _typed_share(window: WindowCounts) -> float:
    return window.typed / window.sites


@dataclass(repr=False)
class RunSummary:
    """The summary of any run."""

    # time in seconds by stage, in the order in which the stages started
    seconds: dict[str, float] = field(default_factory=dict, kw_only=True)
    peak_memory_mb: float = field(default=0.0, kw_only=True)  # largest resident set size in MB
    warnings: list[str] = field(default_factory=list, kw_only=True)
    # notes to the user, also written to the output's header
    notes: list[str] = field(default_factory=list, kw_only=True)
    # further data for the HTML report; None if no report is requested
    report_data: ReportData | None = field(default=None, kw_only=True)
    # number of records that were not used, by reason
    skipped: dict[str, int] = field(default_factory=dict, kw_only=True)

    labels: LabelCalls | None = field(default=None, kw_only=True)  # most likely labels, if requested
    written_sites: int = field(default=0, kw_only=True)
    left_out_sites: int = field(default=0, kw_only=True)  # number of sites that the filters left out
    # number of multi-allelic records of a VCF or BCF that have dosages
    multiallelic_dosages: int = field(default=0, kw_only=True)

    def __repr__(self) -> str:
        return "\n".join(map(printable, self.lines()))

    def lines(self) -> list[str]:
        """Return the summary as text, one string for each line."""
        return self.closing_lines()

    def count_skipped(self, skipped: Mapping[str, int]) -> None:
        """Add the numbers of records of a file that were not used, by reason."""
        for reason, count in skipped.items():
            self.skipped[reason] = self.skipped.get(reason, 0) + count

    def collect_labels(self, samples: Sequence[str]) -> None:
        """Prepare to collect the labels of the samples, unless a chromosome before has done it."""
        from spinimpute.quality.label_calls import LabelCalls  # imported here: few runs need it

        self.labels = self.labels or LabelCalls(list(samples))

    def write_labels(self, partial: Path, path: Path) -> None:
        """Write the table of labels to `partial`, to be renamed to `path`. Warn if it is empty."""
        assert self.labels is not None, "`collect_labels` made them"
        if not self.labels.rows:
            self.warnings.append(
                f"the table {path} is empty: the panel has no labels in the imputed regions. "
                f"Add labels to it with {call('add_labels')}"
            )
        self.labels.write(partial)

    def count_left_out(self, n_sites: int) -> None:
        """Subtract sites that the filters left out from the written ones."""
        self.written_sites -= n_sites
        self.left_out_sites += n_sites

    def written_lines(self) -> list[str]:
        """Return the numbers of written and left out sites as text, and what to do for PLINK 2."""
        lines = [f"written:  {self.written_sites} sites"]
        if self.left_out_sites:
            lines.append(
                f"          {self.left_out_sites} sites were left out: below {argument('min_r2')} or "
                f"{argument('min_maf')}"
            )
        if self.multiallelic_dosages:
            lines.append(
                f"          {self.multiallelic_dosages} multi-allelic records, whose dosages PLINK 2 cannot "
                f"read ({argument('split_multiallelic', True)} splits them)"
            )
        return lines

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Add the time that the `with` block takes to the time of a stage."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start

    def note_few_samples(self, n_samples: int) -> None:
        """Add a note if R2 is estimated from few samples."""
        if n_samples < RELIABLE_SAMPLES:
            self.notes.append(
                f"INFO/R2 is estimated from only {n_samples} sample{'s' if n_samples > 1 else ''}; it is "
                f"unreliable below {RELIABLE_SAMPLES} samples"
            )

    def closing_lines(self) -> list[str]:
        """Return time and memory as text."""
        times = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in self.seconds.items())
        return [f"time:     {times}", f"memory:   {self.peak_memory_mb:.0f} MB at the peak"]


@dataclass(repr=False)
class ImputationSummary(RunSummary):
    """The summary of imputing, phasing, converting or checking typed targets."""

    panel_sites: int = 0
    panel_haplotypes: int = 0
    samples: int = 0
    haplotypes: int = 0
    typed_sites: int = 0
    matched_sites: int = 0  # typed sites that are panel sites
    array_sites: int | None = None  # number of sites of the array for which a .spip panel was built
    outside_array: int = 0  # matched sites that are not on this array, so the model does not use them
    used_sites: int | None = None  # matched sites in the region and its buffer; None without a region
    missing_calls: int = 0  # typed genotype calls with a missing allele, which were imputed
    phased_calls: int = 0  # heterozygotes that the run phased
    phased_samples: int = 0  # samples with heterozygotes that the run phased
    kept_unmatched: int = 0  # unmatched typed sites that were written to the output
    repaired: dict[str, int] = field(default_factory=dict)  # number of target sites by kind of repair
    unmatched: dict[str, int] = field(default_factory=dict)  # number of unmatched target sites by reason
    mended_calls: dict[str, int] = field(default_factory=dict)  # number of calls set missing, by reason
    # a line of text for each chromosome or part of X that has haploid samples, with their number
    haploid: list[str] = field(default_factory=list)
    windows: list[WindowCounts] = field(default_factory=list)  # in the order of computation
    # intervals of the panels without a typed site nearby; the largest comes first
    untyped: list[IntervalCounts] = field(default_factory=list)
    # reasons to refuse the target unless `force` is set; they are also in the warnings
    refusals: list[str] = field(default_factory=list)
    leave_one_out: LeaveOneOutQuality | None = None  # accuracy at typed sites, if requested

    def count_phased(self, unphased_TX: np.ndarray) -> None:
        """Count the heterozygotes that the run phases: those that are unphased in the target, bool (T, X)."""
        self.phased_calls += int(unphased_TX.sum())
        self.phased_samples = max(self.phased_samples, int(unphased_TX.any(axis=0).sum()))

    def lines(self) -> list[str]:
        """Return the summary as text, one string for each line."""
        out = [
            f"target:   {self.samples} samples, {self.haplotypes} haplotypes, {self.typed_sites} typed sites",
            f"panel:    {self.panel_haplotypes} haplotypes, {self.panel_sites} sites",
            f"matched:  {self.matched_sites} of {self.typed_sites} typed sites are panel sites",
        ]
        out += [f"          {count} sites: {what}" for what, count in self.repaired.items()]
        out += [f"          {count} not matched: {why}" for why, count in self.unmatched.items() if count]
        out += [f"          {count} records skipped: {why}" for why, count in self.skipped.items() if count]
        out += [f"          {count} {what}: set missing" for what, count in self.mended_calls.items()]
        if self.used_sites is not None:
            out.append(f"          {self.used_sites} matched sites are used for the region and its buffer")
        out += [f"haploid:  {line}" for line in self.haploid]
        if self.array_sites is not None:
            used = self.matched_sites - self.outside_array
            out.append(f"array:    {used} of the {self.array_sites} sites of the panel's array are typed")
        if self.outside_array:
            out.append(
                f"          {self.outside_array} typed sites are not on this array: the model ignores them; "
                "they are written unchanged"
            )
        if self.kept_unmatched:
            out.append(f"          {self.kept_unmatched} unmatched typed sites were kept")
        if self.phased_calls:
            out.append(
                f"phased:   {self.phased_calls} unphased heterozygotes of {self.phased_samples} samples"
            )
        if self.missing_calls:
            out.append(f"          {self.missing_calls} missing typed calls were imputed")
        if self.leave_one_out is not None:
            n_low = sum(row["note"] == "low" for row in self.leave_one_out.by_sample())
            low = [row for row in self.leave_one_out.by_window() if row["note"] == "low"]
            out.append(
                f"loo:      r2 = {self.leave_one_out.overall_r2():.4f} of typed calls and "
                f"leave-one-out predictions; {n_low} samples are far below the rest"
            )
            out += [
                f"          {row['chrom']}:{row['start']}-{row['end']}: r2 = {row['r2']:.4f}, far below the "
                "other windows"
                for row in low[:MAX_LISTED_INTERVALS]
            ]
            if len(low) > MAX_LISTED_INTERVALS:
                out.append(f"          and {len(low) - MAX_LISTED_INTERVALS} more such windows")
        out += [f"untyped:  {interval}" for interval in self.untyped[:MAX_LISTED_INTERVALS]]
        if len(self.untyped) > MAX_LISTED_INTERVALS:
            out.append(f"          and {len(self.untyped) - MAX_LISTED_INTERVALS} smaller intervals")
        out += self.written_lines()
        out += [f"note:     {note}" for note in self.notes]
        return [*out, *self._window_lines(), *self.closing_lines()]

    def _window_lines(self) -> list[str]:
        """Return the number of windows, and those in which few of the target's sites are panel sites."""
        if not self.windows:
            return []
        shares = [f"{window.typed / window.sites:.2%}" for window in sorted(self.windows, key=_typed_share)]
        between = shares[0] if shares[0] == shares[-1] else f"{shares[0]} to {shares[-1]}"
        low = [window for window in self.windows if self._has_few_matches(window)]
        out = [f"windows:  {len(self.windows)}, with {between} of their sites typed"]
        out += [
            f"          {window.chrom}:{window.start}-{window.end}: only {window.matched} of "
            f"{window.target_sites} typed sites are panel sites"
            for window in low[:MAX_LISTED_INTERVALS]
        ]
        if len(low) > MAX_LISTED_INTERVALS:
            out.append(f"          and {len(low) - MAX_LISTED_INTERVALS} more such windows")
        return out

    def _has_few_matches(self, window: WindowCounts) -> bool:
        least = LOW_MATCHED * window.target_sites * self.matched_sites / max(self.typed_sites, 1)
        return window.target_sites - window.matched >= MIN_UNMATCHED and window.matched < least


@dataclass(repr=False)
class SequencedSummary(RunSummary):
    """The summary of imputing sequenced samples."""

    panel_sites: int = 0
    panel_haplotypes: int = 0
    coverage: Coverage = field(default_factory=Coverage)
    file_sites: int = 0  # biallelic sites of the input files
    matched_sites: int = 0  # sites of the input files that are panel sites
    repaired: dict[str, int] = field(default_factory=dict)  # number of sites by kind of repair
    haploid: int = 0  # number of haploid samples

    @property
    def samples(self) -> list[str]:
        """Names of the samples."""
        return self.coverage.samples

    def count(self, likelihoods: GenotypeLikelihoods, n_sites: int) -> None:
        """Count the likelihoods of an interval with `n_sites` panel sites. The caller sets `skipped`."""
        self.coverage.add(likelihoods, n_sites)
        self.panel_sites += n_sites
        self.file_sites += likelihoods.n_sites_file
        self.matched_sites += len(likelihoods.panel_index)
        self.repaired = dict(Counter(self.repaired) + Counter(likelihoods.repaired))
        self.haploid = max(self.haploid, int((likelihoods.ploidy == 1).sum()))

    def input_lines(self) -> list[str]:
        """Return the counts of the input as text."""
        out = [
            f"target:   {len(self.samples)} samples with data at {self.coverage.known_sites} sites",
            f"panel:    {self.panel_haplotypes} haplotypes, {self.panel_sites} sites",
            f"matched:  {self.matched_sites} panel sites of {self.file_sites} sites in the input",
        ]
        out += [f"          {count} sites: {what}" for what, count in self.repaired.items()]
        out += [f"          {count} {what}" for what, count in self.skipped.items() if count]
        out += self.coverage.lines()
        if self.haploid:
            out.append(f"haploid:  {self.haploid} of {len(self.samples)} samples have one copy")
        return out

    def lines(self) -> list[str]:
        """Return the summary as text, one string for each line."""
        out = [*self.input_lines(), *self.written_lines()]
        out += [f"note:     {note}" for note in self.notes]
        return out + self.closing_lines()
