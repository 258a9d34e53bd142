"""`check`: report how `impute` would treat each site and sample of a target, without imputing.

Axes: X samples (not the chromosome).
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from spinimpute.genotypes.builds import infer_build, is_x
from spinimpute.genotypes.genetic_map import GeneticMap
from spinimpute.genotypes.haplotypes import Haplotypes
from spinimpute.genotypes.intervals import Interval
from spinimpute.genotypes.sites import ON_ANOTHER_CHROMOSOME, NoMatch, NoRecord
from spinimpute.genotypes.untyped_intervals import IntervalCounts
from spinimpute.panels.opening import get_panel_paths, open_reference
from spinimpute.panels.reference import ReferencePanel
from spinimpute.pipeline.maps.build import estimate_map_only
from spinimpute.pipeline.matched_target import MatchedTarget, read_matched
from spinimpute.pipeline.run_plan import left_out_warning, list_panels, name_chromosomes, plan_run
from spinimpute.pipeline.settings import TargetSettings, check_settings
from spinimpute.pipeline.verdicts import find_untyped, untyped_warning
from spinimpute.quality.frequencies import Frequencies
from spinimpute.quality.summary import ImputationSummary
from spinimpute.runtime.errors import InputError, printable
from spinimpute.runtime.output_files import STANDARD
from spinimpute.runtime.progress import Progress, split_progress
from spinimpute.targets.formats import VARIANTS, detect_format
from spinimpute.targets.repair import SiteNote

HIGH_MISSING = 0.1  # samples and sites with a higher share of missing calls are reported
FREQUENCY_DIFFERS = "allele frequency differs from the panel"
ONE_ALLELE = "one allele only in the target"  # all calls of the target have the same allele
MISSING_CALLS = f"more than {HIGH_MISSING:.0%} of the calls missing"


class ChromosomeCounts(NamedTuple):
    """The number of typed sites of a chromosome, and of those that are in the panel."""

    chrom: str
    n_sites: int
    n_matched: int


@dataclass(frozen=True, repr=False)
class CheckReport:
    """The result of `check`.

    Attributes
    ----------
    panels : list of str
        A line of text for each of several panels of the same chromosome, which `impute` merges.
    samples : list of str
        Names of the target's samples.
    n_sites, n_matched : int
        Number of typed sites, and of typed sites that are in the panel.
    chromosomes : list of ChromosomeCounts
        The same numbers for each chromosome.
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
    haploid : list of str
        A line of text for each chromosome or part of X that has haploid samples, with their number.
    one_copy_X : bool or None
        Whether each sample has one copy: males on X outside the pseudo-autosomal regions, all on Y and MT,
        haploid samples elsewhere. None if no sample has one copy. Of several chromosomes, X counts.
    share_X : float64
        Ratio of a sample's heterozygotes to the number expected with two copies. It is low in males on X. NaN
        if too few are expected, or if it is not computed, as on most autosomes.
    untyped : list of IntervalCounts
        Intervals of the panels without a typed site nearby; the largest comes first.
    warnings : list of str
        Warnings to the user.
    refusals : list of str
        The problems for which `impute` refuses the target.
    """

    panels: list[str]
    samples: list[str]
    n_sites: int
    n_matched: int
    chromosomes: list[ChromosomeCounts]
    notes: list[SiteNote]
    skipped: dict[str, int]
    mended_calls: dict[str, int]
    missing_X: np.ndarray
    heterozygous_X: np.ndarray
    unphased: int
    build: str
    panel_build: str
    haploid: list[str]
    one_copy_X: np.ndarray | None
    share_X: np.ndarray
    untyped: list[IntervalCounts]
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
        text = [f"panel:    {line}" for line in self.panels]
        text += [f"target:   {len(self.samples)} samples, {self.n_sites} typed sites"]
        if self.build or self.panel_build:
            text.append(
                f"build:    {self.build or 'not stated'}, the panel's {self.panel_build or 'not stated'}"
                " (by the length of the chromosome in the headers)"
            )
        text.append(f"matched:  {self.n_matched} of {self.n_sites} typed sites are panel sites")
        if len(self.chromosomes) > 1:
            by_share = sorted(self.chromosomes, key=lambda one: one.n_matched / max(one.n_sites, 1))
            least, most = (
                f"{one.n_matched / max(one.n_sites, 1):.1%} ({one.chrom})"
                for one in (by_share[0], by_share[-1])
            )
            text.append(f"          of the sites of a chromosome: {least} to {most}")
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
        text += [f"haploid:  {line}" for line in self.haploid]
        text += [f"warning:  {warning}" for warning in self.warnings]
        return text

    def write_sites(self, path: Path) -> None:
        """Write the notes as a tab-separated table."""
        head = ["chrom", "position", "id", "ref", "alt", "panel_ref", "panel_alt", "what"]
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
    vcf: str | Path | Sequence[str | Path],
    panel: ReferencePanel | Sequence[ReferencePanel] | str | Path | Sequence[str | Path],
    target: TargetSettings = TargetSettings(),
    *,
    genetic_map: str | Path | GeneticMap | None = None,
    progress: Progress | None = None,
) -> CheckReport:
    """Read a target and match it to a panel like `impute`, and report problems.

    Parameters
    ----------
    vcf : str or Path, or sequence of them
        The target, in any format that `impute` reads. Or several VCF or BCF files of the same samples, one
        per chromosome.
    panel : ReferencePanel, str or Path, or sequence of them
        A panel file, an open panel, or a VCF, BCF or M3VCF, from which a temporary panel is built. Or several
        panel files, or a folder of panel files. Panels of the same chromosome are merged. Several open panels
        must be the parts of X (`open_panels`).
    target : TargetSettings
        How to read the target.
    genetic_map : str, Path or GeneticMap, optional
        Genetic map for a panel that is not a panel file.
    progress : callable, optional
        Called with the completed fraction of the run.

    Returns
    -------
    CheckReport
        Counts, notes and warnings. `print` shows the same text as the command `spinimpute check`.

    Raises
    ------
    InputError
        See `impute`. If the target as a whole does not fit the panel, no error is raised: the reasons are in
        `refusals`. Of several chromosomes, the same holds for one that has no site in common with its panel.
    """
    check_settings(target=(target, TargetSettings))
    files, panels = [vcf] if isinstance(vcf, str | Path) else list(vcf), list_panels(panel)
    open_panels = [one for one in panels if not isinstance(one, str | Path)]
    if len(open_panels) == len(panels) and len(files) == 1:
        return _check_open(files[0], open_panels, target)
    plan = plan_run(STANDARD, files, panels, (), None, genetic_map)
    chromosomes = plan.outputs[Path(STANDARD)]
    reports: list[CheckReport] = []
    refused: dict[str, list[str]] = {}  # reasons by chromosome
    absent: dict[str, InputError] = {}
    no_match: NoMatch | None = None
    for one, share in zip(chromosomes, split_progress(progress, [1.0] * len(chromosomes)), strict=True):
        try:
            with open_reference(one.panels, genetic_map, refine=estimate_map_only) as parts:
                report = _check_open(one.vcf, parts, target)
            if len(one.panels) > 1:
                report.panels.extend(_describe(path, one.vcf, target) for path in get_panel_paths(one.panels))
            reports.append(report)
            refused[one.name] = report.refusals
        except NoMatch as error:
            no_match = no_match or error
            refused[one.name] = [str(error)]
        except NoRecord as error:
            absent[one.name] = error
        if share is not None:
            share(1.0)
    if not reports:
        raise no_match or next(iter(absent.values()))
    warnings = [*plan.warnings, *left_out_warning(absent), *_refusal_warnings(refused)]
    return _join(reports, refused, warnings, len(files) == 1 < len(chromosomes))


def _describe(path: str | Path, vcf: str | Path, target: TargetSettings) -> str:
    """Return a line about one of several panels and its match with the target."""
    with open_reference(path) as parts:
        n_sites = sum(part.n_sites for part in parts)
        text = f"{Path(path).name}: {parts[0].n_samples} samples, {n_sites} sites, "
        try:
            report = _check_open(vcf, parts, target)
        except NoMatch:
            return f"{text}no typed site"
    return f"{text}{report.n_matched} of {report.n_sites} typed sites"


def _check_open(vcf: str | Path, panels: Sequence[ReferencePanel], target: TargetSettings) -> CheckReport:
    summary = ImputationSummary()
    read = read_matched(panels, vcf, target, force=True)  # force: refusals are collected, not raised
    read.count(summary)
    parts = read.matched
    for part in parts:
        summary.untyped += find_untyped(
            part.panel, [(part.typed_index_used, Interval(0, part.panel.n_sites))]
        )
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
        [],
        first.samples,
        summary.typed_sites,
        n_matched,
        [ChromosomeCounts(panel.chrom, summary.typed_sites, n_matched)],
        notes,
        summary.skipped,
        summary.mended_calls,
        missing_X / n_matched,
        heterozygous_X / n_matched,
        sum(0 if part.target.unphased is None else int(part.target.unphased.sum()) for part in parts),
        infer_build(first.contig_line, panel.chrom) if detect_format(Path(vcf)) is VARIANTS else "",
        infer_build(panel.contig_line, panel.chrom),
        summary.haploid,
        parts_with_haploids[0].target.ploidy == 1 if parts_with_haploids else None,
        parts_of_x[0].resolved.het_ratio_X if parts_of_x else np.full(n_samples, np.nan),
        summary.untyped,
        [*summary.warnings, *untyped_warning(summary.untyped)],
        summary.refusals,
    )


def _refusal_warnings(refused: Mapping[str, list[str]]) -> list[str]:
    """Return the reasons of the first chromosome that `impute` refuses, and the names of the others."""
    first, *others = [name for name, reasons in refused.items() if reasons] or [""]
    more = [f"impute refuses {name_chromosomes(others)}, too"] if others else []
    return [*refused.get(first, []), *more]


def _join(
    reports: Sequence[CheckReport], refused: Mapping[str, list[str]], warnings: list[str], one_file: bool
) -> CheckReport:
    """Join the reports of several chromosomes.

    refused: reasons why `impute` refuses each chromosome. warnings: warnings that no report has. one_file:
    whether one target file has all chromosomes.
    """
    skipped, mended = Counter[str](), Counter[str]()
    untyped: list[IntervalCounts] = []
    for report in reports:
        skipped.update(report.skipped)
        mended.update(report.mended_calls)
        known = [*report.refusals, *untyped_warning(report.untyped)]
        warnings += [text for text in report.warnings if text not in known]
        untyped += report.untyped
    if one_file:  # records on another chromosome are read with that chromosome
        skipped.pop(ON_ANOTHER_CHROMOSOME, None)
    warnings += untyped_warning(untyped)
    weights = [report.n_matched for report in reports]
    sexes = next((report for report in reports if is_x(report.chromosomes[0].chrom)), reports[0])
    return CheckReport(
        panels=[line for report in reports for line in report.panels],
        samples=reports[0].samples,
        n_sites=sum(report.n_sites for report in reports),
        n_matched=sum(weights),
        chromosomes=[one for report in reports for one in report.chromosomes],
        notes=[note for report in reports for note in report.notes],
        skipped=dict(skipped),
        mended_calls=dict(mended),
        missing_X=np.average([report.missing_X for report in reports], axis=0, weights=weights),
        heterozygous_X=np.average([report.heterozygous_X for report in reports], axis=0, weights=weights),
        unphased=sum(report.unphased for report in reports),
        build=_join_builds(report.build for report in reports),
        panel_build=_join_builds(report.panel_build for report in reports),
        haploid=[line for report in reports for line in report.haploid],
        one_copy_X=sexes.one_copy_X,
        share_X=sexes.share_X,
        untyped=untyped,
        warnings=list(dict.fromkeys(warnings)),
        refusals=[text for reasons in refused.values() for text in reasons],
    )


def _join_builds(builds: Iterable[str]) -> str:
    return " and ".join(dict.fromkeys(build for build in builds if build))


def _count_calls(part: MatchedTarget) -> tuple[np.ndarray, np.ndarray]:
    """Count the missing and the heterozygous genotypes of each sample at matched sites."""
    target = part.target
    alleles = target.alleles[part.match.target_index]
    first = np.cumsum(target.ploidy.astype(np.int64)) - target.ploidy
    second = first + (target.ploidy == 2)
    heterozygous_TX = (alleles[:, first] != alleles[:, second]) & (alleles >= 0)[:, first]
    return (alleles[:, first] < 0).sum(axis=0), heterozygous_TX.sum(axis=0)


def _write_table(path: Path, head: list[str], rows: Iterable[list[Any]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter="\t", lineterminator="\n")
        writer.writerow(head)
        writer.writerows([printable(str(cell)) for cell in row] for row in rows)


def _note(target: Haplotypes, index: int, what: str, panel_ref: str = ".", panel_alt: str = ".") -> SiteNote:
    sites = target.sites
    position, name = int(sites.position[index]), sites.id[index]
    return SiteNote(
        sites.chrom, position, name, sites.ref[index], sites.alt[index], panel_ref, panel_alt, what
    )


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
