"""Logarithm and exponential of float32 numbers for kernels.

Both are short polynomials. Unlike the functions of C libraries, they return the same bits on every processor,
so outputs do not depend on the machine.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from spinimpute.runtime.kernels import kernel

# coefficients of log2(1 + m) ~ m (c0 + m (c1 + ...)) for m in [0, 1]: exact at 0 and 1, minimax in between
LOG2_POLYNOMIAL = (1.4387252470261616, -0.6777815236738947, 0.3211853578237112, -0.08212908117597809)
# coefficients of 2^f ~ 1 + f (c0 + f (c1 + ...)) for f in [0, 1]: exact at 0 and 1, minimax in between
EXP2_POLYNOMIAL = (
    0.6931529803957599,
    0.2401471217583282,
    0.05585529771135436,
    0.00894775109120884,
    0.0018968490433487323,
)


@intrinsic
def bits_of_float(typing_context, number):  # type: ignore[no-untyped-def]
    """Return the bits of a float32 as an int32."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return builder.bitcast(arguments[0], ir.IntType(32))

    return types.int32(types.float32), generate


@intrinsic
def float_of_bits(typing_context, bits):  # type: ignore[no-untyped-def]
    """Return the float32 whose bits are those of an int32."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.int32), generate


@kernel(inline=True)
def fast_log(x):  # type: ignore[no-untyped-def]
    """Return the natural logarithm of a positive normal float32, with an error below 1e-4."""
    bits = bits_of_float(x)
    exponent = np.float32((bits >> 23) - 127)
    m = float_of_bits(np.int32((bits & 0x7FFFFF) | 0x3F800000)) - np.float32(1)
    polynomial = np.float32(LOG2_POLYNOMIAL[3])
    for c in (LOG2_POLYNOMIAL[2], LOG2_POLYNOMIAL[1], LOG2_POLYNOMIAL[0]):
        polynomial = polynomial * m + np.float32(c)
    return (exponent + polynomial * m) * np.float32(0.6931471805599453)


@kernel(inline=True)
def fast_exp(x):  # type: ignore[no-untyped-def]
    """Return e^x of a float32 x <= 0, with a relative error below 1e-6. Below -80, return e^-80."""
    binary = max(x, np.float32(-80)) * np.float32(1.4426950408889634)
    whole = np.floor(binary)
    f = binary - whole
    polynomial = np.float32(EXP2_POLYNOMIAL[4])
    for c in (EXP2_POLYNOMIAL[3], EXP2_POLYNOMIAL[2], EXP2_POLYNOMIAL[1], EXP2_POLYNOMIAL[0]):
        polynomial = polynomial * f + np.float32(c)
    power = float_of_bits((np.int32(whole) + np.int32(127)) << np.int32(23))
    return power * (np.float32(1) + polynomial * f)
