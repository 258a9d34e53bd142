"""`AlleleCIPNP` at work: encodes panel blocks in chunks of haplotypes, predicts in chunks of queries.

Axes: N panel haplotypes, Q query haplotypes, H inducing points, S typed places of a block, U imputed sites.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from spinimpute.genotypes.blocks import BlockShape, starting_points
from spinimpute.panels.panel_blocks import EncodedBlock, PanelBlock
from spinimpute.predictors.spin.network import (
    AlleleCIPNP,
    Attention,
    BlockContext,
    GapSites,
    InducingPoints,
    InducingSettings,
)

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
    """Settings of a trained model with the sizes that it imputes with, larger than those it trained with."""
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


class AllelePredictor:
    """A `BlockPredictor`. inducing_points: h of every block, at most; see `at_work` for the other sizes."""

    kind = AlleleCIPNP.kind

    def __init__(
        self,
        model: AlleleCIPNP,
        fingerprint: str,
        device: torch.device,
        inducing_points: int | None = None,
    ) -> None:
        self.model = model.to(device).eval()
        s = model.settings
        self.fingerprint = (
            f"{fingerprint} core={s.core} flank={s.flank} candidates={s.candidates} rounds={s.rounds}"
        )
        self.device = device
        self.inducing_points = inducing_points or MOST_INDUCING_POINTS

    @property
    def shape(self) -> BlockShape:
        return self.model.settings.shape

    @property
    def device_name(self) -> str:
        return self.device.type

    @torch.inference_mode()
    def encode(self, block: PanelBlock) -> EncodedBlock:
        start_HS = starting_points(block.typed_NS, self.inducing_points, self.shape)
        start_BHS = self._float(start_HS)[None]
        points = self.model.encode(
            self._context(block), _Chunks(block, self._float), start_BHS, torch.ones_like(start_BHS[..., 0])
        )
        kept = {name: value[0].cpu() for name, value in points._asdict().items()}
        return EncodedBlock(block.places, block.frequency_S, block.sites, block.n_haplotypes, kept)

    @torch.inference_mode()
    def predict(self, block: EncodedBlock, query_QS: np.ndarray, known_QS: np.ndarray) -> np.ndarray:
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
