"""Options that several commands share, and what goes with them."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from spinimpute.runtime.errors import InputError
from spinimpute.runtime.progress import announcements

from .messages import is_log, say, start_log, warn

if TYPE_CHECKING:
    from spinimpute.quality.summary import ImputationSummary, SequencedSummary

Command = TypeVar("Command", bound=Callable[..., Any])
Option = Callable[[Command], Command]

# what options ask for that name something
NAMES = {"FILE": "a file's", "FOLDER": "a folder's", "PREFIX": "what names of files begin with"}


class OnceEach(click.Command):
    """A command that refuses empty names, and a file or another text given twice where one is taken."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Raises UsageError: of two files the first would be left out without a word. Or InputError."""
        if not ctx.resilient_parsing:  # to complete words
            given, _, in_order = self.make_parser(ctx).parse_args(args=list(args))
            if "help" not in given:
                one = [p for p in in_order if p.type is click.STRING and not p.multiple and p.nargs == 1]
                for option in one:
                    if isinstance(option, click.Option) and one.count(option) > 1:
                        name = max(option.opts, key=len)
                        ctx.fail(f"{name} is given {one.count(option)} times: give it once")
                _refuse_empty_names(self.params, given)
        return super().parse_args(ctx, args)


def _refuse_empty_names(parameters: Iterable[click.Parameter], given: Mapping[str, Any]) -> None:
    """Raise InputError for a file without a name, as of a variable of a script that is not set."""
    for one in parameters:
        # all arguments are files
        what = NAMES["FILE"] if isinstance(one, click.Argument) else NAMES.get(one.metavar or "")
        value = given.get(one.name or "")
        if what is not None and "" in (value if isinstance(value, list | tuple) else [value]):
            name = max(one.opts, key=len) if isinstance(one, click.Option) else one.human_readable_name
            raise InputError(
                "arguments",
                f"{name} is given an empty name: give {what}"
                f"{'' if one.required else ', or leave the option out'}",
            )


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


def check_outs(params: Mapping[str, Any], *others: str | Path) -> None:
    """Check what can be known of a command's outputs before anything is read.

    Parameters
    ----------
    params : mapping
        The command's options by name.
    *others : str or Path
        Outputs besides that of --out.

    Raises
    ------
    InputError
        One of them cannot be written, or exists without --force.
    """
    from spinimpute.outputs.opening import choose_format
    from spinimpute.runtime.output_files import check_outputs

    out = params["out"]
    check_outputs([out, *others], params["force"], [], streamed=out)
    choose_format(Path(out), params["output_type"])


