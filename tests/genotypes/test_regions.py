"""Several regions: texts, and BED files."""

import gzip
from pathlib import Path

import pytest

from spinimpute.genotypes.regions import parse_regions, read_bed, regions_on_chromosome
from spinimpute.genotypes.sites import Region
from spinimpute.runtime.errors import InputError

BED = (
    "# made by hand\n"
    "browser position chr20:1-100\n"
    "track name=genes\n"
    "\n"
    "20\t99\t200\tgene\t0\t+\n"
    "chr20 150 300\r\n"
    "X\t0\t1\n"
    "20\t400\t401\n"
    "20\t300\t310\n"
)


def test_a_bed_file_counts_from_0_without_the_end(tmp_path: Path) -> None:
    path = tmp_path / "a.bed"
    path.write_text(BED)
    assert read_bed(path) == [
        Region("20", 100, 200),
        Region("chr20", 151, 300),
        Region("X", 1, 1),
        Region("20", 401, 401),
        Region("20", 301, 310),
    ]
    packed = tmp_path / "b.bed.gz"
    packed.write_bytes(gzip.compress(BED.encode()))
    assert read_bed(packed) == read_bed(path)


def test_what_overlaps_or_touches_is_one(tmp_path: Path) -> None:
    path = tmp_path / "a.bed"
    path.write_text(BED)
    expected = [Region("20", 100, 310), Region("20", 401, 401), Region("X", 1, 1)]
    assert parse_regions(None, path) == expected
    assert parse_regions(["20:401", "20:301-310", "20:100-300", "X:1"]) == expected
    assert parse_regions("20:5-") == [Region("20", 5)]
    assert parse_regions(None) == []


def test_a_chromosome_by_all_of_its_names() -> None:
    given = [Region("23", 50, 100), Region("1"), Region("chrX", 1, 60), Region("X", 200, 300)]
    assert regions_on_chromosome(given, "chrX") == [Region("chrX", 1, 100), Region("chrX", 200, 300)]
    assert regions_on_chromosome(given, "2") == []


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"20\t1\t5\n20:7-9\n", r"a\.bed, line 2: '20:7-9' is not a line of a BED file"),
        (b"20\t1\n", "line 1: .* is not a line of a BED file"),
        (b"20\tone\t5\n", "line 1: start and end must be numbers from 0 to 2147483647, got 'one' and '5'"),
        (b"20\t-1\t5\n", "numbers from 0 to 2147483647, got '-1' and '5'"),
        (b"20\t1\t5000000000\n", "line 1: .* got '1' and '5000000000'"),
        (b"20\t9\t5\n", "line 1: the interval from 9 to 5 is empty"),
        (b"20\t5\t5\n", "line 1: the interval from 5 to 5 is empty"),
        (b"\t1\t5\n", "line 1: .* is not a line of a BED file"),
        (b"", "it has no regions"),
        (b"track name=x\n#20\t1\t5\n", "it has no regions"),
        (b"\x6c\x1b\x01\xff\x00", "a PLINK genotype file"),
        (b"\xff\xfe\x00", "it is not text"),
        (b"20\t1\t5\n\0\0", "it is not text"),
        (gzip.compress(b"20\t1\t5\n" * 99, mtime=0)[:-9], "cannot be read"),
        (gzip.compress(bytes(2**28)), "cannot be read .*unpack to more than"),
    ],
)
def test_what_is_no_bed_file(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "a.bed"
    path.write_bytes(content)
    with pytest.raises(InputError, match=f"regions file .*{said}"):
        read_bed(path)


def test_what_cannot_be_chosen(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        parse_regions(None, tmp_path / "absent.bed")
    with pytest.raises(InputError, match=r"given twice. Give region=\.\.\. or regions_file=\.\.\."):
        parse_regions("20", tmp_path / "absent.bed")
    with pytest.raises(InputError, match="the list of regions is empty"):
        parse_regions([])
