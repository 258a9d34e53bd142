"""Panel files have exactly the content of the VCF that they were built from."""

import os
import re
import struct
import subprocess
import sys
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from operator import itemgetter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spinimpute.genotypes.genetic_map import GeneticMap
from spinimpute.genotypes.sites import NoRecord, Region
from spinimpute.panels.build import BuildJob, compile_panel
from spinimpute.panels.container import Container
from spinimpute.panels.file_kind import INDUCING_MAGIC, JOINED_MAGIC, PANEL_MAGIC
from spinimpute.panels.panel import KIND, Panel
from spinimpute.runtime.errors import InputError
from spinimpute.vcf.reader import read_haplotypes

WriteVcf = Callable[..., Path]
MAP = GeneticMap.constant(1.3)

RECORDS = [(100, "A", "C", ["0|1", "1"]), (200, "G", "GA,GT", ["1|2", "2"]), (300, "C", "T", ["0|0", "0"])]


def random_records(n_sites: int, n_samples: int, seed: int = 0) -> list:
    rng = np.random.default_rng(seed)
    alleles = rng.random((n_sites, n_samples, 2)) < rng.random((n_sites, 1, 1))
    return [(1000 + 3 * i, "A", "C", [f"{a:d}|{b:d}" for a, b in calls]) for i, calls in enumerate(alleles)]


def test_small_panel(write_vcf: WriteVcf, tmp_path: Path) -> None:
    with compile_panel(
        BuildJob(write_vcf(RECORDS), tmp_path / "p.panel", MAP, command="spinimpute panel")
    ) as panel:
        assert (panel.n_sites, panel.n_samples, panel.n_haplotypes) == (4, 2, 3)
        assert panel.path == tmp_path / "p.panel"
        assert panel.chrom == "20"
        assert panel.contig_line == "##contig=<ID=20,length=63025520>"
        assert panel.samples == ["a", "b"]
        assert panel.ploidy.tolist() == [2, 1]
        assert panel.ploidy.dtype == np.uint8
        assert panel.haplotype_sample.tolist() == [0, 0, 1]
        assert panel.sites.keys() == [(100, "A", "C"), (200, "G", "GA"), (200, "G", "GT"), (300, "C", "T")]
        assert panel.sites.id == ["rs100", "rs200", "rs200", "rs300"]
        assert panel.position.tolist() == [100, 200, 200, 300]
        np.testing.assert_allclose(panel.cM, np.array([100, 200, 200, 300]) * 1.3e-6)
        assert panel.alleles(0, 4).tolist() == [[0, 1, 1], [1, 0, 0], [0, 1, 1], [0, 0, 0]]
        assert panel.alleles(0, 4).dtype == np.uint8
        assert panel.alleles(2, 2).shape == (0, 3)
        assert panel.allele_count.tolist() == [2, 1, 2, 0]
        np.testing.assert_allclose(panel.frequency, [2 / 3, 1 / 3, 2 / 3, 0])
        assert panel.multiallelic.tolist() == [False, True, True, False]
        assert panel.provenance["source"] == "t.vcf"
        assert panel.provenance["command"] == "spinimpute panel"
        assert panel.provenance["map"] == "constant 1.3 cM/Mb"
        with pytest.raises(ValueError, match="must lie in"):
            panel.alleles(0, 5)


@settings(deadline=None, max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(1, 700), st.integers(1, 9), st.integers(0, 99), st.data())
def test_panel_equals_its_vcf(
    write_vcf: WriteVcf, tmp_path: Path, n_sites: int, n_samples: int, seed: int, data: st.DataObject
) -> None:
    path = write_vcf(random_records(n_sites, n_samples, seed), name="t.bcf")
    haplotypes = read_haplotypes(path)
    start, stop = sorted(data.draw(st.tuples(st.integers(0, n_sites), st.integers(0, n_sites))))
    with compile_panel(BuildJob(path, tmp_path / "p.panel", MAP, force=True)) as panel:
        np.testing.assert_array_equal(panel.alleles(start, stop), haplotypes.alleles[start:stop])
        np.testing.assert_array_equal(
            panel.packed(start, stop), np.packbits(haplotypes.alleles[start:stop].view(np.uint8), axis=1)
        )
        np.testing.assert_array_equal(panel.allele_count, haplotypes.alleles.sum(axis=1, dtype=np.int64))
        assert panel.sites.keys() == sorted(haplotypes.sites.keys())


