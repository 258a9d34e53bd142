"""Limits on how much is computed at the same time, by default and within a memory budget.

Memory is taken by the program, the panel's table of sites and the typed calls; by tiles of the panel; by the
queries that threads compute; and by results that wait to be written. The last three shrink to fit a budget;
results do not depend on their sizes. The sizes below were measured (`python -m benchmarks.imputation
budgets`) and rounded up.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from spinimpute.hmm import parameters
from spinimpute.predictors import typed_tiles
from spinimpute.predictors.haplotype_attention.copying import FEW_NUMBERS
from spinimpute.predictors.haplotype_attention.tile import TileSizes
from spinimpute.predictors.interface import ImputationJob
from spinimpute.runtime.errors import InputError
from spinimpute.runtime.memory import COMPILED, format_size, remedy, resident_bytes

# Bytes needed for one of what the comment names, unless the comment gives another unit.
QUERIES = 128  # maximum number of queries that a thread computes together
LEAST_QUERIES = 16  # minimum of that number without a memory budget
THREAD = 40e6  # a thread with QUERIES queries, without memory that grows with the panel and its sites
CANDIDATE_BYTES = 70e6  # candidates of a thread's queries; larger arrays would be allocated anew each time
ENTRY = 98  # a query at a site of a block
ENTRIES = 1_000_000  # maximum number of such entries in a thread, unless LEAST_QUERIES have more
TILE_ENTRIES = 4_000_000  # maximum number of results in a thread, unless LEAST_QUERIES have more
RESULT = 45  # a result (site x haplotype) that is being written
WAITING_RESULT = 4  # a result that waits to be written
PLACE = 0.6  # a panel haplotype at a typed place of a tile
PATTERN = 2.2  # pattern of a haplotype in a gap; twice this in tiles with over FEW_NUMBERS patterns in a gap
HAPLOTYPE = 60  # everything else for a panel haplotype in a tile
PATTERN_SITE = 0.16  # a pattern at a site
DIFFERENT = 10_000  # maximum number of patterns of a gap that is assumed
READING = 0.6  # additionally while a tile is read: a panel haplotype at a typed place of the tile
HASHES = 200  # additionally while a tile is read: the hashes of a panel haplotype
QUERY_HAPLOTYPE = 24  # a panel haplotype and a query in a thread: probabilities of candidates
COUNTED = 45_000  # maximum number of panel haplotypes on which that depends: candidates are limited
MATCHED = 2_048  # number of queries in a batch, whose matches are found together
MATCHED_HAPLOTYPE = 4  # matches on both sides of a query and a panel haplotype, at most COUNTED haplotypes
MATCHES_AHEAD = 3  # number of batches whose matches are in memory
NOTED = 20_000  # large panels: a query during the search for matches on one side
NOTED_HAPLOTYPE = 0.3  # small panels: a query and a panel haplotype during this search
ORDERED_HAPLOTYPE = 40  # a panel haplotype during this search, for any number of queries
SEARCHES = 4  # maximum number of threads that search at the same time
LEAST_RESULTS = 100_000  # minimum number of results being written


@dataclass(frozen=True)
class Limits:
    """How much is computed at the same time."""

    window: int = 8_000_000  # results of a window; a tile with more goes through a temporary file
    ahead: int = 12_000_000  # results that wait to be written, if they are from more than one tile
    tiles_ahead: int = 3  # tiles that are being computed
    queries: int = QUERIES  # queries that a thread computes together
    matched: int = MATCHED  # queries whose matches are found together


DEFAULT = Limits()


@dataclass(frozen=True)
class JobSizes:
    """Sizes of a job on which its memory depends."""

    panel_haplotypes: int
    query_haplotypes: int
    threads: int
    tiles: TileSizes

    def bytes_of_query(self) -> float:
        """Return the bytes that one query takes in a thread."""
        sites = ENTRY * self.tiles.block_sites + WAITING_RESULT * self.tiles.sites
        return THREAD / QUERIES + QUERY_HAPLOTYPE * min(self.panel_haplotypes, COUNTED) + sites

    def working_bytes(self, limits: Limits) -> float:
        """Return the bytes of everything but results."""
        n, sizes = self.panel_haplotypes, self.tiles
        different = PATTERN_SITE * min(n, DIFFERENT)
        # matches are searched in two more tiles, and one more tile waits for the search
        n_tiles = min(limits.tiles_ahead + 3, sizes.n_tiles)
        gaps = min(n_tiles * typed_tiles.TILE_GAPS, sizes.all_gaps)
        numbered = gaps
        if n > FEW_NUMBERS:  # assumes that one tile has so many patterns in a gap
            numbered += min(typed_tiles.TILE_GAPS, gaps)
        tiles = n * (n_tiles * (PLACE * sizes.places + HAPLOTYPE) + PATTERN * numbered)
        tiles += different * min(n_tiles * sizes.sites, sizes.all_sites)
        reading = n * (READING * sizes.places + HASHES) + different * sizes.sites
        found = MATCHES_AHEAD * MATCHED_HAPLOTYPE * min(n, COUNTED)
        matched = min(limits.matched, self.query_haplotypes)
        noted = NOTED if n > parameters.MAX_PANEL_AS_STATES else NOTED_HAPLOTYPE * n
        searches = min(self.threads, SEARCHES)
        matches = matched * found + searches * (noted * matched + ORDERED_HAPLOTYPE * n)
        queries = min(limits.queries, -(-matched // self.threads))
        threads = matches + self.threads * queries * self.bytes_of_query()
        return COMPILED + tiles + reading + threads


def limits_of(job: ImputationJob) -> Limits:
    """Return the limits of a job within its option `max_memory`; raise InputError if this is too small."""
    if not len(job.typed_index):
        return DEFAULT
    budget = job.options.get("max_memory")
    # the typed calls will be copied into the panel's order
    held = 0 if budget is None else resident_bytes() + job.typed_index.size * job.n_queries
    tiles = TileSizes.of(job.panel.cM, job.typed_index, job.panel.n_haplotypes)
    sizes = JobSizes(job.panel.n_haplotypes, job.n_queries, job.threads, tiles)
    return limits_within(budget, held, sizes)


def limits_within(budget: int | None, held: int, sizes: JobSizes) -> Limits:
    """Return the default limits, or smaller ones that fit a memory budget in bytes.

    `held` bytes of the budget are already in use. Raises InputError if the smallest limits do not fit.
    """
    fitting = min(
        ENTRIES // max(1, sizes.tiles.block_sites),
        TILE_ENTRIES // max(1, sizes.tiles.sites),
        int(CANDIDATE_BYTES / (QUERY_HAPLOTYPE * min(sizes.panel_haplotypes, COUNTED))),
    )
    most = max(LEAST_QUERIES, min(QUERIES, fitting))
    limits = replace(DEFAULT, queries=most)
    if budget is None:
        return limits
    least = max(LEAST_RESULTS, 2 * sizes.query_haplotypes)
    for tiles_ahead in (DEFAULT.tiles_ahead, 2, 1):
        for queries, matched in (
            (most, MATCHED),
            (most, MATCHED // 2),
            (most, most),
            (most // 2, most // 2),
            (most // 4, most // 4),
        ):
            limits = replace(
                limits, tiles_ahead=tiles_ahead, queries=max(1, queries), matched=max(1, matched)
            )
            left = budget - held - sizes.working_bytes(limits)
            if left >= 4 * least * RESULT:  # enough to work well
                return _share_out(limits, left)
    if left >= least * RESULT:
        return _share_out(limits, left)
    needed = budget - left + least * RESULT
    raise InputError(
        "memory",
        f"{format_size(budget)} of memory are too little for {sizes.query_haplotypes} haplotypes, a panel of "
        f"{sizes.panel_haplotypes} haplotypes and {sizes.threads} thread{'s' if sizes.threads > 1 else ''}: "
        f"{format_size(needed)} are needed, {format_size(held)} of them for data that have been read. "
        f"{remedy(sizes.threads)}",
    )


def _share_out(limits: Limits, left: float) -> Limits:
    """Give three quarters of the bytes left to the results of a window, the rest to waiting results."""
    return replace(
        limits,
        window=min(limits.window, int(0.75 * left / RESULT)),
        ahead=min(limits.ahead, int(0.25 * left / WAITING_RESULT)),
    )
