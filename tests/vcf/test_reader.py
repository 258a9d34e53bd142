"""Haplotypes read from files of every kind equal what a plain reading of the text says; bad files say why."""

import gzip
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import cyvcf2
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spinimpute.genotypes.sites import Region
from spinimpute.runtime.errors import InputError
from spinimpute.vcf import reader as vcf_reader
from spinimpute.vcf.reader import HaplotypeReader, Haplotypes, read_haplotypes

WriteVcf = Callable[..., Path]
KINDS = ["t.vcf", "t.vcf.gz", "t.bcf", "t.plain.gz"]

# b is haploid, c has missing calls of every form; one record has two usable ALT alleles and a symbolic one
RECORDS = [
    (100, "A", "C", ["0|1", "1", "0|0"]),
    (200, "G", "GA", ["1/1", ".", "./."]),
    (200, "T", "A,<DEL>,c", ["1|3", "3", "2|0"]),
    (300, "C", "T", ["1|0", "0", ".|1"]),
    (400, "C", "G", ["1|0", "0", "./1"]),
    (500, "C", "*", ["1|0", "0", "0|0"]),
    (600, "C", ".", ["0|0", "0", "0|0"]),
]
EXPECTED = [
    (100, "A", "C", [0, 1, 1, 0, 0]),
    (200, "G", "GA", [1, 1, -1, -1, -1]),
    (200, "T", "A", [1, 0, 0, 0, 0]),
    (200, "T", "c", [0, 1, 1, 0, 0]),
    (300, "C", "T", [1, 0, 0, -1, 1]),
    (400, "C", "G", [1, 0, 0, -1, -1]),
]


def rows(haplotypes: Haplotypes) -> list[tuple[int, str, str, list[int]]]:
    sites = haplotypes.sites
    return list(zip(sites.position.tolist(), sites.ref, sites.alt, haplotypes.alleles.tolist(), strict=True))


def plain_reading(records: list, n_samples: int) -> tuple[list, list[int]]:
    """Biallelic rows as `EXPECTED`, and the ploidy of each sample, read call by call from the text."""
    ploidy = [max(len(re.split(r"[|/]", record[3][i])) for record in records) for i in range(n_samples)]
    result = []
    for position, ref, alts, genotypes in records:
        for number, alt in enumerate(alts.split(","), start=1):
            if not alt.isalpha():
                continue
            row = []
            for copies, genotype in zip(ploidy, genotypes, strict=True):
                alleles = re.split(r"[|/]", genotype)
                if "/" in genotype and "." in alleles:
                    alleles = [".", "."]
                alleles += ["."] * (copies - len(alleles))
                row += [-1 if allele == "." else int(allele == str(number)) for allele in alleles]
            result.append((position, ref, alt, row))
    return result, ploidy


@pytest.mark.parametrize(
    ("chrom", "found"), [("23", [100]), ("25", [200]), ("X", [300]), ("chr23", [100]), ("26", [])]
)
def test_numbers_are_autosomes_where_the_file_says_so(
    write_vcf: WriteVcf, tmp_path: Path, chrom: str, found: list[int]
) -> None:
    """A file of cattle: 23 and 25 are not X."""
    one = write_vcf([(p, "A", "C", ["0|1"]) for p in (100, 200, 300)], name="one.vcf").read_text()
    path = tmp_path / "cattle.vcf"
    for position, name in ((100, "23"), (200, "25"), (300, "X")):
        one = re.sub(rf"^\S+\t{position}\t", f"{name}\t{position}\t", one, flags=re.M)
    path.write_text(re.sub(r"##contig=.*\n", "##contig=<ID=23>\n##contig=<ID=25>\n##contig=<ID=X>\n", one))
    if found:
        assert read_haplotypes(path, chrom=chrom).sites.position.tolist() == found
    else:
        with pytest.raises(InputError):
            read_haplotypes(path, chrom=chrom)


