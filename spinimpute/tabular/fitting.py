"""Training with early stopping on rows that are kept apart."""

from __future__ import annotations

import copy
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from spinimpute.nn.optimisers import Lookahead

CLIP = 1.0  # of the gradient's norm


@dataclass
class History:
    """steps: that the best state took; validation: the loss after each look, best_loss the lowest."""

    steps: int
    validation: list[float]
    best_loss: float


def train_network(
    network: nn.Module,
    optimiser: Optimizer | Lookahead,
    schedule: LRScheduler | None,
    loss_at: Callable[[int], Tensor],
    validate: Callable[[], float] | None,
    *,
    steps: int,
    every: int,
    patience: int,
    verbose: bool,
) -> History:
    """Train for at most so many steps, and leave the network with the weights that validated best.

    loss_at: of a step. validate: called every so many steps; without it the last weights stay. patience:
    looks without a better one before it ends.
    Raises ValueError if the loss is not finite.
    """
    best, best_state, best_step, worse = math.inf, None, steps, 0
    looks: list[float] = []
    done = 0
    for step in range(steps):
        network.train()
        loss = loss_at(step)
        if not torch.isfinite(loss):
            raise ValueError(f"training diverged at step {step + 1}: lower the learning rate")
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), CLIP)
        optimiser.step()
        if schedule is not None:
            schedule.step()
        done = step + 1
        if done % every and done != steps:
            continue
        if verbose:
            told = f", validation {looks[-1]:.4f}" if looks else ""
            print(f"\rstep {done} of {steps}: loss {float(loss.detach()):.4f}{told}", end="", file=sys.stderr)
        if validate is None:
            continue
        network.eval()
        with torch.no_grad():
            looks.append(validate())
        if not math.isfinite(looks[-1]):
            raise ValueError(
                f"the loss of the rows kept apart is {looks[-1]} after step {done}: lower the learning rate, "
                "or look at the weights and labels"
            )
        if looks[-1] < best:
            best, best_step, worse = looks[-1], done, 0
            best_state = copy.deepcopy(network.state_dict())
        else:
            worse += 1
            if worse >= patience:
                break
    if verbose:
        print(file=sys.stderr)
    if best_state is not None:
        network.load_state_dict(best_state)
    else:
        best_step = done
    network.eval()
    return History(best_step, looks, best)
