"""The parts of a chromosome, and what is known of sequenced samples in each."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from operator import not_

import numpy as np

from spinimpute.genotypes.builds import is_x
from spinimpute.genotypes.sites import ON_ANOTHER_CHROMOSOME, NoRecord, Region
from spinimpute.panels.panel import Panel
from spinimpute.panels.reference import ReferencePanel
from spinimpute.pipeline.regions import Place, panel_places
from spinimpute.pipeline.sequenced.inputs import LikelihoodReader, SequencingSettings, haplotypes_of
from spinimpute.quality.summary import SequencedSummary
from spinimpute.sequencing.alignment_file import AlignmentFile
from spinimpute.sequencing.likelihoods import GenotypeLikelihoods

BUFFER_CM = 1.0  # of what lies further away next to nothing matters
_MOST_REASONS = 3  # of a message


@dataclass(frozen=True)
class Part:
    """A stretch of a panel that is imputed in one go, and what is known of samples there.

    Attributes
    ----------
    panel : Panel
        The panel of that part.
    likelihoods : GenotypeLikelihoods
        At its sites [low, high).
    places : sequence of Place
        What is written of it, in order of position.
    low, high : int
        With the sites of buffers.
    """

    panel: Panel
    likelihoods: GenotypeLikelihoods
    places: Sequence[Place]
    low: int
    high: int

    @property
    def n_sites(self) -> int:
        """Number of panel sites that are written."""
        return sum(place.last - place.first for place in self.places)

    def written_of(self, start: int, stop: int) -> list[tuple[int, int]]:
        """Of the panel sites [start, stop), those [low, high) that are written, for each place."""
        begin = bisect_right(self.places, start, key=lambda place: place.last)
        end = bisect_left(self.places, stop, key=lambda place: place.first)
        return [(max(start, place.first), min(stop, place.last)) for place in self.places[begin:end]]


@dataclass(frozen=True)
class _Reach:
    """A place, and the panel sites [low, high) that it and its buffer hold."""

    place: Place
    low: int
    high: int


def _together(panel: Panel, places: Sequence[Place], buffer_cM: float) -> list[list[_Reach]]:
    """Places in order of position, in groups whose buffers overlap: each site is read, and imputed, once."""
    cM = panel.cM
    groups: list[list[_Reach]] = []
    end = 0
    for place in places:
        low, high = place.first, place.last
        if place.region is not None:
            low = int(np.searchsorted(cM, cM[low] - buffer_cM))
            high = int(np.searchsorted(cM, cM[high - 1] + buffer_cM, side="right"))
        if not groups or low >= end:
            groups.append([])
        groups[-1].append(_Reach(place, low, high))
        end = high
    return groups


def _stretches(
    panels: Sequence[Panel], places: Mapping[str, Sequence[Place]], buffer_cM: float | None
) -> Iterator[tuple[Panel, list[_Reach], Region | None]]:
    """What is read in one go: a panel, places whose buffers overlap, and their region; None for all."""
    for panel in panels:
        of_panel = places.get(panel.checksum, [])
        for together in _together(panel, of_panel, BUFFER_CM if buffer_cM is None else buffer_cM):
            around = None
            if together[0].place.region is not None or len(panels) > 1:
                start, end = panel.position[[together[0].low, together[-1].high - 1]].tolist()
                around = Region(panel.chrom, start, end)
            yield panel, together, around


def check_inputs(
    panels: Sequence[ReferencePanel],
    sequencing: SequencingSettings,
    regions: Sequence[Region],
    buffer_cM: float | None,
    *,
    force: bool,
) -> None:
    """Check what can be known of the samples' files before much of them is read.

    Parameters
    ----------
    panels, sequencing, regions, buffer_cM, force
        As of `read_parts`.

    Raises
    ------
    InputError
        As of `read_parts`, and for files of reads that cannot be used.
    """
    places = panel_places(panels, regions, [])
    of_haplotypes = [haplotypes_of(one) for one in panels]
    reader = LikelihoodReader(sequencing, of_haplotypes, force=force)
    for path in sequencing.alignments:
        AlignmentFile(path, of_haplotypes[-1], sequencing.reference).close()
    if not any(reader.begins(one, around) for one, _, around in _stretches(of_haplotypes, places, buffer_cM)):
        raise _nothing_known(panels, regions, reader.absent)


def _nothing_known(
    panels: Sequence[ReferencePanel], regions: Sequence[Region], reasons: Sequence[str]
) -> NoRecord:
    where = regions[0] if len(regions) == 1 else panels[0].chrom
    why = "; ".join(reasons[:_MOST_REASONS]) or "is it the right file?"
    return NoRecord("content", f"nothing is known of any sample in {where}: {why}")


def _which_known(found: GenotypeLikelihoods, reaches: Sequence[_Reach]) -> list[bool]:
    """Whether anything is known of any sample near each of some places."""
    n_known = np.concatenate([[0], np.cumsum(found.known_SX.any(axis=1))])  # before each of the sites
    low, high = (
        n_known[np.searchsorted(found.panel_index, ends)]
        for ends in ([reach.low for reach in reaches], [reach.high for reach in reaches])
    )
    return (high > low).tolist()


def read_parts(
    panels: Sequence[ReferencePanel],
    sequencing: SequencingSettings,
    regions: Sequence[Region],
    buffer_cM: float | None,
    summary: SequencedSummary,
    *,
    force: bool,
) -> list[Part]:
    """Read what is known of the samples in the parts of a chromosome that regions touch.

    Parameters
    ----------
    panels : sequence of ReferencePanel
        The parts of one panel.
    sequencing : SequencingSettings
        What is known of the samples.
    regions : sequence of Region
        None for all.
    buffer_cM : float or None
        What is read around each region; None for BUFFER_CM.
    summary : SequencedSummary
        Counts and warnings are added to it.
    force : bool
        As of `LikelihoodReader`.

    Returns
    -------
    list of Part
        In order of position: regions whose buffers overlap are one. Of a region, or a part of chromosome X,
        of which nothing is known the summary has a warning.

    Raises
    ------
    InputError
        As of `panel_places` and `LikelihoodReader`; the panel is one of inducing points; nothing is known of
        any sample (`NoRecord`).
    """
    places = panel_places(panels, regions, summary.warnings)
    parts, skipped = [], Counter[str]()
    of_haplotypes = [haplotypes_of(one) for one in panels]
    reader = LikelihoodReader(sequencing, of_haplotypes, force=force)
    for one, together, around in _stretches(of_haplotypes, places, buffer_cM):
        found = reader.read(one, around)
        if found is not None:
            summary.panel_haplotypes = max(summary.panel_haplotypes, one.n_haplotypes)
            summary.count(found, together[-1].high - together[0].low)
            # a file without an index is read anew for each group, with all its other chromosomes
            elsewhere = max(skipped[ON_ANOTHER_CHROMOSOME], found.skipped.get(ON_ANOTHER_CHROMOSOME, 0))
            skipped += Counter(found.skipped)
            skipped[ON_ANOTHER_CHROMOSOME] = elsewhere
        known = [False] * len(together) if found is None else _which_known(found, together)
        kept = list(compress(together, known))
        for reach in compress(together, map(not_, known)):
            first, last = reach.place.first, reach.place.last
            summary.warnings.append(
                f"nothing is known of any sample in {one.chrom}:{one.position[first]}-"
                f"{one.position[last - 1]}: its {last - first} sites are left out"
            )
        if found is not None and kept:
            low, high = kept[0].low, kept[-1].high
            ends = np.searchsorted(found.panel_index, [low, high]).tolist()
            parts.append(Part(one, found.take(slice(*ends)), [reach.place for reach in kept], low, high))
    summary.warnings += reader.warnings
    summary.skipped = dict(+skipped)
    if not parts:
        raise _nothing_known(panels, regions, reader.absent)
    sexes = sequencing.sexes
    if sexes and is_x(panels[0].chrom) and not set(sexes) & set(parts[0].likelihoods.samples):
        summary.warnings.append("none of the samples is in the list of sexes: all have two copies of X")
    return parts
