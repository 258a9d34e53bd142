"""The compiled backend of SPIN against the network in torch, with random weights of random sizes."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import spinimpute
from spinimpute.genotypes.blocks import PaddedSites
from spinimpute.nn.model_weights import arrays_of
from spinimpute.panels.panel_blocks import BlockReader, BlockSites, EncodedBlock, PanelBlock
from spinimpute.panels.soft_alleles import round_points
from spinimpute.predictors.spin.compiled.attention import largest_of_row
from spinimpute.predictors.spin.compiled.decoder import Labels
from spinimpute.predictors.spin.compiled.encoder import CompiledEncoder
from spinimpute.predictors.spin.compiled.reader import CompiledReader
from spinimpute.predictors.spin.network import GenotypeSPIN
from spinimpute.predictors.spin.predictor import SPINPredictor
from spinimpute.predictors.spin.settings import MIN_MEMBER, SPINSettings, check_weights
from spinimpute.predictors.spin.similarity import initial_confusion
from spinimpute.predictors.spin.torch_blocks import TorchBlocks
from spinimpute.runtime.errors import InputError

SIZES = st.builds(
    SPINSettings,
    core=st.integers(1, 4),
    flank=st.integers(0, 9),
    k=st.integers(1, 8),
    heads=st.integers(1, 20),
    pair_heads=st.integers(1, 10),
    tolerances=st.integers(1, 4),
    hidden=st.integers(1, 18),
    decoder_hidden=st.integers(1, 18),
)


def random_network(sizes: SPINSettings, seed: int) -> GenotypeSPIN:
    torch.manual_seed(seed)
    network = GenotypeSPIN(sizes)
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, 0, 0.4)
    return network


def random_block(sizes: SPINSettings, points: int, sites: int, rng: np.random.Generator) -> EncodedBlock:
    """Labels are mostly 0, at some sites mostly 1; tokens have few K-mers; some points have no haplotypes."""
    n_places = sizes.shape.n_typed
    first, last = sorted(rng.choice(n_places + 1, 2, replace=False).tolist())
    valid_S = np.zeros(n_places, np.float32)
    valid_S[first:last] = 1
    cM_S = np.sort(rng.normal(0, 0.3, n_places)) * valid_S
    places = PaddedSites(cM_S, valid_S, 0, last - first, first)
    n_columns = -(-n_places // sizes.k)
    token_HDV = rng.random((points, n_columns, 2**sizes.k)) ** 8 + 1e-6
    token_HDV[token_HDV < token_HDV.max(-1, keepdims=True) / 3] = 0
    token_HDV /= token_HDV.sum(-1, keepdims=True)
    label_HU = (rng.random((points, sites)) * (rng.random((points, sites)) < 0.3)).round(1)
    label_HU[:, ::3] = 1 - label_HU[:, ::3]
    mass_H = rng.exponential(5, points) * (rng.random(points) < 0.8)
    mass_H[0] = 3
    numbers = (rng.random(sites).astype(np.float32) for _ in range(4))
    frequency_U, fraction_U, distance_U, place_U = numbers
    gap_U = np.zeros(sites, np.int64)
    imputed = BlockSites(np.arange(sites), gap_U, frequency_U, fraction_U, distance_U, place_U)
    encoded = {"feature_BHF": token_HDV.reshape(points, -1), "label_BHU": label_HU, "mass_BH": mass_H}
    encoded = {name: value.astype(np.float32) for name, value in encoded.items()}
    return EncodedBlock(places, rng.random(n_places).astype(np.float32), imputed, 100, sizes.k, encoded)


def random_queries(block: EncodedBlock, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Alleles, and which of them are known: all of the first query, none of the last one."""
    shape = n, len(block.places.cM_S)
    known_QS = rng.random(shape) < np.linspace(1, 0, n)[:, None]
    return rng.integers(0, 2, shape, dtype=np.uint8), known_QS.astype(np.uint8)


