"""Attributes of fitted estimators as JSON and tensors, and back; of known kinds only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from sklearn.preprocessing import QuantileTransformer
from torch import Tensor

from spinimpute.nn.carrying import CarriedPoints
from spinimpute.tabular.table import Rows, Schema

SCALARS = (str, bool, int, float)


def require(condition: bool, said: str) -> None:
    """Raise ValueError with this message unless the condition holds."""
    if not condition:
        raise ValueError(said)


def stored_value(value: Any, name: str, tensors: dict[str, np.ndarray]) -> Any:
    """JSON for a fitted attribute.

    Parameters
    ----------
    value : object
        The attribute.
    name : str
        Its name.
    tensors : dict of str to array
        Its numbers are added here, under names that begin with its own.

    Returns
    -------
    object
        What `restored_value` makes the attribute of, of JSON's types.

    Raises
    ------
    TypeError
        The attribute is of a kind that a file cannot hold.
    """
    if isinstance(value, Tensor):
        tensors[name] = value.detach().cpu().numpy()
        return {"tensor": name}
    if isinstance(value, Rows):
        return {"rows": [stored_value(part, f"{name}/{i}", tensors) for i, part in enumerate(value)]}
    if isinstance(value, CarriedPoints):
        return {"points": [stored_value(part, f"{name}/{i}", tensors) for i, part in enumerate(value)]}
    if isinstance(value, Schema):
        return {"schema": asdict(value)}
    if isinstance(value, QuantileTransformer):
        names = ("quantiles_", "references_")
        return {
            "quantiles": [stored_value(getattr(value, part), f"{name}/{part}", tensors) for part in names]
        }
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf" and value.dtype.itemsize <= 8:
        tensors[name] = value
        return {"array": name}
    if isinstance(value, np.ndarray) and value.dtype.kind in "UO":
        values = [part.item() if isinstance(part, np.generic) else part for part in value.tolist()]
        if all(isinstance(part, SCALARS) for part in values):
            return {"text" if value.dtype.kind == "U" else "objects": values}
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, SCALARS):
        return value
    if isinstance(value, list | tuple):
        return [stored_value(part, f"{name}/{i}", tensors) for i, part in enumerate(value)]
    kind = f"array of {value.dtype}" if isinstance(value, np.ndarray) else type(value).__name__
    raise TypeError(f"{name} is a {kind}, which a file cannot hold; use numbers or text")


def restored_value(stored: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """The attribute that `stored_value` was given, from its JSON and the arrays of the file."""
    if isinstance(stored, list):
        return [restored_value(part, arrays) for part in stored]
    if not isinstance(stored, dict):
        return stored
    ((kind, held),) = stored.items()
    if kind == "tensor":
        return torch.from_numpy(arrays[held].copy())
    if kind == "array":
        return arrays[held].copy()
    if kind in ("text", "objects"):
        require(all(isinstance(part, str) or kind == "objects" for part in held), "text is no text")
        return np.array(held, dtype=str if kind == "text" else object)
    if kind == "rows":
        return Rows(*restored_value(held, arrays))
    if kind == "points":
        return CarriedPoints(*restored_value(held, arrays))
    if kind == "schema":
        return Schema(**{key: tuple(values) for key, values in held.items()})
    require(kind == "quantiles", f"it holds a {kind!r}")
    quantiles, references = restored_value(held, arrays)
    require(references.shape == quantiles.shape[:1] != (0,), "quantiles without references")
    transformer = QuantileTransformer(n_quantiles=len(references), output_distribution="normal")
    transformer.quantiles_, transformer.references_ = quantiles, references
    transformer.n_quantiles_, transformer.n_features_in_ = quantiles.shape
    return transformer
