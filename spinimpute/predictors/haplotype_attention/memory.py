"""Limits on how much haplotype attention computes at the same time, so that a job fits a memory budget.

A job needs memory for four things: (1) the program, the table of panel sites, decoded haplotypes and the
typed calls; (2) tiles of the panel; (3) the queries that threads compute; (4) results that wait to be
written. The limits reduce the last three until the job fits its budget (option `max_memory`). Results do not
depend on the limits.

The constants in bytes were measured (`python -m benchmarks.imputation budgets`) and rounded up. A *result* is
P(ALT) of one query at one site.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from spinimpute.hmm import parameters
from spinimpute.panels.panel import CACHE_BYTES
from spinimpute.predictors import typed_tiles
from spinimpute.predictors.haplotype_attention.copying import MAX_UINT16_PATTERNS
from spinimpute.predictors.haplotype_attention.tile import TileSizes
from spinimpute.predictors.interface import ImputationJob
from spinimpute.runtime.errors import InputError
from spinimpute.runtime.memory import COMPILED, format_size, remedy, resident_bytes

# threads
MAX_QUERIES = 256  # queries that a thread computes together
MIN_QUERIES = 16  # minimum of queries that a thread computes together if there is no memory budget
THREAD_BYTES = 80e6  # per thread with MAX_QUERIES queries, plus POSTERIOR_BYTES, ENTRY_BYTES and results
POSTERIOR_BYTES = 24  # per query of a thread and panel haplotype: probabilities of candidates
MAX_COUNTED = 45_000  # maximum number of panel haplotypes for POSTERIOR_BYTES and MATCH_BYTES
ENTRY_BYTES = 98  # per query of a thread and site of a block
# Limits of one thread, unless MIN_QUERIES queries exceed them. Candidate arrays above their limit would be
# allocated again for every batch of queries.
MAX_CANDIDATE_BYTES = 70e6
MAX_ENTRIES = 1_000_000  # queries x sites of a block
MAX_TILE_RESULTS = 4_000_000  # queries x sites of a tile
# tiles
PLACE_BYTES = 0.6  # per panel haplotype and typed place
HAPLOTYPE_BYTES = 60  # per panel haplotype: everything that does not grow with places or gaps
PATTERN_BYTES = 2.2  # per panel haplotype and gap; twice this if a gap has more than MAX_UINT16_PATTERNS
PATTERN_SITE_BYTES = 0.16  # per pattern and site
MAX_PATTERNS = 10_000  # assumed maximum number of patterns in a gap
READING_BYTES = 0.6  # per panel haplotype and typed place, additionally while a tile is read
HASHES_BYTES = 200  # per panel haplotype, additionally while a tile is read
# the search for matches
MATCH_BATCH = 2_048  # queries whose matches are searched together
MATCH_BATCHES = 3  # batches whose matches are in memory
MATCH_BYTES = 4  # per query and panel haplotype: the matches on both sides
MAX_SEARCHES = 4  # threads that search at the same time, each for one side
LARGE_SEARCH_BYTES = 20_000  # per search and query in panels with more than MAX_PANEL_AS_STATES haplotypes
SMALL_SEARCH_BYTES = 0.3  # per search, query and panel haplotype in other panels
SORT_BYTES = 40  # per search and panel haplotype
# results
RESULT_BYTES = 45  # per result of the window that is being written
WAITING_RESULT_BYTES = 4  # per result that waits
MIN_RESULTS = 100_000  # minimum number of results of a window


@dataclass(frozen=True)
class Limits:
    """Maximum amounts that are computed at the same time."""

    window: int = 8_000_000  # results of a window; larger tiles use a temporary file
    ahead: int = 12_000_000  # results that wait to be written; a single tile may have more
    tiles_ahead: int = 3  # tiles that are being computed
    queries: int = MAX_QUERIES  # queries that a thread computes together
    matched: int = MATCH_BATCH  # queries whose matches are searched together


DEFAULT = Limits()


@dataclass(frozen=True)
class JobSizes:
    """The sizes of a job that determine how much memory it needs."""

    panel_haplotypes: int
    query_haplotypes: int
    threads: int
    tiles: TileSizes

    def bytes_of_query(self) -> float:
        """Return the memory of one query in a thread."""
        sites = ENTRY_BYTES * self.tiles.block_sites + WAITING_RESULT_BYTES * self.tiles.sites
        return THREAD_BYTES / MAX_QUERIES + POSTERIOR_BYTES * min(self.panel_haplotypes, MAX_COUNTED) + sites

    def working_bytes(self, limits: Limits) -> float:
        """Return the memory in bytes of everything except the results of windows."""
        n, sizes = self.panel_haplotypes, self.tiles
        pattern_bytes = PATTERN_SITE_BYTES * min(n, MAX_PATTERNS)
        # matches are searched in two more tiles, and one more tile waits for the search
        n_tiles = min(limits.tiles_ahead + 3, sizes.n_tiles)
        gaps = min(n_tiles * typed_tiles.TILE_GAPS, sizes.all_gaps)
        n_numbered_gaps = gaps
        if n > MAX_UINT16_PATTERNS:  # assumes that one tile has so many patterns in a gap
            n_numbered_gaps += min(typed_tiles.TILE_GAPS, gaps)
        tiles = n * (
            n_tiles * (PLACE_BYTES * sizes.places + HAPLOTYPE_BYTES) + PATTERN_BYTES * n_numbered_gaps
        )
        tiles += pattern_bytes * min(n_tiles * sizes.sites, sizes.all_sites)
        reading = n * (READING_BYTES * sizes.places + HASHES_BYTES) + pattern_bytes * sizes.sites
        match_bytes = MATCH_BATCHES * MATCH_BYTES * min(n, MAX_COUNTED)
        matched = min(limits.matched, self.query_haplotypes)
        search_bytes = LARGE_SEARCH_BYTES if n > parameters.MAX_PANEL_AS_STATES else SMALL_SEARCH_BYTES * n
        searches = min(self.threads, MAX_SEARCHES)
        matches = matched * match_bytes + searches * (search_bytes * matched + SORT_BYTES * n)
        queries = min(limits.queries, -(-matched // self.threads))
        threads = matches + self.threads * queries * self.bytes_of_query()
        decoded = min(CACHE_BYTES, n / 8 * sizes.all_sites)
        return COMPILED + decoded + tiles + reading + threads


def limits_of(job: ImputationJob) -> Limits:
    """Return the limits for a job with its option `max_memory`. Raise InputError if it is too small."""
    if not len(job.typed_index):
        return DEFAULT
    budget = job.options.get("max_memory")
    # the second term is for a copy of the typed calls in the panel's order
    used_bytes = 0 if budget is None else resident_bytes() + job.typed_index.size * job.n_queries
    tiles = TileSizes.of(job.panel.cM, job.typed_index, job.panel.n_haplotypes, job.imputed)
    sizes = JobSizes(job.panel.n_haplotypes, job.n_queries, job.threads, tiles)
    return limits_within(budget, used_bytes, sizes)


def limits_within(budget: int | None, used_bytes: int, sizes: JobSizes) -> Limits:
    """Return the default limits, or smaller limits that fit a memory budget in bytes.

    `used_bytes` of the budget are already in use. Raise InputError if even the smallest limits do not fit.
    """
    max_fitting = min(
        MAX_ENTRIES // max(1, sizes.tiles.block_sites),
        MAX_TILE_RESULTS // max(1, sizes.tiles.sites),
        int(MAX_CANDIDATE_BYTES / (POSTERIOR_BYTES * min(sizes.panel_haplotypes, MAX_COUNTED))),
    )
    max_queries = max(MIN_QUERIES, min(MAX_QUERIES, max_fitting))
    limits = replace(DEFAULT, queries=max_queries)
    if budget is None:
        return limits
    min_results = max(MIN_RESULTS, 2 * sizes.query_haplotypes)
    for tiles_ahead in (DEFAULT.tiles_ahead, 2, 1):
        for queries, matched in (
            (max_queries, MATCH_BATCH),
            (max_queries, MATCH_BATCH // 2),
            (max_queries, max_queries),
            (max_queries // 2, max_queries // 2),
            (max_queries // 4, max_queries // 4),
            (max_queries // 8, max_queries // 8),
        ):
            limits = replace(
                limits, tiles_ahead=tiles_ahead, queries=max(1, queries), matched=max(1, matched)
            )
            free_bytes = budget - used_bytes - sizes.working_bytes(limits)
            if free_bytes >= 4 * min_results * RESULT_BYTES:  # enough to work well
                return _divide_free_bytes(limits, free_bytes)
    if free_bytes >= min_results * RESULT_BYTES:
        return _divide_free_bytes(limits, free_bytes)
    needed = budget - free_bytes + min_results * RESULT_BYTES
    raise InputError(
        "memory",
        f"{format_size(budget)} of memory are too little for {sizes.query_haplotypes} haplotypes, a panel of "
        f"{sizes.panel_haplotypes} haplotypes and {sizes.threads} thread{'s' if sizes.threads > 1 else ''}: "
        f"{format_size(needed)} are needed, {format_size(used_bytes)} of them for data that have been read. "
        f"{remedy(sizes.threads)}",
    )


def _divide_free_bytes(limits: Limits, free_bytes: float) -> Limits:
    """Use three quarters of the free bytes for the results of a window, the rest for waiting results."""
    return replace(
        limits,
        window=min(limits.window, int(0.75 * free_bytes / RESULT_BYTES)),
        ahead=min(limits.ahead, int(0.25 * free_bytes / WAITING_RESULT_BYTES)),
    )
