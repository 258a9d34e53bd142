"""The synthetic experiment of the SPIN paper (A.7), scaled down: labels are random, so that only the context
can give them, and every table is new, so that nothing can be memorised."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from spinimpute.nn.spin import SPIN, SPINConfig

pytestmark = pytest.mark.slow

KEY_BITS, LABEL_BITS = 2, 6
LABELS = torch.arange(KEY_BITS + LABEL_BITS) >= KEY_BITS


def tables(count: int, generator: torch.Generator) -> Tensor:
    """(count, 4, 8) bits: the four keys in random order, each with random labels (2^24 such tables)."""
    keys = (torch.arange(2**KEY_BITS)[:, None] >> torch.arange(KEY_BITS)) & 1
    labels = torch.randint(0, 2, (count, 2**KEY_BITS, LABEL_BITS), generator=generator)
    rows = torch.cat((keys.expand(count, -1, -1), labels), 2)
    order = torch.rand(count, 2**KEY_BITS, generator=generator).argsort(1)
    return rows.gather(1, order[:, :, None].expand_as(rows))


def accuracy(model: SPIN, context: Tensor, query: Tensor) -> float:
    hidden = LABELS.expand_as(query)
    with torch.no_grad():
        logits = model(context, torch.zeros_like(hidden), query, hidden)
    return float((logits.argmax(-1) == query)[hidden].float().mean())


def test_lookup_is_learned_from_the_context_and_works_on_fresh_tables() -> None:
    torch.manual_seed(0)
    sizes = {"width": 32, "inducing_points": 8, "latent_attributes": 2, "blocks": 1, "heads": 2}
    config = SPINConfig(2, KEY_BITS + LABEL_BITS, **sizes)
    model = SPIN(config)
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    training = torch.Generator().manual_seed(1)
    for _ in range(450):
        context = tables(32, training)
        query = context.flip(1)
        hidden = LABELS.expand_as(query)
        logits = model(context, torch.zeros_like(hidden), query, hidden)
        loss = functional.cross_entropy(logits[hidden], query[hidden])
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        if loss < 0.01:
            break

    fresh = tables(200, torch.Generator().manual_seed(2))
    assert accuracy(model, fresh, fresh) > 0.97
    # Every key gets the labels of another: the same bits, but no longer what the query asks for.
    keys, labels = fresh[..., :KEY_BITS], fresh[..., KEY_BITS:]
    shuffled = torch.cat((keys, labels.roll(1, 1)), 2)
    assert accuracy(model, shuffled, fresh) < 0.6
    assert accuracy(model, shuffled, shuffled) > 0.97
