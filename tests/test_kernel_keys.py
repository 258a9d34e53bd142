"""The key of a kernel changes with what numba compiles into it, and with nothing else."""

import dis
import importlib
import itertools
import math
import sys
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from spinimpute.compilation import signatures
from spinimpute.kernel_keys import kernel_key
from spinimpute.kernels import kernel

CONSTANTS = """
SCALE = 2.0
OTHER = 3.0
"""
HELPERS = """
from constants import OTHER
from spinimpute.kernels import kernel

@kernel()
def add_other(x):
    return x + OTHER
"""
MODEL = '''
import math
import numpy as np
from constants import SCALE
from helpers import add_other
from spinimpute.kernels import kernel

TABLE = np.array([1.0, 2.0])

@kernel()
def scaled(x):
    """Scaled."""
    return x * SCALE

@kernel()
def called(x):
    return add_other(x) * 2

@kernel()
def calls_by_two(x):
    return called(x) - 1

@kernel()
def alone(x, n=3):
    if x < 0:
        return None
    return math.floor(x) + np.float32(n) + TABLE[0]
'''
ALL = {"scaled", "called", "calls_by_two", "alone", "add_other"}


@pytest.fixture
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, str]]:
    """keys(model=..., ...): of the kernels in these modules, in place of the ones above."""
    numbers = itertools.count()

    def of_modules(**changed: str) -> dict[str, str]:
        folder = tmp_path / str(
            next(numbers)
        )  # Python may take a file that was written just now for the last
        folder.mkdir()
        modules = {"constants": CONSTANTS, "helpers": HELPERS, "model": MODEL, **changed}
        for name, source in modules.items():
            (folder / f"{name}.py").write_text(source)
            sys.modules.pop(name, None)
        with monkeypatch.context() as patch:
            patch.syspath_prepend(folder)
            model, helpers = importlib.import_module("model"), importlib.import_module("helpers")
        for name in modules:
            del sys.modules[name]
        found = {**vars(helpers), **vars(model)}
        return {name: kernel_key(found[name]) for name in ALL}

    return of_modules


def changed(before: dict[str, str], after: dict[str, str]) -> set[str]:
    return {name for name in before if before[name] != after[name]}


def test_each_kernel_has_its_own_key_which_stays(keys: Callable[..., dict[str, str]]) -> None:
    before = keys()
    assert len(set(before.values())) == len(ALL)
    assert changed(before, keys()) == set()


@pytest.mark.parametrize(
    "edit",
    [
        ('    """Scaled."""', '    """By how much:\n\n    by the scale.\n    """'),
        ('    """Scaled."""\n', ""),
        ("def called(x):\n", 'def called(x):\n    """It is called."""\n'),
        ("def alone(x, n=3):\n", 'def alone(x, n=3):\n    """With a constant None in it."""\n'),
        ("    return x * SCALE", "    # scaled\n\n    return (\n        x * SCALE\n    )"),
        ("@kernel()\ndef alone", "def another(x):\n    return x\n\n@kernel()\ndef alone"),
        ("TABLE =", "UNUSED = 3\nTABLE ="),
    ],
    ids=[
        "docstring",
        "docstring removed",
        "added",
        "added to None",
        "comment",
        "other function",
        "other constant",
    ],
)
def test_what_is_not_compiled_changes_no_key(
    keys: Callable[..., dict[str, str]], edit: tuple[str, str]
) -> None:
    assert edit[0] in MODEL
    assert changed(keys(), keys(model=MODEL.replace(*edit))) == set()


@pytest.mark.parametrize(
    ("edit", "whose"),
    [
        (("x * SCALE", "x + SCALE"), {"scaled"}),
        (("add_other(x) * 2", "add_other(x) * 3"), {"called", "calls_by_two"}),
        (("TABLE[0]", "TABLE[1]"), {"alone"}),
        (("np.array([1.0, 2.0])", "np.array([1.0, 2.5])"), {"alone"}),
        (("n=3", "n=4"), {"alone"}),
        (("math.floor", "math.ceil"), {"alone"}),
        (("np.float32(n)", "np.float64(n)"), {"alone"}),
        (("@kernel()\ndef called", "@kernel(fast=True)\ndef called"), {"called", "calls_by_two"}),
        (("@kernel()\ndef called", "@kernel(inline=True)\ndef called"), {"called", "calls_by_two"}),
    ],
    ids=lambda value: value[1].replace("\n", " ") if isinstance(value, tuple) else "",
)
def test_a_changed_kernel_changes_its_key_and_its_callers(
    keys: Callable[..., dict[str, str]], edit: tuple[str, str], whose: set[str]
) -> None:
    assert edit[0] in MODEL
    assert changed(keys(), keys(model=MODEL.replace(*edit))) == whose


