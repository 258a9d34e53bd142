"""`impute` of sequenced samples: likelihoods or reads and a panel in, imputed file out.

Axes: S sites, X samples, Q haplotypes.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np

from spinimpute.devices import choose_threads
from spinimpute.errors import InputError
from spinimpute.genotypes.genetic_map import GeneticMap
from spinimpute.genotypes.sites import Region
from spinimpute.memory import peak_memory_mb
from spinimpute.output_files import check_outputs
from spinimpute.panels.opening import open_panels, path_of
from spinimpute.panels.panel import Panel
from spinimpute.panels.reference import ReferencePanel
from spinimpute.phasing.stretches import in_stretches
from spinimpute.pipeline.chunk_file import PANEL_LINE, region_line
from spinimpute.pipeline.regions import panel_ranges
from spinimpute.pipeline.sequenced.inputs import LikelihoodReader, SequencingSettings, at_all_sites
from spinimpute.pipeline.sequenced.summary import SequencedSummary
from spinimpute.pipeline.settings import OutputSettings, RegionSettings, Resources, check_settings
from spinimpute.progress import Progress, Shares
from spinimpute.quality.site_quality import site_quality
from spinimpute.sequencing.likelihoods import GenotypeLikelihoods
from spinimpute.vcf.indexed_file import choose_output_type
from spinimpute.vcf.writer import GenotypeWriter

BUFFER_CM = 1.0  # of what lies further away next to nothing matters
_WRITTEN_SITES = 8_192  # at once


@dataclass(frozen=True)
class _Part:
    """A panel or a part of one, and what is known at its sites [low, high); [first, last) are written."""

    panel: Panel
    likelihoods: GenotypeLikelihoods
    first: int
    last: int
    low: int
    high: int


def impute_sequenced(
    out: str | Path,
    panel: ReferencePanel | str | Path,
    sequencing: SequencingSettings,
    *,
    genetic_map: str | Path | GeneticMap | None = None,
    region: RegionSettings = RegionSettings(),
    output: OutputSettings = OutputSettings(),
    resources: Resources = Resources(),
    force: bool = False,
    progress: Progress | None = None,
) -> SequencedSummary:
    """Impute sequenced samples at all sites of a panel, with phase, and write them with an index.

    No sample's result depends on the others.

    Parameters
    ----------
    out : str or Path
        `.vcf.gz`, `.bcf` or `.vcf`; appears only when it is complete.
    panel : ReferencePanel, str or Path
        A `.spin` file, an open `Panel`, or a VCF or BCF, which is compiled first.
    sequencing : SequencingSettings
        What is known of the samples.
    genetic_map : str, Path or GeneticMap, optional
        For a panel that is a VCF or BCF.
    region : RegionSettings
        Which panel sites are imputed, by default all; the buffer is BUFFER_CM unless it is given.
    output : OutputSettings
        Formats, decimals, type and header lines of the file; nothing else of it.
    resources : Resources
        Threads.
    force : bool
        Replace existing files.
    progress : callable, optional
        Called with the fraction that is done.

    Returns
    -------
    SequencedSummary
        Counts and timings.

    Raises
    ------
    InputError
        The input cannot be used, or `out` exists, without `force`.
    """
    check_settings(
        sequencing=(sequencing, SequencingSettings),
        region=(region, RegionSettings),
        output=(output, OutputSettings),
        resources=(resources, Resources),
    )
    check_outputs([out], force, [path_of(panel), genetic_map, *sequencing.paths])
    output_type = choose_output_type(Path(out), output.output_type)
    threads = choose_threads(resources.threads)
    wanted, buffer_cM = region.parsed()
    summary = SequencedSummary()
    with ExitStack() as stack:
        with summary.stage("open panel"):
            panels = stack.enter_context(open_panels(panel, genetic_map))
        with summary.stage("read samples"):
            parts = _read(panels, sequencing, wanted, buffer_cM, summary, force=force)
        first = parts[0]
        writer = stack.enter_context(
            GenotypeWriter(
                Path(out),
                first.likelihoods.samples,
                first.likelihoods.ploidy,
                [first.panel.contig_line],
                _header_lines(panels, output, wanted, parts),
                output.formats,
                output_type,
                threads,
                decimals=output.decimals,
            )
        )
        shares = Shares(progress, [part.high - part.low for part in parts])
        for number, part in enumerate(parts):
            if number > 0:
                writer.set_ploidy(part.likelihoods.ploidy)
            _impute(part, writer, summary, threads, shares.of(number))
        with summary.stage("finish file and index"):
            writer.finish()
        summary.peak_memory_mb = peak_memory_mb()
        writer.close()
    return summary


def _read(
    panels: Sequence[ReferencePanel],
    sequencing: SequencingSettings,
    region: Region | None,
    buffer_cM: float | None,
    summary: SequencedSummary,
    *,
    force: bool,
) -> list[_Part]:
    """What is known of the parts that the region touches."""
    ranges = panel_ranges(panels, region)
    buffer_cM = BUFFER_CM if buffer_cM is None else buffer_cM
    parts = []
    of_haplotypes = [one.haplotypes for one in panels if one.haplotypes is not None]
    if not of_haplotypes:
        raise InputError(
            f"panel {panels[0].path}: sequenced samples cannot be imputed from {panels[0].holds}; give a "
            ".spin file, a VCF or a BCF"
        )
    reader = LikelihoodReader(sequencing, of_haplotypes, force=force)
    summary.warnings += reader.warnings
    for one in of_haplotypes:
        if one.checksum not in ranges:
            continue
        first, last = ranges[one.checksum]
        low, high = first, last
        if region is not None:
            cM = one.cM
            low = int(np.searchsorted(cM, cM[first] - buffer_cM))
            high = int(np.searchsorted(cM, cM[last - 1] + buffer_cM, side="right"))
        around = None
        if region is not None or len(panels) > 1:
            around = Region(one.chrom, int(one.position[low]), int(one.position[high - 1]))
        likelihoods = reader.read(one, around)
        if likelihoods is None:
            summary.warnings.append(
                f"nothing is known of any sample in {one.chrom}:{one.position[first]}-"
                f"{one.position[last - 1]}: its {last - first} sites are left out"
            )
            continue
        summary.panel_haplotypes = max(summary.panel_haplotypes, one.n_haplotypes)
        summary.count(likelihoods, high - low)
        parts.append(_Part(one, likelihoods, first, last, low, high))
    if not parts:
        raise InputError(
            f"nothing is known of any sample in {region or panels[0].chrom}: is it the right file?"
        )
    return parts


def _impute(
    part: _Part, writer: GenotypeWriter, summary: SequencedSummary, threads: int, progress: Progress | None
) -> None:
    likelihoods = part.likelihoods
    haploid_X = likelihoods.ploidy == 1
    phred_SX3 = at_all_sites(likelihoods, part.low, part.high)
    stretches = in_stretches(part.panel, part.low, phred_SX3, haploid_X, threads, progress)
    # of a haploid sample the first column alone
    written_Q = np.stack([np.ones_like(haploid_X), ~haploid_X], axis=1).ravel()
    while True:
        with summary.stage("impute"):
            start, p_S2X = next(stretches, (0, None))
        if p_S2X is None:
            return
        with summary.stage("write"):
            low, high = max(start, part.first), min(start + len(p_S2X), part.last)
            for at in range(low, high, _WRITTEN_SITES):
                rows = slice(at, min(at + _WRITTEN_SITES, high))
                p_here_S2X = p_S2X[rows.start - start : rows.stop - start]
                _write(writer, part.panel, rows, p_here_S2X, haploid_X, written_Q)
            summary.written_sites += max(0, high - low)


def _write(
    writer: GenotypeWriter,
    panel: Panel,
    rows: slice,
    p_S2X: np.ndarray,
    haploid_X: np.ndarray,
    written_Q: np.ndarray,
) -> None:
    def in_columns(x_S2X: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(x_S2X.transpose(0, 2, 1).reshape(len(x_S2X), -1)[:, written_Q])

    p_SQ = in_columns(p_S2X)
    writer.write_block(
        panel.chrom,
        panel.sites.take(rows),
        p_SQ,
        site_quality(p_SQ),
        in_columns(likeliest_alleles(p_S2X, haploid_X)),
        np.zeros(len(p_SQ), bool),
    )


def likeliest_alleles(p_S2X: np.ndarray, haploid_X: np.ndarray) -> np.ndarray:
    """Alleles of the likeliest genotype, int8 (S, 2, X); of a heterozygote ALT is where it is likelier.

    Parameters
    ----------
    p_S2X : float (S, 2, X)
        P(ALT) of the two haplotypes of each sample.
    haploid_X : bool (X,)
        Samples with one copy.

    Returns
    -------
    int8 (S, 2, X)
        0 or 1.
    """
    first_SX, second_SX = p_S2X[:, 0], p_S2X[:, 1]
    two_SX = first_SX * second_SX
    none_SX = (1 - first_SX) * (1 - second_SX)
    one_SX = 1 - two_SX - none_SX
    copies_SX = np.where(one_SX >= np.maximum(none_SX, two_SX), 1, np.where(two_SX > none_SX, 2, 0))
    copies_SX = np.where(haploid_X, 2 * (first_SX >= 0.5), copies_SX)
    second_first_SX = second_SX > first_SX
    return np.stack([copies_SX > second_first_SX, copies_SX > ~second_first_SX], axis=1).astype(np.int8)


def _header_lines(
    panels: Sequence[ReferencePanel], output: OutputSettings, region: Region | None, parts: Sequence[_Part]
) -> list[str]:
    lines = [
        f"##source=spinimpute {version('spinimpute')}",
        *(f"{PANEL_LINE}{panel.checksum}{panel.made_of}" for panel in panels),
        *output.header_lines,
    ]
    if region is not None:
        whole = Region(parts[0].panel.chrom, region.start, region.end)
        # which chain is a sample's first one is undetermined, as with calls that are phased here
        lines.append(
            region_line(whole, sum(part.last - part.first for part in parts), None, phased_here=True)
        )
    return lines
