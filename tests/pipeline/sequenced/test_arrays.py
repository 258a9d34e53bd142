"""Likelihoods in, genotypes out, without a file."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import spinimpute
from spinimpute.genotypes.sites import Sites
from spinimpute.runtime.errors import InputError
from spinimpute.sequencing.variant_likelihoods import read_variant_likelihoods
from tests.pipeline.sequenced.outputs import read

ONE_THREAD = spinimpute.Resources(threads=1)


def of_phred(phred: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Likelihoods on any level."""
    return 10 ** (phred / -10.0) * 10.0 ** rng.uniform(-200, 200, (*phred.shape[:2], 1))


def test_equal_to_the_command(world, gl, impute, rng):
    found = read(impute(world, gl))
    with spinimpute.Panel.open(world.panel) as panel:
        given = read_variant_likelihoods(gl, panel)
        likelihoods = of_phred(given.phred_SX3, rng)
        result = spinimpute.impute_likelihoods(panel, likelihoods, given.panel_index, resources=ONE_THREAD)
        order = rng.permutation(len(likelihoods))
        sites = panel.sites.take(given.panel_index[order])
        by_site = spinimpute.impute_likelihoods(panel, likelihoods[order], sites, resources=ONE_THREAD)
    n_sites, n_samples = world.genotype_SX.shape
    assert result.haplotypes.shape == (n_sites, 2 * n_samples)
    for array in (result.haplotypes, result.dosages, result.probabilities):
        assert array.dtype == np.float32
    np.testing.assert_allclose(result.haplotypes.reshape(n_sites, n_samples, 2), found.HDS, atol=1.3e-4)
    np.testing.assert_allclose(result.dosages, found.DS, atol=1.3e-4)
    np.testing.assert_allclose(result.probabilities, found.GP, atol=2.1e-4)
    np.testing.assert_array_equal(by_site.haplotypes, result.haplotypes)


def test_haploid_samples(world, rng):
    """Their middle likelihood means nothing; they have one column, and no effect on the others."""
    haploid_X = np.array([True, False, True, False, False, False])
    copies_SX = np.where(haploid_X, 2 * world.truth_SX2[..., 0], world.genotype_SX)
    likelihoods = of_phred(20 * np.abs(copies_SX[..., None] - np.arange(3)), rng)
    likelihoods[::2, haploid_X, 1] = 0
    index = np.arange(0, len(likelihoods), 3)
    with spinimpute.Panel.open(world.panel) as panel:
        result, others = (
            spinimpute.impute_likelihoods(panel, given[index], index, haploid=haploid, resources=ONE_THREAD)
            for given, haploid in ((likelihoods, haploid_X), (likelihoods[:, ~haploid_X], None))
        )
    assert result.haplotypes.shape == (len(likelihoods), 10)
    np.testing.assert_array_equal(result.dosages[:, ~haploid_X], others.dosages)
    np.testing.assert_array_equal(result.probabilities[:, ~haploid_X], others.probabilities)
    dosages = result.dosages[:, haploid_X]
    np.testing.assert_array_equal(result.haplotypes[:, [0, 3]], dosages)
    expected = np.stack([1 - dosages, np.zeros_like(dosages), dosages], axis=2)
    np.testing.assert_allclose(result.probabilities[:, haploid_X], expected, atol=1e-7)
    assert np.mean((dosages > 0.5) == world.truth_SX2[:, haploid_X, 0]) > 0.97


def changed(to: Any, where: tuple[int, ...] = (2, 1, 0)) -> np.ndarray:
    likelihoods = np.ones((3, 2, 3))
    likelihoods[where] = to
    return likelihoods


@pytest.mark.parametrize(
    ("likelihoods", "said"),
    [
        (np.ones((3, 2)), r"numbers of shape \(sites, samples, 3\), got shape \(3, 2\) of float64"),
        (np.ones((3, 3, 2)), r"shape \(3, 3, 2\)"),
        (np.full((3, 2, 3), "a"), r"of <U1"),
        (changed(np.nan), r"row 2, sample 1 has \[nan, 1.0, 1.0\]"),
        (changed(np.inf), r"row 2, sample 1 has \[inf"),
        (changed(-3.0), r"row 2, sample 1 has \[-3.0"),
        (changed(0.0, (2, 1)), r"row 2, sample 1 has \[0.0, 0.0, 0.0\]"),
    ],
)
def test_unusable_likelihoods(world, likelihoods, said):
    with spinimpute.Panel.open(world.panel) as panel, pytest.raises(ValueError, match=said):
        spinimpute.impute_likelihoods(panel, likelihoods, np.array([3, 5, 8]))


def test_other_unusable_arguments(world):
    good, index = np.ones((3, 2, 3)), np.array([3, 5, 8])
    with spinimpute.Panel.open(world.panel) as panel:
        for sites, haploid, said in (
            (index[:2], None, "sites must have a site for each of 3 rows"),
            (index[::-1], None, "sites must be increasing"),
            (index * 1_000, None, "sites must lie in 0..399"),
            (index, [True], r"haploid must be 2 booleans, got shape \(1,\)"),
            (index, [1, 2], "haploid must be 2 booleans, got .*int64"),
        ):
            with pytest.raises(ValueError, match=said):
                spinimpute.impute_likelihoods(panel, good, sites, haploid=haploid)
        # of the two likelihoods that count, both are 0
        with pytest.raises(ValueError, match="row 0, sample 0"):
            spinimpute.impute_likelihoods(
                panel, changed([0, 1, 0], (0, 0)), index, haploid=np.array([True, False])
            )
        with pytest.raises(InputError, match="are needed with one thread"):
            spinimpute.impute_likelihoods(
                panel, good, index, resources=spinimpute.Resources(max_memory=10**6)
            )
        elsewhere = Sites("20", index, ["A"] * 3, ["C"] * 3, ["."] * 3)
        with pytest.raises(InputError, match="no target site is in the panel"):
            spinimpute.impute_likelihoods(panel, good, elsewhere)
        with pytest.raises(InputError, match="there is no site in sites"):
            spinimpute.impute_likelihoods(panel, good[:0], index[:0])
    with pytest.raises(InputError, match="panel must be an open panel"):
        spinimpute.impute_likelihoods(str(world.panel), good, index)  # type: ignore[arg-type]
    points: Any = SimpleNamespace(haplotypes=None, path=Path("p.spip"), holds="inducing points")
    message = r"p\.spip: sequenced samples cannot be imputed from inducing points"
    with pytest.raises(InputError, match=message):
        spinimpute.impute_likelihoods(points, good, index)
