"""Fragments and two chains: beside enumeration, and where only fragments tell."""

from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spinimpute.phasing import genotypes
from spinimpute.phasing.fragment_phase import (
    SweptFragments,
    enter_place,
    exchange_left,
    exchange_odds,
    heterozygote_factors,
    leave_place,
)
from spinimpute.phasing.genotypes import genotypes_from_likelihoods
from spinimpute.phasing.large_panels import genotypes as large
from spinimpute.phasing.large_panels import search, states
from spinimpute.phasing.passes import HALF
from spinimpute.sequencing.fragments import FragmentBases, phred_of_bases
from spinimpute.sequencing.likelihoods import stored_phred
from tests.array_panel import ArrayPanel
from tests.phasing.test_chains import diploid, switches

QUALITY = 20
ERROR = 0.01
Base = tuple[int, int, int]  # fragment, site, allele


def bases_of(rows: Sequence[Base], quality: int = QUALITY) -> FragmentBases:
    fragment, site, allele = (
        np.array(column) for column in zip(*sorted(rows, key=lambda row: (row[1], row[0])), strict=True)
    )
    return FragmentBases(
        fragment.astype(np.int32),
        site.astype(np.int32),
        allele.astype(np.uint8),
        np.full(len(rows), quality, np.uint8),
    )


def phred_of(bases_X: Sequence[FragmentBases], n_sites: int) -> np.ndarray:
    """Likelihoods, uint8 (S, X, 3), of reads that are counted site by site."""
    stored = [stored_phred(phred_of_bases(one, np.arange(n_sites))[0], False) for one in bases_X]
    return np.stack(stored, axis=1)


def panel_without_ld(rng: np.random.Generator, n_sites: int, n: int = 200) -> ArrayPanel:
    """Half of the haplotypes have ALT, independently at each site."""
    alleles_SN = np.stack([rng.permutation(n) < n / 2 for _ in range(n_sites)]).astype(np.uint8)
    return ArrayPanel(alleles_SN, np.arange(n_sites) * 50.0)


Alleles = tuple[int, ...]


def of_haplotype(shown: Sequence[int], places: Sequence[int], alleles: Alleles) -> float:
    """Probability of a fragment that comes from this haplotype."""
    right = [alleles[s] == allele for s, allele in zip(places, shown, strict=True)]
    return float(np.prod(np.where(right, 1 - ERROR, ERROR)))


def likelihood(shown: Sequence[int], places: Sequence[int], pair: tuple[Alleles, Alleles]) -> float:
    """Probability of a fragment that comes from either haplotype."""
    return float(np.mean([of_haplotype(shown, places, alleles) for alleles in pair]))


def prior(alleles: Alleles, p_S: np.ndarray) -> float:
    return float(np.prod([p if a else 1 - p for a, p in zip(alleles, p_S, strict=True)]))


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 1), min_size=2, max_size=4), st.integers(0, 10**6), st.data())
def test_one_fragment_beside_all_haplotypes(shown: list[int], seed: int, data: object) -> None:
    """One chain's allele is certain at each site, so that the carrier of a heterozygote's ALT is certain."""
    n = len(shown)
    rng = np.random.default_rng(seed)
    some_S, certain_S, first_S = rng.uniform(0.01, 0.99, n), rng.integers(0, 2, n), rng.random(n) < 0.5
    p_S, q_S = np.where(first_S, some_S, certain_S), np.where(first_S, certain_S, some_S)
    haplotypes = list(product((0, 1), repeat=n))
    fragments = SweptFragments.from_bases(
        [bases_of([(0, s, a) for s, a in enumerate(shown)])], np.ones((n, 1), bool), 0
    )
    at = data.draw(st.integers(0, n - 1))
    for sweep in range(2):  # the second one knows what is on the right
        fragments.rewind()
        for s, allele in enumerate(shown):
            stop = enter_place(fragments, 0, s)
            factor_2H = np.ones((2, HALF))
            heterozygote_factors(fragments, 0, stop, False, factor_2H)
            others = [t for t in range(n) if t != s]
            shown_there = [shown[t] for t in others]
            if sweep == 1:
                of_first, of_second = (
                    sum(prior(h, x) * of_haplotype(shown_there, others, h) for h in haplotypes)
                    for x in (p_S, q_S)
                )
                expected = of_first if allele else of_second
                assert factor_2H[0, 0] / 2 == pytest.approx(
                    ERROR + (1 - 2 * ERROR) * expected / (of_first + of_second), rel=1e-3
                )
                assert factor_2H[:, 0].sum() == pytest.approx(2)
            if sweep == 1 and s == at:
                before_S = np.arange(n) < at
                turned_p, turned_q = np.where(before_S, q_S, p_S), np.where(before_S, p_S, q_S)
                as_it_is, crossed = (
                    sum(
                        prior(h, x) * prior(k, y) * likelihood(shown_there, others, (h, k))
                        for h in haplotypes
                        for k in haplotypes
                    )
                    for x, y in ((p_S, q_S), (turned_p, turned_q))
                )
                assert exchange_odds(fragments, 0) == pytest.approx(crossed / as_it_is, rel=1e-3)
            none, two = (1 - ERROR, ERROR) if allele == 0 else (ERROR, 1 - ERROR)
            p, q = p_S[s], q_S[s]
            factor, other_factor = factor_2H[:, 0] / 2
            joint_4 = (1 - p) * (1 - q) * none, p * (1 - q) * factor, (1 - p) * q * other_factor, p * q * two
            leave_place(fragments, 0, stop, False, joint_4)
    assert fragments.n_open_H[0] == 0
    before = fragments.message_B.copy()
    fragments.exchange_chains(np.ones((n, HALF), bool))
    np.testing.assert_array_equal(fragments.message_B, -before)


