"""LANES float32 numbers side by side, for numba's loops: those of as many queries, or of as many states.

Whether the compiler turns a loop over lanes into wide instructions depends on its estimates, a small loop
rather not; here they are spelled out, for whatever width the processor has. `+`, `*` and `/` work, also with
one float32 for all lanes. Multiplications and additions may be fused (`kernels.FAST`); the order of sums
stays.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from types import FunctionType
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
    """One number in all lanes."""
    undefined = ir.Constant(ir.VectorType(number.type, LANES), ir.Undefined)
    first = builder.insert_element(undefined, number, ir.Constant(ir.IntType(32), 0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
    return builder.shuffle_vector(first, undefined, zeros)


def _by_lane(instruction: str) -> FunctionType:
    """What generates the code of an operator, for lanes with lanes, and with one number for all."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        x, y = (
            _all_lanes(builder, argument) if numba_type == types.float32 else argument
            for numba_type, argument in zip(signature.args, arguments, strict=True)
        )
        return getattr(builder, instruction)(x, y, flags=FLAGS)

    return generate  # type: ignore[return-value]


OPERATORS = {
    operator.add: _by_lane("fadd"),
    operator.iadd: _by_lane("fadd"),
    operator.mul: _by_lane("fmul"),
    operator.truediv: _by_lane("fdiv"),
}


class LanesType(types.Type):
    """Numba's type of LANES numbers."""

    def __init__(self) -> None:
        super().__init__(name=f"Lanes({LANES})")


LANES_TYPE = LanesType()


@register_model(LanesType)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager: Any, numba_type: Any) -> None:
        super().__init__(manager, numba_type, VECTOR)


def _define(operation: Callable[[Any, Any], Any], generate: FunctionType) -> None:
    """Make numba use it wherever lanes are operands."""

    @type_callable(operation)
    def type_operation(context: Any) -> Any:
        def typer(x: Any, y: Any) -> Any:
            if LANES_TYPE in (x, y) and {x, y} <= {LANES_TYPE, types.float32}:
                return LANES_TYPE
            return None

        return typer

    for pair in ((LANES_TYPE, LANES_TYPE), (LANES_TYPE, types.float32), (types.float32, LANES_TYPE)):
        lower_builtin(operation, *pair)(generate)


for _operation, _generate in OPERATORS.items():
    _define(_operation, _generate)


def _address(context: Any, builder: Any, array_type: Any, array: Any, index: Any, item: Any) -> Any:
    """The address of the numbers that `load` reads, for a vector of this type."""
    data = context.make_array(array_type)(context, builder, array).data
    if array_type.ndim == 2:
        index = builder.mul(index, ir.Constant(index.type, LANES))
    return builder.bitcast(builder.gep(data, [index]), item.as_pointer())


def _holds(array_type: Any, dtype: Any) -> bool:
    return (
        isinstance(array_type, types.Array)
        and array_type.layout == "C"
        and array_type.ndim in (1, 2)
        and array_type.dtype == dtype
    )


@intrinsic
def load(typing_context, array, index):  # type: ignore[no-untyped-def]
    """Row `index` of float32 (X, LANES), or the numbers from `index` on of float32 (X,)."""
    if not _holds(array, types.float32):
        return None

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        source, at = arguments
        address = _address(context, builder, signature.args[0], source, at, VECTOR)
        return builder.load(address, align=4, typ=VECTOR)

    return LANES_TYPE(array, types.intp), generate


@intrinsic
def store(typing_context, array, index, lanes):  # type: ignore[no-untyped-def]
    """Write where `load` would read."""
    if not _holds(array, types.float32) or lanes != LANES_TYPE:
        return None

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        target, at, value = arguments
        address = _address(context, builder, signature.args[0], target, at, VECTOR)
        builder.store(value, address, align=4)
        return context.get_dummy_value()

    return types.none(array, types.intp, LANES_TYPE), generate


