"""The workflow's page over all targets and chromosomes: its numbers, and that it fits its window."""

import html
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import cyvcf2
import numpy as np
import pandas as pd
import pytest

import spinimpute

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).resolve().parents[2]
EXAMPLE = REPOSITORY / "data" / "example"
SCRIPT = REPOSITORY / "workflows" / "impute" / "scripts" / "overview.py"
InBrowser = Callable[[Path, str, int], str]
STUDY, OTHER = "a-study-with-a-rather-long-name", "other"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two targets; of one chromosome of the first there are true genotypes."""
    out = tmp_path_factory.mktemp("overview")
    spinimpute.build_panel(EXAMPLE / "panel.vcf.gz", out / "p.spin", EXAMPLE / "genetic.map").close()
    target = EXAMPLE / "target.vcf.gz"
    some = spinimpute.TargetSettings(samples=["target_EUR_01", "target_AFR_01"])
    spinimpute.impute(target, out / f"{STUDY}.20.vcf.gz", out / "p.spin")
    spinimpute.impute(target, out / f"{OTHER}.20.vcf.gz", out / "p.spin", target=some)
    shutil.copyfile(out / f"{STUDY}.20.vcf.gz", out / f"{STUDY}.21.vcf.gz")
    evaluation = out / STUDY / "20" / "evaluation"
    evaluation.parent.mkdir(parents=True)
    imputed = out / f"{STUDY}.20.vcf.gz"
    spinimpute.evaluate(EXAMPLE / "truth.vcf.gz", imputed, out / "p.spin", target, out=evaluation)
    files = [out / f"{name}.vcf.gz" for name in (f"{STUDY}.20", f"{STUDY}.21", f"{OTHER}.20")]
    overview(out, *files, "--evaluations", evaluation)
    return out


def overview(folder: Path, *words: object) -> None:
    outputs = [folder / name for name in ("r.html", "r.tsv", "r_mqc.json")]
    subprocess.run([sys.executable, SCRIPT, *outputs, *words], check=True)


def tables(page: Path) -> dict[str, list[list[str]]]:
    """Rows of the table of each section, by its title."""
    found = {}
    for part in page.read_text().split("<section>")[1:]:
        title = re.findall("<h2>(.*?)</h2>", part)[0]
        rows = part.partition("<tbody>")[2].split("<tr>")[1:]
        found[title] = [[html.unescape(c) for c in re.findall("<td[^>]*>(.*?)</td>", row)] for row in rows]
    return found


def test_numbers_are_those_of_the_files(folder: Path) -> None:
    told = pd.read_csv(folder / "r.tsv", sep="\t").set_index(["target", "chromosome"])
    for target, chromosome in told.index:
        records = list(cyvcf2.VCF(str(folder / f"{target}.{chromosome}.vcf.gz")))
        records = [record for record in records if record.INFO.get("TYPED") is None]
        r2, maf = (np.array([record.INFO[key] for record in records]) for key in ("R2", "MAF"))
        row = told.loc[(target, chromosome)]
        assert row["samples"] == {STUDY: 20, OTHER: 2}[target]
        assert (row["imputed_sites"], row["common_sites"]) == (len(records), (maf >= 0.05).sum())
        assert row["estimated_r2"] == pytest.approx(r2.mean(), abs=1e-4)
        assert row["common_estimated_r2"] == pytest.approx(r2[maf >= 0.05].mean(), abs=1e-4)
        assert row["common_share_reliable"] == pytest.approx((r2[maf >= 0.05] >= 0.8).mean(), abs=1e-4)
    accuracy = pd.read_csv(folder / STUDY / "20" / "evaluation" / "accuracy.tsv", sep="\t")
    overall = accuracy[accuracy.bin == "all"].set_index("imputer")
    row = told.loc[(STUDY, 20)]
    assert row["true_pooled_r2"] == pytest.approx(overall.pooled_r2["imputed"], abs=1e-4)
    assert row["frequencies_pooled_r2"] == pytest.approx(overall.pooled_r2["allele-frequency"], abs=1e-4)
    assert (row["scored_samples"], row["scored_sites"]) == (20, overall.sites["imputed"])
    assert told["true_pooled_r2"].isna().tolist() == [False, True, True]


def test_means_over_other_samples_stand_apart(folder: Path) -> None:
    found = tables(folder / "r.html")
    assert list(found) == [STUDY, OTHER, "Against true genotypes"]
    assert [row[0] for row in found[STUDY]] == ["20", "21"]
    assert [row[:3] for row in found["Against true genotypes"]] == [[STUDY, "20", "20"]]
    text = (folder / "r.html").read_text()
    assert "Over the imputed sites of each chromosome and 20 samples" in text
    assert "and 2 samples; R2 is unreliable below 50 samples" in text


def test_without_truth_there_is_no_section_for_it(folder: Path, tmp_path: Path) -> None:
    overview(tmp_path, folder / f"{OTHER}.20.vcf.gz")
    assert list(tables(tmp_path / "r.html")) == [OTHER]
    assert "1 target, 1 chromosome<" in (tmp_path / "r.html").read_text()


def test_multiqc_gets_a_row_for_each_chromosome(folder: Path) -> None:
    content = json.loads((folder / "r_mqc.json").read_text())
    told = pd.read_csv(folder / "r.tsv", sep="\t")
    assert list(content["data"]) == [f"{STUDY}.20", f"{STUDY}.21", f"{OTHER}.20"]
    for row, shown in zip(told.to_dict("records"), content["data"].values(), strict=True):
        assert shown["imputed_sites"] == row["imputed_sites"]
        assert shown["common_estimated_r2"] == pytest.approx(row["common_estimated_r2"], abs=1e-4)
        assert ("true_pooled_r2" in shown) == (row["true_pooled_r2"] == row["true_pooled_r2"])


@pytest.mark.parametrize("width", [800, 1200])
def test_it_fits_its_window(folder: Path, width: int, found_in_browser: InBrowser) -> None:
    """Neither the page nor a table has to be scrolled sideways."""
    script = """addEventListener("load", () => {
      const wide = [document.documentElement, ...document.querySelectorAll(".scroll")];
      document.body.dataset.found = wide.map((e) => e.scrollWidth - e.clientWidth).join(" ");
    });"""
    found = found_in_browser(folder / "r.html", script, width)
    assert [int(n) for n in found.split()] == [0] * 4
