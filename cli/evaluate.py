"""`spinimpute evaluate`"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from spinimpute.runtime.errors import InputError

from .messages import say
from .options import (
    Piped,
    force_option,
    progress_bar,
    quiet_option,
    regions_options,
    sample_names,
)

NO_FOLDER = "--out - is no folder's name; the table is printed on standard output without --out"


def _check_outputs(params: Mapping[str, Any]) -> None:
    """Refuse what cannot be written, before standard input is read."""
    from spinimpute.evaluation.files import EvaluationFiles

    if params["out"] == "-":
        raise InputError("content", NO_FOLDER)
    out, report = (None if params[name] is None else Path(params[name]) for name in ("out", "report"))
    EvaluationFiles(out, report, params["concordance"], params["force"]).check([])


@click.command(cls=Piped, check=_check_outputs)
@click.option("--truth", required=True, metavar="FILE", help="True genotypes: VCF, VCF.gz or BCF; -: stdin.")
@click.option(
    "--imputed", required=True, metavar="FILE", help="Imputed file with DS, HDS, GP or GT; -: stdin."
)
@click.option("--panel", required=True, metavar="FILE", help="The panel: .spin, VCF or BCF.")
@click.option(
    "--typed",
    metavar="FILE",
    help="The array that was imputed: its sites do not count. Without it, as for sequenced samples, all do.",
)
@click.option("--out", "-o", metavar="FOLDER", help="Write accuracy.tsv, .png, samples.tsv, calibration.tsv.")
@click.option("--report", metavar="FILE", help="Write a page (HTML).")
@click.option("--bins", metavar="A,B,...", help="Bounds of the minor allele frequency bins, from 0 to 0.5.")
@click.option(
    "--concordance",
    metavar="PREFIX",
    help="Write the files of GLIMPSE2_concordance, for MultiQC: PREFIX.error.spl.txt.gz and four more.",
)
@regions_options("Compare these sites only.")
@click.option("--samples", metavar="A,B,...", help="Compare these samples only.")
@click.option("--samples-file", metavar="FILE", help="Compare these samples only, one name a line.")
@force_option
@quiet_option
def evaluate(
    truth: str,
    imputed: str,
    panel: str,
    typed: str | None,
    out: str | None,
    report: str | None,
    bins: str | None,
    concordance: str | None,
    regions: tuple[str, ...],
    regions_file: str | None,
    samples: str | None,
    samples_file: str | None,
    force: bool,
    quiet: bool,
) -> None:
    """Compare imputed with true genotypes, by minor allele frequency.

    Beside the imputed file stands a predictor that knows the panel's allele frequencies and nothing else.
    """
    from spinimpute.evaluation.evaluate import evaluate as run
    from spinimpute.evaluation.result import summary_table
    from spinimpute.quality.metrics import DEFAULT_BINS

    if out == "-":
        raise InputError("content", NO_FOLDER)
    bounds = DEFAULT_BINS if bins is None else _bounds(bins)
    with progress_bar("evaluating", quiet) as progress:
        result = run(
            truth,
            imputed,
            panel,
            typed,
            out=out,
            bins=bounds,
            force=force,
            report=report,
            regions=regions or None,
            samples=sample_names(samples, samples_file),
            concordance=concordance,
            regions_file=regions_file,
            progress=progress,
        )
    if not quiet:
        from rich.console import Console

        Console().print(summary_table(result))
        for reason, count in result.left_out.items():
            say(f"{count} left out: {reason}")
        if out is not None:
            say(f"report: {out}")
        if concordance is not None:
            say(f"concordance: {concordance}.*.txt.gz")


def _bounds(text: str) -> tuple[float, ...]:
    try:
        bounds = tuple(float(part) for part in text.split(","))
    except ValueError as error:
        raise InputError("content", f"--bins {text}: not numbers with commas between them") from error
    increasing = all(a < b for a, b in itertools.pairwise(bounds))
    if len(bounds) < 2 or not increasing or bounds[0] < 0 or bounds[-1] > 0.5:
        raise InputError("content", f"--bins {text}: give at least two increasing numbers between 0 and 0.5")
    return bounds
