"""In a region and its buffer haplotypes change whom they copy as often as in a run of the whole target."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import spinimpute
from spinimpute.genotypes.genetic_map import GeneticMap
from spinimpute.hmm import parameters
from spinimpute.hmm.recombination_scale import SCALE_LINE, recombination_scale, scale_in_header, scale_line
from spinimpute.pipeline import impute, matched_target
from spinimpute.pipeline.matched_target import TargetRead
from spinimpute.predictors.haplotype_attention.predictor import HaplotypePredictor
from spinimpute.predictors.interface import ImputationJob

pytestmark = pytest.mark.slow

REGION = spinimpute.RegionSettings("20:1-50000", 0.2)


@pytest.fixture
def scales(monkeypatch) -> list[float | None]:
    """The scales that imputing was given, run by run; a scale is the number of sites that it comes from."""
    monkeypatch.setattr(matched_target, "recombination_scale", lambda panel, index: float(len(index)))
    monkeypatch.setattr(parameters, "SCALES", tuple(float(i) for i in range(3_000)))
    given: list[float | None] = []
    engine = HaplotypePredictor.engine

    def spy(self: HaplotypePredictor, job: ImputationJob) -> Any:
        given.append(job.jumps_per_cM)
        return engine(self, job)

    monkeypatch.setattr(HaplotypePredictor, "engine", spy)
    return given


@pytest.mark.parametrize("through", ["as it is", "convert", "phase"])
def test_the_scale_is_that_of_all_typed_sites(
    scales, dense_target, example_panel, tmp_path, monkeypatch, through
):
    target = dense_target
    if through != "as it is":
        write = getattr(spinimpute, through)
        write(target, tmp_path / "ours.vcf.gz", example_panel)
        target = tmp_path / "ours.vcf.gz"
    read: list[int] = []
    read_matched = impute.read_matched

    def count(*arguments: Any, **options: Any) -> TargetRead:
        found = read_matched(*arguments, **options)
        read.extend(len(one.match.panel_index) for one in found.matched)
        return found

    monkeypatch.setattr(impute, "read_matched", count)
    spinimpute.impute(target, tmp_path / "whole.vcf.gz", example_panel)
    part = spinimpute.impute(target, tmp_path / "part.vcf.gz", example_panel, region=REGION)
    assert part.used_sites < read[0]
    assert scales == [None, read[0]]  # None: of the sites that there are
    # of what we wrote a part is read, of others' files all
    assert (read[1] == read[0]) == (through == "as it is")


def test_a_scale_for_another_genetic_map_does_not_count(scales, example, dense_target, tmp_path):
    ours, panel = tmp_path / "ours.vcf.gz", example / "panel.vcf.gz"
    spinimpute.convert(dense_target, ours, panel, genetic_map=GeneticMap.constant(1.0))
    other = GeneticMap.constant(2.0)
    part = spinimpute.impute(ours, tmp_path / "part.vcf.gz", panel, genetic_map=other, region=REGION)
    assert scales[-1] == 2227  # others are of the panel, which is built from a VCF each time
    assert part.used_sites < 2227


def test_the_line_states_the_scale_for_its_panel_and_map(example_panel):
    index = np.arange(0, example_panel.n_sites, 4)
    known = recombination_scale(example_panel, index)
    line = scale_line(example_panel, known)
    assert scale_in_header(f"##fileformat=VCFv4.2\n{line}\n", example_panel) == known
    scale, checksum = line.removeprefix(SCALE_LINE).split()
    for wrong in ("", "#CHROM", f"{SCALE_LINE}{scale}", f"{SCALE_LINE}{scale} 0{checksum[1:]}"):
        assert scale_in_header(wrong, example_panel) is None
    for number in ("nan", "-1", "1e9", "x", ""):
        assert scale_in_header(f"{SCALE_LINE}{number} {checksum}", example_panel) is None


def unphased_at(target: Path, wanted: slice, out: Path) -> Path:
    """The target without phase at the records of a slice."""
    lines = target.read_text().splitlines()
    records = [i for i, line in enumerate(lines) if not line.startswith("#")]
    for i in records[wanted]:
        lines[i] = lines[i].replace("0|1", "0/1").replace("1|0", "1/0")
    out.write_text("\n".join(lines) + "\n")
    return out


def test_the_scale_is_estimated_once_and_before_phasing(scales, dense_target, example_panel, tmp_path):
    unphased = unphased_at(dense_target, slice(None), tmp_path / "unphased.vcf")
    summary = spinimpute.impute(unphased, tmp_path / "o.vcf.gz", example_panel)
    assert scales[-1] == 2227  # others are of the panel, which is built from a VCF each time
    assert list(summary.seconds).index("estimate recombination") < list(summary.seconds).index("phase")


def test_without_unphased_calls_at_panel_sites_imputing_itself_estimates_the_scale(
    scales, dense_target, example_panel, tmp_path
):
    lines = unphased_at(dense_target, slice(0), tmp_path / "phased.vcf").read_text().splitlines()
    fields = lines[-1].split("\t")
    fields[1] = str(int(fields[1]) + 1)
    fields[9:] = ["0/1"] * len(fields[9:])
    target = tmp_path / "one_unphased.vcf"
    target.write_text("\n".join([*lines, "\t".join(fields)]) + "\n")
    summary = spinimpute.impute(target, tmp_path / "o.vcf.gz", example_panel)
    assert scales == [None]
    assert "estimate recombination" not in summary.seconds


def test_too_little_memory_is_told_before_the_scale_is_estimated(
    monkeypatch, dense_target, example_panel, tmp_path
):
    def refuse(*_: object) -> float:
        raise AssertionError

    monkeypatch.setattr(matched_target, "recombination_scale", refuse)
    unphased = unphased_at(dense_target, slice(None), tmp_path / "unphased.vcf")
    resources = spinimpute.Resources(max_memory=10**6)
    with pytest.raises(spinimpute.InputError, match="of memory are too little"):
        spinimpute.impute(unphased, tmp_path / "o.vcf.gz", example_panel, resources=resources)
