"""Chromosomes imputed one after the other, into one file or one for each, with the memory of one."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from spinimpute.genotypes.genetic_map import GeneticMap
from spinimpute.genotypes.regions import regions_on_chromosome
from spinimpute.genotypes.sites import ON_ANOTHER_CHROMOSOME, NoRecord, Region
from spinimpute.outputs.opening import BGEN, PGEN, RecordWriter, choose_form
from spinimpute.panels.merging.merge import check_mergeable
from spinimpute.panels.opening import get_panel_paths, map_in_panel_error
from spinimpute.panels.reference import ReferencePanel
from spinimpute.pipeline.genome.plan import (
    Chromosome,
    Panel,
    check_placeholders,
    fits_into_names,
    output_of,
    outputs,
    panel_lines,
    plan_genome,
)
from spinimpute.quality.summary import RunSummary
from spinimpute.runtime.errors import InputError
from spinimpute.runtime.memory import peak_memory_mb
from spinimpute.runtime.output_files import PLACEHOLDER
from spinimpute.runtime.progress import Progress, Shares


@dataclass(frozen=True)
class Step:
    """A chromosome, and the file that it goes into.

    Attributes
    ----------
    path : Path
        The output.
    chromosomes : sequence of Chromosome
        All that go into it, in order.
    one : Chromosome
        One of them.
    """

    path: Path
    chromosomes: Sequence[Chromosome]
    one: Chromosome

    def header_lines(self, panels: Sequence[ReferencePanel]) -> tuple[list[str], list[str]]:
        """The lines of contigs, and of panels, of all chromosomes in the file; panels: of this one."""
        if len(self.chromosomes) == 1:
            return [panels[0].contig_line], panel_lines(panels)
        of_panels = [line for each in self.chromosomes for line in each.panel_lines]
        return [each.contig_line for each in self.chromosomes], of_panels

    def regions(self, regions: Sequence[Region], chrom: str) -> tuple[list[Region], int]:
        """Of the regions of a run, those on this chromosome, and how many are in the file.

        chrom: of the panel; regions on another one are left to be refused where a panel is alone.
        """
        if len(self.chromosomes) == 1 and not self.one.name:
            return list(regions), len(regions)
        in_file = sum(len(regions_on_chromosome(regions, each.name)) for each in self.chromosomes)
        return regions_on_chromosome(regions, chrom), in_file


@dataclass
class GenomeRun:
    """What is to be imputed, in order.

    Attributes
    ----------
    planned : list of (Path, list of Chromosome)
        The outputs and what goes into each.
    several : bool
        Chromosomes are looked for: those that the target lacks are left out with a warning.
    shares_file : bool
        Several chromosomes are read of one target file: what is skipped on one is read on another.
    skipped : dict of str to int
        Records of the chromosomes so far that were not read, by reason.
    """

    planned: list[tuple[Path, list[Chromosome]]]
    several: bool
    shares_file: bool
    skipped: dict[str, int] = field(default_factory=dict)

    @property
    def outs(self) -> list[Path]:
        """All outputs."""
        return [path for path, _ in self.planned]

    @property
    def plan(self) -> list[Chromosome]:
        """All chromosomes."""
        return [one for _, chromosomes in self.planned for one in chromosomes]

    def add_skipped(self, of_this_one: dict[str, int]) -> dict[str, int]:
        """Add the records of a chromosome that were not read, by reason, to those before; all of them."""
        for reason, count in of_this_one.items():
            self.skipped[reason] = self.skipped.get(reason, 0) + count
        if self.shares_file:
            self.skipped.pop(ON_ANOTHER_CHROMOSOME, None)
        return dict(self.skipped)


def plan_run(
    out: str | Path,
    files: Sequence[str | Path],
    panels: Sequence[Panel],
    regions: Sequence[Region],
    output_type: str | None,
    genetic_map: str | Path | GeneticMap | None,
    summary: RunSummary,
) -> GenomeRun:
    """Which chromosomes are imputed, from what, into which files.

    Parameters
    ----------
    out : str or Path
        The output, or with PLACEHOLDER in its name one for each chromosome.
    files : sequence of str or Path
        Target files; none if no file holds records by chromosome.
    panels : sequence of ReferencePanel, str or Path
        One for each chromosome, or several.
    regions : sequence of Region
        What is imputed; none for all.
    output_type : str or None
        As of `choose_form`.
    genetic_map : str, Path, GeneticMap or None
        For a single panel that is a VCF or BCF.
    summary : RunSummary
        Gets warnings.

    Returns
    -------
    GenomeRun
        The plan; of a single panel and file no more is known than these.

    Raises
    ------
    InputError
        As `plan_genome`, `check_placeholders`, and `check_mergeable` of each chromosome with several panels;
        the panels are of several kinds; a map is given for panel files; or an output cannot hold what would
        go into it.
    """
    check_placeholders(out)
    if len(files) < 2 and len(panels) < 2 and PLACEHOLDER not in str(out):
        return GenomeRun([(Path(out), [Chromosome("", panels[0], next(iter(files), ""))])], False, False)
    with summary.stage("open panel"):
        plan, left_out, warned = plan_genome(files, panels, regions)
    summary.warnings += [*left_out.values(), *warned]
    if PLACEHOLDER in str(out):
        read = {Path(path).resolve() for path in files}
        for chrom in left_out:
            if fits_into_names(chrom) and output_of(out, chrom).resolve() not in read:
                _warn_of_earlier(output_of(out, chrom), chrom, summary)
    if genetic_map is not None:
        raise map_in_panel_error()
    with summary.stage("open panel"):
        for one in plan:
            if one.more_panels:  # else it would be found when those before are imputed, after hours
                check_mergeable(get_panel_paths(one.panels))
    first = plan[0]
    for one in plan:  # panels that can be merged hold the same
        if one.holds != first.holds:
            raise InputError(
                "content",
                f"the panel of chromosome {first.name} holds {first.holds}, that of {one.name} {one.holds}: "
                "give panels of one kind, or impute these chromosomes apart",
            )
    planned = outputs(out, plan)
    for path, chromosomes in planned:
        if len(chromosomes) > 1 and choose_form(path, output_type) in (BGEN, PGEN):
            raise InputError(
                "content",
                f"{path} would hold {len(chromosomes)} chromosomes: write {path.suffix} for each, with "
                "{chrom} in its name",
            )
    return GenomeRun(planned, True, len(files) == 1 and len(plan) > 1)


def impute_chromosomes(
    run: GenomeRun,
    impute: Callable[[Step, RecordWriter | None, ExitStack, Progress | None], RecordWriter],
    summary: RunSummary,
    beside: AbstractContextManager[None],
    progress: Progress | None,
) -> None:
    """Impute one chromosome after the other, and give each file its name when it is whole.

    Parameters
    ----------
    run : GenomeRun
        What is imputed.
    impute : callable
        Writes the records of a chromosome. Gets the file's writer, None before its first chromosome, what
        keeps the writer, and the progress; gives the writer.
    summary : RunSummary
        Gets warnings of chromosomes that are left out, and time and memory.
    beside : context manager
        Writes reports under temporary names on entering, and gives them their own names on leaving. The last
        file gets its name in between: all of these do, or none.
    progress : callable or None
        Called with the fraction that is done.

    Raises
    ------
    InputError
        As `impute`, with the chromosomes that are in whole files by then; or no chromosome is in the target.
    """
    shares = Shares(progress, [1.0] * len(run.plan))
    done, absent, waiting = 0, None, None
    named, whole = list[str](), list[str]()  # chromosomes in the file that waits for its name, and before it
    try:
        with ExitStack() as stack:
            for path, chromosomes in run.planned:
                if waiting is not None:
                    waiting.close()
                    whole, named = [*whole, *named], []
                writer: RecordWriter | None = None
                for one in chromosomes:
                    try:
                        writer = impute(Step(path, chromosomes, one), writer, stack, shares.of(done))
                        named = [one.name]
                    except NoRecord as error:
                        if not run.several:
                            raise
                        absent = error
                        summary.warnings.append(f"chromosome {one.name} is left out: {error}")
                    done += 1
                if writer is not None:
                    with summary.stage("finish file and index"):
                        writer.finish()
                    waiting = writer
                elif run.several and len(run.planned) > 1:
                    _warn_of_earlier(path, chromosomes[0].name, summary)
            if waiting is None:
                assert absent is not None, "what is imputed is written"
                raise absent
            summary.peak_memory_mb = peak_memory_mb()
            with beside:
                waiting.close()
    except InputError as error:
        if not whole:
            raise
        raise InputError(
            "mismatch",
            f"{error}. The files of {_named(whole)} are whole and stay; to go on, give the panels of the "
            "other chromosomes",
        ) from error


def _warn_of_earlier(path: Path, chrom: str, summary: RunSummary) -> None:
    """Warn of the file of a chromosome that is left out, if it is there: nothing shows that it is older."""
    if os.path.exists(path):  # no error if a contig's name is too long for a file
        summary.warnings.append(
            f"{path} was there before and stays: it is not of this run, which leaves chromosome {chrom} out"
        )


def _named(chromosomes: Sequence[str]) -> str:
    if len(chromosomes) == 1:
        return f"chromosome {chromosomes[0]}"
    return f"chromosomes {', '.join(chromosomes[:-1])} and {chromosomes[-1]}"
