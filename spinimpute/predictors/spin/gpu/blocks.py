"""Several blocks of SPIN at once on one device: from packed bits of the panel to probabilities.

`predictor.SPINPredictor` computes one block after the other in numpy and torch, which is fast on CPUs. Here
all steps run in torch on the blocks of a batch. A GPU thus gets few large tasks, and only results return to
the host. Both give the same probabilities, up to rounding.

Axes: B blocks, N panel haplotypes, Q query haplotypes, H inducing points, S typed places of a block (typed
sites or padding), C untyped sites by which haplotypes are compared, X = S + C, F features of a haplotype (see
`DenseSimilarity`), U sites to impute, R rows of a table, W bytes of packed bits, L results (pairs of a block
and a site), or haplotypes of all blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from spinimpute.genotypes.blocks import TIE, WEIGHT_WIDTHS, BlockShape
from spinimpute.nn.carrying import CarriedPoints, LabelledChunk
from spinimpute.panels.panel import Panel
from spinimpute.panels.panel_blocks import BlockPlan
from spinimpute.predictors.spin.decoder import HeadAttention, SiteInformation
from spinimpute.predictors.spin.gpu.rounding import round_on_device
from spinimpute.predictors.spin.kmers import kmer_numbers
from spinimpute.predictors.spin.matching import AttentionKeys
from spinimpute.predictors.spin.network import BlockContext, GenotypeSPIN
from spinimpute.predictors.spin.similarity import Columns, DenseSimilarity, haplotype_features

WORD_BITS = 60  # bits of a haplotype that are sorted at a time
SITES_PER_STEP = 256  # sites of a step of the decoder
CODES = 2**16 - 1  # probabilities are downloaded as multiples of 1 / CODES


@dataclass(frozen=True)
class BatchOfBlocks:
    """Consecutive blocks, those with most sites first, as arrays on the host.

    Rows of sites are indices into the panel's sites, minus `first_site`; -1 is padding.
    """

    n_haplotypes: int
    first_site: int
    packed_XW: np.ndarray  # the panel's packed bits at the sites of the blocks, uint8
    typed: slice  # the typed sites that the blocks see
    packed_typed_TW: np.ndarray  # the panel's packed bits at these typed sites, uint8
    typed_row_BS: np.ndarray  # rows of packed_typed_TW, int64
    place_3BS: np.ndarray  # cM, frequency and valid of each place, float32
    compared_row_BC: np.ndarray
    compared_frequency_BC: np.ndarray  # float32
    site_row_BU: np.ndarray  # the sites with two alleles in the panel
    site_4BU: np.ndarray  # the fields of `SiteInformation`, float32
    n_sites_B: list[int]

    @property
    def order_L(self) -> np.ndarray:
        """The entries of (B, U) that are sites, in the order of the panel."""
        flat = self.site_row_BU.ravel()
        return np.argsort(flat, kind="stable")[np.count_nonzero(flat < 0) :]

    @property
    def site_index_L(self) -> np.ndarray:
        """The panel's sites of the results."""
        return self.site_row_BU.ravel()[self.order_L] + self.first_site


def read_packed_blocks(panel: Panel, plan: BlockPlan, blocks: range, start: int, stop: int) -> BatchOfBlocks:
    """Read consecutive blocks of a panel to impute the panel sites [start, stop).

    Raises InputError if the panel is damaged there.
    """
    typed_index = plan.typed_index
    sites = {number: plan.sites(number, start, stop) for number in blocks}
    varying = {
        number: np.flatnonzero((some.frequency_U > 0) & (some.frequency_U < 1))
        for number, some in sites.items()
    }
    ordered = sorted(blocks, key=lambda number: -len(varying[number]))
    places = [plan.places(number, 0, len(typed_index)) for number in ordered]
    compared = [plan.compared(number) for number in ordered]
    first_typed = min(some.first for some, _ in places)
    typed = slice(first_typed, max(some.last for some, _ in places))
    first_site, _ = plan.span(blocks[0], 0, panel.n_sites)
    _, last_site = plan.span(blocks[-1], 0, panel.n_sites)
    typed_row_BS = np.full((len(ordered), plan.shape.n_typed), -1, dtype=np.int64)
    for row_S, (some, _) in zip(typed_row_BS, places, strict=True):
        row_S[some.offset : some.offset + some.last - some.first] = (
            np.arange(some.first, some.last) - first_typed
        )
    compared_row_BC = _padded([index - first_site for index in compared], -1)
    kept = [(sites[number], varying[number]) for number in ordered]
    return BatchOfBlocks(
        panel.n_haplotypes,
        first_site,
        panel.packed(first_site, last_site),
        typed,
        panel.packed_rows(typed_index[typed]),
        typed_row_BS,
        np.stack(
            [np.stack([some.cM_S, frequency_S, some.valid_S]) for some, frequency_S in places], axis=1
        ).astype(np.float32),
        compared_row_BC,
        np.where(compared_row_BC >= 0, panel.frequency[compared_row_BC + first_site], 0).astype(np.float32),
        _padded([some.panel_index_U[wanted] - first_site for some, wanted in kept], -1),
        np.stack(
            [
                _padded([getattr(some, name)[wanted] for some, wanted in kept], 0.5)
                for name in ("frequency_U", "fraction_U", "distance_U", "block_fraction_U")
            ]
        ).astype(np.float32),
        [len(wanted) for _, wanted in kept],
    )


