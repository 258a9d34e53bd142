"""Kernels are compiled once for each version of the sources; another process loads them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from spinimpute.runtime import kernels

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).resolve().parents[2]
MODEL = """
from spinimpute.constants import OTHER, SCALE
from spinimpute.runtime.kernels import kernel

@kernel(fast=True)
def scaled(x):
    return x * SCALE

@kernel()
def both(x):
    return scaled(x) + x + OTHER
"""
SCRIPT = """
from numba import config
from spinimpute.model import both
print(both(1.5), sum(both.stats.cache_misses.values()), config.CACHE_DIR)
"""


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., str]:
    """run(constants, **variables): what SCRIPT prints, with a small package of these constants."""
    package = tmp_path / "sources" / "spinimpute"
    (package / "runtime").mkdir(parents=True)
    for name in ("kernels.py", "progress.py"):
        shutil.copy2(REPOSITORY / "spinimpute" / "runtime" / name, package / "runtime")
    (package / "__init__.py").touch()
    (package / "runtime" / "__init__.py").touch()
    (package / "model.py").write_text(MODEL)

    def run_script(constants: str = "SCALE, OTHER = 2.0, 3.0", **variables: str) -> str:
        path = package / "constants.py"
        if not path.is_file() or path.read_text() != constants:
            path.write_text(constants)
        usual = {"SPINIMPUTE_CACHE": str(tmp_path / "cache"), "PYTHONPATH": str(package.parent)}
        environment = os.environ | usual | {"PYTHONDONTWRITEBYTECODE": "1"} | variables
        done = subprocess.run(
            [sys.executable, "-P", "-c", SCRIPT], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    return run_script


def test_another_process_compiles_nothing(run, tmp_path):
    assert run() == "7.5 1"
    assert run() == "7.5 0"
    compiled = list(tmp_path.rglob("*.nb?"))
    assert compiled
    assert all(tmp_path / "cache" / "kernels" in path.parents for path in compiled)


def test_a_changed_constant_is_compiled_again(run):
    """Numba alone would not see that: the constant is imported by the kernel's module."""
    assert run() == "7.5 1"
    assert run("SCALE, OTHER = 4.0, 30.0") == "37.5 1"


def test_the_cache_of_other_programs_stays_where_it_is(run, tmp_path):
    other = tmp_path / "numba"
    assert run(NUMBA_CACHE_DIR=str(other)) == f"7.5 1 {other}"
    assert not other.exists()


def test_processes_that_compile_at_the_same_time(run, tmp_path):
    from concurrent.futures import ThreadPoolExecutor

    run(SPINIMPUTE_CACHE=str(tmp_path / "elsewhere"))
    with ThreadPoolExecutor(3) as pool:
        results = [future.result() for future in [pool.submit(run) for _ in range(3)]]
    assert all(result.startswith("7.5") for result in results)
    assert run() == "7.5 0"


@pytest.mark.parametrize("place", ["a full disk", "a folder that others write to", "a file in the way"])
def test_where_nothing_can_be_kept_kernels_are_compiled_each_time(run, small_disk, tmp_path, place):
    cache = tmp_path / "other"
    if place == "a full disk":
        cache = small_disk(100).folder
    elif place == "a file in the way":
        cache.touch()
    else:
        (cache / "kernels").mkdir(parents=True)
        (cache / "kernels").chmod(0o777)
    for _ in range(2):
        assert run(SPINIMPUTE_CACHE=str(cache)) == "7.5 1"
    assert list(tmp_path.rglob("*.nb?")) == []


def test_folders_of_unused_versions_are_removed(run, tmp_path):
    """Nothing else is removed: SPINIMPUTE_CACHE may name a folder with other files."""
    run()
    kept, other = tmp_path / "cache" / "kernels", tmp_path / "cache" / "other"
    (folder,) = kept.iterdir()
    days_unused = {
        folder: 2,
        kept / "old": kernels.MAX_UNUSED_DAYS + 1,
        kept / "new": kernels.MAX_UNUSED_DAYS - 1,
    }
    days_unused[other] = 2 * kernels.MAX_UNUSED_DAYS
    for path, days in days_unused.items():
        path.mkdir(exist_ok=True)
        then = time.time() - days * 24 * 3600
        os.utime(path, (then, then))
    run()
    assert set(kept.iterdir()) == {folder, kept / "new"}
    assert other.is_dir()


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"XDG_CACHE_HOME": "/scratch/cache"}, "/scratch/cache/spinimpute"),
        ({"XDG_CACHE_HOME": "cache"}, "/home/someone/.cache/spinimpute"),
        ({"XDG_CACHE_HOME": "/scratch", "SPINIMPUTE_CACHE": "/mine"}, "/mine"),
        ({"SPINIMPUTE_CACHE": ""}, "/home/someone/.cache/spinimpute"),
    ],
)
def test_the_users_cache(monkeypatch, variables, expected):
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(kernels, "_is_usable", lambda _: True)
    monkeypatch.setenv("HOME", "/home/someone")
    for name in ("SPINIMPUTE_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert str(kernels.cache_folder.__wrapped__()) == f"{expected}/kernels"


def test_a_user_without_a_home_folder(monkeypatch, tmp_path):
    """The name of a home folder that is not known stays "~": no folder of this name is made."""
    announced = []
    monkeypatch.setattr(kernels, "announce", announced.append)
    monkeypatch.setattr(kernels.os.path, "expanduser", lambda path: path)
    monkeypatch.chdir(tmp_path)
    for name in ("SPINIMPUTE_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    assert kernels.cache_folder.__wrapped__() is None
    assert "SPINIMPUTE_CACHE chooses another folder" in announced[0]
    assert not list(tmp_path.iterdir())
