"""Options that several commands share, and what goes with them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import click

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
target_option = click.option(
    "--vcf",
    required=True,
    metavar="FILE",
    help="Target: VCF, VCF.gz, BCF or the text file of a consumer array.",
)
sex_option = click.option(
    "--sex",
    metavar="FILE",
    help="Chromosome X: sample and sex (M, F, 1, 2) in each line, or a .fam file. Default: by the calls.",
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


@contextmanager
def progress_bar(label: str, quiet: bool) -> Iterator[Callable[[float], None]]:
    """A bar on stderr, shown on terminals only; gives a function that takes the fraction done."""
    if quiet or not sys.stderr.isatty():  # loading rich takes longer than imputing some files
        yield lambda fraction: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(label, total=1.0)
        yield lambda fraction: progress.update(task, completed=fraction)
