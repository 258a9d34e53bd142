"""Genotype probabilities that are as often right as they say.

Neighbouring sites tell two chains much the same, and each counts in full: the more is known of a sample, the
more certain the chains are beyond what they know. A temperature takes that back. It leaves the order of the
three genotypes of a site as it is.

Axes: S sites, H samples; 3: copies of ALT.
"""

from __future__ import annotations

import numpy as np

# Chosen on people taken out of the real panels, see benchmarks/tried.md.
FREQUENCIES = (0.0005, 0.01, 0.05, 0.5)
# Of alleles up to each of these: 1 - 1 / temperature of a sample of whom something is known at all sites.
OVERCONFIDENCE = (0.15, 0.05, 0.1, 0.25)


def pair_of(genotype_S3H: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Two probabilities of ALT by which genotypes are as likely.

    Parameters
    ----------
    genotype_S3H : float (S, 3, H)
        P(0, 1 and 2 copies of ALT).

    Returns
    -------
    float (S, H), float (S, H)
        The larger one and the smaller one, with this mean number of copies and, where there are such numbers,
        with P(2 copies) as their product; else both are half of that mean.
    """
    _, one_SH, two_SH = genotype_S3H.transpose(1, 0, 2)
    mean_SH = one_SH / 2 + two_SH
    apart_SH = np.sqrt((mean_SH**2 - two_SH).clip(0))
    return (mean_SH + apart_SH).clip(0, 1), (mean_SH - apart_SH).clip(0, 1)


def calibrated_pair(
    genotype_S3H: np.ndarray, frequency_S: np.ndarray, share_H: np.ndarray, haploid_H: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Two probabilities of ALT of each sample, as certain as they are right.

    Parameters
    ----------
    genotype_S3H : float32 (S, 3, H)
        P(0, 1 and 2 copies of ALT) as the chains have it.
    frequency_S : float (S,)
        Of ALT in the panel.
    share_H : float (H,)
        The share of the sites at which something is known of a sample.
    haploid_H : bool (H,)
        Samples with one copy.

    Returns
    -------
    float32 (S, H), float32 (S, H)
        As of `pair_of`, the first one never the smaller; the likeliest genotype stays the likeliest. Of a
        haploid sample both are the same, and as they were: it is not known how right single chains are.
    """
    pair_2SH = np.stack(pair_of(genotype_S3H))
    as_written_S3H = _genotypes(pair_2SH)
    class_S = np.searchsorted(FREQUENCIES[:-1], np.minimum(frequency_S, 1 - frequency_S))
    exponent_SH = 1 - np.array(OVERCONFIDENCE, np.float32)[class_S, None] * share_H.astype(np.float32)
    softer_S3H = as_written_S3H ** exponent_SH[:, None]
    softer_S3H /= softer_S3H.sum(axis=1, keepdims=True)
    softer_2SH = np.stack(pair_of(softer_S3H))
    # where no two numbers have this product another genotype may become the likeliest: one in 100,000
    kept_SH = _genotypes(softer_2SH).argmax(axis=1) == as_written_S3H.argmax(axis=1)
    pair_2SH = np.where(kept_SH, softer_2SH, pair_2SH)
    mean_SH = genotype_S3H[:, 1] / 2 + genotype_S3H[:, 2]
    # the larger number is that of the ALT of a heterozygote: larger by the last digit where both are the same
    pair_2SH[0] = np.maximum(pair_2SH[0], np.nextafter(pair_2SH[1], np.float32(1)) * (mean_SH > 0))
    first_SH, second_SH = np.where(haploid_H, mean_SH, pair_2SH)
    return first_SH, second_SH


def _genotypes(pair_2SH: np.ndarray) -> np.ndarray:
    """P(0, 1 and 2 copies), (S, 3, H)."""
    p_SH, q_SH = pair_2SH
    one_SH = p_SH * (1 - q_SH) + q_SH * (1 - p_SH)
    return np.stack([(1 - p_SH) * (1 - q_SH), one_SH, p_SH * q_SH], axis=1)
