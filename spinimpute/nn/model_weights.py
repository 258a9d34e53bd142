"""Conversion between the weights of torch modules and NumPy arrays, with checks of weights from files."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook

Network = TypeVar("Network", bound=nn.Module)


def arrays_of(tensors: Mapping[str, Tensor]) -> dict[str, np.ndarray]:
    """Return copies of tensors as arrays. Training changes the tensors in place, but not the copies."""
    return {name: tensor.detach().cpu().numpy().copy() for name, tensor in tensors.items()}


def tensors_of(arrays: Mapping[str, np.ndarray]) -> dict[str, Tensor]:
    """Return copies of arrays as tensors on the CPU."""
    return {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}


def load_weights(model: nn.Module, arrays: Mapping[str, np.ndarray]) -> None:
    """Replace the weights of a model."""
    model.load_state_dict(tensors_of(arrays))


def network_of(make: Callable[[], Network], arrays: Mapping[str, np.ndarray]) -> Network:
    """Return a network with these weights, without changing the state of torch's random generator.

    `make` builds a network with random weights. Raise ValueError if the network's weights and the arrays
    differ in names or shapes, or if an array is not finite.
    """
    check_weights(make, arrays)
    infinite = sorted(key for key, value in arrays.items() if not np.isfinite(value).all())
    if infinite:
        raise ValueError(f"weights that are not finite: {', '.join(infinite[:3])}")
    with torch.random.fork_rng([]):
        network = make()
    load_weights(network, arrays)
    return network


def check_weights(make: Callable[[], nn.Module], arrays: Mapping[str, np.ndarray]) -> None:
    """Raise ValueError unless the arrays have the names and shapes of the weights that `make` builds.

    A damaged file may describe a network of any size. The network is therefore built on torch's meta device,
    which allocates no memory for weights. Building stops when the network has more than twice as many
    parameters as there are arrays.
    """
    n_parameters, own_thread = 0, threading.get_ident()

    def count(*_: Any) -> None:
        nonlocal n_parameters
        if threading.get_ident() != own_thread:  # another thread builds a network and calls this hook, too
            return
        n_parameters += 1
        if n_parameters > 2 * len(arrays):
            raise ValueError("the description is of a larger network than the weights")

    hook = register_module_parameter_registration_hook(count)
    try:
        with torch.device("meta"):
            expected = {key: tuple(value.shape) for key, value in make().state_dict().items()}
    finally:
        hook.remove()
    shapes = {key: value.shape for key, value in arrays.items()}
    differing = sorted(key for key in expected.keys() | shapes if expected.get(key) != shapes.get(key))
    if differing:
        raise ValueError(f"the weights belong to another network: {', '.join(differing[:3])}")
