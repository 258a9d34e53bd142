"""Optimisers against steps computed by hand."""

import copy
import io
import itertools
import math

import numpy as np
import pytest
import torch
from torch import nn

from spinimpute.nn.optimisers import Lamb, Lookahead, attribute_weight, flat_then_cosine


def lamb_by_hand(
    w: np.ndarray, gradients: list[np.ndarray], lr: float, decay: float, clamp: float
) -> np.ndarray:
    m, v = np.zeros_like(w), np.zeros_like(w)
    for g in gradients:
        m = 0.9 * m + 0.1 * g
        v = 0.999 * v + 0.001 * g**2
        step = m / (np.sqrt(v) + 1e-6) + decay * w
        w = w - lr * min(np.sqrt((w**2).sum()), clamp) / np.sqrt((step**2).sum()) * step
    return w


@pytest.mark.parametrize(("w", "decay"), [([3.0, 4.0], 0.0), ([3.0, 4.0], 0.1), ([300.0, -40.0], 0.01)])
def test_lamb_takes_the_steps_computed_by_hand(w: list[float], decay: float) -> None:
    start = np.array(w)
    gradients = [np.array([0.1, -0.2]), np.array([0.3, 0.05])]
    parameter = nn.Parameter(torch.tensor(w, dtype=torch.float64))
    optimiser = Lamb([parameter], lr=0.02, weight_decay=decay)
    for gradient in gradients:
        parameter.grad = torch.from_numpy(gradient)
        optimiser.step()
    expected = lamb_by_hand(start, gradients, 0.02, decay, 10.0)
    np.testing.assert_allclose(parameter.detach().numpy(), expected, rtol=1e-12)


def test_lamb_leaves_zero_where_it_can_start_and_unused_weights_alone() -> None:
    zero, unused = nn.Parameter(torch.zeros(2)), nn.Parameter(torch.ones(2))
    zero.grad = torch.ones(2)
    optimiser = Lamb([zero, unused], lr=0.1)
    optimiser.step()
    assert (zero < 0).all(), "a factor ‖w‖ = 0 would hold it at zero for ever"
    assert torch.equal(unused, torch.ones(2))
    zero.grad = torch.zeros(2)
    assert optimiser.step(lambda: 2.5) == 2.5
    assert torch.isfinite(zero).all()


def test_lookahead_follows_the_sequence_computed_by_hand() -> None:
    parameter = nn.Parameter(torch.tensor([0.0]))
    lookahead = Lookahead(torch.optim.SGD([parameter], lr=1.0), k=3, alpha=0.5)
    seen = []
    for _ in range(7):
        lookahead.zero_grad()
        parameter.grad = torch.tensor([-1.0])
        lookahead.step()
        seen.append(parameter.item())
    # 3 -> 0 + (3 - 0) / 2 = 1.5; 4.5 -> 1.5 + (4.5 - 1.5) / 2 = 3
    assert seen == [1.0, 2.0, 1.5, 2.5, 3.5, 3.0, 4.0]


class Run:
    """A small training run whose data depend on the step alone."""

    def __init__(self) -> None:
        torch.manual_seed(1)
        self.model = nn.Sequential(nn.Linear(5, 8), nn.GELU(), nn.Linear(8, 1))
        self.optimiser = Lookahead(Lamb(self.model.parameters(), lr=0.02, weight_decay=0.01))
        self.schedule = flat_then_cosine(self.optimiser, 20)
        self.parts, self.step = (self.model, self.optimiser, self.schedule), 0

    def advance(self, steps: int) -> None:
        for _ in range(steps):
            x = torch.randn(16, 5, generator=torch.Generator().manual_seed(self.step))
            self.optimiser.zero_grad()
            (self.model(x) - x.sum(1, keepdim=True)).square().mean().backward()
            self.optimiser.step()
            self.schedule.step()
            self.step += 1


@pytest.mark.parametrize("stop", [5, 6, 8, 17])
def test_a_resumed_run_continues_bit_for_bit(stop: int) -> None:
    whole, first, resumed = Run(), Run(), Run()
    whole.advance(20)
    first.advance(stop)
    file = io.BytesIO()
    torch.save([part.state_dict() for part in first.parts], file)
    first.advance(3)  # what was saved must not follow the run that goes on
    file.seek(0)
    for part, state in zip(resumed.parts, torch.load(file, weights_only=True), strict=True):
        part.load_state_dict(state)
    resumed.step = stop
    resumed.advance(20 - stop)
    torch.testing.assert_close(resumed.model.state_dict(), whole.model.state_dict(), rtol=0, atol=0)


def test_a_saved_state_is_a_copy_and_slow_weights_matter() -> None:
    run = Run()
    run.advance(8)
    state = run.optimiser.state_dict()
    kept = copy.deepcopy(state["slow"])
    run.advance(6)
    torch.testing.assert_close(kept, state["slow"], rtol=0, atol=0)
    with pytest.raises(ValueError, match="slow weights must have the shapes"):
        Lookahead(torch.optim.SGD([nn.Parameter(torch.zeros(2))], lr=1.0)).load_state_dict(state)


def test_the_learning_rate_is_flat_then_falls_by_cosine() -> None:
    parameter = nn.Parameter(torch.zeros(1))
    optimiser = torch.optim.SGD([parameter], lr=0.5)
    schedule = flat_then_cosine(optimiser, 100)
    rates = []
    for _ in range(110):
        rates.append(optimiser.param_groups[0]["lr"])
        optimiser.step()
        schedule.step()
    assert rates[:71] == [0.5] * 71
    assert rates[85] == pytest.approx(0.25)
    assert rates[100:] == [0.0] * 10
    assert all(a >= b for a, b in itertools.pairwise(rates))


def test_settings_out_of_range_are_named() -> None:
    parameter = nn.Parameter(torch.zeros(1))
    optimiser = torch.optim.SGD([parameter], lr=0.5)
    for call, message in (
        (lambda: Lamb([parameter], lr=-1), "lr must not be negative, got -1"),
        (lambda: Lamb([parameter], betas=(0.9, 1.0)), "betas must be in"),
        (lambda: Lookahead(optimiser, k=0), "k must be at least 1, got 0"),
        (lambda: Lookahead(optimiser, alpha=2.0), "alpha must be in"),
        (lambda: flat_then_cosine(optimiser, 0), "total_steps must be at least 1"),
        (lambda: flat_then_cosine(optimiser, 10, flat=1.5), "flat must be in"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_the_attribute_weight_falls_by_cosine_to_zero() -> None:
    assert attribute_weight(0, 100) == 0.5
    assert attribute_weight(25, 100) == pytest.approx(0.25 * (1 + math.sqrt(0.5)))
    assert attribute_weight(50, 100, start=1.0) == pytest.approx(0.5)
    assert attribute_weight(100, 100) == attribute_weight(150, 100) == 0
