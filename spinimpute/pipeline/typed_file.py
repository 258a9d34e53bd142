"""`phase` and `convert`: write the typed sites of a target that are in the panel, phased or unchanged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path

import numpy as np

from spinimpute.genotypes.genetic_map import GeneticMap
from spinimpute.hmm.recombination_scale import scale_line
from spinimpute.outputs.opening import RecordWriter, choose_format, open_writer
from spinimpute.panels.opening import PanelArgument, get_panel_paths
from spinimpute.phasing.phase import phase_haplotypes
from spinimpute.pipeline.chunk_file import PANEL_LINE, target_line
from spinimpute.pipeline.matched_target import MatchedTarget, read_matched
from spinimpute.pipeline.output_steps import open_or_merge
from spinimpute.pipeline.settings import FileSettings, TargetSettings, check_settings
from spinimpute.predictors.typed_tiles import starts_line
from spinimpute.quality.summary import ImputationSummary
from spinimpute.runtime.devices import choose_threads
from spinimpute.runtime.errors import InputError
from spinimpute.runtime.memory import peak_memory_mb
from spinimpute.runtime.output_files import check_outputs
from spinimpute.runtime.progress import Progress, begin_stage, split_progress
from spinimpute.vcf.header import OutputLayout


def phase(
    vcf: str | Path,
    out: str | Path,
    panel: PanelArgument,
    *,
    genetic_map: str | Path | GeneticMap | None = None,
    target: TargetSettings = TargetSettings(),
    output: FileSettings = FileSettings(),
    threads: int | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> ImputationSummary:
    """Phase the genotypes of a target, using a panel and the other samples, and write them with an index.

    The output contains the typed sites that are in the panel, with the panel's REF and ALT. Phased genotypes
    keep their phase. Missing genotypes of diploid samples are imputed.

    Parameters
    ----------
    vcf, out : str or Path
        As in `impute`.
    panel : ReferencePanel, str or Path, or sequence of them
        As in `impute`, but of only one chromosome.
    genetic_map, target
        As in `impute`.
    output : FileSettings
        Format and header lines of the output.
    threads : int, optional
        Number of threads. Default: all processors. Results do not depend on it.
    force, progress
        As in `impute`.

    Returns
    -------
    ImputationSummary
        Counts and timings.

    Raises
    ------
    InputError
        As in `impute`, and if the panel has no haplotypes.
    """
    threads = choose_threads(threads)
    job = _TypedFileJob(vcf, out, panel, genetic_map, target, output, threads, force)
    with job.open(progress) as (matched, writer, summary):
        shares = split_progress(progress, [len(one.match.panel_index) for one in matched])
        for number, one in enumerate(matched):
            haplotypes = one.panel.haplotypes
            if haplotypes is None:
                raise InputError(
                    "mismatch",
                    f"panel {one.panel.path}: phasing needs haplotypes, but the panel holds "
                    f"{one.panel.holds}. Give a .spin file, a VCF or a BCF",
                )
            alleles_TQ, unphased_TX = _typed_calls(one)
            summary.count_phased(unphased_TX)
            begin_stage(shares[number], "phasing")
            with summary.stage("phase"):
                phased_TQ = phase_haplotypes(
                    haplotypes,
                    one.match.panel_index,
                    alleles_TQ,
                    unphased_TX,
                    one.target.ploidy,
                    threads,
                    shares[number],
                    fill=True,
                    jumps_per_cM=one.jumps_per_cM,
                )
            _write_records(one, phased_TQ, np.zeros_like(unphased_TX), writer, summary)
    return summary


def convert(
    vcf: str | Path,
    out: str | Path,
    panel: PanelArgument,
    *,
    genetic_map: str | Path | GeneticMap | None = None,
    target: TargetSettings = TargetSettings(),
    output: FileSettings = FileSettings(),
    force: bool = False,
) -> ImputationSummary:
    """Convert a target of any format to VCF, BCF, PLINK 2 or BGEN, matched to a panel.

    The output contains the typed sites that are in the panel, with the panel's REF and ALT. Alleles of the
    other strand and exchanged alleles are repaired. Phased and unphased genotypes remain as they are.

    Parameters
    ----------
    vcf, out, panel, genetic_map, target, output, force
        As in `phase`.

    Returns
    -------
    ImputationSummary
        Counts and timings.

    Raises
    ------
    InputError
        As in `impute`.
    """
    job = _TypedFileJob(vcf, out, panel, genetic_map, target, output, choose_threads(None), force)
    with job.open(None) as (matched, writer, summary):
        for one in matched:
            _write_records(one, *_typed_calls(one), writer, summary)
    return summary


@dataclass(frozen=True)
class _TypedFileJob:
    """The parameters of `phase` or `convert`."""

    vcf: str | Path
    out: str | Path
    panel: PanelArgument
    genetic_map: str | Path | GeneticMap | None
    target: TargetSettings
    output: FileSettings
    threads: int
    force: bool

    @contextmanager
    def open(
        self, progress: Progress | None
    ) -> Iterator[tuple[list[MatchedTarget], RecordWriter, ImputationSummary]]:
        """Read the target, open the output, and yield both. The output is complete when the block ends."""
        check_settings(target=(self.target, TargetSettings), output=(self.output, FileSettings))
        inputs = [self.vcf, *get_panel_paths(self.panel), self.genetic_map]
        check_outputs([self.out], self.force, inputs, streamed=self.out)
        out, summary = Path(self.out), ImputationSummary()
        output_format = choose_format(out, self.output.output_type)
        read_target = partial(read_matched, vcf=self.vcf, settings=self.target, force=self.force)
        with open_or_merge(
            self.panel, self.genetic_map, self.threads, read_target, summary, progress
        ) as panels:
            begin_stage(progress, "reading the target")
            with summary.stage("read target"):
                read = read_target(panels)
            read.count(summary)
            for one in read.matched:
                one.panel.check_typed(one.match.panel_index)
            matched = [one.with_recombination_scale() for one in read.matched]
            with open_writer(
                out,
                output_format,
                OutputLayout(
                    matched[0].target.samples,
                    matched[0].target.ploidy,
                    [panels[0].contig_line],
                    [*_header_lines(matched), *self.output.header_lines],
                    ("GT",),
                ),
                sum(len(one.match.panel_index) for one in matched),
                self.threads,
                self.target.sexes,
            ) as writer:
                yield matched, writer, summary
                writer.close()
        summary.peak_memory_mb = peak_memory_mb()


def _header_lines(matched: Sequence[MatchedTarget]) -> list[str]:
    """Return header lines by which `impute` recognizes the file and can read only a part of it."""
    scales = [
        scale_line(one.panel.haplotypes, one.jumps_per_cM)
        for one in matched
        if one.panel.haplotypes is not None and one.jumps_per_cM is not None
    ]
    # `starts_line` allows `impute` to read only a part of the file. We omit it if the chromosome has parts
    # or if only some samples are haploid, because all calls are needed to recognize haploid samples.
    first = matched[0]
    starts = []
    if len(matched) == 1 and (first.target.ploidy == first.target.ploidy[0]).all():
        starts = [starts_line(first.panel.position[first.match.panel_index])]
    return [
        f"##source=spinimpute {version('spinimpute')}",
        *(f"{PANEL_LINE}{one.panel.checksum}" for one in matched),
        *scales,
        *starts,
        target_line([one.resolved.haplotypes for one in matched]),
    ]


def _typed_calls(matched: MatchedTarget) -> tuple[np.ndarray, np.ndarray]:
    """Return alleles at the matched sites, int8 (T, Q), and which genotypes are unphased, bool (T, X)."""
    target, index_T = matched.target, matched.match.target_index
    alleles_TQ = target.alleles[index_T]
    if target.unphased is None:
        return alleles_TQ, np.zeros((len(alleles_TQ), len(target.samples)), bool)
    return alleles_TQ, target.unphased[index_T]


def _write_records(
    matched: MatchedTarget,
    alleles_TQ: np.ndarray,
    unphased_TX: np.ndarray,
    writer: RecordWriter,
    summary: ImputationSummary,
) -> None:
    with summary.stage("write"):
        writer.set_ploidy(matched.target.ploidy)
        writer.write_block(
            matched.panel.chrom,
            matched.panel.sites.take(matched.match.panel_index),
            np.where(alleles_TQ < 0, np.nan, alleles_TQ).astype(np.float32),
            {},
            alleles_TQ,
            np.ones(len(alleles_TQ), bool),
            unphased_TX,
        )
    summary.written_sites += len(alleles_TQ)
