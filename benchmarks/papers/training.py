"""The papers' training: LAMB with Lookahead, a constant and then falling learning rate, clipped gradients."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from torch import Tensor, nn

from benchmarks.process_memory import bytes_of, forget_peak
from spinimpute.nn.optimisers import Lamb, Lookahead, flat_then_cosine

MEASURED_STEPS = 3  # after which the peak of memory is taken: later ones need no more
WEIGHT_BYTES = 4


@dataclass(frozen=True)
class Recipe:
    """Training and size of a network: the paper's settings, with the exceptions listed on the page.

    hidden_rows: share of a batch that are queries. h, f: numbers of inducing points and latent attributes.
    looks: number of validations.
    """

    steps: int = 1_000
    batch: int = 256
    width: int = 16
    h: int = 10
    f: int = 10
    dropout: float = 0.0
    learning_rate: float = 1e-2
    hidden_rows: float = 0.3
    clip: float = 1.0
    looks: int = 10

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def parameters(network: nn.Module) -> int:
    return sum(p.numel() for p in network.parameters())


def train(
    network: nn.Module, recipe: Recipe, loss_of: Callable[[int], Tensor], held_out: Callable[[], float]
) -> dict[str, Any]:
    """Train, and restore the weights with the lowest validation loss.

    `loss_of` returns the loss of a step, counted from 0. Seconds are processor seconds without validation.
    The peak memory is the growth of the process plus the weights, which existed before.
    """
    optimiser = Lookahead(Lamb(network.parameters(), lr=recipe.learning_rate))
    schedule = flat_then_cosine(optimiser, recipe.steps)
    forget_peak()
    before, spent, peak = bytes_of("VmRSS"), 0.0, 0
    looks: list[dict[str, float]] = []
    best: dict[str, Tensor] = {}
    for step in range(recipe.steps):
        network.train()
        started = time.process_time()
        loss = loss_of(step)
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), recipe.clip)
        optimiser.step()
        schedule.step()
        spent += time.process_time() - started
        if step + 1 == MEASURED_STEPS:
            peak = bytes_of("VmHWM") - before + WEIGHT_BYTES * parameters(network)
        if (step + 1) % max(1, recipe.steps // recipe.looks) == 0:
            found = held_out()
            if not looks or found < min(look["validation loss"] for look in looks):
                best = {name: value.clone() for name, value in network.state_dict().items()}
            looks.append({"step": step + 1, "loss": loss.item(), "validation loss": found})
            print(looks[-1], f"{spent / (step + 1):.3f} s a step", flush=True)
    network.load_state_dict(best)
    return {
        "looks": looks,
        "seconds a step": spent / recipe.steps,
        "peak bytes of training": peak,
        # two moments and the slow weights of Lookahead beside weights and gradients
        "bytes of weights, gradients and optimiser": 5 * WEIGHT_BYTES * parameters(network),
    }
