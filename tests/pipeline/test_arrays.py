"""Arrays in, arrays out."""

import cyvcf2
import numpy as np
import pytest

import spinimpute
from spinimpute.genotypes.sites import match_sites
from spinimpute.runtime.errors import InputError
from spinimpute.vcf.reader import Haplotypes, read_haplotypes


@pytest.fixture
def target(example) -> Haplotypes:
    return read_haplotypes(example / "target.vcf.gz")


def test_equal_to_the_command(example, example_panel, target, tmp_path):
    p = spinimpute.impute_haplotypes(example_panel, target.alleles, target.sites)
    output = spinimpute.OutputSettings(decimals=5)
    spinimpute.impute(example / "target.vcf.gz", tmp_path / "o.bcf", example_panel, output=output)
    dosage = np.stack([v.format("DS")[:, 0] for v in cyvcf2.VCF(str(tmp_path / "o.bcf"))])
    np.testing.assert_allclose(p[:, ::2] + p[:, 1::2], dosage, atol=1.1e-5)
    match = match_sites(example_panel.sites, target.sites)
    by_index = spinimpute.impute_haplotypes(
        example_panel, target.alleles[match.target_index], match.panel_index
    )
    np.testing.assert_array_equal(by_index, p)
    np.testing.assert_array_equal(p[match.panel_index], target.alleles[match.target_index])


def test_unusable_arrays(example_panel, random_network):
    typed = np.array([3, 5, 8])
    good = np.zeros((3, 2), dtype=np.int8)
    for alleles, sites, message in (
        (good[0], typed, "2 dimensions"),
        (good + 2, typed, "values -1, 0, 1"),
        (good, typed[:2], "must have a site for each of 3 rows"),
        (good, typed[::-1], "increasing"),
        (good, typed * 10_000, "must lie in"),
        (good, typed * 1.0, "integers"),
    ):
        with pytest.raises(ValueError, match=message):
            spinimpute.impute_haplotypes(example_panel, alleles, sites, predictor=random_network)
    with pytest.raises(InputError, match=r"must be an open panel, such as Panel.open\('p.spin'\)"):
        spinimpute.impute_haplotypes("p.spin", good, typed)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="no site in typed_sites"):
        spinimpute.impute_haplotypes(example_panel, good[:0], typed[:0], predictor=random_network)


def test_columns_stand_alone(example_panel, random_predictor, random_network, rng, tmp_path):
    typed_sites = np.arange(7, 4_400, 45)
    alleles = rng.integers(-1, 2, (len(typed_sites), 4)).astype(np.int8)
    with spinimpute.build_inducing_panel(
        example_panel, tmp_path / "p.spip", typed_sites, model=random_predictor
    ) as inducing_panel:
        for source in (example_panel, inducing_panel):
            together = spinimpute.impute_haplotypes(source, alleles, typed_sites, predictor=random_network)
            alone = spinimpute.impute_haplotypes(
                source, alleles[:, [2]], typed_sites, predictor=random_network
            )
            assert together.dtype == np.float32
            np.testing.assert_allclose(alone[:, 0], together[:, 2], atol=1e-5)
            known = alleles >= 0
            np.testing.assert_array_equal(together[typed_sites][known], alleles[known])
            nobody = spinimpute.impute_haplotypes(
                source, alleles[:, :0], typed_sites, predictor=random_network
            )
            assert nobody.shape == (example_panel.n_sites, 0)
            for threads in (0, -1):
                with pytest.raises(InputError, match="threads must be at least 1"):
                    spinimpute.impute_haplotypes(
                        source,
                        alleles,
                        typed_sites,
                        predictor=random_network,
                        resources=spinimpute.Resources(threads=threads),
                    )


def test_without_a_typed_site_there_are_frequencies(example_panel, random_predictor):
    from spinimpute.genotypes.intervals import Interval
    from spinimpute.predictors.interface import ImputationJob
    from spinimpute.predictors.spin.engine import BlockEngine

    with BlockEngine(random_predictor, ImputationJob(example_panel, np.arange(0), threads=1)) as engine:
        p = engine.impute_window(Interval(10, 30), np.ones((0, 3), dtype=np.int8))
    np.testing.assert_allclose(p, np.repeat(example_panel.frequency[10:30, None], 3, axis=1), rtol=1e-6)


def test_the_budget_is_given_in_one_way(example, example_panel, tmp_path):
    settings = spinimpute.PredictorSettings(options={"max_memory": 10**9})
    index = np.arange(7, 4_400, 45)
    with pytest.raises(InputError, match=r"give the budget with Resources\(max_memory=\.\.\.\)"):
        spinimpute.impute_haplotypes(example_panel, np.zeros((len(index), 2), int), index, settings)
    with pytest.raises(InputError, match=r"give the budget with Resources\(max_memory=\.\.\.\)"):
        spinimpute.impute(example / "target.vcf.gz", tmp_path / "o.vcf", example_panel, predictor=settings)
    assert not list(tmp_path.iterdir())


