"""Chains that copy the likeliest haplotypes of a large panel: beside those that copy all of them."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spinimpute.genotypes.intervals import Interval
from spinimpute.phasing import genotypes
from spinimpute.phasing.all_haplotypes import ChainsOverAll, group_patterns, last_places
from spinimpute.phasing.chains import SCALES, Chains, Evidence
from spinimpute.phasing.copied_panel import CopyingWindows
from spinimpute.phasing.genotypes import genotypes_by_window, genotypes_from_likelihoods
from spinimpute.phasing.large_panels import genotypes as large
from spinimpute.phasing.large_panels import search, states
from spinimpute.phasing.large_panels.haplotype_alleles import HaplotypeAlleles
from spinimpute.phasing.large_panels.state_chains import ChainsOverStates, last_of_groups
from spinimpute.phasing.large_panels.states import States, choose_representatives, fill_slots
from spinimpute.phasing.passes import HALF
from spinimpute.sequencing.fragments import FragmentBases
from tests.array_panel import ArrayPanel
from tests.phasing.test_chains import copied, diploid, haploid_phred, made_panel, phred_of_reads, random_phred
from tests.phasing.test_fragment_phase import phred_of

pytestmark = pytest.mark.slow


def large_panel(rng: np.random.Generator, n_sites: int, n: int) -> ArrayPanel:
    """Haplotypes that copy twelve founders; a third of the sites has rare alleles."""
    panel = made_panel(rng, n_sites, n)
    new_S = rng.random(n_sites) < 0.33
    panel.alleles_XN[new_S] = rng.random((new_S.sum(), n)) < 2 / n
    turned_S = rng.random(n_sites) < 0.2  # there ALT is the major allele
    panel.alleles_XN[turned_S] ^= 1
    return panel


@pytest.fixture
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Panels of more than 40 haplotypes are large, and 60 of them searched."""
    monkeypatch.setattr(genotypes, "MAX_COPIED", 40)
    monkeypatch.setattr(search, "MAX_SEARCHED", 60)
    monkeypatch.setattr(states, "MAX_REPRESENTATIVES", 12)
    monkeypatch.setattr(large, "MAX_CHOSEN", 24)


def evidence_of(
    panel: ArrayPanel, phred_SH3: np.ndarray, haploid_H: np.ndarray, bases_H: list[FragmentBases]
) -> Evidence:
    n = len(phred_SH3)
    linked_H = [bases.linked(Interval(0, n)) for bases in bases_H]
    return Evidence(panel.cM, panel.frequency, panel.trust, phred_SH3, haploid_H, linked_H, 0)


def over_states(panel: ArrayPanel, share_K: np.ndarray, evidence: Evidence) -> Chains:
    windows = CopyingWindows(panel.cM, last_of_groups(len(panel.cM)), 1.0)
    packed_SB = panel.packed_rows(np.arange(len(panel.cM)))
    chains = ChainsOverStates(packed_SB, share_K, evidence, windows, None)
    chains.run()
    return chains


def bases_at(rng: np.random.Generator, n_sites: int, n: int) -> FragmentBases:
    start_F = np.sort(rng.integers(0, n_sites - 8, n))
    fragment = np.repeat(np.arange(n), 3)
    site = start_F[fragment] + rng.integers(0, 8, 3 * n)
    order = np.lexsort((fragment, site))
    columns = fragment[order].astype(np.int32), site[order].astype(np.int32)
    return FragmentBases(
        *columns, rng.integers(0, 2, 3 * n, np.uint8), rng.integers(10, 40, 3 * n).astype(np.uint8)
    )


