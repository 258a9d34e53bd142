"""Scaled dot-product attention by fused kernels, with bounded memory.

Axes: see `spinimpute.nn`.
"""

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

# Fused kernels stop at this head width; wider heads would hold the whole L x M matrix of scores.
FUSED_HEAD_WIDTH = 256
# Queries handled at a time when heads are wider than that.
QUERY_BLOCK = 512
# CUDA kernels number the batch with 16 bits; B * N of a large context exceeds that.
BATCH_BLOCK = 32_768


def attend(
    q_BGLP: Tensor,
    k_BGMP: Tensor,
    v_BGMP: Tensor,
    *,
    scale: float,
    visible_BM: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """Scaled dot-product attention with bounded memory.

    Parameters
    ----------
    q_BGLP, k_BGMP, v_BGMP : Tensor
        Queries, keys and values; values may have another width.
    scale : float
        Multiplies the scores.
    visible_BM : bool Tensor, optional
        True where a key may be read, at least one in every row; all by default.
    dropout : float
        Probability of dropping an attention weight.

    Returns
    -------
    Tensor (B, G, L, P), P that of the values
        What each query reads; zero where there are no keys.
    """
    if not k_BGMP.shape[-2]:
        return v_BGMP.new_zeros(*q_BGLP.shape[:-1], v_BGMP.shape[-1])
    wanted = v_BGMP.shape[-1]
    if wanted != q_BGLP.shape[-1]:  # fused kernels want values as wide as keys
        width = max(wanted, q_BGLP.shape[-1])
        q_BGLP, k_BGMP, v_BGMP = (
            functional.pad(t, (0, width - t.shape[-1])) for t in (q_BGLP, k_BGMP, v_BGMP)
        )
        wide_BGLP = attend(q_BGLP, k_BGMP, v_BGMP, scale=scale, visible_BM=visible_BM, dropout=dropout)
        return wide_BGLP[..., :wanted]
    if q_BGLP.shape[0] > BATCH_BLOCK:
        parts = [
            attend(
                q_BGLP[i : i + BATCH_BLOCK],
                k_BGMP[i : i + BATCH_BLOCK],
                v_BGMP[i : i + BATCH_BLOCK],
                scale=scale,
                visible_BM=None if visible_BM is None else visible_BM[i : i + BATCH_BLOCK],
                dropout=dropout,
            )
            for i in range(0, q_BGLP.shape[0], BATCH_BLOCK)
        ]
        return torch.cat(parts)

    mask_B11M = None if visible_BM is None else visible_BM[:, None, None, :]

    def fused(q_BGLP: Tensor, k_BGMP: Tensor, v_BGMP: Tensor) -> Tensor:
        # autocast would take the digits from distances that have them
        with torch.autocast(q_BGLP.device.type, enabled=False):
            return functional.scaled_dot_product_attention(
                q_BGLP, k_BGMP, v_BGMP.to(q_BGLP.dtype), attn_mask=mask_B11M, dropout_p=dropout, scale=scale
            )

    if q_BGLP.shape[-1] <= FUSED_HEAD_WIDTH or q_BGLP.shape[-2] <= QUERY_BLOCK:
        return fused(q_BGLP, k_BGMP, v_BGMP)
    blocks = q_BGLP.split(QUERY_BLOCK, dim=-2)
    if torch.is_grad_enabled():
        done = [checkpoint(fused, block, k_BGMP, v_BGMP, use_reentrant=False) for block in blocks]
    else:
        done = [fused(block, k_BGMP, v_BGMP) for block in blocks]
    return torch.cat(done, dim=-2)