class ScikitAllelArray(np.ndarray):
    """A stand-in: arrays of scikit-allel have a mask of variants and samples, or None."""

    mask: np.ndarray | None = None


def test_masked_alleles_are_missing(example_panel, target):
    """What is under the mask does not count, in any type of integers."""
    index = match_sites(example_panel.sites, target.sites).panel_index
    alleles_TQ = target.alleles[match_sites(example_panel.sites, target.sites).target_index][:, :6]
    mask_TQ = np.zeros(alleles_TQ.shape, bool)
    mask_TQ[3:9, 2:4] = True
    expected = spinimpute.impute_haplotypes(example_panel, np.where(mask_TQ, -1, alleles_TQ), index)
    assert not np.array_equal(expected, spinimpute.impute_haplotypes(example_panel, alleles_TQ, index))
    for dtype, hidden in ((np.int8, 99), (np.int8, -2), (np.uint8, 99), (np.uint64, 99)):
        hidden_TQ = np.where(mask_TQ, hidden, alleles_TQ).astype(dtype)
        masked_TQ = np.ma.MaskedArray(hidden_TQ, mask_TQ)
        np.testing.assert_array_equal(spinimpute.impute_haplotypes(example_panel, masked_TQ, index), expected)
    whole_TQ = np.ma.MaskedArray(alleles_TQ)  # without a mask
    np.testing.assert_array_equal(
        spinimpute.impute_haplotypes(example_panel, whole_TQ, index),
        spinimpute.impute_haplotypes(example_panel, alleles_TQ, index),
    )

    calls_TX2 = alleles_TQ.reshape(len(index), 3, 2)
    numpys = np.ma.MaskedArray(calls_TX2, mask_TQ.reshape(calls_TX2.shape))
    allels = calls_TX2.copy().view(ScikitAllelArray)
    allels.mask = mask_TQ[:, ::2]
    for given in (numpys, allels):
        np.testing.assert_array_equal(
            spinimpute.impute_genotypes(example_panel, given, index).haplotypes, expected
        )
    allels.mask = mask_TQ[1:, ::2]
    with pytest.raises(
        ValueError, match=r"the mask of genotypes must have the shape \(\d+, 3, 2\) or its first axes"
    ):
        spinimpute.impute_genotypes(example_panel, allels, index)


def test_a_masked_haploid_genotype(example_panel, target):
    index = match_sites(example_panel.sites, target.sites).panel_index
    calls_TX2 = np.full((len(index), 1, 2), -2, np.int8)
    calls_TX2[:, :, 0] = 1
    mask_TX2 = np.zeros(calls_TX2.shape, bool)
    mask_TX2[4] = True
    made = spinimpute.impute_genotypes(example_panel, np.ma.MaskedArray(calls_TX2, mask_TX2), index)
    assert made.haploid.tolist() == [True]
    calls_TX2[4, 0, 0] = -1
    np.testing.assert_array_equal(
        made.haplotypes, spinimpute.impute_genotypes(example_panel, calls_TX2, index).haplotypes
    )


def test_masked_likelihoods_say_nothing(example_panel):
    likelihoods_TX3 = np.tile([0.01, 1.0, 0.02], (5, 2, 1))
    mask_TX3 = np.zeros(likelihoods_TX3.shape, bool)
    mask_TX3[2, 1, 0] = True
    index = np.arange(0, 50, 10)
    made = spinimpute.impute_likelihoods(example_panel, np.ma.MaskedArray(likelihoods_TX3, mask_TX3), index)
    likelihoods_TX3[2, 1] = 1
    expected = spinimpute.impute_likelihoods(example_panel, likelihoods_TX3, index)
    np.testing.assert_array_equal(made.haplotypes, expected.haplotypes)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint32, np.uint64, np.int64])
def test_indices_must_increase_in_every_type(example_panel, dtype):
    for index in ([5, 3], [4, 4]):
        with pytest.raises(ValueError, match="must be increasing panel site indices"):
            spinimpute.impute_haplotypes(example_panel, np.zeros((2, 1), np.int8), np.array(index, dtype))


def test_no_haplotypes_give_no_columns(example_panel):
    index = np.array([3, 5])
    made = spinimpute.impute_haplotypes(example_panel, np.zeros((2, 0), np.int8), index)
    assert (made.shape, made.dtype) == ((example_panel.n_sites, 0), np.float32)
    samples = spinimpute.impute_genotypes(example_panel, np.zeros((2, 0, 2), np.int8), index)
    assert samples.dosages.shape == (example_panel.n_sites, 0)
    assert samples.genotypes.shape == (example_panel.n_sites, 0, 2)
    sequenced = spinimpute.impute_likelihoods(example_panel, np.zeros((2, 0, 3)), index)
    assert sequenced.probabilities.shape == (example_panel.n_sites, 0, 3)
    with pytest.raises(ValueError, match="must be increasing"):
        spinimpute.impute_haplotypes(example_panel, np.zeros((2, 0), np.int8), index[::-1])
