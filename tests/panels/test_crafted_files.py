"""Files with valid checksums and invalid contents are refused with a message of one line."""

import json
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import spinimpute
from spinimpute.panels import panel
from spinimpute.panels.container import Container, compress, join_files
from spinimpute.panels.site_table import encode_increasing
from spinimpute.panels.spin_files import open_spin_file
from spinimpute.runtime.errors import InputError

from .conftest import KINDS, header_of, rewritten, sealed

pytestmark = pytest.mark.slow

ENTRIES = [(name, entry) for name, kind in KINDS.items() for entry in (*kind.fields, "checksum", "sections")]
SECTIONS = [(name, section) for name, kind in KINDS.items() for section in kind.sections]


@pytest.fixture
def spip(files: dict[str, Path]) -> Path:
    return files["spip"]


def read_all(path: Path) -> list[Any]:
    """Everything that can be read of a panel, of either kind."""
    if path.suffix == ".spip":
        with spinimpute.InducingPanel.open(path) as points:
            points.verify()
            blocks = [points.read(number) for number in points.blocks(0, points.n_sites)]
            found = [
                points.sites.keys(),
                points.multiallelic.tolist(),
                points.prediction_trust.tolist(),
                points.array_index.tolist(),
            ]
            return [*found, *(block.points["label_BHU"].tolist() for block in blocks)]
    with spinimpute.Panel.open(path) as opened:
        opened.verify()
        alleles = opened.alleles(0, opened.n_sites).tolist()
        return [opened.sites.keys(), opened.cM.tolist(), opened.multiallelic.tolist(), alleles]


def refused(path: Path, message: str = "") -> None:
    with pytest.raises(InputError, match=message) as error:
        read_all(path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("suffix", "entry"), ENTRIES)
def test_entries_of_another_type(files: dict[str, Path], tmp_path: Path, suffix: str, entry: str) -> None:
    kind, content = KINDS[suffix], files[suffix].read_bytes()
    path = tmp_path / f"crafted.{suffix}"
    header = header_of(content, kind)
    type_of_entry = type(header[entry])
    may_be_empty = entry in ("checksum", "kind", "fingerprint", "panel_checksum", "provenance")
    for value in (None, -1, 0, 2**62, 1.5, True, "", [], {}, "\ud800"):
        path.write_bytes(sealed(content, kind, json.dumps(header | {entry: value}).encode()))
        if entry == "jumps_per_cM" and value == 1.5:
            read_all(path)  # any positive number
        elif value == type_of_entry() and type(value) is type_of_entry is not int and may_be_empty:
            read_all(path)  # a panel of unknown origin, say
        else:
            refused(path, "damaged")
    del header[entry]
    path.write_bytes(sealed(content, kind, json.dumps(header).encode()))
    refused(path, f"the header has no entry '{entry}'")


@pytest.mark.parametrize("provenance", [{"source": "\ud800"}, {"more": ["\udcff"]}, {"\ud800": 1}], ids=ascii)
@pytest.mark.parametrize("suffix", KINDS)
def test_half_of_a_surrogate_pair(
    files: dict[str, Path], tmp_path: Path, suffix: str, provenance: dict[str, Any]
) -> None:
    """JSON can contain one, but no file can be written with it, and merging copies the provenance."""
    kind, content = KINDS[suffix], files[suffix].read_bytes()
    path = tmp_path / f"crafted.{suffix}"
    header = header_of(content, kind) | {"provenance": provenance, "checksum": "another"}
    path.write_bytes(sealed(content, kind, json.dumps(header).encode()))
    refused(path, "damaged: the header is not JSON in UTF-8")
    if suffix == "spin":
        with pytest.raises(InputError, match="damaged: the header is not JSON in UTF-8"):
            spinimpute.merge_panels([files["spin"], path], tmp_path / "merged.spin")
        assert not (tmp_path / "merged.spin").exists()


@pytest.mark.parametrize(
    "header",
    [
        *(b"", b"{", b"\xff\xfe", b"[]", b"3", b"null"),
        *(b"[" * 100_000, b'{"a": ' * 100_000, b'{"n_sites": ' + b"9" * 10_000 + b"}"),
    ],
    ids=lambda header: repr(header[:12]),
)
@pytest.mark.parametrize("suffix", KINDS)
def test_invalid_headers(files: dict[str, Path], tmp_path: Path, suffix: str, header: bytes) -> None:
    path = tmp_path / f"crafted.{suffix}"
    path.write_bytes(sealed(files[suffix].read_bytes(), KINDS[suffix], header))
    refused(path, "damaged: the header ")