def test_same_input_same_bytes_other_input_other_checksum(write_vcf: WriteVcf, tmp_path: Path) -> None:
    records = random_records(300, 5)
    vcf = write_vcf(records, name="t.bcf")
    first = compile_panel(BuildJob(vcf, tmp_path / "1.panel", MAP))
    again = compile_panel(BuildJob(vcf, tmp_path / "2.panel", MAP))
    assert first.path.read_bytes() == again.path.read_bytes()
    assert re.fullmatch("[0-9a-f]{64}", first.checksum)
    # where it comes from is not what it is
    renamed = compile_panel(
        BuildJob(vcf.rename(tmp_path / "renamed.bcf"), tmp_path / "3.panel", MAP, command="other")
    )
    assert renamed.checksum == first.checksum
    other_map = compile_panel(BuildJob(tmp_path / "renamed.bcf", tmp_path / "4.panel", GeneticMap.constant()))
    other_samples = compile_panel(
        BuildJob(tmp_path / "renamed.bcf", tmp_path / "5.panel", MAP, samples=["a", "b"])
    )
    records[7][3][2] = {"0|0": "1|1"}.get(records[7][3][2], "0|0")
    other_call = compile_panel(BuildJob(write_vcf(records, name="t.bcf"), tmp_path / "6.panel", MAP))
    checksums = {panel.checksum for panel in (first, other_map, other_samples, other_call)}
    assert len(checksums) == 4


def test_region_and_samples(write_vcf: WriteVcf, tmp_path: Path) -> None:
    vcf = write_vcf(random_records(100, 4))
    whole = read_haplotypes(vcf)
    panel = compile_panel(
        BuildJob(vcf, tmp_path / "p.panel", MAP, region=Region.parse("chr20:1030-1060"), samples=["d", "b"])
    )
    assert panel.position.tolist() == list(range(1030, 1061, 3))
    assert panel.samples == ["d", "b"]
    np.testing.assert_array_equal(panel.alleles(0, panel.n_sites), whole.alleles[10:21][:, [6, 7, 2, 3]])


@pytest.mark.parametrize("turned", [False, True])
def test_one_of_equal_records_is_kept_and_none_of_contradictory_records(
    write_vcf: WriteVcf, tmp_path: Path, turned: bool
) -> None:
    records = [
        (99, "A", "C", ["0|0"]),
        (99, "A", "C", ["0|1"]),
        (100, "A", "C", ["0|1"]),
        (100, "A", "G", ["1|1"]),
        (100, "A", "c", ["0|1"]),
        (101, "A", "C", ["1|0"]),
        (102, "A", "<*>", ["1|0"]),
    ]
    if turned:
        records.reverse()
        records.sort(key=itemgetter(0))
    panel = compile_panel(BuildJob(write_vcf(records), tmp_path / "p.panel", MAP))
    assert panel.sites.keys() == [(100, "A", "C"), (100, "A", "G"), (101, "A", "C")]
    assert panel.alleles(0, 3).tolist() == [[0, 1], [1, 1], [1, 0]]
    assert panel.provenance["skipped"] == {
        "duplicate of an earlier record": 1,
        "contradicts another record of the same site": 2,
        "symbolic ALT": 1,
    }


def test_only_contradictory_records_at_the_last_position(write_vcf: WriteVcf, tmp_path: Path) -> None:
    contradictory = [(101, "A", "C", ["0|0"]), (101, "A", "C", ["0|1"])]
    panel = compile_panel(BuildJob(write_vcf([(99, "A", "C", ["0|1"]), *contradictory]), tmp_path / "p", MAP))
    assert panel.sites.keys() == [(99, "A", "C")]
    assert panel.provenance["skipped"] == {"contradicts another record of the same site": 2}
    with pytest.raises(NoRecord, match=r"no usable record \(contradicts another record of .*: 2\)"):
        compile_panel(BuildJob(write_vcf(contradictory), tmp_path / "q", MAP))


