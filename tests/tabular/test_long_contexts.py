"""A SPIN reads long contexts in chunks, in training too: the same gradients, bounded memory."""

from typing import Any

import numpy as np
import pytest
import torch

from spinimpute.tabular import SPINRegressor, carrying_network

SMALL: dict[str, Any] = {"width": 8, "row_width": 8, "inducing_points": 4, "members": 2, "dropout": 0.0}
SMALL |= {"random_state": 0}
ROWS = np.random.default_rng(0).normal(size=(120, 3))


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def gradients(model: SPINRegressor, rows: int) -> dict[str, torch.Tensor]:
    network, label_N = model.network_, torch.linspace(-1, 1, rows)
    context, query = model._rows(ROWS[:rows]), model._rows(ROWS[rows:])
    network.train().zero_grad()
    outputs, read = network(context, label_N, query)
    (outputs.square().sum() + read.square().sum()).backward()
    return {
        name: weight.grad.clone() for name, weight in network.named_parameters() if weight.grad is not None
    }


def rows_embedded(model: SPINRegressor) -> list[int]:
    """How many at once, from now on."""
    seen: list[int] = []
    model.network_.embedding.register_forward_hook(
        lambda module, inputs, embedded: seen.append(embedded.shape[1])
    )
    return seen


@pytest.mark.parametrize("rows", [30, 31, 100])
@pytest.mark.parametrize("rounds", [1, 2])
def test_gradients_are_those_of_the_whole_context(
    rows: int, rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = SPINRegressor(**SMALL, rounds=rounds, steps=2).fit(ROWS, ROWS[:, 0])
    whole = gradients(model, rows)
    monkeypatch.setattr(carrying_network, "CHUNK", 30)
    in_chunks = gradients(model, rows)
    assert whole.keys() == in_chunks.keys()
    for name, gradient in whole.items():
        torch.testing.assert_close(in_chunks[name], gradient, rtol=1e-4, atol=1e-5, msg=name)


def test_no_more_rows_than_a_chunk_are_embedded_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carrying_network, "CHUNK", 30)
    model = SPINRegressor(**SMALL, steps=2, context_size=100).fit(ROWS, ROWS[:, 0])
    seen = rows_embedded(model)
    gradients(model, 100)
    assert max(seen) == 30
    assert seen.count(10) == 2  # the last chunk, forward and backward


def test_predictions_do_not_depend_on_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    model = SPINRegressor(**SMALL, steps=2).fit(ROWS, ROWS[:, 0])
    whole = model.set_context(ROWS, ROWS[:, 0]).predict(ROWS)
    monkeypatch.setattr(carrying_network, "CHUNK", 30)
    np.testing.assert_allclose(model.set_context(ROWS, ROWS[:, 0]).predict(ROWS), whole, rtol=1e-4)
