"""The result of an evaluation as files in a folder, and as a table on the terminal."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from pathlib import Path

import numpy as np
import pandas as pd
from rich.table import Table

from spinimpute.evaluation.accuracy_plot import draw_accuracy, percent
from spinimpute.evaluation.result import BASELINE, IMPUTED, Evaluation
from spinimpute.runtime.errors import InputError, argument, printable
from spinimpute.runtime.output_files import written_whole

ACCURACY_TABLE = "accuracy.tsv"
ACCURACY_PLOT = "accuracy.png"
CALIBRATION_TABLE = "calibration.tsv"
SAMPLE_TABLE = "samples.tsv"
REPORT_FILES = (ACCURACY_TABLE, ACCURACY_PLOT, SAMPLE_TABLE, CALIBRATION_TABLE)


def check_out(out: Path, force: bool) -> None:
    """Refuse a folder that cannot take the reports, before any work is done.

    Parameters
    ----------
    out : Path
        The folder; it need not exist.
    force : bool
        Whether reports that are there may be replaced.

    Raises
    ------
    InputError
        `out` is a file, or holds a report and `force` is False.
    """
    if out.exists() and not out.is_dir():
        raise InputError("content", f"{out} is a file; give a folder for the reports")
    for name in REPORT_FILES:
        if not force and (out / name).exists():
            raise InputError(
                "exists", f"{out / name} already exists; use {argument('force', True)} to overwrite"
            )


def write_report(evaluation: Evaluation, out: Path, force: bool = False) -> None:
    """Write the tables and the plot into `out`, which is made if need be; all appear, or none.

    A calibration table of an earlier evaluation is removed when this one has none.

    Parameters
    ----------
    evaluation : Evaluation
        Tables and counts.
    out : Path
        The folder.
    force : bool
        Replace reports that are already there.

    Raises
    ------
    InputError
        `out` is a file or cannot be written to, or holds a report and `force` is False.
    """
    check_out(out, force)
    is_new = not out.exists()
    try:
        out.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:  # all get their names when all are written

            def partial(name: str) -> Path:
                return stack.enter_context(written_whole(out / name))

            _write_table(evaluation.by_frequency, partial(ACCURACY_TABLE))
            draw_accuracy(evaluation.accuracy_curves(), partial(ACCURACY_PLOT))
            names = evaluation.by_sample["sample"].map(printable)
            _write_table(evaluation.by_sample.assign(sample=names), partial(SAMPLE_TABLE))
            if evaluation.calibration is not None:
                _write_table(evaluation.calibration, partial(CALIBRATION_TABLE))
        if evaluation.calibration is None:
            (out / CALIBRATION_TABLE).unlink(missing_ok=True)
    except OSError as error:
        raise InputError(
            "write", f"cannot write the reports into {out}: {error.strerror or error}"
        ) from error
    finally:
        if is_new:
            with suppress(OSError):  # it holds what was written
                out.rmdir()


def _write_table(table: pd.DataFrame, path: Path) -> None:
    table.to_csv(path, sep="\t", index=False, float_format="%.6f", na_rep="nan", lineterminator="\n")


def summary_table(evaluation: Evaluation) -> Table:
    """A table for the terminal: accuracy per bin of frequency, with the baseline's pooled r² to compare."""
    frame = evaluation.by_frequency
    baseline, imputed = (frame[frame["imputer"] == name] for name in (BASELINE, IMPUTED))
    table = Table(
        title=f"{evaluation.scored_sites:,} sites, {len(evaluation.samples):,} samples{evaluation.where()}",
        caption=_caption(evaluation),
        caption_justify="left",
    )
    table.add_column("\nMAF", no_wrap=True)
    for name in ("\nsites", "baseline\nr²", "pooled\nr²", "mean\nr²", "\nconcordance", "missing\nsites"):
        table.add_column(name, justify="right", no_wrap=True)
    for guess, row in zip(baseline.to_dict("records"), imputed.to_dict("records"), strict=True):
        table.add_row(
            "all" if row["bin"] == "all" else percent(row["bin"]),
            f"{row['sites']:,}",
            _number(guess["pooled_r2"]),
            *(_number(row[measure]) for measure in ("pooled_r2", "mean_r2", "nrc")),
            f"{row['missing_sites']:,}",
        )
    return table


def _number(number: float) -> str:
    return "–" if np.isnan(number) else f"{number:.4f}"


def _caption(evaluation: Evaluation) -> str:
    """Caption of the table: counts of what is missing, and the calibration of the probabilities."""
    lines = []
    if evaluation.missing_sites:
        lines.append(f"{evaluation.missing_sites:,} sites not imputed: counted as the panel's frequency")
    if evaluation.missing_genotypes:
        lines.append(f"{evaluation.missing_genotypes:,} missing dosages: counted as the panel's frequency")
    if evaluation.unknown_genotypes:
        lines.append(f"{evaluation.unknown_genotypes:,} genotypes unknown in the truth: not scored")
    if evaluation.truth_only_samples:
        lines.append(f"{len(evaluation.truth_only_samples):,} samples of the truth are not imputed")
    if evaluation.samples_in_panel:
        n = len(evaluation.samples_in_panel)
        lines.append(f"{n:,} samples are in the panel too: do not trust these scores")
    if evaluation.calibration is not None:
        overall = evaluation.calibration.query("minor_alleles == 'any' and bin == 'all'")
        lines.append(f"calibration error of GP: {overall['calibration_error'].iloc[0]:.5f}")
    return "\n".join(lines)
