"""Weights and states of torch modules as the arrays that files hold, and back."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook
from torch.optim import Optimizer

from spinimpute.errors import InputError
from spinimpute.nn.optimisers import Lookahead

Network = TypeVar("Network", bound=nn.Module)


def arrays_of(tensors: Mapping[str, Tensor]) -> dict[str, np.ndarray]:
    """Copies, as the next training step changes the tensors in place."""
    return {name: tensor.detach().cpu().numpy().copy() for name, tensor in tensors.items()}


def tensors_of(arrays: Mapping[str, np.ndarray]) -> dict[str, Tensor]:
    """Tensors that share no memory with the arrays, on the CPU."""
    return {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}


def load_weights(model: nn.Module, arrays: Mapping[str, np.ndarray]) -> None:
    """Raises RuntimeError if names or shapes differ from the model's."""
    model.load_state_dict(tensors_of(arrays))


def network_of(make: Callable[[], Network], arrays: Mapping[str, np.ndarray]) -> Network:
    """What `make` gives, with these weights. Raises as `check_weights`; torch's generator stays as it is."""
    check_weights(make, arrays)
    with torch.random.fork_rng([]):
        network = make()
    load_weights(network, arrays)
    return network


def check_weights(make: Callable[[], nn.Module], arrays: Mapping[str, np.ndarray]) -> None:
    """Raise ValueError if these are not the weights, by name and shape, of the network that `make` gives.

    A file's description may be of any network: it is built without memory, and given up once it is larger
    than the weights.
    """
    made, here = 0, threading.get_ident()

    def count(*_: Any) -> None:
        nonlocal made
        if threading.get_ident() != here:  # networks of other threads are counted, too
            return
        made += 1
        if made > 2 * len(arrays):
            raise ValueError("its parameters are those of a larger network")

    hook = register_module_parameter_registration_hook(count)
    try:
        with torch.device("meta"):
            expected = {key: tuple(value.shape) for key, value in make().state_dict().items()}
    finally:
        hook.remove()
    found = {key: value.shape for key, value in arrays.items()}
    differing = sorted(key for key in expected.keys() | found if expected.get(key) != found.get(key))
    if differing:
        raise ValueError(f"weights of another network: {', '.join(differing[:3])}")


def restore_training(
    model: nn.Module, optimiser: Optimizer | Lookahead, saved: Mapping[str, Any], path: str | Path
) -> None:
    """Weights and optimiser of a training state. Raises InputError if they are of another network."""
    try:
        model.load_state_dict(saved["weights"])
        optimiser.load_state_dict(saved["optimiser"])
    except (RuntimeError, ValueError, KeyError) as error:
        raise InputError(
            f"training state {path} holds the weights of another network, perhaps of another version of this "
            "program: start anew"
        ) from error


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
