"""Opens the panel of a run, or merges several: whether the target fits is seen before, as that takes long."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from spinimpute.genotypes.genetic_map import GeneticMap
from spinimpute.panels.opening import (
    PanelArgument,
    check_before_merging,
    get_panel_paths,
    map_in_panel_error,
    open_reference,
)
from spinimpute.panels.reference import ReferencePanel
from spinimpute.pipeline.maps.build import refine_panel
from spinimpute.quality.summary import RunSummary
from spinimpute.runtime.progress import Progress, begin_stage


@contextmanager
def open_or_merge(
    panel: PanelArgument,
    genetic_map: str | Path | GeneticMap | None,
    threads: int,
    fits: Callable[[Sequence[ReferencePanel]], object],
    summary: RunSummary,
    progress: Progress | None,
) -> Iterator[Sequence[ReferencePanel]]:
    """Open a panel for as long as it is used.

    Parameters
    ----------
    panel, genetic_map, threads
        As of `open_reference`.
    fits : callable
        As of `check_before_merging`; not called for a single panel.
    summary : RunSummary
        Gets the time.
    progress : callable or None
        Is told the stages.

    Yields
    ------
    sequence of ReferencePanel
        The parts of the panel.

    Raises
    ------
    InputError
        As of `open_reference` and `check_before_merging`.
    """
    paths = get_panel_paths(panel)
    stage, shown = "open panel", "opening the panel"
    if len(paths) > 1:
        if genetic_map is not None:
            raise map_in_panel_error()
        begin_stage(progress, "checking the target")
        with summary.stage("check target"):
            check_before_merging(paths, fits)
        stage, shown = "merge panels", "merging panels"
    begin_stage(progress, shown)
    refine = partial(refine_panel, threads=threads)  # of a VCF that is compiled for the run
    with ExitStack() as stack:
        with summary.stage(stage):
            panels = stack.enter_context(open_reference(panel, genetic_map, threads, refine))
        yield panels
