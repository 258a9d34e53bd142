"""Haplotype attention from arrays to files: the same as in training, blind to order, true to copies."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from unittest import mock

import cyvcf2
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import spinimpute
from spinimpute.genotypes.genetic_map import GeneticMap
from spinimpute.genotypes.intervals import Interval
from spinimpute.hmm import parameters
from spinimpute.hmm.emissions import allele_emissions
from spinimpute.hmm.parameters import JUMPS_PER_CM, MISMATCH
from spinimpute.hmm.pbwt import find_candidates, unite
from spinimpute.hmm.posteriors import copying_posteriors
from spinimpute.hmm.transitions import jump_probabilities
from spinimpute.hmm.typed_alleles import TypedAlleles
from spinimpute.nn.model_weights import arrays_of
from spinimpute.panels.stored_rows import RowLayout, store_rows
from spinimpute.predictors.haplotype_attention import copying, posterior_alleles
from spinimpute.predictors.haplotype_attention.chunk import prepare_chunk, read_patterns, windows_of_chunks
from spinimpute.predictors.haplotype_attention.copying import hash_rows, scramble
from spinimpute.predictors.haplotype_attention.ibs_classes import (
    FEATURES,
    LOG_COUNT,
    GapDistances,
    Information,
    find_ibs_classes,
)
from spinimpute.predictors.haplotype_attention.network import HaplotypeAttention, copy_alleles, spread
from spinimpute.predictors.haplotype_attention.pair_network import PairWeights, weigh
from spinimpute.predictors.haplotype_attention.predictor import (
    LEAST_SHARE,
    DevicePairNetwork,
    HaplotypePredictor,
    least_share,
)
from spinimpute.predictors.haplotype_attention.settings import HaplotypeSettings, gap_features, site_features
from spinimpute.predictors.train import train
from spinimpute.predictors.typed_chunks import FLANK, MOST_FLANK, chunks_between, reach, with_flanks

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
    """Panels are imputed as small ones are, and as large ones."""
    if request.param:
        monkeypatch.setattr(parameters, "MOST_STATES", 0)
        monkeypatch.setattr(posterior_alleles, "SMALL", 5)
        monkeypatch.setattr(posterior_alleles, "LARGE", 6)


def test_what_candidates_need_and_classes_by_the_size_of_the_panel() -> None:
    sizes = (600, 5_000, 6_000, 11_000, 20_000, 200_000)
    assert [least_share(n) / n for n in sizes] == pytest.approx([0.5 / 600] + 5 * [1e-4])
    predictor = random_predictor(classes=22)
    dense = [predictor.most_classes(n, 1.0) for n in sizes]
    assert dense[:3] == [22, 22, 22]
    assert 12 < dense[3] < 22
    assert dense[4:] == [12, 12]
    assert [predictor.most_classes(n, 2.0) for n in sizes] == [44] * 6  # where typed sites are sparse
    assert 12 < predictor.most_classes(20_000, 1.5) < 33 == predictor.most_classes(600, 1.5)
    assert random_predictor(classes=8).most_classes(20_000, 1.0) == 8


def write_vcf(path: Path, samples: Sequence[str], positions: np.ndarray, calls: list[list[str]]) -> Path:
    with path.open("w") as file:
        file.write(
            '##fileformat=VCFv4.2\n##contig=<ID=1>\n##FORMAT=<ID=GT,Number=1,Type=String,Description="G">\n'
        )
        file.write("#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\tFORMAT\t" + "\t".join(samples) + "\n")
        for position, row in zip(positions, calls, strict=True):
            file.write(f"1\t{position}\t.\tA\tC\t.\t.\t.\tGT\t" + "\t".join(row) + "\n")
    return path


def panel_of(alleles_XN: np.ndarray, path: Path, people: np.ndarray | None = None) -> spinimpute.Panel:
    """people: their numbers, which are in their names."""
    positions = 1_000 + 400 * np.arange(len(alleles_XN))
    calls = [[f"{a}|{b}" for a, b in zip(row[::2], row[1::2], strict=True)] for row in alleles_XN]
    names = [f"p{i}" for i in (range(alleles_XN.shape[1] // 2) if people is None else people)]
    constant = GeneticMap(np.array([1.0, 1e7]), np.array([0.0, 10.0]))
    return spinimpute.build_panel(
        write_vcf(path.with_suffix(".vcf"), names, positions, calls), path, constant
    )


@pytest.fixture(scope="module")
def sites(mosaic: Mosaic) -> np.ndarray:
    rng = np.random.default_rng(5)
    alleles = mosaic(rng, 700, 60, founders=9, errors=0.02)
    alleles[:, 40:44] = alleles[:, :4]  # people that are twice in the panel
    alleles[100] = 0
    return alleles


TYPED = np.arange(3, 700, 4)
ONE = np.ones(1, np.float32)  # odds of rare alleles are left as they are


def test_the_order_of_people_and_of_their_haplotypes_changes_nothing(
    mosaic: Mosaic, sites: np.ndarray, tmp_path: Path
) -> None:
    rng = np.random.default_rng(2)
    predictor = random_predictor()
    query = mosaic(rng, 700, 6)[TYPED]
    people = rng.permutation(30)
    columns = np.stack([2 * people + 1, 2 * people], axis=1).ravel()
    with (
        panel_of(sites, tmp_path / "a.spin") as panel,
        panel_of(sites[:, columns], tmp_path / "b.spin", people) as other,
    ):
        first, second = (
            spinimpute.impute_haplotypes(
                p, query, TYPED, predictor=spinimpute.PredictorSettings(model=predictor)
            )
            for p in (panel, other)
        )
    np.testing.assert_allclose(first, second, atol=2e-6)
    assert first.std() > 0.05
    np.testing.assert_array_equal(first[100], 0)


@pytest.mark.usefixtures("of_any_size")
def test_queries_threads_and_missing_calls_of_others_have_no_influence(
    mosaic: Mosaic, sites: np.ndarray, tmp_path: Path
) -> None:
    predictor = random_predictor()
    query = mosaic(np.random.default_rng(3), 700, 8)[TYPED].astype(np.int8)
    with panel_of(sites, tmp_path / "a.spin") as panel:
        together = spinimpute.impute_haplotypes(
            panel,
            query,
            TYPED,
            predictor=spinimpute.PredictorSettings(model=predictor),
            resources=spinimpute.Resources(threads=1),
        )
        np.testing.assert_array_equal(
            together,
            spinimpute.impute_haplotypes(
                panel,
                query,
                TYPED,
                predictor=spinimpute.PredictorSettings(model=predictor),
                resources=spinimpute.Resources(threads=3),
            ),
        )
        alone = spinimpute.impute_haplotypes(
            panel, query[:, 2:3], TYPED, predictor=spinimpute.PredictorSettings(model=predictor)
        )
        query[::2, 5] = -1
        disturbed = spinimpute.impute_haplotypes(
            panel, query, TYPED, predictor=spinimpute.PredictorSettings(model=predictor)
        )
    np.testing.assert_allclose(together[:, 2], alone[:, 0], atol=2e-6)
    np.testing.assert_allclose(together[:, 2], disturbed[:, 2], atol=2e-6)
    assert np.isfinite(disturbed).all()


@pytest.mark.usefixtures("of_any_size")
@pytest.mark.parametrize("typed", [[350], [0], [699], [10, 11], list(range(300, 330))])
def test_edges_and_few_typed_sites(sites: np.ndarray, tmp_path: Path, typed: list[int]) -> None:
    with panel_of(sites, tmp_path / "a.spin") as panel:
        index = np.array(typed)
        p = spinimpute.impute_haplotypes(
            panel, sites[index, :4], index, predictor=spinimpute.PredictorSettings(model=random_predictor())
        )
        nothing = spinimpute.impute_haplotypes(
            panel,
            np.full((len(index), 1), -1),
            index,
            predictor=spinimpute.PredictorSettings(model=random_predictor()),
        )
        np.testing.assert_allclose(nothing[:, 0], panel.frequency, atol=1e-6)
    assert np.isfinite(p).all()
    assert ((p >= 0) & (p <= 1)).all()


@pytest.mark.usefixtures("of_any_size")
def test_windows_have_no_influence(sites: np.ndarray, tmp_path: Path) -> None:
    predictor = random_predictor()
    calls = [[f"{a}|{b}" for a, b in zip(row[::2], row[1::2], strict=True)] for row in sites[TYPED, :6]]
    target = write_vcf(tmp_path / "t.vcf", ["a", "b", "c"], 1_000 + 400 * TYPED, calls)
    dosages = []
    with panel_of(sites, tmp_path / "a.spin") as panel:
        for i, window in enumerate((10.0, 0.02)):
            out = tmp_path / f"{i}.bcf"
            spinimpute.impute(
                target,
                out,
                panel,
                predictor=spinimpute.PredictorSettings(model=predictor, options={"window_cM": window}),
            )
            dosages.append([record.format("DS")[:, 0].tolist() for record in cyvcf2.VCF(str(out))])
    np.testing.assert_allclose(dosages[0], dosages[1], atol=1.01e-4)


@settings(
    deadline=None, max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture], database=None
)
@given(
    seed=st.integers(0, 2**20),
    classes=st.integers(1, 24),
    founders=st.integers(2, 30),
    errors=st.sampled_from([0.0, 0.02, 0.3]),
)
def test_at_work_it_computes_what_training_computes(
    mosaic: Mosaic, tmp_path: Path, seed: int, classes: int, founders: int, errors: float
) -> None:
    """Random weights and panels: the kernels against the torch model, class by class."""
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
    with panel_of(sites, made) as panel, torch.inference_mode(), alone:
        chunk = prepare_chunk(panel, TYPED, 0, Interval(0, 700))
        # of blocks that are cut, networks are asked everywhere
        chunk = replace(chunk, blocks=tuple(replace(block, whole=False) for block in chunk.blocks))
        of_chunk = unite(*(predictor.find_matches(chunk, query_TQ, on_left) for on_left in (True, False)))
        patterns = read_patterns(panel, chunk)
        p_UQ = predictor.impute_chunk(panel, chunk, patterns, query_TQ, None, of_chunk, JUMPS_PER_CM, ONE)
        queries = TypedAlleles.of(query_TQ[: len(chunk.cM_S)])
        first_B, n_gaps_B = chunk.block_gaps()
        candidates = find_candidates(
            chunk.panel,
            chunk.panel_backwards,
            queries,
            chunk.right_place(first_B),
            n_gaps_B,
            predictor.candidates,
        )
        posterior_CP, candidates = copying_posteriors(
            chunk.spans, chunk.panel.bits_NW, allele_emissions(queries.alleles_SX.T, MISMATCH),
            jump_probabilities(chunk.cM_S, panel.n_haplotypes),
            candidates, chunk.right_place(first_B), n_gaps_B, LEAST_SHARE,
        )  # fmt: skip
        information = Information.of(queries.alleles_SX, chunk.frequency_S, panel.n_haplotypes)
        for b in (0, 1, len(first_B) - 1):
            first, n_gaps = int(first_B[b]), int(n_gaps_B[b])
            place_G = chunk.right_place(first + np.arange(n_gaps))
            m = find_ibs_classes(
                chunk.panel.bits_NW, queries.bits_XW, queries.known_XW, information,
                candidates.haplotype_C, posterior_CP, candidates.first_BQ1[b],
                GapDistances.of(chunk.cM_S, int(place_G[0]), n_gaps), k,
            )  # fmt: skip
            gap_GF = torch.from_numpy(gap_features(chunk.cM_S, place_G, panel.n_haplotypes))
            weights = model.weigh(torch.from_numpy(m.features_QGFK), torch.from_numpy(m.count_QGK), gap_GF)
            for g in range(n_gaps):
                start, stop = chunk.site_start_G1[first + g : first + g + 2].tolist()
                bits_NU = pattern_bits(patterns.gaps, first + g, stop - start)
                shares = np.zeros((2, 5, 1, stop - start, k), np.float32)
                for q in range(5):
                    for c in range(k):
                        n_members = int(m.count_QGK[q, g, c])
                        who = m.member_M[m.first_QGK[q, g, c] :][:n_members]
                        if n_members:
                            shares[0, q, 0, :, c] = bits_NU[who].mean(0)
                            shares[1, q, 0, :, c] = bits_NU[chunk.sibling_N[who]].mean(0)
                here = type(weights)(*(x[:, g : g + 1] for x in weights))
                left, right = (chunk.cM_S[np.clip(place_G[g] + d, 0, len(chunk.cM_S) - 1)] for d in (-1, 0))
                cM_U = panel.cM[start:stop]
                t_U = np.clip((cM_U - left) / max(right - left, 1e-12), 0, 1)
                if place_G[g] == 0:
                    t_U = np.ones_like(t_U)
                if place_G[g] == len(chunk.cM_S):
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
                typed = np.isin(
                    np.arange(start, stop), TYPED
                )  # without an untyped site there is nothing to impute
                # random weights magnify what the kernels' short polynomials leave out
                np.testing.assert_allclose(p_UQ[start:stop][~typed], expected[~typed], atol=2e-3)


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_windows_are_whole_chunks(data: st.DataObject) -> None:
    n_sites = data.draw(st.integers(1, 3_000))
    typed = np.flatnonzero(np.random.default_rng(data.draw(st.integers(0, 99))).random(n_sites) < 0.6)
    first = data.draw(st.integers(0, n_sites - 1))
    last = data.draw(st.integers(first + 1, n_sites))
    most = data.draw(st.integers(40, 2_000))
    length = data.draw(st.sampled_from([0.1, 5.0, np.inf]))
    cM = np.arange(n_sites) * 0.01
    windows = windows_of_chunks(cM, typed, first, last, length, most)
    bounds = [w.start for w in windows] + [windows[-1].stop]
    assert (bounds[0], bounds[-1]) == (first, last)
    assert all(w.start < w.stop == after for w, after in zip(windows, bounds[1:], strict=True))
    assert [w.index for w in windows] == list(range(len(windows)))
    for w in windows:
        chunks = chunks_between(w.start, w.stop, typed)
        if len(chunks) > 1:
            assert w.stop - w.start <= most
            assert cM[w.stop - 1] - cM[w.start] <= length
        # only a chunk that is too large is shared
        for other in windows:
            if other is not w and set(chunks) & set(chunks_between(other.start, other.stop, typed)):
                shared = [x for x in windows if set(chunks_between(x.start, x.stop, typed)) & set(chunks)]
                assert sum(x.stop - x.start for x in shared) > most


def test_flanks_reach_further_where_typed_sites_are_dense() -> None:
    n = 4_000
    sparse, dense = np.arange(n) * 0.01, np.arange(n) * 0.0005
    assert with_flanks(sparse, 1_000, 1_010, 0.3) == (1_000 - FLANK, 1_010 + FLANK)
    low, high = with_flanks(dense, 1_000, 1_010, 0.3)
    assert dense[1_000] - dense[low] == pytest.approx(0.3, abs=0.001)
    assert dense[high - 1] - dense[1_009] == pytest.approx(0.3, abs=0.001)
    assert with_flanks(dense / 100, 2_000, 2_010, 0.3) == (2_000 - MOST_FLANK, 2_010 + MOST_FLANK)
    assert with_flanks(dense[:5], -1, 6, 0.3) == (0, 5)
    assert (reach(600), reach(7_500), reach(200_000)) == (0.3, 0.5, 1.0)


def test_the_pair_network_of_a_device() -> None:
    """Its numbers, in float32, are those of the kernel."""
    model, rng = random_model(), np.random.default_rng(6)
    weights = arrays_of(model.state_dict())
    features_QGFK = rng.normal(0, 1, (3, 4, FEATURES, 5)).astype(np.float32)
    count_QGK = np.repeat(np.array([3, 1, 2, 1, 0], np.float32)[None, None], 3, 0).repeat(4, 1)
    features_QGFK[:, :, LOG_COUNT] = np.log(np.maximum(count_QGK, 1))
    gap_GF = rng.normal(0, 1, (4, 2)).astype(np.float32)
    count_QGK[1, 2], features_QGFK[1, 2] = 0, np.nan  # a gap that nobody asks for has anything
    here = weigh(PairWeights.of(weights), features_QGFK, count_QGK, gap_GF)
    there = DevicePairNetwork(weights, model.settings, "cpu")(features_QGFK, count_QGK, gap_GF)
    asked_QG = count_QGK[:, :, 0] > 0
    for found, expected in zip(here[:3], there[:3], strict=True):  # of the classes that there are
        np.testing.assert_allclose(found[asked_QG][..., :4], expected[asked_QG][..., :4], atol=1e-4)
    np.testing.assert_allclose(here[3][asked_QG], there[3][asked_QG], atol=1e-4)
    assert not any(np.isnan(numbers).any() for numbers in there)


def pattern_bits(patterns: copying.GapPatterns, gap: int, n_sites: int) -> np.ndarray:
    """Minor alleles of all haplotypes at a gap's sites, (N, U)."""
    pattern_NG, count_G, first_word_G, minor_W = patterns.around(gap)
    width = (n_sites + 63) // 64
    words = minor_W[first_word_G[gap] :][: count_G[gap] * width].reshape(count_G[gap], width)
    bits = (words[:, :, None] >> np.arange(64, dtype=np.uint64)) & np.uint64(1)
    pattern_N = pattern_NG[:, gap % copying.BLOCK_GAPS]
    return bits.reshape(count_G[gap], -1)[pattern_N, :n_sites].astype(np.float32)


