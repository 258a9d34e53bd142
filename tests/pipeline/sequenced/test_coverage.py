"""How much is known of each sequenced sample: in the summary, in warnings and on the page of --report."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from spinimpute.pipeline.sequenced.impute import impute_sequenced
from spinimpute.pipeline.sequenced.inputs import SequencingSettings
from spinimpute.pipeline.settings import OutputSettings, RegionSettings
from spinimpute.quality.summary import SequencedSummary
from spinimpute.runtime.errors import InputError

REGION = RegionSettings("20:1-30000", 0)


@pytest.fixture(scope="module")
def uneven(world, tmp_path_factory) -> list[Path]:
    """Reads of six samples: s1 has a tenth of those of the others, s4 none where the panel is."""
    folder = tmp_path_factory.mktemp("uneven")
    paths = world.write_bams(folder, 1.0, [0, 2, 3, 5])
    paths += world.write_bams(folder, 0.1, [1]) + world.write_bams(folder, 0.0, [4])
    return sorted(paths)


@pytest.fixture(scope="module")
def run(world, uneven, tmp_path_factory) -> tuple[SequencedSummary, Path]:
    folder = tmp_path_factory.mktemp("run")
    output = OutputSettings(report=folder / "report.html", multiqc=folder / "r_mqc.json")
    given = SequencingSettings(alignments=uneven)
    summary = impute_sequenced(folder / "o.vcf.gz", world.panel, given, region=REGION, output=output)
    assert sorted(path.name for path in folder.iterdir()) == [
        "o.vcf.gz", "o.vcf.gz.tbi", "r_mqc.json", "report.html",
    ]  # fmt: skip
    return summary, folder / "report.html"


def test_low_samples_are_warned_of(run):
    summary, _ = run
    nothing, little = summary.warnings
    assert "1 of 6 samples (s4) have no data" in nothing
    assert "1 of 6 samples (s1) have less than a third of the median number of reads" in little
    rows = {row["sample"]: row for row in summary.coverage.by_sample()}
    assert rows["s4"]["depth"] == 0
    assert rows["s4"]["without_reads"] == rows["s4"]["expected"] == rows["s4"]["unknown"] == 1
    assert 0 < rows["s1"]["depth"] < 0.3
    for name in ("s0", "s2", "s3", "s5"):
        assert rows[name]["depth"] == pytest.approx(1, abs=0.4)
        assert rows[name]["without_reads"] == pytest.approx(rows[name]["expected"], abs=0.12)


def test_the_page(run):
    summary, page = run
    text = page.read_text()
    for title in (
        "Imputation report",
        "6 files of reads imputed from panel.spin",
        "Coverage by sample",
        "Quality by allele frequency",
        "Along the chromosome",
        "Course of the run",
        *(warning.partition(" (")[0] for warning in summary.warnings),
    ):
        assert title in text
    for of_arrays in ("typed", "left out", "Windows", "window"):
        assert of_arrays not in re.sub("(?s)<(style|script)>.*?</", "", text)
    table = text[text.index("<caption>Shares of") :].partition("</table>")[0]
    rows = [re.sub("<[^>]*>", "\t", row).split("\t") for row in table.split("<tr>")[2:]]
    cells = [[cell for cell in row if cell] for row in rows]
    assert [row[0] for row in cells[:2]] == ["s4", "s1"]
    assert [row[-1] for row in cells[:2]] == ["low", "low"]
    told = {row["sample"]: row for row in summary.coverage.by_sample()}
    for name, *numbers in cells:
        expected = [told[name][key] for key in ("depth", "without_reads", "expected", "unknown")]
        assert [float(value) for value in numbers[:4]] == pytest.approx(expected, abs=1e-4)
    assert summary.report_data is not None
    for row in summary.report_data.imputed.by_frequency():
        assert f"{row['r2']:.4f}" in text


def test_the_table_for_multiqc(run):
    summary, page = run
    shown = json.loads(page.with_name("r_mqc.json").read_text())["data"]
    for row in summary.coverage.by_sample():
        told = shown[row["sample"]]
        assert told["depth"] == row["depth"]
        assert told["without_reads"] == pytest.approx(100 * row["without_reads"])
        assert told.get("note", "") == row["note"]
        assert 0 <= told["expected_r2"] <= 1
    assert shown["s4"]["expected_r2"] < min(shown[name]["expected_r2"] for name in ("s0", "s2", "s3", "s5"))


def test_depths_of_a_file_of_likelihoods(world, tmp_path):
    """Of the sites that have a DP alone; without any there is no depth to tell."""
    n_sites, n_samples = len(world.position), len(world.names)
    rows = [
        (s, [f"0,3,30:{s % 4}" if s % 4 else "0,0,0:0"] * n_samples) for s in range(0, n_sites, 2) if s % 8
    ]
    path = world.write_vcf(tmp_path / "gl.vcf", rows, form="PL:DP")
    text = path.read_text().replace(
        "#CHROM", '##FORMAT=<ID=DP,Number=1,Type=Integer,Description="d">\n#CHROM'
    )
    path.write_text(text)
    summary = impute_sequenced(tmp_path / "o.vcf", world.panel, SequencingSettings(path), region=REGION)
    reads = summary.coverage.reads
    assert reads is not None
    np.testing.assert_allclose(reads.depth_X, 2 * 2 / 3, atol=0.05)
    np.testing.assert_allclose(reads.no_reads_X, 1 / 3, atol=0.05)
    np.testing.assert_allclose(summary.coverage.unknown_X, 3 / 4, atol=0.05)


def test_an_existing_page_stays(world, gl, tmp_path):
    page = tmp_path / "page.html"
    page.write_text("mine")
    for report, said in ((page, "already exists"), (tmp_path / "o.vcf", "give two names")):
        with pytest.raises(InputError, match=said):
            impute_sequenced(
                tmp_path / "o.vcf", world.panel, SequencingSettings(gl), output=OutputSettings(report=report)
            )
    assert page.read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


def test_what_was_imputed_is_named(gl, bams):
    assert SequencingSettings(gl, bams).description == "gl.vcf and 6 files of reads"
    assert SequencingSettings(None, bams[:1], "a/array.bed").description == "array.bed and s0.bam"
