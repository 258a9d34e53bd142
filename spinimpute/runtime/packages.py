"""Optional packages: which extra of spinimpute installs them, and errors that say so.

The base installation imputes with the default predictor. Other tasks need further packages, which
the extras in pyproject.toml install.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from spinimpute.runtime.errors import InputError

# module -> (its package, extra that installs the package)
OPTIONAL = {
    "matplotlib": ("matplotlib", "charts"),
    "msprime": ("msprime", "train"),
    "pandas": ("pandas", "tables"),
    "pgenlib": ("pgenlib", "plink"),
    "pyarrow": ("pyarrow", "tables"),
    "sklearn": ("scikit-learn", "tables"),
    "torch": ("torch", "torch"),
}


class MissingPackage(InputError, ImportError):
    """An optional package is not installed. The message names the extra that installs it."""

    def __init__(self, module: str, purpose: str, extra: str | None = None) -> None:
        package, extra_of_package = OPTIONAL[module]
        super().__init__(
            "package",
            f"{purpose} needs the package {package}, which is not installed. Install it: "
            f"pip install 'spinimpute[{extra or extra_of_package}]'",
        )


def is_installed(module: str) -> bool:
    """Return whether a package is installed, without importing it."""
    return find_spec(module) is not None


def check_package(module: str, purpose: str) -> None:
    """Raise MissingPackage if an optional package is not installed. `purpose` begins the message."""
    if not is_installed(module):
        raise MissingPackage(module, purpose)


@contextmanager
def explain_missing_packages(purpose: str, extra: str | None = None) -> Iterator[None]:
    """Convert failed imports of optional packages inside the `with` block to MissingPackage.

    `purpose` begins the message, and `extra` is recommended, by default the extra of the missing package.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        module = (error.name or "").partition(".")[0]
        if module not in OPTIONAL:
            raise
        raise MissingPackage(module, purpose, extra) from error
