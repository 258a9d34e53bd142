"""`HaplotypeAttention` at work: candidates, classes, weights, copies and the decoder for blocks of gaps.

Axes: S typed places of a chunk, Q queries, G gaps of a block, B blocks, K classes, U sites of a block.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from spinimpute.genotypes.panel_file import Panel
from spinimpute.imputation.blocks import end_distances, gap_geometry
from spinimpute.imputation.copying import copy_block
from spinimpute.imputation.haplotype_attention import (
    COPIED_FEATURES,
    Copied,
    HaplotypeAttention,
    gap_features,
    site_features,
    spread,
)
from spinimpute.imputation.haplotype_chunk import PanelChunk
from spinimpute.imputation.matches import BlockMatches, information, match_block
from spinimpute.imputation.pair_network import PairWeights, weigh
from spinimpute.imputation.pbwt import MISSING, CandidateSettings, TypedAlleles, find_candidates

# At work fewer classes and candidates do than in training; more bring nothing (benchmarks/simulated).
CLASSES = 24
CANDIDATES = CandidateSettings(nearest=6, most=256, margin=4)
QUERIES_AT_ONCE = 64  # whose classes go through the network together: fits a processor's cache


class _Block:
    """The sites of a block of gaps and what the model is told of them. U: its sites; gap_U: of the block."""

    def __init__(self, panel: Panel, chunk: PanelChunk, first: int, n_gaps: int) -> None:
        self.first, self.n_gaps = first, n_gaps
        place_G = chunk.right_place(first + np.arange(n_gaps))
        self.place = int(place_G[0])
        starts_G1 = chunk.site_start_G1[first : first + n_gaps + 1]
        start, stop = int(starts_G1[0]), int(starts_G1[-1])
        self.sites = slice(start, stop)
        self.starts_G1 = starts_G1 - start
        self.gap_U = np.repeat(np.arange(n_gaps), np.diff(starts_G1))
        n = panel.n_haplotypes
        self.gap_GF = gap_features(chunk.cM_S, place_G, n)
        cM_U, place_U = panel.cM[start:stop], place_G[self.gap_U]
        self.fraction_U, _ = gap_geometry(cM_U, place_U, chunk.cM_S)
        self.frequency_U = panel.frequency[start:stop]
        self.flip_U = self.frequency_U > 0.5
        minor_U = np.where(self.flip_U, 1 - self.frequency_U, self.frequency_U)
        left_U, right_U = end_distances(cM_U, place_U, chunk.cM_S)
        untyped_U = np.isin(np.arange(start, stop), chunk.typed_index_S, assume_unique=True, invert=True)
        self.has_untyped_G = np.zeros(n_gaps, bool)
        self.has_untyped_G[self.gap_U[untyped_U & (minor_U > 0)]] = True
        self._typed_place_G = place_G.clip(max=len(chunk.cM_S) - 1)
        self.site_UF = site_features(
            _float(minor_U), _float(self.fraction_U), _float(left_U), _float(right_U), n
        )

    def wanted(self, queries: TypedAlleles) -> np.ndarray:
        """bool (G,): gaps in which there is something to impute, at their untyped sites or typed ones."""
        missing_G = (queries.alleles_SX[self._typed_place_G] == MISSING).any(axis=1)
        return self.has_untyped_G | missing_G

    def oriented(self, minor_QU: np.ndarray) -> np.ndarray:
        """P(ALT), (U, Q), of probabilities of the minor allele; the panel's allele where it has one only."""
        p_UQ = np.where(self.flip_U[:, None], 1 - minor_QU.T, minor_QU.T)
        constant = (self.frequency_U == 0) | (self.frequency_U == 1)
        p_UQ[constant] = self.frequency_U[constant, None]
        return p_UQ


