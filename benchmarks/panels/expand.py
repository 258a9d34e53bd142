"""Seconds to read intervals of a panel file, printed as JSON; `python -m benchmarks.panels` starts this."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

import numpy as np

from spinimpute.panels.panel import Panel

WINDOW_SITES = 4_096  # in the middle of the panel
TYPED_SITES = 512  # evenly spread over the panel, as those of an array


def seconds_of(path: str) -> dict[str, float]:
    """Return seconds by action, each done twice: the CRC of a block is checked only when it is first read."""
    found = {}
    with Panel.open(path) as panel:
        panel.packed(0, min(256, panel.n_sites))  # what is compiled or loaded once
    with Panel.open(path) as panel:
        start = max(0, panel.n_sites // 2 - WINDOW_SITES // 2)
        stop = min(start + WINDOW_SITES, panel.n_sites)
        typed = np.unique(np.linspace(0, panel.n_sites - 1, TYPED_SITES).astype(np.int64))
        for again in ("first", "again"):
            found[f"window, {again}"] = _seconds(lambda: panel.packed(start, stop))
        for again in ("first", "again"):
            found[f"typed sites, {again}"] = _seconds(lambda: panel.packed_rows(typed))
    return found


def _seconds(read: Callable[[], np.ndarray]) -> float:
    start = time.perf_counter()
    read()
    return time.perf_counter() - start


if __name__ == "__main__":
    print(json.dumps(seconds_of(sys.argv[1])))