@pytest.mark.parametrize("kind", ["diploid", "haploid", "fragments"])
def test_all_haplotypes_as_states(rng: np.random.Generator, kind: str) -> None:
    """Compare with chains that copy all haplotypes."""
    n_sites = 200
    panel = made_panel(rng, n_sites, 37)
    bases_H: list[FragmentBases] = []
    if kind == "fragments":
        bases_H = [bases_at(rng, n_sites, 120)] * HALF
        phred_SH3 = phred_of(bases_H[:1], n_sites).repeat(HALF, axis=1)
    else:
        made = haploid_phred if kind == "haploid" else random_phred
        phred_SH3 = made(rng, n_sites, 1).repeat(HALF, axis=1)
    haploid_H = np.full(HALF, kind == "haploid")
    patterns = group_patterns(panel, Interval(0, n_sites))
    windows = CopyingWindows(panel.cM, last_places(patterns, n_sites), 1.0)
    expected = ChainsOverAll(patterns, evidence_of(panel, phred_SH3, haploid_H, bases_H), windows, None)
    expected.run()
    found = over_states(panel, np.ones(37), evidence_of(panel, phred_SH3[:, :1], haploid_H[:1], bases_H[:1]))
    np.testing.assert_allclose(found.genotype_S3H[:, :, 0], expected.genotype_S3H[:, :, 0], atol=2e-3)
    assert found.usage_WNH.shape[1] == 37
    n_counted = np.bincount(np.concatenate(found.windows.windows_G))
    np.testing.assert_allclose(found.usage_WNH.sum(axis=(1, 2)), 2 * len(SCALES) * n_counted, rtol=1e-4)
    if kind != "fragments":
        assert np.corrcoef(found.usage_WNH.sum((0, 2)), expected.usage_WNH.sum((0, 2)))[0, 1] > 0.95


