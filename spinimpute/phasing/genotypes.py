"""Genotypes of samples at all sites of a panel, from likelihoods: by chains that copy its haplotypes.

Nothing is drawn at random, and no sample sees another one: a sample alone gives the same result.

Axes: S sites, X samples, H = HALF samples side by side, 2 haplotypes of a sample, 3: copies of ALT.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from spinimpute.genotypes.intervals import Interval
from spinimpute.hmm.parameters import MOST_COPIED
from spinimpute.panels.panel import Panel
from spinimpute.phasing.all_haplotypes import ChainsOverAll, group_patterns, last_places, side_by_side
from spinimpute.phasing.chains import Evidence
from spinimpute.phasing.large_panels.genotypes import genotypes_from_large_panel
from spinimpute.phasing.likely_pairs import LikelyPairs
from spinimpute.phasing.passes import HALF
from spinimpute.sequencing.fragments import FragmentBases


def genotypes_from_likelihoods(
    panel: Panel,
    first: int,
    phred_SX3: np.ndarray,
    haploid_X: np.ndarray,
    threads: int,
    progress: Callable[[float], None] | None = None,
    bases_X: Sequence[FragmentBases] = (),
) -> np.ndarray:
    """Genotype probabilities of samples at consecutive sites of a panel.

    Parameters
    ----------
    panel : Panel
        Phased haplotypes. Of more than MOST_COPIED only the likeliest are copied, see `large_panels`.
    first : int
        The panel site of the first row.
    phred_SX3 : uint8 (S, X, 3)
        Phred-scaled likelihoods of 0, 1 and 2 copies of ALT; equal ones where nothing is known.
    haploid_X : bool (X,)
        Samples with one copy.
    threads : int
        Results do not depend on it.
    progress : callable or None
        Called with the fraction that is done.
    bases_X : sequence of FragmentBases
        Of each sample; those of fragments with several of the sites say which alleles are of one haplotype.
        Their likelihoods are among those of phred_SX3. Empty where nothing is known of fragments.

    Returns
    -------
    float32 (S, 2, X)
        P(ALT) of two haplotypes, by which genotypes are as likely as the chains say: their product is
        P(2 copies). Of a haploid sample both are the same.

    References
    ----------
    Li & Stephens 2003, Genetics 165:2213.
    """
    n_sites, n_samples = phred_SX3.shape[:2]
    sites = slice(first, first + n_sites)
    told = progress or (lambda share: None)
    if panel.n_haplotypes > MOST_COPIED:
        return genotypes_from_large_panel(panel, sites, phred_SX3, haploid_X, threads, told, bases_X)
    patterns = group_patterns(panel, sites)
    pairs = LikelyPairs(panel, sites, last_places(patterns, n_sites))
    of_panel = panel.cM[sites], panel.frequency[sites], panel.trust[sites]
    out_S2X = np.empty((n_sites, 2, n_samples), np.float32)

    def run(chosen: np.ndarray) -> None:
        linked_H = [bases_X[x].linked(Interval(sites.start, sites.stop)) for x in chosen] if bases_X else []
        evidence = Evidence(*of_panel, phred_SX3[:, chosen], haploid_X[chosen], linked_H, first)
        chains = ChainsOverAll(patterns, evidence, pairs.windows, pairs)
        chains.run()
        out_S2X[:, :, chosen] = chains.haplotype_probabilities()

    done = 0
    with ThreadPoolExecutor(threads, "chains") as pool:
        for _ in pool.map(run, side_by_side(n_samples)):
            done += HALF
            told(min(done / n_samples, 1.0))
    return out_S2X