class HaplotypePredictor:
    """Imputes chunks of a panel with a trained model."""

    kind = HaplotypeAttention.kind

    def __init__(
        self,
        model: HaplotypeAttention,
        fingerprint: str,
        device: torch.device,
        candidates: CandidateSettings = CANDIDATES,
        classes: int = CLASSES,
    ) -> None:
        self.model = model.to(device).eval()
        self.device, self.candidates = device, candidates
        self.classes = classes
        self.pair_weights = PairWeights.of(model)
        self.fingerprint = (
            f"{fingerprint} classes={classes} nearest={candidates.nearest} most={candidates.most} "
            f"margin={candidates.margin}"
        )

    @torch.inference_mode()
    def impute_chunk(self, panel: Panel, chunk: PanelChunk, typed_TQ: np.ndarray) -> np.ndarray:
        """P(ALT), float32 (U, Q), at the chunk's sites. typed_TQ: int8, all typed sites, -1 where missing."""
        queries = TypedAlleles.of(typed_TQ[chunk.first_typed : chunk.first_typed + len(chunk.cM_S)])
        first_B, n_gaps_B = chunk.block_gaps()
        candidate_BQW = find_candidates(
            chunk.panel, chunk.panel_backwards, queries, chunk.right_place(first_B), n_gaps_B, self.candidates
        )
        information_QS = information(queries.alleles_SX, chunk.frequency_S, panel.n_haplotypes)
        start, stop = int(chunk.site_start_G1[0]), int(chunk.site_start_G1[-1])
        out_UQ = np.empty((stop - start, typed_TQ.shape[1]), np.float32)
        for b, (first, n_gaps) in enumerate(zip(first_B.tolist(), n_gaps_B.tolist(), strict=True)):
            if chunk.site_start_G1[first] == chunk.site_start_G1[first + n_gaps]:
                continue
            block = _Block(panel, chunk, first, n_gaps)
            rows = slice(block.sites.start - start, block.sites.stop - start)
            for i in range(0, typed_TQ.shape[1], QUERIES_AT_ONCE):
                q = slice(i, i + QUERIES_AT_ONCE)
                some = queries.take(q)
                matches = match_block(
                    chunk.panel.bits_XW, some.bits_XW, some.known_XW, information_QS[q], candidate_BQW[b, q],
                    chunk.cM_S, block.place, n_gaps, self.classes, block.wanted(some),
                )  # fmt: skip
                out_UQ[rows, q] = self._impute_block(chunk, block, matches)
        # the longest of matches with nothing is no match
        nothing_known_Q = ~queries.known_XW.any(axis=1)
        out_UQ[:, nothing_known_Q] = panel.frequency[start:stop, None]
        return out_UQ

    def _impute_block(self, chunk: PanelChunk, block: _Block, matches: BlockMatches) -> np.ndarray:
        """P(ALT), float32 (U, Q), at a block's sites."""
        weight_QGEK, logit_QGK, value_QGVK = self._weigh(matches, block.gap_GF)
        found = copy_block(
            weight_QGEK, logit_QGK, value_QGVK, matches.count_QGK, matches.first_QGK, matches.member_M,
            chunk.mate_N, chunk.patterns, block.first, block.starts_G1, block.fraction_U,
        )  # fmt: skip
        spread_QGE, site_UF = (
            spread(torch.from_numpy(weight_QGEK)).to(self.device),
            block.site_UF.to(self.device),
        )
        gap_U = torch.from_numpy(block.gap_U)
        logit_QU = self.model.decode_absent(spread_QGE[:, gap_U], site_UF)
        site_X, query_X = torch.from_numpy(found.site_X).long(), torch.from_numpy(found.query_X).long()
        sizes = [*[1] * COPIED_FEATURES, self.model.settings.value, self.model.settings.value]
        parts = torch.from_numpy(found.pooled_XF).to(self.device).split(sizes, dim=1)
        copied = Copied(*(part[:, 0] for part in parts[:COPIED_FEATURES]), *parts[COPIED_FEATURES:])
        _, logit_QU[query_X, site_X] = self.model.decode(
            copied, spread_QGE[query_X, gap_U[site_X]], site_UF[site_X]
        )
        return block.oriented(torch.sigmoid(logit_QU).cpu().numpy())

    def _weigh(self, matches: BlockMatches, gap_GF: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """weight_QGEK, logit_QGK, value_QGVK of the classes."""
        if self.device.type == "cpu":
            return weigh(self.pair_weights, matches.features_QGFK, matches.count_QGK, gap_GF)
        arrays = (matches.features_QGFK, matches.count_QGK, gap_GF)
        with torch.autocast(self.device.type, torch.bfloat16):
            weights = self.model.weigh(*(torch.from_numpy(x).to(self.device) for x in arrays))
        weight_QGEK, logit_QGK, value_QGVK = (x.contiguous().cpu().numpy() for x in weights)
        return weight_QGEK, logit_QGK, value_QGVK


def _float(array: np.ndarray) -> Tensor:
    return torch.from_numpy(array.astype(np.float32))
