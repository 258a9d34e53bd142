"""Triton kernels of the attention of queries to inducing points, for NVIDIA GPUs.

They compute `GenotypeSPIN.attend`, after the matching, and `LabelDecoder.read`. Plain torch reads and writes
arrays of all pairs of a query and a point about fifteen times, and these kernels three times.

Axes: B blocks, Q queries, H inducing points, G heads that sum over columns, P heads of the pair network, A =
G + P heads, F features of runs, J hidden features of the pair network.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import nn

from spinimpute.nn import NO_POINT
from spinimpute.predictors.spin.decoder import HeadAttention
from spinimpute.predictors.spin.matching import AttentionKeys, Match
from spinimpute.predictors.spin.network import GenotypeSPIN
from spinimpute.predictors.spin.settings import ENTROPY_OFFSET, MIN_LOG_MASS, MIN_SCORE, size_feature

POINTS_PER_PROGRAM = 256


def attend_with_triton(network: GenotypeSPIN, matched: Match, keys: AttentionKeys) -> HeadAttention:
    """Return the attention of the heads, with its summaries."""
    score_BGQH, runs_BFQH = matched
    b, g, q, h = score_BGQH.shape
    first, last = network.pair[0], network.pair[2]
    assert isinstance(first, nn.Linear)
    assert isinstance(last, nn.Linear)
    n_runs, n_hidden, n_pair = runs_BFQH.shape[1], len(first.weight), len(last.weight)
    weight_JF, mass_weight_J, size_weight_J, points_weight_J = first.weight.split(
        [n_runs + g, 1, 1, 1], dim=1
    )
    # the last two features are equal for all pairs of a block
    bias_BJ = first.bias + size_weight_J.T * size_feature(keys.columns.n_haplotypes)
    bias_BJ = bias_BJ + keys.points_B.unsqueeze(-1) * points_weight_J.T
    log_mass_BH = keys.log_mass_BH.contiguous()
    best_BGQ = score_BGQH.new_empty((b, g, q))
    row = triton.next_power_of_2(h)
    _best_kernel[(q, g, b)](score_BGQH, log_mass_BH, best_BGQ, q, h, g, NO_POINT, ROW=row)
    attention_BAQH = score_BGQH.new_empty((b, g + n_pair, q, h))
    _logit_kernel[(triton.cdiv(h, POINTS_PER_PROGRAM), q, b)](
        score_BGQH,
        runs_BFQH,
        best_BGQ,
        log_mass_BH,
        network.prior,
        weight_JF.contiguous(),
        (mass_weight_J / 3).contiguous(),
        bias_BJ.contiguous(),
        last.weight,
        last.bias,
        attention_BAQH,
        q,
        h,
        MIN_SCORE,
        MIN_LOG_MASS,
        F=n_runs,
        G=g,
        J=n_hidden,
        P=n_pair,
        POINTS=POINTS_PER_PROGRAM,
    )
    summary_BQC = score_BGQH.new_empty((b, q, 2 * (g + n_pair)))
    _softmax_kernel[(q, g + n_pair, b)](
        attention_BAQH, log_mass_BH, summary_BQC, q, h, g + n_pair, NO_POINT, ENTROPY_OFFSET, ROW=row
    )
    return HeadAttention(attention_BAQH, summary_BQC)


@triton.jit(do_not_specialize=["Q"])
def _best_kernel(  # type: ignore[no-untyped-def]
    score_p, log_mass_p, best_p, Q, H, heads, absent, ROW: tl.constexpr
):  # fmt: skip
    """Write the best score of each query and head."""
    b = tl.program_id(2).to(tl.int64)
    row = (b * heads + tl.program_id(1)) * Q + tl.program_id(0)
    h = tl.arange(0, ROW)
    mass_H = tl.load(log_mass_p + b * H + h, mask=h < H, other=absent)
    score_H = tl.load(score_p + row * H + h, mask=h < H, other=absent)
    tl.store(best_p + row, tl.max(tl.where(mass_H > absent / 2, score_H, absent)))


@triton.jit(do_not_specialize=["Q"])
def _logit_kernel(  # type: ignore[no-untyped-def]
    score_p, runs_p, best_p, log_mass_p, prior_p, weight_p, mass_weight_p, bias_p, last_weight_p, last_bias_p,
    logit_p, Q, H, min_score, min_log_mass,
    F: tl.constexpr, G: tl.constexpr, J: tl.constexpr, P: tl.constexpr, POINTS: tl.constexpr,
):  # fmt: skip
    """Write the logits of all heads."""
    h = tl.program_id(0) * POINTS + tl.arange(0, POINTS)
    q = tl.program_id(1)
    b = tl.program_id(2).to(tl.int64)
    inside = h < H
    mass_H = tl.load(log_mass_p + b * H + h, mask=inside, other=0.0)
    features = ()
    for f in tl.static_range(F):
        features += (tl.load(runs_p + ((b * F + f) * Q + q) * H + h, mask=inside, other=0.0),)  # type: ignore[assignment]
    for g in tl.static_range(G):
        row = (b * G + g) * Q + q
        score_H = tl.load(score_p + row * H + h, mask=inside, other=0.0)
        features += (tl.maximum(score_H - tl.load(best_p + row), min_score) / 8,)  # type: ignore[assignment]
        out_H = score_H + tl.load(prior_p + g) * mass_H
        tl.store(logit_p + ((b * (G + P) + g) * Q + q) * H + h, out_H, mask=inside)
    clamped_H = tl.maximum(mass_H, min_log_mass)
    hidden = ()
    for j in tl.static_range(J):
        sum_H = tl.load(bias_p + b * J + j) + tl.load(mass_weight_p + j) * clamped_H
        for f in tl.static_range(F + G):
            sum_H += tl.load(weight_p + j * (F + G) + f) * features[f]
        hidden += (tl.maximum(sum_H, 0.0),)  # type: ignore[assignment]
    for p in tl.static_range(P):
        out_H = tl.load(last_bias_p + p) + mass_H
        for j in tl.static_range(J):
            out_H += tl.load(last_weight_p + p * J + j) * hidden[j]
        tl.store(logit_p + ((b * (G + P) + G + p) * Q + q) * H + h, out_H, mask=inside)


@triton.jit(do_not_specialize=["Q"])
def _softmax_kernel(  # type: ignore[no-untyped-def]
    logit_p, log_mass_p, summary_p, Q, H, heads, absent, offset, ROW: tl.constexpr
):  # fmt: skip
    """Replace the logits by their softmax, and write its entropy and its largest weight."""
    b = tl.program_id(2).to(tl.int64)
    q, head = tl.program_id(0), tl.program_id(1)
    row = (b * heads + head) * Q + q
    h = tl.arange(0, ROW)
    mass_H = tl.load(log_mass_p + b * H + h, mask=h < H, other=absent)
    logit_H = tl.load(logit_p + row * H + h, mask=h < H, other=absent)
    logit_H = tl.where(mass_H > absent / 2, logit_H, absent)
    weight_H = tl.exp(logit_H - tl.max(logit_H))
    attention_H = weight_H / tl.sum(weight_H)
    tl.store(logit_p + row * H + h, attention_H, mask=h < H)
    entropy = -tl.sum(attention_H * tl.log(attention_H + offset)) / 3
    tl.store(summary_p + (b * Q + q) * 2 * heads + head, entropy)
    tl.store(summary_p + (b * Q + q) * 2 * heads + heads + head, tl.max(attention_H))