@pytest.mark.parametrize("listed", ["PAR1,X,PAR2", "X,PAR1,PAR2"])
def test_parts_of_x_have_names_of_their_own(write_vcf: WriteVcf, tmp_path: Path, listed: str) -> None:
    text = write_vcf([(p, "A", "C", ["0|1"]) for p in (100, 200, 300)], name="one.vcf", chrom="X").read_text()
    for position, name in ((100, "PAR1"), (300, "PAR2")):
        text = re.sub(rf"^X\t{position}\t", f"{name}\t{position}\t", text, flags=re.M)
    contigs = "".join(f"##contig=<ID={name},length=9>\n" for name in listed.split(","))
    path = tmp_path / "x.vcf"
    path.write_text(re.sub(r"##contig=.*\n##contig=.*\n", contigs, text))
    for region in (None, Region("X", 150, 400)):
        haplotypes = read_haplotypes(path, region, chrom="X")
        assert haplotypes.sites.position.tolist() == [100, 200, 300][region is not None :]
        assert haplotypes.sites.chrom == "X"
        assert haplotypes.contig_line == "##contig=<ID=X,length=9>"
        assert haplotypes.skipped == {}


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_file_and_of_call(write_vcf: WriteVcf, name: str) -> None:
    haplotypes = read_haplotypes(write_vcf(RECORDS, name=name))
    assert rows(haplotypes) == EXPECTED
    assert haplotypes.alleles.dtype == np.int8
    assert haplotypes.samples == ["a", "b", "c"]
    assert haplotypes.ploidy.tolist() == [2, 1, 2]
    assert haplotypes.ploidy.dtype == np.uint8
    assert haplotypes.contig_line == "##contig=<ID=20,length=63025520>"
    assert haplotypes.sites.chrom == "20"
    assert haplotypes.sites.id == ["rs100", "rs200", "rs200", "rs200", "rs300", "rs400"]
    assert haplotypes.skipped == {"symbolic ALT": 1, "ALT * (spanning deletion)": 1, "no ALT allele": 1}


@st.composite
def variant_files(draw: st.DrawFn) -> tuple[list, int]:
    n_samples = draw(st.integers(1, 4))
    ploidy = draw(st.lists(st.sampled_from([1, 2, 2]), min_size=n_samples, max_size=n_samples))
    records, position = [], 10
    for _ in range(draw(st.integers(1, 40))):
        position += draw(st.integers(0, 2))
        alts = draw(st.sampled_from(["C", "C", "G", "CT", "C,G", "G,<DEL>,T", "*,C"]))
        allele = st.sampled_from([str(i) for i in range(alts.count(",") + 2)] + ["."])
        genotypes = []
        for copies in ploidy:
            first, second = draw(allele), draw(allele)
            if copies == 1:
                genotypes.append(first)
            elif first == second or "." in (first, second):
                genotypes.append(first + draw(st.sampled_from("/|")) + second)
            else:
                genotypes.append(f"{first}|{second}")
        records.append((position, "A", alts, genotypes))
    # one record with every call, so that the ploidy is known
    records.append((position + 1, "A", "T", ["1" if copies == 1 else "0|1" for copies in ploidy]))
    return records, n_samples


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(variant_files(), st.sampled_from(KINDS))
def test_reading_equals_a_plain_reading_of_the_text(
    write_vcf: WriteVcf, monkeypatch: pytest.MonkeyPatch, content: tuple[list, int], name: str
) -> None:
    monkeypatch.setattr(vcf_reader, "BLOCK_BYTES", 1)  # blocks of 16 records: their borders matter too
    records, n_samples = content
    expected, ploidy = plain_reading(records, n_samples)
    haplotypes = read_haplotypes(write_vcf(records, name=name))
    assert rows(haplotypes) == expected
    assert haplotypes.ploidy.tolist() == ploidy


