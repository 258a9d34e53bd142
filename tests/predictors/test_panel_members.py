"""Target samples that are in the panel, found by comparing all haplotypes."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import spinimpute
from spinimpute.genotypes.genetic_map import GeneticMap
from spinimpute.hmm.typed_alleles import PanelAlleles, TypedAlleles
from spinimpute.panels.stored_rows import RowLayout, store_rows
from spinimpute.predictors.haplotype_attention import copying
from spinimpute.predictors.haplotype_attention.panel_members import (
    ERROR_ODDS,
    MOST_ALIKE,
    PLACES_PER_ERROR,
    PRIOR_ODDS,
    PanelMembers,
    mix_members,
    panel_members,
)

Mosaic = Callable[..., np.ndarray]


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10**6), st.sampled_from([5, 70, 410]), st.sampled_from([2, 6, 30]))
def test_members_are_those_of_brute_force(seed: int, n_places: int, founders: int) -> None:
    rng = np.random.default_rng(seed)
    n = 24
    alleles_SF = rng.integers(0, 2, (n_places, founders), np.uint8)
    panel_SN = alleles_SF[:, rng.integers(0, founders, n)]
    sibling_N = np.arange(n) ^ 1
    sibling_N[[2, 3]] = 2, 3  # haploid samples
    # of panel samples, one pair turned and one mixed, with a few wrong and missing calls
    chosen_Q = np.array([0, 1, 7, 6, 8, 13, 2, 3])
    query_SQ = panel_SN[:, chosen_Q].astype(np.int8)
    query_SQ[rng.random(query_SQ.shape) < 0.004] ^= 1
    query_SQ[rng.random(query_SQ.shape) < 0.02] = -1
    other_SQ = query_SQ[:, np.arange(8) ^ 1]
    first_Q1 = np.arange(9) * n  # all haplotypes are candidates
    found = panel_members(
        PanelAlleles.of(panel_SN), sibling_N, TypedAlleles.of(query_SQ), TypedAlleles.of(other_SQ),
        np.tile(np.arange(n, dtype=np.int32), 8), first_Q1,
    )  # fmt: skip
    differs_QN, other_differs_QN = (
        ((x_SQ[:, :, None] != panel_SN[:, None]) & (x_SQ >= 0)[:, :, None]).sum(axis=0)
        for x_SQ in (query_SQ, other_SQ)
    )
    for q in range(8):
        most, others_most = ((x_SQ[:, q] >= 0).sum() // PLACES_PER_ERROR for x_SQ in (query_SQ, other_SQ))
        sum_N = differs_QN[q] + other_differs_QN[q][sibling_N]
        fits_N = (differs_QN[q] <= most) & (other_differs_QN[q][sibling_N] <= others_most)
        fits_N &= sibling_N != np.arange(n)
        mine = found.haplotype_M[found.first_Q1[q] : found.first_Q1[q + 1]]
        if not fits_N.any() or (differs_QN[q] <= most).sum() > MOST_ALIKE:
            assert found.probability_Q[q] == 0
            assert len(mine) == 0
            continue
        best = np.flatnonzero(fits_N & (sum_N == sum_N[fits_N].min()))[0]
        own, others = differs_QN[q, best], other_differs_QN[q, sibling_N[best]]
        like_N, others_like_N = differs_QN[q] <= own, other_differs_QN[q] <= others
        pairs_N = like_N & others_like_N[sibling_N] & (sibling_N != np.arange(n))
        assert mine.tolist() == np.flatnonzero(pairs_N).tolist()
        outside = like_N.mean() * others_like_N.mean() / ERROR_ODDS ** (own + others)
        odds = PRIOR_ODDS * pairs_N.sum() / (n / 2) / outside
        assert found.probability_Q[q] == pytest.approx(odds / (1 + odds), rel=1e-5)


def test_alleles_of_members_are_mixed() -> None:
    rng = np.random.default_rng(4)
    n, n_sites, start_G1 = 40, 150, np.array([0, 10, 10, 85, 150])
    alleles_UN = (rng.random((n_sites, n)) < rng.random((n_sites, 1))).astype(np.uint8)
    count_U = alleles_UN.sum(axis=1)
    stored = np.frombuffer(store_rows(np.packbits(alleles_UN, axis=1), n), np.uint8)
    rows = RowLayout.of(count_U, n).rows(stored, 0, n_sites)
    patterns = copying.gap_patterns(rows, start_G1, np.arange(n), np.minimum(count_U, n - count_U))
    members = PanelMembers(
        np.array([0, 0.9, 0.25], np.float32), np.array([4, 7, 31], np.int32), np.array([0, 0, 1, 3])
    )
    before_UQ = rng.random((n_sites - 10, 3)).astype(np.float32)
    after_UQ = before_UQ.copy()
    mix_members(members, patterns, 1, start_G1[1:] - 10, 2 * count_U[10:] > n, after_UQ)
    np.testing.assert_array_equal(after_UQ[:, 0], before_UQ[:, 0])
    np.testing.assert_allclose(after_UQ[:, 1], 0.1 * before_UQ[:, 1] + 0.9 * alleles_UN[10:, 4], atol=1e-6)
    both_U = alleles_UN[10:, [7, 31]].mean(axis=1)
    np.testing.assert_allclose(after_UQ[:, 2], 0.75 * before_UQ[:, 2] + 0.25 * both_U, atol=1e-6)


def test_pairs_of_the_panel_come_back_and_mixed_ones_are_as_before(mosaic: Mosaic, tmp_path: Path) -> None:
    """Haplotypes of two samples are no sample of the panel, and are imputed as if alone."""
    rng = np.random.default_rng(7)
    alleles_SN = mosaic(rng, 400, 160, founders=12, errors=0.02)
    alleles_SN = alleles_SN[(alleles_SN.sum(axis=1) > 0) & (alleles_SN.sum(axis=1) < 160)]
    names = [f"p{i}" for i in range(80)]
    lines = ["##fileformat=VCFv4.2", "##contig=<ID=1>"]
    lines.append("#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\tFORMAT\t" + "\t".join(names))
    for s, row in enumerate(alleles_SN):
        calls = "\t".join(f"{a}|{b}" for a, b in zip(row[::2], row[1::2], strict=True))
        lines.append(f"1\t{1_000 + 400 * s}\t.\tA\tC\t.\t.\t.\tGT\t{calls}")
    (tmp_path / "panel.vcf").write_text("\n".join(lines) + "\n")
    constant = GeneticMap(np.array([1.0, 1e7]), np.array([0.0, 10.0]))
    typed = np.arange(0, len(alleles_SN), 4)
    with spinimpute.build_panel(tmp_path / "panel.vcf", tmp_path / "panel.spin", constant) as panel:

        def imputed(haplotypes: list[int]) -> np.ndarray:
            calls_TX2 = alleles_SN[typed][:, haplotypes].reshape(len(typed), -1, 2).astype(np.int8)
            return spinimpute.impute_genotypes(panel, calls_TX2, typed).haplotypes

        def alone(haplotypes: list[int]) -> np.ndarray:
            return spinimpute.impute_haplotypes(panel, alleles_SN[typed][:, haplotypes], typed)

        for pair in ([10, 11], [31, 30]):
            np.testing.assert_array_equal((imputed(pair) > 0.5).astype(int), alleles_SN[:, pair])
            errors = [np.abs(p - alleles_SN[:, pair]).mean() for p in (imputed(pair), alone(pair))]
            assert errors[0] < 0.8 * errors[1]
        np.testing.assert_array_equal(imputed([10, 31]), alone([10, 31]))
        many = [40, 41, 10, 11, 20, 33]  # whoever else is imputed
        np.testing.assert_array_equal(imputed(many)[:, 2:4], imputed([10, 11]))
