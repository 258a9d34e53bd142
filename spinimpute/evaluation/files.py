"""Output files of `evaluate`: tables and a plot in a folder, an HTML report, GLIMPSE2_concordance files."""

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from spinimpute.evaluation.concordance_files import concordance_paths, write_concordance
from spinimpute.evaluation.html_report import evaluation_report
from spinimpute.evaluation.result import BASELINE, AccuracyCurves, Evaluation
from spinimpute.quality.concordance import Concordance
from spinimpute.quality.leave_one_out import write_table
from spinimpute.quality.metrics import percent
from spinimpute.reports.charts import fit_tick_labels
from spinimpute.runtime.errors import InputError
from spinimpute.runtime.output_files import atomic_write, check_output, check_outputs
from spinimpute.runtime.packages import check_package, is_installed

ACCURACY_TABLE = "accuracy.tsv"
ACCURACY_PLOT = "accuracy.png"
CALIBRATION_TABLE = "calibration.tsv"
SAMPLE_TABLE = "samples.tsv"
MULTIALLELIC_TABLE = "multiallelic.tsv"
MULTIALLELIC_CALIBRATION_TABLE = "multiallelic_calibration.tsv"
FOLDER_FILES = (
    ACCURACY_TABLE, ACCURACY_PLOT, SAMPLE_TABLE, CALIBRATION_TABLE, MULTIALLELIC_TABLE,
    MULTIALLELIC_CALIBRATION_TABLE,
)  # fmt: skip

_TITLES = {"pooled_r2": "all genotypes of a bin", "mean_r2": "mean over variants"}
_STYLES = {BASELINE: {"color": "0.55", "linestyle": "--", "marker": "s"}}
_DEFAULT_STYLE = {"color": "C0", "linestyle": "-", "marker": "o"}


@dataclass(frozen=True)
class EvaluationFiles:
    """The files to write. None means that the output is not requested."""

    folder: Path | None  # for the tables and the plot
    page: Path | None  # HTML report
    concordance: str | os.PathLike[str] | None  # prefix of the files of GLIMPSE2_concordance
    force: bool  # replace existing files
    names: tuple[str, ...] = FOLDER_FILES  # of the files in the folder

    def check(self, inputs: Sequence[object]) -> None:
        """Check the outputs before the computation starts.

        Raises InputError if an output exists and `force` is not set, if it is one of the inputs, if its
        folder does not exist, if two outputs have the same name, or if the report cannot be drawn.
        """
        if self.page is not None:
            check_package("matplotlib", "a report")
        files = [] if self.page is None else [self.page]
        files += [] if self.concordance is None else concordance_paths(self.concordance)
        if self.folder is None:
            check_outputs(files, self.force, inputs)
            return
        if self.folder.exists() and not self.folder.is_dir():
            raise InputError("argument", f"{self.folder} is a file. Give a folder for the tables.")
        for name in self.names:
            if (self.folder / name).exists():
                check_output(self.folder / name, self.force, inputs)
        folder = self.folder.resolve()
        tables = {folder / name: name for name in self.names}
        for file in files:
            if file.resolve() == folder:
                raise InputError("arguments", f"{file} is also the folder of the tables. Give another name.")
            table = tables.get(file.resolve())
            if table is not None:
                raise InputError(
                    "arguments", f"{file} is also the name of the table {table}. Give another name."
                )
        is_new = not folder.exists()
        check_outputs(
            [file for file in files if not (is_new and file.parent.resolve() == folder)], self.force, inputs
        )

    def write(
        self, evaluation: Evaluation, concordance: Concordance | None, imputed: Path, truth: Path
    ) -> None:
        """Write all requested files. The report mentions the names of the files `imputed` and `truth`."""
        if self.folder is not None:
            draws = is_installed("matplotlib")
            tables = {
                ACCURACY_TABLE: evaluation.by_frequency,
                SAMPLE_TABLE: evaluation.by_sample,
                CALIBRATION_TABLE: evaluation.calibration,
                MULTIALLELIC_TABLE: evaluation.multiallelic,
                MULTIALLELIC_CALIBRATION_TABLE: evaluation.multiallelic_calibration,
            }
            curves = evaluation.accuracy_curves()
            draw = {ACCURACY_PLOT: partial(draw_accuracy, curves) if draws else None}
            write_folder(self.folder, table_writers(tables) | draw)
            if not draws:
                warnings.warn(
                    f"{ACCURACY_PLOT} is not drawn, because matplotlib is not installed. Install it: "
                    "pip install 'spinimpute[charts]'",
                    stacklevel=3,
                )
        if self.concordance is not None and concordance is not None:
            write_concordance(concordance, evaluation.samples, self.concordance)
        if self.page is not None:
            with atomic_write(self.page) as page:
                evaluation_report(evaluation, imputed.name, truth.name).write(page)


def table_writers(
    tables: Mapping[str, list[dict[str, Any]] | None],
) -> dict[str, Callable[[Path], None] | None]:
    """Return the functions for `write_folder` that write tables; None for a table that is None or empty."""
    return {name: partial(write_table, rows=rows) if rows else None for name, rows in tables.items()}


def write_folder(folder: Path, writers: Mapping[str, Callable[[Path], None] | None]) -> None:
    """Write the files of a folder by name, each with its function. If one cannot be written, none is.

    The folder is created if it does not exist. If the function of a file is None, the file of an earlier
    evaluation is deleted. Raises InputError if a file cannot be written.
    """
    is_new = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:  # renames all files from their temporary names after the last is written
            for name, write in writers.items():
                if write is not None:
                    write(stack.enter_context(atomic_write(folder / name)))
        for name, write in writers.items():
            if write is None:
                (folder / name).unlink(missing_ok=True)
    except OSError as error:
        raise InputError(
            "write", f"{folder}: the tables cannot be written: {error.strerror or error}"
        ) from error
    finally:
        if is_new:
            with suppress(OSError):  # fails if the folder is not empty, because the files were written
                folder.rmdir()


def draw_accuracy(curves: AccuracyCurves, path: Path) -> None:
    """Plot pooled and mean r2 against minor allele frequency as a PNG file, with a line for each imputer.

    Bins are evenly spaced on the axis, so the axis is roughly logarithmic in frequency. A line is interrupted
    where r2 is undefined.
    """
    # Imported here because Matplotlib takes a second to import. pyplot is not used, because it needs a
    # display or a backend and keeps global state.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    x = np.arange(len(curves.bins))
    names = [f"{percent(label)}\n{n:,} sites" for label, n in zip(curves.bins, curves.sites, strict=True)]
    figure = Figure(figsize=(9, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    for axes, (measure, title) in zip(figure.subplots(1, 2, sharey=True), _TITLES.items(), strict=True):
        for imputer, r2 in curves.r2[measure].items():
            axes.plot(x, r2, label=imputer, **_STYLES.get(imputer, _DEFAULT_STYLE))
        axes.set_xticks(x, names, fontsize=8)
        axes.set_ylim(-0.02, 1.02)
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("minor allele frequency in the panel")
        axes.grid(axis="y", alpha=0.3)
    figure.axes[0].set_ylabel("dosage r²")
    figure.axes[0].legend(loc="upper left", frameon=False)
    for axes in figure.axes:
        fit_tick_labels(axes)
    # without a Software entry the bytes do not depend on matplotlib's version string
    figure.savefig(path, format="png", dpi=120, metadata={"Software": None})
