"""`CompiledEncoder`: it computes the inducing points of a block on a CPU, without torch.

It computes what `GenotypeSPIN.encode` computes, one haplotype after the other. A haplotype differs from the
reference alleles at few untyped sites, and belongs to few inducing points: only these are added up.

Axes: N panel haplotypes, H inducing points (padded to a multiple of LANES), S typed places, D columns,
V = 2^K K-mers, R K-mers that haplotypes have (pairs of a column and a K-mer), C compared untyped sites, U
imputed sites, E entries: alleles 1 of haplotypes, F = R + C + U rows of sums, M members of points.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from spinimpute.genotypes.blocks import BlockShape, argsort_rows, group_means, initial_groups
from spinimpute.genotypes.kmers import cut_columns, token_numbers
from spinimpute.hmm.lanes import load, store
from spinimpute.hmm.parameters import LANES
from spinimpute.nn import SMALLEST_MASS
from spinimpute.panels.panel_blocks import EncodedBlock, Members, PanelBlock
from spinimpute.predictors.spin.compiled.attention import largest_of_row, sum_of_row
from spinimpute.predictors.spin.compiled.columns import (
    ColumnNetwork,
    add_kmer_probabilities,
    confusion_of,
    log_priors,
)
from spinimpute.predictors.spin.engine import not_finite
from spinimpute.predictors.spin.settings import (
    ALLELE_ERROR,
    MIN_KMER_PROBABILITY,
    MIN_MEMBER,
    RARITY_EXPONENT,
    UNTYPED_WEIGHT,
    SPINSettings,
)
from spinimpute.runtime.fast_math import fast_exp
from spinimpute.runtime.kernels import kernel

# Smaller shares of a haplotype in a point are not added up; but all are if the point has less mass than
# SMALL_MASS, because its haplotypes may belong to it in the next round.
MIN_SHARE, SMALL_MASS = 1e-9, 0.1
MAX_LOST = 0.01  # share of the haplotypes that may belong to no point, by rounding
SMALLEST_SHARE = 1e-12  # smaller means are set to 0: arithmetic on tiny numbers is slow
HAPLOTYPES_AT_ONCE = 64  # haplotypes whose scores are computed together, so that keys stay in the cache
COLUMNS_AT_ONCE = 4  # vectors of points whose scores are computed together: their sums fit into registers


class Alleles(NamedTuple):
    """The alleles of a block's haplotypes, as rows of the sums."""

    kmer_row_ND: np.ndarray  # int64
    first_N1: np.ndarray  # int64; the entries of haplotype n are [first_N1[n], first_N1[n + 1])
    row_E: np.ndarray  # uint32; rows of compared sites or of imputed sites where the haplotype has allele 1


class Sums(NamedTuple):
    """What a round adds up, and the alleles at imputed sites, which have no entries before the last round."""

    sum_FH: np.ndarray  # sums of K-mers, of alleles 1 at compared sites, and of those at imputed sites
    mass_H: np.ndarray
    first_label_N1: np.ndarray  # as in `Alleles`
    label_row_E: np.ndarray


@kernel()
def _count_ones(allele_XN, count_N):  # type: ignore[no-untyped-def]
    """Add the number of alleles 1 of each haplotype to count_N."""
    for x in range(len(allele_XN)):
        for n in range(len(count_N)):
            count_N[n] += allele_XN[x, n]


@kernel()
def _list_ones(allele_XN, first_row, next_N, row_E):  # type: ignore[no-untyped-def]
    """Write the rows of the alleles 1 of each haplotype, from next_N on; site x has the row first_row + x."""
    for x in range(len(allele_XN)):
        for n in range(len(next_N)):
            if allele_XN[x, n]:
                row_E[next_N[n]] = first_row + x
                next_N[n] += 1