def test_blocks_join_to_the_whole(write_vcf: WriteVcf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vcf_reader, "BLOCK_BYTES", 1)
    rng = np.random.default_rng(1)
    records = [
        (i, "A", "C,G" if i % 7 == 0 else "C", [f"{a}|{b}" for a, b in rng.integers(0, 2, (3, 2))])
        for i in range(1, 101)
    ]
    path = write_vcf(records, name="t.bcf")
    blocks = list(HaplotypeReader(path))
    whole = read_haplotypes(path)
    assert len(blocks) == 7
    np.testing.assert_array_equal(np.concatenate([block.alleles for block in blocks]), whole.alleles)
    joined = []
    for block in blocks:
        joined += block.sites.keys()
    assert joined == whole.sites.keys()
    split = np.concatenate([block.multiallelic for block in blocks])
    assert (whole.sites.position[split] % 7 == 0).all()
    assert split.sum() == 2 * (100 // 7)


@pytest.mark.parametrize("name", KINDS)
def test_samples_come_in_the_order_asked_for(write_vcf: WriteVcf, name: str) -> None:
    path = write_vcf(RECORDS, name=name)
    haplotypes = read_haplotypes(path, samples=["c", "a"])
    assert haplotypes.samples == ["c", "a"]
    order = [3, 4, 0, 1]
    assert rows(haplotypes) == [(*row[:3], [row[3][i] for i in order]) for row in EXPECTED]


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        (["a", "x", "y"], r"2 of the requested samples are not in the file: x, y"),
        ([f"x{i:02}" for i in range(12)], r"x09 and 2 more"),
        (["a", "a"], "sample a is requested more than once"),
        ([], "list of samples to read is empty"),
    ],
)
def test_unknown_and_repeated_samples_are_refused(
    write_vcf: WriteVcf, samples: list[str], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        read_haplotypes(write_vcf(RECORDS), samples=samples)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
def test_a_pipe(write_vcf: WriteVcf, tmp_path: Path) -> None:
    path, pipe = write_vcf(RECORDS), tmp_path / "pipe"
    os.mkfifo(pipe)
    # a process, not a thread: htslib waits for the writer without giving up the interpreter's lock
    with subprocess.Popen(f"cat '{path}' > '{pipe}'", shell=True):
        assert rows(read_haplotypes(pipe)) == EXPECTED


def test_a_sample_without_any_call(write_vcf: WriteVcf) -> None:
    alone = read_haplotypes(write_vcf([(1, "A", "C", ["0|1", "."]), (2, "A", "C", ["0|1", "./."])]))
    assert alone.ploidy.tolist() == [2, 2]
    beside_haploid = read_haplotypes(write_vcf([(1, "A", "C", ["0", "."]), (2, "A", "C", ["1", "./."])]))
    assert beside_haploid.ploidy.tolist() == [1, 1]
    assert beside_haploid.alleles.tolist() == [[0, -1], [1, -1]]


@pytest.mark.parametrize("name", ["t.vcf", "t.bcf"])
@pytest.mark.parametrize("calls", [("./.", "./."), ("0/.", "./1"), (".|.", "./.")])
def test_two_alleles_are_stated_where_none_is_called(
    write_vcf: WriteVcf, name: str, calls: tuple[str, str]
) -> None:
    """Also beside a haploid sample."""
    records = [(1, "A", "C", ["0", calls[0]]), (2, "A", "C", ["1", calls[1]])]
    haplotypes = read_haplotypes(write_vcf(records, name=name))
    assert haplotypes.ploidy.tolist() == [1, 2]
    assert haplotypes.alleles.tolist() == [[0, -1, -1], [1, -1, -1]]


def test_windows_line_ends(write_vcf: WriteVcf) -> None:
    path = write_vcf(RECORDS)
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert rows(read_haplotypes(path)) == EXPECTED


def test_haploid_file(write_vcf: WriteVcf) -> None:
    haplotypes = read_haplotypes(
        write_vcf([(1, "A", "C", ["0", "1"]), (2, "A", "C,G", ["2", "."])], chrom="chrX")
    )
    assert haplotypes.ploidy.tolist() == [1, 1]
    assert haplotypes.alleles.tolist() == [[0, 1], [0, -1], [1, -1]]
    assert haplotypes.contig_line.startswith("##contig=<ID=chrX,")


# regions and chromosomes


@pytest.fixture
def two_chromosomes(tmp_path: Path, write_vcf: WriteVcf) -> Callable[[str], Path]:
    """A file with 300 sites on chromosome 20 and 200 on 21; some records on 20 are long deletions."""

    def write(name: str) -> Path:
        rng = np.random.default_rng(0)
        records = []
        for position in range(1000, 4000, 10):
            deletion = position % 100 == 0
            calls = [f"{a}|{b}" for a, b in rng.integers(0, 2, (2, 2))]
            records.append((position, "A" * 30 if deletion else "A", "A" if deletion else "C", calls))
        write_vcf(records, name="t.vcf")
        lines = (tmp_path / "source.txt").read_text().splitlines(keepends=True)
        body = [line for line in lines if not line.startswith("#")]
        lines += ["21" + line[2:] for line in body[:200]]
        text = tmp_path / "two.txt"
        text.write_text("".join(lines))
        reader = cyvcf2.VCF(str(text))
        writer = cyvcf2.Writer(str(tmp_path / name), reader, mode="wb" if name.endswith("bcf") else "wz")
        for record in reader:
            writer.write_record(record)
        writer.close()
        return tmp_path / name

    return write


@pytest.mark.parametrize("name", ["two.vcf.gz", "two.bcf"])
@pytest.mark.parametrize("indexed", [True, False])
def test_region_with_and_without_an_index(
    two_chromosomes: Callable[[str], Path], request: pytest.FixtureRequest, name: str, indexed: bool
) -> None:
    path = two_chromosomes(name)
    if indexed:
        request.getfixturevalue("index")(path)
    for text in ("chr20", "20:1500-2510", "20:1501-", "chr20:1505-1515", "20:2000", "21:1-1200"):
        region = Region.parse(text)
        haplotypes = read_haplotypes(path, region)
        end = 4000 if region.chrom != "21" else 3000
        # a deletion that begins before the region reaches into it but is not part of it
        expected = [p for p in range(1000, end, 10) if region.start <= p <= region.end]
        assert haplotypes.sites.position.tolist() == expected
        assert haplotypes.sites.chrom == region.chrom.removeprefix("chr")
        assert haplotypes.skipped == {}
    with pytest.raises(InputError, match=r"no record in 20:1-999"):
        read_haplotypes(path, Region.parse("20:1-999"))
    with pytest.raises(InputError, match=r"no record in 22"):
        read_haplotypes(path, Region.parse("22"))


@pytest.mark.parametrize("indexed", [True, False])
def test_one_chromosome_of_several(
    two_chromosomes: Callable[[str], Path], request: pytest.FixtureRequest, indexed: bool
) -> None:
    path = two_chromosomes("two.bcf")
    if indexed:
        request.getfixturevalue("index")(path)
    haplotypes = read_haplotypes(path, chrom="chr21")
    assert haplotypes.sites.position.tolist() == list(range(1000, 3000, 10))
    assert haplotypes.skipped == {"on another chromosome": 300}
    with pytest.raises(
        InputError, match=r"more than one chromosome, 20 and 21 \(record 301\).*region=\.\.\."
    ):
        read_haplotypes(path)
    with pytest.raises(InputError, match="no record in X"):
        read_haplotypes(path, chrom="X")
    with pytest.raises(InputError, match="Give one of the two"):
        read_haplotypes(path, Region.parse("20"), chrom="21")


def test_an_index_older_than_the_file_is_not_used(
    two_chromosomes: Callable[[str], Path], index: Callable[[Path], None]
) -> None:
    path = two_chromosomes("two.bcf")
    index(path)
    stale = path.with_name(path.name + ".csi")
    content = stale.read_bytes()
    two_chromosomes("two.bcf")
    stale.write_bytes(content[:40])
    os.utime(stale, (1, 1))
    assert len(read_haplotypes(path, Region.parse("21")).sites) == 200


# files that are refused


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([(5, "A", "C", ["0|0", "0/1"])], r"sample b has, at 20:5, an unphased heterozygote. Phase the file"),
        ([(5, "A", "C,G", ["1/2", "0|1"])], r"sample a has, at 20:5, an unphased"),
        ([(5, "A", "C", ["0|2", "0|1"])], r"sample a has, at 20:5, a genotype with an ALT"),
        ([(5, "A", "C", ["0|0|1", "0|1"])], r"sample a has a call of 3 alleles at 20:5"),
        (
            [(5, "A", "C", ["0|0", "0|1"]), (6, "A", "C", ["0|0", "1"])],
            r"b is haploid at 20:6 but diploid before",
        ),
        (
            [(5, "A", "C", ["0", "1"]), (6, "A", "C", ["0|0", "1"])],
            r"a is diploid at 20:6 but haploid before",
        ),
        ([(5, "A", "C", ["0|0"]), (4, "A", "C", ["0|0"])], r"backwards at record 2, 20:4 after 20:5. Sort"),
        ([(5, "A", "<DEL>", ["0|0"])], r"no usable record \(symbolic ALT: 1\)"),
    ],
)
def test_bad_genotypes_say_sample_and_position(
    write_vcf: WriteVcf, name: str, records: list, message: str
) -> None:
    path = write_vcf(records, name=name)
    with pytest.raises(InputError, match=message) as caught:
        read_haplotypes(path, role="panel")
    assert str(caught.value).startswith(f"panel {path}: ")