@intrinsic
def all_lanes(typing_context, number):  # type: ignore[no-untyped-def]
    """One float32 in all lanes."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return _all_lanes(builder, arguments[0])

    return LANES_TYPE(types.float32), generate


@intrinsic
def by_allele(typing_context, alleles, index, emission_0, emission_1):  # type: ignore[no-untyped-def]
    """emission_1 where the alleles from `index` on, uint8 (X,), are 1; emission_0 where they are 0."""
    if not _holds(alleles, types.uint8) or alleles.ndim != 1:
        return None
    bytes_type = ir.VectorType(ir.IntType(8), LANES)

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        array, at, *pair = arguments
        address = _address(context, builder, signature.args[0], array, at, bytes_type)
        allele = builder.load(address, align=1, typ=bytes_type)
        is_1 = builder.icmp_unsigned("!=", allele, ir.Constant(bytes_type, [0] * LANES))
        zero, one = (_all_lanes(builder, number) for number in pair)
        return builder.select(is_1, one, zero)

    return LANES_TYPE(alleles, types.intp, types.float32, types.float32), generate


@intrinsic
def by_bit(typing_context, words, index, bit, emission_0, emission_1):  # type: ignore[no-untyped-def]
    """emission_1 where this bit of the words from `index` on, uint16 (X,), is set; emission_0 elsewhere."""
    if not _holds(words, types.uint16) or words.ndim != 1:
        return None
    words_type = ir.VectorType(ir.IntType(16), LANES)

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        array, at, number, *pair = arguments
        address = _address(context, builder, signature.args[0], array, at, words_type)
        word = builder.load(address, align=2, typ=words_type)
        asked = builder.shl(ir.Constant(ir.IntType(16), 1), builder.trunc(number, ir.IntType(16)))
        chosen = builder.and_(word, _all_lanes(builder, asked))
        is_1 = builder.icmp_unsigned("!=", chosen, ir.Constant(words_type, [0] * LANES))
        zero, one = (_all_lanes(builder, number) for number in pair)
        return builder.select(is_1, one, zero)

    return LANES_TYPE(words, types.intp, types.intp, types.float32, types.float32), generate


@intrinsic
def first_lanes(typing_context, lanes, n):  # type: ignore[no-untyped-def]
    """0 from lane n on."""
    order = ir.Constant(ir.VectorType(ir.IntType(64), LANES), list(range(LANES)))

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        is_first = builder.icmp_signed("<", order, _all_lanes(builder, arguments[1]))
        return builder.select(is_first, arguments[0], _constant(0.0))

    return LANES_TYPE(LANES_TYPE, types.intp), generate


@intrinsic
def without_tiny(typing_context, lanes):  # type: ignore[no-untyped-def]
    """0 for numbers that are not above SMALLEST."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        is_large = builder.fcmp_ordered(">", arguments[0], _constant(float(SMALLEST)))
        return builder.select(is_large, arguments[0], _constant(0.0))

    return LANES_TYPE(LANES_TYPE), generate


@intrinsic
def where_positive(typing_context, condition, lanes):  # type: ignore[no-untyped-def]
    """0 where the condition's number is not above 0."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        is_positive = builder.fcmp_ordered(">", arguments[0], _constant(0.0))
        return builder.select(is_positive, arguments[1], _constant(0.0))

    return LANES_TYPE(LANES_TYPE, LANES_TYPE), generate


@intrinsic
def halves_exchanged(typing_context, lanes):  # type: ignore[no-untyped-def]
    """The numbers of the other half of the lanes."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        order = [(lane + LANES // 2) % LANES for lane in range(LANES)]
        mask = ir.Constant(ir.VectorType(ir.IntType(32), LANES), order)
        return builder.shuffle_vector(arguments[0], ir.Constant(VECTOR, ir.Undefined), mask)

    return LANES_TYPE(LANES_TYPE), generate


@intrinsic
def lane(typing_context, lanes, index):  # type: ignore[no-untyped-def]
    """The number of one lane."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return builder.extract_element(*arguments)

    return types.float32(LANES_TYPE, types.intp), generate


@intrinsic
def sum_lanes(typing_context, lanes):  # type: ignore[no-untyped-def]
    """The sum, from the first lane to the last."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        lane = [builder.extract_element(arguments[0], ir.Constant(ir.IntType(32), l)) for l in range(LANES)]
        total = lane[0]
        for number in lane[1:]:
            total = builder.fadd(total, number)
        return total

    return types.float32(LANES_TYPE), generate
