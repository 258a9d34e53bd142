"""Imputes with `HaplotypeAttention`: candidates, classes, weights, copies and the decoder for blocks of gaps.

Axes: S typed places of a chunk, Q queries, G gaps of a block, B blocks, K classes, U sites of a block.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from spinimpute.hmm.candidates import Candidates
from spinimpute.hmm.emissions import allele_emissions
from spinimpute.hmm.parameters import LEAST_MASS, LEAST_OF_ALIKE, MISMATCH
from spinimpute.hmm.pbwt import (
    CandidateSettings,
    Matches,
    matches_on_left,
    matches_on_right,
)
from spinimpute.hmm.posteriors import copying_posteriors
from spinimpute.hmm.transitions import jump_probabilities
from spinimpute.hmm.typed_alleles import TypedAlleles
from spinimpute.panels.panel import Panel
from spinimpute.predictors.engine import ImputationJob
from spinimpute.predictors.haplotype_attention.agreement import (
    BELIEVED,
    CERTAIN,
    DISSENT,
    NONE,
    agreed_patterns,
    fill_carried,
)
from spinimpute.predictors.haplotype_attention.chunk import (
    DENSE_CM,
    MOST_CLASSES,
    ChunkPatterns,
    PanelChunk,
)
from spinimpute.predictors.haplotype_attention.copying import RIGHTLY_PLACED, copy_block
from spinimpute.predictors.haplotype_attention.decoder_network import DecoderWeights, decode
from spinimpute.predictors.haplotype_attention.engine import HaplotypeEngine
from spinimpute.predictors.haplotype_attention.ibs_classes import Information, find_ibs_classes
from spinimpute.predictors.haplotype_attention.memory import limits_of
from spinimpute.predictors.haplotype_attention.pair_network import PairWeights, weigh
from spinimpute.predictors.haplotype_attention.panel_members import (
    ERROR_ODDS,
    MOST_ALIKE,
    MOST_ODDS,
    PLACES_PER_ERROR,
    PRIOR_ODDS,
    PanelMembers,
    mix_members,
    panel_members,
)
from spinimpute.predictors.haplotype_attention.posterior_alleles import (
    FEWEST_CARRIERS,
    LARGE,
    LARGEST_WEIGHT,
    SMALL,
    SMALLEST_WEIGHT,
    large_panel_share,
    mix,
    posterior_alleles,
    posterior_weight,
)
from spinimpute.predictors.haplotype_attention.rare_alleles import (
    RATIO_VARIANCE,
    TRAINED_RATIOS,
    multiply_odds,
)
from spinimpute.predictors.haplotype_attention.settings import (
    HaplotypeSettings,
    check_weights,
)
from spinimpute.predictors.interface import Predictor, fitting_weights
from spinimpute.predictors.registry import HAPLOTYPE_KIND

# Imputing needs fewer classes and candidates than training; more do not improve accuracy
# (benchmarks/simulated).
CLASSES = 22
CLASSES_OF_LARGE = 12  # where posteriors count as much as the network and sites are dense, more are no better
CANDIDATES = CandidateSettings(nearest=12, most=120, margin=2)
# A candidate needs half of 1 / N, or of 1 / SHARED (1e-4) where that is more: in large panels those between
# take a quarter of the time, and change hardly anything (benchmarks/tried.md).
LEAST_SHARE, SHARED = 0.5, 5_000
AGREED = f"agreed={DISSENT}-{BELIEVED}-{RIGHTLY_PLACED}:{CERTAIN}"
MEMBERS = f"members={PRIOR_ODDS}-{MOST_ODDS:g}-{ERROR_ODDS}/{PLACES_PER_ERROR}-{MOST_ALIKE}"
MIXED = f"mixed={SMALL}-{LARGE}:{SMALLEST_WEIGHT}-{LARGEST_WEIGHT}/{FEWEST_CARRIERS}"
RARE = f"rare={'-'.join(map(str, TRAINED_RATIOS))}/{RATIO_VARIANCE}"
MOST_TIMES = 4.0  # as many candidates where typed sites are sparse, in panels larger than those of training


class HaplotypePredictor(Predictor):
    """Imputes chunks of a panel with a trained model.

    Parameters
    ----------
    weights : mapping of str to array
        Of `HaplotypeAttention`.
    settings : HaplotypeSettings
        Sizes of the networks.
    fingerprint : str
        Identifies the weights.
    device : str
        "cpu", or "cuda" for the pair network.
    candidates : CandidateSettings
        How many candidates are taken.
    classes : int
        Largest number of IBS classes where typed sites are dense; in large panels CLASSES_OF_LARGE.

    Raises
    ------
    UnfitWeights
        The weights are of another model.
    """

    kind = HAPLOTYPE_KIND

    def __init__(
        self,
        weights: Mapping[str, np.ndarray],
        settings: HaplotypeSettings,
        fingerprint: str,
        device: str = "cpu",
        candidates: CandidateSettings = CANDIDATES,
        classes: int = CLASSES,
    ) -> None:
        self.weights, self.settings = weights, settings
        self.device_name, self.candidates, self.classes = device, candidates, classes
        with fitting_weights():
            check_weights(weights, settings)
            self._pair, self._decoder = PairWeights.of(weights), DecoderWeights.of(weights)
        self._weigh = self._weigh_here if device == "cpu" else DevicePairNetwork(weights, settings, device)
        self.fingerprint = (
            f"{fingerprint} classes={classes}-{min(classes, CLASSES_OF_LARGE)} nearest={candidates.nearest} "
            f"most={candidates.most} margin={candidates.margin} least={LEAST_SHARE}/{SHARED} "
            f"alike={LEAST_OF_ALIKE} mass={LEAST_MASS} {AGREED} {MIXED} {RARE} {MEMBERS}"
        )

    def engine(self, job: ImputationJob) -> HaplotypeEngine:
        """As of `Predictor`."""
        return HaplotypeEngine(self, job)

    def check_memory(self, job: ImputationJob) -> None:
        """As of `Predictor`."""
        limits_of(job)

    def find_matches(self, chunk: PanelChunk, typed_TQ: np.ndarray, on_left: bool) -> Matches:
        """The longest matches on one side of the chunk's gaps, of which candidates are made.

        Of many queries at once, as walking along a panel takes long.

        Parameters
        ----------
        chunk : PanelChunk
            See `prepare_chunk`.
        typed_TQ : int8
            The queries' alleles at all typed sites, -1 where missing.
        on_left : bool
            On which side.

        Returns
        -------
        Matches
            Of each block and query.
        """
        first_B, n_gaps_B = chunk.block_gaps()
        queries = chunk.typed_alleles(typed_TQ)
        blocks = chunk.right_place(first_B), n_gaps_B, self._candidates_in(chunk)
        if on_left:
            return matches_on_left(chunk.panel, queries, *blocks)
        return matches_on_right(chunk.panel_backwards, queries, *blocks)

    def _candidates_in(self, chunk: PanelChunk) -> CandidateSettings:
        """More where typed sites are sparse: in a large panel thousands of haplotypes match alike there."""
        if large_panel_share(len(chunk.order_N)) == 0:
            return self.candidates
        width_cM = float(np.ptp(chunk.cM_S)) / len(chunk.cM_S)
        times = min(max((width_cM / DENSE_CM) ** 2, 1.0), MOST_TIMES)
        few = self.candidates
        return replace(few, nearest=round(times * few.nearest), most=round(times * few.most))

    def most_classes(self, n_haplotypes: int, more_classes: float) -> int:
        """Largest number of classes in a panel of so many haplotypes; more_classes: of a `ChunkBlock`."""
        large = large_panel_share(n_haplotypes)
        dense = (MOST_CLASSES - more_classes) / (MOST_CLASSES - 1)
        return round(self.classes * more_classes - large * dense * max(self.classes - CLASSES_OF_LARGE, 0))

    def impute_chunk(
        self,
        panel: Panel,
        chunk: PanelChunk,
        patterns: ChunkPatterns,
        typed_TQ: np.ndarray,
        siblings: TypedAlleles | None,
        candidates: Candidates,
        jumps_per_cM: float,
        rare_odds_C: np.ndarray,
    ) -> np.ndarray:
        """P(ALT) at the chunk's sites.

        Parameters
        ----------
        panel : Panel
            Open.
        chunk : PanelChunk
            See `prepare_chunk`.
        patterns : ChunkPatterns
            See `read_patterns`.
        typed_TQ : int8
            As of `find_matches`.
        siblings : TypedAlleles or None
            `PanelChunk.sibling_alleles`; None if it is not known who they are.
        candidates : Candidates
            Of these queries.
        jumps_per_cM : float
            `recombination_scale`.
        rare_odds_C : float32 (C,)
            `rare_allele_odds` of the panel.

        Returns
        -------
        float32 (U, Q)
            P(ALT).
        """
        start, stop = int(chunk.site_start_G1[0]), int(chunk.site_start_G1[-1])
        out_UQ = np.empty((stop - start, typed_TQ.shape[1]), np.float32)
        queries = chunk.typed_alleles(typed_TQ)
        n_haplotypes = panel.n_haplotypes
        members = None if siblings is None else _members(chunk, queries, siblings, candidates)
        first_B, n_gaps_B = chunk.block_gaps()
        jump_S = jump_probabilities(chunk.cM_S, n_haplotypes, jumps_per_cM)
        posterior_CP, candidates = copying_posteriors(
            chunk.spans, chunk.panel.bits_NW, allele_emissions(queries.alleles_SX.T, MISMATCH), jump_S,
            candidates, chunk.right_place(first_B), n_gaps_B, least_share(n_haplotypes),
        )  # fmt: skip
        information = Information.of(queries.alleles_SX, chunk.frequency_S, n_haplotypes)
        weight = posterior_weight(n_haplotypes)
        for block, first_Q1 in zip(chunk.blocks, candidates.first_BQ1, strict=True):
            if block.sites.start == block.sites.stop:
                continue
            agreed_QG = np.full((len(first_Q1) - 1, block.n_gaps), NONE, np.int32)
            if block.whole:  # results do not depend on windows
                agreed_QG = agreed_patterns(
                    posterior_CP, candidates.haplotype_C, first_Q1, chunk.sibling_N, *patterns, block.first,
                    block.n_gaps,
                )  # fmt: skip
            wanted_QG = block.wanted(queries) & (agreed_QG == NONE)
            classes = find_ibs_classes(
                chunk.panel.bits_NW, queries.bits_XW, queries.known_XW, information, candidates.haplotype_C,
                posterior_CP, first_Q1, block.distances, self.most_classes(n_haplotypes, block.more_classes),
                wanted_QG,
            )  # fmt: skip
            weight_QGEK, logit_QGK, value_QGVK, spread_QGE = self._weigh(
                classes.features_QGFK, classes.count_QGK, block.gap_GF
            )
            found = copy_block(
                weight_QGEK, logit_QGK, value_QGVK, classes.count_QGK, classes.first_QGK, classes.member_M,
                chunk.sibling_N, patterns.gaps, block.first, block.starts_G1, block.fraction_U,
            )  # fmt: skip
            p_UQ = decode(
                self._decoder, found, spread_QGE, agreed_QG, block.gap_U, block.site_UF, block.flip_U,
                block.frequency_U,
            )  # fmt: skip
            copied_UQ = posterior_alleles(
                posterior_CP, candidates.haplotype_C, first_Q1, patterns.gaps, block.first, block.starts_G1,
                block.fraction_U, wanted_QG,
            )  # fmt: skip
            count_U = panel.allele_count[block.sites].astype(np.int64)
            carriers_U = np.minimum(count_U, n_haplotypes - count_U)
            weight_Q = np.where(np.diff(first_Q1) > 0, weight, 0).astype(np.float32)
            mix(p_UQ, copied_UQ, block.flip_U, carriers_U, weight_Q)
            multiply_odds(rare_odds_C[np.minimum(carriers_U, len(rare_odds_C) - 1)], block.flip_U, p_UQ)
            fill_carried(
                agreed_QG, patterns.gaps, block.first, block.starts_G1, block.flip_U,
                CERTAIN + weight * (1 - CERTAIN), p_UQ,
            )  # fmt: skip
            if members is not None:
                mix_members(members, patterns.gaps, block.first, block.starts_G1, block.flip_U, p_UQ)
            out_UQ[block.sites.start - start : block.sites.stop - start] = p_UQ
        # the longest of matches with nothing is no match
        nothing_known_Q = ~queries.known_XW.any(axis=1)
        out_UQ[:, nothing_known_Q] = panel.frequency[start:stop, None]
        return out_UQ

    def _weigh_here(
        self, features_QGFK: np.ndarray, count_QGK: np.ndarray, gap_GF: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        return weigh(self._pair, features_QGFK, count_QGK, gap_GF)


def _members(
    chunk: PanelChunk, queries: TypedAlleles, siblings: TypedAlleles, candidates: Candidates
) -> PanelMembers:
    first_Q1 = candidates.first_BQ1[len(chunk.blocks) // 2]
    return panel_members(chunk.panel, chunk.sibling_N, queries, siblings, candidates.haplotype_C, first_Q1)


def least_share(n_haplotypes: int) -> float:
    """Times the prior probability of a haplotype: what a candidate needs."""
    return LEAST_SHARE * max(1.0, n_haplotypes / SHARED)


def load(
    weights: Mapping[str, np.ndarray],
    settings: dict[str, Any],
    fingerprint: str,
    device: str,
    options: Mapping[str, Any],
) -> HaplotypePredictor:
    """As of `PredictorRow.load`."""
    with fitting_weights():
        known = HaplotypeSettings(**settings)
    return HaplotypePredictor(weights, known, fingerprint, device)


class DevicePairNetwork:
    """`pair_network.weigh` on a device of torch.

    In float32: the network is too small for bfloat16 to save time, and dosages would change.
    """

    def __init__(self, weights: Mapping[str, np.ndarray], settings: HaplotypeSettings, device: str) -> None:
        from spinimpute.nn.model_weights import load_weights
        from spinimpute.predictors.haplotype_attention.network import HaplotypeAttention

        with fitting_weights():
            self.model = HaplotypeAttention(settings)
            load_weights(self.model, weights)
        self.model.to(device).eval()
        self.device = device

    def __call__(
        self, features_QGFK: np.ndarray, count_QGK: np.ndarray, gap_GF: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """As `pair_network.weigh`."""
        import torch

        from spinimpute.predictors.haplotype_attention.network import spread

        with torch.inference_mode():
            features, count, gap = (
                torch.from_numpy(x).to(self.device) for x in (features_QGFK, count_QGK, gap_GF)
            )
            features = features.masked_fill(count[:, :, :1, None] == 0, 0)  # they are anything there
            weights = self.model.weigh(features, count, gap)
            tensors = (*weights, spread(weights.weight_QGEK))
            weight_QGEK, logit_QGK, value_QGVK, spread_QGE = (x.contiguous().cpu().numpy() for x in tensors)
        return weight_QGEK, logit_QGK, value_QGVK, spread_QGE