@pytest.mark.parametrize(
    ("chrom", "call", "message"),
    [
        ("20", ".|1", "sample b has, at 20:200, a missing genotype"),
        ("20", ".", "sample b has, at 20:200, a missing genotype"),
        ("20", "0/1", "sample b has, at 20:200, an unphased heterozygote"),
        ("<DEL>", "0|1", "no header can define a chromosome of the name '<DEL>'"),
        ("a b", "0|1", "chromosome 'a b' has a space; rename it"),
        ("a\u00a0b", "0|1", r"chromosome 'a\\xa0b' has a space; rename it"),
    ],
)
def test_unusable_files_are_refused(
    write_vcf: WriteVcf, tmp_path: Path, chrom: str, call: str, message: str
) -> None:
    vcf = write_vcf([(100, "A", "C", ["0|1", "0|1"]), (200, "A", "C", ["0|1", call])])
    text = vcf.read_text().replace("\n20\t", f"\n{chrom}\t")
    vcf.write_text(text if "<" in chrom else text.replace("##contig=<ID=20", f"##contig=<ID={chrom}"))
    before = sorted(tmp_path.iterdir())
    with pytest.raises(InputError, match=message):
        compile_panel(BuildJob(vcf, tmp_path / "p.panel", MAP))
    assert sorted(tmp_path.iterdir()) == before


def test_existing_file_is_kept_unless_forced(write_vcf: WriteVcf, tmp_path: Path) -> None:
    vcf, out = write_vcf(RECORDS), tmp_path / "p.panel"
    out.write_text("precious")
    with pytest.raises(InputError, match="already exists; use force=True to overwrite"):
        compile_panel(BuildJob(vcf, out, MAP))
    with pytest.raises(InputError, match="no such file"):
        compile_panel(BuildJob(tmp_path / "absent.vcf", out, MAP, force=True))
    assert out.read_text() == "precious"
    assert compile_panel(BuildJob(vcf, out, MAP, force=True)).n_sites == 4


@pytest.mark.parametrize(
    ("end", "warned"), [(1_500_000, False), (1_400_000, False), (700_000, True), (80_000, True)]
)
def test_a_map_that_covers_a_part_of_the_panel(
    write_vcf: WriteVcf, tmp_path: Path, end: int, warned: bool
) -> None:
    """The mean rate of a small part of a panel is no good estimate for the rest."""
    vcf = write_vcf([(at, "A", "C", ["0|1"]) for at in range(1_000, 1_500_000, 1_500)])
    path = tmp_path / "part.map"
    path.write_text(f"20 . 0 1\n20 . {end / 1e6} {end}\n")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        compile_panel(BuildJob(vcf, tmp_path / "p.spin", path)).close()
    assert (
        any("part.map" in str(w.message) and "of the 1,000 sites" in str(w.message) for w in caught) == warned
    )


def test_a_map_that_covers_hardly_any_site_is_refused(write_vcf: WriteVcf, tmp_path: Path) -> None:
    path = tmp_path / "tiny.map"
    records = [(at, "A", "C", ["0|1"]) for at in range(1_000, 1_500_000, 1_500)]
    for chrom in ("20", "X"):
        path.write_text(f"{chrom} . 0 600000\n{chrom} . 0.01 610000\n")
        vcf, out = write_vcf(records, name=f"{chrom}.vcf", chrom=chrom), tmp_path / f"{chrom}.spin"
        if chrom == "X":  # maps of X often lack its pseudo-autosomal regions, which are panels of their own
            with pytest.warns(UserWarning, match="tiny.map"):
                compile_panel(BuildJob(vcf, out, path)).close()
            continue
        with pytest.raises(InputError, match=r"tiny\.map .*covers 20:600000-610000.* 7 of the 1,000 sites"):
            compile_panel(BuildJob(vcf, out, path))
        assert not out.exists()


def test_map_file_no_map_and_wrong_maps(write_vcf: WriteVcf, tmp_path: Path) -> None:
    vcf, map_file = write_vcf(RECORDS), tmp_path / "m.map"
    map_file.write_text("20 . 1 100\n20 . 3 300\n")
    panel = compile_panel(BuildJob(vcf, tmp_path / "1.panel", map_file))
    np.testing.assert_allclose(panel.cM, [1, 2, 2, 3])
    assert panel.provenance["map"].startswith("m.map")
    with pytest.warns(UserWarning, match="no genetic map: constant 1 cM/Mb"):
        compile_panel(BuildJob(vcf, tmp_path / "2.panel"))
    map_file.write_text("21 . 1 100\n21 . 3 300\n")
    with pytest.raises(InputError, match="no row of chromosome 20"):
        compile_panel(BuildJob(vcf, tmp_path / "4.panel", map_file))
    with pytest.raises(InputError, match="genetic map is of chromosome 21, the panel of 20"):
        compile_panel(BuildJob(vcf, tmp_path / "4.panel", GeneticMap.read(map_file, "21")))


