"""The learner of haplotype attention: it draws training tasks (episodes) and computes the loss.

An episode splits the haplotypes of a segment into queries and context. It has the IBS classes of the queries
among the context haplotypes, and the queries' true alleles at untyped sites.

Axes: Q query haplotypes, G gaps, K classes, U sites of a gap, N context haplotypes, A all haplotypes, T typed
sites, X sites of the segment, B blocks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from spinimpute.genotypes.blocks import HaplotypeSource, gap_geometry
from spinimpute.genotypes.haplotypes import sibling_haplotypes
from spinimpute.hmm.patterns import span_patterns
from spinimpute.hmm.pbwt import CandidateSettings, find_candidates
from spinimpute.hmm.posteriors import copying_posteriors
from spinimpute.hmm.recombination_scale import most_likely_scale
from spinimpute.hmm.steps import allele_emissions, jump_probabilities
from spinimpute.hmm.typed_alleles import MISSING, PanelAlleles, TypedAlleles
from spinimpute.predictors.haplotype_attention.copying import BLOCK_GAPS
from spinimpute.predictors.haplotype_attention.ibs_classes import (
    BlockCandidates,
    GapDistances,
    IBSClasses,
    Information,
    find_ibs_classes,
)
from spinimpute.predictors.haplotype_attention.network import HaplotypeAttention, copy_alleles, spread
from spinimpute.predictors.haplotype_attention.settings import HaplotypeSettings, gap_features, site_features
from spinimpute.runtime.kernels import kernel
from spinimpute.training.callset_errors import count_alleles
from spinimpute.training.episodes import FAR_SITES, EpisodeSettings, Split, draw_interval, draw_split
from spinimpute.training.trainer import Outcome

CANDIDATES = CandidateSettings()  # more candidates than in imputation
COPY_LOSS = 0.5  # weight of the loss of copied alleles, before the decoder's correction
MIN_POSTERIOR_SHARE = 0.05  # see `copying_posteriors`


@dataclass(frozen=True)
class HaplotypeEpisode:
    """A training task: all gaps of some blocks, for one split of the haplotypes into queries and context."""

    features_QGFK: np.ndarray  # see `ibs_classes.IBSClasses`
    count_QGK: np.ndarray
    gap_GF: np.ndarray  # float32, see `gap_features`
    alleles_QGUK: np.ndarray  # float32, share of a class's members that carry the minor allele
    sibling_QGUK: np.ndarray  # float32, share of the members' siblings that carry the minor allele
    truth_QGU: np.ndarray  # the queries' alleles, 1 for the minor allele
    frequency_GU: np.ndarray  # frequency of the minor allele in the context
    fraction_GU: np.ndarray  # float32, position in the gap, 0 to 1
    left_GU: np.ndarray  # float32, distances to the ends of the gap, cM
    right_GU: np.ndarray
    valid_GU: np.ndarray  # float32, 0 for padding, otherwise 1
    n_haplotypes: int  # number of context haplotypes


@kernel()
def _fill_class_alleles(first_QGK, count_QGK, member_M, sibling_N, alleles_GUN, alleles_QGUK, sibling_QGUK):  # type: ignore[no-untyped-def]
    """Fill alleles_QGUK and sibling_QGUK of `HaplotypeEpisode`."""
    n_queries, n_gaps, n_classes = count_QGK.shape
    n_sites = alleles_GUN.shape[1]
    for q in range(n_queries):
        for g in range(n_gaps):
            for k in range(n_classes):
                count = int(count_QGK[q, g, k])
                first = first_QGK[q, g, k]
                for u in range(n_sites):
                    carriers = siblings = 0
                    for m in range(first, first + count):
                        carriers += alleles_GUN[g, u, member_M[m]]
                        siblings += alleles_GUN[g, u, sibling_N[member_M[m]]]
                    if count:
                        alleles_QGUK[q, g, u, k] = carriers / count
                        sibling_QGUK[q, g, u, k] = siblings / count


class HaplotypeLearner:
    """Training tasks and loss of `HaplotypeAttention`; see `training.trainer.Learner`."""

    def __init__(self, settings: HaplotypeSettings, episodes: EpisodeSettings, device: torch.device) -> None:
        self.settings, self.episodes, self.device = settings, episodes, device
        self.model = HaplotypeAttention(settings).to(device)

    def draw(self, source: HaplotypeSource, rng: np.random.Generator) -> HaplotypeEpisode:
        """Draw an episode. Equal sources and generator states give equal episodes.

        Raise ValueError if `draw_split` does.
        """
        source = draw_interval(source, rng, self.episodes.most_entries)
        split = draw_split(source, rng, self.episodes)
        n_typed, n = len(split.typed_T), len(split.context_N)
        n_blocks = n_typed // BLOCK_GAPS + 1
        chosen_B = np.sort(rng.choice(n_blocks, min(self.episodes.blocks, n_blocks), replace=False))
        first_B = chosen_B * BLOCK_GAPS
        n_gaps_B = np.minimum(BLOCK_GAPS, n_typed + 1 - first_B)
        frequency_X, typed_cM = count_alleles(split.alleles_XA, split.context_N) / n, source.cM[split.typed_T]
        typed_TN = split.alleles_XA[np.ix_(split.typed_T, split.context_N)]
        panel = PanelAlleles.from_alleles(typed_TN)
        queries = TypedAlleles.from_alleles(np.where(split.known_TQ > 0, split.typed_query_TQ, MISSING))
        candidates = find_candidates(panel, panel.backwards(), queries, first_B, n_gaps_B, CANDIDATES)
        information = Information.of(queries.alleles_SX, frequency_X[split.typed_T], n)
        scale = self.episodes.jumps_per_cM or most_likely_scale(typed_TN, typed_cM)
        posterior_CP, candidates = copying_posteriors(
            span_patterns(panel.bits_NW, n_typed), panel.bits_NW,
            allele_emissions(queries.alleles_SX.T, self.episodes.mismatch),
            jump_probabilities(typed_cM, n, scale), candidates, first_B, n_gaps_B, MIN_POSTERIOR_SHARE,
        )  # fmt: skip
        blocks = []
        for first_Q1, first, n_gaps in zip(
            candidates.first_BQ1, first_B.tolist(), n_gaps_B.tolist(), strict=True
        ):
            classes = find_ibs_classes(
                panel,
                queries,
                information,
                BlockCandidates(candidates.haplotype_C, posterior_CP, first_Q1),
                GapDistances.of(typed_cM, first, n_gaps),
                self.settings.classes,
            )
            gaps = np.arange(first, first + n_gaps)
            blocks.append(self._block(source, split, classes, gaps, frequency_X, rng))
        fields = {}
        for name in blocks[0]:
            axis = 1 if name.partition("_")[2].startswith("Q") else 0
            fields[name] = np.concatenate([block[name] for block in blocks], axis=axis)
        return HaplotypeEpisode(**fields, n_haplotypes=n)

    def _block(
        self,
        source: HaplotypeSource,
        split: Split,
        classes: IBSClasses,
        gaps: np.ndarray,
        frequency_X: np.ndarray,
        rng: np.random.Generator,
    ) -> dict[str, np.ndarray]:
        """Return the fields of an episode for one block of gaps, with randomly chosen sites."""
        valid_GU, site_GU = self._choose_sites(gaps, split.typed_T, frequency_X, rng)
        flip_GU = frequency_X[site_GU] > 0.5
        alleles_GUA = split.alleles_XA[site_GU] ^ flip_GU[..., None]
        shape = (*classes.count_QGK.shape[:2], site_GU.shape[1], classes.count_QGK.shape[2])
        alleles_QGUK, sibling_QGUK = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
        _fill_class_alleles(
            classes.first_QGK, classes.count_QGK, classes.member_M,
            sibling_haplotypes(np.asarray(source.haplotype_sample)[split.context_N]),
            np.ascontiguousarray(alleles_GUA[..., split.context_N]), alleles_QGUK, sibling_QGUK,
        )  # fmt: skip
        typed_cM, gap_GU = source.cM[split.typed_T], np.broadcast_to(gaps[:, None], site_GU.shape)
        fraction_GU, _, left_GU, right_GU = gap_geometry(source.cM[site_GU], gap_GU, typed_cM)
        return {
            "features_QGFK": classes.features_QGFK,
            "count_QGK": classes.count_QGK,
            "gap_GF": gap_features(typed_cM, gaps, len(split.context_N)),
            "alleles_QGUK": alleles_QGUK,
            "sibling_QGUK": sibling_QGUK,
            "truth_QGU": alleles_GUA[..., split.query_Q].transpose(2, 0, 1),
            "frequency_GU": np.where(flip_GU, 1 - frequency_X[site_GU], frequency_X[site_GU]),
            "fraction_GU": fraction_GU,
            "left_GU": left_GU,
            "right_GU": right_GU,
            "valid_GU": valid_GU,
        }

    def _choose_sites(
        self, gaps: np.ndarray, typed_T: np.ndarray, frequency_X: np.ndarray, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Draw sites of each gap. Return valid_GU (0 for padding, otherwise 1) and site indices, (G, U)."""
        u = self.episodes.sites_per_gap
        valid_GU, site_GU = np.zeros((len(gaps), u), np.float32), np.zeros((len(gaps), u), np.int64)
        polymorphic = (frequency_X > 0) & (frequency_X < 1)
        for i, gap in enumerate(gaps):
            low = typed_T[gap - 1] + 1 if gap else max(typed_T[0] - FAR_SITES, 0)
            high = typed_T[gap] if gap < len(typed_T) else min(low + FAR_SITES, len(frequency_X))
            sites = np.flatnonzero(polymorphic[low:high]) + low
            if len(sites):
                picked = np.sort(rng.choice(sites, min(u, len(sites)), replace=False))
                site_GU[i, : len(picked)], valid_GU[i, : len(picked)] = picked, 1
        return valid_GU, site_GU

    def logits(self, e: HaplotypeEpisode) -> tuple[Tensor, Tensor]:
        """Return the logits of P(minor allele), (Q, G, U), of the copied alleles and after the correction."""
        f = self._float
        weights = self.model.weigh(f(e.features_QGFK), f(e.count_QGK), f(e.gap_GF))
        copied = copy_alleles(weights, f(e.count_QGK), f(e.alleles_QGUK), f(e.sibling_QGUK), f(e.fraction_GU))
        site_GUF = f(site_features(e.frequency_GU, e.fraction_GU, e.left_GU, e.right_GU, e.n_haplotypes))
        shape = copied.p.shape
        spread_QGUE = spread(weights.weight_QGEK)[:, :, None].expand(*shape, -1)
        site_QGUF = site_GUF.expand(*shape, -1)
        logit, corrected = self.model.decode(copied, spread_QGUE, site_QGUF)
        is_copied = (copied.p > 0) | (copied.sibling_p > 0)
        return logit, torch.where(is_copied, corrected, self.model.decode_absent(spread_QGUE, site_QGUF))

    def outcome(self, task: object, progress: float, rng: np.random.Generator) -> Outcome:
        """Return the loss of a task, with the predictions and the true alleles at hidden sites."""
        assert isinstance(task, HaplotypeEpisode)
        copied, corrected = self.logits(task)
        truth = self._float(task.truth_QGU)
        f = self._float(task.frequency_GU)
        weight = (self._float(task.valid_GU) / (f * (1 - f) + 0.01) ** 0.3)[None].expand_as(truth)

        def cross_entropy(logits: Tensor) -> Tensor:
            each = F.binary_cross_entropy_with_logits(logits, truth, reduction="none")
            return (each * weight).sum() / weight.sum().clamp(min=1e-6)

        valid = np.broadcast_to(task.valid_GU > 0, truth.shape)
        return Outcome(
            cross_entropy(corrected) + COPY_LOSS * cross_entropy(copied),
            torch.sigmoid(corrected.detach()).cpu().numpy()[valid],
            task.truth_QGU[valid].astype(np.float32),
            np.broadcast_to(task.frequency_GU, truth.shape)[valid].astype(np.float32),
        )

    def _float(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self.device, torch.float32)
