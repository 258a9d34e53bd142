"""K-mer tokens and the way back to allele probabilities, against spelled-out bits."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.spin.kmers import kmer_allele_probabilities, kmer_tokens


@settings(deadline=None)
@given(st.integers(1, 4), st.integers(1, 13), st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_tokens_are_the_bits_spelled_out(n_haplotypes: int, n_snps: int, k: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    alleles = rng.choice(np.array([0, 1, -1], dtype=np.int8), p=[0.5, 0.4, 0.1], size=(n_haplotypes, n_snps))
    tokens, valid = kmer_tokens(alleles, k)
    n_tokens = -(-n_snps // k)
    assert tokens.dtype == np.int64
    assert tokens.shape == (n_haplotypes, n_tokens)
    assert valid.tolist() == [[t * k + i < n_snps for i in range(k)] for t in range(n_tokens)]
    for haplotype, token in itertools.product(range(n_haplotypes), range(n_tokens)):
        kmer = alleles[haplotype, token * k : (token + 1) * k].tolist()
        expected = 2**k if -1 in kmer else int("".join(map(str, kmer)).ljust(k, "0"), 2)
        assert tokens[haplotype, token] == expected


def test_tensors_give_tensors() -> None:
    alleles = torch.tensor([[[1, 0, 1], [0, -1, 0]]], dtype=torch.int8)
    tokens, valid = kmer_tokens(alleles, 2)
    assert tokens.tolist() == [[[2, 2], [4, 0]]]
    assert tokens.dtype == torch.int64
    assert valid.tolist() == [[True, True], [True, False]]


@settings(deadline=None)
@given(st.integers(1, 11), st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_probabilities_are_sums_over_possible_kmers(n_snps: int, k: int, seed: int) -> None:
    n_tokens = -(-n_snps // k)
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(2, n_tokens, 2**k, generator=generator, dtype=torch.float64)
    found = kmer_allele_probabilities(logits, n_snps)
    assert found.shape == (2, n_snps)
    for row, snp in itertools.product(range(2), range(n_snps)):
        token, place = divmod(snp, k)
        weight = {"0": 0.0, "1": 0.0}
        for kmer in range(2**k):
            bits = format(kmer, f"0{k}b")
            if "1" not in bits[n_snps - token * k :]:  # a SNP that does not exist has no ALT allele
                weight[bits[place]] += float(logits[row, token, kmer].exp())
        assert float(found[row, snp]) == pytest.approx(weight["1"] / (weight["0"] + weight["1"]))


def test_gradients_are_finite_where_kmers_are_impossible() -> None:
    logits = torch.zeros(2, 8, requires_grad=True)
    kmer_allele_probabilities(logits, 4).sum().backward()
    assert torch.isfinite(logits.grad).all()


@pytest.mark.parametrize(("shape", "n_snps"), [((3, 7), 9), ((3, 8), 4), ((3, 1), 3)])
def test_wrong_shape_is_refused(shape: tuple[int, ...], n_snps: int) -> None:
    with pytest.raises(ValueError, match="must have shape"):
        kmer_allele_probabilities(torch.zeros(shape), n_snps)
