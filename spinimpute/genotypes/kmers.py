"""K-mers: K neighbouring SNPs of a haplotype as one token, of 2^K; known, or a distribution over them.

Axes: B blocks, N haplotypes, X haplotypes or inducing points, S places, D columns of K places, V = 2^K.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def by_column(x_BXS: Tensor, k: int) -> Tensor:
    """Places cut into columns of K, (..., D, K); zeros fill both ends up."""
    missing = -x_BXS.shape[-1] % k
    return F.pad(x_BXS, (missing // 2, missing - missing // 2)).unflatten(-1, (-1, k))


def kmer_distribution(allele_BXS: Tensor, k: int) -> Tensor:
    """Tokens (B, X, D, V): products of the alleles' probabilities; the first SNP is the highest bit."""
    p_BXDK = by_column(allele_BXS, k)
    token = p_BXDK.new_ones(*p_BXDK.shape[:-1], 1)
    for i in range(k):
        alt = p_BXDK[..., i : i + 1]
        token = torch.stack([token * (1 - alt), token * alt], dim=-1).flatten(-2)
    return token


def kmer_numbers(allele_BNS: Tensor, k: int) -> Tensor:
    """int64 (B, N, D): K-mers of known alleles."""
    power_K = 2 ** torch.arange(k - 1, -1, -1, device=allele_BNS.device)
    return (by_column(allele_BNS.float(), k) @ power_K.float()).long()
