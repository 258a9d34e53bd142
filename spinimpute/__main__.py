"""The command `spinimpute`, and `python -m spinimpute`, which torchrun needs."""

import os
import signal
import sys


def main() -> None:
    """Load the command line and run it."""
    # while it is loaded nothing is written yet: Ctrl-C may end the process as it is, without a traceback
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    # numpy would start a thread for every core; nothing here uses them, and --threads does not count them
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        from spinimpute.cli.main import main as command
    except ModuleNotFoundError as error:  # sources that are not installed, or an absent dependency
        sys.exit(
            f"spinimpute: error: {error}. Install spinimpute with its dependencies: run 'pip install .' in "
            "the folder of its sources"
        )

    command()


if __name__ == "__main__":
    main()
