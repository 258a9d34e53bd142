"""How much is computed at the same time, by default and within a memory budget.

A run holds: what it has read (the program, the panel's table of sites, typed calls), tiles of the panel that
have been read, some queries in every thread, and results that wait to be written. The last three shrink to
fit a budget; results do not depend on them. The sizes below were measured (`python -m benchmarks.imputation
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
from spinimpute.runtime.memory import COMPILED, remedy, resident_bytes, shown_size

# Bytes, unless another unit is given.
QUERIES = 128  # queries that a thread computes at once, at most
LEAST_QUERIES = 16
THREAD = 40e6  # a thread with QUERIES queries, without what grows with the panel and its sites
CANDIDATE_BYTES = 70e6  # candidates of a thread's queries; larger arrays are new memory each time
ENTRY = 98  # a query at a site of a block
ENTRIES = 1_000_000  # number of such entries of a thread, unless LEAST_QUERIES have more
TILE_ENTRIES = 4_000_000  # number of results of a thread, likewise
RESULT = 45  # a result (site x haplotype) that is being written
WAITING_RESULT = 4
PLACE = 0.6  # a panel haplotype at a typed place of a tile
PATTERN = 2.2  # its pattern in a gap, twice as many in a tile with a gap of more than FEW_NUMBERS patterns
HAPLOTYPE = 60  # all else of a panel haplotype in a tile
PATTERN_SITE = 0.16  # one of DIFFERENT haplotypes at a site; more hardly differ within a gap
DIFFERENT = 10_000
READING = 0.6  # a panel haplotype at a typed place, in addition, while a tile is read
HASHES = 200  # and the hashes of a panel haplotype
QUERY_HAPLOTYPE = 24  # a panel haplotype and a query in a thread: probabilities of candidates
COUNTED = 45_000  # number of panel haplotypes that count, as the number of candidates is bounded
MATCHED = 2_048  # queries whose matches are found at once
MATCHED_HAPLOTYPE = 4  # one of COUNTED haplotypes and a query, for the matches found on both sides
MATCHES_AHEAD = 3  # number of batches of queries whose matches wait
NOTED = 20_000  # a query while matches on a side are found, in large panels
NOTED_HAPLOTYPE = 0.3  # the same for each panel haplotype, in small panels
ORDERED_HAPLOTYPE = 40  # a panel haplotype while matches are found, for any number of queries
SEARCHES = 4  # number of threads that find matches at the same time
LEAST_RESULTS = 100_000


@dataclass(frozen=True)
class Limits:
    """How much is computed at the same time."""

    window: int = 8_000_000  # results written at once; a tile with more goes through a temporary file
    ahead: int = 12_000_000  # results that wait, if several tiles do
    tiles_ahead: int = 3  # tiles that are being computed
    queries: int = QUERIES  # queries that a thread computes at once
    matched: int = MATCHED  # queries whose matches are found at once


DEFAULT = Limits()


@dataclass(frozen=True)
class JobSizes:
    """Sizes of a job that memory depends on."""

    panel_haplotypes: int
    query_haplotypes: int
    threads: int
    tiles: TileSizes

    def bytes_of_query(self) -> float:
        """Bytes of one query that a thread computes."""
        sites = ENTRY * self.tiles.block_sites + WAITING_RESULT * self.tiles.sites
        return THREAD / QUERIES + QUERY_HAPLOTYPE * min(self.panel_haplotypes, COUNTED) + sites

    def working_bytes(self, limits: Limits) -> float:
        """Bytes of everything but results."""
        n, sizes = self.panel_haplotypes, self.tiles
        different = PATTERN_SITE * min(n, DIFFERENT)
        # matches are found in two more tiles, and one waits for this
        n_tiles = min(limits.tiles_ahead + 3, sizes.n_tiles)
        gaps = min(n_tiles * typed_tiles.TILE_GAPS, sizes.all_gaps)
        numbered = gaps
        if n > FEW_NUMBERS:  # hardly more than one tile has so many patterns in a gap
            numbered += min(typed_tiles.TILE_GAPS, gaps)
        tiles = n * (n_tiles * (PLACE * sizes.places + HAPLOTYPE) + PATTERN * numbered)
        tiles += different * min(n_tiles * sizes.sites, sizes.all_sites)
        reading = n * (READING * sizes.places + HASHES) + different * sizes.sites
        found = MATCHES_AHEAD * MATCHED_HAPLOTYPE * min(n, COUNTED)
        matched = min(limits.matched, self.query_haplotypes)
        noted = NOTED if n > parameters.MOST_STATES else NOTED_HAPLOTYPE * n
        searches = min(self.threads, SEARCHES)
        matches = matched * found + searches * (noted * matched + ORDERED_HAPLOTYPE * n)
        queries = min(limits.queries, -(-matched // self.threads))
        threads = matches + self.threads * queries * self.bytes_of_query()
        return COMPILED + tiles + reading + threads


def limits_of(job: ImputationJob) -> Limits:
    """Limits of a job within its option `max_memory`. Raises InputError for a budget that is too small."""
    if not len(job.typed_index):
        return DEFAULT
    budget = job.options.get("max_memory")
    # calls are put into the panel's order, too
    held = 0 if budget is None else resident_bytes() + job.typed_index.size * job.n_queries
    tiles = TileSizes.of(job.panel.cM, job.typed_index, job.panel.n_haplotypes)
    sizes = JobSizes(job.panel.n_haplotypes, job.n_queries, job.threads, tiles)
    return limits_within(budget, held, sizes)


def limits_within(budget: int | None, held: int, sizes: JobSizes) -> Limits:
    """The default limits, or smaller ones to fit a budget in bytes, of which some are held already.

    Raises InputError for a budget that is too small for the smallest limits.
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
        f"{shown_size(budget)} of memory are too little for {sizes.query_haplotypes} haplotypes, a panel of "
        f"{sizes.panel_haplotypes} haplotypes and {sizes.threads} thread{'s' if sizes.threads > 1 else ''}: "
        f"{shown_size(needed)} are needed, {shown_size(held)} of them for data that have been read. "
        f"{remedy(sizes.threads)}",
    )


def _share_out(limits: Limits, left: float) -> Limits:
    """Share out the bytes left: three quarters for results being written, the rest for waiting results."""
    return replace(
        limits,
        window=min(limits.window, int(0.75 * left / RESULT)),
        ahead=min(limits.ahead, int(0.25 * left / WAITING_RESULT)),
    )
