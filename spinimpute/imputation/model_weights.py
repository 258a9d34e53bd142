"""Weights of torch modules as the arrays that checkpoints hold, and back."""

from __future__ import annotations

from collections.abc import Mapping

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
