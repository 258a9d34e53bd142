"""Programs find the records of any region through the indexes of written files."""

import shutil
import subprocess

import cyvcf2
import numpy as np
import pytest

from spinimpute.genotypes.sites import Sites
from spinimpute.vcf.header import OutputLayout
from spinimpute.vcf.index_reader import check_index, read_index
from spinimpute.vcf.record_block import RecordBlock
from spinimpute.vcf.writer import GenotypeWriter

needs_bcftools = pytest.mark.skipif(shutil.which("bcftools") is None, reason="bcftools is not installed")
needs_tabix = pytest.mark.skipif(shutil.which("tabix") is None, reason="tabix is not installed")


CONTIGS = ["##contig=<ID=9,length=1000>", "##contig=<ID=chr1,length=3000000>", "##contig=<ID=2>"]


def random_sites(chrom: str, n: int, longest_position: int, rng: np.random.Generator) -> Sites:
    position = np.sort(rng.integers(1, longest_position, n))
    ref = ["ACGT" * int(rng.integers(1, 9_000)) if i % 97 == 0 else "A" for i in range(n)]
    return Sites(chrom, position.astype(np.int64), ref, ["C"] * n, [f"{chrom}_{i}" for i in range(n)])


@pytest.fixture(scope="module", params=["vcf.gz", "bcf"])
def indexed(request, tmp_path_factory):
    """A file of two contigs, and the contig, begin, end and ID of each record."""
    rng = np.random.default_rng(3)
    path = tmp_path_factory.mktemp("indexed") / f"x.{request.param}"
    truth = []
    with GenotypeWriter(path, OutputLayout(["a", "b"], np.array([2, 2], np.uint8), CONTIGS)) as writer:
        for chrom, n, longest in (("chr1", 3000, 2_900_000), ("2", 1500, 5_000_000)):
            sites = random_sites(chrom, n, longest, rng)
            dosage = rng.random((n, 4), dtype=np.float32)
            writer.write_block(RecordBlock(chrom, sites, dosage, {}, None, np.zeros(n, dtype=bool)))
            truth += [
                (chrom, position, position + len(ref) - 1, name)
                for position, ref, name in zip(sites.position.tolist(), sites.ref, sites.id, strict=True)
            ]
    return path, truth


def random_regions(n: int) -> list[tuple[str, int, int]]:
    rng = np.random.default_rng(5)
    regions = [("chr1", 1, 1), ("chr1", 1, 3_000_000), ("2", 1, 10_000_000), ("2", 4_999_000, 6_000_000)]
    for _ in range(n):
        start = int(rng.integers(1, 5_000_000))
        regions.append((("chr1", "2")[int(rng.integers(2))], start, start + int(10 ** rng.uniform(0, 6))))
    return regions


def expected(truth, chrom: str, start: int, end: int) -> list[str]:
    return [name for contig, first, last, name in truth if contig == chrom and first <= end and last >= start]


def test_cyvcf2_finds_the_records_of_any_region(indexed):
    path, truth = indexed
    reader = cyvcf2.VCF(str(path))
    for chrom, start, end in random_regions(60):
        found = [record.ID for record in reader(f"{chrom}:{start}-{end}")]
        assert found == expected(truth, chrom, start, end)
    reader.close()


def test_little_is_read_before_a_small_region(indexed):
    path, _ = indexed
    size = path.stat().st_size
    for contig in read_index(path):
        position, offset = np.array(contig.linear).T
        assert np.diff(position).max() <= 2**17
        assert np.diff(offset).max() < size / 5


@needs_bcftools
def test_bcftools_finds_the_records_of_any_region_and_counts_them(indexed):
    path, truth = indexed
    for chrom, start, end in random_regions(10):
        query = ["bcftools", "query", "-f", "%ID\n", "-r", f"{chrom}:{start}-{end}", str(path)]
        found = subprocess.run(query, check=True, capture_output=True, text=True).stdout.split()
        assert found == expected(truth, chrom, start, end)
    counts = subprocess.run(["bcftools", "index", "-n", path], check=True, capture_output=True, text=True)
    assert counts.stdout.strip() == str(len(truth))
    by_contig = subprocess.run(["bcftools", "index", "-s", path], check=True, capture_output=True, text=True)
    rows = {line.split("\t")[0]: line.split("\t")[2] for line in by_contig.stdout.splitlines()}
    assert rows == {"chr1": "3000", "2": "1500"}


@needs_tabix
def test_tabix_lists_the_contigs_of_a_vcf(tmp_path):
    path = tmp_path / "x.vcf.gz"
    rng = np.random.default_rng(0)
    with GenotypeWriter(path, OutputLayout(["a"], np.array([1], np.uint8), CONTIGS)) as writer:
        for chrom in ("2", "chr1"):
            writer.write_block(
                RecordBlock(
                    chrom,
                    random_sites(chrom, 10, 900, rng),
                    np.zeros((10, 1)),
                    {},
                    None,
                    np.zeros(10, dtype=bool),
                )
            )
    listed = subprocess.run(["tabix", "-l", path], check=True, capture_output=True, text=True).stdout.split()
    assert listed == ["2", "chr1"]


@pytest.mark.parametrize("line", ["##contig=<ID=1,length=700000000>", "##contig=<ID=1>"])
def test_a_vcf_of_a_contig_too_long_for_tbi_gets_a_csi_index(tmp_path, line):
    path = tmp_path / "x.vcf.gz"
    position = np.array([5, 2**29 - 1, 2**29, 2**29 + 1, 690_000_000])
    sites = Sites("1", position, ["A"] * 5, ["T"] * 5, [str(i) for i in range(5)])
    with GenotypeWriter(path, OutputLayout(["a"], np.array([2], np.uint8), [line])) as writer:
        writer.write_block(RecordBlock("1", sites, np.zeros((5, 2)), {}, None, np.zeros(5, dtype=bool)))
    assert {file.name for file in tmp_path.iterdir()} == {"x.vcf.gz", "x.vcf.gz.csi"}
    reader = cyvcf2.VCF(str(path))
    assert [record.ID for record in reader(f"1:{2**29}-{2**29 + 1}")] == ["2", "3"]
    assert [record.ID for record in reader("1:600000000-700000000")] == ["4"]
    reader.close()


@pytest.mark.parametrize("length", [2**31 - 1, 2**31, 10**13 - 1, 10**14 - 1])
@pytest.mark.parametrize("suffix", ["vcf.gz", "bcf"])
def test_a_contig_longer_than_any(tmp_path, suffix, length):
    """A length in the header of a panel that no position can reach counts for none."""
    path, line = tmp_path / f"x.{suffix}", f"##contig=<ID=20,length={length}>"
    sites = Sites("20", np.arange(60_000, 60_008), ["A"] * 8, ["C"] * 8, ["."] * 8)
    with GenotypeWriter(path, OutputLayout(["a"], np.array([2], np.uint8), [line])) as writer:
        writer.write_block(
            RecordBlock("20", sites, np.zeros((8, 2), np.float32), {}, None, np.zeros(8, dtype=bool))
        )
    check_index(path, "target")
    reader = cyvcf2.VCF(str(path))
    assert line in reader.raw_header
    assert len(list(reader("20:60000-63000"))) == 8
    reader.close()
