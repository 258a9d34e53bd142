"""The count of functions that a run enters."""

import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]


def test_the_functions_of_a_run_are_counted(tmp_path: Path) -> None:
    out = tmp_path / "imputed.vcf"
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.path", "--out", out, "--names"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert out.is_file()
    first, *rooms = done.stdout.splitlines()
    assert " functions in " in first
    assert "spinimpute/pipeline/impute.py" in done.stdout
    counts = [int(line.split()[0]) for line in rooms if line[:5].strip().isdigit()]
    assert sum(counts) == int(first.split()[0])