def test_patterns_of_gaps_have_the_minor_alleles(sites: np.ndarray, tmp_path: Path) -> None:
    with panel_of(sites, tmp_path / "a.spin") as panel:
        start_G1 = np.array([3, 3, 70, 200, 201, 201, 690])
        order_N = np.arange(panel.n_haplotypes)[::-1].copy()
        rows = panel.stored_rows(3, 690)
        assert 0 < rows.listed_X.sum() < len(rows.listed_X)
        parts = copying.gap_patterns(rows, start_G1 - 3, order_N, panel.allele_count[3:690])
        for gap in (0, 1, 2, 5):
            minor_NU = pattern_bits(parts, gap, int(start_G1[gap + 1] - start_G1[gap]))
            alleles_UN = panel.alleles(int(start_G1[gap]), int(start_G1[gap + 1]))[:, order_N]
            flip_U = panel.frequency[start_G1[gap] : start_G1[gap + 1]] > 0.5
            np.testing.assert_array_equal(minor_NU.T, alleles_UN ^ flip_U[:, None])


def test_more_patterns_than_small_numbers_reach() -> None:
    n, n_sites = 70_000, 17
    alleles_UN = (np.arange(n) >> np.arange(n_sites)[:, None] & 1).astype(np.uint8)
    packed, count = np.packbits(alleles_UN, axis=1), alleles_UN.sum(axis=1)
    rows = RowLayout.of(count, n, lists=False).rows(packed.ravel(), 0, n_sites)
    parts = copying.gap_patterns(rows, np.array([0, n_sites]), np.arange(n), count)
    assert parts.count_G.tolist() == [n]
    flip_U1 = (count > n / 2)[:, None]
    np.testing.assert_array_equal(pattern_bits(parts, 0, n_sites).T, alleles_UN ^ flip_U1)


