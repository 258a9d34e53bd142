"""Layers of small networks for processors, in numba; each column is one input of the network.

Axes: O outputs, I inputs, P columns.
"""

from __future__ import annotations

import numpy as np

from spinimpute.kernels import kernel


def padded(array: np.ndarray, *multiples: int) -> np.ndarray:
    """float32, with zeros behind the end of each dimension, up to multiples of these numbers."""
    array = np.asarray(array, dtype=np.float32)
    return np.pad(array, [(0, -size % m) for size, m in zip(array.shape, multiples, strict=False)])


@kernel(fast=True)
def add_products(weight_OI, x_IP, n, out_OP):  # type: ignore[no-untyped-def]
    """out += weight @ x for the first n columns; O and I are multiples of 4.

    Columns are the inner loop, with four rows of out and four of x at a time: each number that is loaded
    serves several products.
    """
    for o in range(0, weight_OI.shape[0], 4):
        a_I, b_I, c_I, d_I = weight_OI[o], weight_OI[o + 1], weight_OI[o + 2], weight_OI[o + 3]
        out_a_P, out_b_P, out_c_P, out_d_P = out_OP[o], out_OP[o + 1], out_OP[o + 2], out_OP[o + 3]
        for i in range(0, weight_OI.shape[1], 4):
            a0, a1, a2, a3 = a_I[i], a_I[i + 1], a_I[i + 2], a_I[i + 3]
            b0, b1, b2, b3 = b_I[i], b_I[i + 1], b_I[i + 2], b_I[i + 3]
            c0, c1, c2, c3 = c_I[i], c_I[i + 1], c_I[i + 2], c_I[i + 3]
            d0, d1, d2, d3 = d_I[i], d_I[i + 1], d_I[i + 2], d_I[i + 3]
            x0_P, x1_P, x2_P, x3_P = x_IP[i], x_IP[i + 1], x_IP[i + 2], x_IP[i + 3]
            for p in range(n):
                x0, x1, x2, x3 = x0_P[p], x1_P[p], x2_P[p], x3_P[p]
                out_a_P[p] += a0 * x0 + a1 * x1 + a2 * x2 + a3 * x3
                out_b_P[p] += b0 * x0 + b1 * x1 + b2 * x2 + b3 * x3
                out_c_P[p] += c0 * x0 + c1 * x1 + c2 * x2 + c3 * x3
                out_d_P[p] += d0 * x0 + d1 * x1 + d2 * x2 + d3 * x3


@kernel(fast=True)
def dense_relu(weight_OI, bias_O, x_IP, n, out_OP):  # type: ignore[no-untyped-def]
    """out = max(weight @ x + bias, 0) for the first n columns; sizes as for `add_products`."""
    for o in range(len(bias_O)):
        out_OP[o, :n] = bias_O[o]
    add_products(weight_OI, x_IP, n, out_OP)
    zero = np.float32(0)
    for o in range(len(bias_O)):
        for p in range(n):
            out_OP[o, p] = max(out_OP[o, p], zero)
