"""K-mers of alleles as torch tensors; see `spinimpute.genotypes.kmers`.

Axes: B blocks, N haplotypes, X haplotypes or inducing points, S typed sites of a block, D columns, K sites of
a column, V = 2^K tokens; F = D V rows, one for each token of each column; L = N D K-mers of all haplotypes.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


def split_columns(x_BXS: Tensor, k: int) -> Tensor:
    """Cut the typed sites into columns of K, (..., D, K), padded with zeros at both ends."""
    missing = -x_BXS.shape[-1] % k
    return F.pad(x_BXS, (missing // 2, missing - missing // 2)).unflatten(-1, (-1, k))


def kmer_distribution(allele_BXS: Tensor, k: int) -> Tensor:
    """Return the probability of each token, (B, X, D, V), from P(ALT) at each site, (B, X, S).

    The first SNP of a column is the highest bit of a token's number.
    """
    p_BXDK = split_columns(allele_BXS, k)
    token = p_BXDK.new_ones(*p_BXDK.shape[:-1], 1)
    for i in range(k):
        alt = p_BXDK[..., i : i + 1]
        token = torch.stack([token * (1 - alt), token * alt], dim=-1).flatten(-2)
    return token


def kmer_numbers(allele_BNS: Tensor, k: int) -> Tensor:
    """Return the K-mers (token numbers) of observed alleles, int64 (B, N, D)."""
    power_K = 2 ** torch.arange(k - 1, -1, -1, device=allele_BNS.device)
    return (split_columns(allele_BNS.float(), k) @ power_K.float()).long()


def kmer_sums(weight_BXN: Tensor, kmer_BND: Tensor, n_kmers: int) -> Tensor:
    """Return, for each token of each column, the sum of its haplotypes' weights, (B, X, D, V).

    This equals a product with one-hot tokens, but does not multiply their zeros.
    """
    d = kmer_BND.shape[-1]
    row_BND = kmer_BND + n_kmers * torch.arange(d, device=kmer_BND.device)
    sums = [
        _RowSums.apply(weight_XN.T, row_ND, n_kmers * d).T
        for weight_XN, row_ND in zip(weight_BXN, row_BND, strict=True)
    ]
    return torch.stack(sums).unflatten(-1, (d, n_kmers))


class _RowSums(torch.autograd.Function):
    """Sum, for each row of a table, of the weights (N, X) of the haplotypes that select this row."""

    @staticmethod
    def forward(ctx: Any, weight_NX: Tensor, row_ND: Tensor, n_rows: int) -> Tensor:
        ctx.save_for_backward(row_ND)
        n, d = row_ND.shape
        column_ND = torch.arange(n, device=row_ND.device)[:, None].expand(n, d)
        index_2L = torch.stack([row_ND.flatten(), column_ND.flatten()])
        one_L = weight_NX.new_ones(n * d)
        token_FN = torch.sparse_coo_tensor(index_2L, one_L, (n_rows, n), check_invariants=False)
        return torch.sparse.mm(token_FN, weight_NX.contiguous())

    @staticmethod
    def backward(ctx: Any, *gradient: Tensor) -> tuple[Tensor, None, None]:
        (row_ND,) = ctx.saved_tensors
        return F.embedding_bag(row_ND, gradient[0].contiguous(), mode="sum"), None, None
