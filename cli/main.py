"""`spinimpute`: the list of its commands, `spinimpute version`, and the messages of errors."""

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

from . import messages
from .messages import discard, end_log, name_option, say, to_log, warn
from .watcher import BAD_INPUT, FORWARDED, notify, start_watched

DEFECT, INTERRUPTED = 1, 130
NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

# name -> (module of this package, attribute, one line of help): commands are listed without importing them
COMMANDS = {
    "panel": ("panel", "panel", "Build, describe and verify reference panels."),
    "impute": ("impute", "impute", "Impute genotypes from a reference panel."),
    "ligate": ("ligate", "ligate", "Join chunks of a chromosome that were imputed apart."),
    "check": ("check", "check", "Compare a target's sites and calls with a panel."),
    "convert": ("convert_and_phase", "convert", "Write a target of any form as VCF or BCF."),
    "phase": ("convert_and_phase", "phase", "Phase genotypes with a reference panel."),
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


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Each command explains itself: spinimpute COMMAND -h",
)
@click.version_option(package_name="spinimpute", message="%(package)s %(version)s")
def spinimpute() -> None:
    """Genotype imputation with neural networks that query the reference panel."""
    announcements[:] = [say]
    click.get_current_context().with_resource(words(name_option, messages.COMMANDS.__getitem__))


@click.command()
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def version(as_json: bool) -> None:
    """Versions of spinimpute, its models and its libraries, and what there is to compute with."""
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
    if "\nTraceback" in text:  # numba quotes one
        text = text.splitlines()[0]
    warn(text)


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run a command in a watched process, and exit with its status.

    The status is 0, 2 for bad input, and 130 or 143 after an interrupt. By default the arguments are those of
    the process. Signals after the command's end change nothing.
    """
    start_watched()
    status = DEFECT
    try:
        status = run_command(arguments)
    finally:
        for number in FORWARDED:
            signal.signal(number, signal.SIG_IGN)
        notify("opened", "exit", str(status))
    os._exit(status)  # Python would look for garbage for a tenth of a second


def run_command(arguments: list[str] | None = None) -> int:
    """Run a command in this process, turn its errors into messages, and return the exit status."""
    warnings.showwarning = _show_warning
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # as stderr: a terminal may lack our characters
    try:
        # not standalone: click raises its exceptions
        status = spinimpute(arguments, prog_name="spinimpute", standalone_mode=False)
        if sys.stdout is not None:
            sys.stdout.flush()
        return status if isinstance(status, int) else 0
    except click.ClickException as error:
        try:
            error.show()
        except OSError:  # stderr cannot be written: the exit status says enough
            discard(sys.stderr)
        with suppress(OSError):
            to_log(f"Error: {error.format_message()}")
        return error.exit_code
    except BrokenPipeError:
        discard(sys.stdout)  # the reader of our output has closed it
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
    """Return the message of an error; standard output that cannot be written is discarded."""
    if isinstance(error, MemoryError):
        return (
            "there is not enough memory. Give the job more memory, or use less: 'spinimpute impute' with "
            "--max-memory or fewer --threads"
        )
    # errors of files have a name
    if isinstance(error, OSError) and error.errno in NO_SPACE and error.filename is None:
        discard(sys.stdout)
        return f"cannot write standard output: {error.strerror}"
    return str(error)  # of the system, such as for a name that is too long


if __name__ == "__main__":
    main()
