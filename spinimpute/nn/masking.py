"""Hiding cells in training, and the losses on what was hidden.

A cell that holds the code `vocabulary` is missing: it is always masked and never part of a loss. Codes may
have any integer type that can hold `vocabulary`.

Axes: see `spinimpute.nn`.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from spinimpute.nn.shapes import require_dimensions, require_same_shape, require_size


class Masked(NamedTuple):
    """A masked table; all three are (B, N, D).

    Attributes
    ----------
    tokens : Tensor
        Codes; `vocabulary` where masked, so that no true value is left.
    mask : Tensor
        True where the model sees that the cell is masked.
    loss : Tensor
        True where the model is to predict what the cell held.
    """

    tokens: Tensor
    mask: Tensor
    loss: Tensor


def mask_tokens(
    tokens: Tensor,
    probability: float,
    vocabulary: int,
    generator: torch.Generator | None = None,
    *,
    columns: Tensor | None = None,
    random_fraction: float = 0.1,
) -> Masked:
    """Token masking as in BERT and NPT.

    Cells are chosen independently; of the chosen, 90 % are masked and 10 % get a random category, without the
    mask bit.

    Parameters
    ----------
    tokens : Tensor
        (B, N, D) integer codes 0 … vocabulary.
    probability : float
        Probability of choosing a cell.
    vocabulary : int
        K.
    generator : Generator, optional
        Of the random numbers, on any device.
    columns : Tensor, optional
        (D,) bool, the columns cells are chosen from; all by default.
    random_fraction : float
        Share of the chosen cells that get a random category.

    Returns
    -------
    Masked
        The masked table.

    Raises
    ------
    ValueError
        Tokens have not 3 dimensions, columns not D entries, or a probability is outside [0, 1].
    """
    require_dimensions("tokens", tokens, 3)
    for name, value in (("probability", probability), ("random_fraction", random_fraction)):
        if not 0 <= value <= 1:
            raise ValueError(f"{name} must be in [0, 1], however: {name}={value}")
    missing = tokens == vocabulary
    chosen = (_uniform(tokens.shape, tokens.device, generator) < probability) & ~missing
    if columns is not None:
        require_size("columns", columns, 0, tokens.shape[2], "entries (the columns of tokens)")
        chosen = chosen & columns
    randomised = chosen & (_uniform(tokens.shape, tokens.device, generator) < random_fraction)
    # A uniform number in float32 can round up to 1.
    categories = (_uniform(tokens.shape, tokens.device, generator) * vocabulary).to(tokens.dtype)
    replaced = torch.where(randomised, categories.clamp(max=vocabulary - 1), tokens)
    hidden = (chosen & ~randomised) | missing
    return Masked(torch.where(hidden, vocabulary, replaced), hidden, chosen)


def mask_chunks(
    tokens: Tensor,
    fraction: float,
    label_columns: Tensor,
    vocabulary: int,
    generator: torch.Generator | None = None,
) -> Masked:
    """Chunk masking: in every task int(fraction * N) datapoints, at least one, lose all their label columns.

    Training then looks like imputation: no neighbouring label is there to copy from.

    Parameters
    ----------
    tokens : Tensor
        (B, N, D) integer codes 0 … vocabulary.
    fraction : float
        ρ, of the datapoints.
    label_columns : Tensor
        (D,) bool.
    vocabulary : int
        K.
    generator : Generator, optional
        Of the random numbers, on any device.

    Returns
    -------
    Masked
        The masked table.

    Raises
    ------
    ValueError
        Tokens have not 3 dimensions or no row, label_columns not D entries, or the fraction is
        outside [0, 1].
    """
    require_dimensions("tokens", tokens, 3)
    require_size("label_columns", label_columns, 0, tokens.shape[2], "entries (the columns of tokens)")
    if not 0 <= fraction <= 1:
        raise ValueError(f"fraction must be in [0, 1], however: fraction={fraction}")
    if tokens.shape[1] == 0:
        raise ValueError(f"tokens must have at least one row, however: tokens.shape={tuple(tokens.shape)}")
    count = max(1, int(fraction * tokens.shape[1]))
    order = _uniform(tokens.shape[:2], tokens.device, generator).argsort(1)
    rows = torch.zeros(tokens.shape[:2], dtype=torch.bool, device=tokens.device)
    rows.scatter_(1, order[:, :count], True)
    missing = tokens == vocabulary
    chosen = rows[:, :, None] & label_columns
    hidden = chosen | missing
    return Masked(torch.where(hidden, vocabulary, tokens), hidden, chosen & ~missing)


def masked_cross_entropy(logits: Tensor, tokens: Tensor, loss: Tensor) -> Tensor:
    """Mean cross-entropy over the cells with `loss` set; 0 where there is none. Computed in float32.

    Parameters
    ----------
    logits : Tensor (…, K)
        Predictions.
    tokens : Tensor (…)
        Integer codes, below K where `loss` is set.
    loss : bool Tensor (…)
        True where a cell counts.

    Returns
    -------
    Tensor ()
        The mean, in nats.

    Raises
    ------
    ValueError
        Shapes differ.
    """
    require_same_shape("loss", loss, "tokens", tokens)
    require_same_shape("logits[..., 0]", logits[..., 0], "tokens", tokens)
    total = functional.cross_entropy(logits[loss].float(), tokens[loss].long(), reduction="sum")
    return total / loss.sum().clamp(min=1)


def spin_loss(
    logits: Tensor, tokens: Tensor, loss: Tensor, label_columns: Tensor, attribute_weight: float
) -> Tensor:
    """(1 - λ) · loss of the labels + λ · loss of the attributes.

    Parameters
    ----------
    logits : Tensor (B, N, D, K)
        Predictions.
    tokens : Tensor (B, N, D)
        What the cells held.
    loss : bool Tensor (B, N, D)
        The cells that are predicted.
    label_columns : bool Tensor (D,)
        True for columns of labels, False for attributes.
    attribute_weight : float
        λ, see the function of this name.

    Returns
    -------
    Tensor ()
        The weighted sum.

    Raises
    ------
    ValueError
        Shapes differ or λ is outside [0, 1].

    References
    ----------
    Rastogi et al., ICLR 2023, appendix A.2.
    """
    if not 0 <= attribute_weight <= 1:
        raise ValueError(f"attribute_weight must be in [0, 1], however: {attribute_weight=}")
    require_size("label_columns", label_columns, 0, tokens.shape[-1], "entries (the columns of tokens)")
    labels = masked_cross_entropy(logits, tokens, loss & label_columns)
    if attribute_weight == 0:
        return labels
    attributes = masked_cross_entropy(logits, tokens, loss & ~label_columns)
    return (1 - attribute_weight) * labels + attribute_weight * attributes


def attribute_weight(step: int, total_steps: int, start: float = 0.5) -> float:
    """λ, cosine-annealed from `start` at step 0 to 0 at `total_steps` and after.

    The papers start from 0.5 (SPIN), 1.0 (UCI tables) or 0.1 (several genomic windows).

    Parameters
    ----------
    step, total_steps : int
        The current step, and their number.
    start : float
        λ at step 0.

    Returns
    -------
    float
        λ at this step.
    """
    progress = min(max(step / total_steps, 0.0), 1.0)
    return start * 0.5 * (1 + math.cos(math.pi * progress))


def _uniform(shape: torch.Size, device: torch.device, generator: torch.Generator | None) -> Tensor:
    # A generator draws on its own device only.
    source = device if generator is None else generator.device
    return torch.rand(shape, generator=generator, device=source).to(device)
