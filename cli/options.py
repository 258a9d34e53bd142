"""Options that several commands share, functions that read their values, progress bars and summaries."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from spinimpute.runtime.errors import InputError
from spinimpute.runtime.unpacking import why_unreadable

from .commands import Count, Decorator, Function, combine_options, option
from .messages import say, warn

if TYPE_CHECKING:
    from spinimpute.panels.formats.detection import PanelSource
    from spinimpute.pipeline.ligate import LigationSummary
    from spinimpute.pipeline.merging.merge import MergeSummary
    from spinimpute.quality.summary import ImputationSummary, SequencedSummary


def out_option(text: str) -> Decorator:
    """Return the option --out with the given help text."""
    return option("--out", "-o", required=True, metavar="FILE", help=text, group="Output")


def regions_options(text: str) -> Decorator:
    """Return --region and --regions-file. The command receives their values as `regions`, `regions_file`.

    `text` is the help text of --region.
    """
    return combine_options(
        option(
            "--region",
            "-r",
            "regions",
            metavar="CHR[:FROM-TO]",
            multiple=True,
            help=f"{text} Repeat for several regions.",
            group="Region",
        ),
        option(
            "--regions-file",
            "-R",
            metavar="FILE",
            help="Regions in a BED file (0-based, half-open) in place of --region.",
            group="Region",
        ),
    )


output_type_option = option(
    "-O",
    "--output-type",
    type=click.Choice(["b", "z", "v"]),
    help="Output format: BCF, VCF.gz or VCF. Default: by the suffix of --out.",
    group="Output",
)
log_option = option(
    "--log", metavar="FILE", help="Log file of all messages, with timestamps.", group="Output"
)
force_option = option("--force", "-f", is_flag=True, help="Overwrite existing output.", group="Output")
force_match_option = option(
    "--force",
    "-f",
    is_flag=True,
    help="Overwrite existing output, and accept a target that does not fit the panel.",
    group="Output",
)
quiet_option = option("--quiet", "-q", is_flag=True, help="Print no summary and no progress.", group="Output")
map_option = option(
    "--map",
    "genetic_map",
    metavar="FILE",
    help="Genetic map (PLINK, SHAPEIT or HapMap format). Default: the panel's map, or 1 cM/Mb.",
    group="Panel",
)
sex_option = option(
    "--sex",
    metavar="FILE",
    help="Sex of the samples, for chromosome X: lines of name and sex (M, F, 1, 2), or a .fam file. Default: "
    "inferred from the calls.",
    group="Input",
)
chain_option = option(
    "--chain",
    metavar="FILE",
    help="Chain file (UCSC) that lifts the target over to the panel's genome build.",
    group="Input",
)
ambiguous_option = option(
    "--ambiguous",
    type=click.Choice(["frequency", "keep", "drop"]),
    default="frequency",
    help="Treatment of A/T and C/G sites: resolve strands by allele frequency if the file has strand flips, "
    "keep, or drop.",
    group="Advanced",
)
threads_option = option(
    "--threads",
    "-t",
    type=Count(),
    help="Number of threads. Default: one per processor. Results do not depend on it.",
    group="Performance",
)
device_option = option(
    "--device",
    type=click.Choice(["auto", "cpu", "cuda"]),
    default="auto",
    help="Device of the computation; auto uses a GPU if there is one and the model runs faster on it.",
    group="Performance",
)


def filter_options(function: Function) -> Function:
    """Add --min-r2 and --min-maf."""
    return combine_options(
        option(
            "--min-r2",
            type=click.FloatRange(0, 1),
            default=0.0,
            help="Leave out imputed sites with a lower INFO/R2. Typed sites are always written.",
            group="Output",
        ),
        option(
            "--min-maf",
            type=click.FloatRange(0, 0.5),
            default=0.0,
            help="Leave out sites at which the imputed samples have a lower minor allele frequency "
            "(INFO/MAF).",
            group="Output",
        ),
    )(function)


def predictor_options(function: Function) -> Function:
    """Add the options of all predictors in the registry. The command receives each value by its name."""
    from spinimpute.predictors.registry import option_help, options_by_name

    types: dict[str, tuple[Any, str]] = {"number": (float, "X"), "size": (str, "SIZE")}
    added = []
    for row in options_by_name().values():
        kind, metavar = types.get(row.value_type) or (Count(int(row.minimum)), "N")
        group = "Performance" if row.value_type == "size" else "Advanced"
        text = option_help(row.name)
        added.append(option(row.flag, row.name, type=kind, metavar=metavar, help=text, group=group))
    return combine_options(*added)(function)


def refuse_options(ctx: click.Context, names: tuple[str, ...], what: str) -> None:
    """Raise InputError if one of these options, which have no effect on `what`, is on the command line."""
    for parameter in ctx.command.params:
        if parameter.name not in names:
            continue
        if ctx.get_parameter_source(parameter.name) is ParameterSource.COMMANDLINE:
            flag = max(parameter.opts, key=len)
            raise InputError("arguments", f"{flag} has no effect on {what}. Leave it out")


def load_sexes(path: str | None) -> dict[str, bool] | None:
    """Read the file of --sex. Return whether each sample is male, or None if the option was not given."""
    from spinimpute.genotypes.ploidy import read_sexes

    return None if path is None else read_sexes(path)


def read_list(path: str, role: str, what: str, comment: str | None = None) -> list[str]:
    """Read a list with one name per line. Empty lines and comments are skipped; names may contain spaces.

    `role` names the list in messages, `what` its content. Raises InputError if the list is empty.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError("read", f"{role} {path}: {why_unreadable(error)}") from error
    names = [line.strip() for line in lines if line.strip()]
    if comment is not None:
        names = [name for name in names if not name.startswith(comment)]
    if not names:
        raise InputError("content", f"{role} {path}: there is no {what} in it")
    return names


