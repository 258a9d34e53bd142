"""Memory of phasing and of the chains of sequenced samples.

The sizes of phasing were measured (`python -m benchmarks.imputation budgets`), those of chains follow from
their arrays.
"""

from __future__ import annotations

from typing import NamedTuple

from spinimpute.hmm.parameters import LANES, MAX_COPIED, MAX_SEARCHED, SPAN
from spinimpute.phasing.large_panels.genotypes import BATCH_SAMPLES, MAX_CHOSEN
from spinimpute.phasing.large_panels.haplotype_alleles import BATCH_BYTES
from spinimpute.phasing.large_panels.state_chains import GROUP
from spinimpute.phasing.large_panels.states import MAX_REPRESENTATIVES
from spinimpute.phasing.likely_pairs import PAIRS
from spinimpute.phasing.passes import HALF
from spinimpute.runtime.errors import InputError
from spinimpute.runtime.memory import COMPILED, fewer_samples, format_size, remedy, resident_bytes

SITE = 0.25  # bytes for each panel haplotype and typed site
HAPLOTYPE = 3_000  # bytes for each panel haplotype and thread

# chains
GROUP_SITE = 1_200  # bytes for each site of HALF samples
BASE = 70  # bytes for each base of fragments
GENOTYPE = 18  # bytes for each site and sample: probabilities, and the columns made from them
PAIR = 4  # bytes for each pair of haplotypes and kept place: twice the root of a window's places
LIKELIHOODS = 6  # bytes for each site of the region and sample
PATTERNS = 40  # of a span; real panels have 20 on average
COMPILED_CHAINS = 100e6  # compiled functions and buffers that only chains need
OVERHEAD = 1.1  # for what the system adds

# chains that copy the likeliest haplotypes of large panels
MINOR_ALLELE = 36  # bytes for each minor allele at a rare site, while lists are sorted
MATCH_SITE = 600  # bytes for each common site and sample whose matches are listed at the same time
DIFFERING_SHARE = 0.25  # share of the sites at which the states of one window differ


class ChainSizes(NamedTuple):
    """Numbers on which the memory of chains depends."""

    haplotypes: int  # of the panel
    sites: int  # sites that are computed at once, flanks included
    samples: int
    bases: int = 0  # largest number of bases of a sample's fragments at these sites
    # common, minor_alleles: in large panels: common sites (`large_panels.search`), and minor alleles of all
    # haplotypes at the others
    common: int = 0
    minor_alleles: int = 0


def check_phasing(budget: int | None, panel_haplotypes: int, typed_sites: int, threads: int) -> None:
    """Raise InputError if phasing does not fit into a memory budget in bytes; None for no limit."""
    if budget is None:
        return
    per_haplotype = SITE * typed_sites + HAPLOTYPE * threads
    needed = resident_bytes() + COMPILED + panel_haplotypes * per_haplotype
    if needed > budget:
        raise InputError(
            "memory",
            f"{format_size(budget)} of memory are too little to phase {typed_sites} typed sites against a "
            f"panel of {panel_haplotypes} haplotypes with {threads} thread{'s' if threads > 1 else ''}: "
            f"{format_size(needed)} are needed. {remedy(threads)}",
        )


def chain_memory(sizes: ChainSizes, threads: int) -> float:
    """Return the bytes that chains over all haplotypes need."""
    n_haplotypes, sites = sizes.haplotypes, sizes.sites
    spans = -(-sites // SPAN)
    group = max(1, round(spans**0.5))  # spans, of about as many groups
    lanes = 4 * LANES
    # values of haplotypes behind each group, and of a group twice; of patterns at places of a group, twice
    values = n_haplotypes * (-(-spans // group) + 2 * group) + 2 * 2 * PATTERNS * SPAN * group
    taken = min(n_haplotypes, max(most for _, most, _ in PAIRS))
    # kept pairs, alleles, and copied shares in at most as many windows as groups
    pairs = 2 * PAIR * taken**2 * sites**0.5 + taken * sites + lanes / 2 * n_haplotypes * -(-spans // group)
    per_thread = lanes * values + GROUP_SITE * sites + BASE * HALF * sizes.bases + pairs
    # the patterns, alleles of a group, and packed alleles for pairs
    panel = n_haplotypes * (4 * spans + 2 * SPAN * group + sites / 8)
    return OVERHEAD * (panel + threads * per_thread + GENOTYPE * sites * sizes.samples)


def large_panel_memory(sizes: ChainSizes, threads: int) -> float:
    """Return the bytes that chains need that copy the likeliest haplotypes of a large panel."""
    sites, common = sizes.sites, sizes.common
    searched = min(sizes.haplotypes, MAX_SEARCHED)
    search = chain_memory(ChainSizes(searched, common, 0), threads) / OVERHEAD
    n_states = MAX_CHOSEN + MAX_REPRESENTATIVES
    # bits of states, twice; alleles of a window, twice; both chains' values at places and behind groups
    states = sites * n_states * (2 / 8 + 2 * DIFFERING_SHARE) + 8 * n_states * (GROUP + sites / GROUP)
    pairs = 2 * PAIR * max(most for _, most, _ in PAIRS) ** 2 * sites**0.5
    per_thread = states + pairs + GROUP_SITE / 4 * sites + BASE * sizes.bases
    # bits by site and by haplotype, in both directions
    panel = 4 * sizes.haplotypes * common / 8 + MINOR_ALLELE * sizes.minor_alleles + 3 * BATCH_BYTES
    panel += searched * 4 * common / SPAN  # patterns that are searched
    matches = 0
    if sizes.haplotypes > MAX_SEARCHED:
        matches = MATCH_SITE * common * min(sizes.samples, BATCH_SAMPLES)
    at_work = max(search, threads * per_thread) + panel + matches
    return OVERHEAD * (at_work + GENOTYPE * sites * sizes.samples)


def chain_threads(budget: int | None, sizes: ChainSizes, region_sites: int, threads: int) -> int:
    """Return how many threads, 1 to `threads`, can compute chains within a memory budget in bytes.

    Windows stay as they are, as results depend on them but not on threads. Raises InputError if one thread
    does not fit.
    """
    if budget is None:
        return threads
    large, samples = sizes.haplotypes > MAX_COPIED, sizes.samples
    threads = max(1, min(threads, samples if large else -(-samples // HALF)))  # others would be idle
    held = resident_bytes() + COMPILED_CHAINS + LIKELIHOODS * region_sites * samples
    added = large_panel_memory if large else chain_memory

    if (needed := held + added(sizes, 1)) > budget:
        enough = 1.03 * needed  # the memory held before differs a little from run to run
        raise InputError(
            "memory",
            f"{format_size(budget)} of memory are too little to impute {samples} samples at {region_sites} "
            f"sites from a panel of {sizes.haplotypes} haplotypes: {format_size(enough)} are needed with one "
            f"thread. Give more, {fewer_samples()}",
        )
    return max(n for n in range(1, threads + 1) if held + added(sizes, n) <= budget)
