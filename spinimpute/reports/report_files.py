"""The files of a report: a page, its charts, and a table for MultiQC."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from spinimpute.runtime.errors import InputError
from spinimpute.runtime.output_files import CannotWrite, words_in_braces, written_whole

if TYPE_CHECKING:
    from spinimpute.reports.multiqc import SampleTable
    from spinimpute.reports.page import Page

SUFFIX = "_mqc.json"  # of the files that MultiQC takes for custom content
# names of the charts that pages may have
ALLELE_FREQUENCIES, TYPED_SITES, SAMPLES = "allele-frequencies", "typed-sites", "samples"
BY_FREQUENCY, R2_OF_SITES, R2_ALONG = "quality-by-frequency", "r2-of-imputed-sites", "r2-along-chromosome"
CHARTS = (BY_FREQUENCY, R2_OF_SITES, ALLELE_FREQUENCIES, TYPED_SITES, R2_ALONG, SAMPLES)


@dataclass(frozen=True)
class ReportFiles:
    """Where a report goes; None for what is not wanted.

    Attributes
    ----------
    page : str, Path or None
        For the page (HTML).
    figures : str, Path or None
        A folder for the charts (SVG), which is made if need be.
    multiqc : str, Path or None
        For the table of samples that MultiQC shows (JSON).
    """

    page: str | Path | None = None
    figures: str | Path | None = None
    multiqc: str | Path | None = None

    @property
    def wanted(self) -> bool:
        """Whether there is any."""
        return (self.page, self.figures, self.multiqc) != (None, None, None)

    def to_check(self, others: Sequence[str | Path | None]) -> list[str | Path]:
        """The files that are to be checked before work starts (`check_outputs`).

        Parameters
        ----------
        others : sequence of str, Path or None
            Other outputs of the run.

        Returns
        -------
        list of str or Path
            Of the charts only what is there already: a folder that is to be made holds nothing.

        Raises
        ------
        InputError
            A name has something in braces; the folder has no name, cannot be made, or is to be an output,
            too; MultiQC would not find its file.
        """
        if self.multiqc is not None and not Path(self.multiqc).name.endswith(SUFFIX):
            raise InputError(
                "content",
                f"{self.multiqc}: MultiQC finds files by their names: give one that ends in {SUFFIX}, such "
                f"as spinimpute{SUFFIX}",
            )
        files = [path for path in (self.page, self.multiqc) if path is not None]
        for path in files if self.figures is None else [*files, self.figures]:
            if words := words_in_braces(path):
                raise InputError(
                    "content",
                    f"{path}: there is one report for all chromosomes, and {words[0]} would be part of its "
                    "name as it is: give a name without braces",
                )
        if self.figures is None:
            return files
        if str(self.figures) in ("", "-"):
            raise InputError(
                "content", f"{str(self.figures)!r} is no name for the folder of the figures: give one"
            )
        folder = Path(self.figures)
        if any(Path(path).resolve() == folder.resolve() for path in [*others, *files] if path is not None):
            raise InputError(
                "content", f"{folder} is to be a file and the folder of the figures: give two names"
            )
        if folder.is_dir():
            return files + [path for path in _charts_in(folder) if path.exists()]
        if folder.exists() or folder.is_symlink():
            raise InputError("content", f"{folder} is no folder; give one for the figures")
        if not folder.parent.is_dir():
            raise InputError(
                "mismatch",
                f"cannot make {folder}: there is no folder {folder.parent}; create it or choose another one",
            )
        return files

    def write(self, page: Page, table: SampleTable, beside: ExitStack) -> None:
        """Write all that is wanted, under names that become their own when `beside` ends.

        Parameters
        ----------
        page : Page
            What the report says.
        table : SampleTable
            What MultiQC shows.
        beside : ExitStack
            Of all files that get their names together.

        Raises
        ------
        InputError
            A file cannot be written.
        """
        if self.page is not None:
            page.write(beside.enter_context(written_whole(Path(self.page))))
        if self.multiqc is not None:
            table.write(beside.enter_context(written_whole(Path(self.multiqc))))
        if self.figures is not None:
            _write_figures(page, Path(self.figures), beside)


def _charts_in(folder: Path) -> list[Path]:
    return [folder / f"{name}.svg" for name in CHARTS]


def _write_figures(page: Page, folder: Path, beside: ExitStack) -> None:
    """A folder that was made stays if all is well; charts that were there and are not drawn are removed."""
    try:
        if not folder.is_dir():
            folder.mkdir()
            beside.push(lambda kind, *_: _remove(folder) if kind is not None else None)
    except OSError as error:
        raise CannotWrite(folder, error) from error
    drawn = {folder / f"{chart.name}.svg": chart for chart in page.charts}
    assert set(drawn) <= set(_charts_in(folder)), "the names of charts are known"
    # an earlier run's charts go last of all, when this one's files have their names; they stay if it fails
    earlier = set(_charts_in(folder)) - set(drawn)
    beside.push(lambda kind, *_: _unlink(earlier) if kind is None else None)
    for path, chart in drawn.items():
        partial = beside.enter_context(written_whole(path))
        partial.write_text(chart.svg, encoding="utf-8", errors="xmlcharrefreplace")


def _unlink(paths: set[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)


def _remove(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()
