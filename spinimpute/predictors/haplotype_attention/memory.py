"""How much is worked on at the same time, by default and within a budget of memory.

What a run holds: what it has read (the program, the panel's table of sites, typed calls), prepared chunks of
the panel, a part of the queries in every thread, and results that wait to be written. The last three shrink
to fit a budget; results do not depend on any of it. The sizes below were measured
(`python -m benchmarks.imputation budgets`), and rounded up.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from spinimpute.errors import InputError
from spinimpute.predictors.haplotype_attention.chunk import ChunkSizes
from spinimpute.quality.summary import peak_memory_mb

CODE = 110e6  # compiled functions and buffers that come only with imputing
PART = 128  # queries
THREAD = 40e6  # of a thread with parts of PART queries, without what grows with the panel and its sites
LEAST_PART = 16
FOUND = 90  # bytes of a query at a site of a block
FOUND_ENTRIES = 1_000_000  # such entries of a part, at most, unless LEAST_PART has more
CHUNK_ENTRIES = 4_000_000  # results of a part, likewise
ENTRY = 45  # bytes of a result (site x haplotype) that is being written
WAITING = 4  # of one that waits
PLACE = 2.7  # bytes of a panel haplotype at a typed place of a prepared chunk,
PATTERNS = 1_300  # and of its patterns there
PATTERN_SITE = 0.16  # and at a site, of haplotypes that differ from each other:
DIFFERENT = 10_000  # more than these hardly do within a gap
PREPARING = 2.7  # bytes of a panel haplotype at a typed place more, while a chunk is prepared
QUERY_HAPLOTYPE = 16  # bytes of a panel haplotype and a query in a thread: candidates and their probabilities
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
    found = re.fullmatch(r"(\d{1,15}(?:\.\d{1,15})?)\s*([kmgt]?)(?:i?b)?", text.strip().lower())
    size = int(float(found[1]) * 1024 ** " kmgt".index(found[2] or " ")) if found else 0
    if not size:
        raise InputError(f"no amount of memory: {text!r}; give a number and K, M, G or T, such as 2G")
    return size


def resident_bytes(peak: bool = False) -> int:
    """Memory that this process has now, or had at most so far; the latter, which is more, where the system
    does not tell (outside of Linux)."""
    name = "VmHWM:" if peak else "VmRSS:"
    try:
        with open("/proc/self/status") as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith(name))
    except (OSError, StopIteration):
        return int(peak_memory_mb() * 2**20)


@contextmanager
def within_budget(budget: int | None, what: str) -> Iterator[None]:
    """Raises InputError if memory was above the budget inside, and more than ever before."""
    before = 0 if budget is None else resident_bytes(peak=True)
    yield
    if budget is not None and (peak := resident_bytes(peak=True)) > max(budget, before):
        raise InputError(
            f"{_mb(budget)} of memory are too little: {_mb(peak)} are needed for {what}. Give more, or "
            "impute chunks (--region with --buffer) of what 'spinimpute phase' or 'convert' wrote"
        )


def limits_within(
    budget: int | None,
    held: int,
    panel_haplotypes: int,
    query_haplotypes: int,
    threads: int,
    sizes: ChunkSizes,
) -> Limits:
    """The default, or less to fit.

    Parameters:
        budget: bytes in all, or None. held: bytes that are in use already.
        panel_haplotypes, query_haplotypes: N of the panel, Q of the target. sizes: of the panel's chunks.
    Raises:
        InputError: the budget is too small, whatever is done.
    """
    fitting = min(FOUND_ENTRIES // max(1, sizes.block_sites), CHUNK_ENTRIES // max(1, sizes.sites))
    most = max(LEAST_PART, min(PART, fitting))
    limits = replace(DEFAULT, queries=most)
    if budget is None:
        return limits
    least = max(LEAST_ENTRIES, 2 * query_haplotypes)
    for chunks_ahead in (DEFAULT.chunks_ahead, 2, 1):
        for queries in (most, most // 2, most // 4):
            limits = replace(limits, chunks_ahead=chunks_ahead, queries=max(1, queries))
            left = budget - held - _working(limits, panel_haplotypes, query_haplotypes, threads, sizes)
            if left >= 4 * least * ENTRY:  # enough to work well
                return _spread(limits, left)
    if left >= least * ENTRY:
        return _spread(limits, left)
    needed = budget - left + least * ENTRY
    raise InputError(
        f"{_mb(budget)} of memory are too little for {query_haplotypes} haplotypes against a panel of "
        f"{panel_haplotypes} with {threads} thread{'s' if threads > 1 else ''}: {_mb(needed)} are needed, "
        f"{_mb(held)} of them for what has been read. {_remedy(threads)}"
    )


def check_phasing(budget: int | None, panel_haplotypes: int, typed_sites: int, threads: int) -> None:
    """Raises InputError if phasing does not fit into a budget; it has nothing that could shrink."""
    if budget is None:
        return
    of_haplotype = PHASED_SITE * typed_sites + PHASED_HAPLOTYPE * threads
    needed = resident_bytes() + CODE + panel_haplotypes * of_haplotype
    if needed > budget:
        raise InputError(
            f"{_mb(budget)} of memory are too little to phase {typed_sites} typed sites against a panel of "
            f"{panel_haplotypes} haplotypes with {threads} thread{'s' if threads > 1 else ''}: "
            f"{_mb(needed)} are needed. {_remedy(threads)}"
        )


def _working(
    limits: Limits, panel_haplotypes: int, query_haplotypes: int, threads: int, sizes: ChunkSizes
) -> float:
    """Bytes of everything but results."""
    patterns = PATTERN_SITE * sizes.sites * min(panel_haplotypes, DIFFERENT)
    chunk = panel_haplotypes * (PLACE * sizes.places + PATTERNS) + patterns
    preparing = panel_haplotypes * PREPARING * sizes.places + patterns
    of_threads = threads * min(limits.queries, query_haplotypes) * bytes_of_query(panel_haplotypes, sizes)
    return CODE + chunk * min(limits.chunks_ahead + 1, sizes.n_chunks) + preparing + of_threads


def bytes_of_query(panel_haplotypes: int, sizes: ChunkSizes) -> float:
    """Of one in a part that a thread works on."""
    of_sites = FOUND * sizes.block_sites + WAITING * sizes.sites
    return THREAD / PART + QUERY_HAPLOTYPE * panel_haplotypes + of_sites


def _spread(limits: Limits, left: float) -> Limits:
    """Three quarters for what is written, the rest for what waits."""
    return replace(
        limits,
        window=min(limits.window, int(0.75 * left / ENTRY)),
        ahead=min(limits.ahead, int(0.25 * left / WAITING)),
    )


def _remedy(threads: int) -> str:
    fewer = "fewer threads, " if threads > 1 else ""
    return f"Give more, {fewer}or impute chunks (--region with --buffer)"


def _mb(size: float) -> str:
    return f"{size / 2**20:.0f} MB"
