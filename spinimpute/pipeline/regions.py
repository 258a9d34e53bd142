"""Imputing regions: their panel sites, the typed sites used for them, and unmatched ones that are written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from spinimpute.genotypes.intervals import Interval
from spinimpute.genotypes.regions import regions_on_chromosome, summarize_regions
from spinimpute.genotypes.sites import UNKNOWN_ALLELE, NoRecord, Region, same_chromosome
from spinimpute.genotypes.untyped_intervals import cut_equal_lengths
from spinimpute.hmm.recombination_scale import scale_in_header
from spinimpute.panels.reference import ReferencePanel
from spinimpute.pipeline.chunk_file import PANEL_LINE
from spinimpute.pipeline.prepare import Prepared, prepare
from spinimpute.pipeline.settings import TargetSettings
from spinimpute.pipeline.target_checksums import target_line
from spinimpute.pipeline.verdicts import check_typed_ratio, note_untyped
from spinimpute.predictors.interface import Predictor
from spinimpute.predictors.typed_tiles import starts_in_header
from spinimpute.quality.summary import ImputationSummary
from spinimpute.runtime.errors import InputError
from spinimpute.runtime.memory import within_budget
from spinimpute.vcf.index_reader import fresh_index
from spinimpute.vcf.variant_file import VariantFile, starts_as_variant_file


@dataclass(frozen=True)
class Place:
    """Panel sites [first, last), and the region that they are in; None for all of a panel."""

    first: int
    last: int
    region: Region | None = None

    def rows_within(self, position: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Those of some rows, int64, whose positions lie in the region; position: of all rows."""
        if self.region is None:
            return rows
        there = position[rows]
        return rows[(there >= self.region.start) & (there <= self.region.end)]


def panel_places(
    panels: Sequence[ReferencePanel], regions: Sequence[Region], warnings: list[str]
) -> dict[str, list[Place]]:
    """The panel sites of regions, by the checksum of each panel that has some.

    Parameters
    ----------
    panels : sequence of ReferencePanel
        The parts of one panel.
    regions : sequence of Region
        In any order; none for all sites.
    warnings : list of str
        Gets a warning of regions without a panel site, if others have some.

    Returns
    -------
    dict of str to list of Place
        In order of position; regions that overlap or touch are one.

    Raises
    ------
    InputError
        A region is on another chromosome.
    NoRecord
        No panel has a site in any.
    """
    chrom = panels[0].chrom
    if not regions:
        return {panel.checksum: [Place(0, panel.n_sites)] for panel in panels}
    for region in regions:
        if not same_chromosome(region.chrom, chrom):
            raise InputError(
                "arguments",
                f"the region {region} is not on the panel's chromosome, {chrom}: give the panel of "
                f"chromosome {region.chrom}, or leave the region out",
            )
    joined = regions_on_chromosome(regions, chrom)
    places: dict[str, list[Place]] = {}
    found: set[Region] = set()
    for panel in panels:
        for region in joined:
            first = int(np.searchsorted(panel.position, region.start, side="left"))
            last = int(np.searchsorted(panel.position, region.end, side="right"))
            if first < last:
                places.setdefault(panel.checksum, []).append(Place(first, last, region))
                found.add(region)
    absent = [region for region in joined if region not in found]
    if not places:
        raise NoRecord(
            "content",
            f"the panel has no site in {summarize_regions(absent)}; it reaches from "
            f"{chrom}:{panels[0].position[0]} to {panels[-1].position[-1]}",
        )
    if absent:
        warnings.append(f"the panel has no site in {summarize_regions(absent)}")
    return places


@dataclass(frozen=True)
class RegionPart:
    """A part of the target, and the panel sites that are imputed for it, in order of position."""

    part: Prepared
    places: Sequence[Place]

    @property
    def n_sites(self) -> int:
        """Number of panel sites."""
        return sum(place.last - place.first for place in self.places)


