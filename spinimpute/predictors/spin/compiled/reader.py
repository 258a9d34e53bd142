"""`CompiledReader`: it imputes from the inducing points of a block on a CPU, without torch.

It computes what `GenotypeSPIN` computes from `keys` to the decoder, one query after the other, so that all
arrays of a query stay in the cache. Only K-mers that queries have are compared, and only labels that are not
0 are averaged.

Axes: Q queries, H inducing points, S typed places of a block, D columns, V = 2^K K-mers, R pairs of a column
and a K-mer, G heads, U sites to impute, F features.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from spinimpute.genotypes.kmers import token_numbers
from spinimpute.hmm.parameters import LANES
from spinimpute.panels.panel_blocks import BlockSites, EncodedBlock
from spinimpute.predictors.spin.compiled.attention import (
    PairLayers,
    QueryWeights,
    attend_query,
    attention_memory,
)
from spinimpute.predictors.spin.compiled.columns import (
    ColumnNetwork,
    add_kmer_probabilities,
    confusion_of,
    count_feature,
    linear,
    log_priors,
    two_layers,
)
from spinimpute.predictors.spin.compiled.decoder import (
    CorrectionWeights,
    Labels,
    SiteGates,
    decode_query,
    decoder_memory,
)
from spinimpute.predictors.spin.compiled.matching import PointKeys, mark_kmers, match_memory, match_query
from spinimpute.predictors.spin.settings import (
    FREQUENCY_OFFSET,
    GATE_FEATURES,
    MIN_KMER_PROBABILITY,
    MIN_SITE_FREQUENCY,
    SPINSettings,
    size_feature,
)
from spinimpute.runtime.kernels import kernel


@kernel(fast=True)
def _impute(match, weights, block, kmer_QD, missing_QD, out_QU):  # type: ignore[no-untyped-def]
    """Write P(ALT) of all queries at all sites. Return whether all are finite."""
    min_tolerance, n_runs, n_sums = match
    pair, query, correction = weights
    keys, labels, sites, n_points, size, points, memory = block
    matching, attention, decoder = memory
    x_FH, logit_GH = attention.x_FH[:n_runs], attention.logit_GH[:n_sums]
    finite = True
    for q in range(len(kmer_QD)):
        match_query(q, kmer_QD, missing_QD, keys, min_tolerance, matching, logit_GH, x_FH)
        finite &= attend_query(pair, query, keys.log_mass_H, n_points, size, points, n_sums, attention)
        finite &= decode_query(
            correction, attention.gate_G, attention.correction_W, sites, labels, attention.attention_HG,
            decoder, q, out_QU,
        )  # fmt: skip
    return finite


class CompiledReader:
    """The networks of SPIN that predict queries from inducing points. `weights` are checked."""

    def __init__(self, weights: Mapping[str, np.ndarray], settings: SPINSettings) -> None:
        self.settings, self._weights = settings, weights
        self._columns, self._confusion_VV = ColumnNetwork(weights, settings), confusion_of(weights)
        tolerance = np.logaddexp(np.float32(0), weights["tolerance"], dtype=np.float32)
        self._match = np.float32(tolerance), 4 * settings.tolerances, settings.heads
        self._layers = PairLayers.of(weights), QueryWeights.of(weights), CorrectionWeights.of(weights)

    def predict(
        self, block: EncodedBlock, wanted_U: np.ndarray, alleles_QS: np.ndarray, known_QS: np.ndarray
    ) -> np.ndarray:
        """Return P(ALT) at some sites of the block, float32 (U, Q); NaN if results are not finite.

        known_QS is 0 where a call is missing.
        """
        present_H = block.points["mass_BH"] > 0
        token_HF, label_HU, mass_H = (
            block.points[name][present_H] for name in ("feature_BHF", "label_BHU", "mass_BH")
        )
        n_points = len(mass_H)
        valid_S = block.places.valid_S
        k = self.settings.k
        kmer_QD = token_numbers(alleles_QS * known_QS * (valid_S > 0), k)
        missing_QD = token_numbers((known_QS == 0) & (valid_S > 0), k)
        keys = self._keys(block, token_HF, mass_H, kmer_QD, missing_QD)
        n_padded = keys.likelihood_RH.shape[1]
        pair, query, correction = self._layers
        memory = (
            match_memory(kmer_QD.shape[1], n_padded),
            attention_memory(pair, query, n_padded),
            decoder_memory(len(pair.prior_G), correction.first_FW.shape[1]),
        )
        size = np.float32(size_feature(block.n_haplotypes))
        sites = self._sites(block.sites, wanted_U, float(size))
        points = np.float32(count_feature(n_points))
        inputs = keys, Labels.of(label_HU[:, wanted_U]), sites, n_points, size, points, memory
        out_QU = np.empty((len(alleles_QS), len(wanted_U)), np.float32)
        if not _impute(self._match, self._layers, inputs, kmer_QD, missing_QD, out_QU):
            out_QU[:] = np.nan
        return out_QU.T

    def _keys(
        self,
        block: EncodedBlock,
        token_HF: np.ndarray,
        mass_H: np.ndarray,
        kmer_QD: np.ndarray,
        missing_QD: np.ndarray,
    ) -> PointKeys:
        """Return the part of the attention that depends on the points, for the K-mers of these queries."""
        k, n_points, n_columns = self.settings.k, len(mass_H), kmer_QD.shape[1]
        token_DVH = np.ascontiguousarray(token_HF.T, np.float32).reshape(n_columns, 2**k, n_points)
        needed_DV = np.zeros(token_DVH.shape[:2], np.uint8)
        mark_kmers(kmer_QD, missing_QD, needed_DV)
        column_R, kmer_R = np.nonzero(needed_DV)
        row_DV = np.full(needed_DV.shape, -1)
        row_DV[column_R, kmer_R] = np.arange(len(column_R))
        likelihood_RH = np.full((len(column_R), -(-n_points // LANES) * LANES), 1, np.float32)
        likelihood_RH[:, :n_points] = MIN_KMER_PROBABILITY
        add_kmer_probabilities(token_DVH, self._confusion_VV, column_R, kmer_R, likelihood_RH[:, :n_points])
        frequency_R = np.einsum("rh,h->r", token_DVH[column_R, kmer_R], mass_H / mass_H.sum())
        columns = self._columns.of(block, n_points)
        log_mass_H = np.zeros(likelihood_RH.shape[1], np.float32)
        log_mass_H[:n_points] = log_priors(mass_H, 1)
        return PointKeys(
            np.log(likelihood_RH),
            -np.log(frequency_R + np.float32(FREQUENCY_OFFSET)),
            row_DV,
            columns.head_GD,
            columns.step_D,
            columns.valid_D,
            log_mass_H,
        )

    def _sites(self, sites: BlockSites, wanted_U: np.ndarray, size: float) -> SiteGates:
        """Return what the decoder needs of some sites."""
        frequency_U = sites.frequency_U[wanted_U].clip(MIN_SITE_FREQUENCY, 1 - MIN_SITE_FREQUENCY)
        fraction_U = sites.fraction_U[wanted_U]
        x_FU = np.stack(
            [
                fraction_U,
                sites.block_fraction_U[wanted_U],
                np.log(sites.distance_U[wanted_U] + 1e-5) / 3 + 1.5,
                np.log(np.minimum(frequency_U, 1 - frequency_U)) / 4 + 1,
                np.full(len(fraction_U), size),
                fraction_U * (1 - fraction_U),
                np.log(frequency_U / (1 - frequency_U)) / 4,
            ],
            dtype=np.float32,
        )
        logit_GU = two_layers(self._weights, "decoder.gate_site", x_FU[:GATE_FEATURES])
        odds_GU = np.exp(logit_GU - logit_GU.max(0))
        bias_W = self._weights["decoder.from_heads.bias"]
        first_WU = linear(self._weights["decoder.from_site.weight"], bias_W, x_FU)
        # rows of equal length, so that the order of summation does not depend on the number of sites
        total_U = np.ascontiguousarray(odds_GU.T).sum(1)
        return SiteGates.of(odds_GU / total_U, first_WU, frequency_U)
