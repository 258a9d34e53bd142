"""Rounding of inducing points as in a file, on a GPU; see `panels.soft_alleles`.

Axes: B blocks, H inducing points, D columns, V K-mers, U sites that a block imputes, L rows.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from torch import Tensor

from spinimpute.panels.soft_alleles import (
    LABEL_STEPS,
    LABEL_VALUES,
    MASS_FACTOR,
    REMAINDER_MARGIN,
    TOKEN_STEPS,
    label_levels,
)


def round_on_device(token_BHDV: Tensor, label_BHU: Tensor, mass_BH: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the tokens, labels and masses of several blocks, rounded as in a file."""
    scaled_BHDV = token_BHDV * TOKEN_STEPS
    code_BHDV = scaled_BHDV.floor()
    missing_BHD1 = TOKEN_STEPS - code_BHDV.sum(-1, keepdim=True)
    code_BHDV += _largest(scaled_BHDV - code_BHDV, missing_BHD1)
    limits, values = _label_levels_on(label_BHU.device)
    level_BHU = torch.bucketize(label_BHU, limits, right=True)
    return (
        code_BHDV / TOKEN_STEPS,
        values[level_BHU],
        (mass_BH * MASS_FACTOR).to(torch.bfloat16).to(mass_BH.dtype),
    )


@cache
def _label_levels_on(device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the smallest label of each level but the first, by bisection, and the value of each level."""
    low, high = np.zeros(LABEL_STEPS, np.int32), np.full(LABEL_STEPS, np.float32(1).view(np.int32))
    while (low < high).any():  # positive floats have the order of their bits
        middle = (low + high) // 2
        reached = label_levels(middle.view(np.float32)) > np.arange(LABEL_STEPS)
        low, high = np.where(reached, low, middle + 1), np.where(reached, middle, high)
    return torch.from_numpy(low.view(np.float32)).to(device), torch.from_numpy(LABEL_VALUES).to(device)


def _largest(x_LV: Tensor, count_L1: Tensor) -> Tensor:
    """Return the entries that are the `count` largest of their row, bool (L, V); ties go by order."""
    sorted_LV = x_LV.sort(dim=-1, descending=True).values
    smallest_L1 = sorted_LV.gather(-1, (count_L1.long() - 1).clamp(0, x_LV.shape[-1] - 1))
    above_LV = x_LV > smallest_L1 + REMAINDER_MARGIN
    tied_LV = (x_LV >= smallest_L1 - REMAINDER_MARGIN) & ~above_LV
    n_tied_L1 = count_L1 - above_LV.sum(-1, keepdim=True)
    return above_LV | tied_LV & (tied_LV.cumsum(-1) <= n_tied_L1)