def read_regions(
    vcf: str | Path,
    panels: Sequence[ReferencePanel],
    predictor: Predictor,
    summary: ImputationSummary,
    target: TargetSettings,
    regions: Sequence[Region],
    buffer_cM: float | None,
    *,
    allow_unphased: bool,
    max_memory: int | None,
    force: bool,
    min_typed_ratio: float | None,
) -> tuple[list[RegionPart], str]:
    """Read as much of a target as regions and their buffers need, and choose the typed sites that are used.

    Parameters
    ----------
    vcf : str or Path
        The target.
    panels : sequence of ReferencePanel
        The parts of one panel.
    predictor : Predictor
        What imputes; it decides which typed sites results depend on.
    summary : ImputationSummary
        Counts and warnings are added to it.
    target : TargetSettings
        How the target is read.
    regions : sequence of Region
        The panel sites to impute; none for all.
    buffer_cM : float or None
        Typed sites no further than this from a region are used for it; None for all.
    allow_unphased, max_memory, force, min_typed_ratio
        As of `prepare`, `within_budget` and `impute`.

    Returns
    -------
    list of RegionPart
        The parts of the chromosome that the regions touch; with a buffer, one for each region.
    str
        The line for the header of a chunk that tells its target from others.

    Raises
    ------
    InputError
        As `panel_places`, `prepare` and `check_typed_ratio`, and if the target has no site in the parts of
        the chromosome that the regions lie in.
    """
    places = panel_places(panels, regions, summary.warnings)
    whole = min_typed_ratio is not None
    to_read = None
    if buffer_cM is not None and _may_be_read_in_part(panels, target):
        to_read = part_to_read(vcf, panels[0], predictor, places[panels[0].checksum], buffer_cM, whole)
    only = None if to_read is None else to_read.region
    with summary.stage("read target"), within_budget(max_memory, "reading the target"):
        prepared = prepare(
            panels, vcf, summary, target, allow_unphased=allow_unphased, only=only, force=force
        )
    if to_read is None:  # else it was checked when the file was written
        for part in prepared:
            part.panel.check_typed(part.match.panel_index)
    else:
        prepared = [replace(part, jumps_per_cM=to_read.jumps_per_cM) for part in prepared]
    chosen = [
        RegionPart(part, places[part.panel.checksum]) for part in prepared if part.panel.checksum in places
    ]
    if not chosen:
        raise InputError(
            "content",
            f"the target has no site in the part of the chromosome that {summarize_regions(regions)} lies in",
        )
    for one in chosen:
        summary.count_array(one.part.panel.array_index, one.part.match.panel_index)
        if min_typed_ratio is not None:
            for place in one.places:
                check_typed_ratio(
                    one.part.panel, one.part.typed_index_used, place.first, place.last, min_typed_ratio
                )
    if buffer_cM is not None:
        chosen = [split for one in chosen for split in _near_each(one, predictor, buffer_cM, summary)]
    for part in prepared:
        note_untyped(
            summary,
            part.panel,
            [
                (one.part.typed_index_used, place.first, place.last)
                for one in chosen
                if one.part.panel is part.panel
                for place in one.places
            ],
        )
    return chosen, target_line(prepared, "" if to_read is None else _of_file(vcf)[0])


def part_to_check(
    vcf: str | Path,
    panels: Sequence[ReferencePanel],
    target: TargetSettings,
    regions: Sequence[Region],
    buffer_cM: float | None,
) -> Region | None:
    """What is read of a target to see, before panels are merged, whether it fits one of them.

    Parameters
    ----------
    vcf
        As of `read_regions`.
    panels : sequence of ReferencePanel
        The parts of one of the panels.
    target, regions, buffer_cM
        As of `read_regions`.

    Returns
    -------
    Region or None
        From the first region to the last, with their buffers, of a file that was written for some panel: of
        that of the merged one no more may be read (`part_to_read`). None for the whole file.

    Raises
    ------
    InputError
        As `panel_places`.
    """
    first = panels[0]
    places = panel_places(panels, regions, [])
    if not regions or buffer_cM is None or not _may_be_read_in_part(panels, target):
        return None
    header, _ = _of_file(vcf)
    if PANEL_LINE not in header:
        return None
    near = [_around(first.cM, place.first, place.last, buffer_cM) for place in places[first.checksum]]
    return Region(first.chrom, int(first.position[near[0][0]]), int(first.position[near[-1][1] - 1]))


def _may_be_read_in_part(panels: Sequence[ReferencePanel], target: TargetSettings) -> bool:
    """Whether some of a target may be enough.

    Reading a part of our own file is enough only if the same sites are used as when it was written.
    """
    as_written = target.ambiguous == "frequency" and target.chain is None and target.samples is None
    return as_written and len(panels) == 1


def _near_each(
    chosen: RegionPart, predictor: Predictor, buffer_cM: float, summary: ImputationSummary
) -> list[RegionPart]:
    """A part for each of the places, with the typed sites near it; the summary counts what is used."""
    part = chosen.part.with_rate()
    found = [
        RegionPart(within(part, predictor, place.first, place.last, buffer_cM), [place])
        for place in chosen.places
    ]
    used = np.unique(np.concatenate([one.part.match.panel_index for one in found]))
    summary.used_sites = (summary.used_sites or 0) + len(used)
    return found


@dataclass(frozen=True)
class PartToRead:
    """The part of a target that is read.

    Attributes
    ----------
    region : Region
        What is read.
    jumps_per_cM : float or None
        Recombination scale by all typed sites of the file; None without haplotypes.
    """

    region: Region
    jumps_per_cM: float | None