class Piped(OptionsOnly):
    """A command that reads one of its files from standard input, where `-` is its name; it may have --log.

    Parameters
    ----------
    *args
        Of a command.
    check : callable
        Refuses outputs that cannot be written; gets the options by name. Called before standard input is
        read, which may take long.
    **kwargs
        Of a command.
    """

    READ = ("vcf", "gl", "panel", "truth", "imputed", "typed")

    def __init__(
        self, *args: Any, check: Callable[[Mapping[str, Any]], None] = check_outs, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self._check = check

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As of the other commands; what is wrong reaches the log, too."""
        words = list(args)
        try:
            return super().parse_args(ctx, args)
        except (click.UsageError, InputError):
            if any(option.name == "log" for option in self.params):
                _start_log_of_words(ctx, words)
            raise

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. Raises InputError if two files are to be read from standard input."""
        log = ctx.params.pop("log", None)
        if log is not None:
            _start_checked_log(ctx, log)
        options = {
            option.name: max(option.opts, key=len) for option in self.params if option.name in self.READ
        }
        for name, option in options.items():
            if isinstance(ctx.params.get(name or ""), tuple) and "-" in ctx.params[name or ""]:
                raise InputError("content", f"{option} is given several times: read standard input (-) alone")
        piped = [name for name in options if name and ctx.params.get(name) == "-"]
        if not piped:
            return super().invoke(ctx)
        from spinimpute.targets.formats import standard_input_as_file

        if len(piped) > 1:
            both = " and ".join(options[name] for name in piped)
            raise InputError(
                "content", f"{both} are to be read from standard input: give all but one a file's name"
            )
        self._check(ctx.params)
        assert self.callback is not None
        with standard_input_as_file(options[piped[0]]) as path:
            try:
                # the context keeps `-`: headers quote the command from there
                return ctx.invoke(self.callback, **{**ctx.params, piped[0]: str(path)})
            except InputError as error:
                raise InputError("content", str(error).replace(str(path), "standard input")) from error


def _start_checked_log(ctx: click.Context, path: str) -> None:
    """Start the log, if it is none of the command's other files. Raises InputError."""
    from spinimpute.runtime.output_files import PLACEHOLDER, CannotWrite, check_outputs, words_in_braces

    written = {name: ctx.params.get(name) for name in ("out", "report", "multiqc")}
    out = Path(str(written["out"]))
    if PLACEHOLDER in str(out) or words_in_braces(
        out
    ):  # there may be several, or it is refused in other words
        written["out"] = None
    read: list[object] = []
    for name, value in ctx.params.items():
        if name not in written:
            read += value if isinstance(value, tuple) else [value]
    check_outputs([path], bool(ctx.params.get("force")), read)
    check_outputs([path, *written.values(), *_written_too(ctx.params)], True, [], streamed=written["out"])
    before, placeholder, _ = out.name.partition(PLACEHOLDER)
    if (
        placeholder
        and out.parent.resolve() == Path(path).parent.resolve()
        and Path(path).name.startswith(before)
    ):
        raise InputError(
            "mismatch", f"--log {path} could be a file of --out {out}: give it another name or folder"
        )
    try:
        if Path(path).is_file() and not is_log(Path(path)):
            # what lists and folders name is not known yet: it could be read from
            raise InputError("mismatch", f"--log {path} exists and is no log: give it another name")
        start_log(Path(path), command_text(ctx, ()))
    except OSError as error:
        raise CannotWrite(Path(path), error) from error


def _written_too(params: Mapping[str, Any]) -> list[Path]:
    """Files whose names follow from options: tables of typed calls that are left out, figures."""
    found = []
    if params.get("loo"):
        from spinimpute.quality.leave_one_out import TABLES

        found += [Path(f"{params['loo']}.{table}.tsv") for table in TABLES]
    if params.get("report_figures"):
        from spinimpute.reports.report_files import CHARTS

        found += [Path(params["report_figures"]) / f"{name}.svg" for name in CHARTS]
    return found


def _start_log_of_words(ctx: click.Context, words: list[str]) -> None:
    """Start the log of a command that cannot be understood, if no file is lost by it."""
    after = [words[i + 1] for i, word in enumerate(words[:-1]) if word == "--log"]
    after += [word.partition("=")[2] for word in words if word.startswith("--log=")]
    if not after:
        return
    path = Path(after[0])
    with suppress(OSError):
        if not os.path.lexists(path) or (is_log(path) and {"--force", "-f"} & set(words)):
            start_log(path, " ".join([ctx.command_path, *map(_quoted, words)]))


def command_text(ctx: click.Context, without: Collection[str]) -> str:
    r"""The command with the options that differ from their defaults, in the order of the help, on one line.

    The text is what a shell would take, with control characters and undecodable bytes as in $'\x0a'. A value
    that comes from the environment is written like one that was typed.

    Parameters
    ----------
    ctx : click.Context
        Of the command.
    without : collection of str
        Parameters that do not influence the result, such as the number of threads; without them the same
        input gives the same bytes.

    Returns
    -------
    str
        For the header of an output.
    """
    words = ctx.command_path.split()
    for parameter in ctx.command.params:
        if parameter.name is None or parameter.name in without:
            continue
        value = ctx.params.get(parameter.name)
        if value is None or value == parameter.get_default(ctx):
            continue
        for one in value if isinstance(value, tuple) else [value]:  # of those that may be repeated, each
            if isinstance(parameter, click.Option):
                words.append(max(parameter.opts, key=len))
            if one is not True:
                words.append(_quoted(str(one)))
    return " ".join(words)


def _quoted(word: str) -> str:
    if word.isprintable():
        return shlex.quote(word)
    return "$'" + "".join(_escaped(character) for character in word) + "'"


def _escaped(character: str) -> str:
    if character.isprintable() and character not in "\\'":
        return character
    return "".join(f"\\x{byte:02x}" for byte in os.fsencode(character))


def out_option(what: str) -> Option:
    """--out, with this help."""
    return click.option("--out", "-o", required=True, metavar="FILE", help=what)


def region_option(what: str) -> Option:
    """--region, with this help."""
    return click.option("--region", "-r", metavar="CHR[:FROM-TO]", help=what)


def regions_options(what: str) -> Option:
    """--region and --regions-file, with this help; the command receives `regions` and `regions_file`."""

    def add(command: Command) -> Command:
        in_file = click.option(
            "--regions-file",
            "-R",
            metavar="FILE",
            help="The same of all regions in a BED file (0-based, half-open).",
        )
        one = click.option(
            "--region",
            "-r",
            "regions",
            metavar="CHR[:FROM-TO]",
            multiple=True,
            help=f"{what} May be repeated.",
        )
        return one(in_file(command))

    return add


MOST = 2**31  # of anything that is counted
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


sex_option = click.option(
    "--sex",
    metavar="FILE",
    help="Chromosome X: sample and sex (M, F, 1, 2) in each line, or a .fam file. Default: by the calls.",
)


chain_option = click.option(
    "--chain", metavar="FILE", help="Chain file from the target's genome build to the panel's (UCSC)."
)


def refuse_options(ctx: click.Context, names: tuple[str, ...], what: str) -> None:
    """Raise InputError for an option that was given and has no meaning for this target."""
    for option in ctx.command.params:
        if option.name in names and ctx.get_parameter_source(option.name) is ParameterSource.COMMANDLINE:
            raise InputError(
                "arguments", f"{max(option.opts, key=len)} has no meaning for {what}: leave it out"
            )


def sexes_of(path: str | None) -> dict[str, bool] | None:
    """The content of the file of --sex: sample -> whether male; None without a file."""
    from spinimpute.genotypes.ploidy import read_sexes

    return None if path is None else read_sexes(path)


log_option = click.option(
    "--log", metavar="FILE", help="Also write there what is printed on stderr, with times."
)
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
        announcements.clear()
    return quiet


quiet_option = click.option(
    "--quiet", "-q", is_flag=True, callback=_quiet, help="No summary and no progress."
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


def names_in(path: str, role: str, what: str, comment: str | None = None) -> list[str]:
    """The lines of a list that are not empty, nor comments; a name may hold blanks.

    role, what: for messages; comment: what comments begin with.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError("read", f"{role} {path}: cannot be read ({error})") from error
    names = [line.strip() for line in lines if line.strip()]
    if comment is not None:
        names = [name for name in names if not name.startswith(comment)]
    if not names:
        raise InputError("content", f"{role} {path}: there is no {what} in it")
    return names


def sample_names(samples: str | None, samples_file: str | None) -> list[str] | None:
    """The names of --samples or --samples-file; None without both."""
    if samples is not None and samples_file is not None:
        raise InputError("content", "samples are named by --samples or --samples-file: give one of them")
    if samples_file is not None:
        return names_in(samples_file, "samples file", "name")
    names = None if samples is None else samples.split(",")
    if names is not None and not all(name.strip() for name in names):
        raise InputError(
            "content",
            f"--samples {samples!r}: one of the names is empty; give names with one comma "
            f"between two of them",
        )
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
    """A bar on stderr; where that is no terminal, a line now and then.

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
    if quiet or sys.stderr is None:
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

        class Shown:
            def __call__(self, fraction: float) -> None:
                bar.update(task, completed=fraction)

            def begin_stage(self, stage: str) -> None:
                bar.update(task, description=stage)

        yield Shown()


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
