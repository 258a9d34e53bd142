"""Sequenced samples of several chromosomes at once: the records of runs with one panel each."""

from pathlib import Path
from typing import Any

import numpy as np
import pysam
import pytest

from spinimpute.panels.panel import Panel
from spinimpute.phasing.genotypes import genotypes_by_window
from spinimpute.pipeline import regions
from spinimpute.pipeline.regions import PanelInterval
from spinimpute.pipeline.sequenced import impute
from spinimpute.pipeline.sequenced.impute import impute_sequenced
from spinimpute.pipeline.sequenced.inputs import SequencingSettings
from spinimpute.pipeline.settings import OutputSettings, RegionSettings
from spinimpute.runtime.errors import InputError
from spinimpute.sequencing.likelihoods import GenotypeLikelihoods
from tests.pipeline.sequenced.outputs import phred_of_reads


def records(path: Path) -> list[str]:
    return [line for line in path.read_text().splitlines() if not line.startswith("#")]


@pytest.fixture(scope="module")
def gl_of_x(x_world, tmp_path_factory) -> Path:
    phred_SX3 = phred_of_reads(np.random.default_rng(2), x_world.genotype_SX, 1.0)
    path = tmp_path_factory.mktemp("glx") / "x.vcf"
    return Path(x_world.write_gl(path, phred_SX3, range(0, len(x_world.position), 2)))


@pytest.fixture(scope="module")
def gl_of_both(gl, gl_of_x, tmp_path_factory) -> Path:
    """X before 20."""
    head = [line for line in gl_of_x.read_text().splitlines() if line.startswith("#")]
    head.insert(-1, "##contig=<ID=20,length=150000>")
    path = tmp_path_factory.mktemp("both") / "both.vcf"
    path.write_text("\n".join([*head, *records(gl_of_x), *records(gl)]) + "\n")
    return path


@pytest.fixture(scope="module")
def apart(world, x_world, gl, gl_of_x, tmp_path_factory) -> dict[str, list[str]]:
    folder, found = tmp_path_factory.mktemp("apart"), {}
    for one, path in ((world, gl), (x_world, gl_of_x)):
        impute_sequenced(folder / f"{one.chrom}.vcf", one.panel, SequencingSettings(path))
        found[one.chrom] = records(folder / f"{one.chrom}.vcf")
    return found


def test_likelihoods_of_all_chromosomes(world, x_world, gl_of_both, apart, tmp_path):
    page = tmp_path / "page.html"
    summary = impute_sequenced(
        tmp_path / "all.vcf",
        [world.panel, x_world.panel],
        SequencingSettings(gl_of_both),
        output=OutputSettings(report=page),
    )
    assert records(tmp_path / "all.vcf") == apart["X"] + apart["20"]
    assert summary.written_sites == len(apart["X"]) + len(apart["20"])
    assert "on another chromosome" not in repr(summary)
    assert "<td>20</td>" in page.read_text()
    head = (tmp_path / "all.vcf").read_text().partition("#CHROM")[0]
    assert head.count("##spinimpute_panel=") == 3  # X has two parts
    impute_sequenced(tmp_path / "c{chrom}.vcf", [world.panel, x_world.panel], SequencingSettings(gl_of_both))
    for chrom in ("20", "X"):
        assert records(tmp_path / f"c{chrom}.vcf") == apart[chrom]


def test_a_file_for_each_chromosome(world, x_world, gl, gl_of_x, bams, apart, tmp_path):
    panels = [x_world.panel, world.panel]
    impute_sequenced(tmp_path / "all.vcf", panels, SequencingSettings([gl_of_x, gl]))
    assert sorted(records(tmp_path / "all.vcf")) == sorted(apart["20"] + apart["X"])
    with pytest.raises(InputError, match=r"gl\.vcf and .*gl\.vcf both contain chromosome 20"):
        impute_sequenced(tmp_path / "no.vcf", panels, SequencingSettings([gl, gl]))
    assert not (tmp_path / "no.vcf").exists()


