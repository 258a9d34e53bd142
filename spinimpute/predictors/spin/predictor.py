"""The predictor SPIN: it compresses blocks of a panel into inducing points, and imputes from these points.

A block is a few gaps between typed sites, with the typed sites around them.

Axes: Q query haplotypes, S typed places of a block, U sites that a block imputes.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from spinimpute.genotypes.blocks import BlockShape
from spinimpute.genotypes.intervals import Interval
from spinimpute.panels.inducing_panel import InducingPanel
from spinimpute.panels.panel_blocks import EncodedBlock, PanelBlock
from spinimpute.panels.reference import ReferencePanel
from spinimpute.predictors.interface import (
    Checkpoint,
    Engine,
    ImputationJob,
    Predictor,
    convert_weight_errors,
)
from spinimpute.predictors.registry import SPIN_KIND
from spinimpute.predictors.spin.compiled.encoder import CompiledEncoder
from spinimpute.predictors.spin.compiled.reader import CompiledReader
from spinimpute.predictors.spin.engine import BlockEngine, InducingEngine, not_finite
from spinimpute.predictors.spin.panel_posteriors import LARGE_PANEL_WEIGHT, POSTERIOR_WEIGHT
from spinimpute.predictors.spin.point_posteriors import POINT_WEIGHT, needed_array_sites
from spinimpute.predictors.spin.settings import SPINSettings, check_weights
from spinimpute.predictors.typed_tiles import TileStarts
from spinimpute.runtime.errors import InputError, argument

if TYPE_CHECKING:
    from spinimpute.predictors.spin.network import GenotypeSPIN
    from spinimpute.predictors.spin.torch_blocks import TorchBlocks

DEFAULT_INDUCING_POINTS = 1_024
# Version of the encoder. Increase it when equal weights give other inducing points than before: `.spip` files
# of other versions are refused.
ENCODER = 4
# With at most this many inducing points, blocks of half the size are more accurate on simulated panels.
MAX_POINTS_FOR_NARROW_BLOCKS = 96


class SPINPredictor(Predictor):
    """Predictor with the weights of a `GenotypeSPIN`; implements `BlockPredictor`.

    `inducing_points` is the maximum number of inducing points of a block. `shape` is the shape of blocks, by
    default that of training. Both apply to panels of haplotypes only: a `.spip` file contains its own values.
    Raises WeightsMismatch if the weights do not fit the settings.

    Torch is loaded for GPUs alone.
    """

    kind = SPIN_KIND

    def __init__(
        self,
        weights: Mapping[str, np.ndarray],
        settings: SPINSettings,
        fingerprint: str,
        device: str = "cpu",
        inducing_points: int | None = None,
        shape: BlockShape | None = None,
    ) -> None:
        with convert_weight_errors():
            check_weights(weights, settings)
        self.weights, self.settings, self.device_name = weights, settings, device
        self._reader = CompiledReader(weights, settings)
        # identifies what inducing points depend on
        self.points_fingerprint = f"{fingerprint} k={settings.k} rounds={settings.rounds} encoder={ENCODER}"
        weights_of_means = f"{POSTERIOR_WEIGHT:g}-{LARGE_PANEL_WEIGHT:g},{POINT_WEIGHT:g}"
        self.fingerprint = f"{self.points_fingerprint} posteriors={weights_of_means}"
        self.inducing_points = inducing_points or DEFAULT_INDUCING_POINTS
        self.shape = shape or settings.shape
        self._encoder = CompiledEncoder(weights, settings, self.inducing_points, self.shape)

    @cached_property
    def model(self) -> GenotypeSPIN:
        """The network in torch, on the device."""
        import torch

        from spinimpute.nn.model_weights import network_of
        from spinimpute.predictors.spin.network import GenotypeSPIN

        network = network_of(lambda: GenotypeSPIN(self.settings), self.weights)
        return network.to(torch.device(self.device_name)).eval()

    @cached_property
    def _blocks(self) -> TorchBlocks:
        import torch

        from spinimpute.predictors.spin.torch_blocks import TorchBlocks

        return TorchBlocks(self.model, torch.device(self.device_name), self.inducing_points, self.shape)

    def engine(self, job: ImputationJob) -> Engine:
        """Return the engine for the job's kind of panel: haplotypes or inducing points."""
        if job.panel.haplotypes is None:
            return InducingEngine(self, _as_inducing_panel(job.panel), job)
        if self.device_name == "cpu":
            return BlockEngine(self, job)
        from spinimpute.predictors.spin.gpu.blocks import DeviceBlocks
        from spinimpute.predictors.spin.gpu.engine import DeviceEngine

        blocks = DeviceBlocks(self.model, self._blocks.device, self.inducing_points, self.shape)
        return DeviceEngine(blocks, job)

    def check_panel(self, panel: ReferencePanel, user_options: Mapping[str, Any]) -> None:
        """Raise InputError if a `.spip` file was made by another model, or the user sets `inducing_points`.

        Panels of haplotypes always pass.
        """
        if panel.haplotypes is not None:
            return
        inducing_panel = _as_inducing_panel(panel)
        if "inducing_points" in user_options:
            raise InputError(
                "arguments",
                f"{inducing_panel.path}: the file has at most {inducing_panel.inducing_points} inducing "
                "points a block. Their number is chosen when the file is made: leave out "
                f"{argument('inducing_points')}.",
            )
        inducing_panel.check_model(self.kind, self.points_fingerprint)

    def needed_typed_sites(
        self, panel: ReferencePanel, typed_index: np.ndarray, sites: Interval, near: Interval
    ) -> Interval:
        """Return the needed typed sites, see `Predictor`; for a `.spip` file those of tiles with flanks."""
        if panel.haplotypes is not None:
            return super().needed_typed_sites(panel, typed_index, sites, near)
        seen = needed_array_sites(_as_inducing_panel(panel), *sites)
        low, high = np.searchsorted(typed_index, [seen[0], seen[-1] + 1]).tolist()
        return Interval(min(near.start, low), max(near.stop, high))

    def needed_positions(
        self, panel: ReferencePanel, starts: TileStarts, sites: Interval, near: Interval
    ) -> tuple[int, int]:
        """Return the first and last position of `needed_typed_sites`, see `Predictor`."""
        if panel.haplotypes is not None:
            return super().needed_positions(panel, starts, sites, near)
        seen, position = needed_array_sites(_as_inducing_panel(panel), *sites), panel.position
        return int(position[min(near.start, seen[0])]), int(position[max(near.stop - 1, seen[-1])])

    def encode(self, block: PanelBlock, *, with_members: bool = False) -> EncodedBlock:
        """Return the inducing points of a block of the panel, see `BlockPredictor.encode`."""
        encoder = self._encoder if self.device_name == "cpu" else self._blocks
        return encoder.encode(block, with_members=with_members)

    def predict(self, block: EncodedBlock, query_QS: np.ndarray, known_QS: np.ndarray) -> np.ndarray:
        """Return P(ALT) at the block's sites, float32 (U, Q). known_QS is 0 where a call is missing."""
        k = self.settings.k
        if block.k != k:
            raise InputError(
                "damaged",
                f"a block of inducing points has tokens of {block.k} SNPs, but the model reads {k}: the "
                "file is damaged. Make it again.",
            )
        predict = self._reader.predict if self.device_name == "cpu" else self._blocks.predict
        # sites with a single allele in the panel need no prediction
        constant_U = (block.sites.frequency_U == 0) | (block.sites.frequency_U == 1)
        wanted_U = np.flatnonzero(~constant_U)
        p_UQ = np.empty((len(constant_U), len(query_QS)), dtype=np.float32)
        p_UQ[constant_U] = block.sites.frequency_U[constant_U, None]
        p_UQ[wanted_U] = predict(block, wanted_U, query_QS, known_QS)
        if not np.isfinite(p_UQ).all():
            raise not_finite("predictions")
        return p_UQ


def load(checkpoint: Checkpoint) -> SPINPredictor:
    """Return the predictor for a checkpoint; called through `PredictorRow.load`."""
    with convert_weight_errors():
        settings = SPINSettings(**checkpoint.settings)
    points, shape = checkpoint.options["inducing_points"], settings.shape
    if points is not None and points <= MAX_POINTS_FOR_NARROW_BLOCKS:
        shape = BlockShape(max(1, shape.core // 2), shape.flank // 2)
    predictor = SPINPredictor(
        checkpoint.weights, settings, checkpoint.fingerprint, checkpoint.device, points, shape
    )
    if checkpoint.device != "cpu":
        predictor.model.eval()  # copies the weights to the GPU now, not after reading the input
    return predictor


def _as_inducing_panel(panel: ReferencePanel) -> InducingPanel:
    """Return the panel as an InducingPanel. The registry allows only this kind besides haplotypes."""
    return cast(InducingPanel, panel)
