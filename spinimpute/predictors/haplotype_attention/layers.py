"""Dense layers of small networks on the CPU, compiled by numba.

Inputs and outputs are stored by column: column p of x_IP is one input vector of the network.

Axes: O outputs, I inputs, P columns (a multiple of LANES).
"""

from __future__ import annotations

import numpy as np

from spinimpute.hmm.lanes import load, store, where_positive
from spinimpute.hmm.parameters import LANES
from spinimpute.runtime.kernels import kernel

OUTPUTS_PER_BATCH = 8  # outputs that are computed together: their sums fit into registers


def padded(outputs: np.ndarray) -> np.ndarray:
    """Return a float32 array, its first dimension zero-padded to a multiple of OUTPUTS_PER_BATCH."""
    outputs = np.asarray(outputs, dtype=np.float32)
    return np.pad(outputs, [(0, -len(outputs) % OUTPUTS_PER_BATCH)] + [(0, 0)] * (outputs.ndim - 1))


def transposed(weight_OI: np.ndarray) -> np.ndarray:
    """Return the weights of a layer, padded and transposed for `add_products`, float32 (I, O)."""
    return np.ascontiguousarray(padded(weight_OI).T)


@kernel(fast=True)
def add_products(weight_IO, x_IP, n, out_OP, positive):  # type: ignore[no-untyped-def]
    """Add weight.T @ x to the first n columns of out. If `positive`, then replace negative numbers by 0.

    Further columns may be changed, because LANES columns are computed at a time. O is a multiple of
    OUTPUTS_PER_BATCH, and P is a multiple of LANES.
    Each number of x that is loaded is used in OUTPUTS_PER_BATCH products. Indices of `load` and `store` count
    vectors of LANES numbers.
    """
    n_inputs, n_outputs = weight_IO.shape
    x_row, out_row = x_IP.shape[1] // LANES, out_OP.shape[1] // LANES
    for column in range(-(-n // LANES)):
        for o in range(0, n_outputs, OUTPUTS_PER_BATCH):
            vector = o * out_row + column
            s0, s1 = load(out_OP, vector), load(out_OP, vector + out_row)
            s2, s3 = load(out_OP, vector + 2 * out_row), load(out_OP, vector + 3 * out_row)
            s4, s5 = load(out_OP, vector + 4 * out_row), load(out_OP, vector + 5 * out_row)
            s6, s7 = load(out_OP, vector + 6 * out_row), load(out_OP, vector + 7 * out_row)
            for i in range(n_inputs):
                x = load(x_IP, i * x_row + column)
                s0 += x * weight_IO[i, o]
                s1 += x * weight_IO[i, o + 1]
                s2 += x * weight_IO[i, o + 2]
                s3 += x * weight_IO[i, o + 3]
                s4 += x * weight_IO[i, o + 4]
                s5 += x * weight_IO[i, o + 5]
                s6 += x * weight_IO[i, o + 6]
                s7 += x * weight_IO[i, o + 7]
            if positive:
                s0, s1 = where_positive(s0, s0), where_positive(s1, s1)
                s2, s3 = where_positive(s2, s2), where_positive(s3, s3)
                s4, s5 = where_positive(s4, s4), where_positive(s5, s5)
                s6, s7 = where_positive(s6, s6), where_positive(s7, s7)
            store(out_OP, vector, s0)
            store(out_OP, vector + out_row, s1)
            store(out_OP, vector + 2 * out_row, s2)
            store(out_OP, vector + 3 * out_row, s3)
            store(out_OP, vector + 4 * out_row, s4)
            store(out_OP, vector + 5 * out_row, s5)
            store(out_OP, vector + 6 * out_row, s6)
            store(out_OP, vector + 7 * out_row, s7)


@kernel(fast=True)
def dense(weight_IO, bias_O, x_IP, n, out_OP):  # type: ignore[no-untyped-def]
    """Write weight.T @ x + bias to the first n columns of out, see `add_products`."""
    for o in range(len(bias_O)):
        out_OP[o] = bias_O[o]
    add_products(weight_IO, x_IP, n, out_OP, False)


@kernel(fast=True)
def dense_relu(weight_IO, bias_O, x_IP, n, out_OP):  # type: ignore[no-untyped-def]
    """Write max(weight.T @ x + bias, 0) to the first n columns of out, see `add_products`."""
    for o in range(len(bias_O)):
        out_OP[o] = bias_O[o]
    add_products(weight_IO, x_IP, n, out_OP, True)