def test_exchange_turns_what_is_open() -> None:
    fragments = SweptFragments.from_bases(
        [bases_of([(0, 0, 1), (1, 1, 1), (0, 2, 1), (1, 2, 0)])], np.ones((3, 1), bool), 0
    )
    fragments.rewind()
    for s in range(2):
        leave_place(fragments, 0, enter_place(fragments, 0, s), False, (0.1, 0.7, 0.1, 0.1))
    before = fragments.left_F.copy()
    assert (before > 0).all()
    exchange_left(fragments, 0)
    np.testing.assert_array_equal(fragments.left_F, -before)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 4))
def test_genotypes_beside_all_pairs_of_haplotypes(seed: int, n_sites: int) -> None:
    rng = np.random.default_rng(seed)
    truth_2S = rng.integers(0, 2, (2, n_sites))
    rows = [
        (10 * s + i, site, int(truth_2S[i % 2, site]))
        for s in range(n_sites - 1)
        for i in range(4)
        for site in (s, s + 1)
    ]
    bases = bases_of(rows)
    panel = panel_without_ld(rng, n_sites)
    p_S2 = genotypes_from_likelihoods(panel, 0, phred_of([bases], n_sites), diploid(1), 1, None, [bases])[
        ..., 0
    ]
    total, dosage_S = 0.0, np.zeros(n_sites)
    for pair in product(product((0, 1), repeat=n_sites), repeat=2):
        weight = 1.0
        for name in {row[0] for row in rows}:
            own = [row for row in rows if row[0] == name]
            weight *= likelihood([row[2] for row in own], [row[1] for row in own], pair)
        total += weight
        dosage_S += weight * np.sum(pair, axis=0)
    np.testing.assert_allclose(p_S2.sum(axis=1), dosage_S / total, atol=0.06)


@pytest.mark.parametrize("n_searched", [None, 200, 150])
def test_fragments_tell_phase(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, n_searched: int | None
) -> None:
    """n_searched: haplotypes that are searched as in a large panel."""
    if n_searched:
        monkeypatch.setattr(genotypes, "MAX_COPIED", 100)
        monkeypatch.setattr(search, "MAX_SEARCHED", n_searched)
        monkeypatch.setattr(states, "MAX_REPRESENTATIVES", 40)
        monkeypatch.setattr(large, "MAX_CHOSEN", 60)
    n_sites, n_samples = 120, 5
    panel = panel_without_ld(rng, n_sites)
    first_SX = rng.integers(0, 2, (n_sites, n_samples))
    truth_S2X = np.stack([first_SX, 1 - first_SX], axis=1)
    bases_X = [
        bases_of(
            [
                (4 * s + 2 * h + second, site, int(truth_S2X[site, h, x]))
                for s in range(n_sites - 2)
                for h in range(2)
                for second in range(2)
                for site in (s, s + 1 + second)
            ]
        )
        for x in range(n_samples)
    ]
    phred_SX3 = phred_of(bases_X, n_sites)
    with_them = genotypes_from_likelihoods(panel, 0, phred_SX3, diploid(n_samples), 1, None, bases_X)
    without = genotypes_from_likelihoods(panel, 0, phred_SX3, diploid(n_samples), 1)
    for x in range(n_samples):
        assert switches(with_them[..., x], truth_S2X[..., x]) == 0
        assert switches(without[..., x], truth_S2X[..., x]) > 20


def test_fragments_tell_genotypes(rng: np.random.Generator) -> None:
    """Both samples have the same likelihoods at site 1."""
    panel = panel_without_ld(rng, 2)
    sure = [(10 + i, 0, i % 2) for i in range(10)]  # site 0 is heterozygous
    of_both = bases_of([*sure, (0, 0, 0), (0, 1, 1), (1, 0, 1), (1, 1, 1)])
    of_one = bases_of([*sure, (0, 0, 1), (0, 1, 1), (1, 0, 1), (1, 1, 1)])
    phred_SX3 = phred_of([of_both, of_one], 2)
    np.testing.assert_array_equal(phred_SX3[1, 0], phred_SX3[1, 1])
    p_2X = genotypes_from_likelihoods(panel, 0, phred_SX3, diploid(2), 1, None, [of_both, of_one])[1]
    assert p_2X.prod(axis=0)[0] > 0.9  # P(2 copies)
    assert p_2X.prod(axis=0)[1] < 0.6


