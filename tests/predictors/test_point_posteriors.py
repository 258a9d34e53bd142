"""The model of Li and Stephens over inducing points."""

import struct
import weakref
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import spinimpute
from spinimpute.genotypes.blocks import PaddedSites
from spinimpute.genotypes.intervals import Interval
from spinimpute.hmm.parameters import LANES, MISMATCH
from spinimpute.hmm.steps import allele_emissions
from spinimpute.panels.panel_blocks import BlockReader, BlockSites, EncodedBlock, Members
from spinimpute.panels.soft_alleles import LINK_STEPS, MIN_LINK, pack_states, unpack_states
from spinimpute.predictors.interface import ImputationJob
from spinimpute.predictors.spin import engine as engines
from spinimpute.predictors.spin import point_posteriors
from spinimpute.predictors.spin.engine import InducingEngine
from spinimpute.predictors.spin.point_posteriors import (
    PointChain,
    TilePosteriors,
    TileStates,
    posteriors_of,
    tile_of,
)
from spinimpute.predictors.spin.predictor import SPINPredictor
from tests.hmm.brute_force import forward_backward

TYPED = np.arange(7, 4_400, 45)


def tile_states(
    mass: list[np.ndarray], allele: list[np.ndarray], jump_S: np.ndarray, links: list[np.ndarray]
) -> TileStates:
    """States of blocks with masses (H,), soft alleles (S, H), and shares of links (P, H) between blocks."""
    n_lanes = -(-max(map(len, mass)) // LANES) * LANES
    mass_BH = np.stack([np.pad(one / one.sum(), (0, n_lanes - len(one))) for one in mass])
    padded = [np.pad(one, ((0, 0), (0, n_lanes - one.shape[1])), constant_values=0.5) for one in allele]
    alt_SH = MISMATCH + (1 - 2 * MISMATCH) * np.concatenate(padded)
    counts = [(one > 0).sum(1) for one in links]
    before = np.cumsum([0, *(int(count.sum()) for count in counts)])
    first = [np.concatenate([[0], count.cumsum()]) + n for count, n in zip(counts, before, strict=False)]
    return TileStates(
        mass_BH.reshape(len(mass), -1, LANES).astype(np.float32),
        np.ascontiguousarray(alt_SH.reshape(len(alt_SH), -1, LANES), np.float32),
        jump_S.astype(np.float32),
        np.cumsum([0, *map(len, allele)]),
        np.concatenate([np.zeros(0, np.int64), *first]).astype(np.int64),
        np.cumsum([0, *map(len, first)]),
        np.concatenate([np.zeros(0, np.int64), *(np.nonzero(one)[1] for one in links)]),
        np.concatenate([np.zeros(0), *(one[one > 0] for one in links)]).astype(np.float32),
        np.array([len(one) for one in mass]),
    )


def dense_posteriors(found: TilePosteriors, query: int, n_points: int) -> np.ndarray:
    first_QP1, point_E, posterior_E = found.entries
    dense_PH = np.zeros((first_QP1.shape[1] - 1, n_points))
    for place in range(len(dense_PH)):
        part = slice(first_QP1[query, place], first_QP1[query, place + 1])
        dense_PH[place, point_E[part]] = posterior_E[part]
    return dense_PH


def slow_posteriors(
    mass: list[np.ndarray],
    allele: list[np.ndarray],
    jump_S: np.ndarray,
    links: list[np.ndarray],
    query_S: np.ndarray,
) -> list[np.ndarray]:
    """The posteriors at each place, from products of dense matrices in double precision."""
    steps: list[np.ndarray] = []  # from place to place; the emission of the second place is included
    s = 0
    for b, one in enumerate(allele):
        prior_H = mass[b] / mass[b].sum()
        if b:
            linked_P1 = links[b - 1].sum(1, keepdims=True)
            steps.append(links[b - 1] + (1 - linked_P1) * prior_H)
        for alt_H in one:
            p_H = MISMATCH + (1 - 2 * MISMATCH) * alt_H
            emission_H = p_H if query_S[s] == 1 else 1 - p_H if query_S[s] == 0 else np.ones_like(p_H)
            jump = float(jump_S[s])
            steps.append(((1 - jump) * np.eye(len(p_H)) + jump * prior_H) * emission_H)
            s += 1
    forward = [mass[0] / mass[0].sum()]
    for step in steps:
        forward.append(forward[-1] @ step / (forward[-1] @ step).sum())
    backward = [np.ones(steps[-1].shape[1])]
    for step in reversed(steps):
        backward.insert(0, step @ backward[0] / (step @ backward[0]).max())
    products = [f * b for f, b in zip(forward, backward, strict=True)]
    return [product / product.sum() for product in products]


@pytest.mark.parametrize("seed", range(6))
def test_posteriors_are_those_of_dense_matrices(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    sizes, own = rng.integers(1, 40, 5), rng.integers(1, 4, 5)
    mass = [rng.gamma(1, 3, n) for n in sizes]
    allele = [rng.beta(0.2, 0.3, (s, n)) for s, n in zip(own, sizes, strict=True)]
    jump_S = rng.uniform(0.001, 0.3, int(own.sum()))
    links = []
    for n, after in pairwise(sizes):
        share = rng.gamma(0.3, size=(n, after)) * (rng.random((n, after)) < 0.3)
        links.append(share / np.where(share.sum(1, keepdims=True) > 0, share.sum(1, keepdims=True), 1))
    query_SQ = rng.integers(-1, 2, (int(own.sum()), 4)).astype(np.int8)
    states = tile_states(mass, allele, jump_S, links)
    core = slice(1, 4)
    found = posteriors_of(states, core, 11, query_SQ)
    assert (found.first_block, found.own_B.tolist()) == (11, own[1:4].tolist())
    places = np.concatenate([[0], (own + 1).cumsum()])
    np.testing.assert_array_equal(found.first_P, places[1:4] - places[1])
    for q in range(4):
        expected = slow_posteriors(mass, allele, jump_S, links, query_SQ[:, q])
        dense_PH = dense_posteriors(found, q, int(sizes.max()))
        for place, expected_H in enumerate(expected[places[1] : places[4]]):
            kept_H = np.where(expected_H >= point_posteriors.MIN_POSTERIOR, expected_H, 0)
            found_H = dense_PH[place, : len(kept_H)]
            np.testing.assert_allclose(found_H, kept_H / kept_H.sum(), atol=2e-3)
            assert dense_PH[place, len(kept_H) :].sum() == 0
            assert found_H.sum() == pytest.approx(1, abs=1e-5)


def test_points_of_one_haplotype_each_are_the_model_over_haplotypes() -> None:
    rng = np.random.default_rng(5)
    n, own = 30, [3, 4, 2]
    alleles_SN = rng.integers(0, 2, (sum(own), n)).astype(np.uint8)
    jump_S = rng.uniform(0.01, 0.1, sum(own))
    jump_S[0] = 1
    order = [rng.permutation(n) for _ in own]
    parts = np.split(alleles_SN, np.cumsum(own)[:-1])
    allele = [part[:, chosen].astype(float) for part, chosen in zip(parts, order, strict=True)]
    links = [np.equal.outer(one, other).astype(float) for one, other in pairwise(order)]
    query_S = rng.integers(-1, 2, sum(own)).astype(np.int8)
    states = tile_states([np.ones(n)] * 3, allele, jump_S, links)
    found = dense_posteriors(posteriors_of(states, slice(0, 3), 0, query_S[:, None]), 0, n)
    expected_SN, _ = forward_backward(alleles_SN, allele_emissions(query_S, MISMATCH), jump_S)
    s, place = 0, 0
    for block, n_own in enumerate(own):
        for i in range(n_own):
            np.testing.assert_allclose(found[place + 1 + i], expected_SN[s][order[block]], atol=0.01)
            s += 1
        place += n_own + 1


def test_many_points_of_which_none_stands_out() -> None:
    """Each of 1,500 points has a posterior below MIN_POSTERIOR; they are kept all the same."""
    n = 1_500
    states = tile_states([np.ones(n)] * 2, [np.full((2, n), 0.5)] * 2, np.full(4, 0.01), [np.eye(n)])
    found = posteriors_of(states, slice(0, 2), 0, np.full((4, 1), -1, np.int8))
    np.testing.assert_allclose(dense_posteriors(found, 0, n), 1 / n, rtol=1e-3)


def test_points_without_mass_and_padding_do_not_grow() -> None:
    """All points but one of mass 0 have REF, and the query ALT, at many sites of one block."""
    n, sites = 20, 40
    mass_H = np.ones(n)
    mass_H[3] = 0
    allele_SH = np.zeros((sites, n))
    allele_SH[:, 3] = 1
    states = tile_states([mass_H], [allele_SH], np.full(sites, 1e-7), [])
    dense_PH = dense_posteriors(posteriors_of(states, slice(0, 1), 0, np.ones((sites, 1), np.int8)), 0, n)
    np.testing.assert_allclose(dense_PH, np.tile(mass_H / 19, (sites + 1, 1)), atol=1e-4)


def block_of(token_HDV: np.ndarray, members: list[tuple[int, int, float]]) -> EncodedBlock:
    """A block of three typed sites with these tokens of K-mers of three sites."""
    places = PaddedSites(np.zeros(3), np.ones(3, np.float32), 0, 3, 0)
    sites = BlockSites(*(np.zeros(0, np.int64) for _ in range(6)))
    haplotype_L, point_L, share_L = (np.array(part) for part in zip(*members, strict=True))
    share_L = share_L.astype(float)
    mass_H = np.bincount(point_L, share_L, len(token_HDV))
    points = {
        "feature_BHF": token_HDV.reshape(len(token_HDV), -1).astype(np.float32),
        "label_BHU": np.zeros((len(token_HDV), 0), np.float32),
        "mass_BH": mass_H.astype(np.float32),
    }
    members_ = Members(haplotype_L.astype(np.int64), point_L.astype(np.int64), share_L)
    return EncodedBlock(places, np.zeros(3, np.float32), sites, 4, 3, points, members_)


def test_links_are_shares_of_haplotypes() -> None:
    token = np.zeros((2, 1, 8))
    token[0, 0, 0b011], token[1, 0, [0b100, 0b101]] = 1, [0.75, 0.25]
    before = block_of(token, [(0, 0, 1.0), (1, 0, 0.5), (1, 1, 0.5), (2, 1, 1.0), (3, 1, 1.0)])
    after = block_of(
        token, [(0, 1, 1.0), (1, 1, 1.0), (2, 0, 0.2), (2, 1, 0.8), (3, 0, 0.996), (3, 1, 0.004)]
    )
    states = unpack_states(pack_states(after, slice(0, 3), before), 3, 2)
    # point 0 stands for haplotype 0 and half of haplotype 1, which both go to point 1
    np.testing.assert_array_equal(states.first_P1, [0, 1, 3])
    np.testing.assert_array_equal(states.to_L, [1, 0, 1])
    share = (0.2 + 0.996) / 2.5
    np.testing.assert_allclose(states.share_L, [1, share, 1 - share], atol=1 / LINK_STEPS)
    np.testing.assert_allclose(states.mass_H, [1.196, 2.804], rtol=2**-7)
    np.testing.assert_allclose(states.allele_SH, [[0, 1], [1, 0], [1, 0.25]], atol=0.02)
    first = unpack_states(pack_states(before, slice(1, 3), None), 2, 9)
    assert (len(first.first_P1), len(first.to_L), first.allele_SH.shape) == (1, 0, (2, 2))
    few = replace(after, members=Members(*(part[-1:] for part in after.members)))  # type: ignore[union-attr]
    assert MIN_LINK > 0.004 / 2.5 * LINK_STEPS
    assert len(unpack_states(pack_states(few, slice(0, 3), before), 3, 2).to_L) == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content[:-1],
        lambda content: content + b"\0",
        lambda content: content[:10],
        lambda content: b"",
        lambda content: struct.pack("<IIII", 2**31, 3, 2, 3) + content[16:],
        lambda content: struct.pack("<IIII", 0, 3, 2, 3) + content[16:],
        lambda content: content[:-3] + b"\0\0\0",
        lambda content: content[:20] + b"\xff" * 6 + content[26:],
        lambda content: content[:16] + b"\0" * 4 + content[20:],
        lambda content: content[:-7] + b"\2\0\0\0" + content[-3:],
        lambda content: content[:26] + b"\1\0\0\0\1\0\0\0" + content[34:],
    ],
)
def test_damaged_states(change: Any) -> None:
    token = np.full((2, 1, 8), 1 / 8)
    members = [(0, 0, 1.0), (1, 1, 1.0), (2, 0, 0.5), (2, 1, 0.5)]
    content = pack_states(block_of(token, members), slice(0, 3), block_of(token, members))
    assert len(unpack_states(content, 3, 2).to_L) == 4
    with pytest.raises((ValueError, struct.error)):
        unpack_states(change(content), 3, 2)
    with pytest.raises(ValueError, match="typed sites"):
        unpack_states(content, 2, 2)
    with pytest.raises(ValueError, match="2 states"):
        unpack_states(content, 3, 1)


