"""Exact attention of a few queries to very many keys that are computed in chunks, with bounded memory.

The forward pass keeps three running quantities (`StreamState`) for each query: the maximum score m, the sum
of exp(score - m), and the sum of exp(score - m) * value. The states of disjoint sets of keys can be merged in
any order, in one process or across several. The backward pass computes the keys and values of each chunk
again; from the forward pass it needs only the result and the log of the sum of exp(score). Neither pass holds
more than one chunk in memory.

Axes: see `spinimpute.nn`; M is the number of keys of one chunk. A prefix `d_` means the gradient of the loss
with respect to a tensor.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from spinimpute.runtime.processes import SINGLE_PROCESS, Processes


class KeysValues(NamedTuple):
    """One chunk: keys (B, G, M, P), and values (B, G, M, P'), whose width may differ."""

    keys: Tensor
    values: Tensor


Chunk = Callable[[], KeysValues]


def _weight_of_part(part_maximum: Tensor, maximum: Tensor) -> Tensor:
    # a part without keys has maximum -inf, and exp(-inf - -inf) would be NaN
    return torch.where(part_maximum == -torch.inf, 0, torch.exp(part_maximum - maximum))


@dataclass(frozen=True)
class StreamState:
    """Attention of L queries to the keys processed so far, in float32 or wider."""

    maximum: Tensor  # (B, G, L, 1) largest score; -inf before the first key
    total: Tensor  # (B, G, L, 1) sum of exp(score - maximum)
    weighted: Tensor  # (B, G, L, P) sum of exp(score - maximum) * value

    @classmethod
    def empty(cls, q_BGLP: Tensor, width: int) -> "StreamState":
        """Return the state before the first key, for queries (B, G, L, P) and values of this width."""
        dtype = torch.promote_types(q_BGLP.dtype, torch.float32)
        total = torch.zeros_like(q_BGLP[..., :1], dtype=dtype)
        weighted = total.expand(*total.shape[:-1], width).clone()
        return cls(torch.full_like(total, -torch.inf), total, weighted)

    @classmethod
    def from_chunk(cls, q_BGLP: Tensor, chunk: KeysValues, scale: float) -> "StreamState":
        """Return the state of queries (B, G, L, P) after one chunk; B = 1 if all tasks share the queries."""
        if chunk.keys.shape[-2] == 0:
            return cls.empty(q_BGLP.expand(chunk.keys.shape[0], -1, -1, -1), chunk.values.shape[-1])
        wide = q_BGLP.to(torch.promote_types(q_BGLP.dtype, torch.float32))
        with torch.autocast(q_BGLP.device.type, enabled=False):
            scores_BGLM = (wide @ chunk.keys.to(wide.dtype).transpose(-1, -2)) * scale
            maximum = scores_BGLM.amax(-1, keepdim=True)
            weights_BGLM = torch.exp(scores_BGLM - maximum)
            weighted = weights_BGLM @ chunk.values.to(wide.dtype)
        return cls(maximum, weights_BGLM.sum(-1, keepdim=True), weighted)

    def merge(self, other: "StreamState") -> "StreamState":
        """Return the state over the keys of both states, which must be disjoint."""
        maximum = torch.maximum(self.maximum, other.maximum)
        weight = _weight_of_part(self.maximum, maximum)
        other_weight = _weight_of_part(other.maximum, maximum)
        return StreamState(
            maximum,
            weight * self.total + other_weight * other.total,
            weight * self.weighted + other_weight * other.weighted,
        )

    def merged_across(self, processes: Processes) -> "StreamState":
        """Return, in every process, the state over the keys of all processes."""
        if processes.count == 1:
            return self
        maximum = self.maximum.clone()
        processes.maximize_all(maximum)
        weight = _weight_of_part(self.maximum, maximum)
        total, weighted = weight * self.total, weight * self.weighted
        processes.sum_all([total, weighted])
        return StreamState(maximum, total, weighted)

    def result(self) -> Tensor:
        """Return the attention-weighted mean values (B, G, L, P); zeros without keys."""
        return self.weighted / self.total.where(self.total > 0, 1)

    def log_sum_exp(self) -> Tensor:
        """Return the logarithm of the sum of exp(score), (B, G, L, 1); -inf without keys."""
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
        for chunk in chunks:
            part = StreamState.from_chunk(q_BGLP, chunk(), scale)
            state = part if state is None else state.merge(part)
        if state is None:
            raise ValueError("chunks must contain at least one chunk")
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
        needed = [i for i in range(len(sources)) if ctx.needs_input_grad[5 + i]]
        d_sources: list[Tensor | None] = [None] * len(sources)
        wide_q = q_BGLP.to(attended.dtype)
        d_attended = d_attended.to(attended.dtype)
        d_q = torch.zeros_like(wide_q)
        # the gradient of a softmax subtracts this sum over keys of probability * d_probability
        mean_gradient = (d_attended * attended).sum(-1, keepdim=True)
        for chunk in ctx.recompute:
            with (
                torch.enable_grad(),
                torch.autocast(ctx.device_type, dtype=ctx.autocast_dtype, enabled=ctx.autocast),
            ):
                keys, values = chunk()
            with torch.autocast(ctx.device_type, enabled=False):
                scores_BGLM = (wide_q @ keys.to(wide_q.dtype).transpose(-1, -2)) * ctx.scale
                p_BGLM = torch.exp(scores_BGLM - log_sum_exp)
                d_values = p_BGLM.transpose(-1, -2) @ d_attended
                d_scores = p_BGLM * (d_attended @ values.to(attended.dtype).transpose(-1, -2) - mean_gradient)
                d_q = d_q + d_scores @ keys.to(attended.dtype) * ctx.scale
                d_keys = d_scores.transpose(-1, -2) @ wide_q * ctx.scale
            if needed and (keys.requires_grad or values.requires_grad):
                outputs = [(t, g) for t, g in ((keys, d_keys), (values, d_values)) if t.requires_grad]
                gradients = torch.autograd.grad(
                    [tensor for tensor, _ in outputs],
                    [sources[i] for i in needed],
                    [gradient.to(tensor.dtype) for tensor, gradient in outputs],
                    allow_unused=True,
                )
                for i, gradient in zip(needed, gradients, strict=True):
                    if gradient is not None:
                        summed = d_sources[i]
                        d_sources[i] = gradient if summed is None else summed + gradient
        d_q = d_q.sum_to_size(q_BGLP.shape)
        if ctx.processes.count > 1:
            # all processes have the same parameters; each has computed the gradients of its own chunks
            for i in needed:
                if isinstance(sources[i], nn.Parameter) and d_sources[i] is None:
                    d_sources[i] = torch.zeros_like(sources[i])
            parameters = [d_sources[i] for i in needed if isinstance(sources[i], nn.Parameter)]
            ctx.processes.sum_all([d_q, *parameters])
        return d_q.to(q_BGLP.dtype), None, None, None, None, *d_sources


def streamed_attention(
    q_BGLP: Tensor,
    chunks: Sequence[Chunk],
    *,
    scale: float,
    sources: Sequence[Tensor] = (),
    recompute: Sequence[Chunk] | None = None,
    processes: Processes = SINGLE_PROCESS,
) -> Tensor:
    """Return the attention (B, G, L, P) of queries to the keys of all chunks, one chunk at a time.

    Queries are (B, G, L, P), or (1, G, L, P) for equal queries in all tasks. Each chunk is a function that is
    called once. `sources` are all tensors (parameters, inputs) from which the chunks are computed and that
    need gradients. The backward pass calls the functions `recompute` once each (default: `chunks`). Pass
    `recompute` if `chunks` return cached values; it must compute equal keys and values from `sources`.

    The chunks may be divided among several processes with equal queries and parameters, at least one chunk
    each. All processes get the same result, and the same gradients of the queries and of the sources that are
    parameters. The gradients of other sources cover only the chunks of their own process.
    """
    recompute = chunks if recompute is None else recompute
    # a tensor that is listed twice would get its gradient twice
    distinct = {id(tensor): tensor for tensor in sources}.values()
    return _StreamedAttention.apply(q_BGLP, chunks, recompute, scale, processes, *distinct)
