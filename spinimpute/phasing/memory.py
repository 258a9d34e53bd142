"""How much memory phasing and the chains of sequenced samples need.

The sizes of phasing were measured (`python -m benchmarks.imputation budgets`), those of chains follow from
their arrays.
"""

from __future__ import annotations

from spinimpute.hmm.parameters import LANES, MOST_COPIED, MOST_SEARCHED, SPAN
from spinimpute.phasing.large_panels.genotypes import AT_ONCE, CHOSEN
from spinimpute.phasing.large_panels.haplotype_alleles import BYTES_AT_ONCE
from spinimpute.phasing.large_panels.state_chains import GROUP
from spinimpute.phasing.large_panels.states import OTHERS
from spinimpute.phasing.likely_pairs import PAIRS
from spinimpute.phasing.passes import HALF
from spinimpute.runtime.errors import InputError
from spinimpute.runtime.memory import COMPILED, fewer_samples, remedy, resident_bytes, shown_size

SITE = 0.25  # bytes for each panel haplotype and typed site
HAPLOTYPE = 3_000  # bytes for each panel haplotype and thread

# of chains
GROUP_SITE = 1_200  # bytes for each site, of HALF samples
BASE = 70  # bytes for each base of fragments
GENOTYPE = 18  # bytes for each site and sample: probabilities, and what is made of them
PAIR = 4  # bytes for each pair of haplotypes and place that is kept: twice the root of a window's places
STATED = 6  # bytes for each site of the region and sample: likelihoods at all sites
PATTERNS = 40  # of a span; real panels have 20 on average
COMPILED_CHAINS = 100e6  # compiled functions and buffers that come only with them
ALLOWANCE = 1.1  # what the system adds

# of chains that copy the likeliest haplotypes of large panels
LISTED = 36  # bytes for each minor allele at a rare site, while lists are sorted
OF_MATCHES = 600  # bytes for each common site and sample whose matches are listed at the same time
WIDEST = 0.25  # of the sites, where states of one window differ


def check_phasing(budget: int | None, panel_haplotypes: int, typed_sites: int, threads: int) -> None:
    """Check that phasing fits into a budget of memory; it cannot be made to need less.

    Parameters
    ----------
    budget : int or None
        Bytes; None for no limit.
    panel_haplotypes : int
        Haplotypes of the panel.
    typed_sites : int
        Panel sites that are typed.
    threads : int
        Threads that phase.

    Raises
    ------
    InputError
        It does not fit.
    """
    if budget is None:
        return
    of_haplotype = SITE * typed_sites + HAPLOTYPE * threads
    needed = resident_bytes() + COMPILED + panel_haplotypes * of_haplotype
    if needed > budget:
        raise InputError(
            "memory",
            f"{shown_size(budget)} of memory are too little to phase {typed_sites} typed sites against a "
            f"panel of {panel_haplotypes} haplotypes with {threads} thread{'s' if threads > 1 else ''}: "
            f"{shown_size(needed)} are needed. {remedy(threads)}",
        )