@pytest.fixture
def points(example_panel: spinimpute.Panel, random_predictor: SPINPredictor, tmp_path: Path) -> Any:
    path = tmp_path / "p.spip"
    with spinimpute.build_inducing_panel(example_panel, path, TYPED, model=random_predictor) as panel:
        yield panel


def test_points_stand_for_all_haplotypes(
    points: spinimpute.InducingPanel, example_panel: spinimpute.Panel, random_predictor: SPINPredictor
) -> None:
    reader = BlockReader(
        example_panel, TYPED, random_predictor.shape, 0, len(TYPED), 0, example_panel.n_sites
    )
    frequency = 0.0
    for number, block in enumerate(reader):
        encoded = random_predictor.encode(block, with_members=True)
        assert encoded.members is not None
        haplotype_L, point_L, share_L = encoded.members
        n = example_panel.n_haplotypes
        np.testing.assert_allclose(np.bincount(haplotype_L, share_L, n), 1, atol=0.1)
        mass_H = encoded.points["mass_BH"]
        np.testing.assert_allclose(np.bincount(point_L, share_L, len(mass_H)), mass_H, atol=0.1 * n)
        plain = random_predictor.encode(block)
        assert plain.members is None
        for name, value in plain.points.items():
            np.testing.assert_array_equal(value, encoded.points[name])
        states = points.read_states(number)
        weighted_S = states.allele_SH @ states.mass_H / states.mass_H.sum()
        typed = TYPED[list(points.own_typed(number))]
        np.testing.assert_allclose(weighted_S, example_panel.frequency[typed], atol=0.03)
        frequency += float(weighted_S.sum())
    assert frequency > 0


