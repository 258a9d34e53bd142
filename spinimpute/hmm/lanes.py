"""Vectors of LANES float32 numbers for numba kernels; a lane holds one query or one state.

Numba's compiler rarely vectorises short loops. These intrinsics generate vector instructions explicitly, for
any register width. `+`, `*` and `/` take two vectors, or a vector and one float32. A multiplication and an
addition may be fused (`kernels.FAST`), but the order of sums is fixed.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic, lower_builtin, models, register_model, type_callable

from spinimpute.hmm.parameters import LANES, SMALLEST
from spinimpute.runtime.kernels import FAST

VECTOR = ir.VectorType(ir.FloatType(), LANES)
FLAGS = tuple(sorted(FAST))


def _constant(value: float) -> ir.Constant:
    return ir.Constant(VECTOR, [value] * LANES)


def _all_lanes(builder: Any, number: Any) -> Any:
    """Broadcast one number to all lanes."""
    undefined = ir.Constant(ir.VectorType(number.type, LANES), ir.Undefined)
    first = builder.insert_element(undefined, number, ir.Constant(ir.IntType(32), 0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
    return builder.shuffle_vector(first, undefined, zeros)


class LanesType(types.Type):
    """Numba's type of a vector of LANES numbers."""


LANES_TYPE = LanesType(f"Lanes({LANES})")


@register_model(LanesType)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager: Any, numba_type: Any) -> None:
        super().__init__(manager, numba_type, VECTOR)


def _define(operation: Callable[[Any, Any], Any], instruction: str) -> None:
    """Define an operator on two vectors, or on a vector and one number, for numba."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        x, y = (
            _all_lanes(builder, argument) if numba_type == types.float32 else argument
            for numba_type, argument in zip(signature.args, arguments, strict=True)
        )
        return getattr(builder, instruction)(x, y, flags=FLAGS)

    @type_callable(operation)
    def type_operation(context: Any) -> Any:
        def typer(x: Any, y: Any) -> Any:
            if LANES_TYPE in (x, y) and {x, y} <= {LANES_TYPE, types.float32}:
                return LANES_TYPE
            return None

        return typer

    for pair in ((LANES_TYPE, LANES_TYPE), (LANES_TYPE, types.float32), (types.float32, LANES_TYPE)):
        lower_builtin(operation, *pair)(generate)


_define(operator.add, "fadd")
_define(operator.iadd, "fadd")
_define(operator.mul, "fmul")
_define(operator.truediv, "fdiv")


def _address(
    context: Any, builder: Any, array_type: Any, array: Any, index_type: Any, index: Any, item: Any
) -> Any:
    """Return the address of the vector at an index, as a pointer to the vector type `item`."""
    view = context.make_array(array_type)(context, builder, array)
    numbers = [index]
    if isinstance(index_type, types.BaseTuple):
        numbers = [builder.extract_value(index, axis) for axis in range(len(index_type))]
    offset = numbers[0]
    for axis, number in enumerate(numbers[1:], 1):
        offset = builder.add(builder.mul(offset, builder.extract_value(view.shape, axis)), number)
    if array_type.ndim > 1:
        offset = builder.mul(offset, ir.Constant(offset.type, LANES))
    return builder.bitcast(builder.gep(view.data, [offset]), item.as_pointer())


def _index_type(array_type: Any, index_type: Any, dtype: Any = types.float32) -> Any:
    """Return the numba type of an index of vectors; None if the array or the index is not supported."""
    if not isinstance(array_type, types.Array) or array_type.layout != "C" or array_type.dtype != dtype:
        return None
    n_indices = max(1, array_type.ndim - 1)
    n_given = len(index_type) if isinstance(index_type, types.BaseTuple) else 1
    if n_given != n_indices:
        return None
    return types.intp if n_indices == 1 else types.UniTuple(types.intp, n_indices)


@intrinsic
def load(typing_context, array, index):  # type: ignore[no-untyped-def]
    """Load a vector from a C-contiguous float32 array.

    From a one-dimensional array, load LANES elements starting at `index`. In an array (..., LANES), `index`
    is an integer or a tuple of integers for all axes but the last.
    """
    if (index_type := _index_type(array, index)) is None:
        return None

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        source, position = arguments
        address = _address(context, builder, signature.args[0], source, signature.args[1], position, VECTOR)
        return builder.load(address, align=4, typ=VECTOR)

    return LANES_TYPE(array, index_type), generate


@intrinsic
def store(typing_context, array, index, lanes):  # type: ignore[no-untyped-def]
    """Store a vector in an array; `index` is that of `load`."""
    if (index_type := _index_type(array, index)) is None or lanes != LANES_TYPE:
        return None

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        target, position, value = arguments
        address = _address(context, builder, signature.args[0], target, signature.args[1], position, VECTOR)
        builder.store(value, address, align=4)
        return context.get_dummy_value()

    return types.none(array, index_type, LANES_TYPE), generate


@intrinsic
def all_lanes(typing_context, number):  # type: ignore[no-untyped-def]
    """Broadcast one float32 to all lanes."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return _all_lanes(builder, arguments[0])

    return LANES_TYPE(types.float32), generate


