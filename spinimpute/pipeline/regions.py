"""Regions: which panel sites to impute, and which typed sites of the target to read and use for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
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
from spinimpute.pipeline.matched_target import MatchedTarget, TargetRead
from spinimpute.pipeline.settings import TargetSettings
from spinimpute.pipeline.verdicts import check_typed_ratio, find_untyped
from spinimpute.predictors.interface import Predictor
from spinimpute.predictors.typed_tiles import read_starts_line
from spinimpute.quality.summary import ImputationSummary
from spinimpute.runtime.errors import InputError
from spinimpute.vcf.index_reader import has_fresh_index
from spinimpute.vcf.variant_file import VariantFile, starts_as_variant_file


class PanelInterval(NamedTuple):
    """Consecutive panel sites and their region; None if they are all sites of the panel."""

    sites: Interval
    region: Region | None = None

    def rows_within(self, position: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return the `rows`, int64, whose position is in the region."""
        if self.region is None:
            return rows
        row_position = position[rows]
        return rows[(row_position >= self.region.start) & (row_position <= self.region.end)]


def panel_intervals(
    panels: Sequence[ReferencePanel], regions: Sequence[Region]
) -> tuple[dict[str, list[PanelInterval]], list[str]]:
    """Return the intervals of panel sites in the regions, as lists by panel checksum, and warnings.

    `panels` are the parts of one chromosome. Panels without sites in the regions have no entry. Intervals are
    sorted by position; overlapping and adjacent regions are joined. Without regions, all sites are returned.
    Raises InputError for a region on another chromosome, and NoRecord if no region contains a panel site.
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
    listed = summarize_regions([region for region in joined if region in absent])
    if not found:
        raise NoRecord(
            "mismatch",
            f"the panel has no site in {listed}; it reaches from {chrom}:{panels[0].position[0]} to "
            f"{panels[-1].position[-1]}",
        )
    return found, [f"the panel has no site in {listed}"]


@dataclass(frozen=True)
class RegionTarget:
    """A matched target and the intervals of panel sites to impute from it, sorted by position."""

    matched: MatchedTarget
    intervals: Sequence[PanelInterval]

    @property
    def n_sites(self) -> int:
        """Number of panel sites to impute."""
        return sum(one.sites.n_sites for one in self.intervals)


@dataclass(frozen=True)
class RegionSelection:
    """The regions of a chromosome to impute, and the part of the target to use for them.

    Without regions, all panel sites are imputed. With `buffer_cM`, a region is imputed from the typed sites
    within this distance. `min_typed_ratio` is the smallest allowed share of typed sites in each of the fixed
    intervals (5 cM) into which `cut_equal_lengths` cuts the panel.
    """

    regions: Sequence[Region]
    buffer_cM: float | None
    settings: TargetSettings
    min_typed_ratio: float | None = None

    def buffer_to_read(self, panels: Sequence[ReferencePanel]) -> float | None:
        """Return the buffer if a part of the target may be enough for the regions, otherwise None.

        A part may be enough only with the default treatment of sites, which `phase` and `convert` also use.
        """
        settings = self.settings
        is_default = settings.ambiguous == "frequency" and settings.chain is None and settings.samples is None
        return self.buffer_cM if is_default and len(panels) == 1 else None

    def part_to_check(self, vcf: str | Path, panels: Sequence[ReferencePanel]) -> Region | None:
        """Return the part of a target to read to check whether it fits the panels; None for the whole file.

        This check is done before panels are merged. If the file was written by `phase` or `convert`, the part
        reaches from the first region to the last one with their buffers, as later steps may read no more.
        """
        first = panels[0]
        found, _ = panel_intervals(panels, self.regions)
        buffer_cM = self.buffer_to_read(panels)
        if not self.regions or buffer_cM is None or PANEL_LINE not in _header_of(vcf)[0]:
            return None
        buffered = [_add_buffer(first.cM, one.sites, buffer_cM) for one in found[first.checksum]]
        return Region(first.chrom, *Interval(buffered[0].start, buffered[-1].stop).positions(first.position))


class PartToRead(NamedTuple):
    """The part of a target to read. `jumps_per_cM` is the recombination scale from all typed sites."""

    region: Region
    jumps_per_cM: float | None  # None if the panel has no haplotypes
    header: str  # header of the target file


def part_to_read(
    vcf: str | Path,
    panels: Sequence[ReferencePanel],
    predictor: Predictor,
    intervals: Mapping[str, Sequence[PanelInterval]],
    selection: RegionSelection,
) -> PartToRead | None:
    """Return the part of the target that the regions and their buffers need; None for the whole file.

    A part is enough only if `phase` or `convert` wrote the file for this panel with this genetic map. In
    other files, all sites are needed to repair sites of unknown strand, to check whether the target fits the
    panel, to estimate the recombination scale, and to find where the predictor's tiles (256 gaps between
    typed sites) start. With `min_typed_ratio`, the fixed intervals that overlap the regions are read, too.
    """
    buffer_cM = selection.buffer_to_read(panels)
    if buffer_cM is None:
        return None
    panel = panels[0]
    requested = intervals[panel.checksum]
    regions = [one.region for one in requested if one.region is not None]
    if len(regions) < len(requested):
        return None
    header, n_records = _header_of(vcf)
    starts = read_starts_line(header, panel)
    if starts is None or f"{PANEL_LINE}{panel.checksum}{panel.made_of}" not in header.splitlines():
        return None
    haplotypes = panel.haplotypes
    jumps_per_cM = None if haplotypes is None else scale_in_header(header, haplotypes)
    if n_records != starts.n_typed or (haplotypes is not None and jumps_per_cM is None):
        return None
    needed = [(region.start, region.end) for region in regions]
    for sites, _ in requested:
        buffered = _add_buffer(panel.cM, sites, buffer_cM)
        needed.append(predictor.needed_positions(panel, starts, sites, buffered))
    if selection.min_typed_ratio is not None:
        for low, high in cut_equal_lengths(panel.cM):
            if any(low < sites.stop and high > sites.start for sites, _ in requested):
                needed.append((starts.start_before(int(panel.position[low])), int(panel.position[high - 1])))
    region = Region(panel.chrom, min(start for start, _ in needed), max(end for _, end in needed))
    return PartToRead(region, jumps_per_cM, header)


def choose_targets(
    vcf: str | Path,
    read: TargetRead,
    part: PartToRead | None,
    predictor: Predictor,
    intervals: Mapping[str, Sequence[PanelInterval]],
    selection: RegionSelection,
) -> list[RegionTarget]:
    """Return the target of each part of the chromosome with regions; with a buffer, one target per region.

    `part` is the part of the file that was read. `predictor` decides on which typed sites results depend.
    Raises InputError if the target has no sites, or too few, in these parts of the chromosome.
    """
    for one in read.matched if part is None else ():  # for a part, this was checked when the file was written
        one.panel.check_typed(one.match.panel_index)
    chosen = [
        RegionTarget(
            one if part is None else replace(one, jumps_per_cM=part.jumps_per_cM),
            intervals[one.panel.checksum],
        )
        for one in read.matched
        if one.panel.checksum in intervals
    ]
    if not chosen:
        raise InputError(
            "mismatch",
            f"target {vcf}: it has no site in the part of the chromosome that contains "
            f"{summarize_regions(selection.regions)}",
        )
    if selection.min_typed_ratio is not None:
        for target in chosen:
            typed_index = target.matched.typed_index_used
            for each in target.intervals:
                check_typed_ratio(target.matched.panel, typed_index, each.sites, selection.min_typed_ratio)
    buffer_cM = selection.buffer_cM
    if buffer_cM is None:
        return chosen
    near_targets: list[RegionTarget] = []
    for target in chosen:
        matched = target.matched.with_recombination_scale()
        near_targets += [
            RegionTarget(keep_needed_sites(matched, predictor, one.sites, buffer_cM), [one])
            for one in target.intervals
        ]
    return near_targets


def count_targets(
    summary: ImputationSummary, read: TargetRead, chosen: Sequence[RegionTarget], buffered: bool
) -> None:
    """Add counts and warnings to a summary. `buffered`: whether `chosen` has only the needed sites."""
    read.count(summary)
    for matched in read.matched:
        own_targets = [one for one in chosen if one.matched.panel.checksum == matched.panel.checksum]
        index, array = matched.match.panel_index, matched.panel.array_index
        if own_targets and array is not None:
            summary.array_sites = (summary.array_sites or 0) + len(array)
            summary.outside_array += int(np.isin(index, array, invert=True).sum())
        if own_targets and buffered:
            used = np.unique(np.concatenate([one.matched.match.panel_index for one in own_targets]))
            summary.used_sites = (summary.used_sites or 0) + len(used)
    for matched in read.matched:
        summary.untyped += find_untyped(
            matched.panel,
            [
                (one.matched.typed_index_used, each.sites)
                for one in chosen
                if one.matched.panel is matched.panel
                for each in one.intervals
            ],
        )


def _header_of(vcf: str | Path) -> tuple[str, int]:
    """Return the header and the number of records of an indexed VCF or BCF; "" and 0 for other files."""
    path = Path(vcf)
    if not path.is_file() or not starts_as_variant_file(path) or not has_fresh_index(path):
        return "", 0
    try:
        with VariantFile(path, "target") as file:
            return file.header, file.n_records
    except InputError:  # the error is reported when the target is read
        return "", 0


def _add_buffer(cM: np.ndarray, sites: Interval, buffer_cM: float) -> Interval:
    """Extend an interval of sites by a genetic distance on both sides. `cM` must be non-decreasing."""
    start = int(np.searchsorted(cM, cM[sites.start] - buffer_cM, side="left"))
    return Interval(start, int(np.searchsorted(cM, cM[sites.stop - 1] + buffer_cM, side="right")))


def keep_needed_sites(
    matched: MatchedTarget, predictor: Predictor, sites: Interval, buffer_cM: float
) -> MatchedTarget:
    """Return the target with only the matched sites that are used to impute the panel sites `sites`.

    These are the sites within the buffer and those that the predictor needs for the same result as with all
    sites, if the target is phased. The recombination scale from all sites is kept.
    """
    matched = matched.with_recombination_scale()
    panel, match = matched.panel, matched.match
    index_T = match.panel_index
    buffered = Interval(*np.searchsorted(index_T, _add_buffer(panel.cM, sites, buffer_cM)).tolist())
    needed = predictor.needed_typed_sites(panel, index_T, sites, buffered).slice
    nearby = replace(match, panel_index=index_T[needed], target_index=match.target_index[needed])
    return replace(matched, match=nearby)


def unmatched_sites(target: RegionTarget, warnings: list[str]) -> np.ndarray:
    """Return the rows, int64, of typed sites in the regions that are not in the panel and can be written.

    Sites with unknown alleles or unphased genotypes cannot be written; their number is added to `warnings`.
    """
    haplotypes, sites = target.matched.target, target.matched.target.sites
    unmatched = target.matched.match.unmatched_index
    rows = np.concatenate([one.rows_within(sites.position, unmatched) for one in target.intervals])
    unknown = np.array([UNKNOWN_ALLELE in (sites.ref[i], sites.alt[i]) for i in rows], bool)
    if unknown.any():
        warnings.append(
            f"{unknown.sum()} unmatched typed sites are left out: the file does not give their alleles"
        )
        rows = rows[~unknown]
    if haplotypes.unphased is not None:
        unphased = haplotypes.unphased[rows].any(axis=1)
        if unphased.any():
            warnings.append(
                f"{unphased.sum()} unmatched typed sites are left out: they have unphased heterozygotes, and "
                "only panel sites can be phased"
            )
        rows = rows[~unphased]
    return rows
