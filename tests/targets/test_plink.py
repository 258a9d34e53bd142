"""Small files of PLINK, written byte by byte: what their names and columns may hold."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from spinimpute.genotypes.haplotypes import Calls
from spinimpute.genotypes.sites import Sites
from spinimpute.runtime.errors import InputError
from spinimpute.targets.plink import read_plink

pytest.importorskip("pgenlib")

LINE = "##contig=<ID=20>"
PANEL = Sites("20", np.array([100, 200]), ["A", "C"], ["C", "T"], [".", "."])
BIM = "20 rs1 0 100 C A\n20 rs2 0 200 T C\n"
CALLS = bytes([0b1000, 0b0011])  # of two samples: two ALT and one, no ALT and two


def write_bed(folder: Path, bim: str, name: str = "t") -> Path:
    """Two samples, and as many variants as the .bim has lines, at most two."""
    path = folder / f"{name}.bed"
    path.write_bytes(b"\x6c\x1b\x01" + CALLS[: len(bim.splitlines())])
    path.with_suffix(".bim").write_text(bim)
    path.with_suffix(".fam").write_text("0 a 0 0 0 -9\n0 b 0 0 0 -9\n")
    return path


def read(path: Path, panel: Sites = PANEL) -> Calls:
    return read_plink(path, panel, LINE)


def test_a_name_that_is_no_text(tmp_path: Path) -> None:
    """As files from disks with another encoding have it."""
    calls = read(write_bed(tmp_path, BIM, os.fsdecode(b"Jos\xe9")))
    assert calls.samples == ["a", "b"]
    assert calls.calls.tolist() == [[[1, 1], [0, 1]], [[0, 0], [1, 1]]]


@pytest.mark.parametrize("names", [("PAR1", "X"), ("XY", "X"), ("25", "23")])
def test_parts_of_x_have_names_of_their_own(tmp_path: Path, names: tuple[str, str]) -> None:
    """As plink2 --split-par and PLINK 1 write them."""
    bim = f"{names[0]} rs1 0 100 C A\n{names[1]} rs2 0 200 T C\n"
    calls = read(write_bed(tmp_path, bim), replace(PANEL, chrom="X"))
    assert calls.sites.position.tolist() == [100, 200]
    assert calls.skipped == {}


@pytest.mark.parametrize("alleles", ["1 2", "I D", "0 1"])
def test_alleles_that_are_no_bases(tmp_path: Path, alleles: str) -> None:
    path = write_bed(tmp_path, f"19 rs0 0 50 A C\n20 rs1 0 100 {alleles}\n")
    said = rf"t\.bim, variant 2: its alleles are {'/'.join(alleles.split()[::-1])}, .* Recode them"
    with pytest.raises(InputError, match=said):
        read(path)


def test_no_variant_on_the_chromosome(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no usable variant on chromosome 20. The file has chromosome 19"):
        read(write_bed(tmp_path, "19 rs0 0 50 A C\n"))
