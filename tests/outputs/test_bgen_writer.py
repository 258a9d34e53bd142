"""`--out x.bgen`: what plink2 and the library bgen read is what the VCF of the same run holds."""

import shutil
import sqlite3
import struct
import subprocess
import zlib
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

import spinimpute
from spinimpute.genotypes.sites import Sites
from spinimpute.outputs.bgen_writer import BgenWriter
from spinimpute.pipeline.settings import OutputSettings, RegionSettings
from spinimpute.runtime.errors import InputError
from spinimpute.vcf.header import OutputLayout
from spinimpute.vcf.record_block import RecordBlock
from spinimpute.vcf.writer import GenotypeWriter

bgen = pytest.importorskip("bgen")

REGION = RegionSettings("20:200000-300000")


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("decimals", [1, 3, 5])
def test_halves_and_what_is_nearly_certain_are_rounded_as_in_vcf(
    tmp_path: Path, decimals: int, bits: int
) -> None:
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
    with BgenWriter(tmp_path / "o.bgen", layout, bits=bits) as writer:
        writer.write_block(RecordBlock("20", sites, dosage, {}, None, np.zeros(n, dtype=bool)))
    with GenotypeWriter(tmp_path / "o.vcf", layout) as plain:
        plain.write_block(RecordBlock("20", sites, dosage, {}, None, np.zeros(n, dtype=bool)))
    rows = [line for line in (tmp_path / "o.vcf").read_text().splitlines() if line[0] != "#"]
    expected = [float(row.split(":")[-1].split(",")[0]) for row in rows]
    with bgen.BgenReader(tmp_path / "o.bgen") as reader:
        found = [variant.probabilities[0][1] for variant in reader]
    np.testing.assert_allclose(found, expected, rtol=0, atol=0.5 / (2**bits - 1) + 1e-7)


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("formats", [("GT", "DS"), ("GT", "DS", "HDS")])
def test_dosages_are_those_of_the_vcf(
    example: Path, example_panel: spinimpute.Panel, tmp_path: Path, formats: Sequence[str], bits: int
) -> None:
    half_step = 0.5 / (2**bits - 1)
    for name in ("i.vcf", "i.bgen"):
        spinimpute.impute(
            example / "target.vcf.gz",
            tmp_path / name,
            example_panel,
            region=REGION,
            output=OutputSettings(formats, bgen_bits=bits),
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
            np.testing.assert_allclose(variant.alt_dosage, expected, atol=3 * half_step + 1e-5)
            if variant.is_phased:
                of_haplotypes = [[float(p) for p in call[2].split(",")] for call in of_samples]
                np.testing.assert_allclose(
                    variant.probabilities[:, 1::2], of_haplotypes, atol=half_step + 1e-7
                )
    program = shutil.which("plink2")
    if program is None:
        pytest.skip("plink2 is not installed")
    command = [program, "--bgen", "i.bgen", "ref-first", "--sample", "i.sample"]
    command += ["--export", "A", "--out", "read"]
    subprocess.run(command, cwd=tmp_path, capture_output=True, check=True)
    table = [line.split("\t")[6:] for line in (tmp_path / "read.raw").read_text().splitlines()[1:]]
    of_ref = np.array(table, float).T
    expected_copies = [[float(call[1]) for call in of_samples] for of_samples in calls]
    np.testing.assert_allclose(2 - of_ref, expected_copies, atol=3 * half_step + 1e-4)


@pytest.mark.parametrize("formats", [("GT", "DS"), ("GT", "HDS")])
def test_a_man_on_x(tmp_path: Path, formats: Sequence[str]) -> None:
    sites = Sites("X", np.array([3_000_000, 3_000_001]), ["A", "C"], ["G", "T"], ["rs1", "."])
    p = np.array([[0.25, 0.125, 1.0], [0.5, np.nan, np.nan]], np.float32)
    layout = OutputLayout(["man", "woman"], np.array([1, 2]), ["##contig=<ID=X>"], (), formats)
    with BgenWriter(tmp_path / "x.bgen", layout, bits=16) as writer:
        writer.write_block(RecordBlock("X", sites, p, {}, None, np.zeros(2, bool)))
    with bgen.BgenReader(tmp_path / "x.bgen") as reader:
        first, second = list(reader)
        assert first.ploidy.tolist() == [1, 2]
        np.testing.assert_allclose(first.alt_dosage, [0.25, 1.125], atol=4e-5)
        np.testing.assert_allclose(second.alt_dosage, [0.5, np.nan], atol=4e-5)
    assert (tmp_path / "x.sample").read_text().splitlines()[2:] == ["0 man 0 1", "0 woman 0 2"]


def test_other_bits_are_refused(tmp_path: Path) -> None:
    layout = OutputLayout(["a"], np.array([2], np.uint8), ["##contig=<ID=20>"])
    for bits in (0, 12, 32):
        with pytest.raises(InputError, match=f"must be 8 or 16, got {bits}"):
            BgenWriter(tmp_path / "o.bgen", layout, bits=bits)
    assert not list(tmp_path.iterdir())


def test_missing_and_haploid_calls_in_eight_bits(tmp_path: Path) -> None:
    """The bytes of a block, by the specification of BGEN 1.2."""
    sites = Sites("X", np.array([3_000_000]), ["A"], ["G"], ["rs1"])
    p = np.array([[0.2, np.nan, 1.0, 0.4, 0.2]], np.float32)
    layout = OutputLayout(["man", "none", "woman"], np.array([1, 2, 2]), ["##contig=<ID=X>"], (), ("DS",))
    with BgenWriter(tmp_path / "x.bgen", layout) as writer:
        writer.write_block(RecordBlock("X", sites, p, {}, None, np.zeros(1, bool)))
    data = (tmp_path / "x.bgen").read_bytes()
    block = zlib.decompress(data[data.index(b"\x78\x9c") :])
    expected = struct.pack("<IHBB3BBB", 3, 2, 1, 2, 1, 2 | 0x80, 2, 0, 8)
    none, below_two = round(0.6 * 0.8 * 255), round((1 - 0.4 * 0.2) * 255)
    assert block == expected + bytes([round(0.8 * 255), 0, 0, none, below_two - none])


@pytest.mark.parametrize("n_samples", [1, 2_000])
def test_bytes_do_not_depend_on_threads_or_blocks(tmp_path: Path, n_samples: int) -> None:
    """Small blocks are compressed by another library than large ones."""
    rng = np.random.default_rng(1)
    n = 50
    sites = Sites("20", np.arange(1, n + 1), ["A"] * n, ["C"] * n, ["."] * n)
    p = rng.random((n, 2 * n_samples)).astype(np.float32)
    layout = OutputLayout([f"s{i}" for i in range(n_samples)], np.full(n_samples, 2), ["##contig=<ID=20>"])
    contents = set()
    for name, threads, step in (("a", 1, n), ("b", 3, 7), ("c", 8, 1)):
        with BgenWriter(tmp_path / f"{name}.bgen", layout, threads=threads) as writer:
            for start in range(0, n, step):
                rows = slice(start, start + step)
                part = sites.take(rows)
                writer.write_block(RecordBlock("20", part, p[rows], {}, None, np.zeros(len(part), bool)))
        index = (tmp_path / f"{name}.bgen.bgi").read_bytes().replace(f"{name}.bgen".encode(), b"")
        contents.add(((tmp_path / f"{name}.bgen").read_bytes(), index))
    assert len(contents) == 1


@pytest.fixture
def indexed(example: Path, example_panel: spinimpute.Panel, tmp_path: Path) -> Path:
    spinimpute.impute(example / "target.vcf.gz", tmp_path / "i.bgen", example_panel, region=REGION)
    return tmp_path / "i.bgen"


def test_the_index_leads_to_each_record(indexed: Path) -> None:
    with bgen.BgenReader(indexed, delay_parsing=True) as reader:
        variants = list(reader)
        listed = [(v.chrom, v.pos, v.rsid, v.alleles) for v in variants]
        some = [v.pos for v in reader.fetch("20", 220_000, 240_000)]
        assert some == [pos for _, pos, _, _ in listed if 220_000 <= pos <= 240_000]
        assert some
        np.testing.assert_array_equal(reader.with_rsid(listed[7][2])[0].alt_dosage, variants[7].alt_dosage)
    data = indexed.read_bytes()
    with closing(sqlite3.connect(f"{indexed}.bgi")) as database:
        columns = "chromosome, position, rsid, allele1, allele2, file_start_position, size_in_bytes"
        rows = database.execute(f"SELECT {columns} FROM Variant ORDER BY file_start_position").fetchall()
        counts = database.execute("SELECT DISTINCT number_of_alleles FROM Variant").fetchall()
        described = database.execute("SELECT * FROM Metadata").fetchall()
    assert [(row[0], row[1], row[2], list(row[3:5])) for row in rows] == [
        (chrom, pos, name, list(alleles)) for chrom, pos, name, alleles in listed
    ]
    assert counts == [(2,)]
    for row in rows:  # each record starts with its ID, and the next one starts where it ends
        name = row[2].encode()
        assert data[row[5] :].startswith(struct.pack("<H", len(name)) + name)
    assert [row[5] + row[6] for row in rows] == [*(row[5] for row in rows[1:]), len(data)]
    assert described == [("i.bgen", len(data), 0, data[:1_000], 0)]


def test_bgenix_reads_the_index_as_its_own(indexed: Path) -> None:
    program = shutil.which("bgenix")
    if program is None:
        pytest.skip("bgenix is not installed (pip install bgenix)")

    def rows() -> list[str]:
        command = [program, "-g", indexed, "-list", "-incl-range", "20:220000-240000"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return [line for line in done.stdout.splitlines() if not line.startswith("#")]

    def tables() -> list[object]:
        with closing(sqlite3.connect(f"{indexed}.bgi")) as database:
            return [
                database.execute("SELECT * FROM Variant").fetchall(),
                database.execute("SELECT file_size, first_1000_bytes FROM Metadata").fetchall(),
            ]

    found = rows(), tables()
    Path(f"{indexed}.bgi").unlink()
    subprocess.run([program, "-g", indexed, "-index"], capture_output=True, check=True)
    assert (rows(), tables()) == found
    assert len(found[0]) > 20


def test_an_index_of_an_earlier_file_is_replaced(example: Path, indexed: Path) -> None:
    Path(f"{indexed}.bgi").write_text("old")
    with pytest.raises(InputError, match="already exists"):
        spinimpute.convert(example / "target.vcf.gz", indexed, example / "panel.vcf.gz")
    spinimpute.convert(example / "target.vcf.gz", indexed, example / "panel.vcf.gz", force=True)
    with bgen.BgenReader(indexed, delay_parsing=True) as reader:
        assert len(list(reader.fetch("20", 1, 10**7))) == len(reader.positions()) > 100


def test_nothing_is_left_after_an_error(tmp_path: Path) -> None:
    layout = OutputLayout(["a"], np.array([2]), ["##contig=<ID=1>"], (), ("GT",))
    with pytest.raises(ZeroDivisionError), BgenWriter(tmp_path / "o.bgen", layout):
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


def test_ids_that_are_too_long_for_bgen_are_cut_in_the_file_and_in_the_index(tmp_path: Path) -> None:
    """A character of several bytes is left out as a whole."""
    sites = Sites("20", np.array([1, 2]), ["A"] * 2, ["C"] * 2, ["x" * 65_534 + "é" + "y" * 9, "z"])
    layout = OutputLayout(["a"], np.array([2], np.uint8), ["##contig=<ID=20>"], formats=("GT", "DS"))
    with BgenWriter(tmp_path / "o.bgen", layout) as writer:
        writer.write_block(
            RecordBlock("20", sites, np.zeros((2, 2), np.float32), {}, None, np.zeros(2, bool))
        )
    with bgen.BgenReader(tmp_path / "o.bgen") as reader:
        assert [variant.rsid for variant in reader] == ["x" * 65_534, "z"]
    with closing(sqlite3.connect(tmp_path / "o.bgen.bgi")) as index:
        rows = index.execute("SELECT rsid FROM Variant ORDER BY position").fetchall()
    assert rows == [("x" * 65_534,), ("z",)]
