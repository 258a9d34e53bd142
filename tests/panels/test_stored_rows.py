"""Rows of panel files are stored as the format says, and are read as they were written."""

import lzma
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spinimpute.genotypes.sites import Sites
from spinimpute.panels.container import Container
from spinimpute.panels.haplotype_runs import MIN_SORTED
from spinimpute.panels.panel import BLOCK_SITES, KIND, Panel
from spinimpute.panels.site_table import SiteTable, encode_site_table
from spinimpute.panels.stored_rows import RowLayout, allele_counts, join_rows, store_rows
from spinimpute.panels.trust.site_trust import SiteDoubts
from spinimpute.panels.writer import PanelWriter
from spinimpute.runtime.errors import InputError


def write_panel(
    path: Path, alleles_XN: np.ndarray, ploidy: list[int], step: int = 100, counts: np.ndarray | None = None
) -> Path:
    """Write a panel file of alleles, `step` sites at a time, with their or other allele counts."""
    n_sites, n_haplotypes = alleles_XN.shape
    if counts is None:
        counts = alleles_XN.sum(axis=1)
    with path.open("wb") as file:
        writer = PanelWriter(file, n_haplotypes)
        for start in range(0, n_sites, step):
            packed = np.packbits(alleles_XN[start : start + step], axis=1)
            writer.add_rows(store_rows(packed, n_haplotypes), allele_counts(packed))
        sites = Sites("20", np.arange(1, n_sites + 1), *([letter] * n_sites for letter in "AC."))
        table = SiteTable(sites, np.zeros(n_sites), counts)
        header = {
            "chrom": "20",
            "contig_line": "##contig=<ID=20>",
            "samples": [f"s{i}" for i in range(len(ploidy))],
            "ploidy": "".join(map(str, ploidy)),
            "n_sites": n_sites,
            "provenance": {},
        }
        columns = encode_site_table(table, np.zeros(n_sites, bool))
        writer.finish(columns, SiteDoubts.none(n_sites), header)
    return path


def lengths_of(content: bytes) -> list[int]:
    """The numbers of a block, of which each byte has 7 bits."""
    lengths, number, shift = [], 0, 0
    for byte in content:
        number |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            lengths.append(number)
            number = shift = 0
    assert shift == 0
    return lengths