def test_a_constant_of_another_module_changes_exactly_its_readers(
    keys: Callable[..., dict[str, str]],
) -> None:
    before = keys()
    scale = keys(constants=CONSTANTS.replace("2.0", "2.5"))
    assert changed(before, scale) == {"scaled"}
    other = keys(constants=CONSTANTS.replace("3.0", "3"))  # as an integer
    assert changed(before, other) == {"add_other", "called", "calls_by_two"}
    helper = keys(helpers=HELPERS.replace("x + OTHER", "OTHER + x"))
    assert changed(before, helper) == {"add_other", "called", "calls_by_two"}


def reads_constant() -> Any:
    return CONSTANT  # type: ignore[name-defined]  # noqa: F821


def key_with(value: object) -> str:
    """Of a kernel that reads a global constant."""
    return kernel_key(kernel()(FunctionType(reads_constant.__code__, {"CONSTANT": value}, "reads_constant")))


numbers = st.one_of(
    st.booleans(),
    st.integers(),
    st.floats(),
    st.integers(-(2**31), 2**31 - 1).map(np.int32),
    st.floats(width=32).map(np.float32),
    st.floats().map(np.float64),
)
constants = st.one_of(
    numbers,
    st.text(),
    st.none(),
    st.tuples(numbers),
    st.tuples(numbers, numbers),
    st.tuples(st.tuples(numbers)),
)


def same(x: object, y: object) -> bool:
    """Whether numba compiles the same for both."""
    if type(x) is not type(y):
        return False
    if isinstance(x, tuple) and isinstance(y, tuple):
        return len(x) == len(y) and all(map(same, x, y))
    if isinstance(x, (float, np.floating)) and isinstance(y, (float, np.floating)):
        return (math.isnan(x) and math.isnan(y)) or (x == y and math.copysign(1, x) == math.copysign(1, y))
    return bool(x == y)


@settings(deadline=None)
@given(constants, constants)
def test_two_constants_have_two_keys(x: object, y: object) -> None:
    assume(not same(x, y))
    assert key_with(x) != key_with(y)


@settings(deadline=None)
@given(constants)
def test_one_constant_has_one_key(x: object) -> None:
    assert key_with(x) == key_with(x)


@pytest.mark.parametrize("equal", [(0, 0.0, False, -0.0, np.float32(0)), (1, True, np.int8(1), (1,), "1")])
def test_equal_numbers_of_different_types_have_different_keys(equal: tuple[object, ...]) -> None:
    assert len(set(map(key_with, equal))) == len(equal)


def test_intrinsics_made_by_one_function_differ_by_their_closure() -> None:
    from spinimpute.genotypes.bit_rows import bits_set, trailing_zeros

    assert key_with(bits_set) != key_with(trailing_zeros)


def test_kernels_may_call_themselves_and_each_other() -> None:
    def two_that_call_each_other(step: int) -> tuple[str, str]:
        names: dict[str, Any] = {}
        exec(  # the functions are the globals of one another
            "def even(n):\n    return n == 0 or odd(n - 1)\n"
            f"def odd(n):\n    return n != 0 and even(n - {step})",
            names,
        )
        names["even"], names["odd"] = kernel()(names["even"]), kernel()(names["odd"])
        return kernel_key(names["even"]), kernel_key(names["odd"])

    (even, odd), (other_even, other_odd) = two_that_call_each_other(1), two_that_call_each_other(3)
    assert len({even, odd, other_even, other_odd}) == 4
    assert two_that_call_each_other(1) == (even, odd)


@pytest.mark.parametrize(
    "value", [object(), [1], reads_constant, pytest], ids=["object", "list", "function", "module"]
)
def test_what_has_no_description_is_refused(value: object) -> None:
    with pytest.raises(TypeError, match="reads_constant, global CONSTANT"):
        key_with(value)


def test_every_kernel_of_the_package_has_a_key_of_all_that_it_reads() -> None:
    for line in signatures():
        importlib.import_module(line.partition("(")[0].rpartition(".")[0])
    found = {
        id(value): value
        for name, module in list(sys.modules.items())
        if name.startswith("spinimpute")
        for value in vars(module).values()
        if hasattr(value, "py_func")
    }
    assert len(found) > 50
    for one in found.values():
        read = {i.argval for i in dis.get_instructions(one.py_func) if i.opname.startswith("LOAD_GLOBAL")}
        key = kernel_key(one)
        assert len(key) == 64
        for name in read & set(one.py_func.__globals__):
            with pytest.MonkeyPatch.context() as patch:
                patch.setitem(one.py_func.__globals__, name, "another value")
                assert kernel_key(one) != key, (one, name)
