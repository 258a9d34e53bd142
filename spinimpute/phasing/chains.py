"""Two chains a sample that copy a panel, from genotype likelihoods: genotypes at all sites of the panel.

Sweeps (`likelihood_passes`) repeat. The first one starts from frequencies, the others from what the last one
found, each with its own recombination scale: common ancestors are recent for some haplotypes and old for
others, and no single scale fits them all. Their genotype probabilities are averaged; the more is known of a
sample, and the rarer an allele is, the more jumps are best. The average is too certain, which `calibration`
takes back. Reads that span sites tell in every sweep which alleles are of one chain (`fragment_phase`).

Nothing is drawn at random, and no sample sees another one: a sample alone gives the same result.

A sweep needs backward values right of every place. They are kept at the ends of groups of spans only, and
computed again within a group when the forward pass comes to it.

Axes: S sites, X samples, H = HALF samples side by side, L lanes, I spans, G groups of them, N haplotypes, 3:
copies of ALT.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from spinimpute.genotypes.bit_rows import pack_rows
from spinimpute.hmm.backward_values import fill_backwards
from spinimpute.hmm.parameters import LANES, SPAN
from spinimpute.hmm.patterns import SpanPatterns, span_patterns
from spinimpute.hmm.steps import go_through_alone
from spinimpute.hmm.transitions import jump_probabilities
from spinimpute.panels.panel import Panel
from spinimpute.phasing.calibration import calibrated_pair
from spinimpute.phasing.fragment_phase import SweptFragments
from spinimpute.phasing.likelihood_passes import sweep_forward
from spinimpute.phasing.likely_pairs import LikelyPairs
from spinimpute.phasing.passes import HALF
from spinimpute.sequencing.fragments import FragmentBases

# Chosen on people taken out of the real panels, see benchmarks/README.md.
FIRST_SCALE = 6.0  # jumps per cM of a chain, whatever the number of haplotypes
# Of the sweeps that count: from high to low, as low ones early on keep chains in what they have found first.
SCALES = (100.0, 50.0, 18.0, 6.0, 3.0, 1.5)
# Which of them count, for alleles up to each of these frequencies, of samples of whom something is known at
# this share of the sites at least: with 2.3, 0.69, 0.29 and 0 reads a site.
FREQUENCIES = (0.0005, 0.01, 0.5)
LADDERS = (
    (0.9, (slice(0, 3), slice(0, 4), slice(1, 6))),
    (0.5, (slice(0, 3), slice(0, 5), slice(2, 6))),
    (0.25, (slice(0, 4), slice(1, 6), slice(2, 6))),
    (0.0, (slice(1, 6), slice(2, 6), slice(3, 6))),
)
MISMATCH = 1e-3
_LIKELIHOOD = (10.0 ** (-np.arange(256) / 10)).astype(np.float32)  # of Phred-scaled ones
_ROWS_AT_ONCE = 4_096


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
        Phased haplotypes.
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
    patterns = _patterns(panel, sites)
    last_G = np.cumsum([len(one.pattern_IN) * SPAN for one in patterns]).clip(max=n_sites) - 1
    pairs = LikelyPairs(panel, sites, last_G.tolist())
    cM_S, frequency_S = panel.cM[sites], panel.frequency[sites].astype(np.float32)
    trust_S = panel.trust[sites]
    jumps = [
        jump_probabilities(cM_S, panel.n_haplotypes, scale * panel.n_haplotypes)
        for scale in (FIRST_SCALE, *SCALES)
    ]
    class_S = np.searchsorted(FREQUENCIES[:-1], np.minimum(frequency_S, 1 - frequency_S))
    out_S2X = np.empty((n_sites, 2, n_samples), np.float32)
    done = 0

    def run(low: int) -> None:
        chosen = np.arange(low, low + HALF).clip(max=n_samples - 1)  # the last fills up
        linked_H = [bases_X[x].linked(first, first + n_sites) for x in chosen] if bases_X else []
        of_samples = phred_SX3[:, chosen], haploid_X[chosen], linked_H
        chains = _Chains(patterns, pairs, frequency_S, trust_S, *of_samples, first)
        weight_KSH = chains.weights(class_S)
        chains.sweep(jumps[0])
        for jump_S, weight_SH in zip(jumps[1:], weight_KSH, strict=True):
            chains.sweep(jump_S, weight_SH)
        chains.count_pairs()
        high = min(low + HALF, n_samples)
        out_S2X[:, :, low:high] = chains.haplotype_probabilities()[:, :, : high - low]

    with ThreadPoolExecutor(threads, "chains") as pool:
        for _ in pool.map(run, range(0, n_samples, HALF)):
            done += HALF
            if progress is not None:
                progress(min(done / n_samples, 1.0))
    return out_S2X


def _patterns(panel: Panel, sites: slice) -> list[SpanPatterns]:
    """Patterns of groups of spans, each with about as many spans as there are groups."""
    n_spans = -(-(sites.stop - sites.start) // SPAN)
    step = max(1, round(n_spans**0.5)) * SPAN
    groups = []
    for low in range(sites.start, sites.stop, step):
        rows = np.arange(low, min(low + step, sites.stop))
        alleles_SN = np.unpackbits(panel.packed_rows(rows), axis=1, count=panel.n_haplotypes)
        groups.append(span_patterns(pack_rows(alleles_SN), len(rows)))
    return groups


class _Chains:
    """The chains of HALF samples; lane l is the first one of a sample, lane l + HALF its second one."""

    def __init__(
        self,
        patterns: list[SpanPatterns],
        pairs: LikelyPairs,
        frequency_S: np.ndarray,
        trust_S: np.ndarray,
        phred_SH3: np.ndarray,
        haploid_H: np.ndarray,
        linked_H: Sequence[FragmentBases],
        first: int,
    ) -> None:
        self.patterns, self.pairs = patterns, pairs
        self.haploid_H, self.frequency_S = haploid_H, frequency_S
        self.stated_S3H = _LIKELIHOOD[phred_SH3].transpose(0, 2, 1)
        self.stated_S3H /= self.stated_S3H.max(axis=1, keepdims=True)
        # where alleles contradict the haplotypes around them, they say little of what is copied
        self.trust_S1 = trust_S[:, None]
        trust_S11 = trust_S[:, None, None]
        self.likelihood_S3H = np.ascontiguousarray(1 - trust_S11 + trust_S11 * self.stated_S3H)
        none, one, two = self.likelihood_S3H.transpose(1, 0, 2)
        known_SH = (none != one) | (none != two)
        self.share_H = known_SH.mean(axis=0)  # of the sites
        self.fragments = SweptFragments.of(linked_H, known_SH & ~haploid_H, first)
        # of a heterozygote's likelihood, if the first chain has its ALT, and if the second one has
        self.factor_S2H = np.ones((len(frequency_S), 2, HALF), np.float32)
        self.emission_S2L = self._by_frequency(frequency_S)
        self.probability_SL = np.zeros((len(frequency_S), LANES), np.float32)
        self.genotype_S3H = np.zeros(self.likelihood_S3H.shape, np.float32)
        self.plan_H = [
            pairs.plan(share, linked_H[h] if linked_H else None, first)
            for h, share in enumerate(self.share_H)
        ]
        self.with_pairs = any(weight > 0 for _, weight in self.plan_H)
        self.usage_WNH = np.zeros((len(pairs.windows), pairs.n_haplotypes, HALF), np.float32)
        self._first_G = np.cumsum([0, *(len(one.pattern_IN) * SPAN for one in patterns)]).tolist()

    def _by_frequency(self, frequency_S: np.ndarray) -> np.ndarray:
        """Emissions of a chain if the other one has ALT as often as the panel."""
        none, one, two = self.likelihood_S3H.transpose(1, 0, 2)
        f = frequency_S[:, None]
        ref, alt = (1 - f) * none + f * one, (1 - f) * one + f * two
        ref, alt = np.where(self.haploid_H, none, ref), np.where(self.haploid_H, two, alt)
        share = MISMATCH + (1 - 2 * MISMATCH) * alt / (ref + alt)
        emission_S2H = np.stack([1 - share, share], axis=1).astype(np.float32)
        flat_SH = (none == one) & (none == two)
        emission_S2H[np.broadcast_to(flat_SH[:, None], emission_S2H.shape)] = 1
        emission_S2L = np.concatenate([emission_S2H, emission_S2H], axis=2)
        emission_S2L[:, :, HALF:][:, :, self.haploid_H] = 1
        return emission_S2L

    def weights(self, class_S: np.ndarray) -> np.ndarray:
        """How much the sweep of each of SCALES counts, float32 (K, S, H); class_S: of FREQUENCIES."""
        weight_KSH = np.zeros((len(SCALES), len(class_S), HALF), np.float32)
        for h, share in enumerate(self.share_H):
            ladder = next(ladder for least, ladder in LADDERS if share >= least)
            for number, chosen in enumerate(ladder):
                weight_KSH[chosen, class_S == number, h] = 1 / (chosen.stop - chosen.start)
        return weight_KSH

    def sweep(self, jump_S: np.ndarray, weight_SH: np.ndarray | None = None) -> None:
        """Update all emissions, and count the genotype probabilities; None for the first sweep."""
        starting = weight_SH is None
        exchanged_HS = np.zeros((HALF, len(jump_S)), np.uint8)
        n = self.patterns[0].pattern_IN.shape[1]
        behind_GNL = self._behind_groups(jump_S)
        left_NL = np.full((n, LANES), np.float32(1) / n, np.float32)
        self.fragments.begin()
        for group, patterns in enumerate(self.patterns):
            here = self._places(group, len(jump_S))
            right = self._backward(group, jump_S, behind_GNL[group])[:3]
            exchanged = np.zeros((HALF, here.stop - here.start), np.uint8)
            sweep_forward(
                *patterns, self.likelihood_S3H[here], self.haploid_H, jump_S[here], *right, left_NL,
                np.float32(MISMATCH), starting, self.fragments, here.start, self.emission_S2L[here],
                exchanged, self.probability_SL[here], self.factor_S2H[here],
            )  # fmt: skip
            exchanged_HS[:, here] = exchanged
            if not starting and self.with_pairs:
                self._count_usage(group, left_NL * behind_GNL[group])
        self._turn(exchanged_HS.T.astype(bool))
        if weight_SH is not None:
            self.genotype_S3H += weight_SH[:, None] * self._genotypes()

    def _count_usage(self, group: int, copied_NL: np.ndarray) -> None:
        """Add what both chains copy at the last place of a group; copied_NL: on any level."""
        copied_NL /= copied_NL.sum(axis=0)
        for window in self.pairs.windows_G[group]:
            self.usage_WNH[window] += copied_NL[:, :HALF] + copied_NL[:, HALF:]

    def _behind_groups(self, jump_S: np.ndarray) -> list[np.ndarray]:
        """Backward values behind each group of spans."""
        n = self.patterns[0].pattern_IN.shape[1]
        behind = [np.ones((n, LANES), np.float32)]
        for group in range(len(self.patterns) - 1, 0, -1):
            behind_INL, _, _, stay_DL, come_DL = self._backward(group, jump_S, behind[-1])
            before_NL = behind_INL[0]
            go_through_alone(self.patterns[group].pattern_IN[0], stay_DL, come_DL, before_NL)
            behind.append(before_NL.copy())
        return behind[::-1]

    def _backward(self, group: int, jump_S: np.ndarray, behind_NL: np.ndarray) -> tuple[np.ndarray, ...]:
        patterns, here = self.patterns[group], self._places(group, len(jump_S))
        behind_INL = np.empty((*patterns.pattern_IN.shape, LANES), np.float32)
        behind_INL[-1] = behind_NL
        stay_PDL, come_PDL = (np.empty((SPAN, len(patterns.bits_D), LANES), np.float32) for _ in range(2))
        first = fill_backwards(
            *patterns, self.emission_S2L[here], jump_S[here], behind_INL, stay_PDL, come_PDL
        )
        return behind_INL, stay_PDL, come_PDL, *first

    def _places(self, group: int, n_sites: int) -> slice:
        return slice(self._first_G[group], min(self._first_G[group + 1], n_sites))

    def _turn(self, exchanged_SH: np.ndarray) -> None:
        """Exchange the chains behind each place where it was decided so."""
        behind_SH = np.zeros_like(exchanged_SH)
        behind_SH[1:] = np.logical_xor.accumulate(exchanged_SH, axis=0)[:-1]
        behind_SL = np.concatenate([behind_SH, behind_SH], axis=1)
        for x, behind in ((self.probability_SL, behind_SL), (self.emission_S2L, behind_SL[:, None])):
            x[...] = np.where(behind, np.roll(x, HALF, axis=-1), x)
        self.factor_S2H = np.where(behind_SH[:, None], self.factor_S2H[:, ::-1], self.factor_S2H)
        self.fragments.turn(behind_SH)

    def _genotypes(self) -> np.ndarray:
        """P(0, 1 and 2 copies of ALT), float32 (S, 3, H)."""
        p, q = self._alleles()
        q = np.where(self.haploid_H, p, q)
        first, second = self._heterozygotes()
        between = np.where(self.haploid_H, 0, first + second)
        ref, alt = np.where(self.haploid_H, 1 - p, (1 - p) * (1 - q)), np.where(self.haploid_H, p, p * q)
        joint_S3H = np.stack([ref, between, alt], axis=1) * self.stated_S3H
        return (joint_S3H / joint_S3H.sum(axis=1, keepdims=True)).astype(np.float32)

    def count_pairs(self) -> None:
        """Mix genotype probabilities with those of pairs of haplotypes, of samples with few reads."""
        for h, (most, weight) in enumerate(self.plan_H):
            if not weight or self.haploid_H[h]:
                continue
            likelihood_S3 = np.ascontiguousarray(self.likelihood_S3H[:, :, h])
            row_R, genotype_R3 = self.pairs.genotypes(self.usage_WNH[:, :, h], likelihood_S3, most, MISMATCH)
            genotype_R3 = genotype_R3 * self.stated_S3H[row_R, :, h]
            genotype_R3 /= genotype_R3.sum(axis=1, keepdims=True)
            mixed_R3 = (1 - weight) * self.genotype_S3H[row_R, :, h] + weight * genotype_R3
            self.genotype_S3H[row_R, :, h] = mixed_R3

    def _heterozygotes(self) -> tuple[np.ndarray, np.ndarray]:
        """P(heterozygote), on any level: the first chain has its ALT, or the second one; (S, H)."""
        p, q = self._alleles()
        return p * (1 - q) * self.factor_S2H[:, 0], q * (1 - p) * self.factor_S2H[:, 1]

    def _alleles(self) -> tuple[np.ndarray, np.ndarray]:
        """P(ALT) of both chains by what is around, as far as the panel's alleles follow it; (S, H)."""
        p_SL = self.trust_S1 * self.probability_SL + (1 - self.trust_S1) * self.frequency_S[:, None]
        return p_SL[:, :HALF], p_SL[:, HALF:]

    def haplotype_probabilities(self) -> np.ndarray:
        """As `genotypes_from_likelihoods` returns them; the likelier carrier is the chain that is."""
        high_SH, low_SH = calibrated_pair(self.genotype_S3H, self.frequency_S, self.share_H, self.haploid_H)
        first_SH, second_SH = self._heterozygotes()
        second_SH = second_SH > first_SH
        return np.stack([np.where(second_SH, low_SH, high_SH), np.where(second_SH, high_SH, low_SH)], axis=1)
