"""Attention weights of chosen layers, recorded while a network runs.

Axes: see `spinimpute.nn`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from spinimpute.nn.attention import MultiHeadAttention


def attention_weights(
    attention: MultiHeadAttention, x_BLW: Tensor, h_BMV: Tensor, visible_BM: Tensor | None = None
) -> Tensor:
    """Compute the whole matrix of weights that attention never holds.

    Parameters
    ----------
    attention : MultiHeadAttention
        The layer.
    x_BLW, h_BMV, visible_BM
        As of `MultiHeadAttention.forward`.

    Returns
    -------
    Tensor (B, G, L, M)
        Rows sum to 1.
    """
    k_BGMP, _ = attention.keys_values(h_BMV)
    score_BGLM = attention.queries(x_BLW) @ k_BGMP.mT * attention.scale
    if visible_BM is not None:
        score_BGLM = score_BGLM.masked_fill(~visible_BM[:, None, None, :], -torch.inf)
    return torch.softmax(score_BGLM, -1)


@contextmanager
def recorded_attention(layers: Sequence[MultiHeadAttention]) -> Iterator[list[Tensor]]:
    """A list to which every run of these layers, in the order they run, adds its weights (B, G, L, M).

    Only calls of the whole layer are seen, not streamed attention.
    """
    maps: list[Tensor] = []

    def record(attention: torch.nn.Module, given: tuple[Any, ...], output: Tensor) -> None:
        del output
        assert isinstance(attention, MultiHeadAttention)
        with torch.no_grad():
            maps.append(attention_weights(attention, *given))

    handles = [attention.register_forward_hook(record) for attention in layers]
    try:
        yield maps
    finally:
        for handle in handles:
            handle.remove()
