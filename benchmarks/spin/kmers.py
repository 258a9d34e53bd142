"""K-mers: K consecutive SNPs of one haplotype as one of 2^K tokens, and back to allele probabilities."""

from typing import overload

import numpy as np
import torch
from torch import Tensor


@overload
def kmer_tokens(alleles: np.ndarray, k: int = 5) -> tuple[np.ndarray, np.ndarray]: ...
@overload
def kmer_tokens(alleles: Tensor, k: int = 5) -> tuple[Tensor, Tensor]: ...
def kmer_tokens(alleles: np.ndarray | Tensor, k: int = 5) -> tuple[np.ndarray | Tensor, np.ndarray | Tensor]:
    """Return the tokens of alleles along the last axis, which are neighbouring SNPs.

    The first SNP of a K-mer is its most significant bit. The last K-mer is padded with 0.

    Parameters
    ----------
    alleles : integers (..., n_snps)
        0, 1 or -1 (missing), an array or a tensor; the results are of the same kind.
    k : int
        Number of SNPs of a K-mer.

    Returns
    -------
    tokens : int64 (..., ceil(n_snps / k))
        A K-mer with a missing allele is the masked token, 2**k.
    valid : bool (ceil(n_snps / k), k)
        Which SNPs of the tokens exist.
    """
    if not isinstance(alleles, Tensor):
        tokens, valid = kmer_tokens(torch.from_numpy(np.ascontiguousarray(alleles)), k)
        return tokens.numpy(), valid.numpy()
    n_snps = alleles.shape[-1]
    n_tokens = -(-n_snps // k)
    padded = torch.nn.functional.pad(alleles.long(), (0, n_tokens * k - n_snps))
    grouped = padded.reshape(*alleles.shape[:-1], n_tokens, k)
    weights = 2 ** torch.arange(k - 1, -1, -1, device=alleles.device)
    masked = (grouped < 0).any(dim=-1)
    tokens = (grouped * weights).sum(dim=-1).masked_fill(masked, 2**k)
    valid = (torch.arange(n_tokens * k, device=alleles.device) < n_snps).reshape(n_tokens, k)
    return tokens, valid


def kmer_allele_probabilities(logits: Tensor, n_snps: int) -> Tensor:
    """P(ALT) of each SNP from logits over K-mers, by summing over the K-mers that carry the ALT allele.

    In the last K-mer, the K-mers with a 1 where no SNP exists cannot occur and have probability 0.

    Parameters
    ----------
    logits : floats (..., n_tokens, 2**k)
        With n_tokens = ceil(n_snps / k).
    n_snps : int
        The number of SNPs.

    Returns
    -------
    floats (..., n_snps)
        Of the same type.

    Raises
    ------
    ValueError
        The shape of the logits fits no K, or not n_snps.
    """
    n_tokens, n_kmers = logits.shape[-2:]
    k = n_kmers.bit_length() - 1
    if n_kmers != 2**k or k < 1 or n_tokens != -(-n_snps // k):
        raise ValueError(
            "logits must have shape (..., ceil(n_snps / k), 2**k), however: "
            f"logits.shape={tuple(logits.shape)}, n_snps={n_snps}"
        )
    kmers = torch.arange(n_kmers, device=logits.device)
    shifts = torch.arange(k - 1, -1, -1, device=logits.device)
    bits = (kmers[:, None] >> shifts) & 1  # (2**k, k)
    n_padded = n_tokens * k - n_snps
    if n_padded:
        impossible = torch.zeros(n_tokens, n_kmers, dtype=torch.bool, device=logits.device)
        impossible[-1] = bits[:, k - n_padded :].any(dim=-1)
        logits = logits.masked_fill(impossible, float("-inf"))
    probabilities = torch.softmax(logits, dim=-1) @ bits.to(logits.dtype)  # (..., n_tokens, k)
    return probabilities.flatten(-2)[..., :n_snps]
