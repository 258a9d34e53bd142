"""Tables of quality, for programs."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from spinimpute.runtime.errors import printable


def write_table(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Write a table separated by tabs; undefined values are NA.

    Parameters
    ----------
    path : Path
        The file to write.
    rows : iterable of dict
        Rows with the same keys, which are the head of the table.

    Raises
    ------
    OSError
        The file cannot be written.
    """
    with path.open("w", newline="") as file:
        writer = None
        for row in rows:
            if writer is None:
                writer = csv.DictWriter(file, list(row), delimiter="\t", lineterminator="\n")
                writer.writeheader()
            writer.writerow({name: _shown(value) for name, value in row.items()})


def _shown(value: object) -> object:
    if value is None:
        return "NA"
    if not isinstance(value, float):
        return printable(value) if isinstance(value, str) else value
    return "NA" if math.isnan(value) else f"{value:.6g}"