def _padded(rows: Sequence[np.ndarray], padding: float) -> np.ndarray:
    """Return the rows as one array; short rows are padded at their end."""
    out = np.full((len(rows), max(map(len, rows))), padding, dtype=rows[0].dtype)
    for padded, row in zip(out, rows, strict=True):
        padded[: len(row)] = row
    return out


class _Chunks:
    """The haplotypes of a batch in chunks, with their features and alleles; implements `LabelledChunks`."""

    def __init__(self, kmer_BND: Tensor, untyped_BNC: Tensor, label_BNU: Tensor, k: int, size: int) -> None:
        self._kmer_BND, self._untyped_BNC, self._label_BNU = kmer_BND, untyped_BNC, label_BNU
        self._n_kmers = 2**k
        self._size, self._dtype = size, type_of_alleles(kmer_BND.device)
        self._only = [self._chunk(0)] if len(self) == 1 else []  # kept for the other rounds

    def __len__(self) -> int:
        return -(-self._kmer_BND.shape[1] // self._size)

    def __iter__(self) -> Iterator[LabelledChunk]:
        firsts = range(0, self._kmer_BND.shape[1], self._size)
        yield from self._only or (self._chunk(first) for first in firsts)

    def _chunk(self, first: int) -> LabelledChunk:
        some = slice(first, first + self._size)
        features_BNF = haplotype_features(
            self._kmer_BND[:, some], self._untyped_BNC[:, some], self._n_kmers, self._dtype
        )
        return features_BNF, self._label_BNU[:, some].to(self._dtype)


class DeviceBlocks:
    """The network of SPIN, for batches of blocks on one device."""

    def __init__(
        self, model: GenotypeSPIN, device: torch.device, inducing_points: int, shape: BlockShape
    ) -> None:
        self.model, self.device, self.inducing_points, self.shape = model, device, inducing_points, shape

    def columns(self, batch: BatchOfBlocks) -> Columns:
        """Return the description of the blocks' columns."""
        cM_BS, frequency_BS, valid_BS = self.upload(batch.place_3BS)
        return self.model.columns(cM_BS, frequency_BS, valid_BS, batch.n_haplotypes)

    def encode(self, batch: BatchOfBlocks, columns: Columns, haplotypes_per_chunk: int) -> CarriedPoints:
        """Return the inducing points of the blocks, rounded as in a file."""
        k, n = self.model.settings.k, batch.n_haplotypes
        typed_BSN = self._alleles(batch.packed_typed_TW, batch.typed_row_BS, n)
        bits_XN = unpack_bits(self.upload(batch.packed_XW), n)
        compared_BCN = _gather(bits_XN, self.upload(batch.compared_row_BC))
        label_BUN = _gather(bits_XN, self.upload(batch.site_row_BU))
        n_points = min(self.inducing_points, n)
        group_BN = group_haplotypes(typed_BSN, n_points)
        x_BNX = torch.cat([typed_BSN, compared_BCN], 1).mT
        start_BHX, present_BH = mean_of_groups(x_BNX, group_BN, n_points)
        chunks = _Chunks(
            kmer_numbers(typed_BSN.mT, k), compared_BCN.mT, label_BUN.mT, k, haplotypes_per_chunk
        )
        frequency_BC = self.upload(batch.compared_frequency_BC)
        points = self.model.encode(
            BlockContext(columns, chunks, start_BHX, present_BH, frequency_BC, DenseSimilarity)
        )
        token_BHDV, label_BHU, mass_BH = round_on_device(
            points.feature_BHF.unflatten(-1, (-1, 2**k)), points.label_BHU, points.mass_BH
        )
        return CarriedPoints(token_BHDV.flatten(2), label_BHU, mass_BH)

    def predict(
        self,
        batch: BatchOfBlocks,
        points: CarriedPoints,
        columns: Columns,
        typed_TQ: np.ndarray,
        n_queries: int,
    ) -> Tensor:
        """Return P(ALT) of the blocks' sites as codes, int16 (L, Q): 0 to CODES, minus 2^15.

        typed_TQ are the queries' alleles at the typed sites `batch.typed`, int8, -1 where missing.
        `n_queries` are computed at a time.
        """
        keys = self.model.keys(points, columns)
        attend = self._attention(keys, points, missing=bool((typed_TQ < 0).any()))
        allele_TQ, row_BS = self.upload(typed_TQ), self.upload(batch.typed_row_BS)
        site_4BU = self.upload(batch.site_4BU)
        b, u = batch.site_row_BU.shape
        out_BUQ = torch.empty((b, u, typed_TQ.shape[1]), dtype=torch.int16, device=self.device)
        for low in range(0, typed_TQ.shape[1], n_queries):
            queries = slice(low, low + n_queries)
            allele_BQS = _gather(allele_TQ[:, queries], row_BS).mT
            attention = attend(allele_BQS.clamp(min=0).float(), (allele_BQS >= 0).float())
            for first in range(0, u, SITES_PER_STEP):
                # the blocks with sites here come first
                some, step = (
                    slice(0, sum(n > first for n in batch.n_sites_B)),
                    slice(first, first + SITES_PER_STEP),
                )
                frequency_BU, fraction_BU, distance_BU, place_BU = site_4BU[:, some, step]
                _, logit_BQU = self.model.decoder.decode(
                    HeadAttention(attention.attention_BGQH[some], attention.summary_BQC[some]),
                    points.label_BHU[some, :, step],
                    SiteInformation(frequency_BU, fraction_BU, distance_BU, place_BU, batch.n_haplotypes),
                )
                code_BQU = torch.sigmoid(logit_BQU).mul_(CODES).sub_(2**15).round_()
                out_BUQ[some, step, queries] = code_BQU.mT.to(torch.int16)
        return out_BUQ.flatten(0, 1)[self.upload(batch.order_L)]

    def _attention(
        self, keys: AttentionKeys, points: CarriedPoints, *, missing: bool
    ) -> Callable[[Tensor, Tensor], HeadAttention]:
        """Return the function of alleles and known calls (B, Q, S) that computes the queries' attention.

        missing: whether queries may have missing calls.
        """
        model, k = self.model, self.model.settings.k
        if not uses_triton(self.device):
            return lambda allele_BQS, known_BQS: model.decoder.read(
                model.attend(allele_BQS, known_BQS, keys), points
            )
        from spinimpute.predictors.spin.gpu.attention import attend_with_triton
        from spinimpute.predictors.spin.gpu.matching import TritonMatcher

        matcher = TritonMatcher(keys, k, missing=missing)
        return lambda allele_BQS, known_BQS: attend_with_triton(
            model, model.compare(allele_BQS, known_BQS, keys, matcher), keys
        )

    def upload(self, array: np.ndarray) -> Tensor:
        """Return the array as a tensor on the device. Does not wait for a GPU."""
        tensor = torch.from_numpy(np.require(array, requirements=["C", "W"]))
        if self.device.type == "cuda":
            return tensor.pin_memory().to(self.device, non_blocking=True)
        return tensor

    def _alleles(self, packed_RW: np.ndarray, row_BX: np.ndarray, n: int) -> Tensor:
        return _gather(unpack_bits(self.upload(packed_RW), n), self.upload(row_BX))


def type_of_alleles(device: torch.device) -> torch.dtype:
    """Return the type in which the device multiplies alleles fastest."""
    with_tensor_cores = device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0)
    return torch.bfloat16 if with_tensor_cores and torch.__version__ >= "2.8" else torch.float32


