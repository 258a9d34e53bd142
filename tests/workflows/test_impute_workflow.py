"""The Snakemake workflow imputes the example."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import cyvcf2
import pytest

REPOSITORY = Path(__file__).resolve().parents[2]


def test_the_example(tmp_path: Path) -> None:
    snakemake = shutil.which("snakemake")
    if snakemake is None:
        pytest.skip("snakemake is not installed: pip install 'spinimpute[workflow]'")
    shutil.copytree(REPOSITORY / "data" / "example", tmp_path / "data" / "example")
    snakefile = REPOSITORY / "workflows" / "impute" / "Snakefile"
    # the jobs need the spinimpute command of this interpreter
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [snakemake, "--snakefile", str(snakefile), "--cores", "2", "--directory", str(tmp_path)],
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    records = list(cyvcf2.VCF(str(tmp_path / "imputed" / "20.vcf.gz")))
    assert len(records) == 4453
    assert (tmp_path / "imputed" / "20.vcf.gz.tbi").exists()