def test_missing_calls_are_refused_on_request(write_vcf: WriteVcf) -> None:
    path = write_vcf([(5, "A", "C", ["0|0", "0|1"]), (6, "A", "C", ["0|0", ".|1"])])
    assert len(read_haplotypes(path).sites) == 2
    with pytest.raises(InputError, match="sample b has, at 20:6, a missing genotype"):
        read_haplotypes(path, allow_missing=False)


def edit(path: Path, change: Callable[[str], str]) -> Path:
    path.write_text(change(path.read_text()))
    return path


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text.replace("GT", "DP"), r"no genotypes \(GT\) at 20:1"),
        (
            lambda text: text.replace("PASS\t.\tGT\t0|1\t1|1", "PASS\t.\tDP\t1\t2"),
            r"no genotypes \(GT\) at 20:1",
        ),
        (lambda text: re.sub(r"\tFORMAT.*|\tGT\t.*", "", text), "sites without samples"),
        (lambda text: re.sub(r"(?m)^20.*\n", "", text), "the file has no records"),
        (lambda text: text[: text.index("#CHROM")], "header cannot be read"),
        (lambda text: re.sub("FORMAT\t.*", "FORMAT", text), "sites without samples"),
        (lambda text: text.replace("\t", " "), "#CHROM has spaces between its columns. Use tabs"),
        (lambda text: text.replace("0|1", "A/T", 2), r"malformed at record 1, .*\(line 7: "),
        (lambda text: re.sub(r"1\|1\n", "0|-1\n", text), "malformed at record 1"),
        (lambda text: text.replace("0|1\t", "", 2), "malformed at record 1"),
        (lambda text: text.replace("Type=String", "Type=Integer"), "malformed at record 1"),
        (lambda text: text[:-3], "truncated: its last line has no newline"),
        (lambda text: text[: text.rindex("\t")] + "\n", r"truncated or malformed at record 3, after 20:2"),
        (lambda text: "", "the file is empty"),
        (lambda text: "rs123 20 1 AC\n" * 20, "no VCF or BCF file: it starts with"),
    ],
)
def test_bad_text_files(write_vcf: WriteVcf, change: Callable[[str], str], message: str) -> None:
    records = [(position, "A", "C", ["0|1", "1|1"]) for position in (1, 2, 3)]
    path = edit(write_vcf(records), change)
    with pytest.raises(InputError, match=message) as caught:
        read_haplotypes(path)
    assert str(path) in str(caught.value)


