"""Names of outputs that stand for several: one for each chromosome."""

from __future__ import annotations

import os
import re
from pathlib import Path

from spinimpute.errors import InputError

PLACEHOLDER = "{chrom}"
_IN_BRACES = re.compile(r"\{[^{}]*\}")


def words_in_braces(out: str | Path) -> list[str]:
    """What stands in braces in an output's name. Folders that are there may be called anything."""
    path = Path(out)
    there = next((parent for parent in path.parents if os.path.isdir(parent)), None)
    return _IN_BRACES.findall(str(path if there is None else path.relative_to(there)))


def check_placeholders(out: str | Path) -> None:
    """Raise InputError for an output whose name has something in braces that is not PLACEHOLDER."""
    unknown = next((word for word in words_in_braces(out) if word != PLACEHOLDER), None)
    if unknown is not None:
        raise InputError(
            f"output {out}: {unknown} would be part of the name as it is; {PLACEHOLDER} stands for the name "
            "of each chromosome. Write that, or give a name without braces"
        )


def check_one_file(out: str | Path) -> None:
    """Raise InputError for an output that is one file, and whose name has something in braces."""
    if words := words_in_braces(out):
        raise InputError(
            f"cannot write {out}: {words[0]} would be part of the name as it is; {PLACEHOLDER} has a meaning "
            "for the output of 'impute' only: give a name without braces"
        )


def fixed_output(out: str | Path) -> str | Path | None:
    """An output that is one file, which can be checked at once; None with PLACEHOLDER.

    Raises
    ------
    InputError
        As of `check_placeholders`.
    """
    check_placeholders(out)
    return None if PLACEHOLDER in str(out) else out


def output_of(out: str | Path, chrom: str) -> Path:
    """The file of a chromosome; out: with PLACEHOLDER."""
    return Path(str(out).replace(PLACEHOLDER, chrom))
