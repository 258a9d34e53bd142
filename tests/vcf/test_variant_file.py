"""`VariantFile`: what it gives of a whole file, and how it refuses others."""

import bz2
import gzip
import lzma
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from spinimpute.runtime.errors import InputError
from spinimpute.vcf.variant_file import VariantFile

RECORDS = [(i, "A", "C,G" if i == 2 else "C", ["0|1", "1"]) for i in range(1, 6)]


@pytest.mark.parametrize("name", ["t.vcf", "t.vcf.gz", "t.bcf", "t.plain.gz"])
def test_header_and_records(write_vcf: Callable[..., Path], name: str) -> None:
    with VariantFile(write_vcf(RECORDS, name=name), "target") as file:
        assert file.samples == ["a", "b"]
        assert file.contigs == ["20", "21"]
        assert file.contig_line("20").startswith("##contig=<ID=20,length=63025520")
        assert file.contig_line("X") == "##contig=<ID=X>"
        assert [file.declares(key) for key in ("GT", "DS")] == [True, False]
        found = []
        for record in file.records():
            np.testing.assert_array_equal(file.genotypes(record), [[0, 1, 1], [1, -2, 1]])
            found.append((record.POS, record.ID, *file.alleles(record)))
        assert found == [(p, f"rs{p}", ref, alt.split(",")) for p, ref, alt, _ in RECORDS]
        assert file.n_read == 5


def test_through_the_index(write_vcf: Callable[..., Path], index: Callable[[Path], None]) -> None:
    path = write_vcf(RECORDS, name="t.bcf")
    with VariantFile(path, "target") as file, pytest.raises(InputError, match="its index cannot be read"):
        _ = file.n_records
    index(path)
    with VariantFile(path, "target") as file:
        assert [record.POS for record in file.records("20:2-3")] == [2, 3]
        assert file.n_records == 5


def read(path: Path) -> None:
    with VariantFile(path, "chunk") as file:
        for record in file.records():
            file.alleles(record)
            file.genotypes(record)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text.replace(b"\ta\tb", b"\ta\ta"), "two samples are named a"),
        (lambda text: text.replace(b"\ta\tb", b"\t\xff\tb"), "header is not valid UTF-8"),
        (lambda text: text.replace(b"20\t3\t", b"2\xff\t3\t"), "chromosome of record 3, after 20:2, is not"),
        (
            lambda text: text.replace(b"\t3\trs3", b"\tx\trs3"),
            r"record 3, after 20:2 \(line 9: '20\\tx\\trs3",
        ),
        (lambda text: text.replace(b"20\t3\t", b"\n20\t3\t"), r"record 3, after 20:2 \(line 9: '\\n'"),
        (lambda text: text + b"\n", r"malformed at record 6, after 20:5 \(line 12: "),
        (lambda text: text.replace(b"20\t3\t", b"\t3\t"), r"record 3, after 20:2 \(line 9: '\\t3"),
        (lambda text: text.replace(b"rs4\tA", b"rs4\t\xff"), "record at 20:4 is not valid UTF-8"),
        (
            lambda text: text.replace(b"rs4\tA\tC\t.\tPASS\t.\tGT\t0|1\t1", b"rs4\tA\tC"),
            "malformed at record 4",
        ),
        (
            lambda text: text.replace(b"##", b"##fileformat=VCFv4.2\n\n##", 1).replace(
                b"\t3\trs3", b"\tx\trs3"
            ),
            r"record 3, after 20:2 \(line 11: ",
        ),
        (lambda text: text[:-5], "truncated"),
    ],
)
def test_defects_name_role_and_place(
    write_vcf: Callable[..., Path], change: Callable[[bytes], bytes], message: str
) -> None:
    path = write_vcf(RECORDS)
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(InputError, match=f"chunk {path}: .*{message}"):
        read(path)


@pytest.mark.parametrize("name", ["t.plain.gz", "t.bcf"])
def test_a_chromosome_that_is_no_text(write_vcf: Callable[..., Path], name: str) -> None:
    path = write_vcf(RECORDS, name=name)
    content = gzip.decompress(path.read_bytes())
    content = content.replace(b"ID=20,", b"ID=2\xff,").replace(b"\n20\t", b"\n2\xff\t")
    path.write_bytes(gzip.compress(content))
    with VariantFile(path, "chunk") as file:
        with pytest.raises(InputError, match="a chromosome in the header or the index is not valid UTF-8"):
            _ = file.contigs
        with pytest.raises(InputError, match="the chromosome of record 1, after the header, is not"):
            next(file.records())


