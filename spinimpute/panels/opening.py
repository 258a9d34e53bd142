"""Open a reference panel that the user gives in any form.

This may be a panel file (.spin or .spip), a VCF or BCF, several panel files to merge, or an open panel.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from spinimpute.genotypes.genetic_map import GeneticMap
from spinimpute.genotypes.sites import NoRecord
from spinimpute.panels.build import BuildJob, PanelRefiner
from spinimpute.panels.file_kind import SPIN, SPIP, has_magic
from spinimpute.panels.formats.detection import has_source_format
from spinimpute.panels.formats.foreign import refuse_foreign_panel
from spinimpute.panels.inducing_panel import KIND as INDUCING_PANEL
from spinimpute.panels.inducing_panel import InducingPanel
from spinimpute.panels.merging.merge import check_mergeable, merge_panels, merged_name
from spinimpute.panels.panel import KIND as PANEL
from spinimpute.panels.reference import ReferencePanel
from spinimpute.panels.spin_files import compile_panel_file, open_spin_file
from spinimpute.runtime.errors import InputError, argument, call, refuse_pipe
from spinimpute.runtime.memory import TooLittleMemory
from spinimpute.runtime.output_files import temporary_folder

VARIANT_FILES = (".vcf", ".vcf.gz", ".vcf.bgz", ".bcf")
PANEL_FILES = (SPIN, SPIP)
PanelArgument = ReferencePanel | str | Path | Sequence[ReferencePanel | str | Path]


def is_panel_file(path: str | Path) -> bool:
    """Return whether a file starts like a panel file; False if it cannot be read."""
    return has_magic(path, PANEL) or has_magic(path, INDUCING_PANEL)


@contextmanager
def open_panel_file(path: str | Path) -> Iterator[Sequence[ReferencePanel]]:
    """Open the panels of a panel file (.spin or .spip), in order of position. Raises InputError.

    A file of chromosome X may have several panels. Other files have one.
    """
    path = Path(path)
    refuse_pipe(path, "panel")
    if has_magic(path, INDUCING_PANEL):
        with InducingPanel.open(path) as panel:
            yield [panel]
    else:
        with open_spin_file(path) as panels:
            yield panels


@contextmanager
def open_reference(
    panel: PanelArgument,
    genetic_map: str | Path | GeneticMap | None = None,
    threads: int | None = None,
    refine: PanelRefiner | None = None,
) -> Iterator[Sequence[ReferencePanel]]:
    """Open the panels of a chromosome for a `with` block: one panel, or one for each part of X.

    From a VCF, BCF or M3VCF, a temporary panel file is built with `genetic_map` and `refine`. Several panel
    files of one chromosome are merged into a temporary file, with `threads` (default: all processors). Raises
    InputError like the functions that do this, and if a map is given for a panel that has its own map.
    """
    if isinstance(panel, Sequence) and not isinstance(panel, str):
        if len(panel) > 1:
            if genetic_map is not None:
                raise map_conflict_error()
            paths = get_panel_paths(panel)
            with temporary_folder() as folder:
                merged = folder / merged_name(paths)
                merge_panels(paths, merged, threads=threads)
                with open_spin_file(merged) as parts:
                    yield parts
            return
        if not panel:
            raise InputError("content", "no panel is given: give at least one")
        panel = panel[0]
    if not isinstance(panel, str | Path):
        if genetic_map is not None:
            raise InputError(
                "mismatch", "an open panel has its genetic map in it: give the map to build_panel"
            )
        yield [panel]
        return
    path = Path(panel)
    refuse_pipe(path, "panel")
    is_built = is_panel_file(path)
    if is_built and genetic_map is not None:
        raise InputError(
            "arguments",
            f"{path} is a panel file and has its genetic map in it: leave {argument('genetic_map')} out, or "
            f"give it to {call('build_panel')}",
        )
    # for a missing or damaged file, the name decides which message the user gets
    is_source = not is_built and (
        path.name.endswith(VARIANT_FILES) or (not path.name.endswith(PANEL_FILES) and has_source_format(path))
    )
    if not is_source:
        if not is_built:
            refuse_foreign_panel(path)
        with open_panel_file(path) as panels:
            yield panels
        return
    with temporary_folder() as folder:
        built = folder / "panel.spin"
        compile_panel_file(BuildJob(path, built, genetic_map, refine=refine))
        with open_spin_file(built) as parts:
            yield parts


def check_before_merging(
    panels: Sequence[str | Path], check_target: Callable[[Sequence[ReferencePanel]], object]
) -> None:
    """Check the panels of a chromosome and the target before the panels are merged, because merging is slow.

    `check_target` raises InputError if the target cannot be used with a panel. It must succeed for at least
    one panel. Otherwise its first error is raised; a `NoRecord` error only if there is no other error.
    """
    check_mergeable(panels)
    first_error: InputError | None = None
    for path in panels:
        try:
            # suppress warnings: they are shown when the merged panel is used
            with open_spin_file(path) as parts, warnings.catch_warnings(action="ignore"):
                check_target(parts)
            return
        except TooLittleMemory:  # the other panels would need as much memory
            raise
        except InputError as error:
            if first_error is None or isinstance(first_error, NoRecord):  # other errors are more helpful
                first_error = error
    assert first_error is not None, "there are several panels"
    raise first_error


def get_panel_paths(panel: PanelArgument) -> list[str | Path]:
    """Return the paths of one or several panels, which may be open."""
    panels = panel if isinstance(panel, Sequence) and not isinstance(panel, str) else [panel]
    return [item if isinstance(item, str | Path) else item.path for item in panels]


def require_open_panel(panel: object) -> None:
    """Raise InputError if the argument is a path, in functions that need an open panel."""
    if isinstance(panel, str | Path):
        raise InputError(
            "argument", f"panel must be an open panel, such as Panel.open({str(panel)!r}), got a path"
        )


def map_conflict_error() -> InputError:
    """Return the error for a genetic map that is given together with panel files."""
    return InputError(
        "arguments",
        f"panel files have their genetic maps in them: leave {argument('genetic_map')} out, or give it to "
        f"{call('build_panel')}",
    )
