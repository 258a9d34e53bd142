"""A SPIN reads long contexts in chunks, in training too: the same gradients, bounded memory."""

from typing import Any

import numpy as np
import pytest
import torch

from spinimpute.tabular import SPINRegressor, context_networks

SMALL: dict[str, Any] = {"width": 8, "row_width": 8, "inducing_points": 4, "members": 2, "random_state": 0}
ROWS = np.random.default_rng(0).normal(size=(120, 3))


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def gradients(model: SPINRegressor, rows: int) -> dict[str, torch.Tensor]:
    network, label_N = model.network_, torch.linspace(-1, 1, rows)
    context, query = model._rows(ROWS[:rows]), model._rows(ROWS[rows:])
    network.train().zero_grad()
    network(context, label_N, query, label_only=True).square().sum().backward()
    return {
        name: weight.grad.clone() for name, weight in network.named_parameters() if weight.grad is not None
    }


def rows_embedded(model: SPINRegressor) -> list[int]:
    """How many at once, from now on."""
    seen: list[int] = []
    model.network_.network.embedding.register_forward_hook(
        lambda module, inputs, embedded: seen.append(embedded.shape[1])
    )
    return seen


@pytest.mark.parametrize("rows", [30, 31, 100])
@pytest.mark.parametrize("blocks", [1, 2])
def test_gradients_are_those_of_the_whole_context(
    rows: int, blocks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = SPINRegressor(**SMALL, blocks=blocks, steps=2).fit(ROWS, ROWS[:, 0])
    whole = gradients(model, rows)
    monkeypatch.setattr(context_networks, "CHUNK", 30)
    in_chunks = gradients(model, rows)
    assert whole.keys() == in_chunks.keys()
    for name, gradient in whole.items():
        torch.testing.assert_close(in_chunks[name], gradient, rtol=1e-4, atol=1e-5, msg=name)


def test_no_more_rows_than_a_chunk_are_embedded_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context_networks, "CHUNK", 30)
    model = SPINRegressor(**SMALL, steps=2, context_size=100).fit(ROWS, ROWS[:, 0])
    seen = rows_embedded(model)
    gradients(model, 100)
    assert max(seen) == 30
    assert seen.count(10) == 2  # the last chunk, forward and backward


def test_with_dropout_the_context_is_read_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context_networks, "CHUNK", 30)
    model = SPINRegressor(**SMALL, steps=3, dropout=0.1, context_size=80).fit(ROWS, ROWS[:, 0])
    assert np.isfinite(model.predict(ROWS)).all()
    seen = rows_embedded(model)
    gradients(model, 100)
    assert max(seen) == 100
    seen.clear()
    context, query = model._rows(ROWS[:100]), model._rows(ROWS[100:])
    model.network_.eval()(context, torch.zeros(100), query, label_only=True)
    assert max(seen) == 30  # without dropout it need not
