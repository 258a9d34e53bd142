"""Arrays in, arrays out; and inducing points in place of the panel."""

import shutil
from pathlib import Path

import cyvcf2
import numpy as np
import pytest

import spinimpute
from spinimpute.errors import InputError
from spinimpute.genotypes.sites import match_sites
from spinimpute.genotypes.vcf_reader import Haplotypes, read_haplotypes
from spinimpute.imputation.allele_predictor import AllelePredictor
from spinimpute.imputation.kmer_spin import KmerPredictor
from spinimpute.imputation.panel_blocks import BlockPredictor


@pytest.fixture
def target(example: Path) -> Haplotypes:
    return read_haplotypes(example / "target.vcf.gz")


def test_equal_to_the_command(
    example: Path, example_panel: spinimpute.Panel, target: Haplotypes, tmp_path: Path
) -> None:
    p = spinimpute.impute_haplotypes(example_panel, target.alleles, target.sites)
    spinimpute.impute(example / "target.vcf.gz", tmp_path / "o.bcf", example_panel)
    dosage = np.stack([v.format("DS")[:, 0] for v in cyvcf2.VCF(str(tmp_path / "o.bcf"))])
    np.testing.assert_allclose(p[:, ::2] + p[:, 1::2], dosage, atol=1e-4)
    match = match_sites(example_panel.sites, target.sites)
    by_index = spinimpute.impute_haplotypes(
        example_panel, target.alleles[match.target_index], match.panel_index
    )
    np.testing.assert_array_equal(by_index, p)
    np.testing.assert_array_equal(p[match.panel_index], target.alleles[match.target_index])


@pytest.mark.parametrize("name", ["shipped", "random_kmer_predictor"])
def test_a_saved_h_predicts_without_the_panel(
    name: str,
    request: pytest.FixtureRequest,
    example_panel: spinimpute.Panel,
    target: Haplotypes,
    tmp_path: Path,
) -> None:
    model: BlockPredictor = (
        spinimpute.load_predictor(inducing_points=64) if name == "shipped" else request.getfixturevalue(name)
    )
    path = tmp_path / "p.spin"
    shutil.copy(example_panel.path, path)
    with spinimpute.Panel.open(path) as panel:
        match = match_sites(panel.sites, target.sites)
        typed = target.alleles[match.target_index]
        with_panel = spinimpute.impute_haplotypes(panel, typed, match.panel_index, model)
        spinimpute.encode_panel(panel, match.panel_index, model).save(tmp_path / "h.safetensors")
    path.unlink()
    compressed = spinimpute.InducingPanel.open(tmp_path / "h.safetensors")
    without = spinimpute.impute_haplotypes(compressed, typed, match.panel_index, model)
    np.testing.assert_array_equal(without, with_panel)
    assert compressed.sites.keys() == example_panel.sites.keys()
    assert compressed.checksum == example_panel.checksum


def test_inducing_points_of_another_model_or_array(
    example_panel: spinimpute.Panel,
    random_predictor: AllelePredictor,
    random_kmer_predictor: KmerPredictor,
    tmp_path: Path,
) -> None:
    typed = np.arange(2, 300, 9)
    alleles = np.zeros((len(typed), 2), dtype=np.int8)
    compressed = spinimpute.encode_panel(example_panel, typed, random_predictor)
    random_kmer_predictor.fingerprint = "another"
    with pytest.raises(InputError, match="were made by the model allele-cipnp"):
        spinimpute.impute_haplotypes(compressed, alleles, typed, random_kmer_predictor)
    with pytest.raises(InputError, match="encode the panel again for this array"):
        spinimpute.impute_haplotypes(compressed, alleles[1:], typed[1:], random_predictor)
    with pytest.raises(InputError, match="not a readable safetensors file"):
        spinimpute.InducingPanel.open(example_panel.path)


def test_unusable_arrays(example_panel: spinimpute.Panel, random_predictor: AllelePredictor) -> None:
    typed = np.array([3, 5, 8])
    good = np.zeros((3, 2), dtype=np.int8)
    for alleles, sites, message in (
        (good[0], typed, "2 dimensions"),
        (good + 2, typed, "values -1, 0, 1"),
        (good, typed[:2], "must name each of 3 rows"),
        (good, typed[::-1], "increasing"),
        (good, typed * 10_000, "must lie in"),
        (good, typed * 1.0, "integers"),
    ):
        with pytest.raises(ValueError, match=message):
            spinimpute.impute_haplotypes(example_panel, alleles, sites, random_predictor)
    with pytest.raises(InputError, match="no typed site"):
        spinimpute.impute_haplotypes(example_panel, good[:0], typed[:0], random_predictor)


def test_sites_of_which_none_is_visible_get_the_frequency(
    example_panel: spinimpute.Panel, random_predictor: AllelePredictor
) -> None:
    from spinimpute.genotypes.windows import Window
    from spinimpute.imputation.engine import Engine

    with Engine(example_panel, random_predictor, np.array([4000]), 1) as engine:
        p = engine.impute_window(Window(0, 10, 30, 0, 50), np.ones((1, 3), dtype=np.int8))
    np.testing.assert_allclose(p, np.repeat(example_panel.frequency[10:30, None], 3, axis=1), rtol=1e-6)