def test_a_share_is_that_of_as_many_haplotypes(rng: np.random.Generator) -> None:
    panel = made_panel(rng, 150, 11)
    share_K = rng.integers(1, 4, 11)
    repeated = ArrayPanel(panel.alleles_XN.repeat(share_K, axis=1), panel.cM)
    evidence = evidence_of(panel, random_phred(rng, 150, 1), diploid(1), [])
    one = over_states(panel, share_K, evidence)
    many = over_states(repeated, np.ones(share_K.sum()), evidence)
    np.testing.assert_allclose(one.genotype_S3H, many.genotype_S3H, atol=1e-3)
    equal = over_states(panel, np.ones(11), evidence)
    assert np.abs(one.genotype_S3H - equal.genotype_S3H).max() > 0.01


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 60), st.integers(2, 30))
def test_alleles_of_haplotypes(seed: int, n_sites: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    panel = large_panel(rng, n_sites + 5, n)
    sites = Interval(3, 3 + n_sites)
    alleles_SN = panel.alleles_XN[sites.slice].copy()
    common_S = rng.random(n_sites) < 0.5
    common_D = np.flatnonzero(common_S)
    chosen_K = rng.permutation(n)[: rng.integers(1, n + 1)]
    low, high = np.sort(rng.integers(0, n_sites + 1, 2)).tolist()
    alleles = HaplotypeAlleles.read(panel, sites, common_D, panel.packed_rows(3 + common_D))
    min_carriers_K = rng.integers(0, 3, len(chosen_K))
    site_R, alleles_RK, same_S = alleles.take(chosen_K, min_carriers_K, Interval(low, high))
    count_S, is_minor_SK = alleles_SN.sum(axis=1), alleles_SN[:, chosen_K] == 1
    major_S = count_S > n // 2
    is_minor_SK ^= major_S[:, None]
    is_minor_SK &= common_S[:, None] | (np.minimum(count_S, n - count_S)[:, None] >= min_carriers_K)
    alleles_SN[:, chosen_K] = is_minor_SK ^ major_S[:, None]
    np.testing.assert_array_equal(alleles_RK, alleles_SN[site_R][:, chosen_K])
    assert ((site_R >= low) & (site_R < high)).all()
    assert (np.diff(site_R) > 0).all()
    expected_SK = alleles_SN[low:high][:, chosen_K]
    elsewhere = np.setdiff1d(np.arange(low, high), site_R) - low
    np.testing.assert_array_equal(
        expected_SK[elsewhere], np.broadcast_to(same_S[elsewhere, None], expected_SK[elsewhere].shape)
    )


@given(st.lists(st.lists(st.integers(0, 40), min_size=1, max_size=9, unique=True), min_size=1, max_size=5))
def test_haplotypes_keep_their_slots(chosen_W: list[list[int]]) -> None:
    slot_WC = fill_slots([np.array(chosen) for chosen in chosen_W])
    assert slot_WC.shape == (len(chosen_W), max(map(len, chosen_W)))
    for slot_C, chosen in zip(slot_WC, chosen_W, strict=True):
        assert len(set(slot_C.tolist())) == len(slot_C)
        assert set(chosen) <= set(slot_C.tolist())
    for before_C, slot_C in pairwise(slot_WC):
        for haplotype in set(before_C.tolist()) & set(slot_C.tolist()):
            assert np.flatnonzero(before_C == haplotype) == np.flatnonzero(slot_C == haplotype)


def test_others_stand_for_those_that_were_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(states, "MAX_REPRESENTATIVES", 4)
    np.testing.assert_array_equal(choose_representatives(np.array([], int), 16), [0, 4, 8, 12])
    np.testing.assert_array_equal(choose_representatives(np.array([12, 13, 14, 15, 4]), 16), [0, 5, 8, 1])
    assert len(set(choose_representatives(np.arange(5), 16).tolist())) == 4
    np.testing.assert_array_equal(choose_representatives(np.arange(1, 16), 16), [0])
    assert len(choose_representatives(np.arange(16), 16)) == 0


def test_shares_add_up_to_the_panel(rng: np.random.Generator, small_limits: None) -> None:
    panel = large_panel(rng, 50, 90)
    common_D = np.arange(0, 50, 3)
    alleles = HaplotypeAlleles.read(panel, Interval(0, 50), common_D, panel.packed_rows(common_D))
    made = States.choose(
        alleles, 90, [Interval(0, 20), Interval(20, 50)], [np.array([4, 7]), np.array([7, 8, 9])]
    )
    assert len(made.weight_K) == 3 + 12
    assert made.weight_K.sum() == pytest.approx(90)
    np.testing.assert_array_equal(made.weight_K[:3], 1)


def sequenced(
    rng: np.random.Generator, panel: ArrayPanel, n_samples: int, depth: float
) -> tuple[np.ndarray, np.ndarray]:
    """Genotypes of samples that copy the panel, and likelihoods of their reads."""
    haplotype_SQ = copied(rng, panel.alleles_XN, 2 * n_samples, 1 / 60)
    genotype_SX = haplotype_SQ[:, ::2].astype(int) + haplotype_SQ[:, 1::2]
    return genotype_SX, phred_of_reads(rng, genotype_SX, depth)


@pytest.mark.usefixtures("small_limits")
@pytest.mark.parametrize("n", [50, 150], ids=["all searched", "a part searched"])
def test_as_good_as_all_haplotypes(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, n: int) -> None:
    monkeypatch.setattr(large, "MAX_CHOSEN", n // 2)
    panel = large_panel(rng, 500, n)
    genotype_SX, phred_SX3 = sequenced(rng, panel, 12, 2.0)
    found = genotypes_from_likelihoods(panel, 0, phred_SX3, diploid(12), 2).sum(axis=1)
    monkeypatch.setattr(genotypes, "MAX_COPIED", 10_000)
    of_all = genotypes_from_likelihoods(panel, 0, phred_SX3, diploid(12), 2).sum(axis=1)

    def error(dosage_SX: np.ndarray) -> float:
        return 1 - np.corrcoef(dosage_SX.ravel(), genotype_SX.ravel())[0, 1] ** 2

    assert error(of_all) < 0.1
    assert error(found) < 1.15 * error(of_all)


@pytest.mark.usefixtures("small_limits")
@pytest.mark.parametrize("n", [50, 90], ids=["all searched", "a part searched"])
def test_a_sample_alone_is_as_among_others(rng: np.random.Generator, n: int) -> None:
    """Results are equal byte for byte, for any number of threads."""
    n_sites, n_samples = 150, 2 * HALF + 3
    panel = large_panel(rng, n_sites, n)
    bases_X = [bases_at(rng, n_sites, 40) for _ in range(n_samples)]
    phred_SX3 = phred_of(bases_X, n_sites)
    haploid_X = np.arange(n_samples) % 5 == 1
    phred_SX3[:, haploid_X] = haploid_phred(rng, n_sites, haploid_X.sum())
    told: list[float] = []
    whole = genotypes_from_likelihoods(panel, 0, phred_SX3, haploid_X, 1, told.append, bases_X)
    assert told == sorted(told)
    assert told[-1] == pytest.approx(1)
    threads = genotypes_from_likelihoods(panel, 0, phred_SX3, haploid_X, 3, None, bases_X)
    np.testing.assert_array_equal(whole, threads)
    np.testing.assert_array_equal(whole[:, 0, haploid_X], whole[:, 1, haploid_X])
    for x in (0, 1, n_samples - 1):
        alone = genotypes_from_likelihoods(panel, 0, phred_SX3[:, [x]], haploid_X[[x]], 1, None, [bases_X[x]])
        np.testing.assert_array_equal(whole[:, :, [x]], alone)


@pytest.mark.usefixtures("small_limits")
def test_batches_change_nothing(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    panel = large_panel(rng, 100, 90)
    phred_SX3 = random_phred(rng, 100, HALF + 2)
    whole = genotypes_from_likelihoods(panel, 0, phred_SX3, diploid(HALF + 2), 1)
    monkeypatch.setattr(large, "BATCH_SAMPLES", 3)
    np.testing.assert_array_equal(
        whole, genotypes_from_likelihoods(panel, 0, phred_SX3, diploid(HALF + 2), 1)
    )


@pytest.mark.usefixtures("small_limits")
@pytest.mark.parametrize("haploid", [False, True])
def test_reads_count_where_no_state_has_their_allele(rng: np.random.Generator, haploid: bool) -> None:
    panel = large_panel(rng, 60, 50)
    panel.alleles_XN[[20, 40]] = [[0], [1]]
    phred_SX3 = (haploid_phred if haploid else random_phred)(rng, 60, 1)
    phred_SX3[[20, 40], 0] = [[255, 100, 0], [0, 100, 255]]
    p_S2 = genotypes_from_likelihoods(panel, 0, phred_SX3, np.array([haploid]), 1)[:, :, 0]
    assert p_S2[20].min() > 0.99
    assert p_S2[40].max() < 0.01
    phred_SX3[[20, 40], 0] = 0
    p_S2 = genotypes_from_likelihoods(panel, 0, phred_SX3, np.array([haploid]), 1)[:, :, 0]
    assert p_S2[20].max() < 1e-3
    assert p_S2[40].min() > 1 - 1e-3


@pytest.mark.usefixtures("small_limits")
def test_who_stands_for_many_lends_no_weight_to_rare_alleles(rng: np.random.Generator) -> None:
    panel = large_panel(rng, 80, 300)
    panel.alleles_XN[[30, 50]] = 0
    phred_SX3 = sequenced(rng, panel, 6, 1.0)[1]
    phred_SX3[[30, 50]] = 0
    others = choose_representatives(np.empty(0, int), 300)
    panel.alleles_XN[30, others[3]] = panel.alleles_XN[50, others[3] + 1] = 1
    dosage_SX = genotypes_from_likelihoods(panel, 0, phred_SX3, diploid(6), 1).sum(axis=1)
    # whoever likely copies it may have chosen it
    assert (np.median(dosage_SX[[30, 50]], axis=1) < 1e-3).all()


@pytest.mark.usefixtures("small_limits")
def test_a_sample_without_reads_has_the_frequencies(rng: np.random.Generator) -> None:
    panel = large_panel(rng, 80, 200)
    flat_SX3 = np.zeros((80, 1, 3), np.uint8)
    dosage_S = genotypes_from_likelihoods(panel, 0, flat_SX3, diploid(1), 1).sum(axis=1)[:, 0]
    assert np.corrcoef(dosage_S, panel.frequency)[0, 1] > 0.95


@pytest.mark.usefixtures("small_limits")
def test_windows(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    panel = large_panel(rng, 400, 90)
    genotype_SX, phred_SX3 = sequenced(rng, panel, 3, 4.0)
    whole = genotypes_from_likelihoods(panel, 0, phred_SX3, diploid(3), 1).sum(axis=1)
    monkeypatch.setattr(genotypes, "WINDOW_SITES", 150)
    parts = [p_S2X for _, p_S2X in genotypes_by_window(panel, 0, phred_SX3, diploid(3), 1)]
    assert list(map(len, parts)) == [150, 150, 100]
    joined = np.concatenate(parts).sum(axis=1)
    assert np.corrcoef(whole.ravel(), joined.ravel())[0, 1] > 0.99
    assert np.corrcoef(genotype_SX.ravel(), joined.ravel())[0, 1] > 0.97


@pytest.mark.usefixtures("small_limits")
@pytest.mark.parametrize("n", [50, 90], ids=["all searched", "a part searched"])
@pytest.mark.parametrize("n_sites", [1, 2, 17])
def test_few_sites(rng: np.random.Generator, n: int, n_sites: int) -> None:
    for alleles_SN in (
        (rng.random((n_sites, n)) < 0.5).astype(np.uint8),
        (np.arange(n) == 3).astype(np.uint8)[None].repeat(n_sites, axis=0),
        np.ones((n_sites, n), np.uint8),
    ):
        panel = ArrayPanel(alleles_SN, np.arange(n_sites) * 0.01)
        p_S2X = genotypes_from_likelihoods(panel, 0, random_phred(rng, n_sites, 2), diploid(2), 1)
        assert p_S2X.shape == (n_sites, 2, 2)
        assert ((p_S2X >= 0) & (p_S2X <= 1)).all()
