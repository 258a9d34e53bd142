"""Estimates of the memory that phasing and the chains of sequenced samples need.

The pipeline compares them with the memory budget before it starts. The constants for phasing were measured
(`python -m benchmarks.imputation budgets`); the constants for chains follow from the sizes of their arrays.
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

# phasing
SITE = 0.25  # bytes per panel haplotype and typed site
HAPLOTYPE = 3_000  # bytes per panel haplotype and thread

# chains
GROUP_SITE = 1_200  # bytes per site for HALF samples
BASE = 70  # bytes per base of fragments
GENOTYPE = 18  # bytes per site and sample: the probabilities, and the output columns made from them
# bytes per pair of haplotypes and stored place; 2 sqrt(places of a window) places are stored
PAIR = 4
LIKELIHOODS = 6  # bytes per site of the region and sample
PATTERNS = 40  # assumed patterns per span; real panels have 20 on average
COMPILED_CHAINS = 100e6  # bytes of compiled functions and buffers that only chains need
OVERHEAD = 1.1  # factor for memory that the operating system and the allocator add

# chains that copy the most likely haplotypes of a large panel
MINOR_ALLELE = 36  # bytes per minor allele at a rare site, while the lists are sorted
MATCH_SITE = 600  # bytes per common site and sample of a batch
DIFFERING_SHARE = 0.25  # assumed share of the sites at which the states of a window differ


class ChainSizes(NamedTuple):
    """Numbers on which the memory of chains depends."""

    haplotypes: int  # panel haplotypes
    sites: int  # sites of a window, flanks included
    samples: int
    bases: int = 0  # largest number of bases of a sample's fragments at these sites
    # Only for large panels: number of common sites (`large_panels.search`), and number of minor alleles of
    # all haplotypes at the other sites.
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
    """Return the bytes that chains need if their states are all panel haplotypes."""
    n_haplotypes, sites = sizes.haplotypes, sizes.sites
    spans = -(-sites // SPAN)
    group = max(1, round(spans**0.5))  # spans per group; there are about as many groups
    lanes = 4 * LANES  # bytes of a vector
    # Values per haplotype after each group, and twice within one group. Two values per pattern, twice, at
    # each place of a group.
    values = n_haplotypes * (-(-spans // group) + 2 * group) + 2 * 2 * PATTERNS * SPAN * group
    taken = min(n_haplotypes, max(most for _, most, _ in PAIRS))
    # stored values of pairs, alleles, and use of haplotypes in at most as many windows as groups
    pairs = 2 * PAIR * taken**2 * sites**0.5 + taken * sites + lanes / 2 * n_haplotypes * -(-spans // group)
    per_thread = lanes * values + GROUP_SITE * sites + BASE * HALF * sizes.bases + pairs
    # pattern of each haplotype, alleles of a group, and packed alleles for pairs
    panel = n_haplotypes * (4 * spans + 2 * SPAN * group + sites / 8)
    return OVERHEAD * (panel + threads * per_thread + GENOTYPE * sites * sizes.samples)


def large_panel_memory(sizes: ChainSizes, threads: int) -> float:
    """Return the bytes that chains need if they copy the most likely haplotypes of a large panel."""
    sites, common = sizes.sites, sizes.common
    searched = min(sizes.haplotypes, MAX_SEARCHED)
    search = chain_memory(ChainSizes(searched, common, 0), threads) / OVERHEAD
    n_states = MAX_CHOSEN + MAX_REPRESENTATIVES
    # bits of states, twice; alleles of a window, twice; values of both chains at places and after groups
    states = sites * n_states * (2 / 8 + 2 * DIFFERING_SHARE) + 8 * n_states * (GROUP + sites / GROUP)
    pairs = 2 * PAIR * max(most for _, most, _ in PAIRS) ** 2 * sites**0.5
    per_thread = states + pairs + GROUP_SITE / 4 * sites + BASE * sizes.bases
    # bits by site and bits by haplotype, both forwards and backwards
    panel = 4 * sizes.haplotypes * common / 8 + MINOR_ALLELE * sizes.minor_alleles + 3 * BATCH_BYTES
    panel += searched * 4 * common / SPAN  # pattern of each searched haplotype
    matches = 0
    if sizes.haplotypes > MAX_SEARCHED:
        matches = MATCH_SITE * common * min(sizes.samples, BATCH_SAMPLES)
    at_work = max(search, threads * per_thread) + panel + matches
    return OVERHEAD * (at_work + GENOTYPE * sites * sizes.samples)


def chain_threads(budget: int | None, sizes: ChainSizes, region_sites: int, threads: int) -> int:
    """Return how many threads, 1 to `threads`, can compute chains within a memory budget in bytes.

    A small budget reduces only the threads, not the windows, because results depend on the windows. Raises
    InputError if the budget is too small for one thread.
    """
    if budget is None:
        return threads
    large, samples = sizes.haplotypes > MAX_COPIED, sizes.samples
    threads = max(1, min(threads, samples if large else -(-samples // HALF)))  # others would be idle
    held = resident_bytes() + COMPILED_CHAINS + LIKELIHOODS * region_sites * samples
    added = large_panel_memory if large else chain_memory

    if (needed := held + added(sizes, 1)) > budget:
        enough = 1.03 * needed  # the process's memory differs a little from run to run
        raise InputError(
            "memory",
            f"{format_size(budget)} of memory are too little to impute {samples} samples at {region_sites} "
            f"sites from a panel of {sizes.haplotypes} haplotypes: {format_size(enough)} are needed with one "
            f"thread. Give more, {fewer_samples()}",
        )
    return max(n for n in range(1, threads + 1) if held + added(sizes, n) <= budget)
