"""`check_sequenced`: report how sequenced samples fit a panel, without imputing them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from spinimpute.genotypes.genetic_map import GeneticMap
from spinimpute.genotypes.sites import ON_ANOTHER_CHROMOSOME, NoRecord
from spinimpute.panels.opening import PanelArgument, open_reference
from spinimpute.panels.reference import ReferencePanel
from spinimpute.pipeline.maps.build import estimate_map_only
from spinimpute.pipeline.run_plan import left_out_warning, list_panels, plan_run
from spinimpute.pipeline.sequenced.inputs import SequencingSettings
from spinimpute.pipeline.sequenced.intervals import read_intervals
from spinimpute.quality.summary import SequencedSummary
from spinimpute.runtime.errors import InputError
from spinimpute.runtime.output_files import STANDARD
from spinimpute.runtime.progress import Progress, split_progress
from spinimpute.sequencing.alignment_file import AlignmentFile


def check_sequenced(
    panel: PanelArgument,
    sequencing: SequencingSettings,
    genetic_map: str | Path | GeneticMap | None = None,
    progress: Progress | None = None,
) -> tuple[SequencedSummary, list[str]]:
    """Read the data of sequenced samples at the sites of panels like `impute_sequenced`.

    Returns a summary, and the reasons why `impute_sequenced` would refuse files of reads, such as a missing
    index, another genome build or other names of chromosomes. If files of reads are refused, the summary
    counts the other files. It is empty if no file is left, or if there are also likelihoods or an array.
    """
    summary = SequencedSummary()
    plan = plan_run(STANDARD, sequencing.likelihood_files, list_panels(panel), (), None, genetic_map)
    summary.warnings += plan.warnings
    chromosomes = plan.outputs[Path(STANDARD)]
    refusals: dict[int, str] = {}  # reason by index of the file
    absent: dict[str, InputError] = {}
    shares = split_progress(progress, [1.0] * len(chromosomes))
    for one, share in zip(chromosomes, shares, strict=True):
        samples = sequencing
        if sequencing.likelihood_files:
            samples = replace(sequencing, likelihoods=one.vcf)
        try:
            with open_reference(one.panels, genetic_map, refine=estimate_map_only) as parts:
                _count_chromosome(parts, samples, summary, refusals)
        except NoRecord as error:
            absent[one.name] = error
        if share is not None:
            share(1.0)
    if absent and not (summary.samples or refusals):
        raise next(iter(absent.values()))
    if len(sequencing.likelihood_files) == 1 < len(chromosomes):
        summary.skipped.pop(ON_ANOTHER_CHROMOSOME, None)  # read with that chromosome
    summary.warnings += [*left_out_warning(absent), *summary.coverage.warnings()]
    return summary, list(refusals.values())


def _count_chromosome(
    panels: Sequence[ReferencePanel],
    sequencing: SequencingSettings,
    summary: SequencedSummary,
    refusals: dict[int, str],
) -> None:
    """Add the data of a chromosome to the summary, and the reason of each refused file to `refusals`."""
    for i, path in enumerate(sequencing.alignments):
        try:
            with warnings.catch_warnings(action="ignore"):  # the warnings are repeated when the file is read
                AlignmentFile(path, panels[-1], sequencing.reference).close()
        except InputError as error:
            refusals.setdefault(i, str(error))
    if refusals:
        if len(refusals) == len(sequencing.alignments) or sequencing.likelihood_files or sequencing.array:
            return
        kept = [i for i in range(len(sequencing.alignments)) if i not in refusals]
        sequencing = replace(
            sequencing,
            alignments=[sequencing.alignments[i] for i in kept],
            names=[sequencing.names[i] for i in kept] if sequencing.names else (),
        )
    read_intervals(panels, sequencing, (), None, force=False).count(summary)
