"""The command `spinimpute`: a list of its subcommands, and the entry point `main`.

`main` runs a subcommand in a child process (see `watcher`) and converts exceptions to messages and exit
statuses. A subcommand's module is imported only when it is run, so that help appears quickly.
"""

from __future__ import annotations

import errno
import gc
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

from spinimpute.runtime.errors import InputError, use_words
from spinimpute.runtime.packages import explain_missing_packages
from spinimpute.runtime.progress import announcements

from . import messages
from .messages import discard, end_log, name_option, say, to_log, warn
from .watcher import BAD_INPUT, FORWARDED, notify, start_watched

DEFECT, INTERRUPTED = 1, 130  # exit statuses
NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # errors of a full disk

# name -> (module of this package, function in it, line in the list of commands)
COMMANDS = {
    "panel": ("panel", "panel", "Build, download, merge, tune, label, describe and verify reference panels."),
    "impute": ("impute", "impute", "Impute genotypes from a reference panel."),
    "ligate": ("join", "ligate", "Join separately imputed chunks of a chromosome."),
    "merge": ("join", "merge", "Join separately imputed batches of samples."),
    "check": ("check", "check", "Compare a target's sites and calls with a panel."),
    "convert": (
        "convert_and_phase",
        "convert",
        "Convert a target of any format to VCF, BCF, PLINK 2 or BGEN.",
    ),
    "phase": ("convert_and_phase", "phase", "Phase genotypes with a reference panel."),
    "evaluate": ("evaluate", "evaluate", "Compare imputed with true genotypes."),
    "np": ("np", "np", "Train, evaluate and plot neural processes on Gaussian-process tasks."),
    "tabular": ("tabular", "tabular", "Learn from tables and predict a column."),
    "train": ("train", "train", "Train a model on simulated segments or on a panel."),
    "version": ("main", "version", "Print the versions of models and libraries, and the hardware."),
}


class LazyGroup(click.Group):
    """A group of commands that imports a command only when it is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command, or return None if there is no command of this name."""
        if cmd_name not in COMMANDS:
            return None
        module, attribute, _ = COMMANDS[cmd_name]
        found: click.Command = getattr(import_module(f".{module}", __package__), attribute)
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands in the help without importing the commands."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, _, line) in COMMANDS.items()])


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Each command explains itself: spinimpute COMMAND -h",
)
@click.version_option(package_name="spinimpute", message="%(package)s %(version)s")
def spinimpute() -> None:
    """Genotype imputation with neural networks that query the reference panel."""
    announcements[:] = [say]
    click.get_current_context().with_resource(use_words(name_option, messages.COMMAND_OF_CALL.__getitem__))


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def version(as_json: bool) -> None:
    """Print the versions of spinimpute, its models and its libraries, and the hardware."""
    from spinimpute.predictors.loading import environment

    found = environment()
    if as_json:
        click.echo(json.dumps(found, indent=1))
        return
    width = max(map(len, found))
    for name, value in found.items():
        click.echo(f"{name:{width}}  {value}")


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    text = str(message)
    if "\nTraceback" in text:  # some warnings of numba contain a traceback
        text = text.splitlines()[0]
    warn(text)


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run a command in a watched process, and exit with its status.

    The status is 0 after success, 1 after a defect or if standard output was closed, 2 for bad input, and
    128 + the signal's number after Ctrl-C or another signal. `arguments` defaults to `sys.argv[1:]`.
    """
    start_watched()
    status = DEFECT
    try:
        status = run_command(arguments)
    finally:
        for number in FORWARDED:  # the command has ended, and only buffered output remains to be written
            signal.signal(number, signal.SIG_IGN)
        notify("opened", "exit", str(status))
    gc.freeze()  # otherwise Python searches all objects for garbage at exit, for a tenth of a second
    sys.exit(status)


def run_command(arguments: list[str] | None = None) -> int:
    """Run a command in this process, print a message for an exception, and return the exit status."""
    warnings.showwarning = _show_warning
    if isinstance(sys.stdout, io.TextIOWrapper):
        # escape characters that the terminal's encoding lacks, as Python does on stderr
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        with explain_missing_packages("this command"):
            # without standalone mode, click raises its exceptions instead of handling them
            status = spinimpute(arguments, prog_name="spinimpute", standalone_mode=False)
        return status if isinstance(status, int) else 0
    except click.ClickException as error:
        try:
            error.show()
        except OSError:  # stderr is closed or full: only the exit status can report the error
            discard(sys.stderr)
        with suppress(OSError):
            to_log(f"Error: {error.format_message()}")
        return error.exit_code
    except BrokenPipeError:
        discard(sys.stdout)  # the program that reads our output has ended
        return 1
    except (KeyboardInterrupt, click.Abort):
        say("spinimpute: interrupted")
        return INTERRUPTED
    except (InputError, OSError, MemoryError) as error:
        say(f"spinimpute: error: {_explain(error)}")
        return BAD_INPUT
    finally:
        end_log()


def _explain(error: InputError | OSError | MemoryError) -> str:
    """Return the message for an exception. If standard output is full, discard the rest of it."""
    if isinstance(error, MemoryError):
        return (
            "there is not enough memory. Give the job more memory, or let 'spinimpute impute' use less with "
            "--max-memory or fewer --threads"
        )
    # without a file name, the error is about standard output
    if isinstance(error, OSError) and error.errno in NO_SPACE and error.filename is None:
        discard(sys.stdout)
        return f"cannot write standard output: {error.strerror}"
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        advice = ". Check the permissions of its folder" if isinstance(error, PermissionError) else ""
        return f"{os.fsdecode(error.filename)}: {error.strerror}{advice}"
    return str(error)


if __name__ == "__main__":
    main()
