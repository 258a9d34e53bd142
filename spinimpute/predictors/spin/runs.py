"""How far a query and an inducing point match without interruption, from the middle column to each side.

A column counts as far as all columns up to it match: by exp(tolerance x log-likelihood up to it). Each of T
tolerances is twice the one before it. What is summed is genetic length and information. `runs` is for
training and GPUs, `compiled_runs` the same for processors.

Axes: B blocks, D columns, Q queries, H inducing points, T tolerances.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from spinimpute.fast_math import fast_exp, fast_log
from spinimpute.kernels import kernel

NEAREST = 1e-4  # cM: added to distances under a logarithm


def steps(cM_BD: Tensor, valid_BD: Tensor) -> Tensor:
    """Genetic length (B, D) that a matching column adds: its distance to the next one towards the middle."""
    middle = cM_BD.shape[1] // 2
    between_BD = cM_BD.diff(dim=1).abs()
    zero_B1 = torch.zeros_like(cM_BD[:, :1])
    step_BD = torch.cat([between_BD[:, :middle], zero_B1, between_BD[:, middle:]], dim=1)
    return (step_BD + NEAREST) * (valid_BD > 0)


def runs(
    match_BDQH: Tensor,
    information_BDQ: Tensor,
    step_BD: Tensor,
    valid_BD: Tensor,
    least: Tensor,
    tolerances: int,
) -> Tensor:
    """Length and information of runs to the left, then to the right.

    Parameters
    ----------
    match_BDQH : Tensor
        Log-likelihoods of the queries' K-mers, given the inducing points.
    information_BDQ : Tensor
        What a match says.
    step_BD : Tensor
        See `steps`.
    valid_BD : Tensor
        Share of a column's places that hold a site.
    least : Tensor ()
        The smallest tolerance.
    tolerances : int
        T.

    Returns
    -------
    Tensor (B, 4T, Q, H)
        Scaled logarithms.
    """
    n_columns = match_BDQH.shape[1]
    found = []
    for side in (range(n_columns // 2, -1, -1), range(n_columns // 2, n_columns)):
        reach_BQH = torch.zeros_like(match_BDQH[:, 0])
        length_T, gained_T = [reach_BQH] * tolerances, [reach_BQH] * tolerances
        for d in side:
            reach_BQH = torch.addcmul(reach_BQH, match_BDQH[:, d], valid_BD[:, d, None, None])
            step_B11 = step_BD[:, d, None, None]
            information_BQ1 = (information_BDQ[:, d] * valid_BD[:, d, None]).unsqueeze(-1)
            open_BQH = torch.exp(least * reach_BQH)
            for t in range(tolerances):
                length_T[t] = length_T[t] + step_B11 * open_BQH
                gained_T[t] = gained_T[t] + information_BQ1 * open_BQH
                open_BQH = open_BQH * open_BQH
        found += [torch.log(length + NEAREST) / 4 + 1 for length in length_T]
        found += [torch.log1p(gained.clamp(min=0)) / 2 for gained in gained_T]
    return torch.stack(found, dim=1)


def compiled_runs(
    match_BDQH: Tensor,
    information_BDQ: Tensor,
    step_BD: Tensor,
    valid_BD: Tensor,
    least: Tensor,
    tolerances: int,
) -> Tensor:
    """As `runs`, of one block (B = 1), on a processor."""
    _, _, n_queries, n_points = match_BDQH.shape
    out_FQH = np.empty((4 * tolerances, n_queries, n_points), dtype=np.float32)
    _runs(
        match_BDQH[0].numpy(),
        information_BDQ[0].contiguous().numpy(),
        step_BD[0].numpy(),
        valid_BD[0].contiguous().numpy(),
        np.float32(least),
        out_FQH,
    )
    return torch.from_numpy(out_FQH)[None]


@kernel(fast=True)
def _runs(match_DQH, information_DQ, step_D, valid_D, least, out_FQH):  # type: ignore[no-untyped-def]
    n_columns, n_queries, n_points = match_DQH.shape
    tolerances = len(out_FQH) // 4
    reach_H, open_H = np.empty(n_points, np.float32), np.empty(n_points, np.float32)
    one, zero = np.float32(1), np.float32(0)
    for q in range(n_queries):
        out_FQH[:, q] = zero
        for side in range(2):
            of_length, of_gained = 2 * side * tolerances, (2 * side + 1) * tolerances
            reach_H[:] = zero
            for i in range(n_columns // 2 + 1 if side == 0 else n_columns - n_columns // 2):
                d = n_columns // 2 + (i if side else -i)
                weight, step, information = least * valid_D[d], step_D[d], information_DQ[d, q] * valid_D[d]
                match_H = match_DQH[d, q]
                for h in range(n_points):
                    reach_H[h] += weight * match_H[h]
                    open_H[h] = fast_exp(reach_H[h])
                for t in range(tolerances):
                    length_H, gained_H = out_FQH[of_length + t, q], out_FQH[of_gained + t, q]
                    for h in range(n_points):
                        length_H[h] += step * open_H[h]
                        gained_H[h] += information * open_H[h]
                        open_H[h] *= open_H[h]
            for t in range(tolerances):
                length_H, gained_H = out_FQH[of_length + t, q], out_FQH[of_gained + t, q]
                for h in range(n_points):
                    length_H[h] = fast_log(length_H[h] + np.float32(NEAREST)) * np.float32(0.25) + one
                    gained_H[h] = fast_log(one + max(gained_H[h], zero)) * np.float32(0.5)