def sample_names(samples: str | None, samples_file: str | None) -> list[str] | None:
    """Return the names of --samples or --samples-file, or None if neither was given."""
    if samples is not None and samples_file is not None:
        raise InputError("arguments", "--samples and --samples-file exclude each other. Give one of them")
    if samples_file is not None:
        return read_list(samples_file, "samples file", "name")
    names = None if samples is None else samples.split(",")
    if names is not None and not all(name.strip() for name in names):
        raise InputError(
            "argument", f"--samples {samples!r}: a name is empty. Separate names with single commas"
        )
    return names


def choose_source(
    vcf: str | None, hap: str | None, legend: str | None, sample: str | None, chromosome: str | None
) -> PanelSource:
    """Return --vcf, or the files of --hap. Raises InputError unless one of the two is given completely."""
    given = {"--hap": hap, "--legend": legend, "--sample": sample, "--chromosome": chromosome}
    missing = [flag for flag, value in given.items() if value is None]
    if vcf is not None:
        if len(missing) < len(given):
            raise InputError("arguments", "--vcf and --hap exclude each other. Give one of them")
        return vcf
    if hap is None or legend is None or sample is None or chromosome is None:
        if len(missing) == len(given):
            raise InputError("arguments", "there is no panel: give --vcf FILE, or --hap FILE")
        raise InputError("arguments", f"--hap needs all of {', '.join(given)}. Add {' and '.join(missing)}")
    from spinimpute.panels.formats.hap_legend import HapLegend

    return HapLegend(hap, legend, sample, chromosome)


def check_inducing(inducing_points: int | None, array: str | None, model: str | None, out: str) -> None:
    """Raise InputError if --inducing, --array, --model and the suffix of --out do not fit together."""
    if inducing_points is None and (array or model):
        raise InputError(
            "arguments", "--array and --model need --inducing H; a panel file (.spin) serves any array"
        )
    if inducing_points is None and out.endswith(".spip"):
        raise InputError(
            "arguments", f"{out}: a .spip file needs --inducing H --array FILE. Name a panel file .spin"
        )
    if inducing_points is not None and not array:
        raise InputError(
            "arguments",
            "--inducing needs --array FILE: inducing points are made for the sites of one array. Give a VCF "
            "or BCF of the array, or a list of positions. For targets of several arrays, you can list the "
            "sites of all of them, but array sites that a target lacks reduce its accuracy",
        )


@contextmanager
def progress_bar(label: str, quiet: bool) -> Iterator[Callable[[float], None]]:
    """Yield a function that shows the fraction of the run that is done.

    On a terminal it is a progress bar, otherwise a line every 30 seconds or more, and with `quiet` nothing.
    """
    # `rich` is imported only for a terminal, because the import takes longer than imputing a small file
    if quiet or sys.stderr is None:  # None: stderr is closed
        yield lambda fraction: None
        return
    if not sys.stderr.isatty():
        from spinimpute.runtime.progress import ProgressLines

        with ProgressLines(label, say) as lines:
            yield lines
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=1.0)

        class Bar:
            def __call__(self, fraction: float) -> None:
                bar.update(task, completed=fraction)

            def begin_stage(self, stage: str) -> None:
                bar.update(task, description=stage)

        yield Bar()


def print_summary(
    summary: ImputationSummary | SequencedSummary | LigationSummary | MergeSummary, out: str, quiet: bool
) -> None:
    """Print the warnings of a run. Unless `quiet`, print its summary and the output's name, too."""
    for warning in summary.warnings:
        warn(warning)
    if not quiet:
        for line in [*summary.lines(), f"output:   {out}"]:
            say(line)
