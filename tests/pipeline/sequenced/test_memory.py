"""A budget of memory is kept by fewer threads, or refused with what is needed."""

import re
import subprocess
import sys

import pytest

from spinimpute.phasing import memory
from spinimpute.phasing.memory import (
    COMPILED_CHAINS,
    LIKELIHOODS,
    ChainSizes,
    chain_memory,
    chain_threads,
    large_panel_memory,
)
from spinimpute.runtime.errors import InputError
from tests.conftest import NEEDS_PROC
from tests.pipeline.sequenced.outputs import without_header

pytestmark = pytest.mark.slow

# as a process of its own: what it holds, at most, is its own
MEASURED = """
import sys
from spinimpute.cli.main import run_command
status = run_command()
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
sys.exit(status)
"""


def test_fewer_threads_where_memory_is_little(monkeypatch):
    monkeypatch.setattr(memory, "resident_bytes", lambda: 10**8)
    sizes = ChainSizes(haplotypes=5_000, sites=20_000, samples=40)
    held = 10**8 + COMPILED_CHAINS + LIKELIHOODS * 30_000 * 40
    needed = [round(held + chain_memory(sizes, threads)) for threads in (1, 2, 3)]
    assert needed[0] < needed[1] < needed[2]
    assert chain_threads(None, sizes, 30_000, 16) == 16
    assert chain_threads(10**12, sizes, 30_000, 16) == 5  # eight samples side by side
    assert chain_threads(needed[2], sizes, 30_000, 16) == 3
    assert chain_threads(needed[2] - 1, sizes, 30_000, 16) == 2
    assert chain_threads(needed[0], sizes, 30_000, 1) == 1
    assert chain_threads(needed[2], sizes._replace(bases=30_000), 30_000, 16) == 2  # of reads that span sites
    with pytest.raises(InputError, match=r"to impute 40 samples at 30000 sites .*MB are needed with one thr"):
        chain_threads(needed[0] - 1, sizes, 30_000, 16)


def test_the_budget_of_large_panels(monkeypatch):
    monkeypatch.setattr(memory, "resident_bytes", lambda: 10**8)
    sizes = ChainSizes(200_000, 20_000, 5, common=2_000, minor_alleles=10**6)
    held = 10**8 + COMPILED_CHAINS + LIKELIHOODS * 30_000 * 5
    needed = [1 + int(held + large_panel_memory(sizes, threads)) for threads in (1, 2, 3)]
    assert needed[0] < needed[1] < needed[2]
    assert chain_threads(10**12, sizes, 30_000, 16) == 5  # one sample after the other
    assert chain_threads(needed[1], sizes, 30_000, 16) == 2
    assert chain_threads(needed[1], sizes._replace(common=2_100), 30_000, 16) == 1
    assert chain_threads(needed[1], sizes._replace(minor_alleles=11 * 10**5), 30_000, 16) == 1
    with pytest.raises(InputError, match=r"to impute 5 samples at 30000 sites .*MB are needed with one thr"):
        chain_threads(needed[0] - 2, sizes, 30_000, 16)


@NEEDS_PROC
def test_a_budget_is_kept(world, gl, tmp_path):
    """What is too little is said: for reading, then for imputing; with that it works, and takes no more."""
    out = tmp_path / "o.vcf"

    def impute(budget_MB: int) -> tuple[str, float]:
        done = subprocess.run(
            [
                sys.executable, "-c", MEASURED, "impute", "--gl", gl, "--panel", world.panel, "--out", out,
                "--threads", "4", "--max-memory", f"{budget_MB}M", "--quiet",
            ],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == (2 if done.stderr else 0)
        return done.stderr, int(done.stdout) / 1024

    def needed(said: str) -> int:
        found = re.search(r"([0-9]+) MB are needed", said)
        assert found is not None, said
        return int(found[1])

    while_reading, _ = impute(30)
    assert "30 MB of memory are too little" in while_reading
    assert "for reading the samples. Give more, or impute fewer samples at a time" in while_reading
    before_imputing, _ = impute(needed(while_reading) + 10)
    assert "too little to impute 6 samples at 400 sites from a panel of 80 haplotypes" in before_imputing
    assert not list(tmp_path.iterdir())
    said, taken_MB = impute(needed(before_imputing))
    assert said == ""
    assert taken_MB <= needed(before_imputing)
    assert len(without_header(out)) == 1 + len(world.position)