@settings(deadline=None, max_examples=40)
@given(sizes=SIZES, points=st.integers(1, 40), sites=st.integers(1, 150), seed=st.integers(0, 1_000_000))
def test_predictions_are_those_of_the_network(
    sizes: SPINSettings, points: int, sites: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    network = random_network(sizes, seed)
    block = random_block(sizes, points, sites, rng)
    queries = random_queries(block, 5, rng)
    wanted_U = np.flatnonzero(rng.random(sites) < 0.8)
    blocks = TorchBlocks(network.eval(), torch.device("cpu"), points, sizes.shape)
    expected_UQ = blocks.predict(block, wanted_U, *queries)
    found_UQ = CompiledReader(arrays_of(network.state_dict()), sizes).predict(block, wanted_U, *queries)
    np.testing.assert_allclose(found_UQ, expected_UQ, rtol=0, atol=2e-3)


def test_a_result_depends_on_no_other_query_or_site(rng: np.random.Generator) -> None:
    sizes = SPINSettings(core=3, flank=7, decoder_hidden=12)
    reader = CompiledReader(arrays_of(random_network(sizes, 1).state_dict()), sizes)
    block = random_block(sizes, 21, 150, rng)
    alleles_QS, known_QS = random_queries(block, 9, rng)
    whole_UQ = reader.predict(block, np.arange(150), alleles_QS, known_QS)
    for some_U in (np.arange(3, 130), np.array([149]), np.arange(0, 150, 7)):
        for some_Q in (slice(2, 7), slice(4, 5)):
            found = reader.predict(block, some_U, alleles_QS[some_Q], known_QS[some_Q])
            np.testing.assert_array_equal(found, whole_UQ[some_U][:, some_Q])


def test_labels_keep_what_is_not_0_or_1(rng: np.random.Generator) -> None:
    label_HU = np.array([[0, 1, 0.5, 0, 1], [0, 1, 1, 0.25, 1], [0, 0.75, 1, 0, 0]], np.float32)
    labels = Labels.of(label_HU)
    assert labels.complement_U.tolist() == [False, True, True, False, True]
    assert np.diff(labels.first_U1).tolist() == [0, 1, 1, 1, 1]
    for u, label_H in enumerate(label_HU.T):
        entries = slice(labels.first_U1[u], labels.first_U1[u + 1])
        found_H = np.zeros(3)
        found_H[labels.point_E[entries]] = labels.label_E[entries]
        np.testing.assert_array_equal(1 - found_H if labels.complement_U[u] else found_H, label_H)


@settings(deadline=None, max_examples=20)
@given(sizes=SIZES)
def test_weights_are_checked_against_the_shapes_of_the_network(sizes: SPINSettings) -> None:
    weights = arrays_of(random_network(sizes, 0).state_dict())
    check_weights(weights, sizes)
    for name, weight in weights.items():
        with pytest.raises(ValueError, match=name):
            check_weights({**weights, name: np.append(weight, 0).astype(np.float32)}, sizes)
        with pytest.raises(ValueError, match=name):
            check_weights({key: value for key, value in weights.items() if key != name}, sizes)
        with pytest.raises(ValueError, match=name):
            check_weights({**weights, name: np.full_like(weight, np.nan)}, sizes)


@settings(deadline=None, max_examples=30)
@given(
    sizes=SIZES,
    rounds=st.integers(1, 4),
    haplotypes=st.integers(1, 60),
    points=st.integers(1, 70),
    compared=st.integers(0, 9),
    sharp=st.floats(0, 3),
    seed=st.integers(0, 1_000_000),
)
def test_points_are_those_of_the_network(
    sizes: SPINSettings, rounds: int, haplotypes: int, points: int, compared: int, sharp: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    sizes = replace(sizes, rounds=rounds)
    block = random_block(sizes, 1, 20, rng)
    founders_HX = rng.integers(0, 2, (8, sizes.shape.n_typed + compared), dtype=np.uint8)
    x_NX = founders_HX[rng.integers(0, 8, haplotypes)] ^ (rng.random((haplotypes, 1)) < 0.1)
    typed_NS, compared_NC = np.hsplit(x_NX.astype(np.uint8), [sizes.shape.n_typed])
    alleles_UN = (rng.random((20, haplotypes)) < 0.2).astype(np.uint8)
    panel = PanelBlock(
        block.places,
        block.frequency_S,
        typed_NS * (block.places.valid_S > 0),
        block.sites,
        alleles_UN,
        compared_NC,
        compared_NC.mean(0).astype(np.float32),
    )
    network = random_network(sizes, seed).eval()
    network.log_sharpness.data.fill_(sharp)
    network.confusion.log_confusion.data.copy_(initial_confusion(sizes.k).log())
    blocks = TorchBlocks(network, torch.device("cpu"), points, sizes.shape)
    encoder = CompiledEncoder(arrays_of(network.state_dict()), sizes, points, sizes.shape)
    expected, found = (some.encode(panel, with_members=True) for some in (blocks, encoder))
    mass_H = expected.points["mass_BH"]
    np.testing.assert_allclose(found.points["mass_BH"], mass_H, rtol=1e-3, atol=1e-3)
    for name in ("feature_BHF", "label_BHU"):
        # the means of a point with hardly any haplotypes depend on the last digits of scores
        some_H = mass_H > 1e-3
        np.testing.assert_allclose(
            found.points[name][some_H], expected.points[name][some_H], rtol=0, atol=5e-3, err_msg=name
        )
    assert found.points["mass_BH"].sum() == pytest.approx(haplotypes, rel=1e-3)
    rounded = round_points(found).points
    assert all(np.isfinite(value).all() for value in rounded.values())
    share_NH = np.zeros((2, haplotypes, len(mass_H)))
    for share, encoded in zip(share_NH, (expected, found), strict=True):
        assert encoded.members is not None
        share[encoded.members.haplotype_L, encoded.members.point_L] = encoded.members.share_L
        assert (np.diff(encoded.members.haplotype_L) >= 0).all()
    np.testing.assert_allclose(share_NH[1], share_NH[0], rtol=0, atol=1.2 * MIN_MEMBER)


def test_points_do_not_depend_on_the_order_of_haplotypes(
    random_predictor: SPINPredictor, example_panel: spinimpute.Panel, rng: np.random.Generator
) -> None:
    typed = np.arange(20, 400, 5)
    block = BlockReader(example_panel, typed, random_predictor.shape, 0, len(typed), 0, 400).read(3)
    order_N = rng.permutation(block.n_haplotypes)
    other = replace(
        block,
        typed_NS=block.typed_NS[order_N],
        alleles_UN=block.alleles_UN[:, order_N],
        compared_NC=block.compared_NC[order_N],
    )
    expected, found = (random_predictor.encode(some).points for some in (block, other))
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


def test_the_largest_of_a_row_is_exact() -> None:
    for first in (-1e30, -300.5, -400):
        row_1H = np.full((1, 64), -300.5, np.float32)
        row_1H[0, 3] = first
        assert largest_of_row(row_1H, 0, 50) == np.float32(-300.5)


@pytest.mark.parametrize(
    ("name", "value"), [("log_sharpness", 100), ("column.2.bias", 3e38), ("encoder.prior", 3e38)]
)
def test_points_that_are_not_finite_are_refused(
    name: str, value: float, random_predictor: SPINPredictor, example_panel: spinimpute.Panel
) -> None:
    weights = {**random_predictor.weights, name: np.full_like(random_predictor.weights[name], value)}
    other = SPINPredictor(weights, random_predictor.settings, "damaged", "cpu", 12)
    typed = np.arange(20, 400, 5)
    block = BlockReader(example_panel, typed, other.shape, 0, len(typed), 0, 400).read(3)
    with pytest.raises(InputError, match="not finite"):
        other.encode(block)


@pytest.mark.parametrize("part", ["prior", "pair.", "decoder."])
def test_predictions_that_are_not_finite_are_refused(
    part: str, random_predictor: SPINPredictor, rng: np.random.Generator
) -> None:
    weights = {
        name: weight * np.float32(1e38) if name.startswith(part) else weight
        for name, weight in random_predictor.weights.items()
    }
    weights = {name: weight.clip(-3e38, 3e38) for name, weight in weights.items()}
    other = SPINPredictor(weights, random_predictor.settings, "damaged", "cpu", 12)
    block = random_block(other.settings, 12, 70, rng)
    with pytest.raises(InputError, match="predictions that are not finite"):
        other.predict(block, *random_queries(block, 5, rng))
