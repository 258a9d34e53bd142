"""Where an evaluation is written: a folder of tables, a page, files as of GLIMPSE2_concordance."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from spinimpute.evaluation.concordance_files import concordance_paths, write_concordance
from spinimpute.evaluation.html_report import evaluation_report
from spinimpute.evaluation.result import Evaluation
from spinimpute.evaluation.tables import REPORT_FILES, check_out, write_report
from spinimpute.quality.concordance import Concordance
from spinimpute.runtime.errors import InputError
from spinimpute.runtime.output_files import check_output, check_outputs, written_whole


@dataclass(frozen=True)
class Outputs:
    """The files that are wanted; None for what is not.

    Attributes
    ----------
    folder : Path or None
        For the tables and the plot; it is made if need be.
    page : Path or None
        For the report.
    concordance : str, path or None
        What the names of the files of concordance begin with.
    force : bool
        Whether files that are there may be replaced.
    """

    folder: Path | None
    page: Path | None
    concordance: str | os.PathLike[str] | None
    force: bool

    def check(self, inputs: Sequence[object]) -> None:
        """Refuse, before any work is done, what cannot be written.

        Parameters
        ----------
        inputs : sequence
            Paths that are read.

        Raises
        ------
        InputError
            A file is there and may not be replaced, is read from, has no folder, or two are the same.
        """
        files = [] if self.page is None else [self.page]
        files += [] if self.concordance is None else concordance_paths(self.concordance)
        if self.folder is None:
            check_outputs(files, self.force, inputs)
            return
        check_out(self.folder, self.force)
        folder = self.folder.resolve()
        tables = {folder / name: name for name in REPORT_FILES}
        for path in tables:
            if path.exists():
                check_output(path, self.force, inputs)
        for file in files:
            if file.resolve() == folder:
                raise InputError(
                    "write", f"{file} cannot be written: it is the folder of the tables; give another name"
                )
            if (name := tables.get(file.resolve())) is not None:
                raise InputError("write", f"{file} cannot be written: {name} goes there; give another name")
        to_be_made = not folder.exists()
        check_outputs(
            [file for file in files if not (to_be_made and file.parent.resolve() == folder)],
            self.force,
            inputs,
        )

    def write(
        self, evaluation: Evaluation, concordance: Concordance | None, imputed: Path, truth: Path
    ) -> None:
        """Write all that is wanted.

        Parameters
        ----------
        evaluation : Evaluation
            Tables and counts.
        concordance : Concordance or None
            The tallies, where their files are wanted.
        imputed, truth : Path
            What was compared, for the page.

        Raises
        ------
        InputError
            A file cannot be written.
        """
        if self.folder is not None:
            write_report(evaluation, self.folder, self.force)
        if self.concordance is not None and concordance is not None:
            write_concordance(concordance, evaluation.samples, self.concordance)
        if self.page is not None:
            with written_whole(self.page) as partial:
                evaluation_report(evaluation, imputed.name, truth.name).write(partial)
