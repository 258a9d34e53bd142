"""Sums over the samples of a file, as text in INFO: `merge` adds them and recomputes R2, ER2 and so on.

A text holds hexadecimal numbers separated by slashes. Zeros are left out, because most sums
of rare variants are zero.

Axes: U sites, K sums of a site.
"""

from collections.abc import Sequence

import numpy as np

from spinimpute.quality.leave_one_out import N_CALL_SUMS
from spinimpute.quality.site_quality import (
    BITS,
    HAS_ALT,
    HAS_REF,
    LOW,
    MAX_HAPLOTYPES,
    MAX_LOG,
    ONE,
    STRAND_CHOSEN,
)

SUMS, ER2_SUMS = "SUMS", "ER2_SUMS"
SUMS_LINE = (
    f'##INFO=<ID={SUMS},Number=1,Type=String,Description="Sums over the haplotypes, from which spinimpute '
    'merge computes AF, MAF, R2 and AVG_CS">'
)
ER2_SUMS_LINE = (
    f'##INFO=<ID={ER2_SUMS},Number=1,Type=String,Description="Sums over the samples, from which spinimpute '
    'merge computes ER2">'
)


def encode_sums(sums_KU: np.ndarray) -> list[str]:
    """Return the text of the sums of each site (`site_sums`)."""
    return [
        _join(n, first, second, (high3 << BITS) | low3, (high4 << 2 * BITS) | low4, *others)
        for n, first, second, high3, low3, high4, low4, *others in sums_KU.T.tolist()
    ]


def encode_call_sums(sums_KU: np.ndarray) -> list[str]:
    """Return the text of the sums of each site (`call_sums`), "" for a site without calls."""
    return [_join(*row) if row[0] else "" for row in sums_KU.T.tolist()]


def _join(*numbers: int) -> str:
    return "/".join(f"{number:x}" if number else "" for number in numbers)


def decode_sums(texts: Sequence[str]) -> np.ndarray:
    """Return the sums of `encode_sums`, int64 (K, U). Raises ValueError for other texts."""
    n, first, second, third, fourth, *others = _split(texts)
    third_parts = ([number >> BITS for number in third], [number & LOW for number in third])
    fourth_parts = ([number >> 2 * BITS for number in fourth], [number % ONE**2 for number in fourth])
    sums_KU = _as_array([n, first, second, *third_parts, *fourth_parts, *others])
    units_U, squares_U = sums_KU[0] << BITS, sums_KU[0] << 2 * BITS
    largest = [MAX_HAPLOTYPES, units_U, squares_U, squares_U, LOW, squares_U, ONE**2 - 1, units_U]
    _check(sums_KU, [*largest, MAX_LOG, MAX_LOG, HAS_ALT | HAS_REF | STRAND_CHOSEN])
    return sums_KU


def decode_call_sums(texts: Sequence[str]) -> np.ndarray:
    """Return the sums of `encode_call_sums`, int64 (K, U). Raises ValueError for other texts."""
    empty = "/" * (N_CALL_SUMS - 1)
    sums_KU = _as_array(_split([text or empty for text in texts]))
    n_U = sums_KU[0]
    dosages_U, squares_U = n_U << BITS + 1, n_U << 2 * BITS + 2
    _check(sums_KU, [MAX_HAPLOTYPES, 2 * n_U, 4 * n_U, dosages_U, squares_U, 2 * dosages_U])
    return sums_KU


def _split(texts: Sequence[str]) -> list[tuple[int, ...]]:
    rows = [[int(word, 16) if word else 0 for word in text.split("/")] for text in texts]
    return list(zip(*rows, strict=True))


def _as_array(rows: Sequence[Sequence[int]]) -> np.ndarray:
    try:
        return np.array(rows, np.int64)
    except OverflowError as error:
        raise ValueError("a sum is too large") from error


def _check(sums_KU: np.ndarray, limits: Sequence[int | np.ndarray]) -> None:
    """Raise ValueError if there are not as many sums as limits, or if a sum is not from 0 to its limit."""
    if any((row_U < 0).any() or (row_U > limit).any() for row_U, limit in zip(sums_KU, limits, strict=True)):
        raise ValueError("a sum is impossible")
