"""Genotypes of sequenced samples at all sites of a panel, from genotype likelihoods.

The `pipeline` calls `genotypes_by_window`. `chains` do the work. Nothing is random, and a sample's result
does not depend on the other samples.

The memory of chains grows with the number of sites, so long chromosomes are computed in windows. Each window
is computed together with a flank on both sides. Which of a sample's two chains is called the first is
arbitrary. Therefore each window is compared with the previous one at the sites that both have computed, and
its chains are exchanged if they fit better that way.

Axes: S sites, X samples, H = HALF = LANES / 2 samples that are computed together, 2 haplotypes of a sample;
3: genotype, as copies of ALT.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from spinimpute.genotypes.intervals import Interval
from spinimpute.genotypes.records import RecordRows
from spinimpute.hmm.parameters import MAX_COPIED
from spinimpute.panels.panel import Panel
from spinimpute.phasing.all_haplotypes import ChainsOverAll, group_patterns, groups_of_samples, last_places
from spinimpute.phasing.chains import Evidence
from spinimpute.phasing.large_panels.genotypes import genotypes_from_large_panel
from spinimpute.phasing.large_panels.search import common_sites
from spinimpute.phasing.likely_pairs import LikelyPairs
from spinimpute.phasing.memory import ChainSizes, chain_threads
from spinimpute.phasing.passes import HALF
from spinimpute.runtime.progress import Progress
from spinimpute.sequencing.fragments import FragmentBases

WINDOW_SITES = 65_536
FLANK_CM = 1.0
MAX_FLANK_SITES = 32_768


def genotypes_from_likelihoods(
    panel: Panel,
    first: int,
    phred_SX3: np.ndarray,
    haploid_X: np.ndarray,
    threads: int,
    progress: Progress | None = None,
    bases_X: Sequence[FragmentBases] = (),
) -> np.ndarray:
    """Return P(ALT) of two haplotypes per sample, float32 (S, 2, X), at consecutive panel sites.

    The product of the two is P(2 copies). They are equal in haploid samples. In panels of more than
    MAX_COPIED haplotypes only the most likely ones are copied, see `large_panels`. The result does not depend
    on threads.

    first: panel index of the first site. phred_SX3: uint8, Phred-scaled likelihoods of 0, 1 and 2 copies of
    ALT; all equal where a sample is not observed. haploid_X: bool. bases_X: the bases of each sample's
    fragments, which show which alleles lie on the same haplotype; empty if unknown. phred_SX3 already
    includes their likelihoods.

    References
    ----------
    Li & Stephens 2003, Genetics 165:2213.
    """
    n_sites, n_samples = phred_SX3.shape[:2]
    sites = Interval(first, first + n_sites)
    report = progress or (lambda share: None)
    if panel.n_haplotypes > MAX_COPIED:
        return genotypes_from_large_panel(panel, sites, phred_SX3, haploid_X, threads, report, bases_X)
    patterns = group_patterns(panel, sites)
    pairs = LikelyPairs(panel, sites, last_places(patterns, n_sites))
    columns = panel.cM[sites.slice], panel.frequency[sites.slice], panel.trust[sites.slice]
    out_S2X = np.empty((n_sites, 2, n_samples), np.float32)

    def run(chosen: np.ndarray) -> None:
        linked_H = [bases_X[x].linked(sites) for x in chosen] if bases_X else []
        evidence = Evidence(*columns, phred_SX3[:, chosen], haploid_X[chosen], linked_H, first)
        chains = ChainsOverAll(patterns, evidence, pairs.windows, pairs)
        chains.run()
        out_S2X[:, :, chosen] = chains.haplotype_probabilities()

    done = 0
    with ThreadPoolExecutor(threads, "chains") as pool:
        for _ in pool.map(run, groups_of_samples(n_samples)):
            done += HALF
            report(min(done / n_samples, 1.0))
    return out_S2X


def genotypes_by_window(
    panel: Panel,
    first: int,
    phred_SX3: np.ndarray,
    haploid_X: np.ndarray,
    threads: int,
    progress: Progress | None = None,
    bases_X: Sequence[FragmentBases] = (),
) -> Iterator[tuple[int, np.ndarray]]:
    """Yield each window's first site (panel index) and its `genotypes_from_likelihoods`.

    The probabilities of the alleles of a record with several ALTs add up to 1, see
    `RecordRows.share_alleles`. The sites must not cut such a record, and windows do not cut it.
    """
    region = Interval(first, first + len(phred_SX3))
    records = panel.records
    # result in the right flank of the previous window
    overlap_S2X = np.zeros((0, 2, phred_SX3.shape[1]), np.float32)
    for window, flanked in cut_chain_windows(panel.cM, region, records):

        def report(share: float, window: Interval = window) -> None:
            if progress is not None:
                progress((window.start - first + share * window.n_sites) / region.n_sites)

        phred_SX3_flanked = phred_SX3[flanked.start - first : flanked.stop - first]
        p_S2X = genotypes_from_likelihoods(
            panel, flanked.start, phred_SX3_flanked, haploid_X, threads, report, bases_X
        )[window.start - flanked.start :]
        n_shared = min(len(overlap_S2X), len(p_S2X))
        agreement_SX = (overlap_S2X[:n_shared, 0] - overlap_S2X[:n_shared, 1]) * (
            p_S2X[:n_shared, 0] - p_S2X[:n_shared, 1]
        )
        p_S2X = np.where(agreement_SX.sum(axis=0) < 0, p_S2X[:, ::-1], p_S2X)
        overlap_S2X = p_S2X[window.n_sites :].copy()
        p_S2X = p_S2X[: window.n_sites]
        records.share_alleles(window.start, p_S2X)
        yield window.start, p_S2X


def cut_chain_windows(
    cM: np.ndarray, region: Interval, records: RecordRows
) -> list[tuple[Interval, Interval]]:
    """Cut an interval of panel sites into windows; return each window without and with its flanks."""
    windows = []
    starts = range(region.start, region.stop, WINDOW_SITES)
    cuts = [Interval(start, min(start + WINDOW_SITES, region.stop)) for start in starts]
    for start, stop in records.keep_whole(cuts):
        low = int(np.searchsorted(cM, cM[start] - FLANK_CM))
        high = int(np.searchsorted(cM, cM[stop - 1] + FLANK_CM, side="right"))
        flanked = Interval(
            max(low, start - MAX_FLANK_SITES, region.start), min(high, stop + MAX_FLANK_SITES, region.stop)
        )
        windows.append((Interval(start, stop), flanked))
    return windows


def threads_within(
    budget: int | None,
    panel: Panel,
    region: Interval,
    n_samples: int,
    threads: int,
    bases_X: Sequence[FragmentBases] = (),
) -> int:
    """Return how many threads, at least 1, can compute a region's windows within a memory budget (bytes).

    Raises InputError if the budget is too small for one thread, see `chain_threads`.
    """
    records = panel.records
    windows = [flanked for _, flanked in cut_chain_windows(panel.cM, region, records)]
    widest = max(flanked.n_sites for flanked in windows)
    bases = max((x_bases.n_at(flanked) for x_bases in bases_X for flanked in windows), default=0)
    n = panel.n_haplotypes
    n_common = n_minor = 0
    if n > MAX_COPIED:
        for flanked in windows:
            is_common = common_sites(panel.frequency[flanked.slice])
            count = panel.allele_count[flanked.slice][~is_common]
            n_common = max(n_common, int(is_common.sum()))
            n_minor = max(n_minor, int(np.minimum(count, n - count).sum()))
    return chain_threads(
        budget, ChainSizes(n, widest, n_samples, bases, n_common, n_minor), region.n_sites, threads
    )
