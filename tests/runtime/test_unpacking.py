"""What is compressed is read up to a bound: a small file neither fills the memory nor takes for ever."""

import gzip
import struct
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from spinimpute.genotypes.genetic_map import GeneticMap
from spinimpute.genotypes.sites import Sites
from spinimpute.panels import container
from spinimpute.runtime import unpacking
from spinimpute.runtime.errors import InputError
from spinimpute.runtime.unpacking import TooLong, gunzip, open_text, text_lines, why_unreadable
from spinimpute.targets.array_sites import read_array
from spinimpute.targets.array_text import is_array_text, read_array_text
from spinimpute.targets.liftover import Lift
from spinimpute.vcf import variant_file
from spinimpute.vcf.bcf_format import file_start
from spinimpute.vcf.bgzf import BLOCK_SIZE, EOF_BLOCK, DamagedFile, compress_block, open_decompressed
from spinimpute.vcf.variant_file import VariantFile

PANEL = Sites("20", np.array([1]), ["A"], ["C"], ["."])
HEAD = b"rsid\tchromosome\tposition\tgenotype\n"


@pytest.fixture(autouse=True)
def small_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpacking, "_MIN_LIMIT", 2**19)


def bomb(first: bytes = b"", letter: bytes = b" ") -> bytes:
    """8 KB that unpack to 8 MB."""
    return gzip.compress(first) + gzip.compress(letter * 2**23, 9)


READERS: dict[str, tuple[bytes, Callable[[Path], object]]] = {
    "genetic map": (b"20 . 0 1\n", lambda path: GeneticMap.read(path, "20")),
    "chain": (b"chain 1 20 9 + 0 9 20 9 + 0 9 1\n9\n", lambda path: Lift(path, "20")),
    "array": (b"20 1\n", lambda path: read_array(path, PANEL, np.array([0.5]))),
    "array text": (HEAD, read_array_text),
}


@pytest.mark.parametrize("letter", [b" ", b"\n"], ids=["one line", "many lines"])
@pytest.mark.parametrize("kind", READERS)
def test_what_unpacks_to_far_more_is_refused(kind, letter, tmp_path):
    first, read = READERS[kind]
    path = tmp_path / "bomb.gz"
    path.write_bytes(bomb(first, letter))
    tracemalloc.start()
    with pytest.raises(InputError, match=r"bomb\.gz.*more than [0-9,]+") as error:
        read(path)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert "\n" not in str(error.value)
    assert most < 7e6


def test_what_becomes_a_hundred_times_as_long_is_read(tmp_path):
    content = b"20 10\n" * 2**16
    path = tmp_path / "t.gz"
    path.write_bytes(gzip.compress(content))
    assert gunzip(path.read_bytes()) == content
    with open_text(path) as file:
        assert sum(1 for _ in text_lines(file)) == 2**16
    assert gunzip(content) == content
    with pytest.raises(TooLong, match="unpack to more than 524,288"):
        gunzip(gzip.compress(content * 2))


def test_a_line_that_is_none(tmp_path):
    path = tmp_path / "long.txt"
    path.write_bytes(HEAD + b"x" * 2**21)
    with pytest.raises(InputError, match=r"long\.txt.*line 2 has more than 1,048,576 characters"):
        read_array_text(path)


METHODS = {"lzma": zipfile.ZIP_LZMA, "bzip2": zipfile.ZIP_BZIP2}


@pytest.mark.parametrize("method", METHODS)
def test_archives_of_other_methods(method, tmp_path):
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", METHODS[method]) as archive:
        archive.writestr("genome.txt", HEAD + b"rs1\t20\t5\tAC\n")
    with pytest.raises(
        InputError,
        match=r"a\.zip: the archive is compressed with another method than Deflate.*\. Unpack the file",
    ):
        is_array_text(path)


@pytest.mark.parametrize(
    ("place", "what"), [(6, "is encrypted"), (8, "is compressed with another method than Deflate")]
)
def test_archives_that_are_changed(place, what, tmp_path):
    """The flags, or the method, in both heads of the file in it."""
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("genome.txt", HEAD + b"rs1\t20\t5\tAC\n")
    content = bytearray(path.read_bytes())
    central = content.index(b"PK\1\2") + 2
    value = 1 if place == 6 else 97
    content[place] = content[central + place] = value
    path.write_bytes(content)
    with pytest.raises(InputError, match=f"the archive {what}. Unpack the file" if place == 6 else what):
        is_array_text(path)


def test_an_archive_that_unpacks_to_far_more(tmp_path):
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("genome.txt", HEAD + b"rs1\t20\t5\tAC\n" * 2**20)
    assert is_array_text(path)
    with pytest.raises(InputError, match=r"a\.zip.*unpack to more than"):
        read_array_text(path)


def test_sections_of_panels(monkeypatch):
    assert container._decompress(container.compress(b"x" * 2**19)) == b"x" * 2**19
    with pytest.raises(TooLong, match="unpack to more than 524,288"):
        container._decompress(container.compress(bytes(2**25)))


def test_a_block_of_bgzf_holds_no_more_than_it_may(tmp_path):
    data = bytes(2**25)
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    deflated = packer.compress(data) + packer.flush()
    size = (len(deflated) + 25).to_bytes(2, "little")
    end = zlib.crc32(data).to_bytes(4, "little") + len(data).to_bytes(4, "little")
    head = EOF_BLOCK[:16] + size
    path = tmp_path / "t.gz"
    path.write_bytes(head + deflated + end)
    with open_decompressed(path) as file, pytest.raises(DamagedFile, match=r"truncated|checksum"):
        file.read(10)


VCF = b"##fileformat=VCFv4.2\n#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\tFORMAT\ts\n"


def in_blocks(content: bytes) -> bytes:
    packed = [compress_block(content[at : at + BLOCK_SIZE]) for at in range(0, len(content), BLOCK_SIZE)]
    return b"".join([*packed, EOF_BLOCK])


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("line.vcf.gz", in_blocks(VCF + b"20\t1\t" + b"A" * 2**20)),
        ("line.plain.gz", gzip.compress(VCF + b"20\t1\t" + b"A" * 2**20)),
        ("header.bcf", in_blocks(file_start(VCF[:-1] + b"#" * 2**20))),
        ("record.bcf", in_blocks(file_start(VCF) + struct.pack("<2I", 2**19, 2**19) + bytes(2**20))),
    ],
)
def test_a_small_file_with_a_huge_record(name, content, tmp_path, monkeypatch):
    """The library would take the memory for it before it sees that it is none."""
    path = tmp_path / name
    path.write_bytes(content)
    monkeypatch.setattr(variant_file, "MAX_RECORD", 2**19)
    with pytest.raises(InputError, match=r"bytes unpack to a line or record of at least [0-9,]+ bytes"):
        VariantFile(path, "target")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (PermissionError(13, "Permission denied", "a"), "it cannot be read (Permission denied)"),
        (EOFError("cut"), "it cannot be read (cut)"),
        (
            UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid"),
            "it is not valid UTF-8. Save it as UTF-8 text",
        ),
    ],
)
def test_the_reason_has_no_error_numbers(error, reason):
    assert why_unreadable(error) == reason
