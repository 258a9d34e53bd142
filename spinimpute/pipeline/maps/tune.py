"""Tune the genetic map of a panel file: change the map so that imputation from one array is more accurate."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from spinimpute.hmm.maps.tuning import can_tune, tuned_map
from spinimpute.hmm.parameters import MIN_HAPLOTYPES, MIN_SITES
from spinimpute.panels.file_kind import check_panel_output
from spinimpute.panels.panel import Panel
from spinimpute.panels.spin_files import join_panels, open_spin_file
from spinimpute.panels.writer import package_version, rewrite_panel
from spinimpute.runtime.devices import choose_threads
from spinimpute.runtime.errors import InputError
from spinimpute.runtime.output_files import atomic_write
from spinimpute.runtime.partial_files import temporary_folder_in
from spinimpute.runtime.progress import Progress, split_progress
from spinimpute.targets.array_sites import NoPanelSite, read_array

TUNED = "map tuned"  # key in the panel's provenance


def tune_panel(
    path: str | Path,
    array: str | Path,
    out: str | Path,
    *,
    threads: int | None = None,
    force: bool = False,
    command: str = "",
    progress: Progress | None = None,
) -> None:
    """Copy a panel file with its genetic map tuned to the sites of an array.

    Everything else is copied unchanged. If the array has too few sites in one part of chromosome X, this part
    keeps its map.

    Parameters
    ----------
    path : str or Path
        The panel file.
    array : str or Path
        VCF or BCF of the array, or a list of positions.
    out : str or Path
        The new panel file.
    threads : int or None
        Number of threads. Default: all processors. Results do not depend on it.
    force : bool
        Overwrite `out` if it exists.
    command : str
        Recorded in the panel's provenance.
    progress : callable or None
        Called with the completed fraction of the run.

    Raises
    ------
    InputError
        The panel or array cannot be read, the array has too few sites in the panel, the panel has too few
        haplotypes or is already tuned, or `out` exists and `force` is not set.
    """
    out = check_panel_output(out, force, [path, array])
    threads = choose_threads(threads)
    with atomic_write(out) as temporary, open_spin_file(path) as panels:
        files: list[Path] = []
        typed_by_part = [_read_typed_index(array, panel, only_part=len(panels) == 1) for panel in panels]
        n_typed = max(map(len, typed_by_part))
        if max(panel.n_haplotypes for panel in panels) < MIN_HAPLOTYPES:
            raise InputError(
                "content",
                f"panel {path}: it has {panels[0].n_haplotypes} haplotypes, at least {MIN_HAPLOTYPES} are "
                "needed to tune a map",
            )
        if n_typed < MIN_SITES:
            raise InputError(
                "content",
                f"array {array}: {n_typed} of its sites are in the panel {path}, at least {MIN_SITES} are "
                "needed to tune a map",
            )
        with temporary_folder_in(out.parent, f".{out.name}.") as folder:
            shares = split_progress(progress, [1.0] * len(panels))
            for panel, typed_index, share in zip(panels, typed_by_part, shares, strict=True):
                if TUNED in panel.provenance:
                    raise InputError(
                        "content",
                        f"panel {path}: its map is tuned already; tune the panel that it was made from",
                    )
                cM = tuned_map(panel, typed_index, threads, share)
                tuned = {
                    "array": Path(array).name,
                    "sites": len(typed_index),
                    "spinimpute": package_version(),
                    "command": command,
                }
                files.append(folder / str(len(files)))
                rewrite_panel(panel, files[-1], {TUNED: tuned} if can_tune(panel, typed_index) else {}, cM)
            if len(files) == 1:
                os.replace(files[0], temporary)
            else:
                join_panels(files, temporary)


def _read_typed_index(array: str | Path, panel: Panel, only_part: bool) -> np.ndarray:
    try:
        return read_array(array, panel.sites, panel.frequency).panel_index
    except NoPanelSite:
        if only_part:
            raise
        return np.empty(0, np.int64)  # other parts of the chromosome may have sites
