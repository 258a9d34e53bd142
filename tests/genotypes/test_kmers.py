"""Tokens of K neighbouring SNPs, known or as distributions, against plain products."""

import itertools

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from spinimpute.genotypes.kmers import kmer_distribution, kmer_numbers, kmer_sums, split_columns


@settings(deadline=None, max_examples=30)
@given(k=st.integers(1, 5), places=st.integers(1, 13), seed=st.integers(0, 1_000))
def test_a_token_is_the_product_over_its_snps(k: int, places: int, seed: int) -> None:
    allele_BXS = torch.rand(2, 3, places, generator=torch.Generator().manual_seed(seed))
    token_BXDV = kmer_distribution(allele_BXS, k)
    p_BXDK = split_columns(allele_BXS, k)
    assert p_BXDK.shape[2:] == (-(-places // k), k)
    for number, bits in enumerate(itertools.product([0, 1], repeat=k)):  # the first SNP is the highest bit
        chosen = torch.tensor(bits)
        expected = torch.where(chosen == 1, p_BXDK, 1 - p_BXDK).prod(-1)
        torch.testing.assert_close(token_BXDV[..., number], expected)


@settings(deadline=None, max_examples=30)
@given(k=st.integers(1, 8), places=st.integers(1, 20), seed=st.integers(0, 1_000))
def test_numbers_of_known_kmers_are_their_bits(k: int, places: int, seed: int) -> None:
    allele_BNS = (torch.rand(1, 2, places, generator=torch.Generator().manual_seed(seed)) < 0.5).float()
    for alleles_DK, number_D in zip(
        split_columns(allele_BNS, k)[0], kmer_numbers(allele_BNS, k)[0], strict=True
    ):
        texts = ["".join(str(int(a)) for a in alleles) for alleles in alleles_DK]
        assert [int(text, 2) for text in texts] == number_D.tolist()


@settings(deadline=None, max_examples=30)
@given(k=st.integers(1, 5), places=st.integers(1, 13), n=st.integers(1, 6), seed=st.integers(0, 1_000))
def test_sums_of_kmers_are_products_with_tokens(k: int, places: int, n: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    allele_BNS = (torch.rand(2, n, places, generator=generator) < 0.5).double()
    weight_BXN = torch.rand(2, 3, n, generator=generator, dtype=torch.float64, requires_grad=True)
    expected = torch.einsum("bxn,bndv->bxdv", weight_BXN, kmer_distribution(allele_BNS, k))
    found = kmer_sums(weight_BXN, kmer_numbers(allele_BNS, k), 2**k)
    torch.testing.assert_close(found, expected)
    direction = torch.rand(found.shape, generator=generator, dtype=torch.float64)
    gradients = [torch.autograd.grad(x, weight_BXN, direction)[0] for x in (found, expected)]
    torch.testing.assert_close(*gradients)
