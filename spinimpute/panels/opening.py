"""Opens whatever can be a reference panel: its kind is known by the file's first bytes."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from spinimpute.genotypes.genetic_map import GeneticMap
from spinimpute.genotypes.sites import NoRecord
from spinimpute.panels.build import PanelRefiner
from spinimpute.panels.file_kind import FileKind, has_magic
from spinimpute.panels.inducing_panel import KIND as INDUCING_PANEL
from spinimpute.panels.inducing_panel import InducingPanel
from spinimpute.panels.merging.merge import check_mergeable, merge_panels, merged_name
from spinimpute.panels.panel import KIND as PANEL
from spinimpute.panels.reference import ReferencePanel
from spinimpute.panels.spin_files import compile_panel_file, open_spin_file
from spinimpute.runtime.errors import InputError, argument, call, refuse_pipe
from spinimpute.runtime.memory import TooLittleMemory
from spinimpute.runtime.output_files import temporary_folder
from spinimpute.vcf.variant_file import starts_as_variant_file

VARIANT_FILES = (".vcf", ".vcf.gz", ".vcf.bgz", ".bcf")  # names, for what the content does not show
PANEL_FILES = (".spin", ".spip")
PanelArgument = ReferencePanel | str | Path | Sequence[ReferencePanel | str | Path]


@contextmanager
def _inducing_panel(path: Path) -> Iterator[Sequence[ReferencePanel]]:
    with InducingPanel.open(path) as panel:
        yield [panel]


Opener = Callable[[Path], AbstractContextManager[Sequence[ReferencePanel]]]

_OPENERS: tuple[tuple[FileKind, Opener], ...] = ((PANEL, open_spin_file), (INDUCING_PANEL, _inducing_panel))


def is_panel_file(path: str | Path) -> bool:
    """Whether a file starts as panel files of some kind do; False if it cannot be read."""
    return _opener_of(path) is not None


def open_panel_file(path: str | Path) -> AbstractContextManager[Sequence[ReferencePanel]]:
    """Open a panel file of any kind.

    Returns
    -------
    context manager
        Of its panels, by position: several of a chromosome X in parts, else one.

    Raises
    ------
    InputError
        It is a pipe. On entering: the file is no panel, truncated, damaged, or made by a newer version.
    """
    refuse_pipe(Path(path), "panel")
    return (_opener_of(path) or open_spin_file)(Path(path))


@contextmanager
def open_reference(
    panel: PanelArgument,
    genetic_map: str | Path | GeneticMap | None = None,
    threads: int | None = None,
    refine: PanelRefiner | None = None,
) -> Iterator[Sequence[ReferencePanel]]:
    """Open a panel for as long as it is used.

    Parameters
    ----------
    panel : ReferencePanel, str or Path, or sequence of them
        A panel file, a VCF or BCF that is compiled into a temporary file, or an open panel. Several panel
        files of one chromosome are merged into a temporary file.
    genetic_map : str, Path or GeneticMap, optional
        For a VCF or BCF.
    threads : int, optional
        That merge; by default all processors.
    refine : callable, optional
        As for `compile_panel_file`, for a VCF or BCF.

    Yields
    ------
    sequence of ReferencePanel
        One for each part of a chromosome X, one of every other chromosome.

    Raises
    ------
    InputError
        As `open_panel_file`, `compile_panel_file` and `merge_panels`, and for a map given with a panel that
        has its own.
    """
    if isinstance(panel, Sequence) and not isinstance(panel, str):
        if len(panel) > 1:
            if genetic_map is not None:
                raise map_in_panel_error()
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
    if is_panel_file(path) or not _to_be_compiled(path):
        if genetic_map is not None and is_panel_file(path):
            raise InputError(
                "arguments",
                f"{path} is a panel file and has its genetic map in it: leave "
                f"{argument('genetic_map')} out, or give "
                f"it to {call('build_panel')}",
            )
        with open_panel_file(path) as panels:
            yield panels
        return
    with temporary_folder() as folder:
        built = folder / "panel.spin"
        compile_panel_file(path, built, genetic_map, refine=refine)
        with open_spin_file(built) as parts:
            yield parts


def check_before_merging(
    panels: Sequence[str | Path], fits: Callable[[Sequence[ReferencePanel]], object]
) -> None:
    """Check what can be known before several panels of a chromosome are merged, which takes long.

    Parameters
    ----------
    panels : sequence of str or Path
        Panel files.
    fits : callable
        Raises InputError for what is not to be used with a panel. It is asked of one panel after the other;
        what fits none is refused in the words of the first.

    Raises
    ------
    InputError
        As `check_mergeable` and `fits`.
    """
    check_mergeable(panels)
    refused: InputError | None = None
    for path in panels:
        try:
            # it is told when it is done in earnest
            with open_spin_file(path) as parts, warnings.catch_warnings(action="ignore"):
                fits(parts)
            return
        except TooLittleMemory:  # whatever the panel is; the second time it would be no news
            raise
        except InputError as error:
            if refused is None or isinstance(refused, NoRecord):  # what is there says more
                refused = error
    assert refused is not None, "there are several"
    raise refused


def get_panel_paths(panel: PanelArgument) -> list[str | Path]:
    """The files of one or several panels, open or not."""
    if isinstance(panel, Sequence) and not isinstance(panel, str):
        return [get_panel_path(one) for one in panel]
    return [get_panel_path(panel)]


def require_open_panel(panel: object) -> None:
    """Raise InputError for a path where an open panel is needed."""
    if isinstance(panel, str | Path):
        raise InputError(
            "argument", f"panel must be an open one, such as Panel.open({str(panel)!r}), got a path"
        )


def get_panel_path(panel: ReferencePanel | str | Path) -> str | Path:
    """The file of a panel, open or not."""
    return panel if isinstance(panel, str | Path) else panel.path


def _to_be_compiled(path: Path) -> bool:
    """Whether a file that is no panel file is a VCF or BCF.

    One that is damaged or absent goes by its name, for the message; so does one that is named as a panel
    file, as it was mixed up with another.
    """
    if path.name.endswith(VARIANT_FILES):
        return True
    return not path.name.endswith(PANEL_FILES) and path.is_file() and starts_as_variant_file(path)


def _opener_of(path: str | Path) -> Opener | None:
    return next((opener for kind, opener in _OPENERS if has_magic(path, kind)), None)


def map_in_panel_error() -> InputError:
    """Return the error for a genetic map given with panel files."""
    return InputError(
        "arguments",
        f"panel files have their genetic maps in them: leave {argument('genetic_map')} out, or give it to "
        f"{call('build_panel')}",
    )
