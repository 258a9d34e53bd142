"""Compiled functions are kept on disk for one version of the package only."""

import os
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spinimpute import kernels
from spinimpute.predictors.haplotype_attention.layers import add_products, dense_relu

REPOSITORY = Path(__file__).resolve().parent.parent


def cached(function: object) -> tuple[int, int]:
    """Functions loaded from the disk, and functions compiled."""
    stats = function.stats  # type: ignore[attr-defined]
    return sum(stats.cache_hits.values()), sum(stats.cache_misses.values())


def again() -> object:
    """The same function as a new process would see it."""
    return kernels.kernel(fast=True)(add_products.py_func)


def test_a_changed_package_compiles_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.eye(4, dtype=np.float32)
    first = again()
    first(x, x, 4, np.zeros((4, 4), np.float32))  # type: ignore[operator]
    second = again()
    second(x, x, 4, np.zeros((4, 4), np.float32))  # type: ignore[operator]
    assert cached(second) == (1, 0)
    version = uuid.uuid4().hex
    monkeypatch.setattr(kernels, "source_hash", lambda: version)
    announced = []
    kernels.announce_compilation(lambda: announced.append(1))
    third = again()
    third(x, x, 4, np.zeros((4, 4), np.float32))  # type: ignore[operator]
    assert cached(third) == (0, 1)
    fourth = kernels.kernel(fast=True)(dense_relu.py_func)
    fourth(x, x[0], x, 4, np.zeros((4, 4), np.float32))
    assert cached(fourth) == (0, 1)
    assert announced == [1]


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
    runs = [
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=REPOSITORY)
        for _ in range(2)
    ]
    assert [run.returncode for run in runs] == [0, 0], runs[-1].stderr
    assert runs[1].stdout.splitlines() == ["3 False", "[3.0, 2.0, 1.0]"]


def test_where_nothing_can_be_kept_it_is_compiled_anew(small_disk: Callable[[int], Any]) -> None:
    disk = small_disk(4).folder
    script = """
import numpy as np
from spinimpute.predictors.haplotype_attention.layers import add_products
x = np.eye(4, dtype=np.float32)
add_products(x, x, 4, out := np.zeros((4, 4), np.float32))
print((out == x).all())
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=REPOSITORY, check=False,
        env=os.environ | {"NUMBA_CACHE_DIR": str(disk)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == "True\n"
