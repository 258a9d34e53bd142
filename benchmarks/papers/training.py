"""The papers' training: LAMB with Lookahead, a constant and then falling learning rate, clipped gradients.

Training ends early if the validation loss stops falling.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from torch import Tensor, nn
from torch.optim.lr_scheduler import CosineAnnealingLR, LRScheduler

from benchmarks.process_memory import bytes_of, forget_peak
from spinimpute.nn.optimisers import Lamb, Lookahead, flat_then_cosine

MEASURED_STEPS = 3  # after which the peak of memory is taken: later ones need no more
WEIGHT_BYTES = 4
FLAT = 0.7  # of the steps, with a constant learning rate
BY_STEPS, BY_LOSS = "steps", "validation loss"  # what ends a training
LAST_LOOKS = "best look is the last"  # a column of the tables


@dataclass(frozen=True)
class Recipe:
    """Training and size of a network: the paper's settings, with the exceptions listed on the page.

    steps: largest number of steps. hidden_rows: share of a batch that are queries. h, f: numbers of inducing
    points and latent attributes. looks: number of validations in so many steps. patience: validations in a
    row without a lower loss, after which the learning rate falls to 0 and training ends. device: "cpu" or
    "cuda".
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
    patience: int = 3
    device: str = "cpu"

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def parameters(network: nn.Module) -> int:
    return sum(p.numel() for p in network.parameters())


def train(
    network: nn.Module, recipe: Recipe, loss_of: Callable[[int], Tensor], held_out: Callable[[], float]
) -> dict[str, Any]:
    """Train, and restore the weights with the lowest validation loss.

    The learning rate is constant for FLAT of the steps, then it falls to 0. It falls earlier, and training
    has fewer steps, if the validation loss has stopped falling. `loss_of` returns the loss of a step, counted
    from 0. Seconds are processor seconds without validation. The peak memory is the growth of the process
    plus the weights, which existed before; both are those of the host, and no table has those of runs on a
    GPU.
    """
    optimiser = Lookahead(Lamb(network.parameters(), lr=recipe.learning_rate))
    schedule: LRScheduler = flat_then_cosine(optimiser, recipe.steps, FLAT)
    forget_peak()
    before, spent, peak = bytes_of("VmRSS"), 0.0, 0
    looks: list[dict[str, float]] = []
    best: dict[str, Tensor] = {}
    step, last, stopped_by = 0, recipe.steps, BY_STEPS
    while step < last:
        network.train()
        started = time.process_time()
        loss = loss_of(step)
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), recipe.clip)
        optimiser.step()
        schedule.step()
        spent += time.process_time() - started
        step += 1
        if step == MEASURED_STEPS:
            peak = bytes_of("VmHWM") - before + WEIGHT_BYTES * parameters(network)
        if step % max(1, recipe.steps // recipe.looks) == 0 or step == last:
            looks.append({"step": step, "loss": loss.item(), "validation loss": held_out()})
            print(looks[-1], f"{spent / step:.3f} s a step", flush=True)
            lowest = _lowest(looks)
            if lowest is looks[-1]:
                best = {name: value.clone() for name, value in network.state_dict().items()}
            is_flat = stopped_by == BY_STEPS and step < FLAT * recipe.steps
            if is_flat and len(looks) - looks.index(lowest) > recipe.patience:
                stopped_by, last = BY_LOSS, math.ceil(step / FLAT)
                schedule = CosineAnnealingLR(optimiser.optimizer, last - step)
    network.load_state_dict(best)
    return {
        "looks": looks,
        "steps": step,
        "stopped by": stopped_by,
        "seconds a step": spent / step,
        "peak bytes of training": peak,
        # two moments and the slow weights of Lookahead beside weights and gradients
        "bytes of weights, gradients and optimiser": 5 * WEIGHT_BYTES * parameters(network),
    }


def _lowest(looks: Sequence[dict[str, float]]) -> dict[str, float]:
    """Return the first look with the lowest validation loss."""
    return min(looks, key=lambda look: look["validation loss"])


def on_cpu(rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the results whose costs can be compared; older results were all computed on a CPU."""
    return [row for row in rows if row["configuration"].get("device", "cpu") == "cpu"]


def is_unfinished(row: Mapping[str, Any]) -> bool:
    """Return whether the training of a result ended by its steps, with its lowest loss in the last look.

    Older results were stopped by nothing but their steps.
    """
    log = row.get("training", {})
    looks = log.get("looks", [])
    return bool(looks) and log.get("stopped by", BY_STEPS) == BY_STEPS and _lowest(looks) is looks[-1]


def has_ended(row: Mapping[str, Any]) -> bool:
    """Return whether the validation loss ended a training, or was lowest `Recipe.patience` looks before."""
    log = row.get("training", {})
    looks = log.get("looks", [])
    flat = not looks or len(looks) - looks.index(_lowest(looks)) > Recipe.patience
    return flat or log.get("stopped by", BY_STEPS) == BY_LOSS


def unfinished_text(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return how many of the rows with a training are unfinished; "" without such rows."""
    trained = [row for row in rows if "training" in row]
    return f"{sum(map(is_unfinished, trained))} of {len(trained)}" if trained else ""
