import shutil
import struct
import subprocess
from dataclasses import dataclass, field

import cyvcf2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spinimpute.genotypes.sites import Sites
from spinimpute.vcf.header import OutputLayout
from spinimpute.vcf.index_reader import check_index
from spinimpute.vcf.index_writer import ContigRecords, csi_depth, encode_index
from spinimpute.vcf.writer import GenotypeWriter

needs_bcftools = pytest.mark.skipif(shutil.which("bcftools") is None, reason="bcftools is not installed")
needs_tabix = pytest.mark.skipif(shutil.which("tabix") is None, reason="tabix is not installed")


# --- a reader of both formats, written from their specification ------------------------------------------


@dataclass
class ReadContig:
    bins: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    first_offset: dict[int, int] = field(default_factory=dict)  # CSI
    linear: list[int] = field(default_factory=list)  # TBI


@dataclass
class ReadIndex:
    kind: bytes
    names: list[str]
    min_shift: int
    depth: int
    contigs: list[ReadContig]


def read_index(data: bytes) -> ReadIndex:
    place = 4

    def take(form: str) -> tuple:
        nonlocal place
        values = struct.unpack_from("<" + form, data, place)
        place += struct.calcsize("<" + form)
        return values

    kind = data[:4]
    min_shift, depth, auxiliary = 14, 5, 36
    if kind == b"CSI\1":
        min_shift, depth, auxiliary = take("3i")
    n_contigs = take("i")[0] if kind == b"TBI\1" else None
    names: list[str] = []
    if auxiliary:
        assert take("6i") == (2, 1, 2, 0, ord("#"), 0)
        names = take(f"{take('i')[0]}s")[0].decode().split("\0")[:-1]
    if n_contigs is None:
        (n_contigs,) = take("i")
    contigs = []
    for _ in range(n_contigs):
        contig = ReadContig()
        for _ in range(take("i")[0]):
            (number,) = take("I")
            if kind == b"CSI\1":
                (contig.first_offset[number],) = take("Q")
            contig.bins[number] = [take("2Q") for _ in range(take("i")[0])]
        if kind == b"TBI\1":
            contig.linear = list(take(f"{take('i')[0]}Q"))
        contigs.append(contig)
    assert take("Q") == (0,)
    assert place == len(data)
    return ReadIndex(kind, names, min_shift, depth, contigs)


def overlapping_bins(begin: int, end: int, min_shift: int, depth: int) -> list[int]:
    bins, shift = [], min_shift + 3 * depth
    for level in range(depth + 1):
        first = ((1 << 3 * level) - 1) // 7
        bins += range(first + (begin >> shift), first + ((end - 1) >> shift) + 1)
        shift -= 3
    return bins


def chunks_to_read(index: ReadIndex, contig: ReadContig, begin: int, end: int) -> list[tuple[int, int]]:
    """The parts of a file that a reader visits for a query, as htslib does it."""
    smallest = 0
    if contig.linear:
        smallest = contig.linear[min(begin >> index.min_shift, len(contig.linear) - 1)]
    elif contig.first_offset:
        leaf = ((1 << 3 * index.depth) - 1) // 7 + (begin >> index.min_shift)
        while leaf and leaf not in contig.first_offset:
            parent = (leaf - 1) >> 3
            leaf = leaf - 1 if leaf > (parent << 3) + 1 else parent
        smallest = contig.first_offset.get(leaf, 0)
    return [
        chunk
        for number in overlapping_bins(begin, end, index.min_shift, index.depth)
        for chunk in contig.bins.get(number, [])
        if chunk[1] > smallest
    ]


# --- the index alone -------------------------------------------------------------------------------------


def contig_records(name: str, begin: list[int], length: list[int], record_bytes: int = 7000) -> ContigRecords:
    """Records of equal size in a stream whose virtual offsets are made up: blocks of 2**16 bytes."""
    first, stop = np.array(begin, np.int64), np.arange(1, len(begin) + 1, dtype=np.uint64) * record_bytes
    return ContigRecords(
        name, first, first + np.array(length, np.int64), stop - np.uint64(record_bytes), stop
    )


intervals = st.lists(
    st.tuples(st.integers(0, 2_000_000), st.sampled_from([1, 1, 1, 5, 200, 20_000, 300_000])),
    min_size=1,
    max_size=60,
).map(sorted)


