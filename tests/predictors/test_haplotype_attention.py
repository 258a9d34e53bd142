"""Haplotype attention: the kernels compute the same as the torch model, and copies come back."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import spinimpute
from spinimpute.genotypes.intervals import Interval
from spinimpute.hmm import parameters
from spinimpute.hmm.parameters import JUMPS_PER_CM, MISMATCH
from spinimpute.hmm.pbwt import find_candidates, unite
from spinimpute.hmm.posteriors import copying_posteriors
from spinimpute.hmm.steps import allele_emissions, jump_probabilities
from spinimpute.hmm.typed_alleles import TypedAlleles
from spinimpute.nn.model_weights import arrays_of
from spinimpute.panels.stored_rows import RowLayout, store_rows
from spinimpute.predictors.haplotype_attention import copying, posterior_alleles
from spinimpute.predictors.haplotype_attention.copying import hash_rows, scramble
from spinimpute.predictors.haplotype_attention.engine import PanelRates, TileTask
from spinimpute.predictors.haplotype_attention.ibs_classes import (
    FEATURES,
    LOG_COUNT,
    BlockCandidates,
    GapDistances,
    IBSClasses,
    Information,
    find_ibs_classes,
)
from spinimpute.predictors.haplotype_attention.network import HaplotypeAttention, copy_alleles, spread
from spinimpute.predictors.haplotype_attention.pair_network import PairWeights
from spinimpute.predictors.haplotype_attention.predictor import DevicePairNetwork, HaplotypePredictor
from spinimpute.predictors.haplotype_attention.settings import HaplotypeSettings, gap_features, site_features
from spinimpute.predictors.haplotype_attention.tile import (
    HASHED_SITES,
    MIN_POSTERIOR_SHARE,
    read_patterns,
    read_tile,
    windows_of_tiles,
)
from spinimpute.predictors.train import train
from spinimpute.predictors.typed_tiles import FLANK, MAX_FLANK, add_flanks, flank_reach, tiles_between
from tests.predictors.test_train import configuration

pytestmark = pytest.mark.slow

Mosaic = Callable[..., np.ndarray]


def random_model(seed: int = 0) -> HaplotypeAttention:
    torch.manual_seed(seed)
    model = HaplotypeAttention(HaplotypeSettings())
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, 0, 0.3)
    return model


def random_predictor(classes: int = 12, seed: int = 0) -> HaplotypePredictor:
    model = random_model(seed)
    return HaplotypePredictor(arrays_of(model.state_dict()), model.settings, "random", classes=classes)


@pytest.fixture(params=[False, True], ids=["small", "large"])
def of_any_size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param:
        monkeypatch.setattr(parameters, "MAX_PANEL_AS_STATES", 0)
        monkeypatch.setattr(posterior_alleles, "SMALL_PANEL", 5)
        monkeypatch.setattr(posterior_alleles, "LARGE_PANEL", 6)


def test_classes_depend_on_the_size_of_the_panel() -> None:
    sizes = (600, 5_000, 6_000, 11_000, 20_000, 200_000)
    predictor = random_predictor(classes=22)
    dense = [predictor.max_classes(n, 1.0) for n in sizes]
    assert dense[:3] == [22, 22, 22]
    assert 12 < dense[3] < 22
    assert dense[4:] == [12, 12]
    assert [predictor.max_classes(n, 2.0) for n in sizes] == [44] * 6  # where typed sites are sparse
    assert 12 < predictor.max_classes(20_000, 1.5) < 33 == predictor.max_classes(600, 1.5)
    assert random_predictor(classes=8).max_classes(20_000, 1.0) == 8


PanelOf = Callable[..., spinimpute.Panel]


@pytest.fixture(scope="module")
def sites(mosaic: Mosaic) -> np.ndarray:
    rng = np.random.default_rng(5)
    alleles = mosaic(rng, 700, 60, founders=9, errors=0.02)
    alleles[:, 40:44] = alleles[:, :4]  # samples that are in the panel twice
    alleles[100] = 0
    return alleles


TYPED = np.arange(3, 700, 4)
RATES = PanelRates(JUMPS_PER_CM, np.ones(1, np.float32))  # the odds of rare alleles stay as they are


@pytest.mark.usefixtures("of_any_size")
@pytest.mark.parametrize("typed", [[350], [0], [699], [10, 11], list(range(300, 330))])
def test_edges_and_few_typed_sites(
    sites: np.ndarray, panel_of: PanelOf, tmp_path: Path, typed: list[int]
) -> None:
    settings = spinimpute.PredictorSettings(model=random_predictor())
    with panel_of(tmp_path / "a.spin", sites) as panel:
        index = np.array(typed)
        p = spinimpute.impute_haplotypes(panel, sites[index, :4], index, predictor=settings)
        nothing = spinimpute.impute_haplotypes(panel, np.full((len(index), 1), -1), index, predictor=settings)
        np.testing.assert_allclose(nothing[:, 0], panel.frequency, atol=1e-6)
    assert np.isfinite(p).all()
    assert ((p >= 0) & (p <= 1)).all()


@settings(
    deadline=None, max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture], database=None
)
@given(
    seed=st.integers(0, 2**20),
    classes=st.integers(1, 24),
    founders=st.integers(2, 30),
    errors=st.sampled_from([0.0, 0.02, 0.3]),
)
def test_imputing_computes_the_same_as_training(
    mosaic: Mosaic, panel_of: PanelOf, tmp_path: Path, seed: int, classes: int, founders: int, errors: float
) -> None:
    """Compare the kernels with the torch model class by class, for random weights and panels."""
    predictor = random_predictor(classes, seed)
    model, k = random_model(seed), predictor.classes
    rng = np.random.default_rng(seed)
    query_TQ = mosaic(rng, 700, 5)[TYPED].astype(np.int8)
    query_TQ[7, 1] = -1
    sites = mosaic(rng, 700, 60, founders=founders, errors=errors)
    sites[:, 40:44] = sites[:, :4]
    sites[100] = 0
    made = tmp_path / f"{len(list(tmp_path.iterdir()))}.spin"
    alone = mock.patch.object(posterior_alleles, "SMALLEST_WEIGHT", 0.0)  # posteriors are not mixed in
    with panel_of(made, sites) as panel, torch.inference_mode(), alone:
        tile = read_tile(panel, TYPED, 0, Interval(0, 700))
        # in blocks that are cut the networks compute everywhere
        tile = replace(tile, blocks=tuple(replace(block, whole=False) for block in tile.blocks))
        of_tile = unite(*(predictor.find_matches(tile, query_TQ, on_left) for on_left in (True, False)))
        patterns = read_patterns(panel, tile)
        p_UQ = predictor.impute_tile(TileTask(panel, tile, patterns, query_TQ, None, of_tile, RATES))
        queries = TypedAlleles.from_alleles(query_TQ[: len(tile.cM_S)])
        place_B, n_gaps_B = blocks = tile.block_places
        candidates = find_candidates(tile.panel, tile.panel_backwards, queries, *blocks, predictor.candidates)
        posterior_CP, candidates = copying_posteriors(
            tile.spans, tile.panel.bits_NW, allele_emissions(queries.alleles_SX.T, MISMATCH),
            jump_probabilities(tile.cM_S, panel.n_haplotypes),
            candidates, *blocks, MIN_POSTERIOR_SHARE,
        )  # fmt: skip
        information = Information.of(queries.alleles_SX, tile.frequency_S, panel.n_haplotypes)
        for b in (0, 1, len(place_B) - 1):
            first, n_gaps = b * copying.BLOCK_GAPS, int(n_gaps_B[b])
            place_G = place_B[b] + np.arange(n_gaps)
            chosen = BlockCandidates(candidates.haplotype_C, posterior_CP, candidates.first_BQ1[b])
            distances = GapDistances.of(tile.cM_S, int(place_G[0]), n_gaps)
            m = find_ibs_classes(tile.panel, queries, information, chosen, distances, k)
            gap_GF = torch.from_numpy(gap_features(tile.cM_S, place_G, panel.n_haplotypes))
            weights = model.weigh(torch.from_numpy(m.features_QGFK), torch.from_numpy(m.count_QGK), gap_GF)
            for g in range(n_gaps):
                start, stop = tile.site_start_G1[first + g : first + g + 2].tolist()
                bits_NU = pattern_bits(patterns.gaps, first + g, stop - start)
                shares = np.zeros((2, 5, 1, stop - start, k), np.float32)
                for q in range(5):
                    for c in range(k):
                        n_members = int(m.count_QGK[q, g, c])
                        who = m.member_M[m.first_QGK[q, g, c] :][:n_members]
                        if n_members:
                            shares[0, q, 0, :, c] = bits_NU[who].mean(0)
                            shares[1, q, 0, :, c] = bits_NU[tile.sibling_N[who]].mean(0)
                here = type(weights)(*(x[:, g : g + 1] for x in weights))
                left, right = (tile.cM_S[np.clip(place_G[g] + d, 0, len(tile.cM_S) - 1)] for d in (-1, 0))
                cM_U = panel.cM[start:stop]
                t_U = np.clip((cM_U - left) / max(right - left, 1e-12), 0, 1)
                if place_G[g] == 0:
                    t_U = np.ones_like(t_U)
                if place_G[g] == len(tile.cM_S):
                    t_U = np.zeros_like(t_U)
                frequency = panel.frequency[start:stop]
                minor = np.minimum(frequency, 1 - frequency)
                f, t, dl, dr = (x[None] for x in (minor, t_U, abs(cM_U - left), abs(right - cM_U)))
                copied = copy_alleles(
                    here, torch.from_numpy(m.count_QGK[:, g : g + 1]), torch.from_numpy(shares[0]),
                    torch.from_numpy(shares[1]), torch.from_numpy(t.astype(np.float32)),
                )  # fmt: skip
                shape = copied.p.shape
                spread_X = spread(here.weight_QGEK)[:, :, None].expand(*shape, -1)
                site_X = torch.from_numpy(site_features(f, t, dl, dr, panel.n_haplotypes)).expand(*shape, -1)
                found = (copied.p > 0) | (copied.sibling_p > 0)
                logit = torch.where(
                    found, model.decode(copied, spread_X, site_X)[1], model.decode_absent(spread_X, site_X)
                )
                minor = torch.sigmoid(logit)[:, 0].T.numpy()
                expected = np.where(frequency[:, None] > 0.5, 1 - minor, minor)
                constant = (frequency == 0) | (frequency == 1)
                expected[constant] = frequency[constant, None]
                typed = np.isin(np.arange(start, stop), TYPED)  # a gap may have no untyped site
                # random weights magnify the errors of the kernels' short polynomials
                np.testing.assert_allclose(p_UQ[start:stop][~typed], expected[~typed], atol=2e-3)


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_windows_are_whole_tiles(data: st.DataObject) -> None:
    n_sites = data.draw(st.integers(1, 3_000))
    typed = np.flatnonzero(np.random.default_rng(data.draw(st.integers(0, 99))).random(n_sites) < 0.6)
    first = data.draw(st.integers(0, n_sites - 1))
    last = data.draw(st.integers(first + 1, n_sites))
    most = data.draw(st.integers(40, 2_000))
    length = data.draw(st.sampled_from([0.1, 5.0, np.inf]))
    cM = np.arange(n_sites) * 0.01
    windows = windows_of_tiles(cM, typed, Interval(first, last), length, most)
    bounds = [w.start for w in windows] + [windows[-1].stop]
    assert (bounds[0], bounds[-1]) == (first, last)
    assert all(w.start < w.stop == after for w, after in zip(windows, bounds[1:], strict=True))
    for w in windows:
        tiles = tiles_between(w.start, w.stop, typed)
        if len(tiles) > 1:
            assert w.stop - w.start <= most
            assert cM[w.stop - 1] - cM[w.start] <= length
        # only a tile that is too large is shared
        for other in windows:
            if other is not w and set(tiles) & set(tiles_between(other.start, other.stop, typed)):
                shared = [x for x in windows if set(tiles_between(x.start, x.stop, typed)) & set(tiles)]
                assert sum(x.stop - x.start for x in shared) > most


def test_flanks_reach_further_where_typed_sites_are_dense() -> None:
    n = 4_000
    sparse, dense = np.arange(n) * 0.01, np.arange(n) * 0.0005
    assert add_flanks(sparse, Interval(1_000, 1_010), 0.3) == (1_000 - FLANK, 1_010 + FLANK)
    low, high = add_flanks(dense, Interval(1_000, 1_010), 0.3)
    assert dense[1_000] - dense[low] == pytest.approx(0.3, abs=0.001)
    assert dense[high - 1] - dense[1_009] == pytest.approx(0.3, abs=0.001)
    assert add_flanks(dense / 100, Interval(2_000, 2_010), 0.3) == (2_000 - MAX_FLANK, 2_010 + MAX_FLANK)
    assert add_flanks(dense[:5], Interval(-1, 6), 0.3) == (0, 5)
    assert [flank_reach(n) for n in (600, 7_500, 200_000)] == [0.3, 0.5, 1.0]


def test_the_pair_network_of_a_device() -> None:
    model, rng = random_model(), np.random.default_rng(6)
    weights = arrays_of(model.state_dict())
    features_QGFK = rng.normal(0, 1, (3, 4, FEATURES, 5)).astype(np.float32)
    count_QGK = np.repeat(np.array([3, 1, 2, 1, 0], np.float32)[None, None], 3, 0).repeat(4, 1)
    features_QGFK[:, :, LOG_COUNT] = np.log(np.maximum(count_QGK, 1))
    gap_GF = rng.normal(0, 1, (4, 2)).astype(np.float32)
    count_QGK[1, 2], features_QGFK[1, 2] = 0, np.nan  # undefined in a gap that is not computed
    classes = IBSClasses(features_QGFK, count_QGK, np.zeros((3, 4, 5), np.int32), np.zeros(0, np.int32))
    here = PairWeights.of(weights).weigh(classes, gap_GF)
    there = DevicePairNetwork(weights, model.settings, "cpu").weigh(classes, gap_GF)
    asked_QG = count_QGK[:, :, 0] > 0
    for found, expected in zip(here[:3], there[:3], strict=True):  # undefined for absent classes
        np.testing.assert_allclose(found[asked_QG][..., :4], expected[asked_QG][..., :4], atol=1e-4)
    np.testing.assert_allclose(here[3][asked_QG], there[3][asked_QG], atol=1e-4)
    assert not any(np.isnan(numbers).any() for numbers in there)


def pattern_bits(patterns: copying.GapPatterns, gap: int, n_sites: int) -> np.ndarray:
    """Minor alleles of all haplotypes at a gap's sites, (N, U)."""
    pattern_BNG, count_G, first_word_G, minor_W, _ = patterns
    width = (n_sites + 63) // 64
    words = minor_W[first_word_G[gap] :][: count_G[gap] * width].reshape(count_G[gap], width)
    bits = (words[:, :, None] >> np.arange(64, dtype=np.uint64)) & np.uint64(1)
    pattern_N = pattern_BNG[gap // copying.BLOCK_GAPS][:, gap % copying.BLOCK_GAPS]
    return bits.reshape(count_G[gap], -1)[pattern_N, :n_sites].astype(np.float32)


def test_patterns_of_gaps_have_the_minor_alleles(
    sites: np.ndarray, panel_of: PanelOf, tmp_path: Path
) -> None:
    with panel_of(tmp_path / "a.spin", sites) as panel:
        start_G1 = np.array([3, 3, 70, 200, 201, 201, 690])
        order_N = np.arange(panel.n_haplotypes)[::-1].copy()
        rows = panel.stored_rows(3, 690)
        assert 0 < rows.listed_X.sum() < len(rows.listed_X)
        patterns = copying.gap_patterns(rows, start_G1 - 3, order_N, panel.allele_count[3:690])
        for gap in (0, 1, 2, 5):
            minor_NU = pattern_bits(patterns, gap, int(start_G1[gap + 1] - start_G1[gap]))
            alleles_UN = panel.alleles(int(start_G1[gap]), int(start_G1[gap + 1]))[:, order_N]
            flip_U = panel.frequency[start_G1[gap] : start_G1[gap + 1]] > 0.5
            np.testing.assert_array_equal(minor_NU.T, alleles_UN ^ flip_U[:, None])


def test_more_patterns_than_16_bits_can_number() -> None:
    n, n_sites = 70_000, 17
    alleles_UN = (np.arange(n) >> np.arange(n_sites)[:, None] & 1).astype(np.uint8)
    packed, count = np.packbits(alleles_UN, axis=1), alleles_UN.sum(axis=1)
    rows = RowLayout.of(count, n).rows(np.frombuffer(store_rows(packed, n), np.uint8))
    patterns = copying.gap_patterns(rows, np.array([0, n_sites]), np.arange(n), count)
    assert patterns.count_G.tolist() == [n]
    flip_U1 = (count > n / 2)[:, None]
    np.testing.assert_array_equal(pattern_bits(patterns, 0, n_sites).T, alleles_UN ^ flip_U1)


HAPLOTYPE = 'kind = "haplotype"\nclasses = 8\nhidden = 8'
EPISODES = """foreign_share = 0.5
most_entries = 20_000
rare_phase_error = [0.5]
wrong_common_call = [0.01]
switch_rate = [5.0]
[simulation]
demes = 3
poor_share = 0.5
"""


def test_a_model_is_trained_and_imputes(panel_of: PanelOf, tmp_path: Path, sites: np.ndarray) -> None:
    config = configuration(tmp_path, HAPLOTYPE, steps=4)
    text = config.read_text().replace("array_density = [300, 800.0]\n[simulation]\n", EPISODES)
    config.write_text(text.replace("queries = 6", "queries = 4").replace("blocks = 2", "blocks = 1"))
    assert train(config, tmp_path / "m.safetensors", threads=1).steps == 4
    model = spinimpute.load_predictor(tmp_path / "m.safetensors")
    assert model.kind == "haplotype"
    with panel_of(tmp_path / "a.spin", sites) as panel:
        p = spinimpute.impute_haplotypes(
            panel, sites[TYPED, :2], TYPED, predictor=spinimpute.PredictorSettings(model=model)
        )
        frequencies = np.repeat(panel.frequency[:, None], 2, axis=1)
    untyped = np.setdiff1d(np.arange(700), TYPED)
    truth = sites[untyped, :2].ravel()
    r, r_of_frequencies = (np.corrcoef(x[untyped].ravel(), truth)[0, 1] for x in (p, frequencies))
    assert r > r_of_frequencies + 0.1  # even four steps make a model that depends on its query


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 10**6), st.sampled_from([1, 7, 8, 63, 64, 65, 4_096, 4_160, 5_000]), st.integers(0, 40))
def test_hashes_are_sums_over_differing_bits(seed: int, n: int, n_rows: int) -> None:
    rng = np.random.default_rng(seed)
    alleles = (rng.random((n_rows, n)) < rng.choice([0.001, 0.3, 0.99], (n_rows, 1))).astype(np.uint8)
    packed, count = np.packbits(alleles, axis=1), alleles.sum(axis=1)
    rows = RowLayout.of(count, n).rows(np.frombuffer(store_rows(packed, n), np.uint8))
    flip = (count > n / 2).astype(np.uint8)
    found = np.zeros(n, np.uint64)
    hash_rows(rows, 0, n_rows, 3 + np.arange(n_rows), found)
    number = np.array([scramble(np.uint64(3 + x)) for x in range(n_rows)], np.uint64)
    with np.errstate(over="ignore"):
        expected = ((alleles != flip[:, None]) * number[:, None]).sum(axis=0, dtype=np.uint64)
    np.testing.assert_array_equal(found, expected)


def test_monomorphic_sites_in_a_long_gap(mosaic: Mosaic, panel_of: PanelOf, tmp_path: Path) -> None:
    """The choice of the sites that are hashed does not depend on monomorphic sites."""
    n = 2 * HASHED_SITES + 500
    alleles = mosaic(np.random.default_rng(1), n, 40)
    positions = 1_000 + 100 * np.arange(n)
    inserted = np.zeros((n // 2, 40), np.uint8)
    inserted[::3] = 1
    more = np.concatenate([positions, positions[::2] + 50])
    by_position = np.argsort(more)
    orders = []
    for name, rows, at in (
        ("a", alleles, positions),
        ("b", np.concatenate([alleles, inserted])[by_position], more[by_position]),
    ):
        with panel_of(tmp_path / f"{name}.spin", rows, positions=at) as panel:
            typed = np.searchsorted(panel.position, positions[[0, -1]])
            orders.append(read_tile(panel, typed, 0, Interval(0, panel.n_sites)).order_N)
    np.testing.assert_array_equal(*orders)