@pytest.mark.parametrize("haploid", [False, True])
def test_people_of_the_panel_get_their_own_alleles_back(
    mosaic: Mosaic, tmp_path: Path, haploid: bool
) -> None:
    rng = np.random.default_rng(8)
    alleles = mosaic(rng, 200, 10, founders=6, errors=0.1)
    alleles = alleles[(alleles.sum(1) > 0) & (alleles.sum(1) < 10)]
    positions = 1_000 + 400 * np.arange(len(alleles))
    calls = [[f"{a}|{b}" for a, b in zip(row[::2], row[1::2], strict=True)] for row in alleles]
    if haploid:
        calls = [[row[0][0], *row[1:]] for row in calls]
    names = list("abcde")
    panel = write_vcf(tmp_path / "p.vcf", names, positions, calls)
    hidden = [20, 90, len(calls) - 30]
    kept = [i for i in range(len(calls)) if i not in hidden]
    target = write_vcf(tmp_path / "t.vcf", names, positions[kept], [calls[i] for i in kept])
    constant = GeneticMap(np.array([1.0, 1e7]), np.array([0.0, 10.0]))
    spinimpute.build_panel(panel, tmp_path / "p.spin", constant).close()
    spinimpute.impute(target, tmp_path / "o.vcf", tmp_path / "p.spin")
    imputed = [
        record.split("\t") for record in (tmp_path / "o.vcf").read_text().splitlines() if record[0] != "#"
    ]
    got = [[sample.split(":")[0] for sample in record[9:]] for record in imputed]
    assert got == calls


