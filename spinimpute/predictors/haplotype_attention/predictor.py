"""The predictor "haplotype" (haplotype attention), which imputes a tile block by block.

The steps for the queries of a block are:

1. Find candidates: panel haplotypes with the longest matches to the query (`hmm.pbwt`).
2. Compute the posterior probability that the query copies each candidate (`hmm.posteriors`).
3. In gaps where the candidates agree, take their alleles (`agreement`). Steps 4 to 6 are for the other gaps.
4. Group the candidates into IBS classes (`ibs_classes`), and weigh the classes (`pair_network`).
5. Copy the alleles of the classes (`copying`), and correct the copies (`decoder_network`).
6. Mix with the predictions of Li and Stephens, and correct rare alleles (`posterior_alleles`).
7. If the sample may be a member of the panel, mix with its own alleles (`panel_members`).

Axes: S typed places of a tile, Q queries, G gaps of a block, B blocks, C candidates, P both ends of the gaps,
K classes, U sites of a block.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from spinimpute.hmm.parameters import MAX_THRESHOLD_SHARE, MIN_POSTERIOR_SUM
from spinimpute.hmm.pbwt import CandidateSettings, Matches
from spinimpute.hmm.typed_alleles import MISSING, TypedAlleles
from spinimpute.predictors.haplotype_attention import agreement, panel_members, posterior_alleles
from spinimpute.predictors.haplotype_attention.agreement import (
    AGREED_PROBABILITY,
    NO_AGREEMENT,
    agreed_patterns,
    fill_agreed,
)
from spinimpute.predictors.haplotype_attention.copying import MIN_TRUSTED_COPIES, copy_block
from spinimpute.predictors.haplotype_attention.decoder_network import DecoderWeights, decode
from spinimpute.predictors.haplotype_attention.engine import HaplotypeEngine, TileTask
from spinimpute.predictors.haplotype_attention.ibs_classes import (
    BlockCandidates,
    IBSClasses,
    Information,
    find_ibs_classes,
)
from spinimpute.predictors.haplotype_attention.memory import limits_of
from spinimpute.predictors.haplotype_attention.pair_network import PairWeights, WeighedClasses
from spinimpute.predictors.haplotype_attention.panel_members import PanelMembers, find_members, mix_members
from spinimpute.predictors.haplotype_attention.posterior_alleles import (
    large_panel_share,
    mix,
    mixing_weights,
    multiply_odds,
    posterior_weight,
)
from spinimpute.predictors.haplotype_attention.settings import HaplotypeSettings, check_weights
from spinimpute.predictors.haplotype_attention.tile import (
    CANDIDATES,
    LARGE_PANEL_HAPLOTYPES,
    MAX_CLASS_FACTOR,
    MIN_POSTERIOR_SHARE,
    PanelTile,
    TileBlock,
    tile_matches,
    tile_posteriors,
)
from spinimpute.predictors.interface import Checkpoint, ImputationJob, Predictor, convert_weight_errors
from spinimpute.predictors.registry import HAPLOTYPE_KIND

# Imputation needs fewer classes and candidates than training: more would not be more accurate
# (benchmarks/simulated).
CLASSES = 22
LARGE_PANEL_CLASSES = 12  # enough in large panels with dense sites: half of the weight goes to posteriors


class HaplotypePredictor(Predictor):
    """Predictor with a trained `HaplotypeAttention`.

    `classes` is the maximum number of IBS classes where typed sites are dense; large panels use at most
    LARGE_PANEL_CLASSES there. Raise WeightsMismatch if the weights do not fit the settings.
    """

    kind = HAPLOTYPE_KIND

    def __init__(
        self,
        weights: dict[str, np.ndarray],
        settings: HaplotypeSettings,
        fingerprint: str,
        device: str = "cpu",
        candidates: CandidateSettings = CANDIDATES,
        classes: int = CLASSES,
    ) -> None:
        self.weights, self.settings = weights, settings
        self.device_name, self.candidates, self.classes = device, candidates, classes
        with convert_weight_errors():
            check_weights(weights, settings)
        self._decoder = DecoderWeights.of(weights)
        on_cpu = device == "cpu"
        self._pair = PairWeights.of(weights) if on_cpu else DevicePairNetwork(weights, settings, device)
        a, m, p = agreement, panel_members, posterior_alleles
        self.fingerprint = (
            f"{fingerprint} classes={classes}-{min(classes, LARGE_PANEL_CLASSES)} "
            f"nearest={candidates.nearest} most={candidates.most} margin={candidates.margin} "
            f"least={MIN_POSTERIOR_SHARE}/{LARGE_PANEL_HAPLOTYPES} "
            f"alike={MAX_THRESHOLD_SHARE} mass={MIN_POSTERIOR_SUM} "
            f"agreed={a.MAX_DISSENT}-{a.MIN_COPIES}-{MIN_TRUSTED_COPIES}:{AGREED_PROBABILITY} "
            f"mixed={p.SMALL_PANEL}-{p.LARGE_PANEL}:{p.SMALLEST_WEIGHT}-{p.LARGEST_WEIGHT}"
            f"/{p.FEWEST_CARRIERS}/{p.LABEL_WEIGHT} "
            f"rare={'-'.join(map(str, p.TRAINED_RATIOS))}/{p.RATIO_VARIANCE} "
            f"members={m.PRIOR_ODDS}-{m.MAX_ODDS:g}-{m.ERROR_ODDS}/{m.PLACES_PER_ERROR}-{m.MAX_MATCHING}"
        )

    def engine(self, job: ImputationJob) -> HaplotypeEngine:
        """Return the engine for the job."""
        return HaplotypeEngine(self, job)

    def check_memory(self, job: ImputationJob) -> None:
        """Raise InputError if the smallest limits exceed the memory budget."""
        limits_of(job)

    def find_matches(self, tile: PanelTile, typed_TQ: np.ndarray, on_left: bool) -> Matches:
        """Return the longest matches of queries on one side of the tile's gaps, see `tile_matches`."""
        return tile_matches(tile, typed_TQ, self.candidates, on_left=on_left)

    def max_classes(self, n_haplotypes: int, class_factor: float) -> int:
        """Return the maximum number of IBS classes in a block with this `TileBlock.class_factor`."""
        large = large_panel_share(n_haplotypes)
        dense = (MAX_CLASS_FACTOR - class_factor) / (MAX_CLASS_FACTOR - 1)
        return round(self.classes * class_factor - large * dense * max(self.classes - LARGE_PANEL_CLASSES, 0))

    def impute_tile(self, task: TileTask) -> np.ndarray:
        """Return P(ALT) at the tile's sites, float32 (U, Q)."""
        panel, tile, _, typed_TQ, siblings, candidates, rates = task
        alleles = TypedAlleles.from_alleles(typed_TQ[tile.typed.slice])
        members = None
        if siblings is not None:
            middle = len(tile.blocks) // 2
            members = find_members(tile.panel, tile.sibling_N, alleles, siblings, candidates, middle)
        information = Information.of(alleles.alleles_SX, tile.frequency_S, panel.n_haplotypes)
        queries = _TileQueries(alleles, information, members)
        posterior_CP, candidates = tile_posteriors(tile, alleles, candidates, rates.jumps_per_cM)
        start, stop = tile.sites
        out_UQ = np.empty((stop - start, typed_TQ.shape[1]), np.float32)
        for block, first_Q1 in zip(tile.blocks, candidates.first_BQ1, strict=True):
            if block.sites.n_sites:
                block_candidates = BlockCandidates(candidates.haplotype_C, posterior_CP, first_Q1)
                p_UQ = self._impute_block(task, block, queries, block_candidates)
                out_UQ[block.sites.start - start : block.sites.stop - start] = p_UQ
        # queries without typed alleles in the tile get the panel's frequencies
        out_UQ[:, ~alleles.known_XW.any(axis=1)] = panel.frequency[start:stop, None]
        return out_UQ

    def _impute_block(
        self, task: TileTask, block: TileBlock, queries: _TileQueries, candidates: BlockCandidates
    ) -> np.ndarray:
        """Return P(ALT) at a block's sites, float32 (U, Q)."""
        panel, tile, patterns, rare_odds_C = task.panel, task.tile, task.patterns, task.rates.rare_odds_C
        n_haplotypes, n_gaps, sites = panel.n_haplotypes, len(block.has_untyped_G), block.gaps
        weight = posterior_weight(n_haplotypes)
        agreed_QG = np.full((len(candidates.first_Q1) - 1, n_gaps), NO_AGREEMENT, np.int32)
        if block.whole:  # in a block that a window may cut, agreement would depend on the window
            agreed_QG = agreed_patterns(candidates, tile.sibling_N, *patterns, sites.first_gap, n_gaps)
        missing_G = (queries.alleles.alleles_SX[block.typed_place_G] == MISSING).any(axis=1)
        wanted_QG = (block.has_untyped_G | missing_G) & (agreed_QG == NO_AGREEMENT)
        n_classes = self.max_classes(n_haplotypes, block.class_factor)
        classes = find_ibs_classes(
            tile.panel,
            queries.alleles,
            queries.information,
            candidates,
            block.distances,
            n_classes,
            wanted_QG,
        )
        weights = self._pair.weigh(classes, block.gap_GF)
        entries = copy_block(weights, classes, tile.sibling_N, patterns.gaps, sites)
        p_UQ = decode(self._decoder, entries, weights.spread_QGE, agreed_QG, block.site_features)
        copied_UQ = posterior_alleles.posterior_alleles(candidates, patterns.gaps, sites, wanted_QG)
        count_U = panel.allele_count[block.sites.slice].astype(np.int64)
        carriers_U = np.minimum(count_U, n_haplotypes - count_U)
        weight_U = mixing_weights(n_haplotypes, carriers_U, block.label_U)
        mix(p_UQ, copied_UQ, sites.flip_U, weight_U, np.diff(candidates.first_Q1) > 0)
        multiply_odds(rare_odds_C[np.minimum(carriers_U, len(rare_odds_C) - 1)], sites.flip_U, p_UQ)
        fill_agreed(
            agreed_QG,
            patterns.gaps,
            sites,
            np.float32(AGREED_PROBABILITY + weight * (1 - AGREED_PROBABILITY)),
            p_UQ,
        )
        if queries.members is not None:
            mix_members(queries.members, patterns.gaps, sites, p_UQ)
        return p_UQ


