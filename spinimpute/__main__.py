"""Entry point of the command `spinimpute` and of `python -m spinimpute`, which torchrun needs."""

import os
import signal
import sys


def main() -> None:
    """Import the command line and run it."""
    # During the import, Ctrl-C ends the process without a traceback; no file has been written yet.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    # By default, NumPy starts a thread for each core. We do not use them, and --threads does not limit them.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        from spinimpute.cli.main import main as command
    except ModuleNotFoundError as error:  # spinimpute or a dependency is not installed
        sys.exit(
            f"spinimpute: error: {error}. Install spinimpute with its dependencies: run 'pip install .' in "
            "the folder of its sources"
        )

    command()


if __name__ == "__main__":
    main()
