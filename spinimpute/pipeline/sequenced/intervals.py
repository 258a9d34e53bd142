"""The intervals of a chromosome to impute for sequenced samples, and the samples' likelihoods in them.

A region is imputed with a buffer on both sides: sites that are imputed to improve the result in the region,
but not written. Regions whose buffers overlap form one interval, so each site is read and imputed once.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from operator import not_
from typing import NamedTuple

import numpy as np

from spinimpute.genotypes.builds import is_x
from spinimpute.genotypes.intervals import Interval
from spinimpute.genotypes.sites import ON_ANOTHER_CHROMOSOME, NoRecord, Region
from spinimpute.panels.panel import Panel
from spinimpute.panels.reference import ReferencePanel
from spinimpute.pipeline.regions import PanelInterval, panel_intervals
from spinimpute.pipeline.sequenced.inputs import (
    LikelihoodReader,
    SequencingSettings,
    expand_to_all_sites,
    require_haplotypes,
)
from spinimpute.quality.summary import SequencedSummary
from spinimpute.sequencing.alignment_file import AlignmentFile
from spinimpute.sequencing.likelihoods import GenotypeLikelihoods

BUFFER_CM = 1.0  # default buffer; sites further away hardly change the result
_MAX_REASONS = 3  # reasons listed in a message


@dataclass(frozen=True)
class SequencedInterval:
    """Consecutive panel sites that are imputed together, and the samples' likelihoods at these sites."""

    panel: Panel
    likelihoods: GenotypeLikelihoods
    written: Sequence[PanelInterval]  # the sites to write, sorted by position
    sites: Interval  # the sites to impute, including buffers

    @property
    def n_sites(self) -> int:
        """Number of panel sites to write."""
        return sum(one.sites.n_sites for one in self.written)

    def written_within(self, start: int, stop: int) -> list[Interval]:
        """Return the intervals of the panel sites [start, stop) that are to be written."""
        first = bisect_right(self.written, start, key=lambda one: one.sites.stop)
        last = bisect_left(self.written, stop, key=lambda one: one.sites.start)
        return [
            Interval(max(start, one.sites.start), min(stop, one.sites.stop))
            for one in self.written[first:last]
        ]

    def phred_SX3(self) -> np.ndarray:
        """Return Phred-scaled likelihoods at all sites to impute, uint8 (S, X, 3); 0 without data."""
        return expand_to_all_sites(self.likelihoods, *self.sites)


class _BufferedInterval(NamedTuple):
    """Panel sites to write, and the sites to impute: the same sites with their buffer."""

    written: PanelInterval
    sites: Interval


def _group_overlapping(
    panel: Panel, intervals: Sequence[PanelInterval], buffer_cM: float
) -> list[list[_BufferedInterval]]:
    """Group intervals whose buffers overlap, sorted by position."""
    cM = panel.cM
    groups: list[list[_BufferedInterval]] = []
    end = 0
    for one in intervals:
        start, stop = one.sites
        if one.region is not None:
            start = int(np.searchsorted(cM, cM[start] - buffer_cM))
            stop = int(np.searchsorted(cM, cM[stop - 1] + buffer_cM, side="right"))
        if not groups or start >= end:
            groups.append([])
        groups[-1].append(_BufferedInterval(one, Interval(start, stop)))
        end = stop
    return groups


def _groups_to_read(
    panels: Sequence[Panel], intervals: Mapping[str, Sequence[PanelInterval]], buffer_cM: float | None
) -> Iterator[tuple[Panel, list[_BufferedInterval], Region | None]]:
    """Yield each panel with each group of overlapping intervals and the region they cover (None: all)."""
    for panel in panels:
        requested = intervals.get(panel.checksum, [])
        for group in _group_overlapping(panel, requested, BUFFER_CM if buffer_cM is None else buffer_cM):
            region = None
            if group[0].written.region is not None or len(panels) > 1:
                covered = Interval(group[0].sites.start, group[-1].sites.stop)
                region = Region(panel.chrom, *covered.positions(panel.position))
            yield panel, group, region


def check_inputs(
    panels: Sequence[ReferencePanel],
    sequencing: SequencingSettings,
    regions: Sequence[Region],
    buffer_cM: float | None,
    *,
    force: bool,
) -> None:
    """Raise InputError if the samples' files cannot be used. Reads only little of them."""
    intervals, _ = panel_intervals(panels, regions)
    haplotype_panels = [require_haplotypes(one) for one in panels]
    reader = LikelihoodReader(sequencing, haplotype_panels, force=force)
    for path in sequencing.alignments:
        AlignmentFile(path, haplotype_panels[-1], sequencing.reference).close()
    groups = _groups_to_read(haplotype_panels, intervals, buffer_cM)
    if not any(reader.has_records(panel, region) for panel, _, region in groups):
        raise _no_data_error(panels, regions, reader.no_data_reasons)


