"""Imputes with `InducingNetwork`: encodes panel blocks in chunks of haplotypes, predicts chunks of queries.

Axes: N panel haplotypes, Q query haplotypes, H inducing points, S typed places of a block, U imputed sites.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from spinimpute.errors import InputError
from spinimpute.genotypes.blocks import BlockShape, starting_points
from spinimpute.nn.model_weights import network_of
from spinimpute.panels.inducing_panel import InducingPanel
from spinimpute.panels.panel_blocks import EncodedBlock, PanelBlock
from spinimpute.panels.reference import ReferencePanel
from spinimpute.predictors.engine import ImputationJob
from spinimpute.predictors.interface import Predictor, fitting_weights
from spinimpute.predictors.registry import INDUCING_KIND
from spinimpute.predictors.spin.block_engine import BlockEngine, TorchEngine
from spinimpute.predictors.spin.inducing_engine import InducingEngine
from spinimpute.predictors.spin.network import (
    Attention,
    BlockContext,
    GapSites,
    InducingNetwork,
    InducingPoints,
    InducingSettings,
)
from spinimpute.predictors.typed_chunks import ChunkStarts

CHUNK_ENTRIES = 2**24  # haplotypes x sites encoded at once: bounds the memory, whatever the panel
QUERY_CHUNK = 128  # small enough for a processor's cache
SITE_CHUNK = 1_024
# The weights fit any of these sizes; these were chosen on simulated panels (benchmarks/simulated).
CORE = 16
FLANK = 128
CANDIDATES = 48
ROUNDS = 2
MOST_INDUCING_POINTS = 1_024


def at_work(settings: InducingSettings) -> InducingSettings:
    """Settings of a trained model with the sizes used for imputing, larger than those of training."""
    return replace(settings, core=CORE, flank=FLANK, candidates=CANDIDATES, rounds=ROUNDS)


class _Chunks:
    """A block's haplotypes in parts, turned into tensors only while they are looked at."""

    def __init__(self, block: PanelBlock, as_tensor: Callable[[np.ndarray], Tensor]) -> None:
        self._block, self._as_tensor = block, as_tensor
        self._step = max(1, CHUNK_ENTRIES // (block.typed_NS.shape[1] + len(block.alleles_UN)))

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        block = self._block
        for i in range(0, block.n_haplotypes, self._step):
            part = slice(i, i + self._step)
            typed_BNS = self._as_tensor(block.typed_NS[part])[None]
            yield typed_BNS, self._as_tensor(block.alleles_UN[:, part]).T[None]


class InducingPredictor(Predictor):
    """A `BlockPredictor`. inducing_points: largest h of a block; see `at_work` for the other sizes."""

    kind = INDUCING_KIND

    def __init__(
        self,
        model: InducingNetwork,
        fingerprint: str,
        device: torch.device,
        inducing_points: int | None = None,
    ) -> None:
        self.model = model.to(device).eval()
        s = model.settings
        self.fingerprint = (
            f"{fingerprint} core={s.core} flank={s.flank} candidates={s.candidates} rounds={s.rounds}"
        )
        self.device, self.device_name = device, device.type
        self.inducing_points = inducing_points or MOST_INDUCING_POINTS

    @property
    def shape(self) -> BlockShape:
        """Shape of a block."""
        return self.model.settings.shape

    def engine(self, job: ImputationJob) -> TorchEngine:
        """As of `Predictor`."""
        if job.panel.haplotypes is not None:
            return BlockEngine(self, job)
        return InducingEngine(self, _inducing(job.panel), job)

    def check_panel(self, panel: ReferencePanel, given: Mapping[str, Any]) -> None:
        """As of `Predictor`: inducing points must be its own, and their number is that of their file."""
        if panel.haplotypes is not None:
            return
        made = _inducing(panel)
        if "inducing_points" in given:
            raise InputError(
                f"{made.path} was made with {made.inducing_points} inducing points a block: their number is "
                "chosen when the file is made"
            )
        made.check_model(self.kind, self.fingerprint)

    def typed_needed(
        self, panel: ReferencePanel, typed_index: np.ndarray, first: int, last: int, near: tuple[int, int]
    ) -> tuple[int, int]:
        """As of `Predictor`; of inducing points, what their blocks see."""
        if panel.haplotypes is not None:
            return super().typed_needed(panel, typed_index, first, last, near)
        seen = _inducing(panel).seen_by(first, last)
        low, high = np.searchsorted(typed_index, [seen[0], seen[-1] + 1]).tolist()
        return min(near[0], low), max(near[1], high)

    def positions_needed(
        self, panel: ReferencePanel, starts: ChunkStarts, first: int, last: int, near: tuple[int, int]
    ) -> tuple[int, int]:
        """As of `Predictor`; of inducing points, what their blocks see."""
        if panel.haplotypes is not None:
            return super().positions_needed(panel, starts, first, last, near)
        seen, position = _inducing(panel).seen_by(first, last), panel.position
        return int(position[min(near[0], seen[0])]), int(position[max(near[1] - 1, seen[-1])])

    @torch.inference_mode()
    def encode(self, block: PanelBlock) -> EncodedBlock:
        """Encode a block of the panel."""
        start_HS = starting_points(block.typed_NS, self.inducing_points, self.shape)
        start_BHS = self._float(start_HS)[None]
        points = self.model.encode(
            self._context(block), _Chunks(block, self._float), start_BHS, torch.ones_like(start_BHS[..., 0])
        )
        kept = {name: value[0].cpu() for name, value in points._asdict().items()}
        return EncodedBlock(block.places, block.frequency_S, block.sites, block.n_haplotypes, kept)

    @torch.inference_mode()
    def predict(self, block: EncodedBlock, query_QS: np.ndarray, known_QS: np.ndarray) -> np.ndarray:
        """P(ALT) of queries at a block's sites."""
        points = InducingPoints(**{name: value.to(self.device)[None] for name, value in block.points.items()})
        context = self._context(block)
        out = np.empty((len(block.sites.gap_U), len(query_QS)), dtype=np.float32)
        gaps = [np.flatnonzero(block.sites.gap_U == g) for g in range(self.shape.core)]
        for i in range(0, len(query_QS), QUERY_CHUNK):
            queries = slice(i, i + QUERY_CHUNK)
            attention = self.model.attend(
                self._float(query_QS[queries])[None], self._float(known_QS[queries])[None], points, context
            )
            for g, sites_U in enumerate(gaps):
                for j in range(0, len(sites_U), SITE_CHUNK):
                    part = sites_U[j : j + SITE_CHUNK]
                    out[part, queries] = self._copy(attention, g, points, block, part)
        # where the panel knows one allele only there is nothing to predict
        constant = (block.sites.frequency_U == 0) | (block.sites.frequency_U == 1)
        out[constant] = block.sites.frequency_U[constant, None]
        return out

    def _copy(
        self, attention: Attention, g: int, points: InducingPoints, block: EncodedBlock, part: np.ndarray
    ) -> np.ndarray:
        """P(ALT) (U, Q) at some sites of gap g."""
        here = Attention(
            attention.chosen_BQK, attention.logits_BG2QK[:, g : g + 1], attention.value_BGVQK[:, g : g + 1]
        )
        span = slice(int(part[0]), int(part[-1]) + 1)  # the sites of a gap are neighbours
        sites = GapSites(
            points.untyped_BHU[:, None, :, span],
            self._float(block.sites.frequency_U[span])[None, None],
            self._float(block.sites.fraction_U[span])[None, None],
            self._float(block.sites.distance_U[span])[None, None],
        )
        _, logits = self.model.predictor.copy(here, sites, block.n_haplotypes)
        return torch.sigmoid(logits[0, 0]).T.cpu().numpy()

    def _context(self, block: PanelBlock | EncodedBlock) -> BlockContext:
        return BlockContext(
            self._float(block.places.cM_S)[None],
            self._float(block.frequency_S)[None],
            self._float(block.places.valid_S)[None],
            block.n_haplotypes,
        )

    def _float(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self.device, torch.float32)


def load(
    weights: Mapping[str, np.ndarray],
    settings: dict[str, Any],
    fingerprint: str,
    device: str,
    options: Mapping[str, Any],
) -> InducingPredictor:
    """As of `PredictorRow.load`."""
    with fitting_weights():
        model = network_of(lambda: InducingNetwork(at_work(InducingSettings(**settings))), weights)
    return InducingPredictor(model, fingerprint, torch.device(device), options["inducing_points"])


def _inducing(panel: ReferencePanel) -> InducingPanel:
    """A panel without haplotypes: the registry gives no other kind."""
    return cast(InducingPanel, panel)
