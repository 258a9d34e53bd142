"""Kernels are compiled once: another process loads them, until what they are made of changes."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
CONSTANTS = "SCALE = 2.0\nOTHER = 3.0\n"
MODEL = '''
from constants import OTHER, SCALE
from spinimpute.kernels import kernel

@kernel(fast=True)
def scaled(x):
    """Scaled."""
    return x * SCALE

@kernel()
def plus_other(x):
    return x + OTHER

@kernel()
def both(x):
    return scaled(x) + plus_other(x)
'''
SCRIPT = """
from model import both, plus_other, scaled
for function in (both, plus_other, scaled):
    print(function(1.5), end=" ")
for function in (both, plus_other, scaled):
    if function.stats.cache_misses:
        print(function.py_func.__name__, end=" ")
    assert sum(function.stats.cache_misses.values()) + sum(function.stats.cache_hits.values()) == 1
"""


def run(script: str, cache: Path, *folders: Path) -> str:
    """What it prints, in a process of its own."""
    path = os.pathsep.join(map(str, [*folders, REPOSITORY]))
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False,
        env=os.environ | {"SPINIMPUTE_CACHE": str(cache), "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def compiled(tmp_path: Path) -> Callable[..., str]:
    """compiled(model, constants): the results of both, plus_other and scaled, and which were compiled."""
    folder = tmp_path / "modules"
    folder.mkdir()

    def run_modules(model: str = MODEL, constants: str = CONSTANTS) -> str:
        (folder / "model.py").write_text(model)
        (folder / "constants.py").write_text(constants)
        return run(SCRIPT, tmp_path / "cache", folder).strip()

    return run_modules


def test_another_process_compiles_nothing(compiled: Callable[..., str], tmp_path: Path) -> None:
    assert compiled() == "7.5 4.5 3.0 both plus_other scaled"
    files = sorted((tmp_path / "cache" / "kernels").iterdir())
    assert [path.name.partition("-")[0] for path in files] == ["both", "plus_other", "scaled"]
    assert compiled() == "7.5 4.5 3.0"
    assert sorted((tmp_path / "cache" / "kernels").iterdir()) == files
    kept_elsewhere = [path for path in tmp_path.rglob("*") if path.suffix in (".nbi", ".nbc")]
    assert kept_elsewhere == []


def test_another_process_reads_every_signature(compiled: Callable[..., str], tmp_path: Path) -> None:
    compiled()
    script = """
import numpy as np
from model import both
print(both(1.5), both(2), both(np.float32(2)), sum(both.stats.cache_misses.values()))
"""
    assert run(script, tmp_path / "cache", tmp_path / "modules").strip() == "7.5 9.0 9.0 2"
    assert run(script, tmp_path / "cache", tmp_path / "modules").strip() == "7.5 9.0 9.0 0"


@pytest.mark.parametrize("first", ["", "both(1.5)"])
def test_kernels_that_are_read_are_linked_into_those_that_are_compiled(
    compiled: Callable[..., str], tmp_path: Path, first: str
) -> None:
    compiled()
    script = f"""
from model import both, plus_other
from spinimpute.kernels import kernel
{first}

@kernel()
def twice(x):
    return both(x) + plus_other(x) + both(x)

print(twice(1.5), both(1.5), sum(both.stats.cache_misses.values()))
"""
    folder = tmp_path / "modules"
    (folder / "caller.py").write_text(script)
    assert run("import caller", tmp_path / "cache", folder).strip() == "19.5 7.5 0"
    assert run("import caller", tmp_path / "cache", folder).strip() == "19.5 7.5 0"


ARRAYS = """
import numpy as np
from spinimpute.kernels import kernel

@kernel(arrays={returns})
def itself(x):
    return x

@kernel(arrays={returns})
def perhaps(x):
    return x if len(x) > 1 else None

@kernel(arrays={calls})
def total(x):
    return itself(x).sum()

x = np.ones((2, 3))
for function in (itself, perhaps, total):
    for _ in range(2):  # what was refused is not there the second time either
        try:
            print(np.sum(function(x)))
        except Exception as error:
            print("refused" if "arrays=True" in str(error) else "elsewhere")
