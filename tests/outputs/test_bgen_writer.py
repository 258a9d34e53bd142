"""`--out x.bgen`: what plink2 and the library bgen read is what the VCF of the same run holds."""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import spinimpute
from spinimpute.genotypes.sites import Sites
from spinimpute.outputs.bgen_writer import BgenWriter
from spinimpute.pipeline.settings import OutputSettings, RegionSettings
from spinimpute.vcf.header import OutputLayout
from spinimpute.vcf.writer import GenotypeWriter

bgen = pytest.importorskip("bgen")

REGION = RegionSettings("20:200000-300000")


@pytest.mark.parametrize("decimals", [1, 3, 5])
def test_halves_and_what_is_nearly_certain_are_rounded_as_in_vcf(tmp_path: Path, decimals: int) -> None:
    """Numbers at the edges of rounding, in the single precision that probabilities have."""
    unit = np.float32(10.0**-decimals)
    edges = np.array([0.5, 0.75, 1.5, 2.5, 3.5, 10**decimals - 1.5, 10**decimals - 0.75], np.float32) * unit
    p = np.stack([np.nextafter(edges, np.float32(x)) for x in (0, 2)] + [edges]).ravel()[:, None]
    n = len(p)
    sites = Sites("20", np.arange(1, n + 1), ["A"] * n, ["C"] * n, ["."] * n)
    dosage = np.repeat(p, 2, axis=1)
    layout = OutputLayout(
        ["a"], np.array([2], np.uint8), ["##contig=<ID=20>"], formats=("GT", "HDS"), decimals=decimals
    )
    with BgenWriter(tmp_path / "o.bgen", layout) as writer:
        writer.write_block("20", sites, dosage, {}, None, np.zeros(n, dtype=bool))
    with GenotypeWriter(tmp_path / "o.vcf", layout) as plain:
        plain.write_block("20", sites, dosage, {}, None, np.zeros(n, dtype=bool))
    rows = [line for line in (tmp_path / "o.vcf").read_text().splitlines() if line[0] != "#"]
    expected = [float(row.split(":")[-1].split(",")[0]) for row in rows]
    with bgen.BgenReader(tmp_path / "o.bgen") as reader:
        found = [variant.probabilities[0][1] for variant in reader]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 if decimals < 5 else 8e-6)


@pytest.mark.parametrize("formats", [("GT", "DS"), ("GT", "DS", "HDS")])
def test_dosages_are_those_of_the_vcf(
    example: Path, example_panel: spinimpute.Panel, tmp_path: Path, formats: Sequence[str]
) -> None:
    for name in ("i.vcf", "i.bgen"):
        spinimpute.impute(
            example / "target.vcf.gz",
            tmp_path / name,
            example_panel,
            region=REGION,
            output=OutputSettings(formats),
        )
    rows = [line.split("\t") for line in (tmp_path / "i.vcf").read_text().splitlines() if line[:2] != "##"]
    calls = [[call.split(":") for call in row[9:]] for row in rows[1:]]
    with bgen.BgenReader(tmp_path / "i.bgen") as reader:
        assert list(reader.samples) == rows[0][9:]
        variants = list(reader)
        for variant, row, of_samples in zip(variants, rows[1:], calls, strict=True):
            assert [variant.chrom, str(variant.pos), variant.rsid, *variant.alleles] == row[:5]
            assert variant.is_phased == ("HDS" in formats)
            expected = [float(call[1]) for call in of_samples]
            np.testing.assert_allclose(variant.alt_dosage, expected, atol=4e-5)
            if variant.is_phased:
                of_haplotypes = [[float(p) for p in call[2].split(",")] for call in of_samples]
                np.testing.assert_allclose(variant.probabilities[:, 1::2], of_haplotypes, atol=2e-5)
    program = shutil.which("plink2")
    if program is None:
        pytest.skip("plink2 is not installed")
    command = [program, "--bgen", "i.bgen", "ref-first", "--sample", "i.sample"]
    command += ["--export", "A", "--out", "read"]
    subprocess.run(command, cwd=tmp_path, capture_output=True, check=True)
    table = [line.split("\t")[6:] for line in (tmp_path / "read.raw").read_text().splitlines()[1:]]
    of_ref = np.array(table, float).T
    expected_copies = [[float(call[1]) for call in of_samples] for of_samples in calls]
    np.testing.assert_allclose(2 - of_ref, expected_copies, atol=1e-4)


@pytest.mark.parametrize("formats", [("GT", "DS"), ("GT", "HDS")])
def test_a_man_on_x(tmp_path: Path, formats: Sequence[str]) -> None:
    sites = Sites("X", np.array([3_000_000, 3_000_001]), ["A", "C"], ["G", "T"], ["rs1", "."])
    p = np.array([[0.25, 0.125, 1.0], [0.5, np.nan, np.nan]], np.float32)
    layout = OutputLayout(["man", "woman"], np.array([1, 2]), ["##contig=<ID=X>"], (), formats)
    with BgenWriter(tmp_path / "x.bgen", layout) as writer:
        writer.write_block("X", sites, p, {}, None, np.zeros(2, bool))
    with bgen.BgenReader(tmp_path / "x.bgen") as reader:
        first, second = list(reader)
        assert first.ploidy.tolist() == [1, 2]
        np.testing.assert_allclose(first.alt_dosage, [0.25, 1.125], atol=4e-5)
        np.testing.assert_allclose(second.alt_dosage, [0.5, np.nan], atol=4e-5)
    assert (tmp_path / "x.sample").read_text().splitlines()[2:] == ["0 man 0 1", "0 woman 0 2"]
