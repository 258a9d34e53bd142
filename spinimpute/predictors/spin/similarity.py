"""How alike haplotypes are: K-mer tokens, a learned confusion of K-mers, and a weight for each column.

A token is a distribution over the 2^K K-mers of a column: one of them for a haplotype; the shares of its
haplotypes for an inducing point, which starts from the product of mean alleles. The key of an inducing point
is log(token @ confusion). So a score, a sum over columns of weight <token, key>, is a log-likelihood that
allows for differences. It starts with the same error rate at each SNP. Where calls of a query are missing,
the likelihoods of all possible K-mers are summed (`matching`).

Haplotypes are also compared by alleles at untyped sites of their block, which are to be imputed. So the
carriers of a rare allele share inducing points, and the alleles that these points carry are pure. Queries
have no such alleles and are compared with inducing points by their tokens alone.

Axes: see `spinimpute.nn`; D columns of K places, V = 2^K K-mers, S typed places, C untyped sites: X = S + C
alleles of a haplotype, F = D V + C features of an inducing point.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from spinimpute.genotypes.kmers import kmer_distribution, kmer_numbers, kmer_sums

INITIAL_ERROR = 0.01  # of a SNP's allele, before training
MIN_PROBABILITY = 1e-9  # of a K-mer
ALLELE_ERROR = 0.01  # of an untyped site's allele
UNTYPED_WEIGHT, RARITY_EXPONENT = 1.0, 0.4  # of untyped sites in the competition, see `untyped_weights`


class Columns(NamedTuple):
    """Columns of K typed places."""

    cM_BD: Tensor  # mean genetic position, relative to the block's middle; 0 without a site
    log_maf_BD: Tensor  # mean log minor-allele frequency
    valid_BD: Tensor  # share of the places with a site
    valid_BS: Tensor  # whether a place has a site
    n_haplotypes: int  # of the panel


def initial_confusion(k: int) -> Tensor:
    """P(K-mer | K-mer) (V, V) with independent errors of its SNPs."""
    kmer_V = torch.arange(2**k)
    differing_VV = torch.zeros(2**k, 2**k)
    for bit in range(k):
        allele_V = (kmer_V >> bit) & 1
        differing_VV += allele_V[:, None] != allele_V[None]
    return (1 - INITIAL_ERROR) ** (k - differing_VV) * INITIAL_ERROR**differing_VV


class Confusion(nn.Module):
    """Log-likelihoods of K-mers: log(token @ P(K-mer | K-mer))."""

    def __init__(self, k: int) -> None:
        super().__init__()
        self.log_confusion = nn.Parameter(initial_confusion(k).log())

    def forward(self, token_BHDV: Tensor) -> Tensor:
        """Log-likelihood of each K-mer, given the token: (B, H, D, V)."""
        return (token_BHDV @ torch.softmax(self.log_confusion, dim=-1) + MIN_PROBABILITY).log()


def untyped_weights(frequency_BC: Tensor) -> Tensor:
    """Weights of log-likelihoods at untyped sites in the competition, w / (f (1 - f) + 0.001)^rarity.

    The rarer an allele, the more it matters that its carriers share a point. 0 where all alleles are the
    same.
    """
    variance_BC = frequency_BC * (1 - frequency_BC)
    return torch.where(variance_BC > 0, UNTYPED_WEIGHT * (variance_BC + 1e-3) ** -RARITY_EXPONENT, 0.0)


class Keys(NamedTuple):
    """What scores need of inducing points."""

    kmer_BDVH: Tensor  # weighted log-likelihoods of all K-mers
    odds_BCH: Tensor  # weighted log odds of ALT at untyped sites
    reference_B1H: Tensor  # weighted log-likelihoods of REF at all untyped sites


class HaplotypeSimilarity:
    """Scores haplotypes and inducing points of one block: a `Similarity`; see `untyped_weights`."""

    def __init__(self, confusion: Confusion, weight_BD: Tensor, k: int, untyped_weight_BC: Tensor) -> None:
        self.confusion, self.weight_BD, self.k = confusion, weight_BD, k
        self.untyped_weight_BC = untyped_weight_BC

    def start(self, mean_BHX: Tensor) -> Tensor:
        """Features (B, H, F) of points, from mean alleles without their combinations."""
        typed_BHS, untyped_BHC = self._split(mean_BHX)
        return torch.cat([kmer_distribution(typed_BHS, self.k).flatten(2), untyped_BHC], -1)

    def sums(self, r_BHN: Tensor, x_BNX: Tensor) -> Tensor:
        """Sums of tokens of all columns, then of alleles at untyped sites, weighted by r."""
        typed_BNS, untyped_BNC = self._split(x_BNX)
        token_BHDV = kmer_sums(r_BHN, kmer_numbers(typed_BNS, self.k), 2**self.k)
        return torch.cat([token_BHDV.flatten(2), r_BHN @ untyped_BNC.to(r_BHN.dtype)], -1)

    def keys(self, feature_BHF: Tensor) -> Keys:
        """Keys of points with these tokens and mean alleles at untyped sites."""
        n_untyped = self.untyped_weight_BC.shape[-1]
        token_BHF, untyped_BHC = feature_BHF.tensor_split([feature_BHF.shape[-1] - n_untyped], -1)
        token_BHDV = token_BHF.unflatten(-1, (-1, 2**self.k))
        weighted_BHDV = self.confusion(token_BHDV) * self.weight_BD[:, None, :, None]
        # nothing is learned from alleles at untyped sites, whose weight is fixed
        p_BHC = torch.lerp(untyped_BHC.detach(), untyped_BHC.new_tensor(0.5), 2 * ALLELE_ERROR)
        weight_B1C = self.untyped_weight_BC.unsqueeze(1)
        reference_BHC = weight_B1C * torch.log1p(-p_BHC)
        return Keys(
            weighted_BHDV.permute(0, 2, 3, 1).contiguous(),
            (weight_B1C * p_BHC.log() - reference_BHC).mT.contiguous(),
            reference_BHC.sum(-1).unsqueeze(1),
        )

    def scores(self, x_BNX: Tensor, keys: Keys) -> Tensor:
        """Scores (B, N, H) of haplotypes with the alleles x, 0 or 1."""
        typed_BNS, untyped_BNC = self._split(x_BNX)
        # a token has a single 1: summing rows is 15 times faster than a product with 2^K columns
        kmer_BND = kmer_numbers(typed_BNS, self.k)
        b, n, d = kmer_BND.shape
        first_B1D = torch.arange(b * d, device=x_BNX.device).view(b, 1, d) * keys.kmer_BDVH.shape[2]
        row_LD = (kmer_BND + first_B1D).flatten(0, 1)
        score_LH = F.embedding_bag(row_LD, keys.kmer_BDVH.flatten(0, 2), mode="sum")
        return score_LH.unflatten(0, (b, n)) + untyped_BNC @ keys.odds_BCH + keys.reference_B1H

    def _split(self, x_BLX: Tensor) -> tuple[Tensor, Tensor]:
        """Split alleles into those at typed places (B, L, S) and at untyped sites (B, L, C)."""
        n_typed = x_BLX.shape[-1] - self.untyped_weight_BC.shape[-1]
        return x_BLX[..., :n_typed], x_BLX[..., n_typed:]
