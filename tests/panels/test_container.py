"""Containers return the sections and blocks that were written, or refuse damaged files."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spinimpute.panels.container import Container, ContainerWriter, compress, join_files, read_joined_ranges
from spinimpute.panels.file_kind import FileKind, has_magic, is_count
from spinimpute.runtime.errors import InputError

KIND = FileKind(
    name="test file",
    magic=b"\x89TESTFILE\r\n\x1a\n\0\0\0",
    version=1,
    remedy=lambda: "Make one",
    fields={"n": is_count, "note": lambda value: isinstance(value, str)},
    sections=("names", "empty"),
)
PARTS = [b"", b"one" * 100, bytes(range(256)) * 20]


def write(path: Path, kind: FileKind = KIND, note: str = "") -> Path:
    with path.open("wb") as file:
        writer = ContainerWriter(file, kind)
        for part in PARTS:
            writer.add_block(compress(part))
        writer.add_section("names", b"a\nb")
        writer.add_section("empty", b"")
        writer.finish({"n": 3}, {"note": note})
    return path


def test_round_trip(tmp_path: Path) -> None:
    path = write(tmp_path / "f")
    assert has_magic(path, KIND)
    with Container(path, KIND) as opened:
        assert opened.header["n"] == 3
        assert [opened.block(i) for i in range(opened.n_blocks)] == PARTS
        assert (opened.section("names"), opened.section("empty")) == (b"a\nb", b"")
    with pytest.raises(ValueError, match="closed"):
        opened.block(0)
    assert not has_magic(tmp_path / "absent", KIND)


def test_the_checksum_is_of_the_content(tmp_path: Path) -> None:
    """Entries that are not part of the identity do not change the checksum."""
    checksums = set()
    for note in ("", "x"):
        with Container(write(tmp_path / "f", note=note), KIND) as opened:
            checksums.add(opened.checksum)
    assert len(checksums) == 1


def test_an_unfinished_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "f"
    with path.open("wb") as file:
        ContainerWriter(file, KIND).add_block(compress(PARTS[1]))
    with pytest.raises(InputError, match="not a spinimpute test file"):
        Container(path, KIND)


def test_other_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="absent: cannot be opened"):
        Container(tmp_path / "absent", KIND)
    with pytest.raises(InputError, match="cannot be opened"):
        Container(tmp_path, KIND)
    newer = write(tmp_path / "newer", replace(KIND, version=2))
    with pytest.raises(InputError, match=r"made by a newer version .*version 2, this one reads 1"):
        Container(newer, KIND)
    older = write(tmp_path / "older", KIND)
    with pytest.raises(InputError, match=r"made by an earlier version .*version 1, this one reads 2\)"):
        Container(older, replace(KIND, version=2))
    other = write(tmp_path / "other", replace(KIND, magic=b"0123456789abcdef"))
    with pytest.raises(InputError, match=r"not a spinimpute test file .*\. Make one"):
        Container(other, KIND)


KINDS = st.builds(
    replace,
    st.just(KIND),
    sections=st.just(()),
    magic=st.sampled_from([b"\x89TESTFILE\r\n\x1a\n", KIND.magic]),
    joined_magic=st.just(b"\x89TESTJOIN"),
)
NAMES = st.text(st.characters(codec="utf-8"), max_size=8).filter(lambda name: name != "parts")


@st.composite
def contents(draw: st.DrawFn) -> tuple[FileKind, dict[str, bytes], list[bytes], dict[str, Any]]:
    """A kind of file with sections, blocks and header."""
    kind = draw(KINDS)
    sections = draw(st.dictionaries(NAMES, st.binary(max_size=300), max_size=5))
    parts = draw(st.lists(st.binary(max_size=300), max_size=5))
    return kind, sections, parts, {"n": draw(st.integers(1, 2**40)), "note": draw(NAMES)}


def write_content(path: Path, content: tuple) -> None:
    kind, sections, parts, header = content
    with path.open("wb") as file:
        writer = ContainerWriter(file, kind)
        for part in parts:
            writer.add_block(compress(part))
        for name, section in sections.items():
            writer.add_section(name, section)
        writer.finish({"n": header["n"]}, {"note": header["note"]})


def read_content(path: Path, kind: FileKind, start: int = 0, size: int | None = None) -> tuple:
    with Container(path, kind, start, size) as opened:
        sections = {name: opened.section(name) for name in opened.sections if name != "parts"}
        parts = [opened.block(number) for number in range(opened.n_blocks)]
        return kind, sections, parts, opened.header


FILES = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@FILES
@given(contents())
def test_any_content_is_read_as_written(tmp_path: Path, content: tuple) -> None:
    path = tmp_path / "f"
    write_content(path, content)
    assert read_content(path, content[0]) == content


@FILES
@given(contents(), st.data())
def test_any_changed_byte_is_found_or_harmless(tmp_path: Path, content: tuple, data: st.DataObject) -> None:
    path = tmp_path / "f"
    write_content(path, content)
    whole = path.read_bytes()
    damaged = bytearray(whole)
    damaged[data.draw(st.integers(0, len(whole) - 1))] ^= data.draw(st.integers(1, 255))
    path.write_bytes(damaged)
    try:
        found = read_content(path, content[0])
    except InputError as error:
        assert "\n" not in str(error)  # noqa: PT017
    else:
        assert found == content
    path.write_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
    with pytest.raises(InputError, match=r"truncated|not a spinimpute test file"):
        read_content(path, content[0])
    path.write_bytes(whole + b"\0")
    with pytest.raises(InputError, match="damaged"):
        read_content(path, content[0])


def test_the_name_of_a_damaged_section_stays_on_one_line(tmp_path: Path) -> None:
    path, kind = tmp_path / "f", replace(KIND, sections=())
    write_content(path, (kind, {"a\nb": bytes(50)}, [], {"n": 1, "note": ""}))
    with Container(path, kind) as opened:
        offset = opened.sections["a\nb"].offset
    damaged = bytearray(path.read_bytes())
    damaged[offset] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(InputError, match=r"the section a\\nb does not match its checksum"):
        read_content(path, kind)


@FILES
@given(st.lists(contents(), min_size=1, max_size=3), st.data())
def test_several_in_one_file(tmp_path: Path, made: list[tuple], data: st.DataObject) -> None:
    kind = made[0][0]
    made = [(kind, *content) for _, *content in made]
    paths = [tmp_path / str(number) for number in range(len(made))]
    for path, content in zip(paths, made, strict=True):
        write_content(path, content)
        assert read_joined_ranges(path, kind) is None
    joined = tmp_path / "joined"
    join_files(paths, joined, kind)
    assert has_magic(joined, kind)
    places = read_joined_ranges(joined, kind)
    assert places is not None
    assert [read_content(joined, kind, *place) for place in places] == made
    with pytest.raises(InputError, match=r"test file .*joined: "):
        Container(joined, kind)
    whole = joined.read_bytes()
    damaged = bytearray(whole)
    damaged[data.draw(st.integers(0, len(whole) - 1))] ^= data.draw(st.integers(1, 255))
    for content in (bytes(damaged), whole[: data.draw(st.integers(0, len(whole) - 1))], whole + b"x"):
        joined.write_bytes(content)
        try:
            places = read_joined_ranges(joined, kind) or [(0, len(content))]
            found = [read_content(joined, kind, *place) for place in places]
        except InputError:
            continue
        assert found == made
        assert len(content) == len(whole)