def chain_memory(panel_haplotypes: int, sites: int, samples: int, threads: int, bases: int = 0) -> float:
    """What the chains of sequenced samples need.

    Parameters
    ----------
    panel_haplotypes : int
        Haplotypes of the panel.
    sites : int
        Those that are computed at once, flanks included.
    samples : int
        Samples.
    threads : int
        Threads that compute.
    bases : int
        At most, of fragments of a sample at these sites.

    Returns
    -------
    float
        Bytes.
    """
    spans = -(-sites // SPAN)
    group = max(1, round(spans**0.5))  # spans, of about as many groups
    lanes = 4 * LANES
    # values of haplotypes behind each group, of a group twice; of patterns at places of a group, twice
    of_values = panel_haplotypes * (-(-spans // group) + 2 * group) + 2 * 2 * PATTERNS * SPAN * group
    taken = min(panel_haplotypes, max(most for _, most, _ in PAIRS))
    # those kept, alleles, and what is copied in at most as many windows as groups
    of_pairs = (
        2 * PAIR * taken**2 * sites**0.5 + taken * sites + lanes / 2 * panel_haplotypes * -(-spans // group)
    )
    of_thread = lanes * of_values + GROUP_SITE * sites + BASE * HALF * bases + of_pairs
    # the patterns, alleles of a group, and packed ones for pairs
    of_panel = panel_haplotypes * (4 * spans + 2 * SPAN * group + sites / 8)
    return ALLOWANCE * (of_panel + threads * of_thread + GENOTYPE * sites * samples)


def large_panel_memory(
    panel_haplotypes: int,
    sites: int,
    common: int,
    minor_alleles: int,
    samples: int,
    threads: int,
    bases: int = 0,
) -> float:
    """What the chains of sequenced samples need that copy the likeliest haplotypes of a large panel.

    Parameters
    ----------
    panel_haplotypes, sites : int
        As of `chain_memory`.
    common : int
        Sites of common alleles (`large_panels.search`).
    minor_alleles : int
        Of all haplotypes, at the other sites.
    samples, threads, bases : int
        As of `chain_memory`.

    Returns
    -------
    float
        Bytes.
    """
    searched = min(panel_haplotypes, MOST_SEARCHED)
    of_search = chain_memory(searched, common, 0, threads) / ALLOWANCE
    states = CHOSEN + OTHERS
    # bits of states, twice; alleles of a window, twice; both chains' values at places and behind groups
    of_states = sites * states * (2 / 8 + 2 * WIDEST) + 8 * states * (GROUP + sites / GROUP)
    of_pairs = 2 * PAIR * max(most for _, most, _ in PAIRS) ** 2 * sites**0.5
    of_thread = of_states + of_pairs + GROUP_SITE / 4 * sites + BASE * bases
    # bits by site and by haplotype, in both directions
    of_panel = 4 * panel_haplotypes * common / 8 + LISTED * minor_alleles + 3 * BYTES_AT_ONCE
    of_panel += searched * 4 * common / SPAN  # patterns that are searched
    of_matches = OF_MATCHES * common * min(samples, AT_ONCE) if panel_haplotypes > MOST_SEARCHED else 0
    at_work = max(of_search, threads * of_thread) + of_panel + of_matches
    return ALLOWANCE * (at_work + GENOTYPE * sites * samples)


def chain_threads(
    budget: int | None,
    panel_haplotypes: int,
    at_once: int,
    sites: int,
    samples: int,
    threads: int,
    bases: int = 0,
    common: int = 0,
    minor_alleles: int = 0,
) -> int:
    """How many threads can compute the chains of sequenced samples within a budget of memory.

    Results do not depend on threads; stretches stay as they are, as results depend on them.

    Parameters
    ----------
    budget : int or None
        Bytes; None for no limit.
    panel_haplotypes : int
        Haplotypes of the panel.
    at_once, sites : int
        Sites that are computed at once, and all of the region.
    samples : int
        Samples.
    threads : int
        At most.
    bases : int
        As of `chain_memory`, at the sites that are computed at once.
    common, minor_alleles : int
        As of `large_panel_memory`, for large panels.

    Returns
    -------
    int
        At least 1.

    Raises
    ------
    InputError
        One thread does not fit.
    """
    if budget is None:
        return threads
    large = panel_haplotypes > MOST_COPIED
    threads = max(1, min(threads, samples if large else -(-samples // HALF)))  # more would have nothing to do
    held = resident_bytes() + COMPILED_CHAINS + STATED * sites * samples

    def needed(n_threads: int) -> float:
        if large:
            sizes = panel_haplotypes, at_once, common, minor_alleles
            return held + large_panel_memory(*sizes, samples, n_threads, bases)
        return held + chain_memory(panel_haplotypes, at_once, samples, n_threads, bases)

    if needed(1) > budget:
        enough = 1.03 * needed(1)  # what is held before differs a little from run to run
        raise InputError(
            "memory",
            f"{shown_size(budget)} of memory are too little to impute {samples} samples at {sites} sites "
            f"from a panel of {panel_haplotypes} haplotypes: {shown_size(enough)} are needed with one "
            f"thread. Give more, {fewer_samples()}",
        )
    return max(n for n in range(1, threads + 1) if needed(n) <= budget)
