"""Pages that several test files open."""

from pathlib import Path

import numpy as np
import pytest

import spinimpute
from spinimpute.genotypes.sites import Sites
from spinimpute.genotypes.untyped_intervals import IntervalCounts
from spinimpute.quality.frequencies import Frequencies
from spinimpute.quality.imputed_sites import ImputedSites
from spinimpute.quality.leave_one_out import LeaveOneOutQuality
from spinimpute.quality.report_data import ReportData
from spinimpute.quality.sample_quality import SampleQuality
from spinimpute.quality.summary import ImputationSummary, WindowCounts
from spinimpute.reports.imputation_report import imputation_report

EXAMPLE = Path(__file__).resolve().parents[2] / "data" / "example"


@pytest.fixture(scope="session")
def pages(example_panel, tmp_path_factory) -> dict[str, Path]:
    """The pages of an array, of sequenced samples, of `evaluate`, and of a whole genome."""
    folder = tmp_path_factory.mktemp("reports")
    found = {kind: folder / f"{kind}.html" for kind in ("impute", "sequenced", "evaluate", "genome")}
    target = EXAMPLE / "target.vcf.gz"
    imputed = folder / "o.vcf.gz"
    output = spinimpute.OutputSettings(("GT", "DS", "GP"), report=found["impute"])
    spinimpute.impute(target, imputed, example_panel, output=output)
    spinimpute.impute_sequenced(
        folder / "s.vcf.gz",
        example_panel,
        spinimpute.SequencingSettings(target),
        region=spinimpute.RegionSettings("20:1-200000"),
        output=spinimpute.OutputSettings(report=found["sequenced"]),
    )
    spinimpute.evaluate(EXAMPLE / "truth.vcf.gz", imputed, example_panel, target, report=found["evaluate"])
    imputation_report(*genome()).write(found["genome"])
    return found


def genome() -> tuple[ImputationSummary, ReportData, str, str]:
    """A report of 22 chromosomes and 300 samples in which all sections and long tables occur."""
    rng = np.random.default_rng(1)
    samples = [f"a_long_sample_name_{i:04d}" for i in range(300)]
    ploidy = np.full(len(samples), 2)
    data = ReportData(SampleQuality(samples), ImputedSites())
    quality = LeaveOneOutQuality(samples)
    summary = ImputationSummary(samples=len(samples), typed_sites=1_540, matched_sites=1_320)
    for chrom in map(str, range(1, 23)):
        position = np.arange(1, 301) * 100_000
        panel = rng.choice([0.0003, 0.0008, 0.0015, 0.003, 0.008, 0.03, 0.3], 300)
        typed = np.arange(300) % 5 == 0
        p_UQ = rng.beta(panel, 1 - panel, (2 * len(samples), 300)).T.astype(np.float32)
        alleles_TQ = (rng.random((60, 600)) < p_UQ[typed]).astype(np.int8)
        sites = Sites(chrom, position[typed], ["A"] * 60, ["C"] * 60, [f"rs{i}" for i in range(60)])
        quality.add(sites, panel[typed], alleles_TQ, p_UQ[typed], ploidy)
        data.by_sample.add_calls(alleles_TQ, ploidy)
        data.by_sample.add_dosages(p_UQ[~typed], panel[~typed], ploidy)
        data.imputed.add(chrom, position, panel, rng.random(300), typed, rng.random((300, 2)))
        frequencies = Frequencies(np.full(60, 600), rng.integers(0, 600, 60), panel[typed], 5_000)
        data.frequencies.targets.append((sites, frequencies))
        data.provenance.add("target", f"/data/arrays/target.chr{chrom}.vcf.gz")
        data.provenance.add("panel's checksum", f"chr{chrom}.spin: {'0123456789abcdef' * 4}")
        summary.windows += [
            WindowCounts(chrom, i * 10_000_000, (i + 1) * 10_000_000, 90_000, 900, 950, 900)
            for i in range(15)
        ]
        summary.untyped += [
            IntervalCounts(chrom, i * 10_000_000, i * 10_000_000 + 900_000, i, 9_000) for i in range(6)
        ]
    data.provenance.add("command", "spinimpute impute --vcf " + "/a/long/folder" * 20)
    summary.leave_one_out = quality
    summary.repaired = {"REF and ALT exchanged": 12, "other strand": 4}
    summary.unmatched = {"not in the panel": 200, "other alleles": 20}
    summary.warnings = [f"target.chr{i}.vcf.gz: few sites match the panel" for i in range(4)]
    summary.seconds = {f"stage {i}": float(i) for i in range(10)}
    return summary, data, "22 files", "22 panels"
