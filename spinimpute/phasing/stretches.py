"""Long chromosomes in stretches, for chains whose memory grows with their length.

A stretch sees flanks on both sides. Which of a sample's chains is the first one is undetermined: a stretch
takes them as the stretch before has them, by the sites that both have computed.

Axes: S sites, X samples, 2 haplotypes of a sample.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from spinimpute.genotypes.intervals import Interval
from spinimpute.hmm.parameters import MOST_COPIED
from spinimpute.panels.panel import Panel
from spinimpute.phasing.genotypes import genotypes_from_likelihoods
from spinimpute.phasing.large_panels.search import common_sites
from spinimpute.phasing.memory import chain_threads
from spinimpute.sequencing.fragments import FragmentBases

STRETCH = 65_536  # sites
FLANK_CM = 1.0
MOST_FLANK = 32_768  # sites


def in_stretches(
    panel: Panel,
    first: int,
    phred_SX3: np.ndarray,
    haploid_X: np.ndarray,
    threads: int,
    progress: Callable[[float], None] | None = None,
    bases_X: Sequence[FragmentBases] = (),
) -> Iterator[tuple[int, np.ndarray]]:
    """`genotypes_from_likelihoods` of one stretch after the other.

    Parameters
    ----------
    panel, first, phred_SX3, haploid_X, threads, progress, bases_X
        As of `genotypes_from_likelihoods`.

    Yields
    ------
    int
        The first panel site of a stretch.
    float32 (S, 2, X)
        P(ALT) of the haplotypes, in order of the sites.
    """
    stop = first + len(phred_SX3)
    behind = np.zeros((0, 2, phred_SX3.shape[1]), np.float32)  # of the stretch before, beyond its end
    for start, end, low, high in cut_stretches(panel.cM, first, stop):

        def told(share: float, start: int = start, end: int = end) -> None:
            if progress is not None:
                progress((start - first + share * (end - start)) / (stop - first))

        p_S2X = genotypes_from_likelihoods(
            panel, low, phred_SX3[low - first : high - first], haploid_X, threads, told, bases_X
        )[start - low :]
        both = min(len(behind), len(p_S2X))
        apart_SX = (behind[:both, 0] - behind[:both, 1]) * (p_S2X[:both, 0] - p_S2X[:both, 1])
        p_S2X = np.where(apart_SX.sum(axis=0) < 0, p_S2X[:, ::-1], p_S2X)
        behind = p_S2X[end - start :].copy()
        yield start, p_S2X[: end - start]


def cut_stretches(cM: np.ndarray, first: int, stop: int) -> list[tuple[int, int, int, int]]:
    """Cut the sites [first, stop) of a panel: sites of a stretch [start, end), with its flanks [low, high).

    Parameters
    ----------
    cM : float (n_sites,)
        Genetic positions of the panel's sites.
    first, stop : int
        What is cut.

    Returns
    -------
    list of (int, int, int, int)
        start, end, low and high of each.
    """
    found = []
    for start in range(first, stop, STRETCH):
        end = min(start + STRETCH, stop)
        low = int(np.searchsorted(cM, cM[start] - FLANK_CM))
        high = int(np.searchsorted(cM, cM[end - 1] + FLANK_CM, side="right"))
        found.append((start, end, max(low, start - MOST_FLANK, first), min(high, end + MOST_FLANK, stop)))
    return found


def threads_within(
    budget: int | None,
    panel: Panel,
    first: int,
    stop: int,
    n_samples: int,
    threads: int,
    bases_X: Sequence[FragmentBases] = (),
) -> int:
    """How many threads can work on the stretches of the sites [first, stop) within a budget of memory.

    Parameters
    ----------
    budget : int or None
        Bytes; None for no limit.
    panel : Panel
        Phased haplotypes.
    first, stop : int
        Its sites that are imputed.
    n_samples : int
        Samples.
    threads : int
        At most.
    bases_X : sequence of FragmentBases
        As of `genotypes_from_likelihoods`.

    Returns
    -------
    int
        At least 1.

    Raises
    ------
    InputError
        As `chain_threads`.
    """
    stretches = [(low, high) for *_, low, high in cut_stretches(panel.cM, first, stop)]
    widest = max(high - low for low, high in stretches)
    bases = max((one.n_at(Interval(*stretch)) for one in bases_X for stretch in stretches), default=0)
    n = panel.n_haplotypes
    common = minor_alleles = 0
    if n > MOST_COPIED:
        for low, high in stretches:
            is_common = common_sites(panel.frequency[low:high])
            count = panel.allele_count[low:high][~is_common]
            common = max(common, int(is_common.sum()))
            minor_alleles = max(minor_alleles, int(np.minimum(count, n - count).sum()))
    return chain_threads(budget, n, widest, stop - first, n_samples, threads, bases, common, minor_alleles)
