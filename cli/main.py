"""`spinimpute`: the group of commands, and the one place where errors become messages."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import signal
import sys
import threading
import warnings
from importlib import import_module
from typing import IO, Any, NoReturn

import click

from spinimpute.errors import InputError, printable
from spinimpute.watched import ending

BAD_INPUT = 2
INTERRUPTED = 130
TERMINATED = 143
SOON, AGAIN = 0.01, 3.0  # seconds
NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

_asked_to_end = threading.Event()

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
    "version": ("version", "version", "Versions of models and libraries, and the hardware."),
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
        command: click.Command = getattr(import_module(f".{module}", __package__), attribute)
        return command

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
    from spinimpute.compilation import start_command

    start_command(lambda line: click.echo(line, err=True))


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    said = str(message)
    if "\nTraceback" in said:  # numba quotes one, of a variable that it cannot read
        said = said.splitlines()[0]
    click.echo(f"spinimpute: warning: {printable(said)}", err=True)


def _terminated(*_: Any) -> NoReturn:
    # a scheduler's SIGTERM then unwinds like an exception: temporary files are removed. Another, which the
    # watcher passes on, must not stop this
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _asked_to_end.set()
    _say("terminated")
    _end_later(SystemExit(TERMINATED), AGAIN)  # libraries that catch all exceptions go on
    sys.exit(TERMINATED)


def _interrupted(*_: Any) -> NoReturn:
    # a terminal's Ctrl-C comes once more from the process that watches: it must not stop the cleaning up
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise KeyboardInterrupt


def _swallowed(ignored: Any) -> None:
    """Python ignores what is raised while an object is deleted: an end comes once more, when it is gone."""
    error = ignored.exc_value
    if isinstance(error, SystemExit | KeyboardInterrupt):
        _end_later(error, SOON)
    else:
        sys.__unraisablehook__(ignored)


def _end_later(error: SystemExit | KeyboardInterrupt, seconds: float) -> None:
    """Raise it in so many seconds, and again until the command has ended. Not on Windows."""
    if not hasattr(signal, "setitimer"):
        return

    def end(*_: Any) -> NoReturn:
        raise error

    signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN)


def _fail(message: str, status: int) -> NoReturn:
    if _asked_to_end.is_set():  # a library turned the end into an error of its own
        sys.exit(TERMINATED)
    _say(message)
    sys.exit(status)


def _say(message: str) -> None:
    try:
        click.echo(f"spinimpute: {printable(message)}", err=True)
    except OSError:  # stderr goes to a full disk: the exit status says enough
        _discard(sys.stderr)


def _discard(stream: IO[str]) -> None:
    """What is left in the stream's buffer: some Pythons fail with it at exit, and with another status."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run a command in a process that is watched, and exit with its status.

    It is 0; 2 for bad input; 130 or 143 when interrupted.

    Parameters
    ----------
    arguments : list of str or None
        Of the command line; None for those of the process.
    """
    if hasattr(os, "fork"):  # not on Windows
        from spinimpute.watching import start_watched

        start_watched()
    run_command(arguments)


def run_command(arguments: list[str] | None = None) -> NoReturn:
    """Run a command in this process, and exit; arguments as of `main`."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    hook, sys.unraisablehook = sys.unraisablehook, _swallowed
    _asked_to_end.clear()
    try:
        _run(arguments)
    finally:
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_REAL, 0)
        sys.unraisablehook = hook
        for number, handler in before.items():
            signal.signal(number, handler)
        ending()


def _run(arguments: list[str] | None) -> NoReturn:
    warnings.showwarning = _show_warning
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # as stderr: a terminal may lack our characters
    signal.signal(signal.SIGTERM, _terminated)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupted)
    try:
        # not standalone: click then leaves exceptions to us
        status = spinimpute(arguments, prog_name="spinimpute", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except InputError as error:
        _fail(f"error: {error}", BAD_INPUT)
    except BrokenPipeError:
        _discard(sys.stdout)  # the reader of our output has closed it
        sys.exit(1)
    except OSError as error:
        if error.errno in NO_SPACE and error.filename is None:  # all other files have a name
            _discard(sys.stdout)
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