def uses_triton(device: torch.device) -> bool:
    """Return whether `match` runs as a Triton kernel: on GPUs, if Triton is installed."""
    return device.type == "cuda" and find_spec("triton") is not None


def unpack_bits(packed_XB: Tensor, n: int) -> Tensor:
    """Return the first n bits of each row in the order of `numpy.packbits`, uint8 (X, n)."""
    shift_8 = torch.arange(7, -1, -1, device=packed_XB.device, dtype=torch.uint8)
    return (packed_XB.unsqueeze(-1).bitwise_right_shift(shift_8) & 1).flatten(1)[:, :n]


def _gather(table_RL: Tensor, row_BX: Tensor) -> Tensor:
    """Return rows of a table, (B, X, L); 0 for row -1."""
    return table_RL[row_BX.clamp(min=0)] * (row_BX >= 0).unsqueeze(-1)


def group_haplotypes(typed_BSN: Tensor, count: int) -> Tensor:
    """Return the groups of `blocks.initial_groups` in each block, int64 (B, N)."""
    b, s, n = typed_BSN.shape
    place_S = torch.arange(s, device=typed_BSN.device)
    central_S = (place_S - (s - 1) / 2).abs().argsort(stable=True)
    edges = sorted(
        {0, *(min(width, s) for width in WEIGHT_WIDTHS), *range(WEIGHT_WIDTHS[-1], s, WORD_BITS), s}
    )
    allele_BSN = typed_BSN[:, central_S]
    words = []  # (B, N) each, the most significant first
    for first, last in pairwise(edges):
        shift_S1 = torch.arange(last - first - 1, -1, -1, device=typed_BSN.device).unsqueeze(-1)
        words.append((allele_BSN[:, first:last].long() << shift_S1).sum(1))
    # sort the haplotypes of all blocks together, which starts fewer kernels; their blocks come last
    block_BN = torch.arange(b, device=typed_BSN.device).unsqueeze(1).expand(b, n)
    order_L = torch.arange(b * n, device=typed_BSN.device)
    for word_BN in (*reversed(words), block_BN):
        order_L = order_L[word_BN.flatten()[order_L].argsort(stable=True)]
    order_BN = order_L.view(b, n) - n * block_BN
    differs_BN = torch.zeros_like(order_BN, dtype=torch.bool)
    differs_BN[:, 0] = True
    boundaries = {}  # whether a haplotype differs from the one before at the first sites, by their number
    for last, word_BN in zip(edges[1:], words, strict=True):
        sorted_BN = word_BN.gather(1, order_BN)
        differs_BN[:, 1:] |= sorted_BN[:, 1:] != sorted_BN[:, :-1]
        boundaries[last] = differs_BN.clone()
    weight_BN = _run_lengths(differs_BN).double()
    for width in WEIGHT_WIDTHS:
        weight_BN *= _run_lengths(boundaries[min(width, s)]).double() ** -0.25
    weight_BN = torch.where(differs_BN, weight_BN, 0)  # of the first haplotype of each pattern
    middle_BN = (weight_BN.cumsum(1) - weight_BN / 2) / weight_BN.sum(1, keepdim=True)
    group_BN = (middle_BN * count + TIE).long().clamp(max=count - 1)
    pattern_BN = differs_BN.cumsum(1) - 1
    first_BN = torch.where(differs_BN, torch.arange(n, device=typed_BSN.device), 0).cummax(1).values
    group_BN = group_BN.gather(1, first_BN)
    changes_BN = torch.zeros_like(group_BN)
    changes_BN[:, 1:] = group_BN[:, 1:] != group_BN[:, :-1]
    few_B1 = pattern_BN[:, -1:] < count
    sorted_group_BN = torch.where(few_B1, pattern_BN, changes_BN.cumsum(1))
    return torch.empty_like(order_BN).scatter_(1, order_BN, sorted_group_BN)


