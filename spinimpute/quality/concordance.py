"""Counts of true and imputed genotypes as GLIMPSE2_concordance takes them, by allele frequency and by sample.

What differs from `metrics`: SNPs and indels are apart, and variants of other kinds are left out; a genotype
that is not imputed does not count; the imputed genotype is the likeliest by GP. As the columns are of diploid
genotypes, 0 and 1 of a sample with one allele count as homozygous.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from spinimpute.quality.metrics import CONSTANT_DEVIATION, DEFAULT_BINS, frequency_bins

SNP, INDEL, OTHER = 0, 1, -1
CALIBRATION_BINS = 100

# Places of counts and sums in the last axis of a tally
VALIDATED = slice(0, 3)  # genotypes known in the truth, with 0, 1 and 2 minor alleles
MATCHES = slice(3, 6)  # of these, those that are imputed, and right
MISMATCHES = slice(6, 9)  # imputed, and wrong
GENOTYPES, FREQUENCY = 9, 10  # imputed ones: their number, and the sum of minor allele frequencies
TRUE, TRUE_SQUARE = 11, 12  # and of minor alleles in the truth
BEST = slice(13, 16)  # of the likeliest genotype: sum, squares, products with the truth
DOSAGE = slice(16, 19)  # and of the dosage
FIELDS = 19


def kind_of(ref: str, alt: str) -> int:
    """SNP, INDEL or OTHER: what is left of two alleles without what both begin and end with.

    Parameters
    ----------
    ref, alt : str
        The alleles, in upper case.

    Returns
    -------
    int
        SNP if one letter is left of both, INDEL if none is left of one, else OTHER, such as of AC and GT: the
        rule of htslib.
    """
    if not (ref.isalpha() and alt.isalpha()):
        return OTHER
    start = _n_alike(ref, alt)
    ref, alt = ref[start:], alt[start:]
    end = _n_alike(ref[::-1], alt[::-1])
    shorter, longer = sorted((len(ref) - end, len(alt) - end))
    return INDEL if shorter == 0 else SNP if longer == 1 else OTHER


def _n_alike(one: str, other: str) -> int:
    """How many letters two texts have in common at their beginning."""
    return next(
        (i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )


@dataclass(frozen=True)
class MinorGenotypes:
    """A block of genotypes, turned to the panel's minor allele.

    Attributes
    ----------
    true : float (n_sites, n_samples)
        Minor alleles; NaN where unknown.
    dosage : float (n_sites, n_samples)
        Imputed minor alleles; NaN where there is none.
    probability : float (n_sites, n_samples, 3) or None
        Of 0, 1, 2 minor alleles; NaN where there is none, as the third with one allele.
    haploid : bool (n_sites, n_samples)
        Whether a genotype has one allele.
    """

    true: np.ndarray
    dosage: np.ndarray
    probability: np.ndarray | None
    haploid: np.ndarray

    def as_homozygous(self) -> MinorGenotypes:
        """The same with two like alleles in place of one."""
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

    def likeliest(self) -> np.ndarray:
        """float (n_sites, n_samples): by GP, 0 where two are likeliest; without GP the rounded dosage."""
        rounded = np.rint(self.dosage)
        if self.probability is None:
            return rounded
        highest = self.highest()
        best = self.probability.argmax(axis=2)
        best[(self.probability == highest[:, :, None]).sum(axis=2) > 1] = 0
        return np.where(np.isnan(highest), rounded, best)

    def highest(self) -> np.ndarray:
        """float (n_sites, n_samples): the probability of the likeliest genotype; NaN without GP."""
        if self.probability is None:
            return np.full(self.true.shape, np.nan, dtype=np.float32)
        return self.probability.max(axis=2)


class Concordance:
    """Tallies of SNPs and indels by bin of minor allele frequency, by sample, and by probability.

    Blocks are added with `add`. A tally has the places named above in its last axis.

    Parameters
    ----------
    n_samples : int
        Samples.
    bins : sequence of float
        Increasing edges of minor allele frequency. Sites outside all bins count nowhere.

    Attributes
    ----------
    by_bin : float64 (2, n_bins, FIELDS)
        SNPs and indels, by minor allele frequency.
    by_sample : float64 (2, n_samples, FIELDS)
        By sample.
    by_probability : int64 (2, CALIBRATION_BINS, 2, 3)
        By the probability of the likeliest genotype: right and wrong ones, with 0, 1, 2 true minor alleles.
    """

    def __init__(self, n_samples: int, bins: Sequence[float] = DEFAULT_BINS) -> None:
        self._bins = frequency_bins(bins)
        self.by_bin = np.zeros((2, len(self._bins), FIELDS))
        self.by_sample = np.zeros((2, n_samples, FIELDS))
        self.by_probability = np.zeros((2, CALIBRATION_BINS, 2, 3), dtype=np.int64)

    def add(self, genotypes: MinorGenotypes, minor_frequency: np.ndarray, kind: np.ndarray) -> None:
        """Count a block.

        Parameters
        ----------
        genotypes : MinorGenotypes
            Of sites that are imputed, each site once.
        minor_frequency : float (n_sites,)
            In the panel.
        kind : int (n_sites,)
            SNP, INDEL or OTHER of each site.
        """
        place = np.full(len(kind), -1)
        for number, frequencies in enumerate(self._bins):
            place[frequencies.holds(minor_frequency)] = number
        counted = np.flatnonzero((place >= 0) & (kind != OTHER))
        place, kind = place[counted], kind[counted]
        block = MinorGenotypes(
            genotypes.true[counted],
            genotypes.dosage[counted],
            None if genotypes.probability is None else genotypes.probability[counted],
            genotypes.haploid[counted],
        ).as_homozygous()
        best = block.likeliest()
        for field, values in enumerate(_fields(block, best, minor_frequency[counted])):
            np.add.at(self.by_bin[:, :, field], (kind, place), values.sum(axis=1))
            for one in (SNP, INDEL):
                self.by_sample[one, :, field] += values[kind == one].sum(axis=0)
        self._calibrate(block, best, kind)

    def _calibrate(self, block: MinorGenotypes, best: np.ndarray, kind: np.ndarray) -> None:
        highest = block.highest()
        chosen = ~(np.isnan(block.true) | np.isnan(block.dosage) | np.isnan(highest))
        true = block.true[chosen].astype(np.int64)
        # as GLIMPSE2 has it: the last bin is that of 1 alone
        place = (highest[chosen].astype(np.float32) * np.float32(CALIBRATION_BINS - 1)).astype(np.int64)
        place = np.minimum(place, CALIBRATION_BINS - 1)
        wrong = best[chosen] != true
        kinds = np.broadcast_to(kind[:, None], chosen.shape)[chosen]
        shape = self.by_probability.shape
        index = np.ravel_multi_index((kinds, place, wrong.astype(np.int64), true), shape)
        self.by_probability += np.bincount(index, minlength=self.by_probability.size).reshape(shape)


def _fields(block: MinorGenotypes, best: np.ndarray, minor_frequency: np.ndarray) -> Iterator[np.ndarray]:
    """The summands of each field, (n_sites, n_samples), in the order of their places."""
    known = ~np.isnan(block.true)
    imputed = known & ~np.isnan(block.dosage)
    true = np.where(known, block.true, 0).astype(np.float64)
    for count in range(3):
        yield known & (true == count)
    for right in (best == true, best != true):
        for count in range(3):
            yield imputed & right & (true == count)
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
    """Squared correlation of the truth with the likeliest genotype or the dosage.

    Parameters
    ----------
    tally : float64 (n, FIELDS)
        Of bins or samples.
    guess : slice
        BEST or DOSAGE.

    Returns
    -------
    float64 (n,)
        0 without a genotype, NaN where truth or guess is constant: as GLIMPSE2_concordance prints them.
    """
    n = np.maximum(tally[:, GENOTYPES], 1)
    true, true_square = tally[:, TRUE], tally[:, TRUE_SQUARE]
    first, square, product = tally[:, guess].T
    of_true, of_guess = true_square - true**2 / n, square - first**2 / n
    varies = np.minimum(of_true, of_guess) > n * CONSTANT_DEVIATION**2
    covered = product - true * first / n
    r2 = np.divide(covered**2, of_true * of_guess, out=np.full(len(n), np.nan), where=varies)
    return np.where(tally[:, GENOTYPES] == 0, 0.0, r2)
