"""Simulated likelihoods of sequenced samples, and the outputs of their imputation."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cyvcf2
import numpy as np


def phred_of_reads(rng: np.random.Generator, genotype_SX: np.ndarray, depth: float) -> np.ndarray:
    """Likelihoods of reads with 1% errors, int (S, X, 3)."""
    n_SX = rng.poisson(depth, genotype_SX.shape)
    p_3 = np.array([0.01, 0.5, 0.99])
    alt_SX = rng.binomial(n_SX, p_3[genotype_SX])
    phred_SX3 = -10 * (alt_SX[..., None] * np.log10(p_3) + (n_SX - alt_SX)[..., None] * np.log10(1 - p_3))
    return (phred_SX3 - phred_SX3.min(axis=2, keepdims=True)).round().clip(0, 255).astype(int)


@dataclass(frozen=True)
class Imputed:
    """An output: numbers are (sites, samples), GP and HDS and GT with an axis more."""

    position: list[int]
    samples: list[str]
    GT: np.ndarray
    DS: np.ndarray
    HDS: np.ndarray
    GP: np.ndarray
    calls: list[list[list[Any]]]


def read(path: Path) -> Imputed:
    vcf = cyvcf2.VCF(str(path))
    samples = list(vcf.samples)
    rows = [
        (v.POS, v.genotype.array()[:, :2], v.format("DS")[:, 0], v.format("HDS"), v.format("GP"), v.genotypes)
        for v in vcf
    ]
    vcf.close()
    position, *numbers, calls = (list(column) for column in zip(*rows, strict=True))
    return Imputed(position, samples, *map(np.array, numbers), calls)


def without_header(path: Path) -> list[str]:
    return [line for line in path.read_text().splitlines() if not line.startswith("##")]


def correlation(dosage_SX: np.ndarray, truth_SX: np.ndarray, frequency_S: np.ndarray) -> float:
    """Of what is beyond the panel's frequency."""
    base_S1 = 2 * frequency_S[:, None]
    return float(np.corrcoef((dosage_SX - base_S1).ravel(), (truth_SX - base_S1).ravel())[0, 1])