@settings(max_examples=150, deadline=None)
@given(intervals, st.integers(0, 2_400_000), st.integers(1, 500_000), st.sampled_from(["tbi", "csi", "bcf"]))
def test_a_query_visits_every_overlapping_record(records, query_begin, query_length, kind):
    begin, length = zip(*records, strict=True)
    contig = contig_records("20", list(begin), list(length))
    longest = 3_000_000
    index = read_index(encode_index([contig], None if kind == "tbi" else longest, of_bcf=kind == "bcf"))
    assert index.names == ([] if kind == "bcf" else ["20"])
    query_end = query_begin + query_length
    chunks = chunks_to_read(index, index.contigs[0], query_begin, query_end)
    for record in np.flatnonzero((contig.begin < query_end) & (contig.end > query_begin)):
        offset, following = int(contig.offset[record]), int(contig.next_offset[record])
        assert any(start <= offset and following <= stop for start, stop in chunks)


@given(intervals)
def test_every_record_lies_in_one_bin_and_the_statistics_count_them(records):
    begin, length = zip(*records, strict=True)
    contig = contig_records("20", list(begin), list(length), record_bytes=70_000)
    index = read_index(encode_index([contig], None))
    bins = index.contigs[0].bins
    assert bins.pop(37_450) == [(int(contig.offset[0]), int(contig.next_offset[-1])), (len(records), 0)]
    covered = sum(stop - start for chunks in bins.values() for start, stop in chunks)
    assert covered == 70_000 * len(records)


def test_few_bytes_are_read_for_a_small_region_of_a_large_file():
    n = 20_000
    contig = contig_records("20", [1000 * i for i in range(n)], [1] * n, record_bytes=1000)
    for data in (encode_index([contig], None), encode_index([contig], 20_000_000)):
        index = read_index(data)
        chunks = chunks_to_read(index, index.contigs[0], 10_000_000, 10_000_100)
        assert sum(stop - start for start, stop in chunks) < 200_000


@pytest.mark.parametrize(
    ("length", "depth"), [(0, 0), (2**14, 0), (2**14 + 1, 1), (2**29, 5), (2**29 + 1, 6), (2**31, 6)]
)
def test_depth_of_a_csi_index(length, depth):
    assert csi_depth(length) == depth


def test_contigs_without_records_keep_their_place_in_the_index_of_a_bcf():
    contigs = [
        contig_records(name, *content) for name, *content in (("1", [], []), ("2", [4], [1]), ("3", [], []))
    ]
    index = read_index(encode_index(contigs, 1000, of_bcf=True))
    assert [len(contig.bins) for contig in index.contigs] == [0, 2, 0]


# --- the index of written files, used by the tools -------------------------------------------------------


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
            writer.write_block(chrom, sites, dosage, {}, None, np.zeros(n, dtype=bool))
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
                chrom,
                random_sites(chrom, 10, 900, rng),
                np.zeros((10, 1)),
                {},
                None,
                np.zeros(10, dtype=bool),
            )
    listed = subprocess.run(["tabix", "-l", path], check=True, capture_output=True, text=True).stdout.split()
    assert listed == ["2", "chr1"]


@pytest.mark.parametrize("line", ["##contig=<ID=1,length=700000000>", "##contig=<ID=1>"])
def test_a_vcf_of_a_contig_too_long_for_tbi_gets_a_csi_index(tmp_path, line):
    path = tmp_path / "x.vcf.gz"
    position = np.array([5, 2**29 - 1, 2**29, 2**29 + 1, 690_000_000])
    sites = Sites("1", position, ["A"] * 5, ["T"] * 5, [str(i) for i in range(5)])
    with GenotypeWriter(path, OutputLayout(["a"], np.array([2], np.uint8), [line])) as writer:
        writer.write_block("1", sites, np.zeros((5, 2)), {}, None, np.zeros(5, dtype=bool))
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
        writer.write_block("20", sites, np.zeros((8, 2), np.float32), {}, None, np.zeros(8, dtype=bool))
    check_index(path, "target")
    reader = cyvcf2.VCF(str(path))
    assert line in reader.raw_header
    assert len(list(reader("20:60000-63000"))) == 8
    reader.close()