def _ones(allele_XN: np.ndarray, first_row: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the first entry of each haplotype (N + 1,), and the rows of all entries; see `Alleles`."""
    count_N = np.zeros(allele_XN.shape[1], np.int64)
    _count_ones(allele_XN, count_N)
    first_N1 = np.concatenate([[0], count_N.cumsum()])
    row_E = np.empty(first_N1[-1], np.uint32)
    _list_ones(allele_XN, first_row, first_N1[:-1].copy(), row_E)
    return first_N1, row_E


@kernel(fast=True)
def _score(order_B, alleles, key_RH, prior_H, score_BH):  # type: ignore[no-untyped-def]
    """Write the scores of some haplotypes with all points."""
    kmer_row_ND, first_N1, row_E = alleles
    row = key_RH.shape[1] // LANES
    for column in range(0, row, COLUMNS_AT_ONCE):
        for b in range(len(order_B)):
            n = order_B[b]
            s0, s1 = load(prior_H, column * LANES), load(prior_H, (column + 1) * LANES)
            s2, s3 = load(prior_H, (column + 2) * LANES), load(prior_H, (column + 3) * LANES)
            for d in range(kmer_row_ND.shape[1]):
                at = kmer_row_ND[n, d] * row + column
                s0 += load(key_RH, at)
                s1 += load(key_RH, at + 1)
                s2 += load(key_RH, at + 2)
                s3 += load(key_RH, at + 3)
            for e in range(first_N1[n], first_N1[n + 1]):
                at = row_E[e] * row + column
                s0 += load(key_RH, at)
                s1 += load(key_RH, at + 1)
                s2 += load(key_RH, at + 2)
                s3 += load(key_RH, at + 3)
            to = b * row + column
            store(score_BH, to, s0)
            store(score_BH, to + 1, s1)
            store(score_BH, to + 2, s2)
            store(score_BH, to + 3, s3)


@kernel(fast=True)
def _assign(order_N, alleles, key_RH, prior_H, n_points, score_BH, normaliser_2N, sums, members):  # type: ignore[no-untyped-def]
    """Assign all haplotypes to points, and add up their alleles; return the number of members.

    key_RH are the scores of K-mers, then of alleles 1 at compared sites. `members` has room for all shares
    from MIN_MEMBER on, or for none. The shares of haplotype n are normaliser_2N[1, n] times the exponentials
    of its scores minus normaliser_2N[0, n].
    """
    haplotype_M, point_M, share_M = members
    n_members = 0
    for i in range(len(order_N)):
        n, b = order_N[i], i % len(score_BH)
        if b == 0:
            _score(order_N[i : i + len(score_BH)], alleles, key_RH, prior_H, score_BH)
        best = largest_of_row(score_BH, b, n_points)
        for h in range(n_points):
            score_BH[b, h] = fast_exp(min(score_BH[b, h] - best, np.float32(0)))
        for h in range(n_points, score_BH.shape[1]):
            score_BH[b, h] = np.float32(0)
        scale = np.float32(1) / sum_of_row(score_BH, b)
        normaliser_2N[0, n], normaliser_2N[1, n] = best, scale
        for h in range(n_points):
            share = score_BH[b, h] * scale
            if share > np.float32(MIN_SHARE):
                _add(n, h, share, alleles, sums)
                if share >= np.float32(MIN_MEMBER) and len(haplotype_M):
                    haplotype_M[n_members], point_M[n_members], share_M[n_members] = n, h, share
                    n_members += 1
    return n_members


@kernel(fast=True)
def _add_small_shares(order_N, alleles, key_RL, prior_L, small_L, normaliser_2N, sums):  # type: ignore[no-untyped-def]
    """Add up the alleles of all haplotypes for the points small_L, whose sums are 0; see `_assign`."""
    kmer_row_ND, first_N1, row_E = alleles
    score_L = np.empty(len(small_L), np.float32)
    for n in order_N:
        for i in range(len(small_L)):
            score_L[i] = prior_L[i] - normaliser_2N[0, n]
        for d in range(kmer_row_ND.shape[1]):
            row = kmer_row_ND[n, d]
            for i in range(len(small_L)):
                score_L[i] += key_RL[row, i]
        for e in range(first_N1[n], first_N1[n + 1]):
            row = row_E[e]
            for i in range(len(small_L)):
                score_L[i] += key_RL[row, i]
        for i in range(len(small_L)):
            # the exponential is 0 below -103, as in float32
            if score_L[i] > np.float32(-103):
                share = np.float32(math.exp(min(score_L[i], np.float32(0)))) * normaliser_2N[1, n]
                _add(n, small_L[i], share, alleles, sums)


@kernel(fast=True)
def _add(n, h, share, alleles, sums):  # type: ignore[no-untyped-def]
    """Add the alleles of haplotype n to the sums of point h."""
    kmer_row_ND, first_N1, row_E = alleles
    sum_FH, mass_H, first_label_N1, label_row_E = sums
    mass_H[h] += share
    for d in range(kmer_row_ND.shape[1]):
        sum_FH[kmer_row_ND[n, d], h] += share
    for e in range(first_N1[n], first_N1[n + 1]):
        sum_FH[row_E[e], h] += share
    for e in range(first_label_N1[n], first_label_N1[n + 1]):
        sum_FH[label_row_E[e], h] += share


class _Context(NamedTuple):
    """The haplotypes of a block, and what does not change between rounds."""

    order_N: np.ndarray  # the order in which haplotypes are added up
    alleles: Alleles
    labels: tuple[np.ndarray, np.ndarray]  # alleles at imputed sites, as the last two fields of `Sums`
    occurs_DV: np.ndarray  # whether a haplotype has the K-mer, bool
    column_weight_D: np.ndarray
    site_weight_C: np.ndarray
    n_labels: int

    @property
    def n_kmers(self) -> int:
        """The number R of K-mers."""
        return int(self.occurs_DV.sum())


class _Points(NamedTuple):
    """Inducing points between two rounds, float32."""

    token_DVH: np.ndarray
    compared_CH: np.ndarray  # mean alleles at compared sites
    label_UH: np.ndarray  # mean alleles at imputed sites; U = 0 before the last round
    mass_H: np.ndarray


class CompiledEncoder:
    """The encoder of SPIN. `weights` are checked.

    `inducing_points` is the maximum number of inducing points of a block, `shape` the shape of blocks.
    """

    def __init__(
        self,
        weights: Mapping[str, np.ndarray],
        settings: SPINSettings,
        inducing_points: int,
        shape: BlockShape,
    ) -> None:
        self.settings, self.inducing_points, self.shape = settings, inducing_points, shape
        self._columns = ColumnNetwork(weights, settings)
        self._confusion_VV = confusion_of(weights)
        self._prior = float(weights["encoder.prior"])

    def encode(self, block: PanelBlock, *, with_members: bool = False) -> EncodedBlock:
        """Return the inducing points of a block of the panel, see `BlockPredictor.encode`.

        Raises InputError if the weights are not those of a model.
        """
        group_N = initial_groups(block.typed_NS, self.inducing_points, self.shape)
        x_NX = np.concatenate([block.typed_NS, block.compared_NC], axis=1)
        start_HX = group_means(x_NX, group_N)
        n_points, n_typed = len(start_HX), block.typed_NS.shape[1]
        # sorted, so that the rounding of sums does not depend on the order of the panel's samples
        context = self._context(block, argsort_rows(x_NX), n_points)
        points = _Points(
            _products(start_HX[:, :n_typed], self.settings.k),
            start_HX[:, n_typed:].T,
            np.zeros((0, n_points), np.float32),
            np.ones(n_points, np.float32),
        )
        for _ in range(self.settings.rounds - 1):
            points, _ = self._next(context, points)
        points, members = self._next(context, points, with_labels=True, with_members=with_members)
        encoded = {
            "feature_BHF": np.ascontiguousarray(points.token_DVH.reshape(-1, n_points).T),
            "label_BHU": np.ascontiguousarray(points.label_UH.T),
            "mass_BH": points.mass_H,
        }
        found = _sorted(*members) if with_members else None
        k = self.settings.k
        return EncodedBlock(
            block.places, block.frequency_S, block.sites, block.n_haplotypes, k, encoded, found
        )

    def _context(self, block: PanelBlock, order_N: np.ndarray, n_points: int) -> _Context:
        kmer_ND = token_numbers(block.typed_NS, self.settings.k)
        column_D = np.arange(kmer_ND.shape[1])
        occurs_DV = np.zeros((len(column_D), 2**self.settings.k), bool)
        occurs_DV[column_D, kmer_ND] = True
        row_DV = np.cumsum(occurs_DV).reshape(occurs_DV.shape) - 1
        n_kmers, compared_CN = int(occurs_DV.sum()), np.ascontiguousarray(block.compared_NC.T)
        variance_C = block.compared_frequency_C * (1 - block.compared_frequency_C)
        weight_C = np.where(variance_C > 0, UNTYPED_WEIGHT * (variance_C + 1e-3) ** -RARITY_EXPONENT, 0)
        return _Context(
            order_N,
            Alleles(row_DV[column_D, kmer_ND], *_ones(compared_CN, n_kmers)),
            _ones(block.alleles_UN, n_kmers + len(compared_CN)),
            occurs_DV,
            self._columns.of(block, n_points).encoder_D,
            weight_C.astype(np.float32),
            len(block.alleles_UN),
        )

    def _next(
        self, context: _Context, points: _Points, *, with_labels: bool = False, with_members: bool = False
    ) -> tuple[_Points, tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Return the points of the next round and, `with_members`, the members of points."""
        order_N, alleles, labels, occurs_DV = context[:4]
        n_haplotypes, n_points, n_kmers = len(order_N), len(points.mass_H), context.n_kmers
        with np.errstate(over="ignore", invalid="ignore"):
            key_RH, prior_H = self._keys(context, points)
        if not (np.isfinite(key_RH).all() and np.isfinite(prior_H).all()):
            raise not_finite()
        n_features, n_padded = key_RH.shape
        sums = Sums(
            np.zeros((n_features + context.n_labels * with_labels, n_padded), np.float32),
            np.zeros(n_padded, np.float32),
            *(labels if with_labels else (np.zeros(n_haplotypes + 1, np.int64), np.zeros(0, np.int64))),
        )
        most = n_haplotypes * min(n_points, int(1 / MIN_MEMBER)) * with_members
        members = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, np.float64)
        score_BH = np.zeros((HAPLOTYPES_AT_ONCE, n_padded), np.float32)
        normaliser_2N = np.empty((2, n_haplotypes), np.float32)
        n_members = _assign(
            order_N, alleles, key_RH, prior_H, n_points, score_BH, normaliser_2N, sums, members
        )
        # a point without haplotypes gets none in later rounds
        small_L = np.flatnonzero((sums.mass_H[:n_points] < SMALL_MASS) & (points.mass_H > 0))
        if len(small_L):
            sums.sum_FH[:, small_L], sums.mass_H[small_L] = 0, 0
            key_RL = np.ascontiguousarray(key_RH[:, small_L])
            _add_small_shares(order_N, alleles, key_RL, prior_H[small_L], small_L, normaliser_2N, sums)
        mass_H = sums.mass_H[:n_points]
        if not abs(mass_H.sum(dtype=np.float64) - n_haplotypes) < MAX_LOST * n_haplotypes:
            raise not_finite()
        mean_FH = sums.sum_FH[:, :n_points] / np.maximum(mass_H, SMALLEST_MASS)
        mean_FH[mean_FH < SMALLEST_SHARE] = 0
        token_DVH = np.zeros((*occurs_DV.shape, n_points), np.float32)
        token_DVH[occurs_DV] = mean_FH[:n_kmers]
        haplotype_M, point_M, share_M = (array[:n_members] for array in members)
        found = _Points(token_DVH, mean_FH[n_kmers:n_features], mean_FH[n_features:], mass_H)
        return found, (haplotype_M, point_M, share_M)

    def _keys(self, context: _Context, points: _Points) -> tuple[np.ndarray, np.ndarray]:
        """Return the scores of K-mers and alleles 1 with each point, (R + C, H), and of no allele 1, (H,)."""
        weight_C, n_points = context.site_weight_C[:, None], len(points.mass_H)
        column_R, kmer_R = np.nonzero(context.occurs_DV)
        n_padded = -(-n_points // (COLUMNS_AT_ONCE * LANES)) * COLUMNS_AT_ONCE * LANES
        likelihood_RH = np.full((len(column_R), n_points), MIN_KMER_PROBABILITY, np.float32)
        add_kmer_probabilities(points.token_DVH, self._confusion_VV, column_R, kmer_R, likelihood_RH)
        p_CH = points.compared_CH + np.float32(2 * ALLELE_ERROR) * (np.float32(0.5) - points.compared_CH)
        reference_CH = weight_C * np.log1p(-p_CH)
        key_RH = np.zeros((len(column_R) + len(weight_C), n_padded), np.float32)
        key_RH[: len(column_R), :n_points] = np.log(likelihood_RH)
        key_RH[: len(column_R)] *= context.column_weight_D[column_R, None]
        key_RH[len(column_R) :, :n_points] = weight_C * np.log(p_CH) - reference_CH
        prior_H = np.zeros(n_padded, np.float32)
        prior_H[:n_points] = log_priors(points.mass_H, self._prior) + reference_CH.sum(0)
        return key_RH, prior_H


def _products(allele_HS: np.ndarray, k: int) -> np.ndarray:
    """Return the tokens of points with independent alleles at the places of a column, float32 (D, V, H)."""
    p_HDK = cut_columns(allele_HS, k)
    token_HDV = np.ones((*p_HDK.shape[:2], 1), np.float32)
    for i in range(k):
        p_HD1 = p_HDK[..., i : i + 1]
        token_HDV = np.stack([token_HDV * (1 - p_HD1), token_HDV * p_HD1], -1)
        token_HDV = token_HDV.reshape(*p_HDK.shape[:2], -1)
    return np.ascontiguousarray(token_HDV.transpose(1, 2, 0))


def _sorted(haplotype_M: np.ndarray, point_M: np.ndarray, share_M: np.ndarray) -> Members:
    """Return members in the order of haplotypes."""
    order_M = np.argsort(haplotype_M, kind="stable")
    return Members(haplotype_M[order_M], point_M[order_M], share_M[order_M])
