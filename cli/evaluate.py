"""`spinimpute evaluate`: measure the accuracy of imputed genotypes, given the true ones."""

from __future__ import annotations

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

    if params["labels"] is not None or params["types"] is not None:
        return  # tables of labels are not read from standard input
    _check_folder(params["out"])
    out, report = (None if params[name] is None else Path(params[name]) for name in ("out", "report"))
    EvaluationFiles(out, report, params["concordance"], params["force"]).check([])


@click.command(cls=PipedCommand, check=_check_outputs)
@option("--truth", metavar="FILE", help="True genotypes: VCF or BCF, or -.", group="Input")
@option("--imputed", metavar="FILE", help="Imputed VCF or BCF with DS, HDS, GP or GT, or -.", group="Input")
@option("--panel", metavar="FILE", help="Reference panel (.spin, VCF, BCF or M3VCF).", group="Panel")
@option(
    "--typed",
    metavar="FILE",
    help="Target that was imputed, to leave its sites out. Default: all sites are compared, as for sequenced "
    "samples.",
    group="Input",
)
@option(
    "--labels",
    metavar="FILE",
    help="Table of imputed labels, such as HLA types ('impute --labels'), in place of --imputed.",
    group="Input",
)
@option(
    "--types",
    metavar="FILE",
    help="Table of true labels, as for 'panel labels', in place of --truth.",
    group="Input",
)
@option(
    "--populations",
    metavar="FILE",
    help="Table with the columns sample and population: accuracy of labels by population.",
    group="Input",
)
@option(
    "--out",
    "-o",
    metavar="FOLDER",
    help="Folder for accuracy.tsv, accuracy.png, samples.tsv and calibration.tsv, or for tables of labels.",
    group="Output",
)
@option("--report", metavar="FILE", help="Page with the results (HTML).", group="Output")
@option(
    "--bins",
    metavar="A,B,...",
    help="Bounds of the minor allele frequency bins, from 0 to 0.5; with --labels, bounds of the frequencies "
    "of labels, from 0 to 1.",
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
    truth: str | None,
    imputed: str | None,
    panel: str | None,
    typed: str | None,
    labels: str | None,
    types: str | None,
    populations: str | None,
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

    With --labels and --types, compare imputed labels, such as HLA types, with true ones.
    """
    genotype_inputs = {"--truth": truth, "--imputed": imputed, "--panel": panel}
    _check_folder(out)
    if labels is not None or types is not None:
        others = genotype_inputs | {"--typed": typed, "--report": report, "--concordance": concordance}
        others |= {"--region": ",".join(regions) or None, "--regions-file": regions_file}
        _evaluate_labels(others, labels, types, populations, out, bins, samples, samples_file, force, quiet)
        return
    if populations is not None:
        raise InputError("arguments", "--populations needs --labels and --types")
    if absent := [name for name, value in genotype_inputs.items() if value is None]:
        raise InputError(
            "arguments",
            f"{absent[0]} is missing. Give --truth, --imputed and --panel to compare genotypes, or --labels "
            "and --types to compare labels",
        )
    from spinimpute.evaluation.evaluate import evaluate as run
    from spinimpute.evaluation.result import summary_table
    from spinimpute.quality.metrics import DEFAULT_BINS

    assert truth is not None
    assert imputed is not None
    assert panel is not None
    with progress_bar("evaluating", quiet) as progress:
        result = run(
            truth,
            imputed,
            panel,
            typed,
            out=out,
            bins=DEFAULT_BINS if bins is None else _bounds(bins),
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


def _evaluate_labels(
    others: Mapping[str, object],
    labels: str | None,
    types: str | None,
    populations: str | None,
    out: str | None,
    bins: str | None,
    samples: str | None,
    samples_file: str | None,
    force: bool,
    quiet: bool,
) -> None:
    """Compare labels. `others` are the options that must not be given."""
    if labels is None or types is None:
        given, absent = ("--types", "--labels") if labels is None else ("--labels", "--types")
        raise InputError("arguments", f"{given} needs {absent}: give the imputed and the true labels")
    if refused := [name for name, value in others.items() if value is not None]:
        raise InputError("arguments", f"{refused[0]} cannot be used with --labels and --types")
    from spinimpute.evaluation.labels import LABEL_BINS, evaluate_labels, label_tables

    result = evaluate_labels(
        labels,
        types,
        populations,
        out,
        LABEL_BINS if bins is None else _bounds(bins),
        force,
        sample_names(samples, samples_file),
    )
    if not quiet:
        from rich.console import Console

        for table in label_tables(result):
            Console().print(table)
        if out is not None:
            say(f"report: {out}")


def _bounds(text: str) -> tuple[float, ...]:
    """Return the numbers of --bins."""
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError as error:
        raise InputError("argument", f"--bins {text}: not numbers separated by commas") from error
