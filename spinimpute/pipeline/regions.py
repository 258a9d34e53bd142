"""Imputing a region: its panel sites, the typed sites that are used for it, and those written beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import cyvcf2
import numpy as np

from spinimpute.errors import InputError
from spinimpute.genotypes.haplotypes import Haplotypes
from spinimpute.genotypes.letters import UNKNOWN_ALLELE
from spinimpute.genotypes.sites import Region, SiteMatch, plain_chromosome
from spinimpute.hmm.recombination_scale import scale_in_header
from spinimpute.panels.panel import Panel
from spinimpute.pipeline.chunk_file import PANEL_LINE
from spinimpute.pipeline.prepare import AnyPanel, Prepared
from spinimpute.predictors.haplotype_attention.chunk import CHUNK
from spinimpute.predictors.haplotype_attention.chunk_starts import told_starts, typed_of_chunks
from spinimpute.quality.summary import ImputationSummary
from spinimpute.vcf.check import fresh_index, starts_as_variant_file


def panel_ranges(panels: Sequence[AnyPanel], region: Region | None) -> dict[str, tuple[int, int]]:
    """By the checksum of each panel that has some: its sites [first, last) of a region."""
    chrom = panels[0].chrom
    if region is None:
        return {panel.checksum: (0, panel.n_sites) for panel in panels}
    if plain_chromosome(region.chrom) != plain_chromosome(chrom):
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


def check_buffer(buffer_cM: float | None, region: Region | None) -> None:
    if buffer_cM is None:
        return
    if region is None:
        raise InputError("a buffer lies around a region: give --region, or leave --buffer out")
    if not buffer_cM >= 0:
        raise InputError(f"a buffer must have a length of at least 0 cM: got {buffer_cM} cM")


@dataclass(frozen=True)
class Stretch:
    """The part of a target that is read. jumps_per_cM: by all of its typed sites; None of inducing points."""

    region: Region
    jumps_per_cM: float | None


def stretch_of(
    vcf: str | Path, panels: Sequence[AnyPanel], region: Region | None, buffer_cM: float | None
) -> Stretch | None:
    """What has to be read of a target for a region and its buffer; None for all of it.

    Only of a file as `phase` and `convert` wrote it for this panel with this genetic map a part will do: of
    any other, all sites together tell how those of unknown strand are repaired, whether target and panel fit,
    how often haplotypes change whom they copy, and where chunks begin.
    """
    if region is None or buffer_cM is None or len(panels) > 1:
        return None
    (panel,) = panels
    header, n_records = _of_file(vcf)
    starts = told_starts(header, panel)
    if f"{PANEL_LINE}{panel.checksum}" not in header.splitlines() or starts is None:
        return None
    jumps_per_cM = scale_in_header(header, panel) if isinstance(panel, Panel) else None
    if n_records != starts.n_typed or (isinstance(panel, Panel) and jumps_per_cM is None):
        return None
    ((first, last),) = panel_ranges(panels, region).values()
    position = panel.position
    low, high = _around(panel.cM, first, last, buffer_cM)
    if isinstance(panel, Panel):
        start, end = starts.around(int(position[first]), int(position[last - 1]))
        start = min(start, starts.start_before(int(position[low])))
        end = int(position[-1]) if end is None else max(end, int(position[high - 1]))
    else:
        seen = panel.seen_by(first, last)
        start, end = int(position[min(low, seen[0])]), int(position[max(high - 1, seen[-1])])
    return Stretch(Region(panel.chrom, min(region.start, start), max(region.end, end)), jumps_per_cM)


def _of_file(vcf: str | Path) -> tuple[str, int]:
    """Of a VCF or BCF with an index its header, and how many records it has; nothing of other files."""
    path = Path(vcf)
    if not path.is_file() or not starts_as_variant_file(path) or not fresh_index(path):
        return "", 0
    try:
        reader = cyvcf2.VCF(str(path), lazy=True)
        return reader.raw_header, reader.num_records
    except Exception:  # what is wrong with it is said when it is read
        return "", 0


def _around(cM: np.ndarray, first: int, last: int, buffer_cM: float) -> tuple[int, int]:
    """Of sites at increasing cM: those [low, high) that lie no further than the buffer from [first, last)."""
    low = int(np.searchsorted(cM, cM[first] - buffer_cM, side="left"))
    return low, int(np.searchsorted(cM, cM[last - 1] + buffer_cM, side="right"))


def within(part: Prepared, first: int, last: int, buffer_cM: float) -> Prepared:
    """A part with those of its matched sites that are near the panel sites [first, last), and with the rate
    of copying that all of them give. Whatever the buffer, all are kept that a phased target's results need to
    be those of all sites."""
    part = part.with_rate()
    panel, match = part.panel, part.match
    index_T = match.panel_index
    low, high = np.searchsorted(index_T, _around(panel.cM, first, last, buffer_cM)).tolist()
    if isinstance(panel, Panel):
        start, stop = typed_of_chunks(panel.cM, index_T, first, last)
        low, high = min(low, start) // CHUNK * CHUNK, max(high, stop)
    else:
        seen = panel.seen_by(first, last)
        start, stop = np.searchsorted(index_T, [seen[0], seen[-1] + 1]).tolist()
        low, high = min(low, start), max(high, stop)
    some = slice(low, high)
    nearby = replace(match, panel_index=index_T[some], target_index=match.target_index[some])
    return replace(part, repaired=replace(part.repaired, match=nearby))


def unmatched_sites(
    target: Haplotypes, match: SiteMatch, region: Region | None, summary: ImputationSummary
) -> np.ndarray:
    """The typed sites of a region that the panel lacks and that can be written."""
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
