"""Output files of a report: the HTML page, the charts as SVG files, and a table for MultiQC."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from spinimpute.runtime.errors import InputError
from spinimpute.runtime.output_files import CannotWrite, atomic_write, find_placeholders
from spinimpute.runtime.packages import check_package

if TYPE_CHECKING:
    from spinimpute.reports.multiqc import SampleTable
    from spinimpute.reports.page import Page

SUFFIX = "_mqc.json"  # MultiQC recognizes custom content by this ending
# file names of the charts, without suffix
ALLELE_FREQUENCIES, TYPED_SITES, SAMPLES = "allele-frequencies", "typed-sites", "samples"
BY_FREQUENCY, R2_OF_SITES, R2_ALONG = "quality-by-frequency", "r2-of-imputed-sites", "r2-along-chromosome"
CHARTS = (BY_FREQUENCY, R2_OF_SITES, ALLELE_FREQUENCIES, TYPED_SITES, R2_ALONG, SAMPLES)


@dataclass(frozen=True)
class ReportFiles:
    """The output files of a report. None means that the output is not requested."""

    page: str | Path | None = None  # HTML page
    figures: str | Path | None = None  # folder for the charts (SVG), created if it does not exist
    multiqc: str | Path | None = None  # table for MultiQC (JSON)

    @property
    def is_requested(self) -> bool:
        """Whether any output is requested."""
        return (self.page, self.figures, self.multiqc) != (None, None, None)

    def paths_to_check(self, other_outputs: Sequence[str | Path | None]) -> list[str | Path]:
        """Check the names, and return the files that `check_outputs` must check before the run starts.

        Of the charts, only existing files are returned. Raises InputError if a name has a placeholder in
        braces, if the folder cannot be created or has the name of an output file, if MultiQC would not
        find its table, or if Matplotlib is needed and not installed. `other_outputs` are the other outputs of
        the run.
        """
        if (self.page, self.figures) != (None, None):
            check_package("matplotlib", "a report")
        if self.multiqc is not None and not Path(self.multiqc).name.endswith(SUFFIX):
            raise InputError(
                "argument",
                f"{self.multiqc}: MultiQC finds files by name. Give a name that ends in {SUFFIX}, such as "
                f"spinimpute{SUFFIX}.",
            )
        files = [path for path in (self.page, self.multiqc) if path is not None]
        for path in files if self.figures is None else [*files, self.figures]:
            if words := find_placeholders(path):
                raise InputError(
                    "argument",
                    f"{path}: {words[0]} is not replaced, because all chromosomes have one report. Give a "
                    "name without braces.",
                )
        if self.figures is None:
            return files
        if str(self.figures) in ("", "-"):
            raise InputError(
                "argument",
                f"{str(self.figures)!r} is not a folder for the figures. Give the name of a folder.",
            )
        folder = Path(self.figures)
        if any(
            Path(path).resolve() == folder.resolve() for path in [*other_outputs, *files] if path is not None
        ):
            raise InputError(
                "arguments", f"{folder} is both a file and the folder of the figures. Give two names."
            )
        if folder.is_dir():
            return files + [path for path in _chart_paths(folder) if path.exists()]
        if folder.exists() or folder.is_symlink():
            raise InputError("argument", f"{folder} is not a folder. Give a folder for the figures.")
        if not folder.parent.is_dir():
            raise InputError(
                "not-found",
                f"{folder} cannot be made: there is no folder {folder.parent}. Make it or choose another.",
            )
        return files

    def write(self, page: Page, table: SampleTable, stack: ExitStack) -> None:
        """Write all requested files under temporary names. They are renamed when `stack` closes."""
        if self.page is not None:
            page.write(stack.enter_context(atomic_write(Path(self.page))))
        if self.multiqc is not None:
            table.write(stack.enter_context(atomic_write(Path(self.multiqc))))
        if self.figures is not None:
            _write_figures(page, Path(self.figures), stack)


def _chart_paths(folder: Path) -> list[Path]:
    return [folder / f"{name}.svg" for name in CHARTS]


def _write_figures(page: Page, folder: Path, stack: ExitStack) -> None:
    """Write the charts of a report. Delete charts of an earlier report that this report does not have.

    If the run fails, a new folder is deleted.
    """
    try:
        if not folder.is_dir():
            folder.mkdir()
            stack.push(lambda kind, *_: _remove(folder) if kind is not None else None)
    except OSError as error:
        raise CannotWrite(folder, error) from error
    chart_of_path = {folder / f"{chart.name}.svg": chart for chart in page.charts}
    assert set(chart_of_path) <= set(_chart_paths(folder)), "CHARTS has the names of all charts"
    # Charts of an earlier report are deleted last, after the new files are renamed: a failed run keeps them.
    earlier = set(_chart_paths(folder)) - set(chart_of_path)
    stack.push(lambda kind, *_: _unlink(earlier) if kind is None else None)
    for path, chart in chart_of_path.items():
        chart.write(stack.enter_context(atomic_write(path)))


def _unlink(paths: set[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)


def _remove(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()
