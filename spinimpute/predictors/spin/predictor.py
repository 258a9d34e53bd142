"""The predictor SPIN: it runs the network `GenotypeSPIN` on blocks of a panel.

A block is a few gaps between typed sites, with the typed sites around them. To limit the memory, blocks are
encoded in batches of haplotypes and sites, and predicted in batches of queries and sites.

Axes: N panel haplotypes, Q query haplotypes, H inducing points, S typed places of a block (typed sites or
padding), U sites that a block imputes, C untyped sites by which haplotypes are compared, X = S + C.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from spinimpute.genotypes.blocks import BlockShape, argsort_rows, group_means, initial_groups
from spinimpute.genotypes.intervals import Interval
from spinimpute.nn.carrying import CarriedPoints, LabelledChunk
from spinimpute.nn.model_weights import arrays_of, network_of
from spinimpute.panels.inducing_panel import InducingPanel
from spinimpute.panels.panel_blocks import BlockSites, EncodedBlock, Members, PanelBlock
from spinimpute.panels.reference import ReferencePanel
from spinimpute.predictors.interface import (
    Checkpoint,
    Engine,
    ImputationJob,
    Predictor,
    convert_weight_errors,
)
from spinimpute.predictors.registry import SPIN_KIND
from spinimpute.predictors.spin.decoder import SiteInformation
from spinimpute.predictors.spin.decoder_kernel import CorrectionWeights
from spinimpute.predictors.spin.device_blocks import DeviceBlocks
from spinimpute.predictors.spin.device_engine import DeviceEngine
from spinimpute.predictors.spin.engine import BlockEngine, InducingEngine
from spinimpute.predictors.spin.matching import compiled_match, match
from spinimpute.predictors.spin.network import GenotypeSPIN, SPINSettings
from spinimpute.predictors.spin.panel_posteriors import POSTERIOR_WEIGHT
from spinimpute.predictors.spin.point_posteriors import POINT_WEIGHT, needed_array_sites
from spinimpute.predictors.spin.similarity import Columns
from spinimpute.predictors.typed_tiles import TileStarts
from spinimpute.runtime.errors import InputError, argument

BATCH_ENTRIES = 2**22  # haplotypes x (X + inducing points) of a batch in encoding: bounds the memory
LABELS_PER_BATCH = 2_048  # sites of a batch in encoding; few blocks have more
QUERIES_PER_BATCH = 64  # fits into the cache of a CPU
GPU_QUERIES_PER_BATCH = 512  # with fewer, starting the GPU's kernels would take longer than running them
SITES_PER_BATCH = 256  # sites of a batch in prediction
MIN_MEMBER = 0.01  # smaller assignments of a haplotype to a point are left out of `EncodedBlock.members`
DEFAULT_INDUCING_POINTS = 1_024
# Version of the encoder. Increase it when equal weights give other inducing points than before: `.spip` files
# of other versions are refused.
ENCODER = 4
# With at most this many inducing points, blocks of half the size are more accurate on simulated panels.
MAX_POINTS_FOR_NARROW_BLOCKS = 96


class _HaplotypeBatches:
    """The haplotypes of a block in batches, with their alleles at some of the sites to impute.

    Tensors are made during the iteration. The batches do not depend on the sites to impute. Sums over
    haplotypes therefore have the same rounding however a chromosome is cut into windows.
    """

    def __init__(
        self,
        x_NX: np.ndarray,
        label_UN: np.ndarray,
        order_N: np.ndarray,
        points: int,
        as_tensor: Callable[[np.ndarray], Tensor],
    ) -> None:
        self._x_NX, self._label_UN, self._order_N, self._as_tensor = x_NX, label_UN, order_N, as_tensor
        self._batch_size = max(1, BATCH_ENTRIES // (x_NX.shape[1] + points))

    def __len__(self) -> int:
        return -(-len(self._x_NX) // self._batch_size)

    def __iter__(self) -> Iterator[LabelledChunk]:
        for first in range(0, len(self._x_NX), self._batch_size):
            batch_N = self._order_N[first : first + self._batch_size]
            label_BNU = self._as_tensor(self._label_UN[:, batch_N]).T[None]
            yield self._as_tensor(self._x_NX[batch_N])[None], label_BNU


class SPINPredictor(Predictor):
    """Predictor with a trained `GenotypeSPIN`; implements `BlockPredictor`.

    `inducing_points` is the maximum number of inducing points of a block. `shape` is the shape of blocks, by
    default that of training. Both apply to panels of haplotypes only: a `.spip` file contains its own values.
    """

    kind = SPIN_KIND

    def __init__(
        self,
        model: GenotypeSPIN,
        fingerprint: str,
        device: torch.device,
        inducing_points: int | None = None,
        shape: BlockShape | None = None,
    ) -> None:
        self.model = model.to(device).eval()
        self._matcher = compiled_match if device.type == "cpu" else match
        self._correction = CorrectionWeights.of(arrays_of(model.decoder.state_dict()))
        # identifies what inducing points depend on
        self.points_fingerprint = (
            f"{fingerprint} k={model.settings.k} rounds={model.settings.rounds} encoder={ENCODER}"
        )
        self.fingerprint = f"{self.points_fingerprint} posteriors={POSTERIOR_WEIGHT:g},{POINT_WEIGHT:g}"
        self.device, self.device_name = device, device.type
        self.inducing_points = inducing_points or DEFAULT_INDUCING_POINTS
        self.shape = shape or model.settings.shape

    def engine(self, job: ImputationJob) -> Engine:
        """Return the engine for the job's kind of panel: haplotypes or inducing points."""
        if job.panel.haplotypes is not None and self.device.type != "cpu":
            return DeviceEngine(DeviceBlocks(self.model, self.device, self.inducing_points, self.shape), job)
        if job.panel.haplotypes is not None:
            return BlockEngine(self, job)
        return InducingEngine(self, _as_inducing_panel(job.panel), job)

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

    @torch.inference_mode()
    def encode(self, block: PanelBlock, *, with_members: bool = False) -> EncodedBlock:
        """Return the inducing points of a block of the panel, see `BlockPredictor.encode`."""
        group_N = initial_groups(block.typed_NS, self.inducing_points, self.shape)
        x_NX = np.concatenate([block.typed_NS, block.compared_NC], axis=1)
        order_N = argsort_rows(x_NX)  # makes the rounding of sums independent of the panel's sample order
        start_BHX = self._float(group_means(x_NX, group_N))[None]
        columns, present_BH = self._columns(block), torch.ones_like(start_BHX[..., 0])
        frequency_BC = self._float(block.compared_frequency_C)[None]
        encoded, members = [], None
        for first in range(0, len(block.alleles_UN), LABELS_PER_BATCH):
            label_UN = block.alleles_UN[first : first + LABELS_PER_BATCH]
            batches = _HaplotypeBatches(x_NX, label_UN, order_N, start_BHX.shape[1], self._float)
            if with_members and members is None:
                some, assigned = self.model.assign(columns, batches, start_BHX, present_BH, frequency_BC)
                members = _members(assigned, order_N)
            else:
                some = self.model.encode(columns, batches, start_BHX, present_BH, frequency_BC)
            encoded.append(some)
        points = encoded[0]._replace(label_BHU=torch.cat([some.label_BHU for some in encoded], -1))
        fields_of_points = {name: value[0].cpu() for name, value in points._asdict().items()}
        return EncodedBlock(
            block.places,
            block.frequency_S,
            block.sites,
            block.n_haplotypes,
            self.model.settings.k,
            fields_of_points,
            members,
        )

    @torch.inference_mode()
    def predict(self, block: EncodedBlock, query_QS: np.ndarray, known_QS: np.ndarray) -> np.ndarray:
        """Return P(ALT) at the block's sites, float32 (U, Q). known_QS is 0 where a call is missing."""
        k = self.model.settings.k
        if block.k != k:
            raise InputError(
                "damaged",
                f"a block of inducing points has tokens of {block.k} SNPs, but the model reads {k}: the "
                "file is damaged. Make it again.",
            )
        points = CarriedPoints(**{name: value.to(self.device)[None] for name, value in block.points.items()})
        keys = self.model.keys(points, self._columns(block))
        out_UQ = np.empty((len(block.sites.gap_U), len(query_QS)), dtype=np.float32)
        # sites with a single allele in the panel need no prediction
        constant_U = (block.sites.frequency_U == 0) | (block.sites.frequency_U == 1)
        out_UQ[constant_U] = block.sites.frequency_U[constant_U, None]
        wanted_U = np.flatnonzero(~constant_U)
        batch_size = QUERIES_PER_BATCH if self.device.type == "cpu" else GPU_QUERIES_PER_BATCH
        for i in range(0, len(query_QS), batch_size):
            queries = slice(i, i + batch_size)
            logit_BGQH = self.model.attend(
                self._float(query_QS[queries])[None],
                self._float(known_QS[queries])[None],
                keys,
                self._matcher,
            )
            attention = self.model.decoder.read(logit_BGQH, points)
            for j in range(0, len(wanted_U), SITES_PER_BATCH):
                some_U = wanted_U[j : j + SITES_PER_BATCH]
                sites = self._sites(block.sites, some_U, block.n_haplotypes)
                label_BHU = points.label_BHU[..., torch.from_numpy(some_U).to(self.device)]
                if self.device.type == "cpu":
                    p_QU = self.model.decoder.decode_compiled(attention, label_BHU, sites, self._correction)
                else:
                    p_QU = torch.sigmoid(self.model.decoder.decode(attention, label_BHU, sites)[1][0]).cpu()
                out_UQ[some_U, queries] = p_QU.T.numpy()
        return out_UQ

    def _columns(self, block: PanelBlock | EncodedBlock) -> Columns:
        return self.model.columns(
            self._float(block.places.cM_S)[None],
            self._float(block.frequency_S)[None],
            self._float(block.places.valid_S)[None],
            block.n_haplotypes,
        )

    def _sites(self, sites: BlockSites, some_U: np.ndarray, n_haplotypes: int) -> SiteInformation:
        return SiteInformation(
            self._float(sites.frequency_U[some_U])[None],
            self._float(sites.fraction_U[some_U])[None],
            self._float(sites.distance_U[some_U])[None],
            self._float(sites.block_fraction_U[some_U])[None],
            n_haplotypes,
        )

    def _float(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self.device, torch.float32)