def _run_lengths(starts_BN: Tensor) -> Tensor:
    """Return the length of each entry's run, int64 (B, N); starts_BN is True where a run starts."""
    run_BN = starts_BN.cumsum(1) - 1
    length_BN = torch.zeros_like(run_BN).scatter_add_(1, run_BN, torch.ones_like(run_BN))
    return length_BN.gather(1, run_BN)


def mean_of_groups(x_BNX: Tensor, group_BN: Tensor, n_groups: int) -> tuple[Tensor, Tensor]:
    """Return the means of the groups, float32 (B, H, X), and whether a group has members, (B, H), 0 or 1."""
    b, _, x = x_BNX.shape
    row_L = (group_BN + n_groups * torch.arange(b, device=group_BN.device).unsqueeze(1)).flatten()
    # sums of alleles are whole numbers, so their order has no effect
    total_LX = torch.zeros((b * n_groups, x), device=x_BNX.device).index_add_(
        0, row_L, x_BNX.flatten(0, 1).float()
    )
    count_L = torch.zeros(b * n_groups, device=x_BNX.device).index_add_(
        0, row_L, torch.ones_like(row_L).float()
    )
    mean_LX = total_LX / count_L.clamp(min=1).unsqueeze(-1)
    return mean_LX.unflatten(0, (b, n_groups)), (count_L > 0).float().unflatten(0, (b, n_groups))
