"""Two panels of a chromosome, and regions: as the merged panel; what is read before they are merged."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

import spinimpute
from spinimpute.genotypes.sites import Region
from spinimpute.panels import opening
from spinimpute.pipeline.sequenced import inputs
from spinimpute.pipeline.sequenced.impute import impute_sequenced
from spinimpute.pipeline.sequenced.inputs import SequencingSettings
from spinimpute.pipeline.settings import RegionSettings
from spinimpute.runtime.errors import InputError
from spinimpute.sequencing.variant_likelihoods import read_variant_likelihoods
from tests.pipeline.sequenced.outputs import phred_of_reads

World = Any


def records(path: Path) -> list[str]:
    return [line for line in path.read_text().splitlines() if not line.startswith("#")]


@dataclass(frozen=True)
class Files:
    """Two panels of chromosome 20, their merge, and likelihoods of chromosome X."""

    both: list[Path]
    merged: Path
    gl_of_x: Path
    array: Path


@pytest.fixture(scope="module")
def files(world, x_world, tmp_path_factory) -> Files:
    folder = tmp_path_factory.mktemp("two")
    text, genetic_map = (world.panel.with_name(name) for name in ("panel.vcf", "genetic.map"))
    head = next(line for line in text.read_text().splitlines() if line.startswith("#CHROM"))
    names = head.split("\t")[9:]
    both = [folder / "a.spin", folder / "b.spin"]
    for path, samples in zip(both, (names[::2], names[1::2]), strict=True):
        spinimpute.build_panel(text, path, genetic_map, samples=samples).close()
    spinimpute.merge_panels(both, folder / "merged.spin")
    phred_SX3 = phred_of_reads(np.random.default_rng(2), x_world.genotype_SX, 1.0)
    gl_of_x = x_world.write_gl(folder / "x.vcf", phred_SX3, range(0, len(x_world.position), 2))
    calls = np.array(["0/0", "0/1", "1/1"])
    rows = [(s, calls[world.genotype_SX[s]].tolist()) for s in range(0, len(world.position), 5)]
    array = world.write_vcf(folder / "array.vcf", rows, form="GT")
    return Files(both, folder / "merged.spin", gl_of_x, array)


def middle(world: World) -> str:
    return f"20:{world.position[100]}-{world.position[160]}"


@pytest.mark.parametrize("kind", ["array", "reads"])
def test_likelihoods_may_lack_the_chromosome(world, files, bams, tmp_path, kind):
    """As of a single panel: what else is known of the region is imputed from."""
    more: dict[str, Any] = {"array": {"array": files.array}, "reads": {"alignments": bams}}[kind]
    given, where = SequencingSettings(files.gl_of_x, **more), RegionSettings(middle(world))
    for name, panel in (("one", files.merged), ("two", files.both)):
        impute_sequenced(tmp_path / f"{name}.vcf", panel, given, region=where, force=True)
    assert len(records(tmp_path / "one.vcf")) == 61
    assert records(tmp_path / "two.vcf") == records(tmp_path / "one.vcf")


def test_no_chromosome_is_left_out_for_it(world, x_world, files, tmp_path):
    given = SequencingSettings(files.gl_of_x, array=files.array)
    of_x = f"X:{x_world.position[10]}-{x_world.position[90]}"
    where, of_20, out = RegionSettings([middle(world), of_x]), [], tmp_path / "o.vcf"
    for panels in ([files.merged], files.both):
        summary = impute_sequenced(out, [*panels, x_world.panel], given, region=where, force=True)
        assert "is left out" not in "".join(summary.warnings)
        of_20.append([line for line in records(out) if line.startswith("20")])
        assert len(records(out)) > len(of_20[-1])
    assert of_20[0] == of_20[1]
    assert len(of_20[0]) == 61


class TestBeforeMerging:
    @pytest.fixture(autouse=True)
    def merges_nothing(self, monkeypatch) -> None:
        monkeypatch.setattr(opening, "merge_panels", mock.Mock(side_effect=AssertionError("it is merged")))

    def test_nothing_is_known(self, world, files, gl, tmp_path):
        """On the chromosome, and in the region."""
        behind = tmp_path / "behind.vcf"
        lines = gl.read_text().splitlines(keepends=True)
        behind.write_text(
            "".join(x for x in lines if x[0] == "#" or int(x.split("\t")[1]) > world.position[300])
        )
        for path in (files.gl_of_x, behind):
            where = RegionSettings(middle(world), buffer_cM=0.1)
            with pytest.raises(InputError, match="no sample has data in 20:"):
                impute_sequenced(tmp_path / "o.vcf", files.both, SequencingSettings(path), region=where)

    def test_no_more_is_read_than_regions_need(self, world, files, gl, tmp_path, monkeypatch):
        """The file is of another build by its header, so it is read to see whether that is so."""
        read: list[Region | None] = []

        def watched(path: Path, panel: Any, region: Region | None = None, **more: Any) -> Any:
            read.append(region)
            return read_variant_likelihoods(path, panel, region, **more)

        monkeypatch.setattr(inputs, "read_variant_likelihoods", watched)
        monkeypatch.setattr(
            inputs, "infer_build", lambda line, chrom: "GRCh38" if "<ID=20>" in line else "GRCh37"
        )
        target = tmp_path / "t.vcf"
        target.write_text(gl.read_text().replace("<ID=20,length=150000>", "<ID=20>"))
        where = RegionSettings(middle(world), buffer_cM=0.1)
        with pytest.raises(AssertionError, match="it is merged"):
            impute_sequenced(tmp_path / "o.vcf", files.both, SequencingSettings(target), region=where)
        (region,) = read
        assert region is not None
        assert world.position[80] < region.start < world.position[100]
        assert world.position[160] < region.end < world.position[180]
