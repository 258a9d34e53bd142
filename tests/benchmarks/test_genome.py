"""The benchmark of whole genomes runs from end to end on two tiny chromosomes."""

import json
import shutil
from pathlib import Path

import pytest

from benchmarks.genome.__main__ import main


def test_genome(tmp_path: Path) -> None:
    if shutil.which("bcftools") is None:
        pytest.skip("bcftools is not installed; it writes the index")
    options = ["--panel-people", "40", "--targets", "6", "--longest", "30000", "--chromosomes", "2"]
    main([*options, "--repeat", "1", "--threads", "1", "--results", str(tmp_path)])
    (folder,) = tmp_path.iterdir()
    assert folder.name.endswith("-40-6")
    result = json.loads((folder / "configuration.json").read_text())
    assert result["records_same"] is True
    assert list(result["sites"]) == ["1", "X"]
    assert str(tmp_path) not in (folder / "configuration.json").read_text()
    assert len((folder / "runs.tsv").read_text().splitlines()) == 5
    assert "The records are the same" in (folder / "report.md").read_text()
