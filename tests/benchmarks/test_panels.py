"""The benchmark of panel files runs from end to end on a tiny panel."""

import json
import shutil
from pathlib import Path

import pytest

from benchmarks.panels.__main__ import main


def test_panels(tmp_path: Path) -> None:
    if shutil.which("bcftools") is None:
        pytest.skip("bcftools is not installed; it writes the index")
    results, kept = tmp_path / "results", tmp_path / "kept"
    options = ["--haplotypes", "300", "--length", "20000", "--threads", "1,2"]
    for _ in range(2):  # the second time it takes what was simulated
        main([*options, "--keep", str(kept), "--results", str(results)])
    (folder,) = results.iterdir()
    assert folder.name.endswith("-300-20000")
    result = json.loads((folder / "result.json").read_text())
    assert result["bytes"]["they as bits"] == result["sites"] * 38
    assert 0 < result["bytes"]["its haplotypes"] < result["bytes"]["they as bits"]
    assert [build["threads"] for build in result["build"]] == [1, 2]
    assert min(build["peak_mb"] for build in result["build"]) > 10
    assert str(tmp_path) not in (folder / "configuration.json").read_text()
    assert "## Reading" in (folder / "report.md").read_text()
