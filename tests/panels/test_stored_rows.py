"""Rows of panel files are stored as the format says, and are read as they were written."""

import hashlib
import json
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spinimpute.panels.panel import Panel
from spinimpute.panels.site_table import TABLE_SECTIONS
from spinimpute.panels.stored_rows import RowLayout, allele_counts, store_rows
from spinimpute.panels.trust.site_trust import SiteDoubts
from spinimpute.panels.writer import PanelWriter, rewrite_panel
from spinimpute.runtime.errors import InputError

PREAMBLE = "<14sIIQQQ"
MAGIC = b"\x89SPINPANEL\r\n\x1a\n"


def write_panel(
    path: Path, alleles_XN: np.ndarray, ploidy: list[int], step: int = 100, counts: np.ndarray | None = None
) -> Path:
    """Write a panel file of alleles, `step` sites at a time, with their or other allele counts."""
    n_sites, n_haplotypes = alleles_XN.shape
    if counts is None:
        counts = alleles_XN.sum(axis=1).astype("<u4")
    with path.open("wb") as file:
        writer = PanelWriter(file, n_haplotypes)
        for start in range(0, n_sites, step):
            packed = np.packbits(alleles_XN[start : start + step], axis=1)
            writer.add_rows(store_rows(packed, n_haplotypes), allele_counts(packed))
        table = {
            "position": np.arange(1, n_sites + 1).astype("<i8").tobytes(),
            "cM": np.zeros(n_sites).tobytes(),
            "allele_count": counts.tobytes(),
            "ref": b"\n".join([b"A"] * n_sites),
            "alt": b"\n".join([b"C"] * n_sites),
            "id": b"\n".join([b"."] * n_sites),
            "multiallelic": np.packbits(np.zeros(n_sites, bool)).tobytes(),
        }
        header = {
            "chrom": "20",
            "contig_line": "##contig=<ID=20>",
            "samples": [f"s{i}" for i in range(len(ploidy))],
            "ploidy": "".join(map(str, ploidy)),
            "n_sites": n_sites,
            "provenance": {},
        }
        writer.finish(table, SiteDoubts.none(n_sites), header)
    return path


def header_of(content: bytes) -> dict[str, Any]:
    _, _, _, offset, length, _ = struct.unpack_from(PREAMBLE, content)
    return json.loads(content[offset : offset + length])


def section(content: bytes, name: str) -> bytes:
    place = header_of(content)["sections"][name]
    return content[place["offset"] : place["offset"] + place["nbytes"]]


