"""`spinimpute`: its commands, `spinimpute version`, and the one place where errors become messages."""

from __future__ import annotations

import errno
import io
import json
import os
import signal
import sys
import warnings
from contextlib import suppress
from importlib import import_module
from typing import Any, NoReturn

import click

from spinimpute.runtime.errors import InputError, words
from spinimpute.runtime.progress import announcements
from spinimpute.runtime.watched import ending

from .messages import command, discard, end_log, option, say, to_log, warn

BAD_INPUT = 2
INTERRUPTED = 130
ENDING = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}
SOON, AGAIN = 0.01, 3.0  # seconds
NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

_asked: list[int] = []  # the status to end with, once a signal has asked for it

# name -> (module of this package, attribute, one line of help): commands are listed without importing them
COMMANDS = {
    "panel": ("panel", "panel", "Build, describe and verify reference panels."),
    "impute": ("impute", "impute", "Impute genotypes from a reference panel."),
    "ligate": ("ligate", "ligate", "Join chunks of a chromosome that were imputed apart."),
    "check": ("check", "check", "Compare a target's sites and calls with a panel."),
    "convert": ("convert", "convert", "Write a target of any form as VCF or BCF."),
    "phase": ("phase", "phase", "Phase genotypes with a reference panel."),
    "evaluate": ("evaluate", "evaluate", "Compare imputed with true genotypes."),
    "np": ("np", "np", "Neural processes on Gaussian-process tasks."),
    "tabular": ("tabular", "tabular", "Learn from tables and predict a column."),
    "train": ("train", "train", "Train a model on simulated segments or on a panel."),
    "version": ("main", "version", "Versions of models and libraries, and the hardware."),
}


class LazyGroup(click.Group):
    """Imports a command when it is run, so that help comes at once."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of all commands, in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; None if there is none of this name."""
        if cmd_name not in COMMANDS:
            return None
        module, attribute, _ = COMMANDS[cmd_name]
        found: click.Command = getattr(import_module(f".{module}", __package__), attribute)
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands' part of the help without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, _, line) in COMMANDS.items()])


def _print_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        from importlib.metadata import version

        click.echo(f"spinimpute {version('spinimpute')}")
        ctx.exit()


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Each command explains itself: spinimpute COMMAND -h",
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the version and exit.",
)
def spinimpute() -> None:
    """Genotype imputation with neural networks that query the reference panel."""
    announcements[:] = [say]
    click.get_current_context().with_resource(words(option, command))


@click.command()
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def version(as_json: bool) -> None:
    """Versions of spinimpute, its models and its libraries, and what there is to compute with."""
    from spinimpute.pipeline.versions import environment

    found = environment()
    if as_json:
        click.echo(json.dumps(found, indent=1))
        return
    width = max(map(len, found))
    for name, value in found.items():
        click.echo(f"{name:{width}}  {value}")


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    said = str(message)
    if "\nTraceback" in said:  # numba quotes one, of a variable that it cannot read
        said = said.splitlines()[0]
    warn(said)


def _unwind(number: int, _: Any) -> NoReturn:
    """The end that a signal asks for unwinds like an exception: temporary files are removed."""
    _hold_signals()  # another, of a terminal or of the process that watches, must not stop this
    _asked.append(128 + number)
    _end_later(SystemExit(128 + number), AGAIN)  # libraries that catch all exceptions go on
    sys.exit(128 + number)


def _hold_signals() -> None:
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)


def _swallowed(ignored: Any) -> None:
    """Python ignores what is raised while an object is deleted: an end comes once more, when it is gone."""
    error = ignored.exc_value
    if isinstance(error, SystemExit):
        _end_later(error, SOON)
    else:
        sys.__unraisablehook__(ignored)


def _end_later(error: SystemExit, seconds: float) -> None:
    """Raise it in so many seconds, and again until the command has ended. Not on Windows."""
    if not hasattr(signal, "setitimer"):
        return

    def end(*_: Any) -> NoReturn:
        raise error

    signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN)


def _fail(message: str, status: int) -> NoReturn:
    if not _asked:  # else a library turned the end into an error of its own
        say(f"spinimpute: {message}")
    sys.exit(status)


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run a command in a process that is watched, and exit with its status.

    It is 0; 2 for bad input; 130 or 143 when interrupted.

    Parameters
    ----------
    arguments : list of str or None
        Of the command line; None for those of the process.
    """
    if hasattr(os, "fork"):  # not on Windows
        from spinimpute.runtime.watching import start_watched

        start_watched()
    run_command(arguments)


def run_command(arguments: list[str] | None = None) -> NoReturn:
    """Run a command in this process, and exit; arguments as of `main`.

    From its end on the process ignores signals to end: what Python does then must not be disturbed.
    """
    hook, sys.unraisablehook = sys.unraisablehook, _swallowed
    _asked.clear()
    try:
        _run(arguments)
    finally:
        _hold_signals()
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_REAL, 0)
        sys.unraisablehook = hook
        ending()
        if _asked:  # whatever became of it on its way
            say(f"spinimpute: {ENDING[signal.Signals(_asked[0] - 128)]}")
        end_log()
        if _asked:
            sys.exit(_asked[0])


def _run(arguments: list[str] | None) -> NoReturn:
    warnings.showwarning = _show_warning
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # as stderr: a terminal may lack our characters
    for number in ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup wants it
            signal.signal(number, _unwind)
    try:
        # not standalone: click then leaves exceptions to us
        status = spinimpute(arguments, prog_name="spinimpute", standalone_mode=False)
    except click.ClickException as error:
        try:
            error.show()
        except OSError:  # stderr cannot be written: the exit status says enough
            discard(sys.stderr)
        with suppress(OSError):
            to_log(f"Error: {error.format_message()}")
        sys.exit(error.exit_code)
    except InputError as error:
        _fail(f"error: {error}", BAD_INPUT)
    except BrokenPipeError:
        discard(sys.stdout)  # the reader of our output has closed it
        sys.exit(1)
    except OSError as error:
        if error.errno in NO_SPACE and error.filename is None:  # all other files have a name
            discard(sys.stdout)
            _fail(f"error: cannot write standard output: {error.strerror}", BAD_INPUT)
        # a name too long, a folder taken away: the system's word, not a traceback
        _fail(f"error: {error}", BAD_INPUT)
    except MemoryError:
        _fail(
            "error: there is not enough memory: give the job more, or 'impute' less with --max-memory or "
            "--threads",
            BAD_INPUT,
        )
    except (KeyboardInterrupt, click.Abort):
        _fail("interrupted", INTERRUPTED)
    sys.exit(status if isinstance(status, int) else 0)


if __name__ == "__main__":
    main()
