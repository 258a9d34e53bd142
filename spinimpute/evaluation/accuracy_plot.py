"""accuracy.png: r2 against minor allele frequency, a line for each imputer."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from spinimpute.evaluation.result import BASELINE, AccuracyCurves

TITLES = {"pooled_r2": "all genotypes of a bin", "mean_r2": "mean over variants"}
STYLES = {BASELINE: {"color": "0.55", "linestyle": "--", "marker": "s"}}


def draw_accuracy(curves: AccuracyCurves, path: Path) -> None:
    """Plot pooled and mean per-variant r2.

    Bins are spaced evenly, which is about logarithmic in frequency; an undefined r2 leaves a gap.

    Parameters
    ----------
    curves : AccuracyCurves
        r2 by minor allele frequency, of each imputer.
    path : Path
        The file to write, a PNG whatever its suffix.

    Raises
    ------
    OSError
        The file cannot be written.
    """
    # imported here because it takes a second, and without pyplot, because that needs a display or a backend
    # and leaves its state to the caller
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    place = np.arange(len(curves.bins))
    names = [f"{percent(label)}\n{n:,} sites" for label, n in zip(curves.bins, curves.sites, strict=True)]
    figure = Figure(figsize=(9, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    for axes, (measure, title) in zip(figure.subplots(1, 2, sharey=True), TITLES.items(), strict=True):
        for imputer, r2 in curves.r2[measure].items():
            style = STYLES.get(imputer, {"color": "C0", "linestyle": "-", "marker": "o"})
            axes.plot(place, r2, label=imputer, **style)
        axes.set_xticks(place, names, rotation=45, ha="right", fontsize=8)
        axes.set_ylim(-0.02, 1.02)
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("minor allele frequency in the panel")
        axes.grid(axis="y", alpha=0.3)
    figure.axes[0].set_ylabel("dosage r²")
    figure.axes[0].legend(loc="upper left", frameon=False)
    # without a Software entry the bytes do not depend on matplotlib's version string
    figure.savefig(path, format="png", dpi=120, metadata={"Software": None})


def percent(label: str) -> str:
    """The label of a frequency bin in percent: "(0.001,0.002]" becomes "0.1–0.2 %"."""
    low, high = (100 * float(edge) for edge in label.strip("(]").split(","))
    return f"{low:g}–{high:g} %" if low else f"≤ {high:g} %"
