"""The panel sites of the regions that are imputed, and the typed sites that their results depend on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from spinimpute.genotypes.intervals import Interval
from spinimpute.genotypes.regions import regions_on_chromosome, summarize_regions
from spinimpute.genotypes.sites import UNKNOWN_ALLELE, NoRecord, Region, same_chromosome
from spinimpute.genotypes.untyped_intervals import cut_equal_lengths
from spinimpute.hmm.recombination_scale import scale_in_header
from spinimpute.panels.reference import ReferencePanel
from spinimpute.pipeline.chunk_file import PANEL_LINE
from spinimpute.pipeline.matched_target import MatchedTarget, TargetRead, read_matched
from spinimpute.pipeline.settings import TargetSettings
from spinimpute.pipeline.target_checksums import target_line
from spinimpute.pipeline.verdicts import check_typed_ratio, untyped_warning
from spinimpute.predictors.interface import Predictor
from spinimpute.predictors.typed_tiles import starts_in_header
from spinimpute.quality.summary import ImputationSummary
from spinimpute.runtime.errors import InputError
from spinimpute.runtime.memory import within_budget
from spinimpute.vcf.index_reader import has_fresh_index
from spinimpute.vcf.variant_file import VariantFile, starts_as_variant_file


class PanelInterval(NamedTuple):
    """Consecutive panel sites, and the region that they lie in; None for all sites of a panel."""

    sites: Interval
    region: Region | None = None

    def rows_within(self, position: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return those of some rows, int64, whose position lies in the region."""
        if self.region is None:
            return rows
        there = position[rows]
        return rows[(there >= self.region.start) & (there <= self.region.end)]


def panel_intervals(
    panels: Sequence[ReferencePanel], regions: Sequence[Region]
) -> tuple[dict[str, list[PanelInterval]], list[str]]:
    """Return the panel sites of regions by the checksum of each panel that has some, and warnings.

    The intervals are in order of position; overlapping and adjacent regions are joined. No region means all
    sites. Raises InputError for a region on another chromosome, and NoRecord if no panel has a site in any.
    """
    chrom = panels[0].chrom
    if not regions:
        return {panel.checksum: [PanelInterval(Interval(0, panel.n_sites))] for panel in panels}, []
    for region in regions:
        if not same_chromosome(region.chrom, chrom):
            raise InputError(
                "mismatch",
                f"region {region}: the panel is of chromosome {chrom}. Give the panel of chromosome "
                f"{region.chrom}, or leave the region out",
            )
    joined = regions_on_chromosome(regions, chrom)
    found: dict[str, list[PanelInterval]] = {}
    absent = set(joined)
    for panel in panels:
        for region in joined:
            start = int(np.searchsorted(panel.position, region.start, side="left"))
            stop = int(np.searchsorted(panel.position, region.end, side="right"))
            if start < stop:
                found.setdefault(panel.checksum, []).append(PanelInterval(Interval(start, stop), region))
                absent.discard(region)
    if not absent:
        return found, []
    shown = summarize_regions([region for region in joined if region in absent])
    if not found:
        raise NoRecord(
            "mismatch",
            f"the panel has no site in {shown}; it reaches from {chrom}:{panels[0].position[0]} to "
            f"{panels[-1].position[-1]}",
        )
    return found, [f"the panel has no site in {shown}"]


@dataclass(frozen=True)
class RegionTarget:
    """A matched target, and the panel sites that are imputed from it, in order of position."""

    matched: MatchedTarget
    intervals: Sequence[PanelInterval]

    @property
    def n_sites(self) -> int:
        """Number of panel sites."""
        return sum(one.sites.n_sites for one in self.intervals)


@dataclass(frozen=True)
class RegionSelection:
    """Which regions are imputed, and how much of a target is used for them.

    Attributes
    ----------
    regions : sequence of Region
        None for all panel sites.
    buffer_cM : float or None
        Only typed sites within this distance of a region are used for it; None for all.
    settings : TargetSettings
        How the target is read.
    min_typed_ratio : float or None
        Smallest share of typed sites in each of the panel's fixed stretches.
    """

    regions: Sequence[Region]
    buffer_cM: float | None
    settings: TargetSettings
    min_typed_ratio: float | None = None

    def may_be_read_in_part(self, panels: Sequence[ReferencePanel]) -> bool:
        """Whether a part of a target may be enough: the same sites are used as when our file was written."""
        settings = self.settings
        as_written = settings.ambiguous == "frequency" and settings.chain is None and settings.samples is None
        return self.buffer_cM is not None and as_written and len(panels) == 1

    def part_to_check(self, vcf: str | Path, panels: Sequence[ReferencePanel]) -> Region | None:
        """Return what is read of a target to see whether it fits a panel, before panels are merged.

        Of a file that was written for a panel: from the first region to the last, with their buffers, because
        no more of it may be read later (`part_to_read`). None for the whole file.
        """
        first = panels[0]
        found, _ = panel_intervals(panels, self.regions)
        if not self.regions or self.buffer_cM is None or not self.may_be_read_in_part(panels):
            return None
        header, _ = _header_of(vcf)
        if PANEL_LINE not in header:
            return None
        near = [_with_buffer(first.cM, one.sites, self.buffer_cM) for one in found[first.checksum]]
        return Region(first.chrom, *Interval(near[0].start, near[-1].stop).positions(first.position))


