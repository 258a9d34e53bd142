"""Layers of small networks for processors, in numba; each column is one input of the network.

Axes: O outputs, I inputs, P columns, a multiple of LANES.
"""

from __future__ import annotations

import numpy as np

from spinimpute.hmm.lanes import load, store, where_positive
from spinimpute.hmm.parameters import LANES
from spinimpute.runtime.kernels import kernel

OUTPUTS_AT_ONCE = 8  # sums that are kept in registers


def padded(outputs: np.ndarray) -> np.ndarray:
    """float32, with zeros behind the end of the first dimension, up to a multiple of OUTPUTS_AT_ONCE."""
    outputs = np.asarray(outputs, dtype=np.float32)
    return np.pad(outputs, [(0, -len(outputs) % OUTPUTS_AT_ONCE)] + [(0, 0)] * (outputs.ndim - 1))


def transposed(weight_OI: np.ndarray) -> np.ndarray:
    """A layer's weights as `add_products` takes them, float32 (I, O), see `padded`."""
    return np.ascontiguousarray(padded(weight_OI).T)


@kernel(fast=True)
def add_products(weight_IO, x_IP, n, out_OP, positive):  # type: ignore[no-untyped-def]
    """out += weight.T @ x for n columns at least, then 0 in place of what is negative, if `positive`.

    O is a multiple of OUTPUTS_AT_ONCE. LANES columns at a time: each number of x that is loaded serves
    OUTPUTS_AT_ONCE products.
    """
    n_inputs, n_outputs = weight_IO.shape
    for p in range(0, n, LANES):
        for o in range(0, n_outputs, OUTPUTS_AT_ONCE):
            s0, s1, s2, s3 = (
                load(out_OP[o], p),
                load(out_OP[o + 1], p),
                load(out_OP[o + 2], p),
                load(out_OP[o + 3], p),
            )
            s4, s5, s6, s7 = (
                load(out_OP[o + 4], p),
                load(out_OP[o + 5], p),
                load(out_OP[o + 6], p),
                load(out_OP[o + 7], p),
            )
            for i in range(n_inputs):
                x = load(x_IP[i], p)
                s0 += x * weight_IO[i, o]
                s1 += x * weight_IO[i, o + 1]
                s2 += x * weight_IO[i, o + 2]
                s3 += x * weight_IO[i, o + 3]
                s4 += x * weight_IO[i, o + 4]
                s5 += x * weight_IO[i, o + 5]
                s6 += x * weight_IO[i, o + 6]
                s7 += x * weight_IO[i, o + 7]
            if positive:
                s0, s1, s2, s3 = (
                    where_positive(s0, s0),
                    where_positive(s1, s1),
                    where_positive(s2, s2),
                    where_positive(s3, s3),
                )
                s4, s5, s6, s7 = (
                    where_positive(s4, s4),
                    where_positive(s5, s5),
                    where_positive(s6, s6),
                    where_positive(s7, s7),
                )
            store(out_OP[o], p, s0)
            store(out_OP[o + 1], p, s1)
            store(out_OP[o + 2], p, s2)
            store(out_OP[o + 3], p, s3)
            store(out_OP[o + 4], p, s4)
            store(out_OP[o + 5], p, s5)
            store(out_OP[o + 6], p, s6)
            store(out_OP[o + 7], p, s7)


@kernel(fast=True)
def dense(weight_IO, bias_O, x_IP, n, out_OP):  # type: ignore[no-untyped-def]
    """out = weight.T @ x + bias for n columns at least; sizes as for `add_products`."""
    for o in range(len(bias_O)):
        out_OP[o] = bias_O[o]
    add_products(weight_IO, x_IP, n, out_OP, False)


@kernel(fast=True)
def dense_relu(weight_IO, bias_O, x_IP, n, out_OP):  # type: ignore[no-untyped-def]
    """out = max(weight.T @ x + bias, 0) for n columns at least; sizes as for `add_products`."""
    for o in range(len(bias_O)):
        out_OP[o] = bias_O[o]
    add_products(weight_IO, x_IP, n, out_OP, True)
