"""The similarity of haplotypes and inducing points in SPIN.

The typed places of a block (its typed sites, padded to a fixed number) are cut into columns of K places. The
K alleles of a haplotype in a column are a *K-mer*, one of 2^K. A *token* is a probability distribution over
the K-mers of a column. The token of a haplotype has a single 1. The token of an inducing point has the shares
of its haplotypes; initially it is the product of their mean allele frequencies.

The *confusion* is a learned 2^K x 2^K table of P(observed K-mer | true K-mer). Initially it has equal,
independent errors at each SNP. The key of an inducing point is log(token @ confusion). The score of a
haplotype and a point is the sum over columns of weight * <token, key>: a weighted log-likelihood of the
haplotype that tolerates differences. For missing calls of a query see `matching`.

Panel haplotypes are also compared by their alleles at untyped sites of the block. Carriers of a rare allele
are thereby assigned to the same inducing points, so the mean allele of a point is close to 0 or 1. Queries
have no alleles at untyped sites; they are compared with inducing points by their tokens alone.

Axes: B blocks, N haplotypes, H inducing points, D columns of K places, V = 2^K K-mers, S typed places, C
untyped sites, X = S + C alleles of a haplotype, F = D V + C features of an inducing point.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from spinimpute.nn.carrying import multiply
from spinimpute.predictors.spin.kmers import kmer_distribution, kmer_numbers, kmer_sums
from spinimpute.predictors.spin.settings import (
    ALLELE_ERROR,
    MIN_KMER_PROBABILITY,
    RARITY_EXPONENT,
    UNTYPED_WEIGHT,
)

INITIAL_ERROR = 0.01  # error rate of a SNP in the initial confusion


class Columns(NamedTuple):
    """The columns of a block, each with K typed places. A place without a site is padding."""

    cM_BD: Tensor  # mean genetic position of the column's sites, relative to the block's middle; 0 if none
    log_maf_BD: Tensor  # mean log minor-allele frequency of the column's sites
    valid_BD: Tensor  # share of the column's places that have a site
    valid_BS: Tensor  # 1 if a place has a site, 0 for padding
    n_haplotypes: int  # number of panel haplotypes


def initial_confusion(k: int) -> Tensor:
    """Return the initial confusion (V, V): P(observed K-mer | true K-mer) with independent errors of SNPs."""
    kmer_V = torch.arange(2**k)
    differing_VV = torch.zeros(2**k, 2**k)
    for bit in range(k):
        allele_V = (kmer_V >> bit) & 1
        differing_VV += allele_V[:, None] != allele_V[None]
    return (1 - INITIAL_ERROR) ** (k - differing_VV) * INITIAL_ERROR**differing_VV


class Confusion(nn.Module):
    """Learned table of P(observed K-mer | true K-mer), see the module's header."""

    def __init__(self, k: int) -> None:
        super().__init__()
        self.log_confusion = nn.Parameter(initial_confusion(k).log())

    def forward(self, token_BHDV: Tensor) -> Tensor:
        """Return the key of each token, log(token @ confusion): log-likelihoods of K-mers, (B, H, D, V)."""
        return (token_BHDV @ torch.softmax(self.log_confusion, dim=-1) + MIN_KMER_PROBABILITY).log()


def untyped_weights(frequency_BC: Tensor) -> Tensor:
    """Return the weights of untyped sites in the comparison of panel haplotypes with inducing points.

    The weight is UNTYPED_WEIGHT / (f (1 - f) + 0.001)^RARITY_EXPONENT with the ALT frequency f, and 0 if f is
    0 or 1. Rare alleles get more weight, because it matters more that their carriers share a point.
    """
    variance_BC = frequency_BC * (1 - frequency_BC)
    return torch.where(variance_BC > 0, UNTYPED_WEIGHT * (variance_BC + 1e-3) ** -RARITY_EXPONENT, 0.0)


class Keys(NamedTuple):
    """The part of the scores that depends on the inducing points alone."""

    kmer_BDVH: Tensor  # log-likelihoods of all K-mers, times the weights of the columns
    odds_BCH: Tensor  # log odds of ALT at untyped sites, times the weights of the sites
    reference_B1H: Tensor  # weighted log-likelihood of a haplotype with REF at all untyped sites


