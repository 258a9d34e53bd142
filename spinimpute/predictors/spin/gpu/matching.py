"""The Triton kernel of SPIN's `match`, for NVIDIA GPUs; see `matching` for what it computes.

The K calls of a column are REF, ALT or missing, so there are 3^K possible observations. A table holds the
log-likelihood of each observation, given each inducing point, and the kernel only looks up its rows. If no
call is missing, the table has the 2^K K-mers.

Axes: B blocks, Q queries, H inducing points, D columns, R rows of the table for a column, G heads, T
tolerances, F = 4 T features of runs.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from spinimpute.predictors.spin.kmers import split_columns
from spinimpute.predictors.spin.matching import AttentionKeys, Match, run_steps
from spinimpute.predictors.spin.settings import DISTANCE_OFFSET

POINTS_PER_PROGRAM = 256


class TritonMatcher:
    """A `Matcher` for the keys of some blocks; `missing` says whether queries may have missing calls."""

    def __init__(self, keys: AttentionKeys, k: int, *, missing: bool) -> None:
        self._base = 3 if missing else 2
        self._table_BDRH, self._information_BDR = keys.likelihood_BDVH, keys.information_BDV
        if missing:
            self._table_BDRH = _with_missing(keys.likelihood_BDVH.exp(), k).log()
            self._information_BDR = (
                -_with_missing(keys.information_BDV.neg().exp().unsqueeze(-1), k).log().squeeze(-1)
            )
        self._step_BD = run_steps(keys.columns).contiguous()

    def __call__(
        self,
        allele_BQS: Tensor,
        known_BQS: Tensor,
        keys: AttentionKeys,
        k: int,
        min_tolerance: Tensor,
        tolerances: int,
    ) -> Match:
        """Return the result of `match`."""
        valid_B1S = keys.columns.valid_BS.unsqueeze(1)
        digit_BQS = torch.where(known_BQS > 0, allele_BQS, 2.0) * valid_B1S
        power_K = self._base ** torch.arange(k - 1, -1, -1, device=digit_BQS.device, dtype=torch.float32)
        row_BQD = (split_columns(digit_BQS, k) @ power_K).int()
        b, q, d = row_BQD.shape
        g, h, rows = keys.weight_BGD.shape[1], keys.log_mass_BH.shape[1], self._table_BDRH.shape[2]
        score_BGQH = self._table_BDRH.new_empty((b, g, q, h))
        runs_BFQH = self._table_BDRH.new_empty((b, 4 * tolerances, q, h))
        _match_kernel[(triton.cdiv(h, POINTS_PER_PROGRAM), q, b)](
            row_BQD,
            self._information_BDR.contiguous(),
            self._table_BDRH,
            keys.weight_BGD.contiguous(),
            self._step_BD,
            keys.columns.valid_BD.contiguous(),
            min_tolerance,
            score_BGQH,
            runs_BFQH,
            q,
            h,
            rows,
            d,
            g,
            DISTANCE_OFFSET,
            G=triton.next_power_of_2(g),
            T=tolerances,
            T_PADDED=triton.next_power_of_2(tolerances),
            POINTS=POINTS_PER_PROGRAM,
        )
        return Match(score_BGQH, runs_BFQH)


def _with_missing(p_BDVL: Tensor, k: int) -> Tensor:
    """Return the probabilities (B, D, 3^K, L) of observations with missing calls, from those of K-mers."""
    b, d, _, n = p_BDVL.shape
    p = p_BDVL.reshape(b, d, *[2] * k, n)
    for axis in range(2, 2 + k):
        p = torch.cat([p, p.sum(axis, keepdim=True)], axis)
    return p.reshape(b, d, 3**k, n)


@triton.jit(do_not_specialize=["Q", "R", "D", "n_heads"])
def _match_kernel(  # type: ignore[no-untyped-def]
    row_p, information_p, table_p, weight_p, step_p, valid_p, tolerance_p, score_p, runs_p,
    Q, H, R, D, n_heads, offset,
    G: tl.constexpr, T: tl.constexpr, T_PADDED: tl.constexpr, POINTS: tl.constexpr,
):  # fmt: skip
    h = tl.program_id(0) * POINTS + tl.arange(0, POINTS)
    q = tl.program_id(1)
    b = tl.program_id(2).to(tl.int64)
    g, t = tl.arange(0, G), tl.arange(0, T_PADDED)
    inside_H = h < H
    inside_GH = (g < n_heads)[:, None] & inside_H[None, :]
    inside_TH = (t < T)[:, None] & inside_H[None, :]
    power_T1 = tl.exp2(t.to(tl.float32))[:, None]
    tolerance = tl.load(tolerance_p)
    middle = D // 2
    score_GH = tl.zeros((G, POINTS), tl.float32)
    for side in tl.static_range(2):
        cumulative_H = tl.zeros((POINTS,), tl.float32)
        length_TH = tl.zeros((T_PADDED, POINTS), tl.float32)
        information_TH = tl.zeros((T_PADDED, POINTS), tl.float32)
        for i in range(middle + 1 if side == 0 else D - middle):
            d = middle + (2 * side - 1) * i
            row = tl.load(row_p + (b * Q + q) * D + d)
            cell = (b * D + d) * R + row
            match_H = tl.load(table_p + cell * H + h, mask=inside_H, other=0.0)
            valid = tl.load(valid_p + b * D + d)
            weight_G = tl.load(weight_p + (b * n_heads + g) * D + d, mask=g < n_heads, other=0.0)
            # the middle column is on both sides, but counts once in the score
            score_GH += tl.where(side * (1 - i) > 0, 0.0, weight_G)[:, None] * match_H[None, :]
            cumulative_H += tolerance * valid * match_H
            run_weight_TH = tl.exp(cumulative_H[None, :] * power_T1)
            length_TH += tl.load(step_p + b * D + d) * run_weight_TH
            information_TH += tl.load(information_p + cell) * valid * run_weight_TH
        first = (b * 4 + 2 * side) * T
        place_TH = ((first + t)[:, None] * Q + q) * H + h[None, :]
        tl.store(runs_p + place_TH, tl.log(length_TH + offset) / 4 + 1, mask=inside_TH)
        place_TH = ((first + T + t)[:, None] * Q + q) * H + h[None, :]
        tl.store(runs_p + place_TH, tl.log(1 + tl.maximum(information_TH, 0.0)) / 2, mask=inside_TH)
    place_GH = ((b * n_heads + g)[:, None] * Q + q) * H + h[None, :]
    tl.store(score_p + place_GH, score_GH, mask=inside_GH)
