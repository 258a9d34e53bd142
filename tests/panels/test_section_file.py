"""Sections and parts: back as they went in, or refused."""

from pathlib import Path

import pytest

from spinimpute.errors import InputError
from spinimpute.panels.section_file import FileKind, SectionFile, SectionWriter, compress

KIND = FileKind(b"\x89TESTFILE\r\n\x1a\n\0\0\0", 1, "test file", "make one")
PARTS = [b"", b"one" * 100, bytes(range(256)) * 20]


def write(path: Path, kind: FileKind = KIND, more: str = "") -> Path:
    with path.open("wb") as file:
        writer = SectionWriter(file, kind)
        for part in PARTS:
            writer.add_part(compress(part))
        writer.add_section("names", b"a\nb")
        writer.add_section("empty", b"")
        writer.finish({"n": 3}, {"said": more})
    return path


def read_all(path: Path) -> None:
    with SectionFile(path, KIND) as opened:
        for name in opened.header["sections"]:
            opened.section(name)
        for number in range(opened.n_parts):
            opened.part(number)


def test_round_trip(tmp_path: Path) -> None:
    path = write(tmp_path / "f")
    with SectionFile(path, KIND) as opened:
        assert opened.header["n"] == 3
        assert [opened.part(i) for i in range(opened.n_parts)] == PARTS
        assert (opened.section("names"), opened.section("empty")) == (b"a\nb", b"")
    with pytest.raises(ValueError, match="closed"):
        opened.part(0)


def test_the_checksum_is_of_the_content(tmp_path: Path) -> None:
    """Not of what is said about it."""
    checksums = set()
    for said in ("", "x"):
        with SectionFile(write(tmp_path / "f", more=said), KIND) as opened:
            checksums.add(opened.header["checksum"])
    assert len(checksums) == 1


def test_every_damaged_byte_is_found(tmp_path: Path) -> None:
    path = write(tmp_path / "f")
    content = path.read_bytes()
    for place in range(len(content)):
        damaged = bytearray(content)
        damaged[place] ^= 0x20
        path.write_bytes(damaged)
        with pytest.raises(InputError):
            read_all(path)


def test_every_truncation_is_found(tmp_path: Path) -> None:
    path = write(tmp_path / "f")
    content = path.read_bytes()
    for length in range(0, len(content), 7):
        path.write_bytes(content[:length])
        with pytest.raises(InputError):
            SectionFile(path, KIND)
    path.write_bytes(content + b"\0")
    with pytest.raises(InputError, match="damaged"):
        SectionFile(path, KIND)


def test_an_unfinished_file_is_none(tmp_path: Path) -> None:
    path = tmp_path / "f"
    with path.open("wb") as file:
        SectionWriter(file, KIND).add_part(compress(PARTS[1]))
    with pytest.raises(InputError, match="not a spinimpute test file"):
        SectionFile(path, KIND)


def test_other_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="absent: cannot be opened"):
        SectionFile(tmp_path / "absent", KIND)
    with pytest.raises(InputError, match="cannot be opened"):
        SectionFile(tmp_path, KIND)
    newer = write(tmp_path / "newer", KIND._replace(version=2))
    with pytest.raises(InputError, match=r"made by a newer version .*version 2, this one reads 1"):
        SectionFile(newer, KIND)
    other = write(tmp_path / "other", KIND._replace(magic=b"0123456789abcdef"))
    with pytest.raises(InputError, match=r"not a spinimpute test file .*; make one"):
        SectionFile(other, KIND)