@dataclass
class RegionTargets:
    """What `read_regions` found.

    Attributes
    ----------
    read : TargetRead
        The target as it was read.
    chosen : list of RegionTarget
        The parts of the chromosome that the regions lie in; with a buffer, one for each region.
    target_line : str
        Line for the header of a chunk that distinguishes its target from others.
    used_sites : int or None
        With a buffer, the number of matched sites that are used.
    warnings : list of str
        Warnings of regions.
    """

    read: TargetRead
    chosen: list[RegionTarget]
    target_line: str
    used_sites: int | None
    warnings: list[str] = field(default_factory=list)

    def count(self, summary: ImputationSummary) -> None:
        """Add counts and warnings to a summary."""
        summary.warnings += self.warnings
        self.read.count(summary)
        chosen = {one.matched.panel.checksum for one in self.chosen}
        for matched in self.read.matched:
            if matched.panel.checksum in chosen:
                summary.count_array(matched.panel.array_index, matched.match.panel_index)
        if self.used_sites is not None:
            summary.used_sites = (summary.used_sites or 0) + self.used_sites
        for matched in self.read.matched:
            found, warnings = untyped_warning(
                matched.panel,
                [
                    (one.matched.typed_index_used, each.sites)
                    for one in self.chosen
                    if one.matched.panel is matched.panel
                    for each in one.intervals
                ],
            )
            summary.untyped += found
            summary.warnings += warnings


def read_regions(
    vcf: str | Path,
    panels: Sequence[ReferencePanel],
    predictor: Predictor,
    selection: RegionSelection,
    *,
    allow_unphased: bool,
    max_memory: int | None,
    force: bool,
) -> RegionTargets:
    """Read as much of a target as regions and their buffers need, and choose the typed sites that are used.

    `predictor` decides which typed sites results depend on. Raises InputError if the target cannot be used,
    or if it has no site in the parts of the chromosome that the regions lie in.
    """
    intervals, warnings = panel_intervals(panels, selection.regions)
    buffer_cM, least = selection.buffer_cM, selection.min_typed_ratio
    part = None
    if buffer_cM is not None and selection.may_be_read_in_part(panels):
        part = part_to_read(
            vcf, panels[0], predictor, intervals[panels[0].checksum], buffer_cM, least is not None
        )
    only = None if part is None else part.region
    with within_budget(max_memory, "reading the target"):
        read = read_matched(
            panels, vcf, selection.settings, allow_unphased=allow_unphased, only=only, force=force
        )
    if part is None:  # otherwise it was checked when the file was written
        for one in read.matched:
            one.panel.check_typed(one.match.panel_index)
    else:
        read.matched = [replace(one, jumps_per_cM=part.jumps_per_cM) for one in read.matched]
    chosen = [
        RegionTarget(one, intervals[one.panel.checksum])
        for one in read.matched
        if one.panel.checksum in intervals
    ]
    if not chosen:
        raise InputError(
            "mismatch",
            f"target {vcf}: it has no site in the part of the chromosome that contains "
            f"{summarize_regions(selection.regions)}",
        )
    if least is not None:
        for target in chosen:
            for each in target.intervals:
                check_typed_ratio(target.matched.panel, target.matched.typed_index_used, each.sites, least)
    used_sites = None
    if buffer_cM is not None:
        split = [list(_near_each(one, predictor, buffer_cM)) for one in chosen]
        used_sites = sum(
            len(np.unique(np.concatenate([one.matched.match.panel_index for one in near]))) for near in split
        )
        chosen = [one for near in split for one in near]
    line = target_line(read.matched, "" if part is None else _header_of(vcf)[0])
    return RegionTargets(read, chosen, line, used_sites, warnings)


def _near_each(target: RegionTarget, predictor: Predictor, buffer_cM: float) -> Iterator[RegionTarget]:
    """Yield a target for each interval, with the typed sites near it."""
    matched = target.matched.with_rate()
    for one in target.intervals:
        yield RegionTarget(within(matched, predictor, one.sites, buffer_cM), [one])


