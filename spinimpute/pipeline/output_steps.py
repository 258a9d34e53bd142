"""The loop over the chromosomes of a run: opens panels, opens and closes output files.

`impute` and `impute_sequenced` do one `Step` per chromosome. Chromosomes may share an output file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from pathlib import Path

import numpy as np

from spinimpute.genotypes.genetic_map import GeneticMap
from spinimpute.genotypes.haplotypes import Haplotypes
from spinimpute.genotypes.records import RecordRows
from spinimpute.genotypes.regions import regions_on_chromosome
from spinimpute.genotypes.sites import ON_ANOTHER_CHROMOSOME, NoRecord, Region
from spinimpute.outputs.opening import BGEN, PGEN, RecordWriter, choose_format, open_writer
from spinimpute.outputs.selection import SelectingWriter
from spinimpute.panels.opening import (
    PanelArgument,
    check_before_merging,
    get_panel_paths,
    map_conflict_error,
    open_reference,
)
from spinimpute.panels.reference import ReferencePanel
from spinimpute.pipeline.chunk_file import RECORDS_LINE, REGIONS_LINE, SAMPLES_LINE, region_line, target_line
from spinimpute.pipeline.maps.build import refine_panel
from spinimpute.pipeline.run_plan import (
    Chromosome,
    RunPlan,
    find_symbolic_alts,
    has_multiallelic,
    left_out_warning,
    name_chromosomes,
    panel_lines,
    warn_of_older_output,
)
from spinimpute.pipeline.settings import OutputSettings
from spinimpute.quality.summary import RunSummary
from spinimpute.runtime.errors import InputError
from spinimpute.runtime.memory import peak_memory_mb
from spinimpute.runtime.progress import Progress, begin_stage, split_progress
from spinimpute.vcf.header import OutputLayout
from spinimpute.vcf.writer import GenotypeWriter


@contextmanager
def open_outputs(
    plan: RunPlan,
    summary: RunSummary,
    output: OutputSettings,
    threads: int,
    sexes: Mapping[str, bool] | None,
    site_tables: Mapping[Path, Path] | None = None,
    reports: Sequence[str | Path] = (),
) -> Iterator[OutputFiles]:
    """Yield the output files of a run. Each is written under a temporary name and renamed when complete.

    `site_tables` is the result of `get_site_tables`. `reports` lists the reports and tables about the whole
    run, which the caller renames later. Older ones are removed before the first output gets its name: a
    killed run must not leave new genotypes next to an older report.

    If an InputError ends the run, its message also lists the chromosomes whose files are complete.
    """
    with ExitStack() as stack:
        files = OutputFiles(plan, summary, output, threads, sexes, site_tables or {}, reports, stack)
        try:
            yield files
            files.complete()
        except InputError as error:
            if not files.completed:
                raise
            raise InputError(
                error.code,
                f"{error}. The files of {name_chromosomes(files.completed)} are complete. To continue, give "
                "the panels of the other chromosomes",
            ) from error


@dataclass
class OutputFiles:
    """The output files of a run. Use `open_outputs` to create it."""

    plan: RunPlan
    summary: RunSummary
    output: OutputSettings
    threads: int
    sexes: Mapping[str, bool] | None
    site_tables: Mapping[Path, Path]  # table of sites of each output that has one
    reports: Sequence[str | Path]  # paths of the reports about the run
    stack: ExitStack  # closes the writers
    writer: RecordWriter | None = None  # of the current file
    last_chromosome: str = ""  # name of the last chromosome in the current file
    completed: list[str] = field(default_factory=list)  # last chromosome of each complete file
    absent: dict[str, InputError] = field(default_factory=dict)  # error of each chromosome without data

    def steps(self, progress: Progress | None) -> Iterator[Step]:
        """Yield a step for each chromosome. The caller does the step's work within `skip_if_absent`.

        Raises NoRecord after the last step if the target contains no chromosome of the run.
        """
        plan, index, any_written = self.plan, 0, False
        all_chromosomes = [one for chromosomes in plan.outputs.values() for one in chromosomes]
        names = [f"chromosome {one.name}" for one in all_chromosomes]
        shares = split_progress(progress, [1.0] * len(names), names)
        for path, chromosomes in plan.outputs.items():
            self.complete()
            regions = [regions_on_chromosome(plan.regions, one.name) for one in chromosomes]
            if not chromosomes[0].name:  # not yet read; later, `panel_intervals` refuses unfit regions
                regions = [list(plan.regions)]
            n_regions = sum(map(len, regions))
            for chromosome, own_regions in zip(chromosomes, regions, strict=True):
                yield Step(self, path, chromosomes, chromosome, own_regions, n_regions, shares[index])
                index += 1
            if self.writer is not None:
                any_written = True
                with self.summary.stage("finish file and index"):
                    self.writer.finish()  # the end of the file; `close` then gives the file its final name
                writer = self.writer
                if isinstance(writer, SelectingWriter):
                    self.summary.count_left_out(writer.left_out)
                    writer = writer.writer
                if isinstance(writer, GenotypeWriter) and "DS" in self.output.formats:
                    self.summary.multiallelic_dosages += writer.multiallelic_records
            elif len(plan.outputs) > 1:
                self.summary.warnings += warn_of_older_output(path, chromosomes[0].name)
        if not any_written:
            raise list(self.absent.values())[-1]
        self.summary.warnings += left_out_warning(self.absent)
        targets = {str(one.vcf) for one in all_chromosomes}
        if len(all_chromosomes) > 1 and len(targets) == 1 and targets != {""}:  # "": no target file
            # Do not report records on another chromosome: they are read in the step of that chromosome.
            self.summary.skipped.pop(ON_ANOTHER_CHROMOSOME, None)
        self.summary.peak_memory_mb = peak_memory_mb()

    def complete(self) -> None:
        """Give the current output its final name, if there is one, after removing older reports."""
        if self.writer is None:
            return
        for path in self.reports:
            with suppress(OSError):  # the error is reported when the new report is renamed
                Path(path).unlink(missing_ok=True)
        self.writer.close()
        self.completed.append(self.last_chromosome)
        self.writer = None

    @contextmanager
    def skip_if_absent(self, step: Step) -> Iterator[None]:
        """Turn NoRecord (the target lacks this chromosome) into a warning if the plan has `skip_absent`."""
        try:
            yield
            self.last_chromosome = step.chromosome.name
        except NoRecord as error:
            if not self.plan.skip_absent:
                raise
            self.absent[step.chromosome.name] = error


@dataclass(frozen=True)
class Step:
    """The imputation of one chromosome."""

    files: OutputFiles
    path: Path  # output file of this chromosome
    chromosomes: Sequence[Chromosome]  # all chromosomes in this output file
    chromosome: Chromosome
    regions: Sequence[Region]  # regions on this chromosome
    n_regions: int  # number of regions in this output file
    progress: Progress | None

    def record_rows(self, panel: ReferencePanel) -> RecordRows:
        """Return which sites of a panel are one record of the output; in PGEN and BGEN, each is its own."""
        if not self._joins_records:
            return RecordRows.separate(panel.n_sites)
        return panel.records

    @property
    def _joins_records(self) -> bool:
        output = self.files.output
        is_variant_file = choose_format(self.path, output.output_type) not in (PGEN, BGEN)
        return is_variant_file and not output.split_multiallelic

    def region_lines(
        self,
        chrom: str,
        n_records: int,
        n_unmatched: int | None,
        phased_here: bool,
        target_parts: Sequence[Haplotypes] = (),
        target_header: str = "",
    ) -> list[str]:
        """Return the header lines about regions.

        An output with one region gets `region_line`, and `target_line` if there are `target_parts`; it is a
        chunk for `ligate`. With several regions, one line says how many. Without one region, a file for
        `merge` gets the number of its records. `target_parts` and `target_header` are parameters of
        `target_line`, the others of `region_line`.
        """
        if self.n_regions != 1:
            lines = [f"{REGIONS_LINE}{self.n_regions}"] if self.n_regions else []
            is_for_merge = self.files.output.mergeable and len(self.chromosomes) == 1
            return [*lines, f"{RECORDS_LINE}{n_records + (n_unmatched or 0)}"] if is_for_merge else lines
        region = Region(chrom, self.regions[0].start, self.regions[0].end)
        lines = [region_line(region, n_records, n_unmatched, phased_here)]
        return [*lines, target_line(target_parts, target_header)] if target_parts else lines

    def open_writer(
        self,
        samples: Sequence[str],
        ploidy: np.ndarray,
        panels: Sequence[ReferencePanel],
        n_records: int,
        *,
        model_lines: Sequence[str] = (),
        region_lines: Sequence[str] = (),
        info_lines: Sequence[str] = (),
    ) -> RecordWriter:
        """Return the writer of this chromosome's output file; open it for the first chromosome in the file.

        ploidy: uint8 (n_samples,). panels and n_records: the panels and the number of records of the
        chromosome.
        """
        files, output = self.files, self.files.output
        if files.writer is not None:
            return files.writer
        contig_lines, panel_header_lines = [panels[0].contig_line], panel_lines(panels)
        multiallelic, symbolic_alts = has_multiallelic(panels), find_symbolic_alts(panels)
        if len(self.chromosomes) > 1:
            contig_lines = [each.contig_line for each in self.chromosomes]
            multiallelic = any(each.multiallelic for each in self.chromosomes)
            symbolic_alts = sorted({alt for each in self.chromosomes for alt in each.symbolic_alts})
            panel_header_lines = [line for each in self.chromosomes for line in each.panel_lines]
        header_lines = [
            f"##source=spinimpute {version('spinimpute')}",
            *model_lines,
            *panel_header_lines,
            *(f"##spinimpute_note={note}" for note in files.summary.notes),
            *([f"{SAMPLES_LINE}{len(samples)}"] if output.mergeable else []),
            *output.header_lines,
            *region_lines,
        ]
        layout = OutputLayout(
            samples,
            ploidy,
            contig_lines,
            header_lines,
            output.formats,
            info_lines,
            output.decimals,
            multiallelic and self._joins_records,
            symbolic_alts,
        )
        file_format = choose_format(self.path, output.output_type)
        opened = open_writer(
            self.path,
            file_format,
            layout,
            n_records,
            files.threads,
            files.sexes,
            bgen_bits=output.bgen_bits,
            record_filter=output.record_filter,
            site_table=files.site_tables.get(self.path),
        )
        files.writer = files.stack.enter_context(opened)
        return files.writer


@contextmanager
def open_or_merge(
    panel: PanelArgument,
    genetic_map: str | Path | GeneticMap | None,
    threads: int,
    check_target: Callable[[Sequence[ReferencePanel]], object],
    summary: RunSummary,
    progress: Progress | None,
) -> Iterator[Sequence[ReferencePanel]]:
    """Open a panel and yield its parts (several on chromosome X). Several panels are merged first.

    Merging takes long. `check_target` is therefore called first with each panel; it raises InputError if
    the target does not fit.
    """
    paths = get_panel_paths(panel)
    stage_name, stage_label = "open panel", "opening the panel"
    if len(paths) > 1:
        if genetic_map is not None:
            raise map_conflict_error()
        begin_stage(progress, "checking the target")
        with summary.stage("check target"):
            check_before_merging(paths, check_target)
        stage_name, stage_label = "merge panels", "merging panels"
    begin_stage(progress, stage_label)
    refine = partial(refine_panel, threads=threads)  # used if the panel is a VCF
    with ExitStack() as stack:
        with summary.stage(stage_name):
            panels = stack.enter_context(open_reference(panel, genetic_map, threads, refine))
        yield panels
