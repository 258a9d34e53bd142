"""Checks of arguments: counts, positive numbers and the shapes of tensors."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


def require_count(name: str, value: Any) -> None:
    """Raise ValueError unless `value` is a whole number (Python or NumPy) of at least 1."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise ValueError(f"{name} must be a whole number, got {value!r}")
    if int(value) < 1:
        raise ValueError(f"{name} must be at least 1, got {value}")


def require_positive(name: str, value: Any) -> None:
    """Raise ValueError unless `value` is a finite number (Python or NumPy) above 0."""
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
        raise ValueError(f"{name} must be a finite number, got {value!r}")
    if not float(value) > 0:
        raise ValueError(f"{name} must be positive, got {value}")


def require_fraction(name: str, value: Any) -> None:
    """Raise ValueError unless `value` is a number from 0 to 1."""
    if not 0 <= value <= 1:
        raise ValueError(f"{name} must be in [0, 1], got {value}")


def require_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Raise ValueError unless `value` is one of the choices."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, got {value!r}")


def require_shape(name: str, tensor: Tensor, *sizes: int | None) -> None:
    """Raise ValueError unless the tensor has these sizes; None allows any size of an axis."""
    fits = tensor.ndim == len(sizes) and all(
        size is None or size == found for size, found in zip(sizes, tensor.shape, strict=True)
    )
    if not fits:
        shape = ", ".join("*" if size is None else str(size) for size in sizes)
        raise ValueError(f"{name} must have the shape ({shape}), got {tuple(tensor.shape)}")


def require_column(column: int | None, columns: int) -> None:
    """Raise ValueError unless the column exists; negative numbers count from the last column."""
    if column is not None and not -columns <= column < columns:
        raise ValueError(f"only must be in {-columns}..{columns - 1}, got {column}")
