"""Options that several commands share, and what goes with them."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from spinimpute.errors import printable

if TYPE_CHECKING:
    from spinimpute.quality.sequenced_summary import SequencedSummary
    from spinimpute.quality.summary import ImputationSummary

Command = TypeVar("Command", bound=Callable[..., Any])
Option = Callable[[Command], Command]


class OnceEach(click.Command):
    """A command that refuses a file, or another text, that is given twice where one is taken."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Raises UsageError: of two files the first would be left out without a word."""
        if not ctx.resilient_parsing:  # to complete words
            given, _, in_order = self.make_parser(ctx).parse_args(args=list(args))
            one = [p for p in in_order if p.type is click.STRING and not p.multiple and p.nargs == 1]
            for option in one:
                if "help" not in given and isinstance(option, click.Option) and one.count(option) > 1:
                    name = max(option.opts, key=len)
                    ctx.fail(f"{name} is given {one.count(option)} times: give it once")
        return super().parse_args(ctx, args)


class OptionsOnly(OnceEach):
    """A command without arguments of its own: names what stands alone, whatever else is wrong."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Raises UsageError if a word belongs to no option."""
        if ctx.resilient_parsing:  # to complete words
            return super().parse_args(ctx, args)
        given, alone, _ = self.make_parser(ctx).parse_args(args=list(args))
        if alone and "help" not in given:
            words = ", ".join(map(repr, alone))
            ctx.fail(
                f"{words} stand{'s' if len(alone) == 1 else ''} without an option: each file is given with "
                "its own, such as --vcf FILE"
            )
        return super().parse_args(ctx, args)


def out_option(what: str) -> Option:
    """--out, with this help."""
    return click.option("--out", "-o", required=True, metavar="FILE", help=what)


def region_option(what: str, *, several: bool = False) -> Option:
    """--region, with this help; it may be given several times, or once."""
    name = "regions" if several else "region"
    return click.option("--region", "-r", name, metavar="CHR[:FROM-TO]", multiple=several, help=what)


MOST = 2**31  # of anything that is counted
PANEL_VARIABLE = "SPINIMPUTE_PANEL"


def _given_panel(ctx: click.Context, _: click.Parameter, panel: str | None) -> str | None:
    if panel or ctx.resilient_parsing:
        return panel
    from spinimpute.errors import InputError

    raise InputError(
        f"no reference panel: give --panel FILE or set ${PANEL_VARIABLE}. A panel is a phased VCF or BCF of "
        "fully sequenced people, for example the 1000 Genomes Project's; compile it once with "
        "'spinimpute panel build --vcf panel.bcf --map genetic.map --out panel.spin'"
    )


def panel_option(what: str) -> Option:
    """--panel, with this help; by default what the environment variable PANEL_VARIABLE says."""
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
    if not named and ctx.meta.get("sequenced"):
        return None
    if len(named) != 1:
        found = " and ".join(named) or "none of them"
        options = {option.name for option in ctx.command.params}
        of_sequenced = ", ".join(f"--{name} FILE" for name in ("gl", "bam") if name in options)
        raise InputError(
            "give the target with one of --vcf FILE, --bfile PREFIX, --pfile PREFIX"
            f"{', or what is sequenced with ' if of_sequenced else ''}{of_sequenced}; found {found}"
        )
    return next(iter(named.values()))


def _with_suffix(prefix: str | None, suffix: str) -> str | None:
    return prefix if prefix is None or prefix.endswith(suffix) else prefix + suffix


def _kept(ctx: click.Context, option: click.Parameter, prefix: str | None) -> None:
    ctx.meta[str(option.name)] = prefix


def target_option(command: Command) -> Command:
    """Add --vcf, --bfile and --pfile; the command receives `vcf`, whichever it was."""
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


def _sequenced(ctx: click.Context, _: click.Parameter, value: Any) -> Any:
    if value:
        ctx.meta["sequenced"] = True
    return value


_SEQUENCED: dict[str, Any] = {"metavar": "FILE", "is_eager": True, "callback": _sequenced}
gl_option = click.option("--gl", help="Sequenced samples: genotype likelihoods (PL, GL or GT).", **_SEQUENCED)


def sequencing_options(command: Command) -> Command:
    """Add --gl, --bam, --bam-list and what belongs to them, in place of a target."""
    quality: dict[str, Any] = {"type": click.IntRange(0, 255), "default": 10, "show_default": True}
    for option in (
        click.option(
            "--max-depth",
            type=click.IntRange(1, 65_535),
            default=40,
            show_default=True,
            help="Reads that count at a site.",
        ),
        click.option("--min-base-quality", help="Of a base that counts.", **quality),
        click.option("--min-mapping-quality", help="Of a read that counts.", **quality),
        click.option("--reference", metavar="FILE", help="Reference genome that CRAMs were written with."),
        click.option(
            "--bam-list",
            help="A file with a BAM or CRAM in each line, and behind a tab its sample's name, if it is to be "
            "another one than in the read groups.",
            **_SEQUENCED,
        ),
        click.option("--bam", multiple=True, help="BAM or CRAM of a sample; may be repeated.", **_SEQUENCED),
        gl_option,
    ):
        command = option(command)
    return command


