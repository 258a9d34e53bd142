"""Distinction of lost sites from sites where nobody carries the rarer allele."""

import numpy as np
import pytest

from spinimpute.panels.merging.lost_sites import estimate_min_copies, lost_sites


def kept_sites(random: np.random.Generator, n_haplotypes: int = 1_000) -> tuple[np.ndarray, np.ndarray]:
    """Copies of the rarer allele in two panels of one population, at sites in both."""
    share = 10 ** random.uniform(-3, -0.3, 5_000)
    carried, minor = (random.binomial(n_haplotypes, share) for _ in range(2))
    known = (carried > 0) & (minor > 0)
    return carried[known], minor[known]


def absent_sites(random: np.random.Generator, n: int = 1_000) -> tuple[np.ndarray, np.ndarray]:
    """Counts at sites where nobody carries the allele and a few haplotypes seem to."""
    return random.poisson(random.exponential(1, n)), random.geometric(0.6, n)


def test_a_panel_that_has_lost_nothing() -> None:
    random = np.random.default_rng(1)
    carried, minor = kept_sites(random)
    seeming, minor_absent = absent_sites(random)
    assert not lost_sites(seeming, minor_absent, carried, minor, 1_000, 1_000).any()


def test_lost_sites_are_found_among_absent_ones() -> None:
    random = np.random.default_rng(2)
    carried, minor = kept_sites(random)
    lost = random.random(len(carried)) < 0.1
    seeming, minor_absent = absent_sites(random)
    found = lost_sites(
        np.concatenate([seeming, carried[lost]]),
        np.concatenate([minor_absent, minor[lost]]),
        carried[~lost],
        minor[~lost],
        1_000,
        1_000,
    )
    of_absent, of_lost = found[: len(seeming)], found[len(seeming) :]
    assert of_absent.mean() < 0.02
    assert of_lost[carried[lost] > 10].all()
    assert of_lost.mean() > 0.7


def test_rare_alleles_of_a_filtered_panel_are_lost() -> None:
    random = np.random.default_rng(3)
    carried, minor = kept_sites(random)
    filtered = carried < 5
    found = lost_sites(
        carried[filtered], minor[filtered], carried[~filtered], minor[~filtered], 1_000, 1_000, min_copies=5
    )
    assert found.all()


def test_an_allele_without_seeming_carriers_is_absent() -> None:
    many = np.full(100, 50)
    found = lost_sites(np.array([0, 400]), np.array([300, 300]), many, many, 1_000, 1_000, min_copies=5)
    assert found.tolist() == [False, True]


@pytest.mark.parametrize("n_sites", [0, 3])
def test_few_sites_show_no_loss(n_sites: int) -> None:
    kept = np.full(n_sites, 1)
    assert lost_sites(np.array([], np.int64), np.array([], np.int64), kept, kept, 20, 20).shape == (0,)
    assert not lost_sites(np.array([1]), np.array([1]), kept, kept, 20, 20).any()


def test_fewest_copies() -> None:
    counts = np.concatenate([np.arange(1, 100), np.arange(901, 1_000), [0, 1_000]])
    assert estimate_min_copies(counts, 1_000) == 1
    few_are_rarer = np.concatenate([[1], np.full(500, 5), np.full(500, 995)])
    assert estimate_min_copies(few_are_rarer, 1_000) == 5
    assert estimate_min_copies(np.array([0, 10]), 10) == 1
