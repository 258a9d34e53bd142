"""Parts of SPIN on genotypes against plain references: tokens, scores of haplotypes, matches of queries."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from spinimpute.predictors.spin.kmers import kmer_distribution, kmer_numbers, kmer_sums, split_columns
from spinimpute.predictors.spin.matching import AttentionKeys, match
from spinimpute.predictors.spin.network import BlockContext, GenotypeSPIN
from spinimpute.predictors.spin.settings import SPINSettings
from spinimpute.predictors.spin.similarity import Confusion, HaplotypeSimilarity, untyped_weights


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


@settings(deadline=None, max_examples=30)
@given(k=st.integers(1, 5), places=st.integers(1, 13), compared=st.integers(0, 6), seed=st.integers(0, 1_000))
def test_scores_of_haplotypes_are_log_likelihoods(k: int, places: int, compared: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    x_BNX = (torch.rand(2, 4, places + compared, generator=generator) < 0.5).float()
    mean_BHX = torch.rand(2, 3, places + compared, generator=generator)
    weight_BD = torch.rand(2, -(-places // k), generator=generator)
    untyped_weight_BC = torch.rand(2, compared, generator=generator)
    confusion = Confusion(k)
    similarity = HaplotypeSimilarity(confusion, weight_BD, k, untyped_weight_BC)
    score_BNH = similarity.scores(x_BNX, similarity.keys(similarity.start(mean_BHX)))
    token_BNDV = kmer_distribution(x_BNX[..., :places], k)
    assert (token_BNDV.argmax(-1) == kmer_numbers(x_BNX[..., :places], k)).all()
    key_BHDV = confusion(kmer_distribution(mean_BHX[..., :places], k))
    expected = torch.einsum("bndv,bhdv,bd->bnh", token_BNDV, key_BHDV, weight_BD)
    for b, n, h, c in itertools.product(range(2), range(4), range(3), range(compared)):
        alt = 0.01 + 0.98 * mean_BHX[b, h, places + c]
        likelihood = alt if x_BNX[b, n, places + c] else 1 - alt
        expected[b, n, h] += untyped_weight_BC[b, c] * likelihood.log()
    torch.testing.assert_close(score_BNH, expected, rtol=1e-4, atol=1e-4)


@settings(deadline=None, max_examples=30)
@given(k=st.integers(1, 5), places=st.integers(1, 13), compared=st.integers(0, 6), seed=st.integers(0, 1_000))
def test_points_keep_which_alleles_go_together(k: int, places: int, compared: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    x_BNX = (torch.rand(2, 4, places + compared, generator=generator) < 0.5).float()
    r_BHN = torch.rand(2, 3, 4, generator=generator)
    weight_BD, untyped_weight_BC = torch.ones(2, -(-places // k)), torch.ones(2, compared)
    similarity = HaplotypeSimilarity(Confusion(k), weight_BD, k, untyped_weight_BC)
    expected_BHF = torch.zeros(2, 3, weight_BD.shape[1] * 2**k + compared)
    for b, n in itertools.product(range(2), range(4)):
        token_DV = kmer_distribution(x_BNX[b : b + 1, n : n + 1, :places], k)[0, 0]
        feature_F = torch.cat([token_DV.flatten(), x_BNX[b, n, places:]])
        expected_BHF[b] += r_BHN[b, :, n, None] * feature_F
    torch.testing.assert_close(similarity.sums(r_BHN, x_BNX), expected_BHF)


def test_untyped_sites_weigh_more_the_rarer_their_alleles_are() -> None:
    weight_C = untyped_weights(torch.tensor([[0.5, 0.01, 0.99, 0.001, 0.0, 1.0]]))[0]
    assert 0 < weight_C[0] < weight_C[1] < weight_C[3]
    assert weight_C[1] == pytest.approx(float(weight_C[2]))
    assert (weight_C[4:] == 0).all()


@pytest.mark.parametrize("k", [1, 3, 5])
def test_the_confusion_starts_with_the_same_error_at_each_snp(k: int) -> None:
    token_11VV = torch.eye(2**k)[None, None]
    likelihood_VV = Confusion(k)(token_11VV).exp()[0, 0].detach()
    for a, b in itertools.product(range(2**k), repeat=2):
        differing = (a ^ b).bit_count()
        assert float(likelihood_VV[a, b]) == pytest.approx(
            0.99 ** (k - differing) * 0.01**differing, rel=1e-5, abs=2e-8
        )


def random_case(
    k: int, core: int, flank: int, seed: int
) -> tuple[GenotypeSPIN, Tensor, Tensor, AttentionKeys]:
    """A model with random weights, queries, their known calls, and the keys of a block."""
    torch.manual_seed(seed)
    model = GenotypeSPIN(SPINSettings(core=core, flank=flank, k=k, heads=3, pair_heads=2, tolerances=3))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, 0, 0.5)
    n_places = model.settings.shape.n_typed
    rng = np.random.default_rng(seed)
    first, last = sorted(rng.choice(n_places + 1, 2, replace=False).tolist())
    valid_BS = torch.zeros(1, n_places)
    valid_BS[:, first:last] = 1
    cM_BS = torch.from_numpy(np.sort(rng.normal(0, 0.3, (1, n_places)), axis=1)).float()
    columns = model.columns(cM_BS, torch.rand(1, n_places), valid_BS, 100)
    typed_BNS = (torch.rand(1, 40, n_places) < 0.5).float() * valid_BS
    # no untyped sites: C = 0
    chunks = [(typed_BNS, typed_BNS[..., :2])]
    points = model.encode(
        BlockContext(columns, chunks, typed_BNS[:, :6], torch.ones(1, 6), torch.zeros(1, 0))
    )
    known_BQS = (torch.rand(1, 5, n_places) < torch.tensor([1, 0.9, 0.5, 0.1, 0.0])[:, None]).float()
    return model, typed_BNS[:, :5], known_BQS, model.keys(points, columns)


@settings(deadline=None, max_examples=20)
@given(k=st.integers(1, 4), core=st.integers(1, 4), flank=st.integers(0, 5), seed=st.integers(0, 1_000_000))
def test_missing_calls_are_summed_over(k: int, core: int, flank: int, seed: int) -> None:
    with torch.no_grad():
        _, allele_BQS, known_BQS, keys = random_case(k, core, flank, seed)
        one_head = keys._replace(weight_BGD=torch.ones_like(keys.weight_BGD[:, :1]))
        found_QH = match(allele_BQS, known_BQS, one_head, k, torch.tensor(0.3), 1).score_BGQH[0, 0]
    columns, places = keys.likelihood_BDVH.shape[1], allele_BQS.shape[2]
    before = (-places % k) // 2
    for q in range(allele_BQS.shape[1]):
        expected_H = torch.zeros(found_QH.shape[1])
        for d in range(columns):
            may_be: list[list[int]] = []
            for place in range(d * k - before, (d + 1) * k - before):
                if not 0 <= place < places or not keys.columns.valid_BS[0, place]:
                    may_be.append([0])
                elif known_BQS[0, q, place]:
                    may_be.append([int(allele_BQS[0, q, place])])
                else:
                    may_be.append([0, 1])
            kmers = [int("".join(map(str, kmer)), 2) for kmer in itertools.product(*may_be)]
            expected_H += keys.likelihood_BDVH[0, d, kmers].exp().sum(0).log()
        torch.testing.assert_close(found_QH[q], expected_H, rtol=1e-4, atol=1e-3)


def test_a_run_ends_where_alleles_differ() -> None:
    """One point is the query, the other differs at a single place on the left."""
    with torch.no_grad():
        model = GenotypeSPIN(SPINSettings(core=1, flank=14, k=1, tolerances=2))
        n_places = model.settings.shape.n_typed
        cM_BS = torch.linspace(-1, 1, n_places)[None]
        columns = model.columns(cM_BS, torch.full((1, n_places), 0.5), torch.ones(1, n_places), 50)
        query_BQS = torch.zeros(1, 1, n_places)
        both_BHS = torch.zeros(1, 2, n_places)
        both_BHS[0, 1, 3] = 1
        chunks = [(both_BHS, both_BHS[..., :1])]
        points = model.encode(BlockContext(columns, chunks, both_BHS, torch.ones(1, 2), torch.zeros(1, 0)))
        both_BHF = kmer_distribution(both_BHS, 1).flatten(2)
        keys = model.keys(points._replace(feature_BHF=both_BHF), columns)
        found = match(query_BQS, torch.ones_like(query_BQS), keys, 1, torch.tensor(1.0), 2)
    runs_F2 = found.runs_BFQH[0, :, 0]
    left, right = runs_F2[:4], runs_F2[4:]
    assert (left[:, 0] > left[:, 1] + 0.001).all()
    torch.testing.assert_close(right[:, 0], right[:, 1])


@pytest.mark.parametrize("k", [1, 2, 5, 8])
def test_k_is_a_setting(k: int) -> None:
    model, allele_BQS, known_BQS, keys = random_case(k, 4, 6, 1)
    logit_BGQH = model.attend(allele_BQS, known_BQS, keys)
    assert logit_BGQH.shape == (1, 5, 5, 6)
    assert torch.isfinite(logit_BGQH).all()
    logit_BGQH.sum().backward()
    assert torch.isfinite(model.confusion.log_confusion.grad).all()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "message"), [({"k": 9}, "k must be at most 8"), ({"heads": 0}, "heads must be at least 1")]
)
def test_sizes_that_cannot_be(settings: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SPINSettings(**settings)
