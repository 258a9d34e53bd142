"""The command `spinimpute`, and `python -m spinimpute`, which torchrun needs."""

import os
import signal


def main() -> None:
    """Load the command line and run it."""
    # while it is loaded nothing is written yet: Ctrl-C may end the process as it is, without a traceback
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    # numpy would start a thread for every core, which nothing here has a use for and --threads does not count
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from spinimpute.cli.main import main as command

    command()


if __name__ == "__main__":
    main()
