"""`python -m spinimpute` is `spinimpute`; torchrun needs a module."""

from spinimpute.cli.main import main

if __name__ == "__main__":
    main()