def refuse_options(ctx: click.Context, names: tuple[str, ...], what: str) -> None:
    """Raise InputError for an option that was given and has no meaning for this target."""
    from spinimpute.errors import InputError

    for option in ctx.command.params:
        if option.name in names and ctx.get_parameter_source(option.name) is ParameterSource.COMMANDLINE:
            raise InputError(f"{max(option.opts, key=len)} has no meaning for {what}: leave it out")


def sexes_of(path: str | None) -> dict[str, bool] | None:
    """The content of the file of --sex: sample -> whether male; None without a file."""
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
    "--force", "-f", is_flag=True, help="Overwrite existing output; go on though the target does not fit."
)


def _quiet(_: click.Context, __: click.Parameter, quiet: bool) -> bool:
    if quiet:
        from spinimpute.compilation import compile_quietly

        compile_quietly()
    return quiet


quiet_option = click.option(
    "--quiet", "-q", is_flag=True, callback=_quiet, help="No summary and no progress bar."
)
threads_option = click.option(
    "--threads",
    "-t",
    type=click.IntRange(1, MOST),
    help="Threads (default: all processors). Results do not depend on it.",
)
device_option = click.option(
    "--device",
    type=click.Choice(["auto", "cpu", "cuda"]),
    default="auto",
    show_default=True,
    help="Where to compute; auto takes a GPU where there is one.",
)


def names_in(path: str, role: str, what: str) -> list[str]:
    """The lines of a list that are not empty; a name may hold blanks. role, what: for messages."""
    from spinimpute.errors import InputError

    try:
        lines = Path(path).read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{role} {path}: cannot be read ({error})") from error
    names = [line.strip() for line in lines if line.strip()]
    if not names:
        raise InputError(f"{role} {path}: there is no {what} in it")
    return names


def predictor_options(command: Command) -> Command:
    """Add the options of all predictors in the registry; the command receives each by its name."""
    from spinimpute.predictors.registry import option_help, options_by_name

    for option in reversed(options_by_name().values()):
        forms: dict[str, tuple[Any, str]] = {
            "count": (click.IntRange(int(option.minimum), MOST), "N"),
            "number": (float, "X"),
            "size": (str, "SIZE"),
        }
        form, metavar = forms[option.form]
        command = click.option(
            option.flag, option.name, type=form, metavar=metavar, help=option_help(option.name)
        )(command)
    return command


@contextmanager
def progress_bar(label: str, quiet: bool) -> Iterator[Callable[[float], None]]:
    """A bar on stderr, shown on terminals only.

    Parameters
    ----------
    label : str
        Shown beside the bar.
    quiet : bool
        Show nothing.

    Yields
    ------
    callable
        To be called with the fraction that is done.
    """
    # loading rich takes longer than imputing some files; there is no stderr where it was closed
    if quiet or sys.stderr is None or not sys.stderr.isatty():
        yield lambda fraction: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(label, total=1.0)
        yield lambda fraction: progress.update(task, completed=fraction)


OPTIONS_OF_ARGUMENTS = {
    "force=True": "--force",
    "chain=...": "--chain",
    "region=...": "--region",
    "buffer_cM=...": "--buffer",
}


def say(line: str) -> None:
    """Print a line on stderr, if it can be: a run goes on where that is on a full disk, or read by nobody."""
    try:
        click.echo(printable(as_options(line)), err=True)
    except OSError:
        discard(sys.stderr)


def as_options(text: str) -> str:
    """A message of the library, which speaks of arguments, in words of the command line."""
    for argument, option in OPTIONS_OF_ARGUMENTS.items():
        text = text.replace(argument, option)
    return text


def warn(message: str) -> None:
    """Print a warning."""
    say(f"spinimpute: warning: {message}")


def discard(stream: IO[str]) -> None:
    """Forget what is in the stream's buffer: some Pythons fail with it at exit, and with another status."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def show(summary: ImputationSummary | SequencedSummary, out: str, quiet: bool) -> None:
    """Print the warnings of a run, and its summary unless it is to be quiet.

    Parameters
    ----------
    summary : ImputationSummary or SequencedSummary
        Of the run.
    out : str
        The output.
    quiet : bool
        Print warnings only.
    """
    for warning in summary.warnings:
        warn(warning)
    if not quiet:
        for line in [*summary.lines(), f"output:   {out}"]:
            say(line)


# of `spinimpute tabular`: what it offers to train, and the options of training
TABULAR_MODELS = {
    "spin": "SPIN",
    "npt": "NPT",
    "set-transformer": "SetTransformer",
    "ft-transformer": "FTTransformer",
    "resnet": "ResNet",
    "mlp": "MLP",
}
steps_option = click.option(
    "--steps", type=click.IntRange(min=1), help="Training steps at most. Default: the model's."
)
seed_option = click.option("--seed", type=click.IntRange(0, 2**31), default=1, show_default=True)


@contextmanager
def estimator_errors(what: str) -> Iterator[None]:
    """Turn errors of estimators into InputError, and hide numpy's warnings.

    Parameters
    ----------
    what : str
        What failed, for the message.

    Raises
    ------
    InputError
        Parameters are wrong, there are too few rows, numbers overflow, or memory is too small.
    """
    from spinimpute.errors import InputError

    try:
        with warnings.catch_warnings(action="ignore", category=RuntimeWarning):  # of empty columns
            yield
    except (ValueError, RuntimeError, MemoryError) as error:
        said = next(iter(str(error).splitlines()), type(error).__name__)
        raise InputError(f"{what}: {said}") from error