def test_the_mean_of_both(
    points: spinimpute.InducingPanel,
    example_panel: spinimpute.Panel,
    random_predictor: SPINPredictor,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also from parts of a chromosome, whose tiles are smaller here, so that there are several."""
    monkeypatch.setattr(point_posteriors, "TILE_GAPS", 24)
    monkeypatch.setattr(point_posteriors, "FLANK", 16)
    rng = np.random.default_rng(3)
    alleles_TQ = example_panel.alleles(0, example_panel.n_sites)[TYPED][:, :37].astype(np.int8)
    alleles_TQ[rng.random(alleles_TQ.shape) < 0.1] = -1
    job = ImputationJob(points, TYPED, 2, alleles_TQ.shape[1])
    whole = Interval(0, points.n_sites)

    def imputed(weight: float, windows: list[Interval]) -> np.ndarray:
        monkeypatch.setattr(engines, "POINT_WEIGHT", weight)
        with InducingEngine(random_predictor, points, job) as engine:
            return np.concatenate(list(engine.predict_windows(windows, alleles_TQ)))

    alone, posteriors, mean = imputed(0, [whole]), imputed(1, [whole]), imputed(0.25, [whole])
    np.testing.assert_allclose(mean, 0.75 * alone + 0.25 * posteriors, atol=1e-6)
    assert np.abs(alone - posteriors).max() > 0.1
    cut = [Interval(0, 1_000), Interval(1_000, 1_003), Interval(1_003, points.n_sites)]
    np.testing.assert_array_equal(imputed(1, cut), posteriors)
    np.testing.assert_allclose(imputed(0.25, cut), mean, atol=1e-6)
    # the queries are panel haplotypes, so their own alleles are the best prediction
    with InducingEngine(random_predictor, points, job) as engine:
        assert next(engine.predict_windows([whole], alleles_TQ[:, :0])).shape == (points.n_sites, 0)
    true = example_panel.alleles(0, example_panel.n_sites)[:, :37]
    assert np.corrcoef(posteriors.ravel(), true.ravel())[0, 1] > 0.6
    tile, around = tile_of(points, 0)
    (encoded,) = [points.read(block) for block in tile[:1]]
    chain = PointChain(points)
    allele_SQ = alleles_TQ[chain.typed(around)]
    core = slice(tile.start - around.start, tile.stop - around.start)
    found = posteriors_of(chain.states(around), core, tile.start, allele_SQ)
    varies = (encoded.sites.frequency_U > 0) & (encoded.sites.frequency_U < 1)
    index_U = encoded.sites.panel_index_U
    np.testing.assert_allclose(found.pool(0, encoded)[varies], posteriors[index_U][varies], atol=1e-6)


def test_queries_in_groups(
    points: spinimpute.InducingPanel,
    example_panel: spinimpute.Panel,
    random_predictor: SPINPredictor,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Results depend neither on the size of groups nor on where they are stored; groups bound the memory."""
    monkeypatch.setattr(point_posteriors, "TILE_GAPS", 24)
    monkeypatch.setattr(point_posteriors, "FLANK", 16)
    monkeypatch.setattr(engines, "QUERIES_PER_TASK", 3)
    alleles_TQ = example_panel.alleles(0, example_panel.n_sites)[TYPED][:, :37].astype(np.int8)
    alleles_TQ[np.random.default_rng(4).random(alleles_TQ.shape) < 0.1] = -1
    windows = [Interval(20, 1_000), Interval(1_000, 1_003), Interval(1_003, 4_000)]
    alive: list[weakref.ref[np.ndarray]] = []
    most = 0

    def counted(*arguments: Any) -> TilePosteriors:
        nonlocal most
        found = posteriors_of(*arguments)
        alive.append(weakref.ref(found.entries.first_QP1))
        arrays = [array for one in alive if (array := one()) is not None]
        most = max(most, sum(map(len, arrays)))
        return found

    monkeypatch.setattr(engines, "posteriors_of", counted)
    expected = None
    for n_at_once, max_entries in ((37, 10**9), (7, 10**9), (7, 0), (1, 0), (40, 0)):
        monkeypatch.setattr(engines, "QUERIES_AT_ONCE", n_at_once)
        monkeypatch.setattr(engines, "MAX_ENTRIES_IN_MEMORY", max_entries)
        most = 0
        with InducingEngine(random_predictor, points, ImputationJob(points, TYPED, 1, 37)) as engine:
            found = [p_UQ.tobytes() for p_UQ in engine.predict_windows(windows, alleles_TQ)]
        assert [len(one) for one in found] == [4 * 37 * window.n_sites for window in windows]
        assert most == min(n_at_once, 37)
        expected = expected or found
        assert found == expected
