"""PGEN, BGEN and VCF of one run give PLINK 2 equal association results, up to the rounding of the formats."""

import gzip
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

import spinimpute
from spinimpute.pipeline.settings import OutputSettings, RegionSettings

pytest.importorskip("pgenlib")
bgen = pytest.importorskip("bgen")
pytestmark = pytest.mark.skipif(shutil.which("plink2") is None, reason="plink2 is not installed")

REGION = RegionSettings("20:200000-600000")
BITS = (8, 16)


@pytest.fixture(scope="module")
def folder(example: Path, example_panel: spinimpute.Panel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """i.vcf.gz, i.pgen, i8.bgen, i16.bgen, and traits.txt: the dosage of one site, and noise."""
    folder = tmp_path_factory.mktemp("association")
    outputs = {"i.vcf.gz": 8, "i.pgen": 8, "i8.bgen": 8, "i16.bgen": 16}
    for name, bits in outputs.items():
        output = OutputSettings(bgen_bits=bits)
        spinimpute.impute(
            example / "target.vcf.gz", folder / name, example_panel, region=REGION, output=output
        )
    with bgen.BgenReader(folder / "i16.bgen") as reader:
        dosages, samples = np.array([variant.alt_dosage for variant in reader]), reader.samples
    causal = dosages[dosages.var(axis=1).argmax()]
    noise = np.random.default_rng(1).normal(size=len(samples))
    rows = [f"{name}\t{value:.6f}" for name, value in zip(samples, causal + noise, strict=True)]
    (folder / "traits.txt").write_text("\n".join(["#IID\tTRAIT", *rows]) + "\n")
    return folder


@pytest.fixture(scope="module")
def associate(folder: Path) -> Callable[..., dict[str, np.ndarray]]:
    """associate(name, *input): effects, errors and P of all sites, by column."""

    def run(name: str, *given: str) -> dict[str, np.ndarray]:
        command = ["plink2", "--threads", "1", "--memory", "640", *given, "--pheno", "traits.txt"]
        command += ["--glm", "allow-no-covars", "--out", name]
        subprocess.run(command, cwd=folder, capture_output=True, check=True)
        head, *rows = [
            line.split("\t") for line in (folder / f"{name}.TRAIT.glm.linear").read_text().splitlines()
        ]
        assert {row[head.index("A1")] == row[head.index("ALT")] for row in rows} <= {True, False}
        # PLINK tests the rarer allele; count ALT everywhere
        sign = np.array([1 if row[head.index("A1")] == row[head.index("ALT")] else -1 for row in rows])
        columns = {
            key: np.array([row[head.index(key)].replace("NA", "nan") for row in rows], float)
            for key in ("BETA", "SE", "P")
        }
        return columns | {"BETA": columns["BETA"] * sign}

    return run


def differences(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> np.ndarray:
    """Differences of the effects, in standard errors, at sites whose dosages vary more than their rounding.

    An effect has a standard error above 5 if nearly all dosages are 0: the trait has a variance of about 1.
    """
    tested = np.isfinite(found["BETA"]) & (expected["SE"] < 5)
    assert tested.sum() > 500
    return np.abs(found["BETA"] - expected["BETA"])[tested] / expected["SE"][tested]


def given_bgen(bits: int) -> Sequence[str]:
    return "--bgen", f"i{bits}.bgen", "ref-first", "--sample", f"i{bits}.sample"


def test_pgen_and_vcf_are_equal(associate: Callable[..., dict[str, np.ndarray]]) -> None:
    pgen, vcf = associate("pgen", "--pfile", "i"), associate("vcf", "--vcf", "i.vcf.gz", "dosage=DS")
    for key, values in pgen.items():
        np.testing.assert_array_equal(values, vcf[key])
    assert np.isfinite(pgen["P"]).sum() > 100
    assert np.nanmin(pgen["P"]) < 0.01


@pytest.mark.parametrize("bits", BITS)
def test_bgen_is_equal_to_a_vcf_of_its_dosages(
    folder: Path, associate: Callable[..., dict[str, np.ndarray]], bits: int
) -> None:
    """Only PLINK's own rounding to 1/16384 remains."""
    with bgen.BgenReader(folder / f"i{bits}.bgen") as reader:
        dosages = [variant.alt_dosage for variant in reader]
    lines = gzip.decompress((folder / "i.vcf.gz").read_bytes()).decode().splitlines()
    head = [line for line in lines if line[0] == "#"]
    rows = []
    for line, of_site in zip(lines[len(head) :], dosages, strict=True):
        columns = line.split("\t")
        calls = [
            f"{call.split(':')[0]}:{dosage:.6f}" for call, dosage in zip(columns[9:], of_site, strict=True)
        ]
        rows.append("\t".join([*columns[:9], *calls]))
    (folder / f"rounded{bits}.vcf").write_text("\n".join([*head, *rows]) + "\n")
    found = associate(f"bgen{bits}", *given_bgen(bits))
    expected = associate(f"rounded{bits}", "--vcf", f"rounded{bits}.vcf", "dosage=DS")
    assert differences(found, expected).max() < 2e-3


@pytest.mark.parametrize(("bits", "largest"), [(8, 0.05), (16, 2e-3)])
def test_bgen_and_pgen_differ_by_the_rounding(
    associate: Callable[..., dict[str, np.ndarray]], bits: int, largest: float
) -> None:
    found, expected = associate(f"b{bits}", *given_bgen(bits)), associate("p", "--pfile", "i")
    assert differences(found, expected).max() < largest
