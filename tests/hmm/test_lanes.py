"""Wide instructions do to each lane what numpy does."""

import numpy as np
import pytest
from numba.core.errors import TypingError

from spinimpute.hmm.lanes import (
    all_lanes,
    exchange_halves,
    flush_tiny,
    keep_first_lanes,
    load,
    select_by_allele,
    select_by_bit,
    store,
    sum_lanes,
    where_positive,
)
from spinimpute.hmm.parameters import LANES, SMALLEST
from spinimpute.runtime.kernels import kernel


@kernel()
def _arithmetic(x_DL, y_D, out_DL):  # type: ignore[no-untyped-def]
    for d in range(len(x_DL)):
        x = load(x_DL, d)
        total = x * y_D[d] + np.float32(2)
        total += x / load(x_DL, 0)
        store(out_DL, d, np.float32(1) / total)


def test_arithmetic_is_by_lane(rng: np.random.Generator) -> None:
    x_DL, y_D = rng.random((5, LANES)).astype(np.float32) + 1, rng.random(5).astype(np.float32)
    out_DL = np.empty_like(x_DL)
    _arithmetic(x_DL, y_D, out_DL)
    np.testing.assert_allclose(out_DL, 1 / (x_DL * y_D[:, None] + 2 + x_DL / x_DL[0]), rtol=1e-6)


@kernel()
def _rearrange(x_K, allele_K, words_K, k, out_7L):  # type: ignore[no-untyped-def]
    x = load(x_K, k)
    store(out_7L, 0, exchange_halves(x))
    store(out_7L, 1, flush_tiny(x))
    store(out_7L, 2, where_positive(x, all_lanes(np.float32(7))))
    store(out_7L, 3, select_by_allele(allele_K, k, np.float32(0.25), np.float32(0.75)))
    store(out_7L, 4, all_lanes(sum_lanes(x)))
    store(out_7L, 5, select_by_bit(words_K, k, 11, np.float32(0.25), np.float32(0.75)))
    store(out_7L, 6, keep_first_lanes(x, 5))


def test_lanes_are_exchanged_chosen_and_summed(rng: np.random.Generator) -> None:
    x_K = rng.normal(size=50).astype(np.float32)
    x_K[25:30] = 0, -1, SMALLEST, SMALLEST * np.float32(2), 1e-31
    allele_K = rng.integers(0, 2, 50).astype(np.uint8)
    words_K = rng.integers(0, 2**16, 50).astype(np.uint16)
    out_7L = np.empty((7, LANES), np.float32)
    k = 21  # at no particular address
    _rearrange(x_K, allele_K, words_K, k, out_7L)
    x_L = x_K[k : k + LANES]
    np.testing.assert_array_equal(out_7L[0], np.roll(x_L, LANES // 2))
    np.testing.assert_array_equal(out_7L[1], np.where(x_L > SMALLEST, x_L, 0))
    np.testing.assert_array_equal(out_7L[2], np.where(x_L > 0, 7, 0))
    np.testing.assert_array_equal(out_7L[3], np.where(allele_K[k : k + LANES], 0.75, 0.25))
    in_order = np.float32(0)
    for number in x_L:
        in_order += number
    assert (out_7L[4] == in_order).all()
    np.testing.assert_array_equal(out_7L[5], np.where(words_K[k : k + LANES] >> 11 & 1, 0.75, 0.25))
    np.testing.assert_array_equal(out_7L[6], np.where(np.arange(LANES) < 5, x_L, 0))


def test_arrays_whose_rows_lie_apart_are_refused() -> None:
    x_K, allele_K, words_K = np.ones(50, np.float32), np.zeros(50, np.uint8), np.zeros(50, np.uint16)
    out_7L = np.empty((7, LANES), np.float32)
    for wrong in (
        (np.ones(100, np.float32)[::2], allele_K, words_K),
        (np.ones(50), allele_K, words_K),
        (x_K, allele_K, allele_K),
    ):
        with pytest.raises(TypingError):
            _rearrange(*wrong, 0, out_7L)
