"""`spinimpute evaluate`: measure the accuracy of imputed genotypes, given the true ones."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from spinimpute.runtime.errors import InputError

from .commands import PipedCommand, option
from .messages import say
from .options import force_option, progress_bar, quiet_option, regions_options, sample_names


def _check_folder(out: str | None) -> None:
    """Raise InputError if --out names standard output."""
    if out == "-":
        raise InputError(
            "argument", "--out is a folder, got -. Without --out the table is printed on standard output"
        )


def _check_outputs(params: Mapping[str, Any]) -> None:
    """Raise InputError if an output cannot be written. This runs before standard input is read."""
    from spinimpute.evaluation.files import EvaluationFiles

    _check_folder(params["out"])
    out, report = (None if params[name] is None else Path(params[name]) for name in ("out", "report"))
    EvaluationFiles(out, report, params["concordance"], params["force"]).check([])


@click.command(cls=PipedCommand, check=_check_outputs)
@option("--truth", required=True, metavar="FILE", help="True genotypes: VCF or BCF, or -.", group="Input")
@option(
    "--imputed",
    required=True,
    metavar="FILE",
    help="Imputed VCF or BCF with DS, HDS, GP or GT, or -.",
    group="Input",
)
@option(
    "--panel",
    required=True,
    metavar="FILE",
    help="Reference panel (.spin, VCF, BCF or M3VCF).",
    group="Panel",
)
@option(
    "--typed",
    metavar="FILE",
    help="Target that was imputed, to leave its sites out. Default: all sites are compared, as for sequenced "
    "samples.",
    group="Input",
)
@option(
    "--out",
    "-o",
    metavar="FOLDER",
    help="Folder for accuracy.tsv, accuracy.png, samples.tsv and calibration.tsv.",
    group="Output",
)
@option("--report", metavar="FILE", help="Page with the results (HTML).", group="Output")
@option(
    "--bins",
    metavar="A,B,...",
    help="Bounds of the minor allele frequency bins, from 0 to 0.5.",
    group="Output",
)
@option(
    "--concordance",
    metavar="PREFIX",
    help="Files in the format of GLIMPSE2_concordance, for MultiQC: PREFIX.error.spl.txt.gz and four more.",
    group="Output",
)
@regions_options("Region to compare.")
@option("--samples", metavar="A,B,...", help="Samples to compare.", group="Input")
@option("--samples-file", metavar="FILE", help="List of the samples to compare, one per line.", group="Input")
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

    The baseline predicts from the panel's allele frequencies alone.
    """
    from spinimpute.evaluation.evaluate import evaluate as run
    from spinimpute.evaluation.result import summary_table
    from spinimpute.quality.metrics import DEFAULT_BINS

    _check_folder(out)
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
    """Return the frequency bounds of --bins. Raises InputError unless they increase from 0 to 0.5."""
    try:
        bounds = tuple(float(part) for part in text.split(","))
    except ValueError as error:
        raise InputError("argument", f"--bins {text}: not numbers separated by commas") from error
    increasing = all(a < b for a, b in itertools.pairwise(bounds))
    if len(bounds) < 2 or not increasing or bounds[0] < 0 or bounds[-1] > 0.5:
        raise InputError("argument", f"--bins {text}: give at least two increasing numbers between 0 and 0.5")
    return bounds
