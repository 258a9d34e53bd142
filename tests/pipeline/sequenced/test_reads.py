"""Sequenced samples from files to files: reads, alone and with likelihoods."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import spinimpute
from spinimpute.errors import InputError
from spinimpute.pipeline.sequenced.impute import impute_sequenced
from spinimpute.pipeline.sequenced.inputs import SequencingSettings
from spinimpute.pipeline.settings import RegionSettings
from spinimpute.sequencing.likelihoods import merge_likelihoods
from spinimpute.sequencing.pileup import read_alignments
from spinimpute.sequencing.variant_likelihoods import read_variant_likelihoods

World = Any
Impute = Callable[..., Path]
Read = Callable[[Path], Any]
Lines = Callable[[Path], list[str]]
Correlation = Callable[..., float]


def test_reads_equal_their_likelihoods(
    world: World,
    bams: list[Path],
    impute: Impute,
    tmp_path: Path,
    read: Read,
    without_header: Lines,
    correlation: Correlation,
) -> None:
    with spinimpute.Panel.open(world.panel) as panel:
        pileup = read_alignments(bams, panel)
    path = world.write_likelihoods(tmp_path / "pl.vcf", pileup)
    of_reads = impute(world, bams=bams)
    assert without_header(of_reads) == without_header(impute(world, path))
    assert correlation(read(of_reads).DS, world.genotype_SX, world.frequency) > 0.9


def test_likelihoods_and_reads_together(
    world: World,
    gl: Path,
    bams: list[Path],
    impute: Impute,
    tmp_path: Path,
    read: Read,
    without_header: Lines,
) -> None:
    """As one file of both would be imputed, and better than from either; reads in another order."""
    with spinimpute.Panel.open(world.panel) as panel:
        joined = merge_likelihoods(read_variant_likelihoods(gl, panel), read_alignments(bams, panel))
    path = world.write_likelihoods(tmp_path / "both.vcf", joined)
    both = impute(world, gl, bams[::-1])
    assert without_header(both) == without_header(impute(world, path))
    error, by_gl, by_reads = (
        np.mean((read(x).DS - world.genotype_SX) ** 2)
        for x in (both, impute(world, gl), impute(world, bams=bams))
    )
    assert error < 0.8 * min(by_gl, by_reads)


def test_samples_of_both_must_be_the_same(world: World, gl: Path, bams: list[Path], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not of the same samples"):
        impute_sequenced(tmp_path / "o.vcf", world.panel, SequencingSettings(gl, bams[1:]))
    assert not list(tmp_path.iterdir())


def test_samples_get_other_names(world: World, gl: Path, bams: list[Path], tmp_path: Path) -> None:
    """Before they are compared with those of another file."""
    renamed = tmp_path / "renamed.vcf"
    renamed.write_text(gl.read_text().replace("\ts1\t", "\tmine\t"))
    names = [None, "mine", *[None] * 4]
    given = SequencingSettings(renamed, bams, names=names)
    summary = impute_sequenced(tmp_path / "o.vcf", world.panel, given, region=RegionSettings("20:1-20000"))
    assert summary.samples == ["s0", "mine", "s2", "s3", "s4", "s5"]
    for wrong, said in ((names[:2], "2 names of samples for 6 files"), ([], "only one has mine")):
        with pytest.raises(InputError, match=said):
            impute_sequenced(tmp_path / "p.vcf", world.panel, SequencingSettings(renamed, bams, names=wrong))


def test_samples_where_the_file_has_no_record(
    world: World, gl: Path, bams: list[Path], impute: Impute, tmp_path: Path, read: Read
) -> None:
    """Which they are, and their order, does not depend on the region: regions are joined afterwards."""
    lines = gl.read_text().splitlines()
    half = [line for line in lines if line[0] == "#" or int(line.split("\t")[1]) < world.position[150]]
    path = tmp_path / "half.vcf"
    path.write_text("\n".join(half) + "\n")
    region = RegionSettings(f"20:{world.position[300]}-{world.position[390]}", 0.1)
    assert read(impute(world, path, bams[::-1], region=region)).samples == world.names
    with pytest.raises(InputError, match="not of the same samples"):
        impute(world, path, bams[1:], region=region)