def test_missing_file_folder_and_other_compressed_files(tmp_path: Path) -> None:

    with pytest.raises(InputError, match="no such file"):
        read_haplotypes(tmp_path / "absent.vcf")
    with pytest.raises(InputError, match="a folder"):
        read_haplotypes(tmp_path)
    other = tmp_path / "other.vcf.gz"
    other.write_bytes(gzip.compress(b"position,allele\n"))
    with pytest.raises(InputError, match="a compressed file, but not of a VCF"):
        read_haplotypes(other)
    other.write_bytes(gzip.compress(os.urandom(1000))[:15])
    with pytest.raises(InputError, match="the compressed file is truncated"):
        read_haplotypes(other)


@pytest.mark.parametrize("name", ["t.vcf.gz", "t.bcf", "t.plain.gz"])
def test_a_compressed_file_cut_anywhere_is_refused(write_vcf: WriteVcf, name: str) -> None:
    rng = np.random.default_rng(0)
    records = [(i, "A", "C", [f"{a}|{b}" for a, b in rng.integers(0, 2, (20, 2))]) for i in range(1, 3001)]
    path = write_vcf(records, name=name)
    content = path.read_bytes()
    assert len(read_haplotypes(path).sites) == 3000
    for length in [*range(1, 60, 7), *rng.integers(60, len(content), 25).tolist(), len(content) - 28]:
        path.write_bytes(content[:length])
        with pytest.raises(InputError, match=r"truncated|damaged|no VCF"):
            read_haplotypes(path)


def test_a_text_file_cut_anywhere_is_refused_or_lacks_whole_records(write_vcf: WriteVcf) -> None:
    records = [(position, "A", "C", ["0|1", "1|1"]) for position in (11, 12, 13)]
    path = write_vcf(records)
    content = path.read_bytes()
    read_until = {}
    for length in range(len(content)):
        path.write_bytes(content[:length])
        try:
            read_until[length] = len(read_haplotypes(path).sites)
        except InputError:
            continue
    line = content.index(b"20\t12") - content.index(b"20\t11")
    assert read_until == {len(content) - line: 2, len(content) - 2 * line: 1}


def test_a_damaged_index_is_not_used(write_vcf: WriteVcf) -> None:
    path = write_vcf([(1, "A", "C", ["0|1"])], name="t.bcf")
    path.with_name("t.bcf.csi").write_bytes(b"this is no index")
    assert read_haplotypes(path, Region.parse("20")).sites.position.tolist() == [1]


# real files


def test_real_panel(shared_genotypes: Path) -> None:
    path = shared_genotypes / "chr22_1kg" / "panel.bcf"
    haplotypes = read_haplotypes(path)
    assert haplotypes.alleles.shape == (32_781, 4_508)
    counts = [record.INFO["AC"] for record in cyvcf2.VCF(str(path))]
    np.testing.assert_array_equal(haplotypes.alleles.sum(axis=1, dtype=np.int64), counts)
