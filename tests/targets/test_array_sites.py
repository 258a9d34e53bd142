"""Which panel sites an array has, from lists and variant files."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from spinimpute.genotypes.sites import NO_ALT, ON_ANOTHER_CHROMOSOME, Sites
from spinimpute.runtime.errors import InputError
from spinimpute.targets.array_sites import DUPLICATE, NOT_IN_PANEL, read_array

EXAMPLE = Path(__file__).resolve().parents[2] / "data" / "example"
PANEL = Sites(
    "20", np.array([10, 20, 20, 30, 40]), ["A", "C", "C", "G", "T"], ["G", "T", "A", "A", "C"], ["."] * 5
)
FREQUENCY = np.array([0.1, 0.01, 0.4, 0.9, 0.5])
VCF = """##fileformat=VCFv4.2
##contig=<ID=chr20>
##contig=<ID=chr21>
#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO
"""


def listed(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def vcf(path: Path, *records: str) -> Path:
    lines = ["\t".join([*record.split(), ".", ".", "."]) for record in records]
    return listed(path, VCF + "\n".join(lines) + "\n")


@pytest.mark.parametrize("head", ["", "chromosome\tposition\n", "# a comment\n\n", "CHR POS REF ALT\n"])
def test_positions(head: str, tmp_path: Path) -> None:
    path = listed(tmp_path / "a.txt", head + "chr20 30\n20 10\n20\t20\n20 10\n21 10\n20 11\n")
    array = read_array(path, PANEL, FREQUENCY)
    # of the two sites at 20 the one of frequency .4 is meant
    np.testing.assert_array_equal(array.panel_index, [0, 2, 3])
    assert array.n_sites == 6
    assert array.skipped == {DUPLICATE: 1, ON_ANOTHER_CHROMOSOME: 1, NOT_IN_PANEL: 1}


def test_alleles_decide(tmp_path: Path) -> None:
    path = listed(tmp_path / "a.txt", "20 20 c t\n20 30 G C\n20 40 T C\n")
    array = read_array(path, PANEL, FREQUENCY)
    np.testing.assert_array_equal(array.panel_index, [1, 4])
    assert array.skipped == {NOT_IN_PANEL: 1}


def test_compressed_list(tmp_path: Path) -> None:
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress(b"20 10\n"))
    np.testing.assert_array_equal(read_array(path, PANEL, FREQUENCY).panel_index, [0])


def test_sites_of_a_vcf_without_samples(tmp_path: Path) -> None:
    path = vcf(tmp_path / "a.vcf", "chr20 10 . A G", "chr20 20 . C A,T", "chr20 30 . G .", "chr21 40 . T C")
    array = read_array(path, PANEL, FREQUENCY)
    np.testing.assert_array_equal(array.panel_index, [0, 1, 2])
    assert array.skipped == {NO_ALT: 1, ON_ANOTHER_CHROMOSOME: 1}
    assert array.n_sites == 5


def test_unphased_targets_are_arrays_too(tmp_path: Path) -> None:
    text = gzip.decompress((EXAMPLE / "target.vcf.gz").read_bytes()).decode().replace("|", "/")
    lines = [line.split("\t") for line in text.splitlines() if not line.startswith("#")]
    position = np.array([int(words[1]) for words in lines])
    sites = Sites("20", position, [w[3] for w in lines], [w[4] for w in lines], [w[2] for w in lines])
    array = read_array(listed(tmp_path / "t.vcf", text), sites, np.full(len(sites), 0.5))
    assert len(array.panel_index) == len(sites) == 246


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("20 10\n20 x\n", "line 2: expected chromosome, position"),
        ("20 10 A\n", "line 1: expected"),
        ("20 10\n20 \u00b2\n", "line 2: expected"),
        (f"20 10\n20 {'1' * 5000}\n", "line 2: expected"),
        ("20 10\n20\n", "line 2: expected"),
        ("rs1 20 10\n", "line 1"),
        ("", "none of its 0 sites is in the panel, which covers 20:10-40"),
        ("21 10\n", "on another chromosome: 1.*The file has chromosome 21"),
        ("20 11\n", "not in the panel: 1.*genome build"),
        ("##fileformat=VCFv4.2\n20 10", "truncated"),
    ],
)
def test_unusable(text: str, said: str, tmp_path: Path) -> None:
    path = listed(tmp_path / "a.txt", text)
    with pytest.raises(InputError, match=f"array {path}.*{said}"):
        read_array(path, PANEL, FREQUENCY)


def test_unreadable(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"20 1\xff\xfe\n")
    (tmp_path / "cut.gz").write_bytes(gzip.compress(b"20 10\n" * 1000)[:-20])
    for name in ("binary", "cut.gz", "absent"):
        with pytest.raises(InputError, match=f"{name}: "):
            read_array(tmp_path / name, PANEL, FREQUENCY)
    with pytest.raises(InputError, match="no such file"):
        read_array(tmp_path / "absent", PANEL, FREQUENCY)
    with pytest.raises(InputError, match="it is a folder"):
        read_array(tmp_path, PANEL, FREQUENCY)