def decode(content: bytes) -> list[list[int]]:
    """Decode the alleles of a file by the definition of its format."""
    n = sum(map(int, header_of(content)["ploidy"]))
    counts = struct.unpack(f"<{header_of(content)['n_sites']}I", section(content, "allele_count"))
    stored = section(content, "haplotypes")
    at, rows = 0, []
    width, letter = (2, "H") if n <= 65_536 else (4, "I")
    for count in counts:
        minor = 0 if 2 * count > n else 1
        carriers = count if minor else n - count
        n_bytes = -(-n // 8)
        if carriers * width < n_bytes:
            row = [1 - minor] * n
            for haplotype in struct.unpack_from(f"<{carriers}{letter}", stored, at):
                row[haplotype] = minor
            at += carriers * width
        else:
            row = [stored[at + i // 8] >> (7 - i % 8) & 1 for i in range(n)]
            at += n_bytes
        rows.append(row)
    assert at == len(stored)
    return rows


def as_version_1(content: bytes, alleles_XN: np.ndarray) -> bytes:
    """The panel in the first version of the format, with all haplotypes as bits."""
    header = header_of(content)
    del header["sections"]["discordance"], header["sections"]["confirmed"]
    rows = np.packbits(alleles_XN, axis=1)
    parts = {"haplotypes": rows.tobytes()}
    parts |= {name: section(content, name) for name in header["sections"] if name not in parts}
    crcs = [zlib.crc32(rows[start : start + 256].tobytes()) for start in range(0, len(rows), 256)]
    parts["block_crc"] = np.array(crcs, dtype="<u4").tobytes()
    made = bytes(struct.calcsize(PREAMBLE) + 4)
    for name, part in parts.items():
        made += bytes(-len(made) % 64)
        header["sections"][name] = {"offset": len(made), "nbytes": len(part), "crc": zlib.crc32(part)}
        made += part
    made += bytes(-len(made) % 64)
    encoded = json.dumps(header).encode()
    total = len(made) + len(encoded)
    preamble = struct.pack(PREAMBLE, MAGIC, 1, zlib.crc32(encoded), len(made), len(encoded), total)
    preamble += struct.pack("<I", zlib.crc32(preamble))
    return preamble + made[len(preamble) :] + encoded


def alleles_with_counts(rng: np.random.Generator, counts: list[int], n_haplotypes: int) -> np.ndarray:
    alleles_XN = np.zeros((len(counts), n_haplotypes), np.uint8)
    for row, count in zip(alleles_XN, counts, strict=True):
        row[rng.choice(n_haplotypes, count, replace=False)] = 1
    return alleles_XN


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(1, 2), min_size=1, max_size=300), st.integers(1, 600), st.data())
def test_rows_are_read_as_written(
    tmp_path: Path, ploidy: list[int], n_sites: int, data: st.DataObject
) -> None:
    n = sum(ploidy)
    threshold = -(-n // 8) // 2  # bytes of bits, in numbers of two bytes
    near = [c for t in (threshold, n // 2) for c in (t - 1, t, t + 1, n - t - 1, n - t, n - t + 1)]
    chosen = st.sampled_from([0, n, *(c for c in near if 0 <= c <= n)]) | st.integers(0, n)
    few = data.draw(st.lists(chosen, min_size=1, max_size=40))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    alleles_XN = alleles_with_counts(rng, (few * n_sites)[:n_sites], n)
    path = write_panel(tmp_path / "p.spin", alleles_XN, ploidy, data.draw(st.integers(1, n_sites)))
    packed_XB = np.packbits(alleles_XN, axis=1)
    assert decode(path.read_bytes()) == alleles_XN.tolist()
    start, stop = sorted(data.draw(st.tuples(st.integers(0, n_sites), st.integers(0, n_sites))))
    index = np.flatnonzero(rng.random(n_sites) < data.draw(st.floats(0, 1)))
    with Panel.open(path) as panel:
        np.testing.assert_array_equal(panel.packed(start, stop), packed_XB[start:stop])
        np.testing.assert_array_equal(panel.alleles(start, stop), alleles_XN[start:stop])
        rows = panel.packed_rows(index)
        np.testing.assert_array_equal(rows, packed_XB[index])
        assert rows.dtype == np.uint8
        assert not panel.packed(start, stop).flags.writeable


@pytest.mark.parametrize("n_haplotypes", [65_535, 65_536, 65_537, 70_001])
def test_many_haplotypes(tmp_path: Path, n_haplotypes: int) -> None:
    width = 2 if n_haplotypes <= 65_536 else 4
    last_list = (-(-n_haplotypes // 8) - 1) // width
    counts = [0, 1, 7, last_list, last_list + 1, n_haplotypes // 2, n_haplotypes // 2 + 1]
    counts += [n_haplotypes - count for count in counts]
    alleles_XN = alleles_with_counts(np.random.default_rng(1), counts, n_haplotypes)
    alleles_XN[1] = 0
    alleles_XN[1, -1] = 1
    path = write_panel(tmp_path / "p.spin", alleles_XN, [1] * n_haplotypes)
    assert decode(path.read_bytes()) == alleles_XN.tolist()
    with Panel.open(path) as panel:
        np.testing.assert_array_equal(panel.alleles(0, len(counts)), alleles_XN)
        index = np.array([1, 3, 4, 9, 13])
        np.testing.assert_array_equal(panel.packed_rows(index), np.packbits(alleles_XN[index], axis=1))
    listed = [min(count, n_haplotypes - count) for count in counts]
    sizes = [width * count if count <= last_list else -(-n_haplotypes // 8) for count in listed]
    assert len(section(path.read_bytes(), "haplotypes")) == sum(sizes)


def test_bits_alone_are_a_view_on_the_file(tmp_path: Path) -> None:
    alleles_XN = alleles_with_counts(np.random.default_rng(1), [10] * 20 + [1] + [10] * 20, 20)
    write_panel(tmp_path / "p.spin", alleles_XN, [2] * 10)
    with Panel.open(tmp_path / "p.spin") as panel:
        assert not panel.packed(0, 20).flags.owndata
        assert not panel.packed(21, 41).flags.owndata
        assert panel.packed(19, 22).flags.owndata


@pytest.mark.parametrize("index", [[-1, 3], [3, 320], [5, 5], [6, 5]])
def test_rows_that_do_not_exist(tmp_path: Path, index: list[int]) -> None:
    write_panel(tmp_path / "p.spin", np.zeros((320, 4), np.uint8), [2, 2])
    with (
        Panel.open(tmp_path / "p.spin") as panel,
        pytest.raises(ValueError, match=r"must increase and lie in \[0, 320\)"),
    ):
        panel.packed_rows(np.array(index))


def test_version_1_is_read_and_has_the_same_checksum(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    alleles_XN = (rng.random((700, 41)) < rng.beta(0.2, 0.6, (700, 1))).astype(np.uint8)
    new, old, again = (tmp_path / f"{name}.spin" for name in ("new", "old", "again"))
    write_panel(new, alleles_XN, [2] * 20 + [1])
    old.write_bytes(as_version_1(new.read_bytes(), alleles_XN))
    index = np.flatnonzero(rng.random(700) < 0.1)
    with Panel.open(new) as second, Panel.open(old) as first:
        np.testing.assert_array_equal(first.alleles(0, 700), alleles_XN)
        np.testing.assert_array_equal(first.packed_rows(index), np.packbits(alleles_XN[index], axis=1))
        assert first.checksum == second.checksum
        assert (first.trust == 1).all()
        # written again, the file has the current version and the same content
        rewrite_panel(first, again, {})
    with Panel.open(again) as written:
        assert written.checksum == header_of(old.read_bytes())["checksum"]
    assert again.read_bytes() == new.read_bytes()
    damaged = bytearray(old.read_bytes())
    damaged[header_of(bytes(damaged))["sections"]["haplotypes"]["offset"] + 300 * 6] ^= 1
    old.write_bytes(damaged)
    with Panel.open(old) as first, pytest.raises(InputError, match="haplotypes of the sites 257 to 512"):
        first.packed(300, 301)


def test_checksum_is_of_the_bits_and_the_table(tmp_path: Path) -> None:
    """It is that of version 1, with the doubts added."""
    alleles_XN = alleles_with_counts(np.random.default_rng(1), [1, 30, 59, 0] * 70, 60)
    path = write_panel(tmp_path / "p.spin", alleles_XN, [2] * 30)
    content = path.read_bytes()
    header = header_of(content)
    digest = hashlib.sha256(np.packbits(alleles_XN, axis=1).tobytes())
    for name in (*TABLE_SECTIONS, "discordance", "confirmed"):
        digest.update(name.encode() + section(content, name))
    identity = {key: header[key] for key in ("chrom", "contig_line", "samples", "ploidy", "n_sites")}
    digest.update(json.dumps(identity, sort_keys=True).encode())
    assert header["checksum"] == digest.hexdigest()


@pytest.mark.parametrize("site", [0, 255, 300, 599])
def test_a_damaged_list_is_noticed(tmp_path: Path, site: int) -> None:
    path = write_panel(
        tmp_path / "p.spin", alleles_with_counts(np.random.default_rng(1), [1] * 600, 60), [2] * 30
    )
    content = bytearray(path.read_bytes())
    place = header_of(bytes(content))["sections"]["haplotypes"]["offset"]
    content[place + 2 * site + 1] ^= 0x80  # no haplotype has this number
    path.write_bytes(content)
    first = site // 256 * 256
    with Panel.open(path) as panel:
        for read in (lambda: panel.packed(site, site + 1), lambda: panel.packed_rows(np.array([site]))):
            with pytest.raises(InputError, match=f"damaged: the haplotypes of the sites {first + 1} to"):
                read()
        others = np.flatnonzero(np.arange(600) // 256 != site // 256)
        assert panel.packed_rows(others).any(axis=1).all()


@pytest.mark.parametrize("ref_is_minor", [False, True])
def test_numbers_beyond_the_last_haplotype_touch_nothing(ref_is_minor: bool) -> None:
    layout = RowLayout.of(np.array([57, 56] if ref_is_minor else [2, 3]), 59)
    stored = np.array([59, 65_535, 0, 63, 64], dtype="<u2").view(np.uint8)
    assert layout.start_X1[-1] == len(stored)
    rows = np.unpackbits(layout.expand(stored, np.arange(2)), axis=1)
    assert not rows[:, 59:].any()  # bits beyond the last haplotype
    minor = rows[:, :59] != ref_is_minor
    assert np.argwhere(minor).tolist() == [[1, 0]]


def test_allele_counts_that_do_not_fit_the_rows(tmp_path: Path) -> None:
    path = tmp_path / "p.spin"
    alleles_XN = alleles_with_counts(np.random.default_rng(1), [1] * 20, 60)
    for wrong, said in ((2, "does not match its allele counts"), (61, "more alleles than haplotypes")):
        counts = np.array([1] * 19 + [wrong], dtype="<u4")
        write_panel(path, alleles_XN, [2] * 30, counts=counts)
        with Panel.open(path) as panel, pytest.raises(InputError, match=said):
            panel.packed(0, 1)