class _TileQueries(NamedTuple):
    """The queries of a task."""

    alleles: TypedAlleles  # at the places of the tile
    information: Information  # of these alleles
    members: PanelMembers | None  # None if the queries' siblings are unknown


def load(checkpoint: Checkpoint) -> HaplotypePredictor:
    """Return the predictor for a checkpoint; called through `PredictorRow.load`."""
    with convert_weight_errors():
        sizes = HaplotypeSettings(**checkpoint.settings)
    return HaplotypePredictor(checkpoint.weights, sizes, checkpoint.fingerprint, checkpoint.device)


class DevicePairNetwork:
    """The pair network on a torch device; replaces `PairWeights` on a GPU.

    It computes in float32. In such a small network, bfloat16 would save no time, and it would change dosages.
    """

    def __init__(self, weights: dict[str, np.ndarray], settings: HaplotypeSettings, device: str) -> None:
        from spinimpute.nn.model_weights import load_weights
        from spinimpute.predictors.haplotype_attention.network import HaplotypeAttention

        with convert_weight_errors():
            self.model = HaplotypeAttention(settings)
            load_weights(self.model, weights)
        self.model.to(device).eval()
        self.device = device

    def weigh(self, classes: IBSClasses, gap_GF: np.ndarray) -> WeighedClasses:
        """Return the attention over classes, see `PairWeights.weigh`."""
        import torch

        from spinimpute.predictors.haplotype_attention.network import spread

        with torch.inference_mode():
            arrays = classes.features_QGFK, classes.count_QGK, gap_GF
            features, count, gap = (torch.from_numpy(array).to(self.device) for array in arrays)
            features = features.masked_fill(count[:, :, :1, None] == 0, 0)  # undefined without classes
            weights = self.model.weigh(features, count, gap)
            tensors = (*weights, spread(weights.weight_QGEK))
            return WeighedClasses(*(tensor.contiguous().cpu().numpy() for tensor in tensors))