@pytest.mark.parametrize("name", ["t.vcf", "t.vcf.gz", "t.plain.gz"])
@pytest.mark.parametrize("at", [1, 3, 5])
def test_more_columns_than_the_header_names(write_vcf: Callable[..., Path], name: str, at: int) -> None:
    """htslib drops them without a word: genotypes of nobody knows whom."""
    path = write_vcf(RECORDS, name=name)
    packed = path.suffix == ".gz"
    text = gzip.decompress(path.read_bytes()) if packed else path.read_bytes()
    lines = text.splitlines(keepends=True)
    row = len(lines) - len(RECORDS) + at - 1
    lines[row] = lines[row].rstrip() + b"\t1|1\n"
    path.write_bytes(gzip.compress(b"".join(lines)) if packed else b"".join(lines))
    with pytest.raises(
        InputError, match=f"{path}: line {row + 1} has 12 columns, the header 11. Name the missing samples"
    ):
        VariantFile(path, "chunk")


def test_a_tab_at_the_end_is_no_column(write_vcf: Callable[..., Path]) -> None:
    path = write_vcf(RECORDS)
    path.write_bytes(path.read_bytes().replace(b"\t1\n", b"\t1\t\n"))
    with VariantFile(path, "chunk") as file:
        assert len(list(file.records())) == 5


def test_an_empty_line_through_a_pipe(write_vcf: Callable[..., Path], tmp_path: Path) -> None:
    """It cannot be looked at again."""
    path, pipe = write_vcf(RECORDS), tmp_path / "pipe"
    os.mkfifo(pipe)
    text = path.read_bytes().replace(b"20\t3\t", b"\n20\t3\t")
    with subprocess.Popen(["sh", "-c", f"cat > {pipe}"], stdin=subprocess.PIPE) as writer:
        assert writer.stdin is not None
        writer.stdin.write(text)
        writer.stdin.close()
        with pytest.raises(InputError, match=r"malformed at record 3, after 20:2\."):
            read(pipe)


def test_too_little_memory_is_no_defect_of_the_file(write_vcf: Callable[..., Path]) -> None:
    """The library raises a MemoryError, or tells of htslib's as if there were no genotypes."""
    with VariantFile(write_vcf(RECORDS), "chunk") as file:
        for error in (MemoryError, Exception("couldn't get genotypes for variant")):
            record = mock.Mock(**{"genotype.array.side_effect": error, "FORMAT": ["GT", "DS"]})
            with pytest.raises(MemoryError):
                file.genotypes(record)
        record.FORMAT = ["DS"]
        with pytest.raises(InputError, match=r"no genotypes \(GT\)"):
            file.genotypes(record)


def test_many_samples_of_which_two_have_one_name(write_vcf: Callable[..., Path]) -> None:
    path = write_vcf(RECORDS)
    names = "\t".join([*(f"s{i}" for i in range(40_000)), "s39999"])
    path.write_bytes(path.read_bytes().replace(b"\ta\tb", f"\t{names}".encode()))
    started = time.process_time()  # other programs do not count
    with pytest.raises(InputError, match="two samples are named s39999"):
        read(path)
    assert time.process_time() - started < 10


def test_a_name_that_is_no_text(write_vcf: Callable[..., Path], tmp_path: Path) -> None:
    """The file itself is whole."""
    path = write_vcf(RECORDS).rename(tmp_path / os.fsdecode(b"Jos\xe9.vcf"))
    with pytest.raises(InputError, match=r"name of the file, or of a folder, is not valid UTF-8\. Rename it"):
        VariantFile(path, "target")


@pytest.mark.parametrize(
    ("pack", "said"),
    [
        (bz2.compress, r"this is packed with bzip2\. Unpack it \(bunzip2\)"),
        (lzma.compress, r"this is packed with xz\. Unpack it \(unxz\)"),
        (lambda text: b"\x28\xb5\x2f\xfd" + text, r"this is packed with Zstandard\. Unpack it \(unzstd\)"),
        (lambda text: b"PK\x03\x04" + text, r"this is a zip archive\. Unpack it \(unzip\)"),
        (
            lambda text: b"\x6c\x1b\x10" + text,
            r"this is a file of PLINK\. .*--pfile or --bfile PREFIX --export bcf vcf-dosage=DS-force\)",
        ),
        (
            lambda text: b"\x48\1\0\0\x14\0\0\0\x65\x11\0\0\x14\0\0\0bgen" + text,
            r"this is BGEN\. .* --bgen FILE ref-first --export bcf vcf-dosage=DS-force\)",
        ),
        (lambda text: text.decode().encode("utf-16"), r"text in UTF-16\. .* iconv -f utf-16 -t utf-8"),
        (
            lambda text: gzip.compress(text.decode().encode("utf-16")),
            r"text in UTF-16\. .* iconv -f utf-16 -t utf-8",
        ),
    ],
)
def test_other_packings_and_encodings(
    write_vcf: Callable[..., Path], pack: Callable[[bytes], bytes], said: str
) -> None:
    path = write_vcf(RECORDS)
    path.write_bytes(pack(path.read_bytes()))
    with pytest.raises(InputError, match=said):
        VariantFile(path, "target")


def test_a_pipe_with_something_else(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with (
        subprocess.Popen(f"printf 'rs1 20 100 AC' > '{pipe}'", shell=True),
        pytest.raises(InputError, match=r"content of this pipe is not VCF or BCF, .* Copy it to a file"),
    ):
        VariantFile(pipe, "target")
