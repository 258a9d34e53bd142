"""`kernel`: numba's njit for functions that run for long, compiled once for each kind of processor.

Numba itself would keep compiled functions among the installed files. It would compile anew all of a file that
has changed anywhere, yet not what has a changed constant or function of another module compiled in. Here they
lie in the user's cache (`kernel_files`), under the digest of what they are made of (`kernel_keys`).
"""

from __future__ import annotations

import hashlib
import io
import sys
from collections.abc import Callable
from pickle import Unpickler
from typing import Any

import llvmlite
import numba
import numpy as np
from llvmlite.binding import ModuleRef, parse_bitcode
from numba.core import config, types
from numba.core.caching import NullCache
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompileResult
from numba.core.environment import Environment, _rebuild_env, lookup_environment
from numba.core.runtime.nrt import rtsys
from numba.core.serialize import dumps

from spinimpute.compilation import before_compiling, signature_text
from spinimpute.kernel_files import kernel_files
from spinimpute.kernel_keys import kernel_key

# sums may be contracted to fused multiply-adds and zeros have no sign; the order of sums stays
FAST = frozenset({"contract", "nsz"})
_VERSIONS = (sys.version, numba.__version__, llvmlite.__version__, np.__version__)
# numba's own, which users set as NUMBA_OPT etc.; those of the processor are in `magic_tuple` as well
_SWITCHES = (
    "OPT", "BOUNDSCHECK", "LOOP_VECTORIZE", "SLP_VECTORIZE", "DEBUGINFO_DEFAULT", "USING_SVML", "ENABLE_AVX",
    "CPU_NAME", "CPU_FEATURES", "LLVM_REFPRUNE_PASS", "LLVM_REFPRUNE_FLAGS", "EXTEND_VARIABLE_LIFETIMES",
    "ENABLE_PROFILING",
)  # fmt: skip


def _environment(module: str, constants: Any, name: str) -> Environment:
    """As numba's `_rebuild_env`, for functions that leave the interpreter alone.

    Those need nothing of the module that they are from, which numba would import: half of itself, and scipy.
    """
    environment = lookup_environment(name)
    if environment is None:
        environment = Environment(vars(sys.modules.get(module, sys.modules[__name__])))
        environment.consts[:] = constants
        environment.env_name = name
        Environment._memo[name] = environment
    return environment


class _ReadLibrary(JITCodeLibrary):
    """A kernel's machine code, read from a file.

    Numba would also parse the bitcode that other kernels are compiled with, which takes more time than all
    else. Here that is done when one of them is compiled.
    """

    _bitcode: bytes
    _shared_module: Any

    @classmethod
    def read(cls, codegen: Any, data: Any, symbol: str) -> _ReadLibrary:
        """Of what `_reduce` gives.

        symbol: of the function that Python calls. Other kernels call the function's other symbols; they are
        compiled with the bitcode, whose symbols `_get_module_for_linking` makes known.
        """
        name, kind, (machine_code, bitcode) = data
        if kind != "object":
            raise ValueError(f"{name} was stored as {kind}, not as machine code")
        library = cls(codegen, name)
        library._bitcode = bitcode
        library.enable_object_caching()
        library._set_compiled_object(machine_code)
        library._finalize_final_module()
        codegen._engine._defined_symbols.add(symbol)
        return library

    def _get_module_for_linking(self) -> ModuleRef:
        if self._shared_module is None:
            self._shared_module = parse_bitcode(self._bitcode)
            self._codegen._engine._load_defined_symbols(self._shared_module)
        return self._shared_module


def _rebuild(target_context: Any, parts: tuple[Any, ...]) -> CompileResult:
    """As numba's `CompileResult._rebuild`, of what `_reduce` gives, with a `_ReadLibrary`."""
    data, described, environment, signature, object_mode, lifted, annotation, reload, environments = parts
    for start in reload:  # before the machine code, which may ask for what they provide
        start()
    codegen = target_context.codegen()
    library = _ReadLibrary.read(codegen, data, described.llvm_cpython_wrapper_name)
    result = CompileResult(
        target_context=target_context, typing_context=target_context.typing_context, library=library,
        environment=environment, fndesc=described, signature=signature, objectmode=object_mode, lifted=lifted,
        entry_point=target_context.get_executable(library, described, environment),
        type_annotation=annotation, typing_error=None, call_helper=None, metadata=None, reload_init=reload,
        referenced_envs=environments,
    )  # fmt: skip
    for one in environments:
        codegen.set_env(one.env_name, one)
    return result