def test_reads_of_all_chromosomes(world, x_world, tmp_path):
    both = []
    for one in (world, x_world):
        (tmp_path / one.chrom).mkdir()
    for x in range(2):
        parts = [one.write_bams(tmp_path / one.chrom, 1.0, [x])[0] for one in (world, x_world)]
        with pysam.AlignmentFile(str(parts[0])) as first, pysam.AlignmentFile(str(parts[1])) as second:
            header = first.header.to_dict()
            header["SQ"] += second.header.to_dict()["SQ"]
            path = tmp_path / f"{x}.bam"
            with pysam.AlignmentFile(str(path), "wb", header=header) as out:
                for file in (first, second):
                    for read in file:
                        out.write(pysam.AlignedSegment.from_dict(read.to_dict(), out.header))
        pysam.index(str(path))
        both.append(path)
    given = SequencingSettings(alignments=both)
    alone = []
    for one in (world, x_world):
        impute_sequenced(tmp_path / "one.vcf", one.panel, given, force=True)
        alone += records(tmp_path / "one.vcf")
    impute_sequenced(tmp_path / "all.vcf", [x_world.panel, world.panel], given)
    assert records(tmp_path / "all.vcf") == alone
    # no read is of chromosome X
    of_20 = str(tmp_path / "20.bam")
    with pysam.AlignmentFile(str(both[0])) as file, pysam.AlignmentFile(of_20, "wb", template=file) as out:
        for read in file.fetch("20"):
            out.write(read)
    pysam.index(of_20)
    only = SequencingSettings(alignments=[of_20])
    summary = impute_sequenced(tmp_path / "some.vcf", [x_world.panel, world.panel], only)
    assert {line.partition("\t")[0] for line in records(tmp_path / "some.vcf")} == {"20"}
    assert any(warning.startswith("chromosome X is left out: ") for warning in summary.warnings)


def test_regions_of_several_chromosomes(world, x_world, gl_of_both, tmp_path):
    """Each as it is alone: what lies further away than the buffer is not read."""
    position = world.position
    regions = [
        f"20:{position[300]}-{position[320]}",
        f"X:{x_world.position[10]}-{x_world.position[90]}",
        f"20:{position[5]}-{position[50]}",
    ]
    given, alone = SequencingSettings(gl_of_both), []
    for region in (regions[1], regions[2], regions[0]):
        panel = world.panel if region.startswith("20") else x_world.panel
        impute_sequenced(tmp_path / "one.vcf", panel, given, region=RegionSettings(region, 0.1), force=True)
        alone += records(tmp_path / "one.vcf")
    impute_sequenced(
        tmp_path / "all.vcf", [world.panel, x_world.panel], given, region=RegionSettings(regions, 0.1)
    )
    assert records(tmp_path / "all.vcf") == alone
    assert "##spinimpute_regions=3\n" in (tmp_path / "all.vcf").read_text()


def test_sites_of_overlapping_buffers_are_imputed_once(world, gl, tmp_path, monkeypatch):
    """As the stretch that the regions make: the phase of one goes on in the next."""
    position = world.position
    computed: list[tuple[int, int]] = []

    def watched(panel: Panel, first: int, phred_SX3: np.ndarray, *more: Any) -> Any:
        computed.append((first, first + len(phred_SX3)))
        return genotypes_by_window(panel, first, phred_SX3, *more)

    monkeypatch.setattr(impute, "genotypes_by_window", watched)
    regions = [f"20:{position[i]}-{position[i + 5]}" for i in (5, 40, 70, 300)]
    settings = RegionSettings(regions, buffer_cM=0.3)
    impute_sequenced(tmp_path / "some.vcf", world.panel, SequencingSettings(gl), region=settings)
    assert len(computed) == 2
    assert computed[0][1] <= computed[1][0]
    one = RegionSettings(f"20:{position[5]}-{position[75]}", buffer_cM=0.3)
    impute_sequenced(tmp_path / "one.vcf", world.panel, SequencingSettings(gl), region=one)
    inside = [
        line
        for line in records(tmp_path / "one.vcf")
        for at in [int(line.split("\t")[1])]
        if any(position[i] <= at <= position[i + 5] for i in (5, 40, 70))
    ]
    assert records(tmp_path / "some.vcf")[: len(inside)] == inside


def test_a_region_in_which_all_is_missing_is_left_out(world, gl, tmp_path):
    position = world.position
    first, second = (f"20:{position[i]}-{position[i + 20]}" for i in (100, 300))
    end = int(position[150])
    lines = gl.read_text().splitlines()
    n_samples = len(world.names)
    gone = [
        "\t".join([*line.split("\t")[:9], *["."] * n_samples])
        if not line.startswith("#") and int(line.split("\t")[1]) <= end
        else line
        for line in lines
    ]
    path = tmp_path / "gone.vcf"
    path.write_text("\n".join(gone) + "\n")
    given = SequencingSettings(path)
    impute_sequenced(tmp_path / "one.vcf", world.panel, given, region=RegionSettings(second, 0.0))
    both = RegionSettings([first, second], 0.0)
    summary = impute_sequenced(tmp_path / "both.vcf", world.panel, given, region=both)
    assert records(tmp_path / "both.vcf")[-1:] == records(tmp_path / "one.vcf")[-1:]
    assert summary.warnings
    with pytest.raises(InputError, match=r"are missing at all"):
        impute_sequenced(tmp_path / "no.vcf", world.panel, given, region=RegionSettings(first, 0.0))
    assert not (tmp_path / "no.vcf").exists()


