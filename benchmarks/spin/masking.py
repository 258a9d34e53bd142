"""Random masks for the training of the papers' networks, and the losses on masked cells.

The value of a masked cell is hidden from the model. The loss is computed on chosen cells: most of them are
masked, the others get a random category. Missing cells are masked, too, but are never part of the loss.

A cell is an integer: a category, 0 to `n_categories` - 1, or the code `n_categories` (missing or masked).

Axes: see `spinimpute.nn`.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from spinimpute.nn.checks import require_fraction, require_shape


class Masked(NamedTuple):
    """A masked table; all three tensors are (B, N, D)."""

    tokens: Tensor  # categories, and the code `n_categories` in masked cells
    mask: Tensor  # True for masked cells
    in_loss: Tensor  # True for cells whose original category the model must predict


def mask_tokens(
    tokens: Tensor,
    probability: float,
    n_categories: int,
    generator: torch.Generator | None = None,
    *,
    columns: Tensor | None = None,
    random_fraction: float = 0.1,
) -> Masked:
    """Mask random tokens as in BERT and NPT.

    Each cell of the `columns` (default: all columns) is chosen independently with this probability. Of the
    chosen cells, 90 % are masked. The other 10 % (`random_fraction`) get a random category and are not
    masked. All chosen cells are part of the loss.
    """
    require_shape("tokens", tokens, None, None, None)
    require_fraction("probability", probability)
    require_fraction("random_fraction", random_fraction)
    missing = tokens == n_categories
    chosen = (_uniform(tokens.shape, tokens.device, generator) < probability) & ~missing
    if columns is not None:
        require_shape("columns", columns, tokens.shape[2])
        chosen = chosen & columns
    randomised = chosen & (_uniform(tokens.shape, tokens.device, generator) < random_fraction)
    # a uniform float32 number times `n_categories` can round up to `n_categories`
    categories = (_uniform(tokens.shape, tokens.device, generator) * n_categories).to(tokens.dtype)
    replaced = torch.where(randomised, categories.clamp(max=n_categories - 1), tokens)
    hidden = (chosen & ~randomised) | missing
    return Masked(torch.where(hidden, n_categories, replaced), hidden, chosen)


def masked_cross_entropy(logits: Tensor, tokens: Tensor, in_loss: Tensor) -> Tensor:
    """Return the mean cross-entropy (nats) over the cells in `in_loss`, in float32; 0 without cells."""
    require_shape("in_loss", in_loss, *tokens.shape)
    require_shape("logits", logits, *tokens.shape, None)
    total = functional.cross_entropy(logits[in_loss].float(), tokens[in_loss].long(), reduction="sum")
    return total / in_loss.sum().clamp(min=1)


def spin_loss(
    logits: Tensor, tokens: Tensor, in_loss: Tensor, label_columns: Tensor, attribute_weight: float
) -> Tensor:
    """Return (1 - λ) · loss of the labels + λ · loss of the attributes, with λ = `attribute_weight`.

    The labels are the columns in `label_columns`. See Rastogi et al., ICLR 2023, appendix A.2.
    """
    require_fraction("attribute_weight", attribute_weight)
    require_shape("label_columns", label_columns, tokens.shape[-1])
    labels = masked_cross_entropy(logits, tokens, in_loss & label_columns)
    if attribute_weight == 0:
        return labels
    attributes = masked_cross_entropy(logits, tokens, in_loss & ~label_columns)
    return (1 - attribute_weight) * labels + attribute_weight * attributes


def _uniform(shape: torch.Size, device: torch.device, generator: torch.Generator | None) -> Tensor:
    # a generator can only draw on its own device
    source = device if generator is None else generator.device
    return torch.rand(shape, generator=generator, device=source).to(device)