"""


@pytest.mark.parametrize(
    ("returns", "calls", "expected"),
    [
        (True, True, "6.0 6.0 6.0 6.0 6.0 6.0"),
        (True, False, "6.0 6.0 6.0 6.0 refused refused"),
        (False, True, "refused refused refused refused refused refused"),
    ],
)
def test_kernels_that_hand_on_arrays_have_to_count_them(
    tmp_path: Path, returns: bool, calls: bool, expected: str
) -> None:
    (tmp_path / "handing.py").write_text(ARRAYS.format(returns=returns, calls=calls))
    assert run("import handing", tmp_path / "cache", tmp_path).split() == expected.split()
    assert run("import handing", tmp_path / "cache", tmp_path).split() == expected.split()


def test_what_is_not_compiled_can_be_edited(compiled: Callable[..., str]) -> None:
    compiled()
    edited = MODEL.replace("Scaled.", "By how much: by the scale.").replace(
        "@kernel()", "\n# a comment\n@kernel()"
    )
    assert compiled(edited + "\n@kernel()\ndef another(x):\n    return x\n") == "7.5 4.5 3.0"


def test_what_has_changed_is_compiled_again(compiled: Callable[..., str]) -> None:
    compiled()
    scale = CONSTANTS.replace("2.0", "4.0")
    assert compiled(constants=scale) == "10.5 4.5 6.0 both scaled"
    assert compiled(constants=CONSTANTS + "SCALE = 4.0\n") == "10.5 4.5 6.0"
    assert compiled(MODEL.replace("x + OTHER", "x - OTHER"), scale) == "4.5 -1.5 6.0 both plus_other"
    assert compiled() == "7.5 4.5 3.0"  # those of the first version are still there


def test_a_renamed_file_is_not_run_as_another_kernel(compiled: Callable[..., str], tmp_path: Path) -> None:
    """Nor as the same kernel made of something else."""
    compiled()
    _, plus_other, scaled = sorted((tmp_path / "cache" / "kernels").iterdir())
    before = set((tmp_path / "cache" / "kernels").iterdir())
    plus_other.write_bytes(scaled.read_bytes())
    assert compiled() == "7.5 4.5 3.0 plus_other"
    assert compiled(constants=CONSTANTS.replace("3.0", "5.0")) == "9.5 6.5 3.0 both plus_other"
    added = set((tmp_path / "cache" / "kernels").iterdir()) - before
    [newer] = [path for path in added if path.name.startswith("plus_other-")]
    newer.write_bytes(plus_other.read_bytes())
    assert compiled(constants=CONSTANTS.replace("3.0", "5.0")) == "9.5 6.5 3.0 plus_other"


@pytest.mark.parametrize(
    ("switch", "value"),
    [
        ("NUMBA_OPT", "1"),
        ("NUMBA_BOUNDSCHECK", "1"),
        ("NUMBA_LOOP_VECTORIZE", "0"),
        ("NUMBA_SLP_VECTORIZE", "1"),
        ("NUMBA_DEBUGINFO", "1"),
        ("NUMBA_ENABLE_AVX", "0"),
        ("NUMBA_CPU_NAME", "generic"),
    ],
)
def test_switches_of_numba_have_kernels_of_their_own(
    compiled: Callable[..., str], monkeypatch: pytest.MonkeyPatch, switch: str, value: str
) -> None:
    monkeypatch.delenv(switch, raising=False)
    compiled()
    monkeypatch.setenv(switch, value)
    assert compiled() == "7.5 4.5 3.0 both plus_other scaled"
    monkeypatch.delenv(switch)
    assert compiled() == "7.5 4.5 3.0"


def test_damaged_files_are_compiled_again(compiled: Callable[..., str], tmp_path: Path) -> None:
    compiled()
    for path in (tmp_path / "cache" / "kernels").iterdir():
        path.write_bytes(path.read_bytes()[:-100])
    assert compiled() == "7.5 4.5 3.0 both plus_other scaled"
    assert compiled() == "7.5 4.5 3.0"


def test_processes_that_compile_at_the_same_time(compiled: Callable[..., str], tmp_path: Path) -> None:
    cache = tmp_path / "another"
    compiled()
    path = os.pathsep.join([str(tmp_path / "modules"), str(REPOSITORY)])
    environment = os.environ | {"SPINIMPUTE_CACHE": str(cache), "PYTHONPATH": path}
    command = [sys.executable, "-c", SCRIPT]
    started = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(3)
    ]
    results = [process.communicate()[0] for process in started]
    assert all(result.startswith("7.5 4.5 3.0 ") for result in results), results
    assert run(SCRIPT, cache, tmp_path / "modules").strip() == "7.5 4.5 3.0"
    assert len(list((cache / "kernels").iterdir())) == 3


def test_what_is_compiled_runs_without_the_compiler(tmp_path: Path) -> None:
    """A new process loads kernels, makes arrays inside them, and then still can compile."""
    script = """
import sys
import numpy as np
from spinimpute.quality.site_quality import site_quality
from spinimpute.vcf.text import _write_columns
from spinimpute.predictors.haplotype_attention.copying import hash_rows
p = np.linspace(0, 1, 12, dtype=np.float32).reshape(3, 4)
found = site_quality(p)["AF"].tolist()
print(len(found), "numba.np.linalg" in sys.modules)
from numba import njit
print(njit(lambda x: np.sort(x)[::-1].copy())(np.array([1.0, 3.0, 2.0])).tolist())
"""
    runs = [run(script, tmp_path / "cache") for _ in range(2)]
    assert runs[1].splitlines() == ["3 False", "[3.0, 2.0, 1.0]"]


@pytest.mark.parametrize("place", ["a full disk", "a folder that others write to", "a file in the way"])
def test_where_nothing_can_be_kept_it_is_compiled_anew(
    small_disk: Callable[[int], Any], tmp_path: Path, place: str
) -> None:
    cache = small_disk(4).folder / "cache" if place == "a full disk" else tmp_path / "cache"
    if place == "a folder that others write to":
        (cache / "kernels").mkdir(parents=True)
        (cache / "kernels").chmod(0o777)
    if place == "a file in the way":
        cache.write_text("")
    script = """
import numpy as np
from spinimpute.predictors.haplotype_attention.layers import add_products
x = np.eye(16, dtype=np.float32)
add_products(x, x, 16, out := np.zeros((16, 16), np.float32), False)
print((out == x).all())
"""
    for _ in range(2):
        assert run(script, cache) == "True\n"
    assert [path for path in tmp_path.rglob("*") if path.name.startswith("add_products")] == []