def test_an_array_may_lack_a_chromosome_that_was_sequenced(world, x_world, gl_of_both, apart, tmp_path):
    calls = np.array(["0/0", "0/1", "1/1"])
    typed = range(0, len(world.position), 5)
    rows = [(s, calls[world.genotype_SX[s]].tolist()) for s in typed]
    array = world.write_vcf(tmp_path / "array.vcf", rows, form="GT")
    given = SequencingSettings(gl_of_both, array=array)
    summary = impute_sequenced(tmp_path / "all.vcf", [world.panel, x_world.panel], given, force=True)
    found = records(tmp_path / "all.vcf")
    assert [line for line in found if line.startswith("X")] == apart["X"]
    assert any("imputed without it" in warning for warning in summary.warnings)


def test_sites_of_neighbouring_regions_count_once(world, gl, tmp_path):
    """The buffers hold the whole panel: its sites, and those that it lacks, are not told twice."""
    position = world.position
    lines = gl.read_text().splitlines()
    other = next(line for line in lines if not line.startswith("#")).split("\t")
    taken = set(position)
    free = [p for p in range(int(position[0]), int(position[-1])) if p not in taken][:40:2]
    lacking = ["\t".join([other[0], str(p), *other[2:]]) for p in free]
    records_of_both = [line for line in lines if not line.startswith("#")] + lacking
    records_of_both.sort(key=lambda line: int(line.split("\t")[1]))
    path = tmp_path / "more.vcf"
    path.write_text("\n".join([line for line in lines if line.startswith("#")] + records_of_both) + "\n")
    given = SequencingSettings(path)
    whole = impute_sequenced(tmp_path / "whole.vcf", world.panel, given)
    regions = [f"20:{position[i]}-{position[i + 5]}" for i in (5, 100, 200, 300)]
    found = impute_sequenced(
        tmp_path / "parts.vcf", world.panel, given, region=RegionSettings(regions, buffer_cM=1_000.0)
    )
    assert found.panel_sites == whole.panel_sites == len(position)
    assert found.matched_sites == whole.matched_sites
    assert found.skipped == whole.skipped
    assert sum(found.skipped.values()) >= len(free)
    assert found.coverage.known_sites == whole.coverage.known_sites
    apart = []
    for region in regions:
        alone = RegionSettings(region, buffer_cM=1_000.0)
        impute_sequenced(tmp_path / "one.vcf", world.panel, given, region=alone, force=True)
        apart += records(tmp_path / "one.vcf")
    assert records(tmp_path / "parts.vcf") == apart


def test_work_grows_with_the_number_of_regions_alone(world, gl, tmp_path, monkeypatch):
    """Not with its square: exomes have hundreds of thousands of regions."""
    looked_at, computed = [0], [0]

    class CountedInterval(PanelInterval):
        def __eq__(self, other: object) -> bool:
            raise AssertionError("intervals are compared")

        __hash__ = PanelInterval.__hash__

        def __getattribute__(self, name: str) -> Any:
            looked_at[0] += name == "sites"
            return super().__getattribute__(name)

    known_SX = GenotypeLikelihoods.known_SX.fget  # type: ignore[attr-defined]

    def counted(likelihoods: GenotypeLikelihoods) -> Any:
        computed[0] += len(likelihoods.panel_index)
        return known_SX(likelihoods)

    def in_small_pieces(panel: Panel, first: int, phred_SX3: np.ndarray, *more: Any) -> Any:
        for start, p_S2X in genotypes_by_window(panel, first, phred_SX3, *more):
            for at in range(0, len(p_S2X), 4):
                yield start + at, p_S2X[at : at + 4]

    monkeypatch.setattr(regions, "PanelInterval", CountedInterval)
    monkeypatch.setattr(GenotypeLikelihoods, "known_SX", property(counted))
    monkeypatch.setattr(impute, "genotypes_by_window", in_small_pieces)
    work = []
    for n_places in (25, 100):
        looked_at[0] = computed[0] = 0
        position = world.position[:: len(world.position) // n_places][:n_places]
        where = RegionSettings([f"20:{at}-{at}" for at in position], buffer_cM=1_000.0)
        out = tmp_path / f"{n_places}.vcf"
        impute_sequenced(out, world.panel, SequencingSettings(gl), region=where)
        assert [int(line.split("\t")[1]) for line in records(out)] == position
        work.append((looked_at[0], computed[0]))
    assert work[1][0] < 5 * work[0][0]
    assert work[1][1] == work[0][1]
