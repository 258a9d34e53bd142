"""Several panels of a chromosome, given to `impute` and others: as the panel that they are merged into."""

import gzip
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import spinimpute
from spinimpute.genotypes.sites import Region
from spinimpute.panels import opening
from spinimpute.panels.merging.merge import merge_panels
from spinimpute.pipeline import impute
from spinimpute.pipeline.matched_target import read_matched
from spinimpute.predictors.spin.build import build_inducing_panel
from spinimpute.quality.summary import ImputationSummary
from spinimpute.runtime import memory
from spinimpute.runtime.errors import InputError

N_SITES = 1_200


def lines_of(path: Path) -> tuple[list[str], list[str]]:
    """The header and the first records of a VCF.gz."""
    lines = gzip.decompress(path.read_bytes()).decode().splitlines(keepends=True)
    head = next(i for i, line in enumerate(lines) if line.startswith("#CHROM")) + 1
    return lines[:head], lines[head : head + N_SITES]


@dataclass(frozen=True)
class Files:
    """Two panels with other samples and sites, the panel that they make, and targets."""

    first: Path
    second: Path
    merged: Path
    target: Path
    unphased: Path
    last: int

    @property
    def both(self) -> list[Path]:
        return [self.first, self.second]


@pytest.fixture(scope="module")
def files(example, tmp_path_factory) -> Files:
    folder = tmp_path_factory.mktemp("two")
    head, records = lines_of(example / "panel.vcf.gz")
    paths = []
    for number, name in enumerate(("first", "second")):
        columns = [*range(9), *range(9 + number, len(head[-1].split("\t")), 2)]
        kept = [line for i, line in enumerate(records) if i % 13 != 5 * number]

        def some(line: str, columns: list[int] = columns) -> str:
            fields = line.rstrip("\n").split("\t")
            return "\t".join(fields[i] for i in columns) + "\n"

        text = folder / f"{name}.vcf"
        text.write_text("".join([*head[:-1], *map(some, [head[-1], *kept])]))
        paths.append(folder / f"{name}.spin")
        spinimpute.build_panel(text, paths[-1], example / "genetic.map").close()
    merge_panels(paths, folder / "merged.spin")
    last = int(records[-1].split("\t")[1])
    head, records = lines_of(example / "target.vcf.gz")
    inside = [line for line in records if int(line.split("\t")[1]) <= last]
    few = ["\t".join(line.rstrip("\n").split("\t")[:13]) + "\n" for line in [head[-1], *inside]]
    target, unphased = folder / "target.vcf", folder / "unphased.vcf"
    target.write_text("".join([*head[:-1], *few]))
    unphased.write_text("".join([*head[:-1], *few]).replace("|", "/"))
    return Files(*paths, folder / "merged.spin", target, unphased, last)


