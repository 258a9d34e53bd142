"""The result of an evaluation as tables, as a plot, and on the terminal."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from rich.table import Table

from spinimpute.errors import InputError

if TYPE_CHECKING:
    from spinimpute.evaluation.evaluate import Evaluation

ACCURACY_TABLE = "accuracy.tsv"
ACCURACY_PLOT = "accuracy.png"
CALIBRATION_TABLE = "calibration.tsv"
SAMPLE_TABLE = "samples.tsv"
REPORT_FILES = (ACCURACY_TABLE, ACCURACY_PLOT, SAMPLE_TABLE, CALIBRATION_TABLE)
STYLES = {"allele-frequency": {"color": "0.55", "linestyle": "--", "marker": "s"}}


def check_out(out: Path, force: bool) -> None:
    """Refuse a folder that cannot take the reports, before any work is done.

    Raises:
        InputError: `out` is a file, or holds a report and `force` is False.
    """
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file; give a folder for the reports")
    for name in REPORT_FILES:
        if not force and (out / name).exists():
            raise InputError(f"{out / name} already exists; use --force to overwrite")


def write_report(evaluation: Evaluation, out: Path, force: bool = False) -> None:
    """Write the tables and the plot into `out`, which is made if need be; each appears whole or not at all.

    A calibration table of an earlier evaluation is removed when this one has none.

    Raises:
        InputError: `out` is a file or cannot be written to, or holds a report and `force` is False.
    """
    check_out(out, force)
    try:
        out.mkdir(parents=True, exist_ok=True)
        _write(out / ACCURACY_TABLE, lambda path: _write_table(evaluation.by_frequency, path))
        _write(out / ACCURACY_PLOT, lambda path: draw_accuracy(evaluation.by_frequency, path))
        _write(out / SAMPLE_TABLE, lambda path: _write_table(evaluation.by_sample, path))
        if evaluation.calibration is None:
            (out / CALIBRATION_TABLE).unlink(missing_ok=True)
        else:
            calibration = evaluation.calibration
            _write(out / CALIBRATION_TABLE, lambda path: _write_table(calibration, path))
    except OSError as error:
        raise InputError(f"cannot write the reports into {out}: {error.strerror or error}") from error


def _write(path: Path, write: Callable[[Path], None]) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        write(temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _write_table(table: pd.DataFrame, path: Path) -> None:
    table.to_csv(path, sep="\t", index=False, float_format="%.6f", na_rep="nan", lineterminator="\n")


def draw_accuracy(by_frequency: pd.DataFrame, path: Path) -> None:
    """Plot pooled and mean per-variant r² against minor allele frequency, one line per imputer, as PNG.

    Bins are spaced evenly, which is about logarithmic in frequency; an undefined r² leaves a gap.

    Args:
        by_frequency: as in `Evaluation`.
        path: where to write, whatever its suffix.
    """
    # imported here because it takes a second, and without pyplot, because that needs a display or a backend
    # and leaves its state to the caller
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    binned = by_frequency[by_frequency["bin"] != "all"]
    labels = list(dict.fromkeys(binned["bin"]))
    figure = Figure(figsize=(9, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    for axes, (column, title) in zip(
        figure.subplots(1, 2, sharey=True),
        [("pooled_r2", "all genotypes of a bin"), ("mean_r2", "mean over variants")],
        strict=True,
    ):
        for imputer, rows in binned.groupby("imputer", sort=False):
            r2 = rows.set_index("bin")[column].reindex(labels).to_numpy(dtype=float)
            style = STYLES.get(str(imputer), {"color": "C0", "linestyle": "-", "marker": "o"})
            axes.plot(np.arange(len(labels)), r2, label=str(imputer), **style)
        sites = binned.drop_duplicates("bin").set_index("bin")["sites"]
        axes.set_xticks(
            np.arange(len(labels)),
            [f"{_percent(label)}\n{sites[label]:,} sites" for label in labels],
            rotation=45,
            ha="right",
            fontsize=8,
        )
        axes.set_ylim(-0.02, 1.02)
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("minor allele frequency in the panel")
        axes.grid(axis="y", alpha=0.3)
    figure.axes[0].set_ylabel("dosage r²")
    figure.axes[0].legend(loc="upper left", frameon=False)
    # without a Software entry the bytes do not depend on matplotlib's version string
    figure.savefig(path, format="png", dpi=120, metadata={"Software": None})


def _percent(label: str) -> str:
    """ "(0.001,0.002]" as "0.1-0.2 %"."""
    low, high = (100 * float(edge) for edge in label.strip("(]").split(","))
    return f"{low:g}–{high:g} %" if low else f"≤ {high:g} %"


def summary_table(evaluation: Evaluation) -> Table:
    """A table for the terminal: accuracy per bin of frequency, with the baseline's pooled r² to compare."""
    frame = evaluation.by_frequency
    baseline, imputed = (frame[frame["imputer"] == name] for name in frame["imputer"].unique())
    table = Table(
        title=f"{evaluation.scored_sites:,} sites, {len(evaluation.samples):,} samples",
        caption=_caption(evaluation),
        caption_justify="left",
    )
    table.add_column("\nMAF", no_wrap=True)
    for name in ("\nsites", "baseline\nr²", "pooled\nr²", "mean\nr²", "\nconcordance", "missing\nsites"):
        table.add_column(name, justify="right", no_wrap=True)
    for guess, row in zip(baseline.to_dict("records"), imputed.to_dict("records"), strict=True):
        table.add_row(
            "all" if row["bin"] == "all" else _percent(row["bin"]),
            f"{row['sites']:,}",
            _number(guess["pooled_r2"]),
            *(_number(row[measure]) for measure in ("pooled_r2", "mean_r2", "nrc")),
            f"{row['missing_sites']:,}",
        )
    return table


def _number(number: float) -> str:
    return "–" if np.isnan(number) else f"{number:.4f}"


def _caption(evaluation: Evaluation) -> str:
    """What a reader of the table must know: what is missing, and how reliable the probabilities are."""
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
