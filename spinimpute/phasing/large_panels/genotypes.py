"""Genotypes of sequenced samples from a panel of more than MAX_COPIED haplotypes.

`search` finds the most likely haplotypes of each sample in each window. Then the sample's chains copy only
these (`state_chains`), so their time hardly depends on the size of the panel. Chains cannot search the
largest panels completely. For these, haplotypes with long matches to the result of the search are added. The
chains then run a second time, with haplotypes that match the result of the first run.

Axes: S sites, R sites at which the copied haplotypes may differ, T common sites, X samples, W windows, C
chosen haplotypes, 2 haplotypes of a sample; 3: genotype, as copies of ALT.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np

from spinimpute.genotypes.intervals import Interval
from spinimpute.panels.panel import Panel
from spinimpute.phasing.all_haplotypes import groups_of_samples
from spinimpute.phasing.calibration import calibrated_pair
from spinimpute.phasing.chains import Evidence, observed_shares, order_by_chain, scaled_likelihoods
from spinimpute.phasing.copied_panel import PanelSubset
from spinimpute.phasing.large_panels.search import Search
from spinimpute.phasing.large_panels.state_chains import ChainsOverStates, last_of_groups
from spinimpute.phasing.large_panels.states import States
from spinimpute.phasing.likelihood_passes import MUTATION
from spinimpute.phasing.likely_pairs import LikelyPairs
from spinimpute.phasing.passes import HALF
from spinimpute.runtime.progress import Progress
from spinimpute.sequencing.fragments import FragmentBases

MAX_CHOSEN = 1_000  # most likely haplotypes of a sample in a window
BATCH_SAMPLES = 8 * HALF  # samples that are searched at the same time; limits the memory for lists of matches


def genotypes_from_large_panel(
    panel: Panel,
    sites: Interval,
    phred_SX3: np.ndarray,
    haploid_X: np.ndarray,
    threads: int,
    progress: Progress,
    bases_X: Sequence[FragmentBases],
) -> np.ndarray:
    """Return P(ALT) of two haplotypes per sample, float32 (S, 2, X), at consecutive sites of a large panel.

    The arguments are those of `genotypes.genotypes_from_likelihoods`.
    """
    search = Search(panel, sites)
    region_panel = PanelSubset.select(panel, np.arange(*sites), np.empty((0, 0), np.uint8), 0)
    n_samples = len(haploid_X)
    out_S2X = np.empty((len(phred_SX3), 2, n_samples), np.float32)
    rounds = 1 if search.searches_all else 2
    done = 0.0

    def report(samples: float) -> None:
        nonlocal done
        done += samples / n_samples
        progress(min(done, 1.0))

    def copy(x: int, chosen_W: list[np.ndarray]) -> None:
        states = States.choose(search.alleles, panel.n_haplotypes, search.windows, chosen_W)
        bases = bases_X[x] if bases_X else None
        out_S2X[:, :, x] = _copy(
            region_panel, sites.start, states, phred_SX3[:, x], bool(haploid_X[x]), bases
        )

    with ThreadPoolExecutor(threads, "chains") as pool:
        for low in range(0, n_samples, BATCH_SAMPLES):
            batch = np.arange(low, min(low + BATCH_SAMPLES, n_samples))
            bases = [bases_X[x] for x in batch.tolist()] if bases_X else []
            linked_X = [linked_at(bases_of_sample, sites.start, search.common_T) for bases_of_sample in bases]
            copied_XW, p_T2X = _search_batch(search, phred_SX3[:, batch], haploid_X[batch], linked_X, pool)
            report(len(batch) / 4)
            for number in range(rounds):
                if number:
                    p_T2X = out_S2X[search.common_T, :, low : low + len(batch)]
                chosen_XW = copied_XW
                if not search.searches_all:
                    near_XW = search.longest_matches(p_T2X, MAX_CHOSEN // 2, pool)
                    both_XW = zip(copied_XW, near_XW, strict=True)
                    chosen_XW = [list(map(np.union1d, copied_W, near_W)) for copied_W, near_W in both_XW]
                for _ in pool.map(copy, batch.tolist(), chosen_XW):
                    report(0.75 / rounds)
    return out_S2X


def _search_batch(
    search: Search,
    phred_SX3: np.ndarray,
    haploid_X: np.ndarray,
    linked_X: Sequence[FragmentBases],
    pool: ThreadPoolExecutor,
) -> tuple[list[list[np.ndarray]], np.ndarray]:
    """Return the haplotypes that each sample copies most, by sample and window, and P(ALT), (T, 2, X)."""
    n_chosen = MAX_CHOSEN if search.searches_all else MAX_CHOSEN // 2
    n_samples = len(haploid_X)

    def run(chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        linked_H = [linked_X[x] for x in chosen] if linked_X else []
        phred_SH3 = phred_SX3[:, chosen]
        return search.most_copied(
            phred_SH3, haploid_X[chosen], linked_H, observed_shares(phred_SH3), n_chosen
        )

    results = list(pool.map(run, groups_of_samples(n_samples)))
    copied_XWC = np.concatenate([copied for copied, _ in results])[:n_samples]
    p_T2X = np.concatenate([p for _, p in results], axis=2)[:, :, :n_samples]
    return [list(copied_WC) for copied_WC in copied_XWC], p_T2X


def _copy(
    region_panel: PanelSubset,
    first: int,
    states: States,
    phred_S3: np.ndarray,
    haploid: bool,
    bases: FragmentBases | None,
) -> np.ndarray:
    """Run a sample's chains and return P(ALT) of its haplotypes at all sites, float32 (S, 2).

    first: panel index of the first site.
    """
    haploid_H = np.array([haploid])
    genotype_S3H = _genotypes_of_same_alleles(region_panel, states.same_S, phred_S3, haploid)
    second_SH = np.zeros((len(phred_S3), 1), bool)
    n_places = len(states.site_R)
    share_H = observed_shares(phred_S3[:, None])
    if n_places:
        subset = states.as_panel(region_panel)
        linked_H = [linked_at(bases, first, states.site_R)] if bases is not None else []
        columns = subset.cM, subset.frequency, subset.trust
        evidence = Evidence(*columns, phred_S3[states.site_R][:, None], haploid_H, linked_H, 0, share_H)
        pairs = LikelyPairs(subset, Interval(0, n_places), last_of_groups(n_places))
        chains = ChainsOverStates(states.packed_RB, states.weight_K, evidence, pairs.windows, pairs)
        chains.run()
        genotype_S3H[states.site_R] = chains.genotype_S3H
        second_SH[states.site_R] = chains.alt_on_second()
    pair = calibrated_pair(genotype_S3H, region_panel.frequency.astype(np.float32), share_H, haploid_H)
    return order_by_chain(*pair, second_SH)[:, :, 0]


def linked_at(bases: FragmentBases, first: int, site_R: np.ndarray) -> FragmentBases:
    """Return the bases at some sites of those fragments that cover several of these sites.

    site_R: the sites, counted from panel index `first`. The result's `panel_index` is an index of site_R.
    """
    row_B = np.searchsorted(site_R, bases.panel_index - first)
    used_B = site_R[row_B.clip(max=len(site_R) - 1)] == bases.panel_index - first
    numbered = replace(bases, panel_index=row_B.astype(np.int32)).take(used_B)
    return numbered.linked(Interval(0, len(site_R)))


def _genotypes_of_same_alleles(
    region_panel: PanelSubset, same_S: np.ndarray, phred_S3: np.ndarray, haploid: bool
) -> np.ndarray:
    """Return genotype probabilities, float32 (S, 3, 1), as if all states had the alleles same_S."""
    copied_S = np.where(same_S == 1, 1 - MUTATION, MUTATION)
    p_S = region_panel.trust * copied_S + (1 - region_panel.trust) * region_panel.frequency
    if haploid:
        prior_S3 = np.stack([1 - p_S, np.zeros_like(p_S), p_S], axis=1)
    else:
        prior_S3 = np.stack([(1 - p_S) ** 2, 2 * p_S * (1 - p_S), p_S**2], axis=1)
    joint_S3 = prior_S3 * scaled_likelihoods(phred_S3)
    return (joint_S3 / joint_S3.sum(axis=1, keepdims=True)).astype(np.float32)[:, :, None]