def _members(assigned: Iterable[Tensor], order_N: np.ndarray) -> Members:
    """Return the members of points, without shares below MIN_MEMBER.

    `assigned` are the assignments (1, H, n) of batches of haplotypes, in the order order_N.
    """
    parts, start = [], 0
    for r_BHL in assigned:
        r_LH = r_BHL[0].T.cpu().numpy()
        place_L, point_L = np.nonzero(r_LH >= MIN_MEMBER)
        parts.append((order_N[start + place_L], point_L, r_LH[place_L, point_L].astype(np.float64)))
        start += len(r_LH)
    haplotype_L, point_L, share_L = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    order_L = np.argsort(haplotype_L, kind="stable")
    return Members(haplotype_L[order_L], point_L[order_L], share_L[order_L])


def load(checkpoint: Checkpoint) -> SPINPredictor:
    """Return the predictor for a checkpoint; called through `PredictorRow.load`."""
    with convert_weight_errors():
        model = network_of(lambda: GenotypeSPIN(SPINSettings(**checkpoint.settings)), checkpoint.weights)
    points, shape = checkpoint.options["inducing_points"], model.settings.shape
    if points is not None and points <= MAX_POINTS_FOR_NARROW_BLOCKS:
        shape = BlockShape(max(1, shape.core // 2), shape.flank // 2)
    return SPINPredictor(model, checkpoint.fingerprint, torch.device(checkpoint.device), points, shape)


def _as_inducing_panel(panel: ReferencePanel) -> InducingPanel:
    """Return the panel as an InducingPanel. The registry allows only this kind besides haplotypes."""
    return cast(InducingPanel, panel)