CONFIGURATION = """
[model]
kind = "haplotype"
classes = 8
hidden = 8
[episodes]
blocks = 1
queries = 4
context_samples = 8
foreign_share = 0.5
most_entries = 20_000
rare_phase_error = [0.5]
wrong_common_call = [0.01]
switch_rate = [5.0]
[simulation]
segments = 2
length = [40_000, 50_000]
samples = [20, 24]
demes = 3
poor_share = 0.5
[training]
steps = 4
validate_every = 2
validation_tasks = 3
"""


def test_a_model_is_trained_and_imputes(tmp_path: Path, sites: np.ndarray) -> None:
    config = tmp_path / "c.toml"
    config.write_text(CONFIGURATION)
    assert train(config, tmp_path / "m.safetensors", threads=1).steps == 4
    model = spinimpute.load_predictor(tmp_path / "m.safetensors")
    assert model.kind == "haplotype"
    with panel_of(sites, tmp_path / "a.spin") as panel:
        p = spinimpute.impute_haplotypes(
            panel, sites[TYPED, :2], TYPED, predictor=spinimpute.PredictorSettings(model=model)
        )
        frequencies = np.repeat(panel.frequency[:, None], 2, axis=1)
    untyped = np.setdiff1d(np.arange(700), TYPED)
    truth = sites[untyped, :2].ravel()
    r, r_of_frequencies = (np.corrcoef(x[untyped].ravel(), truth)[0, 1] for x in (p, frequencies))
    assert r > r_of_frequencies + 0.1  # even four steps make a model that looks at its query


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 10**6), st.sampled_from([1, 7, 8, 63, 64, 65, 4_096, 4_160, 5_000]), st.integers(0, 40))
def test_hashes_are_sums_over_differing_bits(seed: int, n: int, n_rows: int) -> None:
    rng = np.random.default_rng(seed)
    alleles = (rng.random((n_rows, n)) < rng.choice([0.001, 0.3, 0.99], (n_rows, 1))).astype(np.uint8)
    packed, count = np.packbits(alleles, axis=1), alleles.sum(axis=1)
    lists = bool(rng.integers(0, 2))
    stored = np.frombuffer(store_rows(packed, n), np.uint8) if lists else packed.ravel()
    rows = RowLayout.of(count, n, lists).rows(stored, 0, n_rows)
    flip = (count > n / 2).astype(np.uint8)
    found = np.zeros(n, np.uint64)
    hash_rows(*rows, 3 + np.arange(n_rows), found)
    number = np.array([scramble(np.uint64(3 + x)) for x in range(n_rows)], np.uint64)
    with np.errstate(over="ignore"):
        expected = ((alleles != flip[:, None]) * number[:, None]).sum(axis=0, dtype=np.uint64)
    np.testing.assert_array_equal(found, expected)
