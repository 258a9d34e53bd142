"""Open the panel of a run, or merge several; merging takes long, so the target is checked before."""

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
    """Open the parts of a panel for a `with` block; several panels are merged first.

    `fits` raises InputError if the target does not fit one of several panels.
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
    refine = partial(refine_panel, threads=threads)  # for a VCF that is compiled for the run
    with ExitStack() as stack:
        with summary.stage(stage):
            panels = stack.enter_context(open_reference(panel, genetic_map, threads, refine))
        yield panels
