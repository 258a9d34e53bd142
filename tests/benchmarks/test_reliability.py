"""A short run of the fuzzer over all forms of input, and its judgement of how commands end."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).resolve().parents[2]

pytest.importorskip("pgenlib", reason="pgenlib is not installed (extra: plink)")
pytest.importorskip("bgen", reason="bgen is not installed")
pytest.importorskip("pyarrow", reason="pyarrow is not installed")

from benchmarks.reliability.damage import damaged_bytes, damaged_text  # noqa: E402
from benchmarks.reliability.forks import Ended, Limits  # noqa: E402
from benchmarks.reliability.forms import FORMS  # noqa: E402
from benchmarks.reliability.kills import Tally  # noqa: E402
from benchmarks.reliability.kills import report as report_of_kills  # noqa: E402
from benchmarks.reliability.verdict import COMPLETE, FAILED, REFUSED, judge  # noqa: E402

CASES = 4  # of each form
SEED = 20


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What became of the cases; the fuzzer has a process of its own, which nothing else has filled."""
    folder = tmp_path_factory.mktemp("fuzzed")
    words = ["fuzz", "--mutations", str(CASES * len(FORMS)), "--seed", str(SEED), "--results", str(folder)]
    command = [sys.executable, "-m", "benchmarks.reliability", *words]
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(
        command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=400
    )
    assert done.returncode == 0, done.stderr
    (made,) = folder.iterdir()
    files = {path.name for path in made.iterdir()}
    assert files == {"configuration.json", "failures.tsv", "report.md", "state.json"}
    state: dict[str, Any] = json.loads((made / "state.json").read_text())
    return state


@pytest.mark.parametrize("form", FORMS)
def test_damaged_inputs(fuzzed: dict[str, Any], form: str) -> None:
    counts = fuzzed["forms"][form]
    assert counts[COMPLETE] + counts[REFUSED] + counts[FAILED] == CASES
    assert fuzzed["failures"][form] == []


def ended(status: int = 0, err: str = "", out: str = "", fault: str = "", seconds: float = 0.1) -> Ended:
    return Ended(status, out, err, fault, seconds, 0)


TRACEBACK = """Traceback (most recent call last):
  File "/somewhere/cli/main.py", line 120, in main
    status = spinimpute(arguments)
  File "/somewhere/spinimpute/panels/panel.py", line 7, in sites
    return decode(3)
  File "/elsewhere/numpy/core.py", line 1, in decode
ValueError: no
"""
FAULT = """Fatal Python error: Segmentation fault

Current thread 0x00007f (most recent call first):
  File "/somewhere/cyvcf2/x.py", line 3 in f
  File "/somewhere/spinimpute/vcf/variant_file.py", line 169 in alleles
  File "/somewhere/spinimpute/vcf/reader.py", line 3 in read
"""


@pytest.mark.parametrize(
    ("how", "left", "kind", "group"),
    [
        (ended(), [], COMPLETE, ""),
        (ended(err="spinimpute: warning: no map\n"), [], COMPLETE, ""),
        (ended(2, "spinimpute: warning: x\nspinimpute: error: y\n"), [], REFUSED, ""),
        (ended(2, "Usage: spinimpute [OPTIONS]\n\nError: No such option: --x\n"), [], REFUSED, ""),
        (ended(2, "Error: y\n"), ["out/.o.vcf.0123abcd.part"], FAILED, "exit 2, left: .o.vcf.#.part"),
        (ended(2, "spinimpute: error: y\nand z\n"), [], FAILED, "message of several lines"),
        (ended(2, "spinimpute: error: y\nspinimpute: error: z\n"), [], FAILED, "exit 2 with 2 messages"),
        (ended(2), [], FAILED, "exit 2 with 0 messages: nothing said"),
        (ended(2, "spinimpute: error: \x1b[31m 7\n"), [], FAILED, "control characters: spinimpute: error: ?"),
        (ended(0, out="made: \x07\n"), [], FAILED, "control characters"),
        (ended(1, TRACEBACK), [], FAILED, "ValueError: spinimpute/panels/panel.py:7 sites"),
        (ended(-11, fault=FAULT), [], FAILED, "SIGSEGV: spinimpute/vcf/variant_file.py:169 alleles"),
        (ended(143, "spinimpute: terminated\n"), [], FAILED, "exit 143"),
        (ended(seconds=99.0), [], FAILED, "more than 15 s"),
    ],
)  # fmt: skip
def test_verdicts(how: Ended, left: list[str], kind: str, group: str) -> None:
    verdict = judge(how, left, Limits())
    assert verdict.kind == kind
    assert verdict.group.startswith(group)
    assert bool(verdict.group) == (kind == FAILED)
    too_much = judge(Ended(2, "", "spinimpute: error: y\n", "", 0.1, Limits().memory + 1), [], Limits())
    assert too_much.group.startswith("more than 1024 MiB")


@pytest.mark.parametrize("damage", [damaged_bytes, damaged_text])
@pytest.mark.parametrize("content", [b"", b"\n", b"x", b"#a\tb\n20\t1\tA,C;D=2\n" * 9])
def test_damage_follows_from_the_seed(damage: Any, content: bytes) -> None:
    results, again = ([damage(content, random.Random(seed)) for seed in range(300)] for _ in range(2))
    assert results == again
    assert len(set(results)) > 100 or len(content) < 9


def test_a_report_of_kills() -> None:
    tally = Tally(kills=7, too_late=1)
    tally.found["traceback after SIGTERM"] += 2
    text = report_of_kills({"impute": tally, "ligate": Tally(3)})
    assert "| impute | 7 | 1 | 2 × traceback after SIGTERM |" in text
    assert "| ligate | 3 | 0 | nothing |" in text
