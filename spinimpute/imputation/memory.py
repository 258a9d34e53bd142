"""How much is worked on at the same time, by default and within a budget of memory.

What a run holds: what it has read (the program, the panel's table of sites, typed calls), prepared chunks of
the panel, a part of the queries in every thread, and results that wait to be written. The last three shrink
to fit a budget; results do not depend on any of it. The sizes below were measured
(`python -m benchmarks.imputation budgets`), and rounded up.
"""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass, replace

from spinimpute.errors import InputError

CODE = 110e6  # compiled functions and buffers that come only with imputing
THREAD = 40e6  # of a thread with parts of PART queries, without what grows with the panel
PART = 128
ENTRY = 45  # bytes of a result (site x haplotype) that is being written
WAITING = 4  # of one that waits
PLACE = 2.7  # bytes of a panel haplotype at a typed place of a prepared chunk,
PATTERNS = 1_300  # and of its patterns there
PREPARING = 3.5  # bytes of a panel haplotype at a typed place more, while a chunk is prepared
QUERY_HAPLOTYPE = 1.3  # bytes of a panel haplotype and a query in a thread
PHASED_SITE = 0.25  # bytes of a panel haplotype and a typed site while phasing
PHASED_HAPLOTYPE = 3_000  # of a panel haplotype in a thread that phases
LEAST_ENTRIES = 100_000


@dataclass(frozen=True)
class Limits:
    """window: results (sites x haplotypes) that are written at once; a chunk that has more goes through a
    temporary file. ahead: that wait, if more than one chunk does; chunks_ahead: being computed; queries: of a
    part, which one thread computes."""

    window: int = 8_000_000
    ahead: int = 12_000_000
    chunks_ahead: int = 3
    queries: int = PART


DEFAULT = Limits()


def parse_size(text: str) -> int:
    """Bytes of "800M", "2G", "1.5GB" or "3000000". Raises InputError for anything else."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", text.strip().lower())
    size = int(float(found[1]) * 1024 ** " kmgt".index(found[2] or " ")) if found else 0
    if not size:
        raise InputError(f"no amount of memory: {text!r}; give a number and K, M, G or T, such as 2G")
    return size


def resident_bytes() -> int:
    """Memory that this process has now; 0 where the system does not tell."""
    if not sys.platform.startswith("linux"):
        return 0
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def limits_within(
    budget: int | None,
    held: int,
    panel_haplotypes: int,
    query_haplotypes: int,
    threads: int,
    n_chunks: int,
    places: int,
) -> Limits:
    """The default, or less to fit.

    Parameters:
        budget: bytes in all, or None. held: bytes that are in use already.
        panel_haplotypes, query_haplotypes: N of the panel, Q of the target.
        n_chunks, places: chunks that there are, and typed places of the largest (`chunk_sizes`).
    Raises:
        InputError: the budget is too small, whatever is done.
    """
    limits = DEFAULT
    if budget is None:
        return limits
    least = max(LEAST_ENTRIES, 2 * query_haplotypes)
    for chunks_ahead in (limits.chunks_ahead, 2, 1):
        for queries in (PART, PART // 2, PART // 4):
            limits = replace(limits, chunks_ahead=chunks_ahead, queries=queries)
            prepared = min(chunks_ahead + 1, n_chunks)
            left = budget - held - _working(limits, panel_haplotypes, threads, prepared, places)
            if left >= 4 * least * ENTRY:  # enough to work well
                return _spread(limits, left)
    if left >= least * ENTRY:
        return _spread(limits, left)
    needed = budget - left + least * ENTRY
    raise InputError(
        f"{_mb(budget)} of memory are too little for {query_haplotypes} haplotypes against a panel of "
        f"{panel_haplotypes} with {threads} thread{'s' if threads > 1 else ''}: {_mb(needed)} are needed, "
        f"{_mb(held)} of them for what has been read. Give more, fewer threads, or impute chunks (--region "
        "with --buffer)"
    )


def check_phasing(
    budget: int | None, held: int, panel_haplotypes: int, typed_sites: int, threads: int
) -> None:
    """Raises InputError if phasing does not fit into a budget; it has nothing that could shrink."""
    if budget is None:
        return
    needed = held + CODE + panel_haplotypes * (PHASED_SITE * typed_sites + PHASED_HAPLOTYPE * threads)
    if needed > budget:
        raise InputError(
            f"{_mb(budget)} of memory are too little to phase {typed_sites} typed sites against a panel of "
            f"{panel_haplotypes} haplotypes with {threads} thread{'s' if threads > 1 else ''}: "
            f"{_mb(needed)} are needed. Give more, fewer threads, or impute chunks (--region with --buffer)"
        )


def _working(limits: Limits, panel_haplotypes: int, threads: int, chunks: int, places: int) -> float:
    """Bytes of everything but results."""
    of_haplotype = chunks * (PLACE * places + PATTERNS) + PREPARING * places
    of_thread = THREAD * limits.queries / PART + QUERY_HAPLOTYPE * limits.queries * panel_haplotypes
    return CODE + panel_haplotypes * of_haplotype + threads * of_thread


def _spread(limits: Limits, left: float) -> Limits:
    """Three quarters for what is written, the rest for what waits."""
    return replace(
        limits,
        window=min(limits.window, int(0.75 * left / ENTRY)),
        ahead=min(limits.ahead, int(0.25 * left / WAITING)),
    )


def _mb(size: float) -> str:
    return f"{size / 2**20:.0f} MB"
