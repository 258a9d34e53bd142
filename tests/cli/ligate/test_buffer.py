"""`impute --region --buffer`: what a chunk uses, and what its header says."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]


def test_only_sites_nearby_are_used(run: Run, unphased: Path, panel: Path, tmp_path: Path) -> None:
    common = ("impute", "--vcf", unphased, "--panel", panel, "--region", "20:400000-600000")
    counts = []
    for buffer in ("0.1", "10"):
        out = tmp_path / f"{buffer}.vcf"
        done = run(*common, "--buffer", buffer, "--out", out)
        assert done.code == 0, done.err
        (used,) = re.findall(r"(\d+) of them lie in the region and its buffer", done.err)
        (phased,) = re.findall(r"phased:   (\d+) unphased", done.err)
        counts.append((int(used), int(phased)))
        assert f"--buffer {float(buffer)}" in out.read_text()
    assert counts[0][0] < counts[1][0] == 246
    assert counts[0][1] < counts[1][1]
    done = run(*common, "--out", tmp_path / "all.vcf")
    records = [
        [line for line in (tmp_path / name).read_text().splitlines() if line[0] != "#"]
        for name in ("10.vcf", "all.vcf")
    ]
    assert records[0] == records[1]


def test_region_in_the_header(made: Path, opened: Any, content: Any) -> None:
    lines = [line for line in content(made / "a1.vcf").decode().splitlines() if "spinimpute_region" in line]
    n_sites = int(((opened.position >= 300001) & (opened.position <= 712345)).sum())
    assert lines == [f"##spinimpute_region=20:300001-712345 sites={n_sites}"]
    assert b"spinimpute_region" not in content(made / "whole.vcf")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--buffer", "1"], "give --region"),
        (["--buffer", "-1", "--region", "20:1-9000"], "at least 0 cM"),
        (["--buffer", "nan", "--region", "20:1-9000"], "at least 0 cM"),
        (
            ["--buffer", "0", "--region", "20:259-259"],
            "no typed site lies within 0 cM",
        ),
    ],
)
def test_refusals(
    run: Run, example: Path, panel: Path, tmp_path: Path, options: list[str], said: str
) -> None:
    vcf = example / "target.vcf.gz"
    failed = run("impute", "--vcf", vcf, "--panel", panel, "--out", tmp_path / "o.vcf", *options)
    assert failed.code == 2
    assert said in failed.err
    assert not list(tmp_path.iterdir())
