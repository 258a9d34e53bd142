"""In a region and its buffer haplotypes change whom they copy as often as in a run of the whole target."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import spinimpute
from spinimpute.genotypes.genetic_map import GeneticMap
from spinimpute.hmm import recombination_scale as copying_rate
from spinimpute.hmm.recombination_scale import RATE_LINE, rate_line, rate_of_panel, told_rate
from spinimpute.pipeline import prepare as preparing
from spinimpute.pipeline import regions
from spinimpute.predictors.engine import ImputationJob
from spinimpute.predictors.haplotype_attention.predictor import HaplotypePredictor

REGION = spinimpute.RegionSettings("20:1-50000", 0.2)


@pytest.fixture
def rates(monkeypatch: pytest.MonkeyPatch) -> list[float | None]:
    """The rates that imputing was given, run by run; a rate says of how many sites it comes."""
    monkeypatch.setattr(copying_rate, "rate_of_panel", lambda panel, index: float(len(index)))
    monkeypatch.setattr(preparing, "rate_of_panel", copying_rate.rate_of_panel)
    monkeypatch.setattr(copying_rate, "RATES", tuple(float(i) for i in range(3_000)))
    used: list[float | None] = []
    engine = HaplotypePredictor.engine

    def spy(self: HaplotypePredictor, job: ImputationJob) -> Any:
        used.append(job.jumps_per_cM)
        return engine(self, job)

    monkeypatch.setattr(HaplotypePredictor, "engine", spy)
    return used


@pytest.mark.parametrize("through", ["as it is", "convert", "phase"])
def test_the_rate_is_that_of_all_typed_sites(
    rates: list[float | None],
    dense_target: Path,
    example_panel: spinimpute.Panel,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    through: str,
) -> None:
    target = dense_target
    if through != "as it is":
        write = getattr(spinimpute, through)
        write(target, tmp_path / "ours.vcf.gz", example_panel)
        target = tmp_path / "ours.vcf.gz"
    read: list[int] = []
    prepare = regions.prepare

    def count(*arguments: Any, **options: Any) -> list[preparing.Prepared]:
        found = prepare(*arguments, **options)
        read.extend(len(part.match.panel_index) for part in found)
        return found

    monkeypatch.setattr(regions, "prepare", count)
    spinimpute.impute(target, tmp_path / "whole.vcf.gz", example_panel)
    part = spinimpute.impute(target, tmp_path / "part.vcf.gz", example_panel, region=REGION)
    assert part.used_sites < read[0]
    assert rates == [None, read[0]]  # None: of the sites that there are
    # of what we wrote a part is read, of others' files all
    assert (read[1] == read[0]) == (through == "as it is")


def test_a_rate_for_another_genetic_map_does_not_count(
    rates: list[float | None], example: Path, dense_target: Path, tmp_path: Path
) -> None:
    ours, panel = tmp_path / "ours.vcf.gz", example / "panel.vcf.gz"
    spinimpute.convert(dense_target, ours, panel, genetic_map=GeneticMap.constant(1.0))
    other = GeneticMap.constant(2.0)
    part = spinimpute.impute(ours, tmp_path / "part.vcf.gz", panel, genetic_map=other, region=REGION)
    assert rates == [2227]
    assert part.used_sites < 2227


def test_the_line_tells_the_rate_for_its_panel_and_map(example_panel: spinimpute.Panel) -> None:
    index = np.arange(0, example_panel.n_sites, 4)
    known = rate_of_panel(example_panel, index)
    line = rate_line(example_panel, known)
    assert told_rate(f"##fileformat=VCFv4.2\n{line}\n", example_panel) == known
    rate, checksum = line.removeprefix(RATE_LINE).split()
    for wrong in ("", "#CHROM", f"{RATE_LINE}{rate}", f"{RATE_LINE}{rate} 0{checksum[1:]}"):
        assert told_rate(wrong, example_panel) is None
    for number in ("nan", "-1", "1e9", "x", ""):
        assert told_rate(f"{RATE_LINE}{number} {checksum}", example_panel) is None
