"""Comparison of queries with inducing points: scores for each head, and the matched length on each side.

The typed places of a block are cut into columns of K. For each column, the match is the log-likelihood of the
query's K-mer, given the inducing point. The comparison yields:

- a score for each head: the weighted sum of the matches of all columns;
- runs, which measure how far query and point match without interruption. A run starts at the middle of the
  block and goes to one side. It sums genetic lengths and information (minus the log frequency of the query's
  K-mer) over the columns. The weight of a column is exp(tolerance x sum of the matches from the middle to
  this column). It is close to 1 until the first mismatch and small after it. There are T tolerances, each
  twice the one before.

`match` is used in training and on GPUs. `compiled.matching` and `gpu.matching` are compiled copies of it.

Axes: B blocks, Q queries, H inducing points, S typed places of a block, D columns of K places, V = 2^K
K-mers, G heads, T tolerances, F = 4 T features of runs. A digit is an axis of that length.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from spinimpute.predictors.spin.kmers import kmer_distribution, split_columns
from spinimpute.predictors.spin.settings import DISTANCE_OFFSET
from spinimpute.predictors.spin.similarity import Columns


class AttentionKeys(NamedTuple):
    """The part of the attention to a block's inducing points that does not depend on the queries."""

    likelihood_BDVH: Tensor  # log-likelihood of each K-mer, given an inducing point
    information_BDV: Tensor  # minus the log of a K-mer's frequency in the panel
    log_mass_BH: Tensor
    weight_BGD: Tensor  # weights of the columns in the scores of each head
    points_B: Tensor  # `network.points_feature` of the number of inducing points
    columns: Columns


class Match(NamedTuple):
    """The comparison of queries with inducing points, see the module's header."""

    score_BGQH: Tensor  # weighted sums of the matches of all columns
    # scaled logs: T lengths and T information sums of the runs to the left, then of the runs to the right
    runs_BFQH: Tensor


Matcher = Callable[[Tensor, Tensor, AttentionKeys, int, Tensor, int], Match]


def match(
    allele_BQS: Tensor, known_BQS: Tensor, keys: AttentionKeys, k: int, min_tolerance: Tensor, tolerances: int
) -> Match:
    """Compare queries with inducing points.

    known_BQS is 0 where a call is missing. `tolerances` is T, and `min_tolerance` the smallest of them.
    """
    # padding is 0 in all haplotypes, so it matches
    valid_B1S = keys.columns.valid_BS.unsqueeze(1)
    observed_BQS = torch.where(known_BQS > 0, allele_BQS, 0.5) * valid_B1S
    token_BDQV = kmer_distribution(observed_BQS, k).transpose(1, 2)
    # With m missing calls, a query may have 2^m K-mers. Its token averages over these K-mers. The likelihood
    # is their sum, so the log of their number is added.
    missing_BQD = split_columns((known_BQS <= 0) * valid_B1S, k).sum(-1)
    log_count_BDQ = math.log(2) * missing_BQD.transpose(1, 2)
    match_BDQH = (token_BDQV @ keys.likelihood_BDVH.exp()).log() + log_count_BDQ.unsqueeze(-1)
    share_BDQ = (token_BDQV @ keys.information_BDV.neg().exp().unsqueeze(-1)).squeeze(-1)
    information_BDQ = -(share_BDQ.log() + log_count_BDQ)
    score_BGQH = (keys.weight_BGD @ match_BDQH.flatten(2)).unflatten(-1, match_BDQH.shape[2:])
    step_BD, valid_BD, n_columns = run_steps(keys.columns), keys.columns.valid_BD, match_BDQH.shape[1]
    runs = []
    weighted_BDQH = match_BDQH * valid_BD[:, :, None, None]
    information_BDQ1 = (information_BDQ * valid_BD.unsqueeze(-1)).unsqueeze(-1)
    middle = n_columns // 2
    for side in (slice(0, middle + 1), slice(middle, n_columns)):
        side_BDQH = weighted_BDQH[:, side]
        to_the_left = side.start == 0
        cumulative_BDQH = (side_BDQH.flip(1) if to_the_left else side_BDQH).cumsum(1)
        run_weight_BDQH = torch.exp(
            min_tolerance * (cumulative_BDQH.flip(1) if to_the_left else cumulative_BDQH)
        )
        lengths, informations = [], []
        for _ in range(tolerances):
            lengths.append((step_BD[:, None, side] @ run_weight_BDQH.flatten(2)).view_as(match_BDQH[:, 0]))
            informations.append((information_BDQ1[:, side] * run_weight_BDQH).sum(1))
            run_weight_BDQH = run_weight_BDQH.square()
        runs += [torch.log(length + DISTANCE_OFFSET) / 4 + 1 for length in lengths]
        runs += [torch.log1p(information.clamp(min=0)) / 2 for information in informations]
    return Match(score_BGQH, torch.stack(runs, dim=1))


def run_steps(columns: Columns) -> Tensor:
    """Return the length (B, D) that a matching column adds to a run.

    It is the column's genetic distance in cM to its neighbour on the side of the block's middle.
    """
    middle = columns.cM_BD.shape[1] // 2
    between_BD = columns.cM_BD.diff(dim=1).abs()
    zero_B1 = torch.zeros_like(columns.cM_BD[:, :1])
    step_BD = torch.cat([between_BD[:, :middle], zero_B1, between_BD[:, middle:]], dim=1)
    return (step_BD + DISTANCE_OFFSET) * (columns.valid_BD > 0)
