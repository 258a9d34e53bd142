"""Calibration of the genotype probabilities that chains compute for sequenced samples.

Observations at neighbouring sites are correlated, but the chains treat them as independent. The chains are
therefore overconfident, and more so at higher coverage. A temperature corrects this: each genotype
probability is raised to a power below 1. The ranking of a site's three genotypes does not change.

Axes: S sites, H samples, 2 haplotypes of a sample; 3: genotype, as copies of ALT (0, 1 or 2).
"""

from __future__ import annotations

import numpy as np

# These values were chosen on samples held out of the real panels, see benchmarks/tried.md.
FREQUENCIES = (0.0005, 0.01, 0.05, 0.5)  # upper bounds of classes of minor allele frequency
# 1 - 1 / temperature in each class, for samples that are observed at all sites
OVERCONFIDENCE = (0.15, 0.05, 0.1, 0.25)


def haplotype_pair(genotype_S3H: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return two haplotypes' P(ALT), the larger one first, that give these genotype probabilities.

    Their sum is the mean number of copies m of ALT, and their product is P(2 copies). If no two numbers have
    this sum and product, both are m / 2.
    """
    _, one_copy_SH, two_copies_SH = genotype_S3H.transpose(1, 0, 2)
    mean_SH = one_copy_SH / 2 + two_copies_SH
    half_difference_SH = np.sqrt((mean_SH**2 - two_copies_SH).clip(0))
    return (mean_SH + half_difference_SH).clip(0, 1), (mean_SH - half_difference_SH).clip(0, 1)


def calibrated_pair(
    genotype_S3H: np.ndarray, frequency_S: np.ndarray, share_H: np.ndarray, haploid_H: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Calibrate genotype probabilities and return them as a `haplotype_pair`.

    The most likely genotype does not change. frequency_S: ALT frequency in the panel. share_H: share of sites
    at which a sample is observed. haploid_H: bool; for haploid samples both numbers are the uncalibrated
    P(ALT), because no calibration of single chains is known.
    """
    pair_2SH = np.stack(haplotype_pair(genotype_S3H))
    uncalibrated_S3H = _genotypes(pair_2SH)
    class_S = np.searchsorted(FREQUENCIES[:-1], np.minimum(frequency_S, 1 - frequency_S))
    exponent_SH = 1 - np.array(OVERCONFIDENCE, np.float32)[class_S, None] * share_H.astype(np.float32)
    calibrated_S3H = uncalibrated_S3H ** exponent_SH[:, None]
    calibrated_S3H /= calibrated_S3H.sum(axis=1, keepdims=True)
    calibrated_2SH = np.stack(haplotype_pair(calibrated_S3H))
    # Where no two numbers have the required product, another genotype may become the most likely. This
    # happens at one genotype in 100,000, which then stays uncalibrated.
    kept_SH = _genotypes(calibrated_2SH).argmax(axis=1) == uncalibrated_S3H.argmax(axis=1)
    pair_2SH = np.where(kept_SH, calibrated_2SH, pair_2SH)
    mean_SH = genotype_S3H[:, 1] / 2 + genotype_S3H[:, 2]
    # The larger number marks the chain with the ALT of a heterozygote. Equal numbers are made to differ in
    # the last digit.
    pair_2SH[0] = np.maximum(pair_2SH[0], np.nextafter(pair_2SH[1], np.float32(1)) * (mean_SH > 0))
    first_SH, second_SH = np.where(haploid_H, mean_SH, pair_2SH)
    return first_SH, second_SH


def _genotypes(pair_2SH: np.ndarray) -> np.ndarray:
    """Return P(0, 1 and 2 copies of ALT), (S, 3, H), from the P(ALT) of two independent haplotypes."""
    p_SH, q_SH = pair_2SH
    one_copy_SH = p_SH * (1 - q_SH) + q_SH * (1 - p_SH)
    return np.stack([(1 - p_SH) * (1 - q_SH), one_copy_SH, p_SH * q_SH], axis=1)
