"""The network of SPIN in torch, one block at a time: it encodes blocks, and predicts from them on a GPU.

To limit the memory, blocks are encoded in batches of haplotypes and sites, and predicted in batches of
queries and sites. `gpu.blocks` computes many blocks at a time; `compiled.reader` predicts on CPUs.

Axes: N panel haplotypes, Q query haplotypes, H inducing points, S typed places of a block (typed sites or
padding), U sites that a block imputes, C untyped sites by which haplotypes are compared, X = S + C.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import torch
from torch import Tensor

from spinimpute.genotypes.blocks import BlockShape, argsort_rows, group_means, initial_groups
from spinimpute.nn.carrying import CarriedPoints, LabelledChunk
from spinimpute.panels.panel_blocks import BlockSites, EncodedBlock, Members, PanelBlock
from spinimpute.predictors.spin.decoder import SiteInformation
from spinimpute.predictors.spin.network import BlockContext, GenotypeSPIN
from spinimpute.predictors.spin.settings import MIN_MEMBER
from spinimpute.predictors.spin.similarity import Columns

BATCH_ENTRIES = 2**22  # haplotypes x (X + inducing points) of a batch in encoding: bounds the memory
LABELS_PER_BATCH = 2_048  # sites of a batch in encoding; few blocks have more
QUERIES_PER_BATCH = 512  # with fewer, starting the GPU's kernels would take longer than running them
SITES_PER_BATCH = 256  # sites of a batch in prediction


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


class TorchBlocks:
    """A network on a device that encodes blocks of a panel, and predicts from encoded blocks.

    `inducing_points` is the maximum number of inducing points of a block, `shape` the shape of blocks.
    """

    def __init__(
        self, model: GenotypeSPIN, device: torch.device, inducing_points: int, shape: BlockShape
    ) -> None:
        self.model, self.device = model, device
        self.inducing_points, self.shape = inducing_points, shape

    @torch.inference_mode()
    def encode(self, block: PanelBlock, *, with_members: bool = False) -> EncodedBlock:
        """Return the inducing points of a block of the panel, see `panel_blocks.BlockPredictor`."""
        group_N = initial_groups(block.typed_NS, self.inducing_points, self.shape)
        x_NX = np.concatenate([block.typed_NS, block.compared_NC], axis=1)
        order_N = argsort_rows(x_NX)  # makes the rounding of sums independent of the panel's sample order
        start_BHX = self._float(group_means(x_NX, group_N))[None]
        present_BH = torch.ones_like(start_BHX[..., 0])
        columns, frequency_BC = self._columns(block), self._float(block.compared_frequency_C)[None]
        encoded, members = [], None
        for first in range(0, len(block.alleles_UN), LABELS_PER_BATCH):
            label_UN = block.alleles_UN[first : first + LABELS_PER_BATCH]
            batches = _HaplotypeBatches(x_NX, label_UN, order_N, start_BHX.shape[1], self._float)
            context = BlockContext(columns, batches, start_BHX, present_BH, frequency_BC)
            if with_members and members is None:
                some, assigned = self.model.assign(context)
                members = _members(assigned, order_N)
            else:
                some = self.model.encode(context)
            encoded.append(some)
        points = encoded[0]._replace(label_BHU=torch.cat([some.label_BHU for some in encoded], -1))
        fields_of_points = {name: value[0].cpu().numpy() for name, value in points._asdict().items()}
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
    def predict(
        self, block: EncodedBlock, wanted_U: np.ndarray, query_QS: np.ndarray, known_QS: np.ndarray
    ) -> np.ndarray:
        """Return P(ALT) at some sites of the block, float32 (U, Q). known_QS is 0 where a call is missing."""
        points = CarriedPoints(**{name: self._float(value)[None] for name, value in block.points.items()})
        keys = self.model.keys(points, self._columns(block))
        p_UQ = np.empty((len(wanted_U), len(query_QS)), dtype=np.float32)
        for i in range(0, len(query_QS), QUERIES_PER_BATCH):
            queries = slice(i, i + QUERIES_PER_BATCH)
            logit_BGQH = self.model.attend(
                self._float(query_QS[queries])[None], self._float(known_QS[queries])[None], keys
            )
            attention = self.model.decoder.read(logit_BGQH, points)
            for j in range(0, len(wanted_U), SITES_PER_BATCH):
                some_U = wanted_U[j : j + SITES_PER_BATCH]
                sites = self._sites(block.sites, some_U, block.n_haplotypes)
                label_BHU = points.label_BHU[..., torch.from_numpy(some_U).to(self.device)]
                _, logit_BQU = self.model.decoder.decode(attention, label_BHU, sites)
                p_UQ[j : j + SITES_PER_BATCH, queries] = torch.sigmoid(logit_BQU[0]).cpu().T.numpy()
        return p_UQ

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