@pytest.mark.parametrize(
    "preamble",
    [
        {"version": 0},
        {"offset": 2**64 - 1},
        {"length": 2**64 - 1},
        {"offset": 0},
        {"offset": 2**64 - 8, "length": 8},
    ],
    ids=str,
)
@pytest.mark.parametrize("suffix", KINDS)
def test_invalid_preambles(
    files: dict[str, Path], tmp_path: Path, suffix: str, preamble: dict[str, int]
) -> None:
    kind, content = KINDS[suffix], files[suffix].read_bytes()
    path = tmp_path / f"crafted.{suffix}"
    path.write_bytes(sealed(content, kind, json.dumps(header_of(content, kind)).encode(), **preamble))
    refused(path, "damaged: its preamble is invalid")


@pytest.mark.parametrize(("suffix", "section"), SECTIONS)
def test_sections_outside_of_the_file(
    files: dict[str, Path], tmp_path: Path, suffix: str, section: str
) -> None:
    kind, content = KINDS[suffix], files[suffix].read_bytes()
    path = tmp_path / f"crafted.{suffix}"
    for place in ({"offset": -64}, {"offset": 2**62}, {"nbytes": -1}, {"nbytes": 2**62}):
        header = header_of(content, kind)
        header["sections"][section] |= place
        path.write_bytes(sealed(content, kind, json.dumps(header).encode()))
        with pytest.raises(InputError, match=f"section '{section}' lies outside of the file"):
            Container(path, kind)


@pytest.mark.parametrize(("suffix", "section"), SECTIONS)
def test_invalid_sections(files: dict[str, Path], tmp_path: Path, suffix: str, section: str) -> None:
    for content in (b"", b"\xff", b"A\nC", b"x" * 80):

        def change(_: Any, sections: dict[str, bytes], __: list[bytes], content: bytes = content) -> None:
            sections[section] = content

        refused(rewritten(files[suffix], tmp_path / f"crafted.{suffix}", change), "damaged")


@pytest.mark.parametrize("index", [[], [5, 4], [4, 4], [-1, 4], [3, 10**6], [3, 2**62]], ids=str)
def test_arrays_of_other_sites(spip: Path, tmp_path: Path, index: list[int]) -> None:
    def change(_: Any, sections: dict[str, bytes], parts: list[bytes]) -> None:
        sections["array"] = encode_increasing(np.array(index, dtype=np.int64))

    refused(rewritten(spip, tmp_path / "crafted.spip", change), "the array does not match the sites")


def test_another_number_of_blocks(spip: Path, tmp_path: Path) -> None:
    for change in (
        lambda *all: all[2].pop(), lambda *all: all[2].append(b""), lambda *all: all[2].clear()
    ):  # fmt: skip
        refused(rewritten(spip, tmp_path / "crafted.spip", change), "its blocks do not match its array")