def _no_data_error(
    panels: Sequence[ReferencePanel], regions: Sequence[Region], reasons: Sequence[str]
) -> NoRecord:
    where = regions[0] if len(regions) == 1 else panels[0].chrom
    why = "; ".join(reasons[:_MAX_REASONS]) or "is it the right file?"
    return NoRecord("content", f"no sample has data in {where}: {why}")


def _find_data(found: GenotypeLikelihoods, group: Sequence[_BufferedInterval]) -> list[bool]:
    """Return, for each interval of a group, whether any sample has data in it or its buffer."""
    # number of sites with data before each site
    n_before = np.concatenate([[0], np.cumsum(found.known_SX.any(axis=1))])
    before_start, before_end = (
        n_before[np.searchsorted(found.panel_index, ends)]
        for ends in ([one.sites.start for one in group], [one.sites.stop for one in group])
    )
    return (before_end > before_start).tolist()


@dataclass
class SequencedInput:
    """The data that `read_intervals` read on a chromosome."""

    # sorted by position; regions whose buffers overlap are one interval
    intervals: list[SequencedInterval] = field(default_factory=list)
    # each result of `LikelihoodReader.read`, with the number of panel sites in its region
    read: list[tuple[GenotypeLikelihoods, int]] = field(default_factory=list)
    skipped: dict[str, int] = field(default_factory=dict)  # number of skipped records, by reason
    panel_haplotypes: int = 0
    warnings: list[str] = field(default_factory=list)

    def count(self, summary: SequencedSummary) -> None:
        """Add counts and warnings to a summary."""
        summary.panel_haplotypes = max(summary.panel_haplotypes, self.panel_haplotypes)
        for likelihoods, n_sites in self.read:
            summary.count(likelihoods, n_sites)
        summary.warnings += self.warnings
        summary.count_skipped(self.skipped)


def read_intervals(
    panels: Sequence[ReferencePanel],
    sequencing: SequencingSettings,
    regions: Sequence[Region],
    buffer_cM: float | None,
    *,
    force: bool,
) -> SequencedInput:
    """Read the data of the samples in the regions of a chromosome. No regions: the whole chromosome.

    Regions and parts of chromosome X without data are left out with a warning. The default buffer is
    BUFFER_CM. Raises NoRecord if no sample has data in any region, and InputError if the panel contains
    inducing points or a file cannot be used.
    """
    intervals, panel_warnings = panel_intervals(panels, regions)
    found, skipped = SequencedInput(warnings=panel_warnings), Counter[str]()
    haplotype_panels = [require_haplotypes(one) for one in panels]
    reader = LikelihoodReader(sequencing, haplotype_panels, force=force)
    for panel, group, region in _groups_to_read(haplotype_panels, intervals, buffer_cM):
        likelihoods = reader.read(panel, region)
        has_data = [False] * len(group)
        if likelihoods is not None:
            has_data = _find_data(likelihoods, group)
            found.panel_haplotypes = max(found.panel_haplotypes, panel.n_haplotypes)
            found.read.append((likelihoods, group[-1].sites.stop - group[0].sites.start))
            # A file without an index is read completely for each group: count other chromosomes once.
            n_elsewhere = max(
                skipped[ON_ANOTHER_CHROMOSOME], likelihoods.skipped.get(ON_ANOTHER_CHROMOSOME, 0)
            )
            skipped += Counter(likelihoods.skipped)
            skipped[ON_ANOTHER_CHROMOSOME] = n_elsewhere
        for one in compress(group, map(not_, has_data)):
            start, end = one.written.sites.positions(panel.position)
            found.warnings.append(
                f"no sample has data in {panel.chrom}:{start}-{end}: its {one.written.sites.n_sites} sites "
                "are left out"
            )
        with_data = list(compress(group, has_data))
        if likelihoods is not None and with_data:
            sites = Interval(with_data[0].sites.start, with_data[-1].sites.stop)
            data = likelihoods.take(slice(*np.searchsorted(likelihoods.panel_index, sites).tolist()))
            found.intervals.append(SequencedInterval(panel, data, [one.written for one in with_data], sites))
    found.warnings += reader.warnings
    found.skipped = dict(+skipped)
    if not found.intervals:
        raise _no_data_error(panels, regions, reader.no_data_reasons)
    sexes = sequencing.sexes
    if sexes and is_x(panels[0].chrom) and not set(sexes) & set(found.intervals[0].likelihoods.samples):
        found.warnings.append("no sample is in the list of sexes: all have two copies of X")
    return found