Batch = tuple[ArrayPanel, np.ndarray, np.ndarray, list[FragmentBases]]


@pytest.fixture
def batch(rng: np.random.Generator) -> Batch:
    """Eleven samples with fragments of up to thirty sites: two are haploid, one has none."""
    n_sites = 210
    panel = panel_without_ld(rng, n_sites)
    panel.cM = np.arange(n_sites) / 20
    bases_X = []
    for x in range(11):
        rows = [
            (i, s, int(rng.integers(0, 2)))
            for i, start in enumerate(rng.integers(0, n_sites, 60 if x else 0).tolist())
            for s in range(start, min(start + int(rng.choice([1, 2, 30])), n_sites))
        ]
        bases_X.append(bases_of(rows) if rows else bases_of([(0, 0, 0)]).take(slice(0)))
    haploid_X = np.isin(np.arange(11), [3, 9])
    phred_SX3 = phred_of(bases_X, n_sites)
    phred_SX3[:, haploid_X, 1] = np.where(phred_SX3[:, haploid_X].any(axis=2), 255, 0)
    return panel, phred_SX3, haploid_X, bases_X


def test_a_sample_depends_on_no_other(batch: Batch, rng: np.random.Generator) -> None:
    panel, phred_SX3, haploid_X, bases_X = batch
    whole = genotypes_from_likelihoods(panel, 0, phred_SX3, haploid_X, 1, None, bases_X)
    threads = genotypes_from_likelihoods(panel, 0, phred_SX3, haploid_X, 3, None, bases_X)
    assert threads.tobytes() == whole.tobytes()
    for x in range(11):
        alone = genotypes_from_likelihoods(
            panel, 0, phred_SX3[:, [x]], haploid_X[[x]], 1, None, bases_X[x : x + 1]
        )
        assert alone[:, :, 0].tobytes() == whole[:, :, x].tobytes(), x
    order = rng.permutation(11)
    given = panel, 0, phred_SX3[:, order], haploid_X[order], 1, None, [bases_X[x] for x in order]
    assert genotypes_from_likelihoods(*given).tobytes() == np.ascontiguousarray(whole[:, :, order]).tobytes()
    without = genotypes_from_likelihoods(panel, 0, phred_SX3, haploid_X, 1)
    same_X = (without == whole).all(axis=(0, 1))
    assert same_X.tolist() == [x in (0, 3, 9) for x in range(11)]


def test_fragments_of_one_site_are_their_likelihoods(batch: Batch) -> None:
    panel, phred_SX3, haploid_X, bases_X = batch
    apart_X = [
        FragmentBases(np.arange(len(one.fragment)), one.panel_index, one.allele, one.quality)
        for one in bases_X
    ]
    found, expected = (
        genotypes_from_likelihoods(panel, 0, phred_SX3, haploid_X, 1, None, bases) for bases in (apart_X, ())
    )
    assert found.tobytes() == expected.tobytes()


def test_what_lies_beyond_the_sites(batch: Batch) -> None:
    panel, phred_SX3, haploid_X, bases_X = batch
    here = slice(40, 171)
    cut_X = [one.take((one.panel_index >= 40) & (one.panel_index < 171)) for one in bases_X]
    renumbered_X = [
        FragmentBases(
            np.unique(one.fragment, return_inverse=True)[1], *(one.panel_index, one.allele, one.quality)
        )
        for one in cut_X
    ]
    found, expected = (
        genotypes_from_likelihoods(panel, 40, phred_SX3[here], haploid_X, 1, None, bases)
        for bases in (bases_X, renumbered_X)
    )
    assert found.tobytes() == expected.tobytes()


def test_bases_of_highest_quality_and_of_none(rng: np.random.Generator) -> None:
    panel = panel_without_ld(rng, 6)
    rows = [(i, s, int(rng.integers(0, 2))) for i in range(40) for s in range(6)]
    for quality in (0, 1, 93, 254):
        bases = bases_of(rows, quality)
        phred_SX3 = phred_of([bases], 6)
        p_S2X = genotypes_from_likelihoods(panel, 0, phred_SX3, diploid(1), 1, None, [bases])
        assert ((p_S2X >= 0) & (p_S2X <= 1)).all()


def test_fragments_whose_other_site_says_nothing(rng: np.random.Generator) -> None:
    panel = panel_without_ld(rng, 32)
    rows = [(i, s, 1) for i in range(30) for s in (i + 1, 31 if i % 2 else 0)]
    bases = bases_of(rows)
    bases.quality[np.isin(bases.panel_index, (0, 31))] = 0
    phred_SX3 = phred_of([bases], 32)
    assert not phred_SX3[[0, 31]].any()
    found, expected = (
        genotypes_from_likelihoods(panel, 0, phred_SX3, diploid(1), 1, None, given) for given in ([bases], ())
    )
    assert found.tobytes() == expected.tobytes()
