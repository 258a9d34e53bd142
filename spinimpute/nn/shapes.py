"""Checks of tensor shapes, of counts and of sizes, with messages that state the rule and then the fact."""

import math
from numbers import Integral, Real
from typing import Any

from torch import Tensor


def require_count(name: str, value: Any) -> None:
    """Raise ValueError unless `value` is a whole number (of Python or numpy) from 1 on."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise ValueError(f"{name} must be a whole number, however: {name}={value!r}")
    if int(value) < 1:
        raise ValueError(f"{name} must be at least 1, however: {name}={value}")


def require_positive(name: str, value: Any) -> None:
    """Raise ValueError unless `value` is a finite number (of Python or numpy) above 0."""
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
        raise ValueError(f"{name} must be a finite number, however: {name}={value!r}")
    if not float(value) > 0:
        raise ValueError(f"{name} must be positive, however: {name}={value}")


def require_dimensions(name: str, tensor: Tensor, count: int) -> None:
    """Raise ValueError unless `tensor` has `count` dimensions."""
    if tensor.ndim != count:
        raise ValueError(f"{name} must have {count} dimensions, however: {name}.ndim={tensor.ndim}")


def require_size(name: str, tensor: Tensor, axis: int, size: int, meaning: str) -> None:
    """Raise ValueError unless axis `axis` of `tensor` has length `size`; `meaning` says what the axis is."""
    if tensor.shape[axis] != size:
        raise ValueError(
            f"{name} must have {size} {meaning} along axis {axis}, "
            f"however: {name}.shape={tuple(tensor.shape)}"
        )


def require_same_shape(name: str, tensor: Tensor, other_name: str, other: Tensor) -> None:
    """Raise ValueError unless the two tensors have the same shape."""
    if tensor.shape != other.shape:
        raise ValueError(
            f"{name} must have the shape of {other_name}, however: "
            f"{name}.shape={tuple(tensor.shape)}, {other_name}.shape={tuple(other.shape)}"
        )


def require_column(column: int | None, columns: int) -> None:
    """Raise ValueError unless there is this column, counted from the first or (negative) from the last."""
    if column is not None and not -columns <= column < columns:
        raise ValueError(f"only must lie in {-columns}..{columns - 1}, however: {column}")