def decode(path: Path) -> list[list[int]]:
    """Decode the alleles of a file by the definition of its format."""
    with Container(path, KIND) as opened:
        n = sum(map(int, opened.header["ploidy"]))
        n_sites = opened.header["n_sites"]
        planes = opened.section("allele_count")
        blocks = [opened.block(number) for number in range(opened.n_blocks)]
    counts = [int.from_bytes(planes[x::n_sites], "little") for x in range(n_sites)]
    assert len(blocks) == -(-n_sites // BLOCK_SITES)
    rows = []
    for number, block in enumerate(blocks):
        lengths, order = iter(lengths_of(block)), list(range(n))
        for count in counts[number * BLOCK_SITES : (number + 1) * BLOCK_SITES]:
            minor = 0 if 2 * count > n else 1
            n_minor = count if minor else n - count
            row, place, carriers = [1 - minor] * n, 0, []
            while len(carriers) < n_minor:
                place += next(lengths)
                length = next(lengths)
                carriers += order[place : place + length]
                place += length
            for haplotype in carriers:
                row[haplotype] = minor
            if n_minor >= MIN_SORTED:
                order.sort(key=lambda haplotype: row[haplotype] == minor)
            rows.append(row)
        assert next(lengths, None) is None
    return rows


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
    assert decode(path) == alleles_XN.tolist()
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
    assert decode(path) == alleles_XN.tolist()
    with Panel.open(path) as panel:
        np.testing.assert_array_equal(panel.alleles(0, len(counts)), alleles_XN)
        index = np.array([1, 3, 4, 9, 13])
        np.testing.assert_array_equal(panel.packed_rows(index), np.packbits(alleles_XN[index], axis=1))
        rows = panel.stored_rows(0, len(counts))
        listed = [min(count, n_haplotypes - count) for count in counts]
        sizes = [width * count if count <= last_list else -(-n_haplotypes // 8) for count in listed]
        assert np.diff(rows.start_X1).tolist() == sizes
        assert len(rows.stored) == sum(sizes)


def test_rows_in_memory(tmp_path: Path) -> None:
    """Lists have increasing numbers of two bytes, and rows of several blocks are joined."""
    alleles_XN = alleles_with_counts(np.random.default_rng(1), [1, 30, 59, 2] * 2_100, 60)
    path = write_panel(tmp_path / "p.spin", alleles_XN, [2] * 30)
    with Panel.open(path) as panel:
        for start, stop in ((0, 5), (4_090, 4_100), (4_096, 8_192), (0, 8_400), (8_400, 8_400), (7, 7)):
            rows = panel.stored_rows(start, stop)
            assert not rows.stored.flags.writeable
            first, last = rows.start_X1[0], rows.start_X1[-1]
            assert rows.stored[first:last].tobytes() == store_rows(
                np.packbits(alleles_XN[start:stop], axis=1), 60
            )
            parts = [rows.part(i, i + 1) for i in range(stop - start)] or [rows]
            joined = join_rows(parts)
            np.testing.assert_array_equal(np.diff(joined.start_X1), np.diff(rows.start_X1))
            np.testing.assert_array_equal(joined.listed_X, rows.listed_X)
            np.testing.assert_array_equal(joined.ref_is_minor_X, rows.ref_is_minor_X)
            assert joined.stored[joined.start_X1[0] : joined.start_X1[-1]].tobytes() == (
                rows.stored[first:last].tobytes()
            )


def test_related_haplotypes_take_few_bytes(tmp_path: Path) -> None:
    """Mosaics of a few founders take less than half of the bytes of their compressed bits."""
    rng = np.random.default_rng(3)
    n, n_sites = 1_000, 6_000
    founders_XF = (rng.random((n_sites, 8)) < 0.2).astype(np.uint8)
    alleles_XN = np.empty((n_sites, n), np.uint8)
    founder_N = rng.integers(0, 8, n)
    for start in range(0, n_sites, 50):
        switches_N = rng.random(n) < 0.02
        founder_N[switches_N] = rng.integers(0, 8, switches_N.sum())
        alleles_XN[start : start + 50] = founders_XF[start : start + 50, founder_N]
    path = write_panel(tmp_path / "p.spin", alleles_XN, [2] * 500)
    with Panel.open(path) as panel:
        np.testing.assert_array_equal(panel.alleles(0, n_sites), alleles_XN)
    alone = len(lzma.compress(np.packbits(alleles_XN, axis=1).tobytes()))
    assert path.stat().st_size < alone / 2


@pytest.mark.parametrize("index", [[-1, 3], [3, 320], [5, 5], [6, 5]])
def test_rows_that_do_not_exist(tmp_path: Path, index: list[int]) -> None:
    write_panel(tmp_path / "p.spin", np.zeros((320, 4), np.uint8), [2, 2])
    with (
        Panel.open(tmp_path / "p.spin") as panel,
        pytest.raises(ValueError, match=r"must increase and lie in \[0, 320\)"),
    ):
        panel.packed_rows(np.array(index))


@pytest.mark.parametrize("ref_is_minor", [False, True])
def test_numbers_beyond_the_last_haplotype_touch_nothing(ref_is_minor: bool) -> None:
    layout = RowLayout.of(np.array([57, 56] if ref_is_minor else [2, 3]), 59)
    stored = np.array([59, 65_535, 0, 63, 64], dtype="<u2").view(np.uint8)
    assert layout.start_X1[-1] == len(stored)
    rows = np.unpackbits(layout.rows(stored).expand(np.arange(2), 59), axis=1)
    assert not rows[:, 59:].any()  # bits beyond the last haplotype
    minor = rows[:, :59] != ref_is_minor
    assert np.argwhere(minor).tolist() == [[1, 0]]


def test_allele_counts_that_do_not_fit_the_rows(tmp_path: Path) -> None:
    path = tmp_path / "p.spin"
    alleles_XN = alleles_with_counts(np.random.default_rng(1), [1] * 20, 60)
    for wrong, said in (
        (0, "do not fit the allele counts"),
        (2, "do not fit the allele counts"),
        (61, "more alleles than haplotypes"),
    ):
        write_panel(path, alleles_XN, [2] * 30, counts=np.array([1] * 19 + [wrong]))
        with Panel.open(path) as panel, pytest.raises(InputError, match=said):
            panel.packed(0, 1)


def test_version_3_is_refused(tmp_path: Path) -> None:
    path = write_panel(tmp_path / "p.spin", np.ones((3, 4), np.uint8), [2, 2])
    content = bytearray(path.read_bytes())
    KIND.preamble.pack_into(content, 0, KIND.magic, 3, *KIND.preamble.unpack_from(content)[2:])
    struct.pack_into("<I", content, KIND.preamble.size, zlib.crc32(content[: KIND.preamble.size]))
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"made by an earlier version .*3, this one reads 4\)\. Build one"):
        Panel.open(path)
