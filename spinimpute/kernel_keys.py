"""What a kernel is made of, as a digest: compiled forms of kernels with the same one can be exchanged.

It covers the kernel's bytecode with the values of its constants, the globals and the closure that it reads,
how it is compiled, and the kernels and intrinsics that it calls, in any depth: all that numba compiles into
it. Docstrings, comments and the places of lines change nothing.
"""

from __future__ import annotations

import builtins
import dis
import hashlib
from types import BuiltinFunctionType, CodeType, EllipsisType, FunctionType, ModuleType, NoneType
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

# what they have is known by their versions, so that their names are enough
_OTHER_PACKAGES = ("builtins", "llvmlite", "math", "numba", "numpy")
# with a repr that no other value of the type has
_LITERALS = (bool, bytes, complex, float, int, str, slice, EllipsisType, NoneType, np.dtype, np.generic)
_READS_CONSTANT = frozenset(dis.hasconst)
_READS_GLOBAL = dis.opmap["LOAD_GLOBAL"]
_READS = _READS_CONSTANT | {_READS_GLOBAL, dis.EXTENDED_ARG}


def kernel_key(kernel: Any) -> str:
    """Digest of all that a kernel of numba is made of.

    Raises
    ------
    TypeError
        The kernel reads a global whose value has no description here.
    """
    return _key(kernel, ())


def code_digest(*functions: FunctionType) -> str:
    """Digest of functions that generate code, with all that they read and call.

    Numba's operators for a new type are found by the type alone: its name has to say what they generate.

    Raises
    ------
    TypeError
        A function reads a global whose value has no description here.
    """
    text = repr([_called_text(function, ()) for function in functions])
    return hashlib.sha256(text.encode()).hexdigest()


def _key(kernel: Any, callers: tuple[Any, ...]) -> str:
    if kernel in callers:
        return f"caller {callers.index(kernel)}"
    callers = (*callers, kernel)
    if hasattr(kernel, "py_func"):
        options = _value_text(tuple(sorted(kernel.targetoptions.items())), "options", callers)
        text = f"kernel {options} {_function_text(kernel.py_func, callers)}"
    else:
        text = f"intrinsic {_function_text(kernel.__wrapped__, callers)}"
    return hashlib.sha256(text.encode()).hexdigest()


def _called_text(function: FunctionType, callers: tuple[Any, ...]) -> str:
    if function in callers:
        return f"the caller {callers.index(function)}"
    return f"function {_function_text(function, (*callers, function))}"


def _function_text(function: FunctionType, callers: tuple[Any, ...]) -> str:
    name = f"{function.__module__}.{function.__qualname__}"
    closure = [cell.cell_contents for cell in function.__closure__ or ()]
    inputs = _value_text((function.__defaults__, *closure), name, callers)
    return f"{name} {inputs} {_code_text(function.__code__, function.__globals__, name, callers)}"


def _code_text(code: CodeType, names: dict[str, Any], where: str, callers: tuple[Any, ...]) -> str:
    """The instructions with the values that they read: places in `co_consts` depend on the docstring."""
    instructions, higher_bits = bytearray(code.co_code), 0
    constants: list[str] = []
    read: dict[str, str] = {}
    for at in range(0, len(instructions), 2):
        operation = instructions[at]
        if operation not in _READS:
            higher_bits = 0
            continue
        argument = instructions[at + 1] | higher_bits
        higher_bits = argument << 8 if operation == dis.EXTENDED_ARG else 0
        if operation in _READS_CONSTANT:
            constant = code.co_consts[argument]
            is_code = isinstance(constant, CodeType)
            text = (
                _code_text(constant, names, where, callers)
                if is_code
                else _value_text(constant, where, callers)
            )
            constants.append(text)
            instructions[at + 1] = 0
        elif operation == _READS_GLOBAL:
            name = code.co_names[argument >> 1]  # the lowest bit says whether it is called
            if name not in read:
                value = names[name] if name in names else getattr(builtins, name, None)
                read[name] = _value_text(value, f"{where}, global {name}", callers)
    inputs = (code.co_names, code.co_varnames, code.co_argcount, code.co_exceptiontable)
    return repr((instructions.hex(), constants, read, inputs))


def _value_text(value: Any, where: str, callers: tuple[Any, ...]) -> str:
    if isinstance(value, _LITERALS):
        return f"{type(value).__name__} {value!r}"
    if isinstance(value, tuple):
        return f"tuple {[_value_text(item, where, callers) for item in value]}"
    if isinstance(value, (frozenset, set)):
        return f"set {sorted(_value_text(item, where, callers) for item in value)}"
    if isinstance(value, np.ndarray):
        return f"array {value.dtype.str} {value.shape} {value.tobytes().hex()}"
    if type(value).__module__.startswith("numba.") and (
        hasattr(value, "py_func") or hasattr(value, "__wrapped__")
    ):
        return _key(value, callers)
    if isinstance(value, FunctionType) and not hasattr(callers[-1], "py_func"):  # run by an intrinsic
        return _called_text(value, callers)
    if isinstance(value, (types.Type, ir.Type)):  # their texts say what they are
        return f"type {value}"
    if isinstance(value, ModuleType) and value.__name__.split(".")[0] in _OTHER_PACKAGES:
        return f"module {value.__name__}"
    if isinstance(value, (type, BuiltinFunctionType, np.ufunc)):
        home = getattr(value, "__module__", None) or "numpy"
        if home.split(".")[0] in _OTHER_PACKAGES:
            return f"{home}.{value.__name__}"
    raise TypeError(f"{where}: a kernel may not read {value!r}: its key cannot say what that is")
