"""Counts of matching and mismatching genotypes, defined as in the program GLIMPSE2_concordance.

`evaluate` fills these counts, and `evaluation.concordance_files` writes them in GLIMPSE2's file formats.

The rules are those of GLIMPSE2 and differ from `quality.metrics`:

- SNPs and indels are counted separately. Other variants are skipped.
- A genotype that was not imputed is skipped.
- The imputed genotype is the one with the highest probability (GP), not the rounded dosage.
- A haploid genotype counts as the homozygous one, because GLIMPSE2's columns are for diploid genotypes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from spinimpute.quality.metrics import CONSTANT_DEVIATION, DEFAULT_BINS, frequency_bins

SNP, INDEL, OTHER = 0, 1, -1
CALIBRATION_BINS = 100

# A tally is a row of 19 counts and sums over genotypes. These are their indices in the row. All sums are over
# the imputed genotypes with a known truth, counted in copies of the minor allele.
VALIDATED = slice(0, 3)  # number of known true genotypes with 0, 1 and 2 minor alleles
MATCHES = slice(3, 6)  # number of correctly imputed genotypes with 0, 1 and 2 true minor alleles
MISMATCHES = slice(6, 9)  # number of wrongly imputed genotypes with 0, 1 and 2 true minor alleles
GENOTYPES, FREQUENCY = 9, 10  # number of imputed genotypes, and sum of their sites' minor allele frequencies
TRUE, TRUE_SQUARE = 11, 12  # sum of true copies, sum of their squares
BEST = slice(13, 16)  # most likely genotypes: sum, sum of squares, sum of products with the truth
DOSAGE = slice(16, 19)  # dosages: sum, sum of squares, sum of products with the truth
FIELDS = 19


def variant_kind(ref: str, alt: str) -> int:
    """Return SNP, INDEL or OTHER for two alleles in upper case, by the rule of htslib.

    First, common bases at both ends are removed. In a SNP, one base is left in each allele. In an indel, no
    base is left in one of the alleles.
    """
    if not (ref.isalpha() and alt.isalpha()):
        return OTHER
    start = _n_common(ref, alt)
    ref, alt = ref[start:], alt[start:]
    end = _n_common(ref[::-1], alt[::-1])
    shorter, longer = sorted((len(ref) - end, len(alt) - end))
    return INDEL if shorter == 0 else SNP if longer == 1 else OTHER


def _n_common(one: str, other: str) -> int:
    """Return the length of the common prefix of two alleles."""
    pairs = zip(one, other, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


@dataclass(frozen=True)
class MinorGenotypes:
    """True and imputed genotypes of some sites, counted in copies of the panel's minor allele."""

    true: np.ndarray  # float (n_sites, n_samples): true copies; NaN where unknown
    dosage: np.ndarray  # float (n_sites, n_samples): imputed copies; NaN where not imputed
    # float (n_sites, n_samples, 3) or None: probabilities of 0, 1 and 2 copies; NaN where not imputed. For a
    # haploid sample, the probability of 2 copies is NaN.
    probability: np.ndarray | None
    haploid: np.ndarray  # bool (n_sites, n_samples): whether the genotype has a single allele

    def as_homozygous(self) -> MinorGenotypes:
        """Return a copy in which haploid genotypes are homozygous: one copy becomes two."""
        if not self.haploid.any():
            return self
        factor = np.where(self.haploid, 2, 1).astype(np.float32)
        probability = self.probability
        if probability is not None:
            probability = probability.copy()
            probability[self.haploid, 2] = probability[self.haploid, 1]
            probability[self.haploid, 1] = 0
        return MinorGenotypes(
            self.true * factor, self.dosage * factor, probability, np.zeros_like(self.haploid)
        )

    def most_likely(self) -> np.ndarray:
        """Return the number of copies with the highest probability, float (n_sites, n_samples).

        It is 0 if two numbers share the highest probability. Without probabilities it is the rounded dosage.
        """
        rounded = np.rint(self.dosage)
        if self.probability is None:
            return rounded
        highest = self.highest()
        best = self.probability.argmax(axis=2)
        best[(self.probability == highest[:, :, None]).sum(axis=2) > 1] = 0
        return np.where(np.isnan(highest), rounded, best)

    def highest(self) -> np.ndarray:
        """Return the probability of the most likely genotype, float (n_sites, n_samples); NaN without GP."""
        if self.probability is None:
            return np.full(self.true.shape, np.nan, dtype=np.float32)
        return self.probability.max(axis=2)


