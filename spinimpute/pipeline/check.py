"""`check`: report how `impute` would treat each site and sample of a target, without imputing.

Axes: X samples (not the chromosome).
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from spinimpute.genotypes.builds import infer_build
from spinimpute.genotypes.genetic_map import GeneticMap
from spinimpute.genotypes.haplotypes import Haplotypes
from spinimpute.genotypes.intervals import Interval
from spinimpute.panels.opening import open_reference
from spinimpute.panels.reference import ReferencePanel
from spinimpute.pipeline.maps.build import estimate_map_only
from spinimpute.pipeline.matched_target import MatchedTarget, read_matched
from spinimpute.pipeline.settings import TargetSettings, check_settings
from spinimpute.pipeline.verdicts import untyped_warning
from spinimpute.quality.frequencies import Frequencies
from spinimpute.quality.summary import ImputationSummary
from spinimpute.runtime.errors import printable
from spinimpute.targets.repair import SiteNote

HIGH_MISSING = 0.1  # samples and sites with a higher share of missing calls are reported
FREQUENCY_DIFFERS = "allele frequency differs from the panel"
ONE_ALLELE = "one allele only in the target"  # all calls of the target have the same allele
MISSING_CALLS = f"more than {HIGH_MISSING:.0%} of the calls missing"


@dataclass(frozen=True, repr=False)
class CheckReport:
    """The result of `check`.

    Attributes
    ----------
    samples : list of str
        Names of the target's samples.
    n_sites, n_matched : int
        Number of typed sites, and of typed sites that are in the panel.
    notes : list of SiteNote
        Repaired sites and suspicious sites.
    skipped, mended_calls : dict of str to int
        Number of records that are skipped, and of genotypes that are set missing, by reason.
    missing_X, heterozygous_X : float64
        Share of missing and of heterozygous genotypes of each sample at matched sites.
    unphased : int
        Number of unphased heterozygous genotypes.
    build, panel_build : str
        Genome builds of target and panel, inferred from the chromosome's length in the header; "" if unknown.
    one_copy_X : bool or None
        Whether each sample has one copy: males on X outside the pseudo-autosomal regions, all on Y and MT,
        haploid samples elsewhere. None if no sample has one copy.
    share_X : float64
        Ratio of a sample's heterozygotes to the number expected with two copies. It is low in males on X. NaN
        if too few are expected, or if it is not computed, as on most autosomes.
    warnings : list of str
        Warnings to the user.
    refusals : list of str
        The problems for which `impute` refuses the target.
    """

    samples: list[str]
    n_sites: int
    n_matched: int
    notes: list[SiteNote]
    skipped: dict[str, int]
    mended_calls: dict[str, int]
    missing_X: np.ndarray
    heterozygous_X: np.ndarray
    unphased: int
    build: str
    panel_build: str
    one_copy_X: np.ndarray | None
    share_X: np.ndarray
    warnings: list[str]
    refusals: list[str]

    @property
    def counts(self) -> dict[str, int]:
        """Number of sites with each kind of note."""
        counts: dict[str, int] = {}
        for note in self.notes:
            counts[note.what] = counts.get(note.what, 0) + 1
        return counts

    def __repr__(self) -> str:
        return "\n".join(map(printable, self.lines()))

    def lines(self) -> list[str]:
        """Return the report as lines of text."""
        text = [f"target:   {len(self.samples)} samples, {self.n_sites} typed sites"]
        if self.build or self.panel_build:
            text.append(
                f"build:    {self.build or 'not stated'}, the panel's {self.panel_build or 'not stated'}"
                " (by the length of the chromosome in the headers)"
            )
        text.append(f"matched:  {self.n_matched} of {self.n_sites} typed sites are panel sites")
        text += [f"          {count} sites: {what}" for what, count in self.counts.items()]
        text += [f"          {count} records skipped: {why}" for why, count in self.skipped.items()]
        text.append(f"calls:    {self.unphased} unphased heterozygotes, {self.missing_X.mean():.2%} missing")
        text += [f"          {count} {what}: set missing" for what, count in self.mended_calls.items()]
        high = np.flatnonzero(self.missing_X > HIGH_MISSING)
        text += [
            f"          sample {self.samples[i]}: {self.missing_X[i]:.1%} missing, "
            f"{self.heterozygous_X[i]:.1%} heterozygous"
            for i in high[:20]
        ]
        if len(high) > 20:
            text.append(f"          and {len(high) - 20} more samples with over {HIGH_MISSING:.0%} missing")
        if self.one_copy_X is not None:
            n_one = int(self.one_copy_X.sum())
            text.append(f"copies:   {n_one} samples have one copy, {len(self.samples) - n_one} have two")
        text += [f"warning:  {warning}" for warning in self.warnings]
        return text

    def write_sites(self, path: Path) -> None:
        """Write the notes as a tab-separated table."""
        head = ["position", "id", "ref", "alt", "panel_ref", "panel_alt", "what"]
        _write_table(path, head, ([getattr(note, name) for name in head] for note in self.notes))

    def write_samples(self, path: Path) -> None:
        """Write a tab-separated table with one row for each sample.

        Columns: the shares of missing and of heterozygous genotypes, the number of copies, and the ratio of
        observed to expected heterozygotes (`share_X`; empty if NaN).
        """
        copies = np.full(len(self.samples), 2) if self.one_copy_X is None else 2 - self.one_copy_X
        rows = zip(self.samples, self.missing_X, self.heterozygous_X, copies, self.share_X, strict=True)
        _write_table(
            path,
            ["sample", "missing", "heterozygous", "copies", "of_expected_heterozygotes"],
            (
                [name, f"{m:.5f}", f"{h:.5f}", int(c), "" if np.isnan(s) else f"{s:.4f}"]
                for name, m, h, c, s in rows
            ),
        )


def check(
    vcf: str | Path,
    panel: ReferencePanel | Sequence[ReferencePanel] | str | Path | Sequence[str | Path],
    target: TargetSettings = TargetSettings(),
    *,
    genetic_map: str | Path | GeneticMap | None = None,
) -> CheckReport:
    """Read a target and match it to a panel like `impute`, and report problems.

    Parameters
    ----------
    vcf : str or Path
        The target, in any format that `impute` reads.
    panel : ReferencePanel, str or Path, or sequence of them
        A panel file, an open panel, or a VCF or BCF, from which a temporary panel is built. Several panel
        files of one chromosome are merged. Several open panels must be the parts of X (`open_panels`).
    target : TargetSettings
        How to read the target.
    genetic_map : str, Path or GeneticMap, optional
        Genetic map for a panel that is a VCF or BCF.

    Returns
    -------
    CheckReport
        Counts, notes and warnings. `print` shows the same text as the command `spinimpute check`.

    Raises
    ------
    InputError
        See `impute`. If the target as a whole does not fit the panel, no error is raised: the reasons are in
        `refusals`.
    """
    check_settings(target=(target, TargetSettings))
    if isinstance(panel, Sequence) and not isinstance(panel, str):
        parts = [one for one in panel if not isinstance(one, str | Path)]
        if len(parts) == len(panel):
            return _check_open(vcf, parts, target)
    with open_reference(panel, genetic_map, refine=estimate_map_only) as panels:
        return _check_open(vcf, panels, target)


def _check_open(vcf: str | Path, panels: Sequence[ReferencePanel], target: TargetSettings) -> CheckReport:
    summary = ImputationSummary()
    read = read_matched(panels, vcf, target, force=True)  # force: refusals are collected, not raised
    read.count(summary)
    parts = read.matched
    for part in parts:
        untyped, warnings = untyped_warning(
            part.panel, [(part.typed_index_used, Interval(0, part.panel.n_sites))]
        )
        summary.untyped += untyped
        summary.warnings += warnings
    notes = [
        note
        for part in parts
        for note in sorted(
            [
                *part.repairs,
                *(_note(part.target, index, reason) for index, reason in part.match.reasons.items()),
                *_call_notes(part),
            ],
            key=lambda note: note.position,
        )
    ]
    missing_X, heterozygous_X = np.sum([_count_calls(part) for part in parts], axis=0)
    n_matched = summary.matched_sites
    parts_with_haploids = [part for part in parts if (part.target.ploidy == 1).any()]
    parts_of_x = [part for part in parts if np.isfinite(part.resolved.het_ratio_X).any()]
    n_samples = len(parts[0].target.samples)
    first, panel = parts[0].target, parts[0].panel
    return CheckReport(
        first.samples,
        summary.typed_sites,
        n_matched,
        notes,
        summary.skipped,
        summary.mended_calls,
        missing_X / n_matched,
        heterozygous_X / n_matched,
        sum(0 if part.target.unphased is None else int(part.target.unphased.sum()) for part in parts),
        infer_build(first.contig_line, panel.chrom),
        infer_build(panel.contig_line, panel.chrom),
        parts_with_haploids[0].target.ploidy == 1 if parts_with_haploids else None,
        parts_of_x[0].resolved.het_ratio_X if parts_of_x else np.full(n_samples, np.nan),
        summary.warnings,
        summary.refusals,
    )


def _count_calls(part: MatchedTarget) -> tuple[np.ndarray, np.ndarray]:
    """Count the missing and the heterozygous genotypes of each sample at matched sites."""
    target = part.target
    alleles = target.alleles[part.match.target_index]
    first = np.cumsum(target.ploidy.astype(np.int64)) - target.ploidy
    second = first + (target.ploidy == 2)
    heterozygous_TX = (alleles[:, first] != alleles[:, second]) & (alleles >= 0)[:, first]
    return (alleles[:, first] < 0).sum(axis=0), heterozygous_TX.sum(axis=0)


def _write_table(path: Path, head: list[str], rows: Iterable[list[Any]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file, delimiter="\t", lineterminator="\n")
        writer.writerow(head)
        writer.writerows([printable(str(cell)) for cell in row] for row in rows)


def _note(target: Haplotypes, index: int, what: str, panel_ref: str = ".", panel_alt: str = ".") -> SiteNote:
    sites = target.sites
    position, name = int(sites.position[index]), sites.id[index]
    return SiteNote(position, name, sites.ref[index], sites.alt[index], panel_ref, panel_alt, what)


def _call_notes(part: MatchedTarget) -> list[SiteNote]:
    """Return notes on matched sites with missing genotypes, one allele, or frequencies unlike the panel's."""
    panel, target, match = part.panel, part.target, part.match
    n_haplotypes = target.alleles.shape[1]
    frequencies = Frequencies.count(panel, target, match)
    n_called, n_alt = frequencies.called_T, frequencies.alt_T
    is_cohort = len(target.samples) > 1
    flags = {
        MISSING_CALLS: (n_called < (1 - HIGH_MISSING) * n_haplotypes) & is_cohort,
        ONE_ALLELE: ((n_alt == 0) | (n_alt == n_called)) & is_cohort,
        FREQUENCY_DIFFERS: frequencies.outlier_T,
    }
    sites = panel.sites
    return [
        _note(target, int(index), what, sites.ref[site], sites.alt[site])
        for what, flag in flags.items()
        for index, site in zip(match.target_index[flag], match.panel_index[flag].tolist(), strict=True)
    ]