@intrinsic
def select_by_allele(typing_context, alleles, index, emission_0, emission_1):  # type: ignore[no-untyped-def]
    """Return emission_1 in lanes whose allele is 1, else emission_0.

    Lane 0 has alleles[index], uint8 (X,).
    """
    if _index_type(alleles, index, types.uint8) != types.intp or alleles.ndim != 1:
        return None
    bytes_type = ir.VectorType(ir.IntType(8), LANES)

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        array, position, *emissions = arguments
        address = _address(context, builder, signature.args[0], array, types.intp, position, bytes_type)
        allele = builder.load(address, align=1, typ=bytes_type)
        is_1 = builder.icmp_unsigned("!=", allele, ir.Constant(bytes_type, [0] * LANES))
        value_0, value_1 = (_all_lanes(builder, number) for number in emissions)
        return builder.select(is_1, value_1, value_0)

    return LANES_TYPE(alleles, types.intp, types.float32, types.float32), generate


@intrinsic
def select_by_bit(typing_context, words, index, bit, emission_0, emission_1):  # type: ignore[no-untyped-def]
    """Return emission_1 in lanes whose word has the bit set, else emission_0.

    Lane 0 has words[index], uint16 (X,); `bit` is the number of the bit, 0 to 15.
    """
    if _index_type(words, index, types.uint16) != types.intp or words.ndim != 1:
        return None
    words_type = ir.VectorType(ir.IntType(16), LANES)

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        array, position, bit_number, *emissions = arguments
        address = _address(context, builder, signature.args[0], array, types.intp, position, words_type)
        word = builder.load(address, align=2, typ=words_type)
        mask = builder.shl(ir.Constant(ir.IntType(16), 1), builder.trunc(bit_number, ir.IntType(16)))
        chosen = builder.and_(word, _all_lanes(builder, mask))
        is_1 = builder.icmp_unsigned("!=", chosen, ir.Constant(words_type, [0] * LANES))
        value_0, value_1 = (_all_lanes(builder, bit_number) for bit_number in emissions)
        return builder.select(is_1, value_1, value_0)

    return LANES_TYPE(words, types.intp, types.intp, types.float32, types.float32), generate


@intrinsic
def multiply_add(typing_context, x, y, z):  # type: ignore[no-untyped-def]
    """Return x * y + z, fused if possible.

    In x * y + z * w, the compiler could fuse either product; this function decides which one.
    """
    if {x, y, z} != {LANES_TYPE}:
        return None

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        name = f"llvm.fmuladd.v{LANES}f32"
        function = builder.module.globals.get(name)
        if function is None:
            function = ir.Function(builder.module, ir.FunctionType(VECTOR, [VECTOR] * 3), name)
        return builder.call(function, arguments)

    return LANES_TYPE(x, y, z), generate


@intrinsic
def keep_first_lanes(typing_context, lanes, n):  # type: ignore[no-untyped-def]
    """Keep the first n lanes and set the others to 0."""
    order = ir.Constant(ir.VectorType(ir.IntType(64), LANES), list(range(LANES)))

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        is_first = builder.icmp_signed("<", order, _all_lanes(builder, arguments[1]))
        return builder.select(is_first, arguments[0], _constant(0.0))

    return LANES_TYPE(LANES_TYPE, types.intp), generate


@intrinsic
def flush_tiny(typing_context, lanes):  # type: ignore[no-untyped-def]
    """Set numbers up to SMALLEST to 0."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        is_large = builder.fcmp_ordered(">", arguments[0], _constant(float(SMALLEST)))
        return builder.select(is_large, arguments[0], _constant(0.0))

    return LANES_TYPE(LANES_TYPE), generate


@intrinsic
def where_positive(typing_context, condition, lanes):  # type: ignore[no-untyped-def]
    """Keep the lanes in which `condition` is above 0 and set the others to 0."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        is_positive = builder.fcmp_ordered(">", arguments[0], _constant(0.0))
        return builder.select(is_positive, arguments[1], _constant(0.0))

    return LANES_TYPE(LANES_TYPE, LANES_TYPE), generate


@intrinsic
def maximum(typing_context, x, y):  # type: ignore[no-untyped-def]
    """Return the larger number in each lane."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return builder.select(builder.fcmp_ordered(">", *arguments), *arguments)

    return LANES_TYPE(LANES_TYPE, LANES_TYPE), generate


@intrinsic
def exchange_halves(typing_context, lanes):  # type: ignore[no-untyped-def]
    """Exchange the two halves of the lanes."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        order = [(lane + LANES // 2) % LANES for lane in range(LANES)]
        mask = ir.Constant(ir.VectorType(ir.IntType(32), LANES), order)
        return builder.shuffle_vector(arguments[0], ir.Constant(VECTOR, ir.Undefined), mask)

    return LANES_TYPE(LANES_TYPE), generate


@intrinsic
def lane(typing_context, lanes, index):  # type: ignore[no-untyped-def]
    """Return the number of one lane."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return builder.extract_element(*arguments)

    return types.float32(LANES_TYPE, types.intp), generate


@intrinsic
def sum_lanes(typing_context, lanes):  # type: ignore[no-untyped-def]
    """Add all lanes, from the first to the last."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        lane = [builder.extract_element(arguments[0], ir.Constant(ir.IntType(32), l)) for l in range(LANES)]
        total = lane[0]
        for number in lane[1:]:
            total = builder.fadd(total, number)
        return total

    return types.float32(LANES_TYPE), generate
