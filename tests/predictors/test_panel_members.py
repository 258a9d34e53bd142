"""Target samples that are in the panel, compared with a search through all haplotypes."""

from collections.abc import Callable
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import spinimpute
from spinimpute.hmm.pbwt import Candidates
from spinimpute.hmm.typed_alleles import PanelAlleles, TypedAlleles
from spinimpute.predictors.haplotype_attention import panel_members as module
from spinimpute.predictors.haplotype_attention.copying import GapPatterns, GapSites
from spinimpute.predictors.haplotype_attention.panel_members import (
    ERROR_ODDS,
    MAX_MATCHING,
    MAX_ODDS,
    MIN_ODDS,
    PLACES_PER_ERROR,
    PRIOR_ODDS,
    PanelMembers,
    find_members,
    mix_members,
)

Mosaic = Callable[..., np.ndarray]


@settings(deadline=None, max_examples=60)
@given(
    st.integers(0, 10**6), st.sampled_from([5, 70, 410]), st.sampled_from([1, 2, 6, 30]),
    st.sampled_from([4, 9, 10**4]),
)  # fmt: skip
def test_members_are_those_of_brute_force(seed: int, n_places: int, founders: int, counted: int) -> None:
    rng = np.random.default_rng(seed)
    n = 24
    alleles_SF = rng.integers(0, 2, (n_places, founders), np.uint8)
    panel_SN = alleles_SF[:, rng.integers(0, founders, n)]
    sibling_N = np.arange(n) ^ 1
    sibling_N[[2, 3]] = 2, 3  # haploid samples
    # of panel samples, one turned and one mixed, with few wrong and missing calls; one without a sibling
    chosen_Q = np.array([0, 1, 7, 6, 8, 13, 2, 3, 4, 5])
    query_SQ = panel_SN[:, chosen_Q].astype(np.int8)
    query_SQ[rng.random(query_SQ.shape) < 0.004] ^= 1
    query_SQ[rng.random(query_SQ.shape) < 0.02] = -1
    query_SQ[:, 9] = -1
    other_SQ = query_SQ[:, np.arange(10) ^ 1]
    first_Q1 = np.arange(11) * n  # all haplotypes are candidates
    with mock.patch.object(module, "MAX_COUNTED", counted):
        found = find_members(
            PanelAlleles.from_alleles(panel_SN), sibling_N, TypedAlleles.from_alleles(query_SQ),
            TypedAlleles.from_alleles(other_SQ),
            Candidates(np.tile(np.arange(n, dtype=np.int32), 10), first_Q1[None]), 0,
        )  # fmt: skip
    differs_QN, other_differs_QN = (
        ((x_SQ[:, :, None] != panel_SN[:, None]) & (x_SQ >= 0)[:, :, None]).sum(axis=0)
        for x_SQ in (query_SQ, other_SQ)
    )
    step = -(-n // counted)
    for q in range(10):
        own_S, other_S = query_SQ[:, q], other_SQ[:, q]
        most, others_most = ((x_S >= 0).sum() // PLACES_PER_ERROR for x_S in (own_S, other_S))
        sum_N = differs_QN[q] + other_differs_QN[q][sibling_N]
        fits_N = (differs_QN[q] <= most) & (other_differs_QN[q][sibling_N] <= others_most)
        fits_N &= sibling_N != np.arange(n)
        mine = found.haplotype_M[found.first_Q1[q] : found.first_Q1[q + 1]].tolist()
        both_S = (own_S >= 0) & (other_S >= 0)
        alike = (own_S[both_S] == other_S[both_S]).all()
        odds = 0.0
        if fits_N.any() and not alike and (differs_QN[q] <= most).sum() <= MAX_MATCHING:
            best = np.flatnonzero(fits_N & (sum_N == sum_N[fits_N].min()))[0]
            own, others = differs_QN[q, best], other_differs_QN[q, sibling_N[best]]
            like_N, others_like_N = differs_QN[q] <= own, other_differs_QN[q] <= others
            pairs_N = like_N & others_like_N[sibling_N] & (sibling_N != np.arange(n))
            n_others = others_like_N[::step].sum() * step + (step if step > 1 else 0)
            odds = PRIOR_ODDS * pairs_N.sum() / n / (like_N.mean() * n_others / n)
            if own + others:
                odds = min(odds, MAX_ODDS) * ERROR_ODDS ** (own + others)
        if odds < MIN_ODDS:
            assert (found.probability_Q[q], mine) == (0, [])
        else:
            assert mine == np.flatnonzero(pairs_N).tolist()
            assert found.probability_Q[q] == pytest.approx(odds / (1 + odds), rel=1e-5)


def test_alleles_of_members_are_mixed(patterns_of: Callable[[np.ndarray, np.ndarray], GapPatterns]) -> None:
    rng = np.random.default_rng(4)
    n, n_sites, start_G1 = 40, 150, np.array([*range(17), 85, 150])  # the block begins with gap 16
    alleles_UN = (rng.random((n_sites, n)) < rng.random((n_sites, 1))).astype(np.uint8)
    count_U = alleles_UN.sum(axis=1)
    patterns = patterns_of(alleles_UN, start_G1)
    members = PanelMembers(
        np.array([0, 0.9, 0.25], np.float32), np.array([4, 7, 31], np.int32), np.array([0, 0, 1, 3])
    )
    before_UQ = rng.random((n_sites - 16, 3)).astype(np.float32)
    after_UQ = before_UQ.copy()
    fraction_U = np.zeros(n_sites - 16, np.float32)
    sites = GapSites(16, start_G1[16:] - 16, fraction_U, 2 * count_U[16:] > n)
    mix_members(members, patterns, sites, after_UQ)
    np.testing.assert_array_equal(after_UQ[:, 0], before_UQ[:, 0])
    np.testing.assert_allclose(after_UQ[:, 1], 0.1 * before_UQ[:, 1] + 0.9 * alleles_UN[16:, 4], atol=1e-6)
    both_U = alleles_UN[16:, [7, 31]].mean(axis=1)
    np.testing.assert_allclose(after_UQ[:, 2], 0.75 * before_UQ[:, 2] + 0.25 * both_U, atol=1e-6)


TYPED = 4  # every so many sites


@pytest.fixture(scope="module")
def alleles_SN(mosaic: Mosaic) -> np.ndarray:
    """80 samples; the haplotypes of the first one are alike."""
    alleles_SN = mosaic(np.random.default_rng(7), 1_400, 160, founders=12, errors=0.02)
    alleles_SN[:, 1] = alleles_SN[:, 0]
    return alleles_SN[(alleles_SN.sum(axis=1) > 0) & (alleles_SN.sum(axis=1) < 160)]


@pytest.fixture(scope="module")
def panel_file(
    alleles_SN: np.ndarray,
    panel_of: Callable[..., spinimpute.Panel],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    path = tmp_path_factory.mktemp("panel") / "panel.spin"
    panel_of(path, alleles_SN).close()
    return path


def test_pairs_of_the_panel_come_back_and_others_are_as_if_alone(
    alleles_SN: np.ndarray, panel_file: Path
) -> None:
    """Haplotypes of two samples, a single haplotype, or two equal ones are no panel sample."""
    typed = np.arange(0, len(alleles_SN), TYPED)
    with spinimpute.Panel.open(panel_file) as panel:

        def imputed(haplotypes: list[int], ploidy: int = 2) -> np.ndarray:
            calls_TXP = alleles_SN[typed][:, haplotypes].reshape(len(typed), -1, ploidy).astype(np.int8)
            return spinimpute.impute_genotypes(panel, calls_TXP, typed).haplotypes

        def alone(haplotypes: list[int]) -> np.ndarray:
            return spinimpute.impute_haplotypes(panel, alleles_SN[typed][:, haplotypes], typed)

        for pair in ([10, 11], [31, 30]):
            np.testing.assert_array_equal((imputed(pair) > 0.5).astype(int), alleles_SN[:, pair])
            errors = [np.abs(p - alleles_SN[:, pair]).mean() for p in (imputed(pair), alone(pair))]
            assert errors[0] < 0.9 * errors[1]
        np.testing.assert_array_equal(imputed([10, 31]), alone([10, 31]))
        np.testing.assert_array_equal(imputed([0, 1]), alone([0, 1]))
        np.testing.assert_array_equal(imputed([10, 0], ploidy=1), alone([10, 0]))
        many = [40, 41, 10, 11, 20, 33]  # whoever else is imputed
        np.testing.assert_array_equal(imputed(many)[:, 2:4], imputed([10, 11]))