class PartToRead(NamedTuple):
    """The part of a target that is read.

    Attributes
    ----------
    region : Region
        Positions that are read.
    jumps_per_cM : float or None
        Recombination scale by all typed sites of the file; None without haplotypes.
    """

    region: Region
    jumps_per_cM: float | None


def part_to_read(
    vcf: str | Path,
    panel: ReferencePanel,
    predictor: Predictor,
    intervals: Sequence[PanelInterval],
    buffer_cM: float,
    whole_stretches: bool = False,
) -> PartToRead | None:
    """Return the part of a target that regions and their buffer need; None for the whole file.

    Reading a part is enough only for a file that `phase` or `convert` wrote for this panel with this genetic
    map. In any other file all sites together decide how sites of unknown strand are repaired, whether target
    and panel fit, the recombination scale, and where the predictor's tiles start. With
    `whole_stretches`, all of the panel's fixed stretches that the intervals touch are read.
    """
    regions = [one.region for one in intervals if one.region is not None]
    if len(regions) < len(intervals):
        return None
    header, n_records = _header_of(vcf)
    starts = starts_in_header(header, panel)
    if f"{PANEL_LINE}{panel.checksum}" not in header.splitlines() or starts is None:
        return None
    haplotypes = panel.haplotypes
    jumps_per_cM = None if haplotypes is None else scale_in_header(header, haplotypes)
    if n_records != starts.n_typed or (haplotypes is not None and jumps_per_cM is None):
        return None
    needed = [(region.start, region.end) for region in regions]
    for sites, _ in intervals:
        near = _with_buffer(panel.cM, sites, buffer_cM)
        needed.append(predictor.positions_needed(panel, starts, sites, near))
    if whole_stretches:
        for low, high in cut_equal_lengths(panel.cM):
            if any(low < sites.stop and high > sites.start for sites, _ in intervals):
                needed.append((starts.start_before(int(panel.position[low])), int(panel.position[high - 1])))
    region = Region(panel.chrom, min(start for start, _ in needed), max(end for _, end in needed))
    return PartToRead(region, jumps_per_cM)


def _header_of(vcf: str | Path) -> tuple[str, int]:
    """Return header and number of records of an indexed VCF or BCF; empty for other files."""
    path = Path(vcf)
    if not path.is_file() or not starts_as_variant_file(path) or not has_fresh_index(path):
        return "", 0
    try:
        with VariantFile(path, "target") as file:
            return file.header, file.n_records
    except InputError:  # reported when the target is read
        return "", 0


def _with_buffer(cM: np.ndarray, sites: Interval, buffer_cM: float) -> Interval:
    """Widen an interval by a genetic distance; cM increases."""
    start = int(np.searchsorted(cM, cM[sites.start] - buffer_cM, side="left"))
    return Interval(start, int(np.searchsorted(cM, cM[sites.stop - 1] + buffer_cM, side="right")))


def within(matched: MatchedTarget, predictor: Predictor, sites: Interval, buffer_cM: float) -> MatchedTarget:
    """Keep the matched sites that the results at some panel sites depend on.

    Sites within the buffer are kept, and, whatever the buffer, all that a phased target needs for the results
    of a run with all sites. The recombination scale remains that of all sites.
    """
    matched = matched.with_rate()
    panel, match = matched.panel, matched.match
    index_T = match.panel_index
    near = Interval(*np.searchsorted(index_T, _with_buffer(panel.cM, sites, buffer_cM)).tolist())
    some = predictor.typed_needed(panel, index_T, sites, near).slice
    nearby = replace(match, panel_index=index_T[some], target_index=match.target_index[some])
    return replace(matched, repaired=replace(matched.repaired, match=nearby))


def unmatched_sites(target: RegionTarget) -> tuple[np.ndarray, list[str]]:
    """Typed sites of the regions that the panel lacks and that can be written: rows, int64, and warnings."""
    haplotypes, warnings = target.matched.target, []
    position, unmatched = haplotypes.sites.position, target.matched.match.unmatched_index
    rows = np.concatenate([one.rows_within(position, unmatched) for one in target.intervals])
    sites = haplotypes.sites
    unnamed = np.array([UNKNOWN_ALLELE in (sites.ref[i], sites.alt[i]) for i in rows], bool)
    if unnamed.any():
        warnings.append(
            f"{unnamed.sum()} unmatched typed sites are left out: their file does not give their alleles"
        )
        rows = rows[~unnamed]
    if haplotypes.unphased is not None:
        unphased = haplotypes.unphased[rows].any(axis=1)
        if unphased.any():
            warnings.append(
                f"{unphased.sum()} unmatched typed sites are left out: they have unphased heterozygotes, and "
                "only panel sites can be phased"
            )
        rows = rows[~unphased]
    return rows, warnings
