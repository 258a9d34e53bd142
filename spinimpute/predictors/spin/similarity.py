"""How alike haplotypes are: K-mer tokens, a learned confusion of K-mers, and a weight for each column.

A token is a distribution over the 2^K K-mers of a column: one of them for a haplotype, the product of mean
alleles for an inducing point. The key of an inducing point is log(token @ confusion), so that a score, a sum
over columns of weight <token, key>, is a log-likelihood that allows for differences. It starts with the same
error rate at each SNP. Where calls of a query are missing, the likelihoods of all K-mers that it may have are
summed (`matching`).

Axes: see `spinimpute.nn`; S typed places, D columns of K places, V = 2^K K-mers.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from spinimpute.genotypes.kmers import kmer_distribution, kmer_numbers

START_ERROR = 0.01  # of a SNP's allele, before training
LEAST_PROBABILITY = 1e-9  # of a K-mer


class Columns(NamedTuple):
    """Columns of K typed places.

    Attributes
    ----------
    cM_BD : Tensor
        Mean genetic position, relative to the block's middle; 0 without a site.
    log_maf_BD : Tensor
        Mean log minor-allele frequency.
    valid_BD : Tensor
        Share of the places that hold a site.
    valid_BS : Tensor
        Which places do.
    n_haplotypes : int
        Of the panel.
    """

    cM_BD: Tensor
    log_maf_BD: Tensor
    valid_BD: Tensor
    valid_BS: Tensor
    n_haplotypes: int


def start_confusion(k: int) -> Tensor:
    """P(K-mer | K-mer) (V, V) with independent errors of its SNPs."""
    kmer_V = torch.arange(2**k)
    differing_VV = torch.zeros(2**k, 2**k)
    for bit in range(k):
        allele_V = (kmer_V >> bit) & 1
        differing_VV += allele_V[:, None] != allele_V[None]
    return (1 - START_ERROR) ** (k - differing_VV) * START_ERROR**differing_VV


class Confusion(nn.Module):
    """Log-likelihoods of K-mers: log(token @ P(K-mer | K-mer)).

    Parameters
    ----------
    k : int
        SNPs of a K-mer.
    """

    def __init__(self, k: int) -> None:
        super().__init__()
        self.log_confusion = nn.Parameter(start_confusion(k).log())

    def forward(self, token_BHDV: Tensor) -> Tensor:
        """Of each K-mer, given the token: (B, H, D, V)."""
        return (token_BHDV @ torch.softmax(self.log_confusion, dim=-1) + LEAST_PROBABILITY).log()


class KmerSimilarity:
    """Scores haplotypes and inducing points of one block: a `Similarity`.

    Parameters
    ----------
    confusion : Confusion
        Of K-mers.
    weight_BD : Tensor
        Of the columns.
    k : int
        SNPs of a K-mer.
    """

    def __init__(self, confusion: Confusion, weight_BD: Tensor, k: int) -> None:
        self.confusion, self.weight_BD, self.k = confusion, weight_BD, k

    def keys(self, feature_BHX: Tensor) -> Tensor:
        """Weighted log-likelihoods of all K-mers, (B, D, V, H), of points with these mean alleles."""
        weighted_BHDV = (
            self.confusion(kmer_distribution(feature_BHX, self.k)) * self.weight_BD[:, None, :, None]
        )
        return weighted_BHDV.permute(0, 2, 3, 1).contiguous()

    def scores(self, x_BNX: Tensor, keys: Tensor) -> Tensor:
        """As of `Similarity`, of known alleles x, 0 or 1."""
        # a token has a single 1: rows are added up in place of a product with 2^K columns, 15 times faster
        kmer_BND = kmer_numbers(x_BNX, self.k)
        b, n, d = kmer_BND.shape
        first_B1D = torch.arange(b * d, device=x_BNX.device).view(b, 1, d) * keys.shape[2]
        row_LD = (kmer_BND + first_B1D).flatten(0, 1)
        return F.embedding_bag(row_LD, keys.flatten(0, 2), mode="sum").unflatten(0, (b, n))
