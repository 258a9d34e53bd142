"""Weights and states of torch modules as the arrays that files hold, and back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn


def arrays_of(tensors: Mapping[str, Tensor]) -> dict[str, np.ndarray]:
    """Copies, as the next training step changes the tensors in place."""
    return {name: tensor.detach().cpu().numpy().copy() for name, tensor in tensors.items()}


def tensors_of(arrays: Mapping[str, np.ndarray]) -> dict[str, Tensor]:
    """Tensors that share no memory with the arrays, on the CPU."""
    return {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}


def load_weights(model: nn.Module, arrays: Mapping[str, np.ndarray]) -> None:
    """Raises RuntimeError if names or shapes differ from the model's."""
    model.load_state_dict(tensors_of(arrays))


def flatten_state(value: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    """A JSON-able copy of nested dicts and lists; tensors are put aside under their path."""
    if isinstance(value, Tensor):
        tensors[name] = value
        return {"__tensor__": name}
    if isinstance(value, dict):
        # optimisers number parameters with integers, which JSON would turn into strings
        return {"__dict__": [[key, flatten_state(v, f"{name}/{key}", tensors)] for key, v in value.items()]}
    if isinstance(value, list | tuple):
        return [flatten_state(v, f"{name}/{i}", tensors) for i, v in enumerate(value)]
    json.dumps(value)
    return value


def unflatten_state(value: Any, tensors: dict[str, Tensor]) -> Any:
    """What `flatten_state` was given."""
    if isinstance(value, dict) and "__tensor__" in value:
        return tensors[value["__tensor__"]]
    if isinstance(value, dict):
        return {key: unflatten_state(v, tensors) for key, v in value["__dict__"]}
    if isinstance(value, list):
        return [unflatten_state(v, tensors) for v in value]
    return value
