"""Imputing a region: its panel sites, the typed sites used for it, and unmatched ones that are written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from spinimpute.errors import InputError
from spinimpute.genotypes.haplotypes import Haplotypes
from spinimpute.genotypes.letters import UNKNOWN_ALLELE
from spinimpute.genotypes.sites import Region, SiteMatch, same_chromosome
from spinimpute.genotypes.untyped_stretches import fixed_stretches
from spinimpute.hmm.recombination_scale import scale_in_header
from spinimpute.memory import within_budget
from spinimpute.panels.reference import ReferencePanel
from spinimpute.pipeline.chunk_file import PANEL_LINE
from spinimpute.pipeline.prepare import Prepared, prepare
from spinimpute.pipeline.settings import TargetSettings
from spinimpute.pipeline.verdicts import check_typed_ratio, note_untyped
from spinimpute.predictors.interface import Predictor
from spinimpute.predictors.typed_chunks import starts_in_header
from spinimpute.quality.summary import ImputationSummary
from spinimpute.vcf.index_reader import fresh_index
from spinimpute.vcf.variant_file import VariantFile, starts_as_variant_file


def panel_ranges(panels: Sequence[ReferencePanel], region: Region | None) -> dict[str, tuple[int, int]]:
    """The panel sites [first, last) of a region, by the checksum of each panel that has some.

    Raises
    ------
    InputError
        The region is on another chromosome, or no panel has a site in it.
    """
    chrom = panels[0].chrom
    if region is None:
        return {panel.checksum: (0, panel.n_sites) for panel in panels}
    if not same_chromosome(region.chrom, chrom):
        raise InputError(f"the region {region} is not on the panel's chromosome, {chrom}")
    ranges = {}
    for panel in panels:
        first = int(np.searchsorted(panel.position, region.start, side="left"))
        last = int(np.searchsorted(panel.position, region.end, side="right"))
        if first < last:
            ranges[panel.checksum] = (first, last)
    if not ranges:
        raise InputError(
            f"the panel has no site in {region}; it reaches from {chrom}:{panels[0].position[0]} "
            f"to {panels[-1].position[-1]}"
        )
    return ranges


@dataclass(frozen=True)
class RegionPart:
    """A part of the target, and the panel sites [first, last) that are imputed for it."""

    part: Prepared
    first: int
    last: int

    @property
    def n_sites(self) -> int:
        """Number of panel sites."""
        return self.last - self.first


def read_region(
    vcf: str | Path,
    panels: Sequence[ReferencePanel],
    predictor: Predictor,
    summary: ImputationSummary,
    target: TargetSettings,
    region: Region | None,
    buffer_cM: float | None,
    *,
    allow_unphased: bool,
    max_memory: int | None,
    force: bool,
    min_typed_ratio: float | None,
) -> list[RegionPart]:
    """Read as much of a target as a region and its buffer need, and choose the typed sites that are used.

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
    region : Region or None
        The panel sites to impute; None for all.
    buffer_cM : float or None
        Typed sites no further than this from the region are used; None for all.
    allow_unphased, max_memory, force, min_typed_ratio
        As of `prepare`, `within_budget` and `impute`.

    Returns
    -------
    list of RegionPart
        The parts of the chromosome that the region touches.

    Raises
    ------
    InputError
        As `panel_ranges`, `prepare` and `check_typed_ratio`, and if the target has no site in the part of the
        chromosome that the region lies in.
    """
    ranges = panel_ranges(panels, region)
    # reading a part of our own file is enough only if the same sites are used as when it was written
    as_written = target.ambiguous == "frequency" and target.chain is None and target.samples is None
    whole = min_typed_ratio is not None
    to_read = part_to_read(vcf, panels, predictor, region, buffer_cM, whole) if as_written else None
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
        RegionPart(part, *ranges[part.panel.checksum]) for part in prepared if part.panel.checksum in ranges
    ]
    if not chosen:
        raise InputError(f"the target has no site in the part of the chromosome that {region} lies in")
    if min_typed_ratio is not None:
        for one in chosen:
            check_typed_ratio(one.part.panel, one.part.typed_index_used, one.first, one.last, min_typed_ratio)
    if buffer_cM is not None:
        chosen = [
            replace(one, part=within(one.part, predictor, one.first, one.last, buffer_cM)) for one in chosen
        ]
        used = sum(len(one.part.match.panel_index) for one in chosen)
        summary.used_sites = (summary.used_sites or 0) + used
    for one in chosen:
        note_untyped(summary, one.part.panel, one.part.typed_index_used, one.first, one.last)
    return chosen


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
    panels: Sequence[ReferencePanel],
    predictor: Predictor,
    region: Region | None,
    buffer_cM: float | None,
    whole_stretches: bool = False,
) -> PartToRead | None:
    """What has to be read of a target for a region and its buffer.

    Reading a part is enough only for a file that `phase` or `convert` wrote for this panel with this genetic
    map. For any other file all sites are needed: together they decide how those of unknown strand are
    repaired, whether target and panel fit, the recombination scale, and where chunks begin.

    Parameters
    ----------
    vcf : str or Path
        The target.
    panels : sequence of ReferencePanel
        The parts of one panel.
    predictor : Predictor
        What imputes.
    region : Region or None
        The panel sites to impute; None for all.
    buffer_cM : float or None
        As of `read_region`.
    whole_stretches : bool
        Read all of the `fixed_stretches` that the region touches.

    Returns
    -------
    PartToRead or None
        None for the whole file.
    """
    if region is None or buffer_cM is None or len(panels) > 1:
        return None
    (panel,) = panels
    header, n_records = _of_file(vcf)
    starts = starts_in_header(header, panel)
    if f"{PANEL_LINE}{panel.checksum}" not in header.splitlines() or starts is None:
        return None
    haplotypes = panel.haplotypes
    jumps_per_cM = None if haplotypes is None else scale_in_header(header, haplotypes)
    if n_records != starts.n_typed or (haplotypes is not None and jumps_per_cM is None):
        return None
    ((first, last),) = panel_ranges(panels, region).values()
    near = _around(panel.cM, first, last, buffer_cM)
    start, end = predictor.positions_needed(panel, starts, first, last, near)
    if whole_stretches:
        touched = [(low, high) for low, high in fixed_stretches(panel.cM) if low < last and high > first]
        start = min(start, starts.start_before(int(panel.position[touched[0][0]])))
        end = max(end, int(panel.position[touched[-1][1] - 1]))
    return PartToRead(Region(panel.chrom, min(region.start, start), max(region.end, end)), jumps_per_cM)


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


def _around(cM: np.ndarray, first: int, last: int, buffer_cM: float) -> tuple[int, int]:
    """Of sites at increasing cM: those [low, high) that lie no further than the buffer from [first, last)."""
    low = int(np.searchsorted(cM, cM[first] - buffer_cM, side="left"))
    return low, int(np.searchsorted(cM, cM[last - 1] + buffer_cM, side="right"))


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
    low, high = np.searchsorted(index_T, _around(panel.cM, first, last, buffer_cM)).tolist()
    some = slice(*predictor.typed_needed(panel, index_T, first, last, (low, high)))
    nearby = replace(match, panel_index=index_T[some], target_index=match.target_index[some])
    return replace(part, repaired=replace(part.repaired, match=nearby))


def unmatched_sites(
    target: Haplotypes, match: SiteMatch, region: Region | None, summary: ImputationSummary
) -> np.ndarray:
    """Typed sites of a region that the panel lacks and that can be written.

    Parameters
    ----------
    target : Haplotypes
        The target.
    match : SiteMatch
        Which of its sites the panel has.
    region : Region or None
        None for the whole chromosome.
    summary : ImputationSummary
        Gets a warning for sites that cannot be written.

    Returns
    -------
    int64 array
        Rows of the target.
    """
    index = match.unmatched_index
    if region is not None:
        position = target.sites.position[index]
        index = index[(position >= region.start) & (position <= region.end)]
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