@pytest.mark.parametrize(
    "part",
    [
        b"",
        b"\1",
        b"\0\0\0\0",
        b"\xff" * 9,
        b"\1\0\0\0" + b"\xff" * 50,
        struct.pack("<I", 2**32 - 1) + b"\0" * 99,
    ],
    ids=lambda part: repr(part[:6]),
)
@pytest.mark.parametrize("states", [False, True])
def test_invalid_blocks(spip: Path, tmp_path: Path, part: bytes, states: bool) -> None:
    def change(_: Any, sections: dict[str, bytes], parts: list[bytes]) -> None:
        parts[len(parts) // 2 + 1 if states else 1] = part

    name = "states of block 2" if states else "block 2"
    refused(rewritten(spip, tmp_path / "crafted.spip", change), f"damaged: the {name} of")


def test_other_points_than_states(spip: Path, tmp_path: Path) -> None:
    """Points are numbers in the kernels, which do not check them."""

    def change(_: Any, sections: dict[str, bytes], parts: list[bytes]) -> None:
        n_points, n_sites = struct.unpack_from("<II", parts[len(parts) // 2])
        fewer = struct.pack("<IIII", n_points - 1, n_sites, 0, 0)
        parts[len(parts) // 2] = fewer + b"\0?" * (n_points - 1) + b"\0" * n_sites * (n_points - 1)

    refused(rewritten(spip, tmp_path / "crafted.spip", change), "block 1 has other points than its states")


@pytest.mark.parametrize(
    "part",
    [b"", b"\1", b"\0" * 99, b"\xff" * 99, b"\x80" * 99, b"\1\1" * 10**4],
    ids=lambda part: repr(part[:6]),
)
def test_invalid_runs_of_alleles(files: dict[str, Path], tmp_path: Path, part: bytes) -> None:
    def change(_: Any, sections: dict[str, bytes], parts: list[bytes]) -> None:
        parts[0] = part

    path = rewritten(files["spin"], tmp_path / "crafted.spin", change)
    refused(path, "damaged: the haplotypes of the sites 1 to ")


def test_runs_of_other_lengths(files: dict[str, Path], tmp_path: Path) -> None:
    """Changed lengths are refused, or are valid runs of as many minor alleles."""
    with spinimpute.Panel.open(files["spin"]) as opened:
        count = opened.allele_count
    draw = np.random.default_rng(1)
    n_refused = 0
    for _ in range(200):

        def change(_: Any, sections: dict[str, bytes], parts: list[bytes]) -> None:
            part = bytearray(parts[0])
            for at in draw.integers(0, len(part), 3):
                part[at] = draw.integers(0, 256)
            parts[0] = bytes(part)

        path = rewritten(files["spin"], tmp_path / "crafted.spin", change)
        with spinimpute.Panel.open(path) as opened:
            try:
                alleles = opened.alleles(0, opened.n_sites)
            except InputError:
                n_refused += 1
            else:
                np.testing.assert_array_equal(alleles.sum(axis=1), count)
    assert 100 < n_refused <= 200


def test_another_number_of_blocks_of_haplotypes(files: dict[str, Path], tmp_path: Path) -> None:
    for change in (lambda *all: all[2].pop(), lambda *all: all[2].append(b"")):
        path = rewritten(files["spin"], tmp_path / "crafted.spin", change)
        refused(path, "its number of blocks does not fit its sites")


@pytest.mark.parametrize(
    "row", [(2**64 - 1, 8), (2**64 - 8, 8), (0, 8), (54, 2**32 - 1), (2**40, 0)], ids=str
)
def test_blocks_outside_of_the_file(spip: Path, tmp_path: Path, row: tuple[int, int]) -> None:
    kind, path = KINDS["spip"], tmp_path / "crafted.spip"
    table = compress(struct.pack("<QII", *row, 0))
    content = spip.read_bytes()
    header = header_of(content, kind)
    offset = kind.preamble.unpack_from(content)[3]
    header["sections"]["parts"] = {"offset": offset, "nbytes": len(table), "crc": zlib.crc32(table)}
    longer = bytearray(content[:offset] + table)
    kind.preamble.pack_into(longer, 0, kind.magic, kind.version, 0, len(longer), 0, 0)
    path.write_bytes(sealed(bytes(longer), kind, json.dumps(header).encode()))
    refused(path, "a block lies outside of the file")


def test_sections_that_cannot_be_decompressed(spip: Path, tmp_path: Path) -> None:
    kind, path = KINDS["spip"], tmp_path / "crafted.spip"
    content = spip.read_bytes()
    header = header_of(content, kind)
    section = header["sections"]["array"]
    for length in (0, section["nbytes"] - 1):
        section["nbytes"] = length
        stored = content[section["offset"] : section["offset"] + length]
        header["sections"]["array"]["crc"] = zlib.crc32(stored)
        path.write_bytes(sealed(content, kind, json.dumps(header).encode()))
        refused(path, "damaged: the section array cannot be read")


@pytest.mark.parametrize(
    "places",
    [
        [],
        [(0, 99)],
        [(64, 2**64 - 1)],
        [(2**64 - 1, 1)],
        [(128, 64), (64, 64)],
        [(64, 10), (70, 10)],
        [(64, 1)] * 9,
    ],
    ids=str,
)
def test_invalid_ranges_of_joined_files(
    example_halves: list[Path], tmp_path: Path, places: list[tuple[int, int]]
) -> None:
    path = tmp_path / "x.spin"
    join_files(example_halves, path, panel.KIND)
    with open_spin_file(path) as opened:
        assert len(opened) == 2
    first = panel.KIND.joined_magic + struct.pack("<I", len(places))
    first += b"".join(struct.pack("<QQ", *place) for place in places)
    first += struct.pack("<I", zlib.crc32(first))
    path.write_bytes(first + path.read_bytes()[len(first) :])
    with pytest.raises(InputError, match=r"damaged|truncated") as error, open_spin_file(path):
        pass
    assert "\n" not in str(error.value)
