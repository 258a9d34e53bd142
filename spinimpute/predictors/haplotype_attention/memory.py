"""How much is computed at the same time, by default and within a memory budget.

A run holds: what it has read (the program, the panel's table of sites, typed calls), prepared chunks of the
panel, a part of the queries in every thread, and results that wait to be written. The last three shrink to
fit a budget; results do not depend on any of it. The sizes below were measured (`python -m
benchmarks.imputation budgets`), and rounded up.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from spinimpute.hmm import parameters
from spinimpute.predictors import typed_chunks
from spinimpute.predictors.engine import ImputationJob
from spinimpute.predictors.haplotype_attention.chunk import ChunkSizes
from spinimpute.predictors.haplotype_attention.copying import FEW_NUMBERS
from spinimpute.runtime.errors import InputError
from spinimpute.runtime.memory import COMPILED, remedy, resident_bytes, shown_size

PART = 128  # queries
THREAD = 40e6  # of a thread with parts of PART queries, without what grows with the panel and its sites
PART_BYTES = 70e6  # of a part's candidates, which limits its queries: larger arrays are new memory each time
LEAST_PART = 16
FOUND = 98  # bytes of a query at a site of a block
FOUND_ENTRIES = 1_000_000  # such entries of a part, at most, unless LEAST_PART has more
CHUNK_ENTRIES = 4_000_000  # results of a part, likewise
ENTRY = 45  # bytes of a result (site x haplotype) that is being written
WAITING = 4  # of one that waits
PLACE = 0.6  # bytes of a panel haplotype at a typed place of a prepared chunk,
PATTERN = 2.2  # of its pattern in a gap, twice as many in a chunk with a gap of more than FEW_NUMBERS,
HAPLOTYPE = 60  # and otherwise
PATTERN_SITE = 0.16  # bytes at a site, of haplotypes that differ from each other:
DIFFERENT = 10_000  # more than these hardly do within a gap
PREPARING = 0.6  # bytes of a panel haplotype at a typed place more, while a chunk is prepared,
HASHES = 200  # and of its hashes
QUERY_HAPLOTYPE = 24  # bytes of a panel haplotype and a query in a thread: candidates' probabilities,
COUNTED = 45_000  # of whom no more count, as the number of candidates is bounded
WALK = 2048  # queries whose matches are found at once
WALKED_HAPLOTYPE = 4  # bytes of one of COUNTED haplotypes, and a query, of what was found on both sides,
WALKS_AHEAD = 3  # so many times,
NOTED = 20_000  # and more while a side is walked, of whoever is noted; of a haplotype in small panels:
NOTED_HAPLOTYPE = 0.3
WALKED = 40  # and bytes of a haplotype, whatever the queries: orders,
WALKS = 4  # in so many threads
LEAST_ENTRIES = 100_000


@dataclass(frozen=True)
class Limits:
    """How much is computed at the same time.

    Attributes
    ----------
    window : int
        Results (sites x haplotypes) that are written at once; a chunk with more goes through a temporary
        file.
    ahead : int
        Results that wait, if more than one chunk does.
    chunks_ahead : int
        Chunks that are being computed.
    queries : int
        Queries that a thread computes at once.
    walk : int
        Queries whose matches are found at once.
    """

    window: int = 8_000_000
    ahead: int = 12_000_000
    chunks_ahead: int = 3
    queries: int = PART
    walk: int = WALK


DEFAULT = Limits()


def limits_of(job: ImputationJob) -> Limits:
    """The limits of a job.

    Parameters
    ----------
    job : ImputationJob
        With its option `max_memory`, if there is a budget.

    Returns
    -------
    Limits
        Within the budget.

    Raises
    ------
    InputError
        The memory budget is too small for the smallest limits.
    """
    if not len(job.typed_index):
        return DEFAULT
    budget = job.options.get("max_memory")
    # calls are put into the panel's order, too
    held = 0 if budget is None else resident_bytes() + job.typed_index.size * job.n_queries
    sizes = ChunkSizes.of(job.panel.cM, job.typed_index, job.panel.n_haplotypes)
    return limits_within(budget, held, job.panel.n_haplotypes, job.n_queries, job.threads, sizes)


def limits_within(
    budget: int | None,
    held: int,
    panel_haplotypes: int,
    query_haplotypes: int,
    threads: int,
    sizes: ChunkSizes,
) -> Limits:
    """The default, or less to fit a budget.

    Parameters
    ----------
    budget : int or None
        Bytes in all.
    held : int
        Bytes that are in use already.
    panel_haplotypes, query_haplotypes : int
        N of the panel, Q of the target.
    threads : int
        Each computes one part.
    sizes : ChunkSizes
        Of the panel's chunks.

    Returns
    -------
    Limits
        Within the budget.

    Raises
    ------
    InputError
        The memory budget is too small for the smallest limits.
    """
    fitting = min(
        FOUND_ENTRIES // max(1, sizes.block_sites),
        CHUNK_ENTRIES // max(1, sizes.sites),
        int(PART_BYTES / (QUERY_HAPLOTYPE * min(panel_haplotypes, COUNTED))),
    )
    most = max(LEAST_PART, min(PART, fitting))
    limits = replace(DEFAULT, queries=most)
    if budget is None:
        return limits
    least = max(LEAST_ENTRIES, 2 * query_haplotypes)
    for chunks_ahead in (DEFAULT.chunks_ahead, 2, 1):
        for queries, walk in (
            (most, WALK), (most, WALK // 2), (most, most), (most // 2, most // 2), (most // 4, most // 4)
        ):  # fmt: skip
            limits = replace(limits, chunks_ahead=chunks_ahead, queries=max(1, queries), walk=max(1, walk))
            left = budget - held - _working(limits, panel_haplotypes, query_haplotypes, threads, sizes)
            if left >= 4 * least * ENTRY:  # enough to work well
                return _spread(limits, left)
    if left >= least * ENTRY:
        return _spread(limits, left)
    needed = budget - left + least * ENTRY
    raise InputError(
        "memory",
        f"{shown_size(budget)} of memory are too little for {query_haplotypes} haplotypes against a panel "
        f"of {panel_haplotypes} with {threads} thread{'s' if threads > 1 else ''}: {shown_size(needed)} are "
        f"needed, {shown_size(held)} of them for what has been read. {remedy(threads)}",
    )


def _working(
    limits: Limits, panel_haplotypes: int, query_haplotypes: int, threads: int, sizes: ChunkSizes
) -> float:
    """Bytes of everything but results."""
    different = PATTERN_SITE * min(panel_haplotypes, DIFFERENT)
    # some are computed, two are walked along, one waits for that
    chunks = min(limits.chunks_ahead + 3, sizes.n_chunks)
    gaps = min(chunks * typed_chunks.CHUNK, sizes.all_gaps)
    numbered = gaps
    if panel_haplotypes > FEW_NUMBERS:  # hardly more than one chunk has so many patterns in a gap
        numbered += min(typed_chunks.CHUNK, gaps)
    of_chunks = panel_haplotypes * (chunks * (PLACE * sizes.places + HAPLOTYPE) + PATTERN * numbered)
    of_chunks += different * min(chunks * sizes.sites, sizes.all_sites)
    preparing = panel_haplotypes * (PREPARING * sizes.places + HASHES) + different * sizes.sites
    found = WALKS_AHEAD * WALKED_HAPLOTYPE * min(panel_haplotypes, COUNTED)
    walk = min(limits.walk, query_haplotypes)
    noted = NOTED if panel_haplotypes > parameters.MOST_STATES else NOTED_HAPLOTYPE * panel_haplotypes
    walked = walk * found + min(threads, WALKS) * (noted * walk + WALKED * panel_haplotypes)
    part = min(limits.queries, -(-walk // threads))
    of_threads = walked + threads * part * bytes_of_query(panel_haplotypes, sizes)
    return COMPILED + of_chunks + preparing + of_threads


def bytes_of_query(panel_haplotypes: int, sizes: ChunkSizes) -> float:
    """Bytes of one query in a part that a thread computes."""
    of_sites = FOUND * sizes.block_sites + WAITING * sizes.sites
    return THREAD / PART + QUERY_HAPLOTYPE * min(panel_haplotypes, COUNTED) + of_sites


def _spread(limits: Limits, left: float) -> Limits:
    """Three quarters for what is written, the rest for what waits."""
    return replace(
        limits,
        window=min(limits.window, int(0.75 * left / ENTRY)),
        ahead=min(limits.ahead, int(0.25 * left / WAITING)),
    )
