"""Compiled functions are kept on disk for one version of the package only."""

import uuid

import numpy as np
import pytest

from spinimpute import kernels
from spinimpute.imputation.layers import add_products, dense_relu


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