class HaplotypeSimilarity:
    """Similarity of panel haplotypes and inducing points of a block; implements `nn.carrying.Similarity`."""

    def __init__(self, confusion: Confusion, weight_BD: Tensor, k: int, untyped_weight_BC: Tensor) -> None:
        self.confusion, self.weight_BD, self.k = confusion, weight_BD, k
        self.untyped_weight_BC = untyped_weight_BC

    def start(self, mean_BHX: Tensor) -> Tensor:
        """Return the features (B, H, F) of initial points that have these mean alleles.

        The K-mers of a token get the products of the alleles' probabilities.
        """
        typed_BHS, untyped_BHC = self._split(mean_BHX)
        return torch.cat([kmer_distribution(typed_BHS, self.k).flatten(2), untyped_BHC], -1)

    def sums(self, r_BHN: Tensor, x_BNX: Tensor) -> Tensor:
        """Return sums over haplotypes, weighted by r: of tokens, then of alleles at untyped sites."""
        typed_BNS, untyped_BNC = self._split(x_BNX)
        token_BHDV = kmer_sums(r_BHN, kmer_numbers(typed_BNS, self.k), 2**self.k)
        return torch.cat([token_BHDV.flatten(2), r_BHN @ untyped_BNC.to(r_BHN.dtype)], -1)

    def keys(self, feature_BHF: Tensor) -> Keys:
        """Return the keys of points. Their features are tokens, then mean alleles at untyped sites."""
        n_untyped = self.untyped_weight_BC.shape[-1]
        token_BHF, untyped_BHC = feature_BHF.tensor_split([feature_BHF.shape[-1] - n_untyped], -1)
        token_BHDV = token_BHF.unflatten(-1, (-1, 2**self.k))
        weighted_BHDV = self.confusion(token_BHDV) * self.weight_BD[:, None, :, None]
        # `detach`: no gradient, because untyped sites have fixed weights
        p_BHC = torch.lerp(untyped_BHC.detach(), untyped_BHC.new_full((), 0.5), 2 * ALLELE_ERROR)
        weight_B1C = self.untyped_weight_BC.unsqueeze(1)
        reference_BHC = weight_B1C * torch.log1p(-p_BHC)
        return Keys(
            weighted_BHDV.permute(0, 2, 3, 1).contiguous(),
            (weight_B1C * p_BHC.log() - reference_BHC).mT.contiguous(),
            reference_BHC.sum(-1).unsqueeze(1),
        )

    def scores(self, x_BNX: Tensor, keys: Keys) -> Tensor:
        """Return the scores (B, N, H) of haplotypes with the alleles x, 0 or 1."""
        typed_BNS, untyped_BNC = self._split(x_BNX)
        # A token has a single 1, so <token, key> is one entry of the key. Summing these entries is 15 times
        # faster than a matrix product.
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


def haplotype_features(kmer_BND: Tensor, untyped_BNC: Tensor, n_kmers: int, dtype: torch.dtype) -> Tensor:
    """Return features (B, N, F) of haplotypes: their tokens and their alleles at untyped sites, 0 or 1."""
    token_BNDV = kmer_BND.unsqueeze(-1) == torch.arange(n_kmers, device=kmer_BND.device)
    return torch.cat([token_BNDV.flatten(2).to(dtype), untyped_BNC.to(dtype)], -1)


class DenseSimilarity(HaplotypeSimilarity):
    """`HaplotypeSimilarity`, computed by matrix products, which is faster on a GPU.

    x_BNF are `haplotype_features`; see `nn.carrying.multiply` for their type.
    """

    def sums(self, r_BHN: Tensor, x_BNF: Tensor) -> Tensor:
        """Return sums of the features, weighted by r."""
        return multiply(r_BHN, x_BNF)

    def scores(self, x_BNF: Tensor, keys: Keys) -> Tensor:
        """Return the scores (B, N, H) of haplotypes with these features."""
        key_BFH = torch.cat([keys.kmer_BDVH.flatten(1, 2), keys.odds_BCH], 1)
        return multiply(x_BNF, key_BFH).add_(keys.reference_B1H)
