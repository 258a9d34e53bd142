"""The summary of an imputation run: counts, warnings, time and memory."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from spinimpute.genotypes.untyped_stretches import Stretch
from spinimpute.runtime.errors import printable

if TYPE_CHECKING:
    from spinimpute.quality.details import RunDetails
    from spinimpute.quality.leave_one_out import LeaveOneOutQuality


SHOWN_STRETCHES = 10
RELIABLE_SAMPLES = 50  # the standard error of a correlation of 0.9 is 0.03 then


@dataclass(frozen=True)
class WindowSummary:
    """A window of a run.

    Attributes
    ----------
    chrom : str
        Its chromosome.
    start, end : int
        Positions of its first and last site.
    sites : int
        Panel sites in it.
    typed : int
        Those that are typed.
    """

    chrom: str
    start: int
    end: int
    sites: int
    typed: int


@dataclass(repr=False)
class RunSummary:
    """What the summaries of all runs that impute have.

    Attributes
    ----------
    seconds : dict of str to float
        Time by stage, in the order in which they began.
    peak_memory_mb : float
        Largest resident size in MB.
    warnings : list of str
        Warnings to the user.
    notes : list of str
        Notes to the user, which go into the output's header, too.
    details : RunDetails or None
        What a report tells beyond this, if one was asked for.
    """

    seconds: dict[str, float] = field(default_factory=dict, kw_only=True)
    peak_memory_mb: float = field(default=0.0, kw_only=True)
    warnings: list[str] = field(default_factory=list, kw_only=True)
    notes: list[str] = field(default_factory=list, kw_only=True)
    details: RunDetails | None = field(default=None, kw_only=True)

    def __repr__(self) -> str:
        return "\n".join(map(printable, self.lines()))

    def lines(self) -> list[str]:
        """The summary as text."""
        return self.closing_lines()

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Add the time spent in the `with` block to a stage."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start

    def note_few_samples(self, n_samples: int) -> None:
        """Note it if R2 is estimated from few samples."""
        if n_samples < RELIABLE_SAMPLES:
            self.notes.append(
                f"R2 is estimated from {n_samples} samples: of fewer than {RELIABLE_SAMPLES} it says little"
            )

    def closing_lines(self) -> list[str]:
        """Time and memory as text."""
        times = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in self.seconds.items())
        return [f"time:     {times}", f"memory:   {self.peak_memory_mb:.0f} MB at most"]


@dataclass(repr=False)
class ImputationSummary(RunSummary):
    """Counts, in addition to `RunSummary`.

    Attributes
    ----------
    panel_sites, panel_haplotypes : int
        Size of the panel.
    samples, haplotypes, typed_sites : int
        Size of the target.
    matched_sites : int
        Typed sites that are panel sites.
    array_sites : int or None
        With an inducing panel, the sites of its array.
    outside_array : int
        With an inducing panel, the matched sites that are not in its array: the model does not see them.
    used_sites : int or None
        With a buffer, the matched sites that are used for the region.
    missing_calls : int
        Typed genotype calls that lacked an allele or both, and were imputed.
    phased_calls, phased_samples : int
        Heterozygotes that were phased, and samples that have some.
    kept_unmatched : int
        Unmatched typed sites that were written.
    written_sites : int
        All sites that were written.
    repaired : dict of str to int
        Target sites by what was done to them.
    unmatched, skipped : dict of str to int
        Target sites that were not matched, and records that were not read, by reason.
    mended_calls : dict of str to int
        Calls that were set missing, by reason.
    haploid : list of str
        Number of haploid samples: a line for each part of the chromosome that has some.
    windows : list of WindowSummary
        Windows in the order they were computed.
    untyped : list of Stretch
        Stretches of the panel without a typed site nearby, the largest of each part first.
    refusals : list of str
        Why the target would be refused without `force`; they are among the warnings, too.
    leave_one_out : LeaveOneOutQuality or None
        Accuracy at typed sites, if it was asked for.
    """

    panel_sites: int = 0
    panel_haplotypes: int = 0
    samples: int = 0
    haplotypes: int = 0
    typed_sites: int = 0
    matched_sites: int = 0
    array_sites: int | None = None
    outside_array: int = 0
    used_sites: int | None = None
    missing_calls: int = 0
    phased_calls: int = 0
    phased_samples: int = 0
    kept_unmatched: int = 0
    written_sites: int = 0
    repaired: dict[str, int] = field(default_factory=dict)
    unmatched: dict[str, int] = field(default_factory=dict)
    mended_calls: dict[str, int] = field(default_factory=dict)
    haploid: list[str] = field(default_factory=list)
    skipped: dict[str, int] = field(default_factory=dict)
    windows: list[WindowSummary] = field(default_factory=list)
    untyped: list[Stretch] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    leave_one_out: LeaveOneOutQuality | None = None

    def count_phased(self, unphased_TX: np.ndarray) -> None:
        """Add the heterozygotes that are phased; unphased_TX is bool (T, n_samples)."""
        self.phased_calls += int(unphased_TX.sum())
        self.phased_samples = max(self.phased_samples, int(unphased_TX.any(axis=0).sum()))

    def count_array(self, array_index: np.ndarray | None, typed_index: np.ndarray) -> None:
        """Add the sites of an inducing panel's array, and the typed sites outside it.

        Parameters
        ----------
        array_index : int64 (n_array_sites,) or None
            Panel sites of the array; None for a panel that serves any array.
        typed_index : int64 (T,)
            The panel sites that are typed.
        """
        if array_index is not None:
            self.array_sites = (self.array_sites or 0) + len(array_index)
            self.outside_array += int(np.isin(typed_index, array_index, invert=True).sum())

    def count_kept(self, n_sites: int) -> None:
        """Add a number of unmatched typed sites that were written."""
        self.kept_unmatched += n_sites
        self.written_sites += n_sites

    def lines(self) -> list[str]:
        """The summary as text."""
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
            out.append(f"          {self.used_sites} of them are used for the region")
        out += [f"haploid:  {line}" for line in self.haploid]
        if self.array_sites is not None:
            used = self.matched_sites - self.outside_array
            out.append(f"array:    {used} of the {self.array_sites} sites of the panel's array are typed")
        if self.outside_array:
            out.append(
                f"          {self.outside_array} typed sites are not among them: written as they are, but of "
                "no use to the model"
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
            out.append(
                "loo:      typed calls are predicted by the others with r2 = "
                f"{self.leave_one_out.all():.4f}; {n_low} samples are far below the rest"
            )
        out += [f"untyped:  {stretch}" for stretch in self.untyped[:SHOWN_STRETCHES]]
        if len(self.untyped) > SHOWN_STRETCHES:
            out.append(f"          and {len(self.untyped) - SHOWN_STRETCHES} smaller stretches")
        out.append(f"written:  {self.written_sites} sites")
        out += [f"note:     {note}" for note in self.notes]
        several = len({window.chrom for window in self.windows}) > 1
        for window in self.windows:
            place = f"{window.chrom}:" if several else ""
            out.append(
                f"window:   {place}{window.start}-{window.end}: {window.typed} typed of {window.sites} sites "
                f"({window.typed / window.sites:.2%})"
            )
        return out + self.closing_lines()