class Concordance:
    """Tallies of SNPs and indels by bin of minor allele frequency, by sample, and by probability.

    Only sites whose minor allele frequency is in a bin are counted. The first index of each table is SNP or
    INDEL.
    """

    def __init__(self, n_samples: int, bins: Sequence[float] = DEFAULT_BINS) -> None:
        self._bins = frequency_bins(bins)
        self.by_bin = np.zeros((2, len(self._bins), FIELDS))
        self.by_sample = np.zeros((2, n_samples, FIELDS))
        # number of genotypes; axes: SNP or INDEL, bin of the most likely genotype's probability, right or
        # wrong, and 0, 1 or 2 true minor alleles
        self.by_probability = np.zeros((2, CALIBRATION_BINS, 2, 3), dtype=np.int64)

    def add(self, genotypes: MinorGenotypes, minor_frequency: np.ndarray, kind: np.ndarray) -> None:
        """Add the genotypes of imputed sites. `minor_frequency` and `kind` have one value for each site.

        Each site must be added only once.
        """
        bin_index = np.full(len(kind), -1)
        for i, frequencies in enumerate(self._bins):
            bin_index[frequencies.contains(minor_frequency)] = i
        counted = np.flatnonzero((bin_index >= 0) & (kind != OTHER))
        bin_index, kind = bin_index[counted], kind[counted]
        block = MinorGenotypes(
            genotypes.true[counted],
            genotypes.dosage[counted],
            None if genotypes.probability is None else genotypes.probability[counted],
            genotypes.haploid[counted],
        ).as_homozygous()
        best = block.most_likely()
        for field, values in enumerate(_tally_columns(block, best, minor_frequency[counted])):
            np.add.at(self.by_bin[:, :, field], (kind, bin_index), values.sum(axis=1))
            for code in (SNP, INDEL):
                self.by_sample[code, :, field] += values[kind == code].sum(axis=0)
        self._calibrate(block, best, kind)

    def _calibrate(self, block: MinorGenotypes, best: np.ndarray, kind: np.ndarray) -> None:
        highest = block.highest()
        chosen = ~(np.isnan(block.true) | np.isnan(block.dosage) | np.isnan(highest))
        true = block.true[chosen].astype(np.int64)
        # as in GLIMPSE2, the last bin contains probability 1 only
        bin_index = (highest[chosen].astype(np.float32) * np.float32(CALIBRATION_BINS - 1)).astype(np.int64)
        bin_index = np.minimum(bin_index, CALIBRATION_BINS - 1)
        wrong = best[chosen] != true
        kinds = np.broadcast_to(kind[:, None], chosen.shape)[chosen]
        shape = self.by_probability.shape
        index = np.ravel_multi_index((kinds, bin_index, wrong.astype(np.int64), true), shape)
        self.by_probability += np.bincount(index, minlength=self.by_probability.size).reshape(shape)


def _tally_columns(
    block: MinorGenotypes, best: np.ndarray, minor_frequency: np.ndarray
) -> Iterator[np.ndarray]:
    """Yield, for each of the 19 columns of a tally, the term of each genotype (n_sites, n_samples)."""
    known = ~np.isnan(block.true)
    imputed = known & ~np.isnan(block.dosage)
    true = np.where(known, block.true, 0).astype(np.float64)
    for count in range(3):
        yield known & (true == count)
    for is_match in (best == true, best != true):
        for count in range(3):
            yield imputed & is_match & (true == count)
    yield imputed
    yield imputed * minor_frequency[:, None]
    true = np.where(imputed, true, 0)
    yield true
    yield true**2
    for guess in (best, block.dosage):
        values = np.where(imputed, guess, 0).astype(np.float64)
        yield values
        yield values**2
        yield values * true


def tally_r2(tally: np.ndarray, guess: slice) -> np.ndarray:
    """Return the r² of true genotypes and `guess` (BEST or DOSAGE) for each tally, float64 (n_tallies,).

    As in GLIMPSE2_concordance, r² is 0 without genotypes, and NaN if the truth or the guess is constant.
    """
    n = np.maximum(tally[:, GENOTYPES], 1)
    true, true_square = tally[:, TRUE], tally[:, TRUE_SQUARE]
    first, square, product = tally[:, guess].T
    true_variance, guess_variance = true_square - true**2 / n, square - first**2 / n
    varies = np.minimum(true_variance, guess_variance) > n * CONSTANT_DEVIATION**2
    covariance = product - true * first / n
    r2 = np.divide(covariance**2, true_variance * guess_variance, out=np.full(len(n), np.nan), where=varies)
    return np.where(tally[:, GENOTYPES] == 0, 0.0, r2)