def test_a_map_whose_name_is_not_utf_8(write_vcf: WriteVcf, tmp_path: Path) -> None:
    """The panel records the name with replacement characters."""
    genetic_map = tmp_path / os.fsdecode(b"caf\xe9.map")
    genetic_map.write_text("20 . 0 1\n20 . 1 1000\n")
    with compile_panel(BuildJob(write_vcf(RECORDS), tmp_path / "p.panel", genetic_map)) as panel:
        assert panel.provenance["map"].startswith("caf?.map")


def test_damaged_haplotypes_are_noticed_where_they_are_read(write_vcf: WriteVcf, tmp_path: Path) -> None:
    path = tmp_path / "p.panel"
    compile_panel(BuildJob(write_vcf(random_records(9_000, 3)), path, MAP)).close()
    with Container(path, KIND) as opened:
        (table,) = struct.iter_unpack("<QII", opened.section("parts")[16:32])
    content = bytearray(path.read_bytes())
    content[table[0] + 100] ^= 1
    path.write_bytes(content)
    with Panel.open(path) as panel:
        assert panel.alleles(0, 4_096).shape == (4_096, 6)
        assert panel.alleles(8_192, 9_000).shape == (808, 6)
        for read in (lambda: panel.alleles(4_095, 4_097), lambda: panel.packed_rows(np.array([5, 8_191]))):
            with pytest.raises(InputError, match=r"damaged: the block 2 of 3 does not match its checksum"):
                read()


@pytest.mark.parametrize("cache_bytes", [0, 20_000, 10**9])
def test_blocks_are_read_in_any_order(
    write_vcf: WriteVcf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache_bytes: int
) -> None:
    """Several threads read overlapping intervals of several blocks, with little or much memory for them."""
    monkeypatch.setattr("spinimpute.panels.panel.CACHE_BYTES", cache_bytes)
    vcf = write_vcf(random_records(13_000, 3), name="t.bcf")
    alleles = read_haplotypes(vcf).alleles
    rng = np.random.default_rng(1)
    with compile_panel(BuildJob(vcf, tmp_path / "p.panel", MAP)) as panel, ThreadPoolExecutor(3) as pool:
        ends = np.sort(rng.integers(0, 13_001, (60, 2)))
        for (start, stop), found in zip(ends, pool.map(panel.alleles, *ends.T), strict=True):
            np.testing.assert_array_equal(found, alleles[start:stop])
        for n in (1, 5, 5_000):
            index = np.sort(rng.choice(13_000, n, replace=False))
            np.testing.assert_array_equal(
                panel.packed_rows(index), np.packbits(alleles[index].view(np.uint8), axis=1)
            )


@pytest.mark.parametrize("size", [0, 3, 8, 40])
def test_a_panel_of_few_bytes_is_truncated(size: int, write_vcf: WriteVcf, tmp_path: Path) -> None:
    path = tmp_path / "p.spin"
    compile_panel(BuildJob(write_vcf(RECORDS), path, MAP)).close()
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(InputError, match=rf"p\.spin: truncated: {size} bytes\. Copy it again"):
        Panel.open(path)


@pytest.mark.parametrize("magic", [PANEL_MAGIC, JOINED_MAGIC, INDUCING_MAGIC])
def test_a_panel_that_ends_within_its_first_bytes(magic: bytes, tmp_path: Path) -> None:
    path = tmp_path / "p.spin"
    path.write_bytes(magic[:8])
    with pytest.raises(InputError, match="truncated: 8 bytes"):
        Panel.open(path)


def test_closed_panel(write_vcf: WriteVcf, tmp_path: Path) -> None:
    panel = compile_panel(BuildJob(write_vcf(RECORDS), tmp_path / "p.panel", MAP))
    view = panel.packed(0, 4)
    panel.close()
    panel.close()
    assert np.unpackbits(view, axis=1, count=3).tolist() == [[0, 1, 1], [1, 0, 0], [0, 1, 1], [0, 0, 0]]
    with pytest.raises(ValueError, match="is closed"):
        panel.alleles(0, 1)


def test_reading_genotypes_does_not_need_torch() -> None:
    modules = "sys, spinimpute.panels.panel, spinimpute.genotypes.intervals"
    code = f"import {modules}; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
