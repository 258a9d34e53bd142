"""Sites that a cut by the printed R2 loses and keeps, and sizes of files."""

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.imputation.__main__ import make_parser
from benchmarks.imputation.calibration import true_r2
from benchmarks.imputation.cases import SHARED, Case
from benchmarks.imputation.expected_r2 import Part, cuts
from benchmarks.imputation.tables import size_table, vcf_sizes


def test_cuts_equal_brute_force() -> None:
    rng = np.random.default_rng(6)
    true = rng.binomial(2, 0.2, (60, 40)).astype(np.float32)
    true[:5] = 0  # constant: no true r2
    dosage = (true + rng.normal(0, rng.uniform(0, 2, (60, 1)), true.shape)).astype(np.float32)
    dosage[10] = 0.25
    printed = rng.random(60)
    printed[[2, 20]] = np.nan
    frequency = np.where(np.arange(60) % 2, 0.01, 0.3)
    of_sites = true_r2(true, dosage)
    rows = cuts(of_sites, printed, frequency, (0.0, 0.05, 0.5))
    assert [row.bin for row in rows] == ["all", "(0,0.05]", "(0.05,0.5]"]
    for row, chosen in zip(rows, (range(60), range(1, 60, 2), range(0, 60, 2)), strict=True):
        count = {
            name: [0, 0] for name in ("kept", "lost of .3", "lost of .8", "bad that are kept", "constant")
        }
        for i in chosen:
            kept = bool(printed[i] >= 0.3)
            groups = {"kept": kept}
            if i < 5:
                groups["constant"] = kept
            else:
                r2 = 0.0 if i == 10 else np.corrcoef(true[i], dosage[i])[0, 1] ** 2
                if r2 >= 0.3:
                    groups["lost of .3"] = not kept
                if r2 < 0.2:
                    groups["bad that are kept"] = kept
                if r2 >= 0.8:
                    groups["lost of .8"] = not kept
            for name, wrong in groups.items():
                count[name][0] += 1
                count[name][1] += wrong
        expected = [Part(*numbers) for numbers in count.values()]
        assert [row.kept, *row.lost_good, row.kept_bad, row.kept_constant] == expected


def test_a_site_without_an_estimate_is_not_kept() -> None:
    (row, _) = cuts(np.array([0.9]), np.array([np.nan]), np.array([0.2]), (0.0, 0.5))
    assert (row.kept, row.lost_good) == (Part(1, 0), (Part(1, 1), Part(1, 1)))
    assert row.kept_bad.text() == "–"
    assert row.lost_good[0].text() == "1 of 1 (100.0%)"


def test_sizes_are_those_of_vcf_gz(tmp_path: Path) -> None:
    files = {
        "Beagle": tmp_path / "a.vcf.gz",
        "mine_too": tmp_path / "b.vcf.gz",
        "nearest": tmp_path / "c.bcf",
    }
    for i, path in enumerate(files.values()):
        path.write_bytes(b"x" * 2_000_000 * (i + 1))
    sizes = vcf_sizes(files)
    assert sizes == {"Beagle": 2_000_000, "mine_too": 4_000_000}
    assert size_table(sizes).splitlines()[2:] == ["| Beagle | 2.00 | 1.00 |", "| mine too | 4.00 | 2.00 |"]


def test_the_command(programs: None, simulated: Case, tmp_path: Path) -> None:
    scorer = SHARED / "tools" / "score_imputation.py"
    if not scorer.is_file():
        pytest.skip(f"the scorer is not at {scorer}: set SPINIMPUTE_SHARED")
    arguments = [
        "r2",
        simulated.panel.parent,
        "--scorer",
        scorer,
        "--results",
        tmp_path / "r",
        "--threads",
        1,
    ]
    parsed = make_parser().parse_args([str(argument) for argument in arguments])
    parsed.function(parsed)
    (folder,) = (tmp_path / "r").iterdir()
    assert folder.name.endswith(f"-r2-{simulated.name}")
    configuration = json.loads((folder / "configuration.json").read_text())
    assert set(configuration["models"]) == {"spinimpute"}
    assert "## What is kept with R2 ≥ 0.3" in (folder / "report.md").read_text()
    for table in ("estimates", "cuts"):
        _, *rows = [line.split("\t") for line in (folder / f"{table}.tsv").read_text().splitlines()]
        assert {row[0] for row in rows} == {"Beagle", "Minimac4", "spinimpute"}
    estimate = {
        (row[0], row[1]): row
        for row in (line.split("\t") for line in (folder / "estimates.tsv").read_text().splitlines())
    }
    assert estimate["spinimpute", "all"][3] == "0"  # every site has an R2
    _, *sizes = [line.split("\t") for line in (folder / "sizes.tsv").read_text().splitlines()]
    assert all(int(size) > 1000 for _, size in sizes)
