"""The chromosomes of a run, one after the other, and the files that they are written to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from spinimpute.genotypes.regions import regions_on_chromosome
from spinimpute.genotypes.sites import ON_ANOTHER_CHROMOSOME, NoRecord, Region
from spinimpute.outputs.opening import RecordWriter, choose_format, open_writer
from spinimpute.panels.reference import ReferencePanel
from spinimpute.pipeline.run_plan import Chromosome, RunPlan, panel_lines, warn_of_older_output
from spinimpute.pipeline.settings import OutputSettings
from spinimpute.quality.summary import RunSummary
from spinimpute.runtime.errors import InputError
from spinimpute.runtime.memory import peak_memory_mb
from spinimpute.runtime.progress import Progress, split_progress
from spinimpute.vcf.header import OutputLayout


class OutputFiles:
    """The output files of a run. Each gets its name when it is complete, the last one by `finish`.

    `with OutputFiles(plan, summary) as files:` adds to the message of an InputError which files are complete.
    """

    def __init__(self, plan: RunPlan, summary: RunSummary) -> None:
        self.plan, self.summary = plan, summary
        self._stack = ExitStack()
        self._writer: RecordWriter | None = None
        self._imputed = ""  # last chromosome in the file that is being written
        self._complete: list[str] = []  # chromosomes in files that have their names
        self._absent: NoRecord | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)
        if isinstance(error, InputError) and self._complete:
            raise InputError(
                error.code,
                f"{error}. The files of {_list_chromosomes(self._complete)} are complete. To continue, give "
                "the panels of the other chromosomes",
            ) from error

    def steps(self, progress: Progress | None) -> Iterator[Step]:
        """Yield a step for each chromosome; each is a context manager for the work on it.

        Raises NoRecord after the last one if the target contains no chromosome of the run.
        """
        shares, number = split_progress(progress, [1.0] * len(self.plan.chromosomes)), 0
        anything = False
        for path, chromosomes in self.plan.outputs:
            if self._writer is not None:
                self._writer.close()
                self._complete.append(self._imputed)
                self._writer = None
            for chromosome in chromosomes:
                yield Step(self, path, chromosomes, chromosome, shares[number])
                number += 1
            if self._writer is not None:
                anything = True
                with self.summary.stage("finish file and index"):
                    self._writer.finish()
            elif len(self.plan.outputs) > 1:
                self.summary.warnings += warn_of_older_output(path, chromosomes[0].name)
        if not anything:
            assert self._absent is not None, "each chromosome is written or absent"
            raise self._absent
        if self.plan.shares_target:  # a record that one chromosome skips is read for another
            self.summary.skipped.pop(ON_ANOTHER_CHROMOSOME, None)
        self.summary.peak_memory_mb = peak_memory_mb()

    def finish(self) -> None:
        """Give the last file its name."""
        if self._writer is not None:
            self._writer.close()

    def writer(self, open_new: Callable[[], AbstractContextManager[RecordWriter]]) -> RecordWriter:
        """Return the writer of the current file; the file's first chromosome opens it."""
        if self._writer is None:
            self._writer = self._stack.enter_context(open_new())
        return self._writer

    def end_step(self, chromosome: Chromosome, absent: NoRecord | None) -> bool:
        """Record that a chromosome is imputed or absent; return whether the run continues without it."""
        if absent is None:
            self._imputed = chromosome.name
        elif self.plan.several:
            self._absent = absent
            self.summary.warnings.append(f"chromosome {chromosome.name} is left out: {absent}")
        return self.plan.several


@dataclass(frozen=True)
class Step:
    """The work on one chromosome: a context manager that skips a chromosome that the target lacks.

    Attributes
    ----------
    files : OutputFiles
        All files of the run.
    path : Path
        Output of this chromosome.
    chromosomes : sequence of Chromosome
        All chromosomes in this output.
    chromosome : Chromosome
        The inputs.
    progress : callable or None
        Called with the fraction of this chromosome that is done.
    """

    files: OutputFiles
    path: Path
    chromosomes: Sequence[Chromosome]
    chromosome: Chromosome
    progress: Progress | None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if error is None:
            self.files.end_step(self.chromosome, None)
            return False
        return isinstance(error, NoRecord) and self.files.end_step(self.chromosome, error)

    def writer(
        self,
        samples: Sequence[str],
        ploidy: np.ndarray,
        panels: Sequence[ReferencePanel],
        output: OutputSettings,
        model_lines: Sequence[str],
        region_lines: Sequence[str],
        n_sites: int,
        threads: int,
        *,
        sexes: Mapping[str, bool] | None,
        info_lines: Sequence[str] = (),
    ) -> RecordWriter:
        """Return the writer of the output, which the first chromosome in it opens.

        ploidy: uint8 (n_samples,); panels: those of this chromosome; n_sites: sites of this chromosome.
        """
        if len(self.chromosomes) == 1:
            contig_lines, of_panels = [panels[0].contig_line], panel_lines(panels)
        else:
            contig_lines = [each.contig_line for each in self.chromosomes]
            of_panels = [line for each in self.chromosomes for line in each.panel_lines]
        header_lines = [
            f"##source=spinimpute {version('spinimpute')}",
            *model_lines,
            *of_panels,
            *(f"##spinimpute_note={note}" for note in self.files.summary.notes),
            *output.header_lines,
            *region_lines,
        ]
        layout = OutputLayout(
            samples, ploidy, contig_lines, header_lines, output.formats, info_lines, output.decimals
        )
        return self.files.writer(
            lambda: open_writer(
                self.path,
                choose_format(self.path, output.output_type),
                layout,
                n_sites,
                threads,
                sexes,
            )
        )

    def regions(self, regions: Sequence[Region], chrom: str) -> tuple[list[Region], int]:
        """Return the regions on this chromosome, and the number of regions in the output.

        Where there is only one panel, regions on other chromosomes are kept: they are refused later.
        """
        if len(self.chromosomes) == 1 and not self.chromosome.name:
            return list(regions), len(regions)
        n_in_file = sum(len(regions_on_chromosome(regions, each.name)) for each in self.chromosomes)
        return regions_on_chromosome(regions, chrom), n_in_file


def _list_chromosomes(names: Sequence[str]) -> str:
    if len(names) == 1:
        return f"chromosome {names[0]}"
    return f"chromosomes {', '.join(names[:-1])} and {names[-1]}"