def part_to_read(
    vcf: str | Path,
    panel: ReferencePanel,
    predictor: Predictor,
    places: Sequence[Place],
    buffer_cM: float,
    whole_stretches: bool = False,
) -> PartToRead | None:
    """What has to be read of a target for regions and their buffer.

    Reading a part is enough only for a file that `phase` or `convert` wrote for this panel with this genetic
    map. For any other file all sites are needed: together they decide how those of unknown strand are
    repaired, whether target and panel fit, the recombination scale, and where chunks begin.

    Parameters
    ----------
    vcf : str or Path
        The target.
    panel : ReferencePanel
        Of a chromosome without parts.
    predictor : Predictor
        What imputes.
    places : sequence of Place
        The panel sites to impute, in regions.
    buffer_cM : float
        As of `read_regions`.
    whole_stretches : bool
        Read all of the `cut_equal_lengths` that the places touch.

    Returns
    -------
    PartToRead or None
        None for the whole file.
    """
    if any(place.region is None for place in places):
        return None
    header, n_records = _of_file(vcf)
    starts = starts_in_header(header, panel)
    if f"{PANEL_LINE}{panel.checksum}" not in header.splitlines() or starts is None:
        return None
    haplotypes = panel.haplotypes
    jumps_per_cM = None if haplotypes is None else scale_in_header(header, haplotypes)
    if n_records != starts.n_typed or (haplotypes is not None and jumps_per_cM is None):
        return None
    spans: list[tuple[int, int]] = []
    for place in places:
        assert place.region is not None, "checked above"
        near = _around(panel.cM, place.first, place.last, buffer_cM)
        spans.append(predictor.positions_needed(panel, starts, Interval(place.first, place.last), near))
        spans.append((place.region.start, place.region.end))
    if whole_stretches:
        for low, high in cut_equal_lengths(panel.cM):
            if any(low < place.last and high > place.first for place in places):
                start = starts.start_before(int(panel.position[low]))
                spans.append((start, int(panel.position[high - 1])))
    region = Region(panel.chrom, min(start for start, _ in spans), max(end for _, end in spans))
    return PartToRead(region, jumps_per_cM)


def _of_file(vcf: str | Path) -> tuple[str, int]:
    """Header and number of records of a VCF or BCF with an index; empty for other files."""
    path = Path(vcf)
    if not path.is_file() or not starts_as_variant_file(path) or not fresh_index(path):
        return "", 0
    try:
        with VariantFile(path, "target") as file:
            return file.header, file.n_records
    except InputError:  # reported when it is read
        return "", 0


def _around(cM: np.ndarray, first: int, last: int, buffer_cM: float) -> Interval:
    """Of sites at increasing cM: those that lie no further than the buffer from [first, last)."""
    low = int(np.searchsorted(cM, cM[first] - buffer_cM, side="left"))
    return Interval(low, int(np.searchsorted(cM, cM[last - 1] + buffer_cM, side="right")))


def within(part: Prepared, predictor: Predictor, first: int, last: int, buffer_cM: float) -> Prepared:
    """Keep the matched sites that a part's results at some panel sites depend on.

    Parameters
    ----------
    part : Prepared
        With all typed sites.
    predictor : Predictor
        What imputes.
    first, last : int
        The panel sites [first, last).
    buffer_cM : float
        Sites no further than this are kept. Whatever the buffer, all are kept that a phased target needs for
        the results of a run with all sites.

    Returns
    -------
    Prepared
        With the recombination scale of all of its sites.
    """
    part = part.with_rate()
    panel, match = part.panel, part.match
    index_T = match.panel_index
    near = Interval(*np.searchsorted(index_T, _around(panel.cM, first, last, buffer_cM)).tolist())
    some = predictor.typed_needed(panel, index_T, Interval(first, last), near).slice
    nearby = replace(match, panel_index=index_T[some], target_index=match.target_index[some])
    return replace(part, repaired=replace(part.repaired, match=nearby))


def unmatched_sites(chosen: RegionPart, summary: ImputationSummary) -> np.ndarray:
    """Typed sites of its regions that the panel lacks and that can be written.

    Parameters
    ----------
    chosen : RegionPart
        The target and its places.
    summary : ImputationSummary
        Gets a warning for sites that cannot be written.

    Returns
    -------
    int64 array
        Rows of the target.
    """
    target = chosen.part.target
    index = np.concatenate(
        [
            place.rows_within(target.sites.position, chosen.part.match.unmatched_index)
            for place in chosen.places
        ]
    )
    unnamed = np.array([UNKNOWN_ALLELE in (target.sites.ref[i], target.sites.alt[i]) for i in index], bool)
    if unnamed.any():
        summary.warnings.append(
            f"{unnamed.sum()} unmatched typed sites are left out: their file does not say which alleles they "
            "have"
        )
        index = index[~unnamed]
    if target.unphased is not None:
        unphased = target.unphased[index].any(axis=1)
        if unphased.any():
            summary.warnings.append(
                f"{unphased.sum()} unmatched typed sites are left out: they have unphased heterozygotes, and "
                "only the panel's sites can be phased"
            )
        index = index[~unphased]
    return index
