"""Gaps at which candidates agree: found as by brute force, and predicted to be what the candidates have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import spinimpute
from spinimpute.genotypes.intervals import Interval
from spinimpute.hmm.pbwt import unite
from spinimpute.predictors.haplotype_attention import agreement, copying
from spinimpute.predictors.haplotype_attention.agreement import (
    AGREED_PROBABILITY,
    MAX_COPIES,
    MAX_DISSENT,
    MIN_COPIES,
    NO_AGREEMENT,
    agreed_patterns,
    fill_agreed,
    rarest_alleles,
)
from spinimpute.predictors.haplotype_attention.copying import GapPatterns, GapSites
from spinimpute.predictors.haplotype_attention.decoder_network import SiteFeatures, _fill_absent
from spinimpute.predictors.haplotype_attention.engine import PanelRates, TileTask
from spinimpute.predictors.haplotype_attention.ibs_classes import BlockCandidates
from spinimpute.predictors.haplotype_attention.posterior_alleles import posterior_weight
from spinimpute.predictors.haplotype_attention.predictor import CLASSES
from spinimpute.predictors.haplotype_attention.tile import read_patterns, read_tile
from tests.predictors.test_haplotype_attention import random_predictor

N = 300


def minor_alleles(rng: np.random.Generator, n_sites: int) -> np.ndarray:
    """Minor alleles with few or many copies, (U, N)."""
    copies_U = rng.choice([1, 2, 3, 4, 29, 30, 31, 149], n_sites)
    return np.array([rng.permutation(N) < copies for copies in copies_U])


Patterns = Callable[[np.ndarray, np.ndarray], GapPatterns]


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10**6), st.integers(1, 8), st.integers(1, 5), st.sampled_from([1, 3, 12]))
def test_agreement_is_that_of_brute_force(
    patterns_of: Patterns, seed: int, n_sites: int, n_gaps: int, n_candidates: int
) -> None:
    rng = np.random.default_rng(seed)
    minor_UN, before = minor_alleles(rng, n_sites), int(rng.integers(0, n_gaps))
    start_G1 = np.concatenate([[0], np.sort(rng.integers(0, n_sites + 1, n_gaps - 1)), [n_sites]])
    patterns = patterns_of(minor_UN, start_G1)
    copies_U, sibling_N = minor_UN.sum(axis=1), np.arange(N) ^ 1
    rarest = rarest_alleles(patterns, start_G1, copies_U)
    count_Q = np.array([n_candidates, 0, n_candidates])
    first_Q1 = np.concatenate([[0], np.cumsum(count_Q)])
    haplotype_C = np.concatenate([np.sort(rng.choice(N, k, replace=False)) for k in count_Q])
    block_gaps = n_gaps - before
    posterior_CP = rng.choice([1e-5, MAX_DISSENT, 0.3], (len(haplotype_C), block_gaps + 1)).astype(np.float32)
    posterior_CP *= rng.uniform(0.9, 1, posterior_CP.shape).astype(np.float32)
    candidates = BlockCandidates(haplotype_C.astype(np.int32), posterior_CP, first_Q1)
    agreed_QG = agreed_patterns(candidates, sibling_N, patterns, rarest, before, block_gaps)
    for q in range(3):
        who, mine_CP = haplotype_C[first_Q1[q] : first_Q1[q + 1]], posterior_CP[first_Q1[q] : first_Q1[q + 1]]
        for g in range(block_gaps):
            sites = slice(start_G1[before + g], start_G1[before + g + 1])
            here_UN, here_U = minor_UN[sites], copies_U[sites]
            rare = any(here_UN[here_U < copying.MIN_TRUSTED_COPIES][:, [c, c ^ 1]].any() for c in who)
            expected = not rare and len(who) > 0
            if expected:
                best = who[np.argmax(mine_CP[:, g : g + 2].sum(axis=1))]
                differs_C = (here_UN[:, who] != here_UN[:, [best]]).any(axis=0)
                left, right = (mine_CP[differs_C, g + e].sum() / mine_CP[:, g + e].sum() for e in (0, 1))
                if max(left, right) == pytest.approx(MAX_DISSENT, rel=1e-3):
                    continue  # rounding decides
                expected = max(left, right) <= MAX_DISSENT and not here_UN[here_U < MIN_COPIES, best].any()
            assert (agreed_QG[q, g] != NO_AGREEMENT) == expected
            if expected:
                assert agreed_QG[q, g] == patterns.pattern_BNG[0][best, before + g]


def test_the_rarest_allele_of_each_pattern_is_counted(patterns_of: Patterns) -> None:
    rng = np.random.default_rng(3)
    minor_UN = minor_alleles(rng, 150)
    start_G1 = np.array([0, 0, 70, 150])  # a gap without sites, two of more than one word
    patterns = patterns_of(minor_UN, start_G1)
    rarest = rarest_alleles(patterns, start_G1, minor_UN.sum(axis=1))
    copies_UN = np.where(minor_UN, minor_UN.sum(axis=1, keepdims=True), MAX_COPIES)
    for g in range(3):
        fewest_N = copies_UN[start_G1[g] : start_G1[g + 1]].min(axis=0, initial=MAX_COPIES)
        np.testing.assert_array_equal(
            rarest.copies_D[rarest.first_G[g] + patterns.pattern_BNG[0][:, g]], fewest_N
        )


def test_agreed_alleles_are_written_and_all_else_stays(patterns_of: Patterns) -> None:
    rng = np.random.default_rng(4)
    minor_UN, start_G1 = minor_alleles(rng, 90), np.array([0, 5, 80, 90])
    patterns, flip_U = patterns_of(minor_UN, start_G1), rng.random(85) < 0.5
    out_UQ = np.full((85, 2), 0.25, np.float32)
    pattern_NG = patterns.pattern_BNG[0]
    agreed_QG = np.array([[pattern_NG[17, 1], NO_AGREEMENT], [NO_AGREEMENT, pattern_NG[20, 2]]], np.int32)
    sites = GapSites(1, start_G1[1:] - 5, np.zeros(85, np.float32), flip_U)
    fill_agreed(agreed_QG, patterns, sites, np.float32(0.9), out_UQ)
    carried_UQ = np.zeros((85, 2), bool)
    carried_UQ[:75, 0], carried_UQ[75:, 1] = minor_UN[5:80, 17], minor_UN[80:, 20]
    np.testing.assert_allclose(
        out_UQ, np.where(carried_UQ, np.where(flip_U, 0.1, 0.9)[:, None], 0.25), atol=1e-6
    )


TYPED = np.arange(0, 600, 6)
RATES = PanelRates(100.0, np.ones(1, np.float32))  # the odds of rare alleles stay as they are


@pytest.fixture
def panel(
    mosaic: Callable[..., np.ndarray], panel_of: Callable[..., spinimpute.Panel], tmp_path: Path
) -> spinimpute.Panel:
    alleles_XN = mosaic(np.random.default_rng(3), 600, 160, founders=5, errors=0.01)
    return panel_of(tmp_path / "panel.spin", alleles_XN)


@pytest.mark.parametrize("large", [False, True])
def test_networks_compute_where_candidates_differ(
    panel: spinimpute.Panel, mosaic: Callable[..., np.ndarray], monkeypatch: pytest.MonkeyPatch, large: bool
) -> None:
    """Compare with networks that compute everywhere, as in blocks that a window cuts."""
    if large:
        monkeypatch.setattr("spinimpute.predictors.haplotype_attention.posterior_alleles.SMALL_PANEL", 5)
        monkeypatch.setattr("spinimpute.predictors.haplotype_attention.posterior_alleles.LARGE_PANEL", 6)
    predictor = random_predictor(CLASSES, seed=1)
    found: list[np.ndarray] = []

    def record(*arguments: object) -> np.ndarray:
        found.append(agreed_patterns(*arguments))  # type: ignore[arg-type]
        return found[-1]

    monkeypatch.setattr("spinimpute.predictors.haplotype_attention.predictor.agreed_patterns", record)
    typed_TQ = mosaic(np.random.default_rng(3), 600, 8, founders=5, errors=0.01)[TYPED].astype(np.int8)
    with panel:
        tile = read_tile(panel, TYPED, 0, Interval(0, 600))
        assert all(block.whole for block in tile.blocks)
        cut = replace(tile, blocks=tuple(replace(block, whole=False) for block in tile.blocks))
        matches = unite(*(predictor.find_matches(tile, typed_TQ, on_left) for on_left in (True, False)))
        patterns = read_patterns(panel, tile)
        agreed_UQ, everywhere_UQ = (
            predictor.impute_tile(TileTask(panel, one, patterns, typed_TQ, None, matches, RATES))
            for one in (tile, cut)
        )
        frequency_U, n_blocks = panel.frequency, len(tile.blocks)
        monomorphic_U = (frequency_U == 0) | (frequency_U == 1)
    pattern_QG = np.concatenate(found[:n_blocks], axis=1)
    gap_U = np.searchsorted(tile.site_start_G1, np.arange(600), side="right") - 1
    pattern_UQ = pattern_QG.T[gap_U]
    there_UQ = (pattern_UQ != NO_AGREEMENT) & ~monomorphic_U[:, None]
    assert 0.2 < there_UQ.mean() < 0.9
    np.testing.assert_allclose(agreed_UQ[~there_UQ], everywhere_UQ[~there_UQ], atol=2e-6)
    certain = AGREED_PROBABILITY + posterior_weight(160) * (1 - AGREED_PROBABILITY)
    minor_UQ = np.where(frequency_U[:, None] > 0.5, 1 - agreed_UQ, agreed_UQ)
    for u, q in np.argwhere(there_UQ):
        g, first = gap_U[u], tile.site_start_G1[gap_U[u]]
        words = patterns.gaps.first_word_G[g] + pattern_UQ[u, q]  # gaps have six sites: a word each
        carried = patterns.gaps.minor_W[words] >> np.uint64(u - first) & np.uint64(1)
        if carried:
            assert minor_UQ[u, q] == pytest.approx(certain, abs=1e-6)
        else:
            assert minor_UQ[u, q] == 0


def test_regions_that_cut_a_block_with_many_sites(
    panel: spinimpute.Panel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The results of a region must be those of the whole block."""
    monkeypatch.setattr("spinimpute.predictors.haplotype_attention.tile.WHOLE_BLOCK_SITES", 80)
    with panel:
        for window in (Interval(0, 600), Interval(0, 250)):
            blocks = read_tile(panel, TYPED, 0, window).blocks
            assert [block.whole for block in blocks] == [block.gaps.first_gap == 96 for block in blocks]


def test_an_allele_that_nobody_has_where_others_are_certain() -> None:
    out_UQ = np.empty((1, 2), np.float32)
    weights = random_predictor()._decoder._replace(
        absent_spread_E=np.zeros(2, np.float32),
        absent_site_F=np.array([120], np.float32),
        absent_bias=np.float32(0),
    )
    sites = SiteFeatures(np.array([0]), np.array([[1.0]], np.float32), np.array([False]), np.array([0.1]))
    agreed_QG = np.array([[3], [NO_AGREEMENT]], np.int32)
    _fill_absent(weights, np.zeros((2, 1, 2), np.float32), agreed_QG, sites, out_UQ)
    assert out_UQ[0, 0] == 0
    assert out_UQ[0, 1] == pytest.approx(1)


def test_copies_of_trusted_alleles_fit_into_bytes() -> None:
    assert (
        max(agreement.MIN_COPIES, copying.MIN_TRUSTED_COPIES)
        <= agreement.MAX_COPIES
        == np.iinfo(np.uint8).max
    )
