"""Chromosomes that have several panels: these are merged before anything is imputed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from spinimpute.output_files import temporary_folder
from spinimpute.panels.merging.merge import merge_panels, merged_name
from spinimpute.panels.opening import open_panel_file, path_of
from spinimpute.pipeline.genome.plan import Chromosome, panel_lines
from spinimpute.progress import Progress, begin_stage

Planned = list[tuple[Path, list[Chromosome]]]


@contextmanager
def merged_panels(planned: Planned, threads: int, progress: Progress | None) -> Iterator[Planned]:
    """What is planned, with one panel for each chromosome.

    Parameters
    ----------
    planned : sequence of (Path, sequence of Chromosome)
        Outputs, and the chromosomes of each; some may have several panels.
    threads : int
        The panels do not depend on it.
    progress : callable or None
        Is told of the stage.

    Yields
    ------
    sequence of (Path, sequence of Chromosome)
        The same outputs. Merged panels are temporary files, which are removed at the end.

    Raises
    ------
    InputError
        As `merge_panels`.
    """
    if not any(one.more_panels for _, chromosomes in planned for one in chromosomes):
        yield planned
        return
    begin_stage(progress, "merging panels")
    with temporary_folder() as folder:
        yield [
            (path, [_merged(one, folder / f"{i}-{j}", threads) for j, one in enumerate(chromosomes)])
            for i, (path, chromosomes) in enumerate(planned)
        ]


def _merged(one: Chromosome, folder: Path, threads: int) -> Chromosome:
    """With the one panel that its panels are merged into; folder: is made for it."""
    if not one.more_panels:
        return one
    paths = [path_of(panel) for panel in (one.panel, *one.more_panels)]
    folder.mkdir()
    out = folder / merged_name(paths)
    merge_panels(paths, out, threads=threads)
    with open_panel_file(out) as parts:
        return replace(one, panel=out, panel_lines=panel_lines(parts), more_panels=())
