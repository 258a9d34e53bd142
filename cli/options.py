"""Options that several commands share, and what goes with them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from spinimpute.quality.summary import ImputationSummary

Command = TypeVar("Command", bound=Callable[..., Any])
Option = Callable[[Command], Command]


def out_option(what: str) -> Option:
    return click.option("--out", "-o", required=True, metavar="FILE", help=what)


def region_option(what: str) -> Option:
    return click.option("--region", "-r", metavar="CHR[:FROM-TO]", help=what)


PANEL_VARIABLE = "SPINIMPUTE_PANEL"


def _given_panel(ctx: click.Context, _: click.Parameter, panel: str | None) -> str | None:
    if panel or ctx.resilient_parsing:
        return panel
    from spinimpute.errors import InputError

    raise InputError(
        f"no reference panel: give --panel FILE or set ${PANEL_VARIABLE}. A panel is a phased VCF or BCF of "
        "fully sequenced people, for example the 1000 Genomes Project's; compile it once with\n"
        "    spinimpute panel build --vcf panel.bcf --map genetic.map --out panel.spin"
    )


def panel_option(what: str) -> Option:
    return click.option(
        "--panel",
        metavar="FILE",
        envvar=PANEL_VARIABLE,
        callback=_given_panel,
        help=f"{what} Default: ${PANEL_VARIABLE}.",
    )


output_type_option = click.option(
    "-O", "--output-type", type=click.Choice(["b", "z", "v"]), help="BCF, VCF.gz or VCF. Default: by suffix."
)
ambiguous_option = click.option(
    "--ambiguous",
    type=click.Choice(["frequency", "keep", "drop"]),
    default="frequency",
    show_default=True,
    help="A/T and C/G sites: decide by frequency in a file with strand flips, keep as they are, or drop.",
)


def _given_target(ctx: click.Context, _: click.Parameter, vcf: str | None) -> str | None:
    """One of --vcf, --bfile and --pfile; the latter name the files of PLINK without their suffix."""
    if ctx.resilient_parsing:
        return vcf
    from spinimpute.errors import InputError

    given = {
        "--vcf": vcf,
        "--bfile": _with_suffix(ctx.meta.get("bfile"), ".bed"),
        "--pfile": _with_suffix(ctx.meta.get("pfile"), ".pgen"),
    }
    named = {name: path for name, path in given.items() if path}
    if len(named) != 1:
        found = " and ".join(named) or "none of them"
        raise InputError(
            f"give the target with one of --vcf FILE, --bfile PREFIX, --pfile PREFIX; found {found}"
        )
    return next(iter(named.values()))


def _with_suffix(prefix: str | None, suffix: str) -> str | None:
    return prefix if prefix is None or prefix.endswith(suffix) else prefix + suffix


def _kept(ctx: click.Context, option: click.Parameter, prefix: str | None) -> None:
    ctx.meta[str(option.name)] = prefix


def target_option(command: Command) -> Command:
    """--vcf, --bfile and --pfile; the command is given `vcf`, whichever it was."""
    plink: dict[str, Any] = {"metavar": "PREFIX", "is_eager": True, "expose_value": False, "callback": _kept}
    for option in (
        click.option("--pfile", help="The same of PLINK 2: PREFIX.pgen, .pvar, .psam.", **plink),
        click.option("--bfile", help="Target of PLINK 1 in place of --vcf: PREFIX.bed, .bim, .fam.", **plink),
        click.option(
            "--vcf",
            metavar="FILE",
            callback=_given_target,
            help="Target: VCF, VCF.gz, BCF, a consumer array's text, or a FinalReport, known by content.",
        ),
    ):
        command = option(command)
    return command


sex_option = click.option(
    "--sex",
    metavar="FILE",
    help="Chromosome X: sample and sex (M, F, 1, 2) in each line, or a .fam file. Default: by the calls.",
)


chain_option = click.option(
    "--chain", metavar="FILE", help="Chain file from the target's genome build to the panel's (UCSC)."
)


def sexes_of(path: str | None) -> dict[str, bool] | None:
    """What --sex says: sample -> whether male."""
    from spinimpute.genotypes.ploidy import read_sexes

    return None if path is None else read_sexes(path)


map_option = click.option(
    "--map",
    "genetic_map",
    metavar="FILE",
    help="Genetic map: PLINK .map, SHAPEIT .gmap[.gz] or HapMap columns. Without one: 1 cM/Mb.",
)
force_option = click.option("--force", "-f", is_flag=True, help="Overwrite existing output.")
force_match_option = click.option(
    "--force", "-f", is_flag=True, help="Overwrite existing output; go on where hardly any site matches."
)
quiet_option = click.option("--quiet", "-q", is_flag=True, help="No summary and no progress bar.")
threads_option = click.option(
    "--threads",
    "-t",
    type=click.IntRange(min=1),
    help="Threads (default: all processors). Results do not depend on it.",
)
device_option = click.option(
    "--device",
    type=click.Choice(["auto", "cpu", "cuda"]),
    default="auto",
    show_default=True,
    help="Where to compute; auto takes a GPU where there is one.",
)


def predictor_options(command: Command) -> Command:
    """The options of all predictors, as the registry has them; the command is given each by its name."""
    from spinimpute.predictors.registry import option_help, options_by_name

    for option in reversed(options_by_name().values()):
        forms: dict[str, tuple[Any, str]] = {
            "count": (click.IntRange(min=int(option.minimum)), "N"),
            "number": (float, "X"),
            "size": (str, "SIZE"),
        }
        form, metavar = forms[option.form]
        command = click.option(
            option.flag, option.name, type=form, metavar=metavar, help=option_help(option.name)
        )(command)
    return command


def available_device(name: str) -> str:
    """What --device says, auto decided. Raises InputError for a GPU that is not there."""
    import torch

    from spinimpute.errors import InputError

    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise InputError("--device cuda: PyTorch finds no GPU; use --device cpu")
    return name


@contextmanager
def progress_bar(label: str, quiet: bool) -> Iterator[Callable[[float], None]]:
    """A bar on stderr, shown on terminals only; gives a function that takes the fraction done."""
    # loading rich takes longer than imputing some files; there is no stderr where it was closed
    if quiet or sys.stderr is None or not sys.stderr.isatty():
        yield lambda fraction: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(label, total=1.0)
        yield lambda fraction: progress.update(task, completed=fraction)


def show(summary: ImputationSummary, out: str, quiet: bool) -> None:
    """The warnings of a run, and its summary unless it is to be quiet."""
    for warning in summary.warnings:
        click.echo(f"spinimpute: warning: {warning}", err=True)
    if not quiet:
        for line in [*summary.lines(), f"output:   {out}"]:
            click.echo(line, err=True)