def imputed(
    files: Files, out: Path, panel: object, vcf: Path | None = None, **more: object
) -> ImputationSummary:
    return spinimpute.impute(vcf or files.target, out, panel, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("form", ["target", "unphased"])
def test_as_the_merged_panel(files, tmp_path, form):
    """To the last byte, whatever the number of threads."""
    vcf = getattr(files, form)
    imputed(files, tmp_path / "one.vcf", files.merged, vcf)
    for threads in (1, 2):
        resources = spinimpute.Resources(threads=threads)
        summary = imputed(files, tmp_path / "both.vcf", files.both, vcf, resources=resources, force=True)
        assert (tmp_path / "both.vcf").read_bytes() == (tmp_path / "one.vcf").read_bytes()
    with spinimpute.Panel.open(files.merged) as merged, spinimpute.Panel.open(files.first) as first:
        assert summary.panel_sites == merged.n_sites > first.n_sites
        (line,) = [x for x in (tmp_path / "both.vcf").read_text().splitlines() if "spinimpute_panel" in x]
        with spinimpute.Panel.open(files.second) as second:
            said = f"{merged.checksum} (merged of {first.checksum} and {second.checksum})"
        assert line == f"##spinimpute_panel={said}"


def test_open_panels(files, tmp_path):
    imputed(files, tmp_path / "one.vcf", files.merged)
    with spinimpute.Panel.open(files.first) as first:
        imputed(files, tmp_path / "both.vcf", [first, files.second])
    assert (tmp_path / "both.vcf").read_bytes() == (tmp_path / "one.vcf").read_bytes()


def test_regions_are_joined_into_the_whole(files, tmp_path):
    imputed(files, tmp_path / "whole.vcf", files.both)
    with spinimpute.Panel.open(files.merged) as merged:
        middle = int(merged.position[merged.n_sites // 2])
    chunks = []
    for i, region in enumerate((f"20:1-{middle}", f"20:{middle + 1}-{files.last}")):
        chunks.append(tmp_path / f"{i}.vcf.gz")
        imputed(files, chunks[-1], files.both, region=spinimpute.RegionSettings(region))
    spinimpute.ligate(chunks, tmp_path / "joined.vcf", panel=files.merged)
    records = [
        [line for line in (tmp_path / name).read_text().splitlines() if line[0] != "#"]
        for name in ("joined.vcf", "whole.vcf")
    ]
    assert records[0] == records[1]


def test_no_more_is_read_before_merging_than_a_region_needs(files, tmp_path, monkeypatch):
    """Of a file that was written for the merged panel; the rest of it may need more memory than there is."""
    typed, elsewhere = tmp_path / "typed.vcf.gz", tmp_path / "first.vcf.gz"
    spinimpute.convert(files.target, typed, files.merged)
    spinimpute.convert(files.target, elsewhere, files.first)
    read: list[Region | None] = []

    def watched(*given: Any, only: Region | None = None, **more: Any) -> Any:
        read.append(only)
        return read_matched(*given, only=only, **more)

    monkeypatch.setattr(impute, "read_matched", watched)
    with spinimpute.Panel.open(files.merged) as merged:
        start, end = merged.position[[600, 700]].tolist()
    where = spinimpute.RegionSettings(f"20:{start}-{end}", buffer_cM=0.01)
    for vcf in (files.target, typed, elsewhere):
        imputed(files, tmp_path / "one.vcf", files.merged, vcf, region=where, force=True)
        imputed(files, tmp_path / "both.vcf", files.both, vcf, region=where, force=True)
        assert (tmp_path / "both.vcf").read_bytes() == (tmp_path / "one.vcf").read_bytes()
    whole, region, _ = read[1::3]  # the target is read from one panel; checked and read from both
    assert whole is None
    assert region is not None
    assert files.last / 3 < region.start <= start
    assert end <= region.end < files.last * 2 / 3


def test_stages_have_true_names(files, tmp_path):
    class Stages:
        def __init__(self) -> None:
            self.begun: list[str] = []

        def __call__(self, fraction: float) -> None: ...

        def begin_stage(self, stage: str) -> None:
            self.begun.append(stage)

    both = ["checking the target", "merging panels", "reading the target"]
    for panel, expected in ((files.both, both), (files.merged, ["opening the panel", "reading the target"])):
        stages = Stages()
        summary = imputed(files, tmp_path / "o.vcf", panel, progress=stages, force=True)
        assert stages.begun[: len(expected)] == expected
        assert ({"check target", "merge panels"} <= summary.seconds.keys()) == isinstance(panel, list)


def test_calls_left_out_and_a_report(files, tmp_path):
    found = []
    for name, panel in (("one", files.merged), ("both", files.both)):
        page = tmp_path / f"{name}.html"
        output = spinimpute.OutputSettings(leave_one_out=True, report=page)
        summary = imputed(files, tmp_path / f"{name}.vcf", panel, output=output)
        assert summary.leave_one_out is not None
        found.append((tmp_path / f"{name}.vcf").read_bytes())
    assert found[0] == found[1]
    assert "ER2=" in found[0].decode()
    assert "2 panels" in (tmp_path / "both.html").read_text()


def test_beside_another_chromosome(files, tmp_path):
    """Two panels of one and one panel of another, in one file and in two."""
    other = tmp_path / "other.vcf"
    text = files.first.with_suffix(".vcf").read_text()
    other.write_text(text.replace("ID=20", "ID=21").replace("\n20\t", "\n21\t"))
    spinimpute.build_panel(other, tmp_path / "21.spin").close()
    target = tmp_path / "target.vcf"
    lines = files.target.read_text().splitlines(keepends=True)
    head = [line for line in lines if line[0] == "#"]
    on_21 = ["21" + line[2:] for line in lines if line[0] != "#"]
    head.insert(1, "##contig=<ID=21>\n")
    target.write_text("".join([*head, *lines[len(head) - 1 :], *on_21]))
    given = [files.first, tmp_path / "21.spin", files.second]
    imputed(files, tmp_path / "all.vcf", given, target)
    imputed(files, tmp_path / "c{chrom}.vcf", given, target)
    imputed(files, tmp_path / "20.vcf", files.merged, target)
    imputed(files, tmp_path / "21.vcf", tmp_path / "21.spin", target)

    def records(name: str) -> list[str]:
        return [line for line in (tmp_path / name).read_text().splitlines() if line[0] != "#"]

    assert sorted(records("all.vcf")) == sorted(records("20.vcf") + records("21.vcf"))
    for chrom in ("20", "21"):
        assert (tmp_path / f"c{chrom}.vcf").read_bytes() == (tmp_path / f"{chrom}.vcf").read_bytes()
    lines = (tmp_path / "all.vcf").read_text().splitlines()
    with ExitStack() as stack:
        opened = [stack.enter_context(spinimpute.Panel.open(one)) for one in (given[1], given[0], given[2])]
        said = [f"##spinimpute_panel={one.checksum}" for one in opened]
    assert [line for line in lines if "spinimpute_panel" in line] == said


def test_one_merged_panel_is_kept_at_a_time(files, tmp_path, monkeypatch):
    """A chromosome that the target lacks is not merged either."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    merged: list[list[str]] = []

    def merge_and_look(panels: list[Path], out: Path, **more: Any) -> None:
        merge_panels(panels, out, **more)
        merged.append(sorted(path.name for path in tmp_path.glob("*/*.spin")))

    monkeypatch.setattr(opening, "merge_panels", merge_and_look)
    panels = files.both
    for chrom in ("21", "22"):
        for one in files.both:
            text = one.with_suffix(".vcf").read_text()
            path = tmp_path / f"{one.stem}{chrom}.vcf"
            path.write_text(text.replace("ID=20", f"ID={chrom}").replace("\n20\t", f"\n{chrom}\t"))
            spinimpute.build_panel(path, path.with_suffix(".spin")).close()
            panels = [*panels, path.with_suffix(".spin")]
    target = tmp_path / "target.vcf"
    text = files.target.read_text()
    records = text[text.index("\n20\t") + 1 :].replace("20\t", "21\t", 1).replace("\n20\t", "\n21\t")
    target.write_text(text + records)
    summary = imputed(files, tmp_path / "all.vcf", panels, target)
    assert merged == [["first+second.spin"], ["first21+second21.spin"]]
    assert any(one.startswith("chromosome 22 is left out") for one in summary.warnings)
    assert not list(tmp_path.glob("*/*.spin"))


class TestRefusedBeforeMerging:
    @pytest.fixture(autouse=True)
    def merges_nothing(self, monkeypatch) -> None:
        monkeypatch.setattr(opening, "merge_panels", mock.Mock(side_effect=AssertionError("it is merged")))

    def test_what_exists(self, files, tmp_path):
        (tmp_path / "o.vcf").touch()
        for run in (spinimpute.impute, spinimpute.phase):
            with pytest.raises(InputError, match="already exists"):
                run(files.target, tmp_path / "o.vcf", files.both)

    def test_samples_that_are_not_there(self, files, tmp_path):
        settings = spinimpute.TargetSettings(samples=["nobody"])
        with pytest.raises(InputError, match="1 of the requested samples are not in the file: nobody"):
            imputed(files, tmp_path / "o.vcf", files.both, target=settings)

    @pytest.mark.parametrize("cut", [0, 300, -40])
    def test_targets_that_cannot_be_read(self, files, tmp_path, cut):
        target = tmp_path / "t.vcf"
        target.write_text(files.target.read_text()[:cut])
        for run in (spinimpute.impute, spinimpute.phase):
            with pytest.raises(InputError, match=r"target .*t\.vcf"):
                run(target, tmp_path / "o.vcf", files.both)
        with pytest.raises(InputError, match=r"target .*t\.vcf"):
            spinimpute.impute_sequenced(tmp_path / "o.vcf", files.both, spinimpute.SequencingSettings(target))

    def test_another_build(self, files, tmp_path):
        """As the headers state, and the positions show."""
        panels = []
        for one in files.both:
            text = one.with_suffix(".vcf").read_text().replace("length=1000000", "length=63025520")
            path = tmp_path / one.with_suffix(".vcf").name
            path.write_text(text)
            panels.append(path.with_suffix(".spin"))
            spinimpute.build_panel(path, panels[-1]).close()
        lines = files.target.read_text().replace("length=1000000", "length=64444167").splitlines()
        moved = [
            line if line[0] == "#" else "\t".join([f[0], str(int(f[1]) + 7), *f[2:]])
            for line in lines
            for f in [line.split("\t")]
        ]
        target = tmp_path / "t.vcf"
        target.write_text("\n".join(moved) + "\n")
        for run in (spinimpute.impute, spinimpute.phase):
            with pytest.raises(InputError, match="another genome build"):
                run(target, tmp_path / "o.vcf", panels)
        message = "The file is on GRCh38 according to its header, the panel on GRCh37"
        with pytest.raises(InputError, match=message):
            spinimpute.impute_sequenced(tmp_path / "o.vcf", panels, spinimpute.SequencingSettings(target))

    def test_too_little_memory(self, files, tmp_path, monkeypatch):
        """Whether or not the second panel takes no more than the first."""
        peaks = iter([100, 300, 300, 300])
        monkeypatch.setattr(memory, "resident_bytes", lambda peak: next(peaks))
        with pytest.raises(InputError, match="are needed for reading the target"):
            imputed(files, tmp_path / "o.vcf", files.both, resources=spinimpute.Resources(max_memory=200))

    def test_reads_that_cannot_be_used(self, files, tmp_path):
        reads = tmp_path / "a.bam"
        reads.write_bytes(b"BAM")
        with pytest.raises(InputError, match=r"a\.bam"):
            spinimpute.impute_sequenced(
                tmp_path / "o.vcf", files.both, spinimpute.SequencingSettings(alignments=[reads])
            )

    def test_a_target_of_the_second_panel_alone(self, files, tmp_path):
        """It fits one of them."""
        with spinimpute.Panel.open(files.first) as first:
            known = set(first.position.tolist())
        lines = files.unphased.read_text().splitlines(keepends=True)
        only = [line for line in lines if line[0] == "#" or int(line.split("\t")[1]) not in known]
        target = tmp_path / "t.vcf"
        target.write_text("".join(only))
        with pytest.raises(AssertionError, match="it is merged"):
            imputed(files, tmp_path / "o.vcf", files.both, target)


def test_phase_and_check(files, tmp_path):
    spinimpute.phase(files.unphased, tmp_path / "one.vcf", files.merged)
    spinimpute.phase(files.unphased, tmp_path / "both.vcf", files.both)
    assert (tmp_path / "both.vcf").read_bytes() == (tmp_path / "one.vcf").read_bytes()
    one, both = (spinimpute.check(files.target, panel) for panel in (files.merged, files.both))
    assert [line.split(":")[0] for line in both.panels] == [path.name for path in files.both]
    assert both.lines()[2:] == one.lines()


def test_sequenced_samples(files, tmp_path):
    sequencing = spinimpute.SequencingSettings(files.unphased)
    for name, panel in (("one", files.merged), ("both", files.both)):
        spinimpute.impute_sequenced(tmp_path / f"{name}.vcf", panel, sequencing)
    assert (tmp_path / "both.vcf").read_bytes() == (tmp_path / "one.vcf").read_bytes()


def test_inducing_points_cannot_be_merged(files, tmp_path):
    points = tmp_path / "points.spip"
    with spinimpute.Panel.open(files.second) as second:
        build_inducing_panel(second, points, files.target, 8).close()
    said = r"points\.spip.* an inducing panel, which has no haplotypes\. Give the panel \(\.spin\)"
    for given in ([files.first, points], [points, files.first]):
        with pytest.raises(InputError, match=said):
            imputed(files, tmp_path / "o.vcf", given)
    assert not (tmp_path / "o.vcf").exists()
