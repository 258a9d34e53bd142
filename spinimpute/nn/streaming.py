"""Attention of a few queries over very many keys that are read in chunks: exact, with bounded memory.

A softmax over all keys needs three running quantities for each query: the maximum score, the sum of
exponentials relative to it, and the values summed with the same weights. States of disjoint sets of keys can
be merged in any order, in one process or across several. The backward pass computes each chunk's keys and
values again and needs only the logarithm of the total sum, so neither pass holds more than one chunk.

Axes: see `spinimpute.nn`; M keys of one chunk.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from spinimpute.nn.shapes import require_dimensions
from spinimpute.runtime.processes import ALONE, Processes


class KeysValues(NamedTuple):
    """One chunk.

    Attributes
    ----------
    keys : Tensor (B, G, M, P)
    values : Tensor (B, G, M, P)
        They may have another width than the keys, the same in all chunks.
    visible : bool Tensor (B, M), optional
        True where a key may be read; all by default.
    """

    keys: Tensor
    values: Tensor
    visible: Tensor | None = None


Chunk = Callable[[], KeysValues]


def _scores(q_BGLP: Tensor, chunk: KeysValues, scale: float) -> Tensor:
    scores_BGLM = (q_BGLP @ chunk.keys.to(q_BGLP.dtype).transpose(-1, -2)) * scale
    if chunk.visible is not None:
        scores_BGLM = scores_BGLM.masked_fill(~chunk.visible[:, None, None, :], -torch.inf)
    return scores_BGLM


def _weight_of_part(part_maximum: Tensor, maximum: Tensor) -> Tensor:
    # A part without keys has maximum -inf; exp(-inf - -inf) would be NaN where the whole has none either.
    return torch.where(part_maximum == -torch.inf, 0, torch.exp(part_maximum - maximum))


@dataclass(frozen=True)
class StreamState:
    """Attention of L queries over the keys seen so far, in float32 or wider.

    Attributes
    ----------
    maximum : Tensor
        (B, G, L, 1) largest score; -inf while no key was seen.
    total : Tensor
        (B, G, L, 1) sum of exp(score - maximum).
    weighted : Tensor
        (B, G, L, P) sum of exp(score - maximum) * value, P that of the values.
    """

    maximum: Tensor
    total: Tensor
    weighted: Tensor

    @classmethod
    def empty(cls, q_BGLP: Tensor, width: int) -> "StreamState":
        """State before the first key, for queries (B, G, L, P) and values of some width."""
        dtype = torch.promote_types(q_BGLP.dtype, torch.float32)
        total = torch.zeros_like(q_BGLP[..., :1], dtype=dtype)
        weighted = total.expand(*total.shape[:-1], width).clone()
        return cls(torch.full_like(total, -torch.inf), total, weighted)

    @classmethod
    def of(cls, q_BGLP: Tensor, chunk: KeysValues, scale: float) -> "StreamState":
        """State of queries (B, G, L, P) after this one chunk. Queries may have B = 1 for all tasks."""
        if chunk.keys.shape[-2] == 0:
            return cls.empty(q_BGLP.expand(chunk.keys.shape[0], -1, -1, -1), chunk.values.shape[-1])
        wide = q_BGLP.to(torch.promote_types(q_BGLP.dtype, torch.float32))
        with torch.autocast(q_BGLP.device.type, enabled=False):
            scores_BGLM = _scores(wide, chunk, scale)
            maximum = scores_BGLM.amax(-1, keepdim=True)
            weights_BGLM = torch.exp(scores_BGLM - maximum.clamp(min=torch.finfo(wide.dtype).min))
            weighted = weights_BGLM @ chunk.values.to(wide.dtype)
        return cls(maximum, weights_BGLM.sum(-1, keepdim=True), weighted)

    def merge(self, other: "StreamState") -> "StreamState":
        """State over both sets of keys, which must be disjoint; the order does not matter."""
        maximum = torch.maximum(self.maximum, other.maximum)
        mine = _weight_of_part(self.maximum, maximum)
        theirs = _weight_of_part(other.maximum, maximum)
        return StreamState(
            maximum,
            mine * self.total + theirs * other.total,
            mine * self.weighted + theirs * other.weighted,
        )

    def merged_across(self, processes: Processes) -> "StreamState":
        """State over the keys of all processes, in each of them."""
        if processes.count == 1:
            return self
        maximum = self.maximum.clone()
        processes.take_largest(maximum)
        mine = _weight_of_part(self.maximum, maximum)
        total, weighted = mine * self.total, mine * self.weighted
        processes.add_up([total, weighted])
        return StreamState(maximum, total, weighted)

    def result(self) -> Tensor:
        """Attended values (B, G, L, P); zero for a query that no key was visible to."""
        return self.weighted / self.total.where(self.total > 0, 1)

    def log_sum_exp(self) -> Tensor:
        """Logarithm of the sum of exponentiated scores, (B, G, L, 1); -inf without keys."""
        return self.maximum + self.total.log()


class _StreamedAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        q_BGLP: Tensor,
        chunks: Sequence[Chunk],
        recompute: Sequence[Chunk],
        scale: float,
        processes: Processes,
        *sources: Tensor,
    ) -> Tensor:
        state: StreamState | None = None
        for i, chunk in enumerate(chunks):
            part = StreamState.of(q_BGLP, chunk(), scale)
            if state is None:
                state = part
                continue
            if part.total.shape != state.total.shape:
                raise ValueError(
                    f"chunks must hold the same tasks, however: chunk {i} has {part.total.shape[0]}, "
                    f"those before it {state.total.shape[0]}"
                )
            state = state.merge(part)
        assert state is not None, "`streamed_attention` has counted the chunks"
        state = state.merged_across(processes)
        attended = state.result()
        ctx.save_for_backward(q_BGLP, attended, state.log_sum_exp(), *sources)
        ctx.recompute = recompute
        ctx.scale = scale
        ctx.processes = processes
        ctx.device_type = q_BGLP.device.type
        ctx.autocast = torch.is_autocast_enabled(ctx.device_type)
        ctx.autocast_dtype = torch.get_autocast_dtype(ctx.device_type)
        return attended.to(q_BGLP.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_attended: Tensor) -> tuple[Tensor | None, ...]:
        q_BGLP, attended, log_sum_exp, *sources = ctx.saved_tensors
        wanted = [i for i in range(len(sources)) if ctx.needs_input_grad[5 + i]]
        d_sources: list[Tensor | None] = [None] * len(sources)
        wide_q = q_BGLP.to(attended.dtype)
        d_attended = d_attended.to(attended.dtype)
        d_q = torch.zeros_like(wide_q)
        # sum over keys of probability * d_probability, which the softmax's gradient subtracts
        shared = (d_attended * attended).sum(-1, keepdim=True)
        for chunk in ctx.recompute:
            with (
                torch.enable_grad(),
                torch.autocast(ctx.device_type, dtype=ctx.autocast_dtype, enabled=ctx.autocast),
            ):
                computed = chunk()
            keys, values = computed.keys, computed.values
            with torch.autocast(ctx.device_type, enabled=False):
                # Queries without any visible key have log-sum-exp -inf: their probabilities are all zero.
                scores_BGLM = _scores(wide_q, computed, ctx.scale)
                p_BGLM = torch.where(scores_BGLM == -torch.inf, 0, torch.exp(scores_BGLM - log_sum_exp))
                d_values = p_BGLM.transpose(-1, -2) @ d_attended
                d_scores = p_BGLM * (d_attended @ values.to(attended.dtype).transpose(-1, -2) - shared)
                d_q = d_q + d_scores @ keys.to(attended.dtype) * ctx.scale
                d_keys = d_scores.transpose(-1, -2) @ wide_q * ctx.scale
            if wanted and (keys.requires_grad or values.requires_grad):
                outputs = [(t, g) for t, g in ((keys, d_keys), (values, d_values)) if t.requires_grad]
                gradients = torch.autograd.grad(
                    [tensor for tensor, _ in outputs],
                    [sources[i] for i in wanted],
                    [gradient.to(tensor.dtype) for tensor, gradient in outputs],
                    allow_unused=True,
                )
                for i, gradient in zip(wanted, gradients, strict=True):
                    if gradient is not None:
                        so_far = d_sources[i]
                        d_sources[i] = gradient if so_far is None else so_far + gradient
        d_q = d_q.sum_to_size(q_BGLP.shape)
        if ctx.processes.count > 1:
            # all processes hold the same parameters, and each has read its own chunks with them
            shared_by_all = [i for i in wanted if isinstance(sources[i], nn.Parameter)]
            parts = [_or_zeros(d_sources[i], sources[i]) for i in shared_by_all]
            ctx.processes.add_up([d_q, *parts])
            for i, part in zip(shared_by_all, parts, strict=True):
                d_sources[i] = part
        return d_q.to(q_BGLP.dtype), None, None, None, None, *d_sources


def _or_zeros(gradient: Tensor | None, like: Tensor) -> Tensor:
    return torch.zeros_like(like) if gradient is None else gradient


def streamed_attention(
    q_BGLP: Tensor,
    chunks: Sequence[Chunk],
    *,
    scale: float,
    sources: Sequence[Tensor] = (),
    recompute: Sequence[Chunk] | None = None,
    processes: Processes = ALONE,
) -> Tensor:
    """Softmax attention of the queries over all chunks together, holding one chunk at a time.

    Parameters
    ----------
    q_BGLP : Tensor
        Queries (B, G, L, P), or (1, G, L, P) to ask the same of all tasks.
    chunks : sequence of Chunk
        Functions that give keys and values; each is called once.
    scale : float
        Multiplies the scores.
    sources : sequence of Tensor
        Every tensor (parameters, chunk inputs) that chunks are computed from and that gradients
        should reach. A tensor that is missing here gets no gradient through the chunks.
    recompute : sequence of Chunk, optional
        What the backward pass calls instead of `chunks`, once each; it must compute the same
        numbers from `sources` (`chunks` may have cached them).
    processes : Processes
        Processes that have some of the chunks each, at least one, and the same queries and parameters. All
        get the same result, and the same gradients of the queries and of those sources that are
        parameters; sources of other kinds are each process's own.

    Returns
    -------
    Tensor (B, G, L, P), P that of the values
        Equal to attention over the concatenated chunks of all processes.

    Raises
    ------
    ValueError
        Queries do not have 4 dimensions, there is no chunk, chunks differ in B, or `recompute` has another
        length than `chunks`.
    """
    require_dimensions("q", q_BGLP, 4)
    recompute = chunks if recompute is None else recompute
    if len(recompute) != len(chunks):
        raise ValueError(
            f"recompute must have the length of chunks, however: {len(recompute)=}, {len(chunks)=}"
        )
    if not len(chunks):
        raise ValueError("chunks must hold at least one chunk, however: it is empty")
    # A tensor named twice would receive its gradient twice.
    distinct = {id(tensor): tensor for tensor in sources}.values()
    return _StreamedAttention.apply(q_BGLP, chunks, recompute, scale, processes, *distinct)
