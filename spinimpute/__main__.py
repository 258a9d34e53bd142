"""The command `spinimpute`, and `python -m spinimpute`, which torchrun needs."""

import signal


def main() -> None:
    """Load the command line and run it."""
    # while it is loaded nothing is written yet: Ctrl-C may end the process as it is, without a traceback
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from spinimpute.cli.main import main as command

    command()


if __name__ == "__main__":
    main()