class _KernelReader(Unpickler):
    """Reads what `save_overload` has written."""

    def find_class(self, module: str, name: str) -> Any:
        found = super().find_class(module, name)
        return _environment if found is _rebuild_env else found


def _holds_array(of: Any) -> bool:
    """Whether a type of numba is an array, a tuple with one, or one or None."""
    if isinstance(of, types.Array):
        return True
    parts = getattr(of, "types", ()) or (getattr(of, "type", None),)
    return any(_holds_array(part) for part in parts if isinstance(part, types.Type))


def _check_arrays(kernel: Any, result: CompileResult) -> None:
    """Refuse what would lose count of references to an array: it would be freed too early, or never."""
    name, annotation = kernel.py_func.__name__, result.type_annotation
    if _holds_array(result.signature.return_type):
        raise TypeError(f"{name} returns an array: it has to be kernel(arrays=True)")
    if isinstance(annotation, str):  # of a kernel that was read, and checked before it was stored
        return
    for call, signature in annotation.calltypes.items():
        if getattr(call, "op", None) == "call" and _holds_array(signature.return_type):
            called = annotation.typemap[call.func.name]
            if isinstance(called, types.Dispatcher):
                other = called.dispatcher.py_func.__name__
                raise TypeError(
                    f"{name} calls {other}, which returns arrays: it has to be kernel(arrays=True)"
                )


class _KernelCache(NullCache):
    """Where numba looks for a kernel before it compiles it, and stores it afterwards."""

    def __init__(self, compiled: Any) -> None:
        self._kernel = compiled
        self._key = ""

    @property
    def cache_path(self) -> str:
        return str(kernel_files().folder)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """None if it has to be compiled.

        Numba would first set up all that compiling needs, and load scipy: a fifth of a second that a compiled
        function has no use for. The compiler does it by itself when it is called.
        """
        rtsys.initialize(target_context)  # of arrays that are made inside
        name = self._file_name(sig, target_context.codegen())
        data = kernel_files().read(name)
        if data is None and before_compiling(signature_text(self._kernel, sig), name):
            data = kernel_files().read(name)
        if data is None:
            return None
        head = self._head(sig, name)
        if not data.startswith(head):  # another kernel's file, under this name
            return None
        parts = _KernelReader(io.BytesIO(data[len(head) :])).load()
        return _rebuild(target_context, parts)

    def save_overload(self, sig: Any, data: Any) -> None:
        if not data.library.has_dynamic_globals and not data.lifted:
            name = self._file_name(sig, data.codegen)
            kernel_files().write(name, self._head(sig, name) + dumps(data._reduce()))

    def _head(self, sig: Any, name: str) -> bytes:
        """What a file begins with, in lines that can be read."""
        return f"{signature_text(self._kernel, sig)}\n{name}\n".encode()

    def _file_name(self, sig: Any, codegen: Any) -> str:
        self._key = self._key or kernel_key(self._kernel)
        switches = [(switch, getattr(config, switch, None)) for switch in _SWITCHES]
        made_for = repr((self._key, sig, codegen.magic_tuple(), _VERSIONS, switches))
        digest = hashlib.sha256(made_for.encode()).hexdigest()[:32]
        return f"{self._kernel.py_func.__name__.strip('_')}-{digest}"


def kernel(
    *, fast: bool = False, inline: bool = False, arrays: bool = False
) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function, which then runs without the interpreter's lock.

    Parameters
    ----------
    fast : bool
        Whether sums may be contracted, see `FAST`.
    inline : bool
        Compile it into each of its callers.
    arrays : bool
        It makes new arrays, returns one, calls a kernel that returns one, or assigns one to a slice. The
        others do not count references to arrays, which takes a tenth of the time where inner loops cut rows
        out of them.

    Returns
    -------
    callable
        A decorator.
    """

    def compile_lazily(function: Callable[..., Any]) -> Any:
        dispatcher = numba.njit(
            nogil=True, fastmath=set(FAST) if fast else False, inline="always" if inline else "never",
            _nrt=arrays,
        )(function)  # fmt: skip
        dispatcher._cache = _KernelCache(dispatcher)
        if not arrays:
            add_overload = dispatcher.add_overload

            def add_checked(result: CompileResult) -> None:
                _check_arrays(dispatcher, result)
                add_overload(result)

            dispatcher.add_overload = add_checked
        return dispatcher

    return compile_lazily
