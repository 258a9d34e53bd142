"""Pages show the expected r² of one sample in place of R2, and both for few samples."""

import gzip
from pathlib import Path

import numpy as np
import pytest

import spinimpute
from spinimpute.quality.imputed_sites import ImputedSites
from spinimpute.quality.report_data import ReportData
from spinimpute.quality.sample_quality import SampleQuality
from spinimpute.quality.site_quality import dosage_variance
from spinimpute.quality.summary import ImputationSummary
from spinimpute.reports.imputation_report import imputation_report

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).resolve().parents[2] / "data" / "example"


def report(imputed: ImputedSites, samples: int) -> str:
    data = ReportData(SampleQuality([f"s{x}" for x in range(samples)]), imputed)
    return imputation_report(ImputationSummary(samples=samples), data, "t.vcf", "p.spin").html


def sites_with(r2: np.ndarray, typed: np.ndarray) -> ImputedSites:
    """Sites with an expected r² of 0.75."""
    imputed, n = ImputedSites(), len(r2)
    variance = np.repeat([[0.3, 0.1]], n, axis=0)
    imputed.add("20", np.arange(1, n + 1) * 1_000, np.full(n, 0.2), r2, typed, variance)
    return imputed


def section(page: str, title: str) -> str:
    return page[page.index(f"<h2>{title}</h2>") :].partition("</section>")[0]


@pytest.mark.parametrize(("samples", "headlined"), [(1, False), (2, True), (50, True)])
def test_estimates_for_one_few_and_many_samples(samples, headlined):
    page = report(sites_with(np.linspace(0, 1, 8), np.arange(8) == 0), samples)
    first = page[page.index('<dl class="cards">') : page.index("<section>")]
    assert ("R2" in first) == headlined
    assert ("expected r²" in first) == (samples < 50)
    # all sites are common; those with R2 of 6/7 and 1 are good; the typed one does not count
    good = '<div><dt>Common: MAF\xa05–50\xa0%</dt><dd>28 %</dd><dd class="detail">2 of 7 sites</dd></div>'
    assert (good in first) == headlined
    assert ("<dd>0.75</dd>" in first) == (samples == 1)
    explained = 'id="r2">R2 estimates' if headlined else 'id="expected-r2">Expected r²'
    assert explained in page
    by_frequency, along = (section(page, t) for t in ("Quality by allele frequency", "Along the chromosome"))
    assert ("R2" in by_frequency) == headlined
    assert ("R2 of imputed sites" in page) == headlined
    for part in (by_frequency, along):
        assert ("expected r²" in part) == (samples < 50)
    assert (">0.7500</td>" in by_frequency) == (samples < 50)
    assert ("R2" in along) == (samples == 50)


def test_the_histogram_has_imputed_sites_only():
    page = report(sites_with(np.array([1, 1, 0.1, 0.9, 0.9, 0.9]), np.arange(6) < 2), 3)
    drawn = section(page, "R2 of imputed sites")
    assert drawn.count("fill: var(--first)") == 2


def test_the_expected_r2_of_a_frequency(rng):
    """It equals that of genotypes drawn from the probabilities, about the panel's frequency."""
    frequency_U, ploidy = rng.choice([0.02, 0.2, 0.7], 60), np.array([2, 1, 2])
    p_UQ = rng.beta(frequency_U, 1 - frequency_U, (5, 60)).T.astype(np.float32)
    imputed = ImputedSites()
    typed = np.arange(60) % 7 == 0
    variance = dosage_variance(p_UQ, frequency_U, ploidy)
    imputed.add("20", np.arange(1, 61), frequency_U, np.zeros(60), typed, variance)
    of_sample = np.repeat(np.arange(3), ploidy)
    draws = rng.random((4_000, *p_UQ.shape)) < p_UQ
    for row, one in zip(imputed.by_frequency(), (0.02, 0.2), strict=True):
        chosen = ~typed & ((frequency_U > 0.05) == (one == 0.2))
        mean = frequency_U[chosen, None] * ploidy
        dosage, genotype = (
            np.stack([x[..., chosen, :][..., of_sample == i].sum(-1) for i in range(3)], -1) - mean
            for x in (p_UQ, draws)
        )
        lost = ((genotype - dosage) ** 2).mean() / (genotype**2).mean()
        assert row["expected_r2"] == pytest.approx(1 - lost, abs=0.02)


def test_expected_r2_without_uncertainty_or_variance():
    frequency = np.array([0.2, 0.2])
    for p, expected in ((np.array([[0.0, 1.0], [0.0, 0.0]]), 1.0), (np.full((2, 2), 0.2), 0.0)):
        imputed = ImputedSites()
        variance = dosage_variance(p, frequency, np.array([2]))
        imputed.add("20", np.arange(1, 3), frequency, np.zeros(2), np.zeros(2, bool), variance)
        (row,) = imputed.by_frequency()
        assert row["expected_r2"] == pytest.approx(expected)


def one_sample(path: Path) -> Path:
    lines = gzip.decompress((EXAMPLE / "target.vcf.gz").read_bytes()).decode().splitlines()
    kept = [line if line.startswith("##") else "\t".join(line.split("\t")[:10]) for line in lines]
    path.write_text("\n".join(kept) + "\n")
    return path


@pytest.mark.parametrize("kind", ["array", "sequenced"])
def test_pages_of_one_sample(kind, example_panel, tmp_path):
    page, out = tmp_path / "r.html", tmp_path / "o.bcf"
    target = one_sample(tmp_path / "t.vcf")
    output = spinimpute.OutputSettings(report=page)
    if kind == "array":
        spinimpute.impute(target, out, example_panel, output=output)
    else:
        spinimpute.impute_sequenced(
            out, example_panel, spinimpute.SequencingSettings(target), output=output,
            region=spinimpute.RegionSettings("20:1-300000"),
        )  # fmt: skip
    text = page.read_text()
    for title in ("Quality by allele frequency", "Along the chromosome"):
        part = section(text, title)
        assert "expected r²" in part
        assert "R2" not in part
    assert "R2 of imputed sites" not in text


def test_the_expected_r2_by_frequency_is_about_the_true_one(example_panel, tmp_path):
    output, out = spinimpute.OutputSettings(report=tmp_path / "r.html"), tmp_path / "o.bcf"
    target = EXAMPLE / "target.vcf.gz"
    summary = spinimpute.impute(target, out, example_panel, output=output)
    assert summary.report_data is not None
    expected = {row["bin"]: row["expected_r2"] for row in summary.report_data.imputed.by_frequency()}
    true = spinimpute.evaluate(EXAMPLE / "truth.vcf.gz", out, example_panel, target)
    found = {row["bin"]: row["pooled_r2"] for row in true.by_frequency if row["imputer"] == "imputed"}
    assert len(expected) == 4
    for name, r2 in expected.items():
        assert r2 == pytest.approx(found[name], abs=0.05)
