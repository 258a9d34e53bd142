"""The engine of SPIN on a GPU: it imputes batches of blocks from a panel of haplotypes.

One thread feeds the GPU. While the results of a batch are copied to the host and converted, the next batch is
computed.

Axes: see `blocks`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from spinimpute.genotypes.intervals import Interval
from spinimpute.panels.panel_blocks import BlockPlan
from spinimpute.predictors.interface import ImputationJob
from spinimpute.predictors.spin.engine import not_finite
from spinimpute.predictors.spin.gpu.blocks import (
    CODES,
    SITES_PER_STEP,
    DeviceBlocks,
    read_packed_blocks,
    uses_triton,
)
from spinimpute.predictors.spin.panel_posteriors import PanelEngine
from spinimpute.runtime.errors import InputError, argument

MAX_BLOCKS = 16  # blocks of a batch
MAX_QUERIES = 2_048  # queries that are computed at a time
MEMORY_SHARE = 0.6  # share of the free memory that a batch may take
VALUES_PER_TASK = 2**18  # probabilities that a thread converts at a time
CPU_BYTES = 2**30  # bytes of a batch on a CPU, where this engine is used in tests only


class _Results(NamedTuple):
    """The results of a batch on their way to the host."""

    stop: int  # the panel's sites before this one are done
    site_index_L: np.ndarray
    code_LQ: Tensor  # int16, see `DeviceBlocks.predict`
    finite: Tensor  # whether all inducing points are finite
    copied: Any  # the CUDA event after the copy; None on a CPU


class _Computed(NamedTuple):
    """The results of a batch on the host."""

    stop: int
    site_index_L: np.ndarray
    code_LQ: np.ndarray


class DeviceEngine(PanelEngine):
    """Engine that computes batches of blocks on one device. `blocks` holds the network."""

    def __init__(self, blocks: DeviceBlocks, job: ImputationJob) -> None:
        assert job.panel.haplotypes is not None, "`InducingEngine` imputes from other panels"
        super().__init__(job)
        self.panel, self.blocks = job.panel.haplotypes, blocks
        self._is_gpu = blocks.device.type == "cuda"
        self._share = MEMORY_SHARE
        self._copies = torch.cuda.Stream(blocks.device) if self._is_gpu else None

    def predict_spin(self, windows: Sequence[Interval], typed_TQ: np.ndarray) -> Generator[np.ndarray]:
        """Yield P(ALT) of SPIN alone, computed in batches of blocks."""
        results = self._results(windows, typed_TQ) if len(self.typed_index) else iter(())
        held: list[_Computed] = []
        for window in windows:
            held = [some for some in held if some.stop > window.start]
            while not held or held[-1].stop < window.stop:
                some = next(results, None)
                if some is None:
                    break
                held.append(some)
            yield self._probabilities(window, typed_TQ.shape[1], held)

    def _probabilities(self, window: Interval, n_queries: int, held: list[_Computed]) -> np.ndarray:
        """Return P(ALT) of a window, float32 (U, Q): the results, or else the panel's ALT frequency."""
        p_UQ = np.empty((window.n_sites, n_queries), dtype=np.float32)

        def fill(some: tuple[_Computed, slice]) -> None:
            computed, rows = some
            p_LQ = computed.code_LQ[rows].astype(np.float32)
            p_LQ += np.float32(2**15)
            row_L = computed.site_index_L[rows] - window.start
            if row_L[-1] - row_L[0] == len(row_L) - 1:
                np.multiply(p_LQ, np.float32(1 / CODES), out=p_UQ[row_L[0] : row_L[-1] + 1])
            else:
                p_UQ[row_L] = p_LQ * np.float32(1 / CODES)

        rest_U = np.ones(window.n_sites, dtype=bool)
        step = max(1, VALUES_PER_TASK // p_UQ.shape[1])
        tasks = []
        for computed in held:
            first, stop = np.searchsorted(computed.site_index_L, window).tolist()
            rest_U[computed.site_index_L[first:stop] - window.start] = False
            tasks += [(computed, slice(low, min(low + step, stop))) for low in range(first, stop, step)]
        list(self.pool.map(fill, tasks))
        p_UQ[rest_U] = self.panel.frequency[window.slice][rest_U, None]
        return p_UQ

    def _results(self, windows: Sequence[Interval], typed_TQ: np.ndarray) -> Iterator[_Computed]:
        """Yield the results of the batches, in order of their sites."""
        plan = BlockPlan(self.blocks.shape, self.typed_index, self.panel.cM, self.panel.frequency)
        sites = Interval(windows[0].start, windows[-1].stop)
        numbers = sorted({number for window in windows for number in plan.blocks(*window)})
        waiting: _Results | None = None
        while numbers:
            started, numbers = self._next_batch(plan, numbers, sites, typed_TQ)
            if waiting is not None:
                yield self._collect(waiting)
            waiting = started
        if waiting is not None:
            yield self._collect(waiting)

    def _next_batch(
        self, plan: BlockPlan, numbers: list[int], sites: Interval, typed_TQ: np.ndarray
    ) -> tuple[_Results, list[int]]:
        """Start to compute a batch. Return its results and the remaining blocks.

        If the memory of the GPU is too small, smaller batches are tried.
        """
        while True:
            n_blocks, n_queries, n_haplotypes = self._sizes(numbers, plan, typed_TQ.shape[1])
            consecutive = np.flatnonzero(np.diff(numbers[:n_blocks]) != 1)
            n_blocks = int(consecutive[0]) + 1 if len(consecutive) else min(n_blocks, len(numbers))
            blocks = range(numbers[0], numbers[n_blocks - 1] + 1)
            try:
                started = self._start(plan, blocks, sites, typed_TQ, n_queries, n_haplotypes)
                return started, numbers[n_blocks:]
            except torch.cuda.OutOfMemoryError:
                if n_blocks == 1 and n_queries == 1:
                    raise self._too_large() from None
                self._share /= 2
            if self._is_gpu:
                torch.cuda.empty_cache()

    @torch.inference_mode()
    def _start(
        self,
        plan: BlockPlan,
        numbers: range,
        sites: Interval,
        typed_TQ: np.ndarray,
        n_queries: int,
        n_haplotypes: int,
    ) -> _Results:
        batch = read_packed_blocks(self.panel, plan, numbers, *sites)
        columns = self.blocks.columns(batch)
        points = self.blocks.encode(batch, columns, n_haplotypes)
        finite = torch.stack([part.isfinite().all() for part in points]).all()
        code_LQ = self.blocks.predict(batch, points, columns, typed_TQ[batch.typed], n_queries)
        _, stop = plan.span(numbers[-1], *sites)
        if self._copies is None:
            return _Results(stop, batch.site_index_L, code_LQ, finite, None)
        self._copies.wait_stream(torch.cuda.current_stream(self.blocks.device))
        with torch.cuda.stream(self._copies):
            code_on_host, finite_on_host = (
                torch.empty(x.shape, dtype=x.dtype, pin_memory=True).copy_(x, non_blocking=True)
                for x in (code_LQ, finite)
            )
            for x in (code_LQ, finite):
                x.record_stream(self._copies)
            copied = self._copies.record_event()
        return _Results(stop, batch.site_index_L, code_on_host, finite_on_host, copied)

    def _collect(self, results: _Results) -> _Computed:
        if results.copied is not None:
            results.copied.synchronize()
        if not results.finite.item():
            raise not_finite()
        return _Computed(results.stop, results.site_index_L, results.code_LQ.numpy())

    def _too_large(self) -> InputError:
        return InputError(
            "memory",
            f"the GPU has too little free memory for a block of {self.panel.n_haplotypes} haplotypes and "
            f"{self.blocks.inducing_points} inducing points. Use fewer inducing points "
            f"({argument('inducing_points')}), a GPU with more memory, or {argument('device', 'cpu')}",
        )

    def _sizes(self, numbers: list[int], plan: BlockPlan, queries: int) -> tuple[int, int, int]:
        """Return the numbers of blocks of a batch, and of queries and haplotypes of a step."""
        settings = self.blocks.model.settings
        n, k = self.panel.n_haplotypes, settings.k
        points, columns = min(self.blocks.inducing_points, n), -(-self.blocks.shape.n_typed // k)
        first = numbers[:MAX_BLOCKS]
        sites = max(
            stop - start for start, stop in (plan.span(block, 0, self.panel.n_sites) for block in first)
        )
        features = columns * 2**k + 512
        # float32 numbers of a block that do not depend on queries, of a haplotype, and of a query
        fixed = points * (8 * features + 2 * sites) + columns * 3**k * points * 3
        of_haplotype = 2 * features + 5 * points + sites + self.blocks.shape.n_typed * 4
        heads = settings.heads + settings.pair_heads
        of_query = points * (2 * settings.pair_features + 2 * settings.hidden + 4 * heads)
        if not uses_triton(self.blocks.device):
            of_query += 6 * columns * points
        of_query += SITES_PER_STEP * (2 * heads + 6 * 32) + sites // 2
        free = self._free_bytes() * self._share / 4
        n_queries = max(1, min(queries, MAX_QUERIES, int(free / 4 / of_query)))
        n_haplotypes = max(1, min(n, int(free / 4 / of_haplotype)))
        of_block = fixed + max(of_haplotype * n_haplotypes, of_query * n_queries)
        return max(1, min(MAX_BLOCKS, int(free / of_block))), n_queries, n_haplotypes

    def _free_bytes(self) -> int:
        if not self._is_gpu:
            return CPU_BYTES
        free, _ = torch.cuda.mem_get_info(self.blocks.device)
        reserved = torch.cuda.memory_reserved(self.blocks.device) - torch.cuda.memory_allocated(
            self.blocks.device
        )
        return free + reserved
