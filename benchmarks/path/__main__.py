"""Count the functions that `spinimpute impute` enters for the phased example, and the depth of nested calls.

A comprehension or generator expression is part of the function that contains it. Numba kernels count if
Python calls them; calls inside compiled code do not count.
"""

from __future__ import annotations

import inspect
import sys
import threading
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import click
from spinimpute.cli.main import run_command

import spinimpute

ROOT = Path(spinimpute.__file__).resolve().parent.parent
PACKAGES = (f"{ROOT}/spinimpute/", f"{ROOT}/cli/")
EXAMPLE = ROOT / "data" / "example"


class Calls:
    """Records functions of the package that any thread enters.

    Attributes
    ----------
    entered : dict of code object to int
        Calls of each function.
    deepest : list of str
        Names of the functions on the deepest stack, outermost first.
    """

    def __init__(self) -> None:
        self.entered: Counter[CodeType] = Counter()
        self.deepest: list[str] = []

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        """Record a call, as a function for `sys.setprofile`."""
        if event != "call" or not _counts(frame.f_code):
            return
        self.entered[frame.f_code] += 1
        stack: list[str] = []
        above: FrameType | None = frame
        while above is not None:
            if _counts(above.f_code):
                stack.append(above.f_code.co_qualname)
            above = above.f_back
        if len(stack) > len(self.deepest):
            self.deepest = stack[::-1]


def _counts(code: CodeType) -> bool:
    """Return whether this is a function of the package, and not a module, a class body or a comprehension."""
    is_function = bool(code.co_flags & inspect.CO_OPTIMIZED) and not code.co_name.startswith("<")
    return is_function and code.co_filename.startswith(PACKAGES)


def _room(code: CodeType) -> str:
    path = Path(code.co_filename).relative_to(ROOT)
    return path.parts[1] if path.parts[0] == "spinimpute" else "cli"


@click.command(help=__doc__)
@click.option("--panel", default=str(EXAMPLE / "panel.vcf.gz"), show_default=True, help="Panel of the run.")
@click.option("--vcf", default=str(EXAMPLE / "target.vcf.gz"), show_default=True, help="Target of the run.")
@click.option("--out", required=True, help="Imputed file to write.")
@click.option("--names", is_flag=True, help="List all functions.")
def main(panel: str, vcf: str, out: str, names: bool) -> None:
    calls = Calls()
    threading.setprofile(calls)
    sys.setprofile(calls)
    try:
        status = run_command(["impute", "--vcf", vcf, "--panel", panel, "--out", out, "--force", "--quiet"])
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    if status:
        sys.exit(status)
    files = {code.co_filename for code in calls.entered}
    click.echo(f"{len(calls.entered)} functions in {len(files)} files, depth {len(calls.deepest)}")
    for room, count in Counter(map(_room, calls.entered)).most_common():
        click.echo(f"{count:5} {room}")
    click.echo("deepest: " + " > ".join(calls.deepest))
    if names:
        for code in sorted(calls.entered, key=lambda code: (code.co_filename, code.co_firstlineno)):
            click.echo(f"{Path(code.co_filename).relative_to(ROOT)}:{code.co_firstlineno} {code.co_qualname}")


if __name__ == "__main__":
    main()
