"""The click classes of our commands and options.

`Command` prints its options in groups and refuses common mistakes, such as an empty file name. `PipedCommand`
can also read a file from standard input and write a log (`--log`). `command_text` returns the command line
that is recorded in the header of an output.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click

from spinimpute.runtime.errors import InputError
from spinimpute.runtime.progress import announcements

from .messages import is_log, start_log

Function = TypeVar("Function", bound=Callable[..., Any])
Decorator = Callable[[Function], Function]

GROUPS = ("Input", "Panel", "Output", "Region", "Reads", "Training", "Performance", "Advanced")
# placeholder of an option in the help -> what to give, for messages
NAMES = {"FILE": "a file name", "FOLDER": "a folder name", "PREFIX": "the beginning of file names"}


class GroupedOption(click.Option):
    """An option that the help shows in a group (one of GROUPS), with its default.

    The placeholder for whole numbers is N, for other numbers X.
    """

    def __init__(self, *args: Any, group: str = "Advanced", **kwargs: Any) -> None:
        kwargs.setdefault("show_default", "default" in kwargs)
        super().__init__(*args, **kwargs)
        self.group = group
        if isinstance(self.type, Count | click.IntRange):
            self.metavar = self.metavar or "N"
        if isinstance(self.type, click.FloatRange | click.types.FloatParamType):
            self.metavar = self.metavar or "X"


option = partial(click.option, cls=GroupedOption)


def combine_options(*decorators: Decorator) -> Decorator:
    """Return a decorator that adds several options in this order."""

    def add(function: Function) -> Function:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return add


class Count(click.ParamType):
    """A whole number of at least `minimum`. Unlike click's IntRange, the help does not show the limits."""

    name = "integer"

    def __init__(self, minimum: int = 1, maximum: int = 2**31) -> None:
        self._range = click.IntRange(minimum, maximum)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number. Raises BadParameter if it is out of range or not a whole number."""
        return self._range.convert(value, param, ctx)


class Command(click.Command):
    """A command that shows its options in groups.

    It refuses empty file names, words without an option, and options of one value that are repeated.
    """

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options in the order of GROUPS. Up to 8 options are listed without groups."""
        if sum(isinstance(one, GroupedOption) for one in self.params) <= 8:
            super().format_options(ctx, formatter)
            return
        records: dict[str, list[tuple[str, str]]] = {group: [] for group in GROUPS}
        for one in self.get_params(ctx):
            if (record := one.get_help_record(ctx)) is not None:
                records[getattr(one, "group", GROUPS[-1])].append(record)  # --help has no group
        for group, rows in records.items():
            if rows:
                with formatter.section(group):
                    formatter.write_dl(rows)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the command line. Raises UsageError or InputError for a mistake."""
        if ctx.resilient_parsing:  # shell completion
            return super().parse_args(ctx, args)
        values, words, in_order = self.make_parser(ctx).parse_args(args=list(args))
        if "help" in values:
            return super().parse_args(ctx, args)
        if words and not any(isinstance(parameter, click.Argument) for parameter in self.params):
            verb = "stands" if len(words) == 1 else "stand"
            ctx.fail(
                f"{', '.join(map(repr, words))} {verb} without an option: give each file with its option, "
                "such as --vcf FILE"
            )
        for parameter in in_order:  # click would silently use the last of several files
            single = parameter.type is click.STRING and not parameter.multiple and parameter.nargs == 1
            if single and isinstance(parameter, click.Option) and in_order.count(parameter) > 1:
                ctx.fail(f"{_flag(parameter)} is given {in_order.count(parameter)} times: give it once")
        for parameter in self.params:  # an empty name often comes from an unset variable of a script
            is_argument = isinstance(parameter, click.Argument)  # all arguments are files
            what = NAMES["FILE"] if is_argument else NAMES.get(parameter.metavar or "")
            value = values.get(parameter.name or "")
            if what is not None and "" in (value if isinstance(value, list | tuple) else [value]):
                remedy = f"Give {what}" + ("" if parameter.required else ", or leave the option out")
                raise InputError("argument", f"{_flag(parameter)} has an empty name. {remedy}")
        if "quiet" in values:
            announcements.clear()
        return super().parse_args(ctx, args)


def _flag(parameter: click.Parameter) -> str:
    """Return the longest name of an option, or the name of an argument."""
    if isinstance(parameter, click.Option):
        return max(parameter.opts, key=len)
    return parameter.human_readable_name


def check_out(params: Mapping[str, Any], inputs: tuple[object, ...] = ()) -> None:
    """Raise InputError if --out cannot be written, exists, or would replace one of the `inputs`.

    `PipedCommand` calls this without `inputs` before it reads standard input.
    """
    from spinimpute.outputs.opening import choose_format
    from spinimpute.pipeline.run_plan import get_single_output
    from spinimpute.runtime.output_files import check_outputs

    out = params["out"]
    check_outputs([get_single_output(out)], params["force"], inputs, streamed=out)
    choose_format(Path(params["out"]), params["output_type"])


class PipedCommand(Command):
    """A command that reads one input from standard input if its name is `-`, and that may have --log.

    `check` is called with the options' values before standard input is read. It raises InputError if an
    output cannot be written.
    """

    # the options whose file may be standard input
    READ = ("vcf", "gl", "panel", "truth", "imputed", "typed")

    def __init__(
        self, *args: Any, check: Callable[[Mapping[str, Any]], None] = check_out, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self._check = check

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the command line. If that fails, start the log so that it has the error message, too."""
        words = list(args)
        try:
            return super().parse_args(ctx, args)
        except (click.UsageError, InputError):
            if any(one.name == "log" for one in self.params):
                _start_log_of_words(ctx, words)
            raise

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. Raises InputError if two files are to be read from standard input."""
        log = ctx.params.pop("log", None)
        if log is not None:
            _start_checked_log(ctx, log)
        flags = {str(one.name): _flag(one) for one in self.params if one.name in self.READ}
        for name, flag in flags.items():
            if isinstance(ctx.params.get(name), tuple) and "-" in ctx.params[name]:
                raise InputError("arguments", f"{flag} is given several times: read standard input (-) alone")
        piped = [name for name in flags if ctx.params.get(name) == "-"]
        if not piped:
            return super().invoke(ctx)
        if len(piped) > 1:
            both = " and ".join(flags[name] for name in piped)
            raise InputError(
                "arguments", f"{both} both read standard input (-). Give a file name to all but one"
            )
        from spinimpute.targets.formats import standard_input_as_file

        self._check(ctx.params)
        assert self.callback is not None
        with standard_input_as_file(flags[piped[0]]) as path:
            try:
                # `ctx.params` keeps `-`, because the command in the output's header is taken from there
                return ctx.invoke(self.callback, **{**ctx.params, piped[0]: str(path)})
            except InputError as error:
                raise InputError(error.code, str(error).replace(str(path), "standard input")) from error


def _start_checked_log(ctx: click.Context, path: str) -> None:
    """Start the log. Raises InputError if its path is also an input or another output of the command."""
    from spinimpute.runtime.output_files import PLACEHOLDER, CannotWrite, check_outputs, find_placeholders

    given = ctx.params
    written = {name: given.get(name) for name in ("out", "report", "multiqc")}
    out = Path(str(written["out"]))
    if PLACEHOLDER in str(out) or find_placeholders(out):
        written["out"] = None  # {chrom}, checked below, or an unknown placeholder, which the command refuses
    read: list[object] = []
    for name, value in given.items():
        if name not in written:
            read += value if isinstance(value, tuple) else [value]
    check_outputs([path], bool(given.get("force")), read)
    further = []  # outputs whose names are derived from a prefix or folder
    if given.get("loo"):
        from spinimpute.quality.leave_one_out import TABLES

        further += [Path(f"{given['loo']}.{table}.tsv") for table in TABLES]
    if given.get("report_figures") and Path(given["report_figures"]).is_dir():
        from spinimpute.reports.report_files import CHARTS

        further += [Path(given["report_figures"]) / f"{name}.svg" for name in CHARTS]
    check_outputs([path, *written.values(), *further], True, [], streamed=written["out"])
    before, placeholder, _ = out.name.partition(PLACEHOLDER)
    same_folder = out.parent.resolve() == Path(path).parent.resolve()
    if placeholder and same_folder and Path(path).name.startswith(before):
        raise InputError(
            "arguments", f"--log {path} could be a file of --out {out}. Choose another name or folder"
        )
    try:
        if Path(path).is_file() and not is_log(Path(path)):
            # --force does not apply: the file may be an input that is named in a list or a folder
            raise InputError("exists", f"--log {path} exists and is no log. Choose another name")
        start_log(Path(path), command_text(ctx, ()))
    except OSError as error:
        raise CannotWrite(Path(path), error) from error


def _start_log_of_words(ctx: click.Context, words: list[str]) -> None:
    """Start the log of a command line that cannot be parsed, unless this would overwrite another file."""
    after = [words[i + 1] for i, word in enumerate(words[:-1]) if word == "--log"]
    after += [word.partition("=")[2] for word in words if word.startswith("--log=")]
    if not after:
        return
    path = Path(after[0])
    with suppress(OSError):
        if not os.path.lexists(path) or (is_log(path) and {"--force", "-f"} & set(words)):
            start_log(path, " ".join([ctx.command_path, *map(_quoted, words)]))


def command_text(ctx: click.Context, without: Collection[str]) -> str:
    r"""Return the command line for the header of an output, with all options that differ from their defaults.

    A shell accepts the text. Control characters and undecodable bytes are written as in $'\x0a'. Values from
    environment variables are included. Options in `without` are omitted: they do not change the results, so
    equal results give equal bytes.
    """
    words = ctx.command_path.split()
    for parameter in ctx.command.params:
        if parameter.name is None or parameter.name in without:
            continue
        value = ctx.params.get(parameter.name)
        if value is None or value == parameter.get_default(ctx):
            continue
        for one in value if isinstance(value, tuple) else [value]:
            if isinstance(parameter, click.Option):
                words.append(_flag(parameter))
            if one is not True:
                words.append(_quoted(str(one)))
    return " ".join(words)


def _quoted(word: str) -> str:
    """Quote a word for a shell."""
    if word.isprintable():
        return shlex.quote(word)
    return "$'" + "".join(_escaped(character) for character in word) + "'"


def _escaped(character: str) -> str:
    if character.isprintable() and character not in "\\'":
        return character
    return "".join(f"\\x{byte:02x}" for byte in os.fsencode(character))
