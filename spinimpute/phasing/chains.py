"""Genotypes of sequenced samples from genotype likelihoods: two chains per sample that copy a panel.

A chain models one haplotype of a sample: a hidden Markov model that copies panel haplotypes, given the likely
alleles of the sample's other chain. A sweep (`likelihood_passes`) first goes from right to left, to compute
backward values from the sweep before, then from left to right, to update both chains. The first sweep starts
from allele frequencies. Each sweep has its own switch rate (scale), because some common ancestors are recent
and others old. The genotype probabilities of several sweeps are averaged. The sample's coverage and the
allele's frequency decide which: high scales are best for well covered samples and for rare alleles. The
average is overconfident, which `calibration` corrects. Fragments that cover several sites show which alleles
lie on the same chain (`fragment_phase`).

Subclasses choose which haplotypes a chain may copy: all of them (`all_haplotypes`), or the most likely ones
of a large panel (`large_panels`).

Axes: S sites, H samples that are computed together, L = 2 H lanes: the first chains of all samples, then the
second chains; N haplotypes that may be copied, W windows, K sweeps; 3: genotype, as copies of ALT.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from spinimpute.hmm.steps import jump_probabilities
from spinimpute.phasing.calibration import calibrated_pair
from spinimpute.phasing.copied_panel import CopyingWindows
from spinimpute.phasing.fragment_phase import SweptFragments
from spinimpute.phasing.likelihood_passes import MISMATCH, SweptPlaces
from spinimpute.phasing.likely_pairs import LikelyPairs
from spinimpute.sequencing.fragments import FragmentBases

# These values were chosen on samples held out of the real panels, see benchmarks/tried.md.
# The scales are the model's switch rates, per cM; recombination scales (glossary) are N times as large.
FIRST_SCALE = 6.0  # of the first sweep, which is not averaged
# Scales of the later sweeps. At high scales, chains search for haplotypes to copy. At low scales they rarely
# switch, and so keep those that they found.
SCALES = (100.0, 50.0, 18.0, 6.0, 3.0, 1.5)
FREQUENCIES = (0.0005, 0.01, 0.5)  # upper bounds of classes of minor allele frequency
# Each row starts with a share of sites, and holds for samples that are observed at this share or more. (The
# shares correspond to 2.3, 0.69, 0.29 and 0 reads per site.) For each class of FREQUENCIES it has the SCALES
# whose sweeps are averaged.
AVERAGED_SCALES = (
    (0.9, (slice(0, 3), slice(0, 4), slice(1, 6))),
    (0.5, (slice(0, 3), slice(0, 5), slice(2, 6))),
    (0.25, (slice(0, 4), slice(1, 6), slice(2, 6))),
    (0.0, (slice(1, 6), slice(2, 6), slice(3, 6))),
)
_LIKELIHOOD = (10.0 ** (-np.arange(256) / 10)).astype(np.float32)  # by Phred-scaled likelihood


@dataclass(frozen=True, eq=False)
class Evidence:
    """Observations of samples that are computed together, and columns of the panel at the same sites."""

    # cM_S, frequency_S, trust_S: float, see `CopiedPanel`
    cM_S: np.ndarray
    frequency_S: np.ndarray
    trust_S: np.ndarray
    # uint8, Phred-scaled likelihoods of 0, 1 and 2 copies of ALT; all equal where a sample is not observed
    phred_SH3: np.ndarray
    haploid_H: np.ndarray  # bool, samples with one copy of the chromosome
    # for each sample, the bases of fragments that cover several of the sites; empty if no fragments are known
    linked_H: Sequence[FragmentBases]
    first_panel_index: int  # `FragmentBases.panel_index` of the first of the S sites
    # float, share of sites at which a sample is observed. None: computed from phred_SH3.
    share_H: np.ndarray | None = None


class Sweep(NamedTuple):
    """The settings and exchanges of one sweep."""

    jump_S: np.ndarray  # float32, see `jump_probabilities`
    is_first: bool
    swap_after_SH: np.ndarray  # bool, filled by the sweep: exchange the chains to the right of the place


class Chains(ABC):
    """The chains of some samples.

    windows: windows in which the use of each haplotype is summed. pairs: model of haplotype pairs for samples
    with few reads, or None. usage_WNH: float32, how much each haplotype is copied in each window: the
    probabilities to copy it, summed over both chains, over the window's counting places (see `copied_panel`)
    and over all sweeps but the first.
    """

    def __init__(
        self, evidence: Evidence, n_haplotypes: int, windows: CopyingWindows, pairs: LikelyPairs | None
    ) -> None:
        self.pairs, self.windows, self.n_haplotypes = pairs, windows, n_haplotypes
        self.cM_S, self.frequency_S = evidence.cM_S, evidence.frequency_S.astype(np.float32)
        self.haploid_H, self.half = evidence.haploid_H, len(evidence.haploid_H)
        self.likelihood_S3H = scaled_likelihoods(evidence.phred_SH3).transpose(0, 2, 1)
        # At a site of low trust an observation says little about which haplotype is copied.
        self.trust_S1 = evidence.trust_S[:, None]
        trust_S11 = evidence.trust_S[:, None, None]
        self.trusted_likelihood_S3H = np.ascontiguousarray(1 - trust_S11 + trust_S11 * self.likelihood_S3H)
        zero, one, two = self.trusted_likelihood_S3H.transpose(1, 0, 2)
        known_SH = (zero != one) | (zero != two)
        self.share_H = known_SH.mean(axis=0) if evidence.share_H is None else evidence.share_H
        linked_H, first = evidence.linked_H, evidence.first_panel_index
        self.fragments = SweptFragments.from_bases(linked_H, known_SH & ~self.haploid_H, first)
        n_sites = len(self.cM_S)
        # factors from fragments for a heterozygote's likelihood: ALT on the first chain, ALT on the second
        self.factor_S2H = np.ones((n_sites, 2, self.half), np.float32)
        self.emission_S2L = self._by_frequency(self.frequency_S)
        self.probability_SL = np.zeros((n_sites, 2 * self.half), np.float32)
        self.genotype_S3H = np.zeros(self.trusted_likelihood_S3H.shape, np.float32)
        self.plan_H = [
            pairs.plan(share, linked_H[h] if linked_H else None, first) if pairs else (0, 0.0)
            for h, share in enumerate(self.share_H)
        ]
        self._counts_usage = pairs is None or any(weight > 0 for _, weight in self.plan_H)
        self.usage_WNH = np.zeros((len(windows.windows), n_haplotypes, self.half), np.float32)

    @abstractmethod
    def _update_chains(self, sweep: Sweep, count_usage: bool) -> Iterator[np.ndarray | None]:
        """Run one sweep in groups of consecutive sites, one for each counting place.

        After each group, yields the expected number of chains of each sample (0 to 2) that copy each
        haplotype at the group's last site, float32 (N, H), or None without count_usage.
        """

    def _swept_places(self, sweep: Sweep, here: slice) -> SweptPlaces:
        """Return views of the sweep's arrays at the sites `here`."""
        return SweptPlaces(
            here.start,
            sweep.jump_S[here],
            self.trusted_likelihood_S3H[here],
            self.haploid_H,
            sweep.is_first,
            self.emission_S2L[here],
            self.probability_SL[here],
            self.factor_S2H[here],
            sweep.swap_after_SH[here],
        )

    def run(self) -> None:
        """Run all sweeps, and add the result of `pairs`."""
        minor_S = np.minimum(self.frequency_S, 1 - self.frequency_S)
        weight_KSH = self._weights(np.searchsorted(FREQUENCIES[:-1], minor_S))
        n = self.n_haplotypes
        self._sweep(jump_probabilities(self.cM_S, n, FIRST_SCALE * n))
        for scale, weight_SH in zip(SCALES, weight_KSH, strict=True):
            self._sweep(jump_probabilities(self.cM_S, n, scale * n), weight_SH)
        if self.pairs:
            self._average_with_pairs(self.pairs)

    def _by_frequency(self, frequency_S: np.ndarray) -> np.ndarray:
        """Return each chain's emissions if the other chain has ALT with the panel's frequency."""
        zero, one, two = self.trusted_likelihood_S3H.transpose(1, 0, 2)
        f = frequency_S[:, None]
        ref, alt = (1 - f) * zero + f * one, (1 - f) * one + f * two
        ref, alt = np.where(self.haploid_H, zero, ref), np.where(self.haploid_H, two, alt)
        share = MISMATCH + (1 - 2 * MISMATCH) * alt / (ref + alt)
        emission_S2H = np.stack([1 - share, share], axis=1).astype(np.float32)
        flat_SH = (zero == one) & (zero == two)
        emission_S2H[np.broadcast_to(flat_SH[:, None], emission_S2H.shape)] = 1
        emission_S2L = np.concatenate([emission_S2H, emission_S2H], axis=2)
        emission_S2L[:, :, self.half :][:, :, self.haploid_H] = 1
        return emission_S2L

    def _weights(self, class_S: np.ndarray) -> np.ndarray:
        """Return the weights of sweeps in the average, float32 (K, S, H); class_S: index in FREQUENCIES."""
        weight_KSH = np.zeros((len(SCALES), len(class_S), self.half), np.float32)
        for h, share in enumerate(self.share_H):
            averaged = next(averaged for minimum, averaged in AVERAGED_SCALES if share >= minimum)
            for number, chosen in enumerate(averaged):
                weight_KSH[chosen, class_S == number, h] = 1 / (chosen.stop - chosen.start)
        return weight_KSH

    def _sweep(self, jump_S: np.ndarray, weight_SH: np.ndarray | None = None) -> None:
        """Run one sweep and add its weighted genotype probabilities; the first sweep has no weights."""
        sweep = Sweep(jump_S, weight_SH is None, np.zeros((len(jump_S), self.half), bool))
        count_usage = self._counts_usage and not sweep.is_first
        self.fragments.rewind()
        for group, copied_NH in enumerate(self._update_chains(sweep, count_usage)):
            if copied_NH is not None:
                for window in self.windows.windows_G[group]:
                    self.usage_WNH[window] += copied_NH
        self._exchange_chains(sweep.swap_after_SH)
        if weight_SH is not None:
            self.genotype_S3H += weight_SH[:, None] * self._genotypes()

    def _exchange_chains(self, swap_after_SH: np.ndarray) -> None:
        """Exchange the two chains to the right of each place in swap_after_SH; two exchanges cancel."""
        swap_SH = np.zeros_like(swap_after_SH)
        swap_SH[1:] = np.logical_xor.accumulate(swap_after_SH, axis=0)[:-1]
        swap_SL = np.concatenate([swap_SH, swap_SH], axis=1)
        for x, swap in ((self.probability_SL, swap_SL), (self.emission_S2L, swap_SL[:, None])):
            x[...] = np.where(swap, np.roll(x, self.half, axis=-1), x)
        self.factor_S2H = np.where(swap_SH[:, None], self.factor_S2H[:, ::-1], self.factor_S2H)
        self.fragments.exchange_chains(swap_SH)

    def _genotypes(self) -> np.ndarray:
        """Return P(0, 1 and 2 copies of ALT) after a sweep, float32 (S, 3, H)."""
        p, q = self._alleles()
        q = np.where(self.haploid_H, p, q)
        first, second = self._heterozygotes()
        between = np.where(self.haploid_H, 0, first + second)
        ref, alt = np.where(self.haploid_H, 1 - p, (1 - p) * (1 - q)), np.where(self.haploid_H, p, p * q)
        joint_S3H = np.stack([ref, between, alt], axis=1) * self.likelihood_S3H
        return (joint_S3H / joint_S3H.sum(axis=1, keepdims=True)).astype(np.float32)

    def _average_with_pairs(self, pairs: LikelyPairs) -> None:
        """For samples with few reads, average the chains' genotype probabilities with those of `pairs`."""
        for h, (n_chosen, weight) in enumerate(self.plan_H):
            if not weight or self.haploid_H[h]:
                continue
            likelihood_S3 = np.ascontiguousarray(self.trusted_likelihood_S3H[:, :, h])
            row_R, genotype_R3 = pairs.genotypes(self.usage_WNH[:, :, h], likelihood_S3, n_chosen, MISMATCH)
            genotype_R3 = genotype_R3 * self.likelihood_S3H[row_R, :, h]
            genotype_R3 /= genotype_R3.sum(axis=1, keepdims=True)
            mixed_R3 = (1 - weight) * self.genotype_S3H[row_R, :, h] + weight * genotype_R3
            self.genotype_S3H[row_R, :, h] = mixed_R3

    def _heterozygotes(self) -> tuple[np.ndarray, np.ndarray]:
        """Return P(only first chain has ALT) and P(only second has it), up to a factor, (S, H) each."""
        p, q = self._alleles()
        return p * (1 - q) * self.factor_S2H[:, 0], q * (1 - p) * self.factor_S2H[:, 1]

    def _alleles(self) -> tuple[np.ndarray, np.ndarray]:
        """Return P(ALT) of both chains, given the data at all other places, (S, H) each.

        At a site of low trust, P(ALT) is mixed with the allele's frequency.
        """
        p_SL = self.trust_S1 * self.probability_SL + (1 - self.trust_S1) * self.frequency_S[:, None]
        return p_SL[:, : self.half], p_SL[:, self.half :]

    def haplotype_probabilities(self) -> np.ndarray:
        """Return the calibrated P(ALT) of both haplotypes, float32 (S, 2, H), in the order of the chains."""
        pair = calibrated_pair(self.genotype_S3H, self.frequency_S, self.share_H, self.haploid_H)
        return order_by_chain(*pair, self.alt_on_second())

    def alt_on_second(self) -> np.ndarray:
        """Return where ALT of a heterozygote is more likely on the second chain, bool (S, H)."""
        first_SH, second_SH = self._heterozygotes()
        return second_SH > first_SH


def observed_shares(phred_SX3: np.ndarray) -> np.ndarray:
    """Return the share of sites at which each sample is observed, float (X,)."""
    return (phred_SX3 != phred_SX3[:, :, :1]).any(axis=2).mean(axis=0)


def scaled_likelihoods(phred: np.ndarray) -> np.ndarray:
    """Return likelihoods of 0, 1 and 2 copies of ALT, float32 (..., 3), scaled to a maximum of 1."""
    likelihood = _LIKELIHOOD[phred]
    return likelihood / likelihood.max(axis=-1, keepdims=True)


def order_by_chain(high_SH: np.ndarray, low_SH: np.ndarray, alt_on_second_SH: np.ndarray) -> np.ndarray:
    """Return P(ALT) of both chains, float32 (S, 2, H).

    The higher value goes to the chain that more likely has the ALT allele if the genotype is heterozygous.
    """
    return np.stack(
        [np.where(alt_on_second_SH, low_SH, high_SH), np.where(alt_on_second_SH, high_SH, low_SH)], axis=1
    )
