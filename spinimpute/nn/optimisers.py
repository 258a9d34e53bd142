"""The optimisers LAMB and Lookahead, and the schedules of the SPIN and NPT experiments."""

import math
from collections.abc import Callable, Iterable
from typing import Any, cast

import torch
from torch import Tensor
from torch.optim.lr_scheduler import LambdaLR
from torch.optim.optimizer import Optimizer

from spinimpute.nn.checks import require_count, require_fraction


class Lamb(Optimizer):
    """The optimiser LAMB, layer-wise adaptive moments (You et al. 2020), as in the NPT and SPIN experiments.

    step = m / (√v + eps) + weight_decay · w;  w ← w - lr · min(‖w‖, clamp) / ‖step‖ · step

    m and v are running means of the gradient and of its square; weight decay is not part of them. The ratio
    of norms is replaced by 1 if either norm is 0. Adam's bias correction is omitted: except for eps and
    weight decay, it is a common factor of the step, which the division by ‖step‖ cancels.
    """

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        clamp: float = 10.0,
    ) -> None:
        for name, value in (("lr", lr), ("eps", eps), ("weight_decay", weight_decay), ("clamp", clamp)):
            if not value >= 0:
                raise ValueError(f"{name} must not be negative, got {value}")
        if not all(0 <= beta < 1 for beta in betas):
            raise ValueError(f"betas must be in [0, 1), got {betas}")
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "clamp": clamp}
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Update all parameters that have a gradient. Return the result of `closure`, or None without it."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            if parameters:
                self._update(parameters, group)
        return loss

    def _update(self, parameters: list[Tensor], group: dict[str, Any]) -> None:
        """Update all parameters together; separate updates would take most of a small model's time."""
        for parameter in parameters:
            if not self.state[parameter]:
                self.state[parameter]["first"] = torch.zeros_like(parameter)
                self.state[parameter]["second"] = torch.zeros_like(parameter)
        gradients = [cast(Tensor, parameter.grad) for parameter in parameters]
        first = [self.state[parameter]["first"] for parameter in parameters]
        second = [self.state[parameter]["second"] for parameter in parameters]
        beta1, beta2 = group["betas"]
        torch._foreach_lerp_(first, gradients, 1 - beta1)
        torch._foreach_mul_(second, beta2)
        torch._foreach_addcmul_(second, gradients, gradients, 1 - beta2)
        root = torch._foreach_sqrt(second)
        torch._foreach_add_(root, group["eps"])
        step = torch._foreach_div(first, root)
        if group["weight_decay"]:
            torch._foreach_add_(step, parameters, alpha=group["weight_decay"])
        weight_norm = torch.stack(torch._foreach_norm(parameters)).clamp(max=group["clamp"])
        step_norm = torch.stack(torch._foreach_norm(step))
        # computed on the device, because copying the norms to the CPU would wait for the device
        trust = torch.where((weight_norm > 0) & (step_norm > 0), weight_norm / step_norm, 1.0)
        torch._foreach_mul_(step, list((-group["lr"] * trust).unbind()))
        torch._foreach_add_(parameters, step)


class Lookahead:
    """Lookahead optimiser, "k steps forward, one step back" (Zhang et al. 2019), around an inner optimiser.

    The inner optimiser updates the weights of the model, the fast weights. After every k inner steps, the
    slow weights move towards the fast weights by the fraction alpha, and the fast weights are set to the slow
    weights. The state dictionary contains the slow weights and the step count: a resumed run gives identical
    results.
    """

    def __init__(self, optimizer: Optimizer, k: int = 6, alpha: float = 0.5) -> None:
        require_count("k", k)
        require_fraction("alpha", alpha)
        self.optimizer = optimizer
        self.k = k
        self.alpha = alpha
        self._count = 0
        self._slow = [parameter.detach().clone() for parameter in self._parameters()]

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """Parameter groups of the inner optimiser."""
        return self.optimizer.param_groups

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients."""
        self.optimizer.zero_grad(set_to_none)

    @torch.no_grad()
    def step(self) -> None:
        """Make one inner step; after every k inner steps, update the slow weights."""
        self.optimizer.step()
        self._count += 1
        if self._count % self.k == 0:
            for slow, fast in zip(self._slow, self._parameters(), strict=True):
                slow.lerp_(fast, self.alpha)
                fast.copy_(slow)

    def state_dict(self) -> dict[str, Any]:
        """Return the inner optimiser's state, the slow weights and the step count, not the fast weights."""
        return {
            "optimizer": self.optimizer.state_dict(),
            "slow": [slow.clone() for slow in self._slow],
            "count": self._count,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state from `state_dict`. The model's weights must be restored separately."""
        shapes = [tuple(slow.shape) for slow in state["slow"]]
        expected = [tuple(slow.shape) for slow in self._slow]
        if shapes != expected:
            raise ValueError(f"slow weights must have the shapes {expected}, got {shapes}")
        self.optimizer.load_state_dict(state["optimizer"])
        with torch.no_grad():
            for slow, saved in zip(self._slow, state["slow"], strict=True):
                slow.copy_(saved)
        self._count = state["count"]

    def _parameters(self) -> list[Tensor]:
        return [parameter for group in self.optimizer.param_groups for parameter in group["params"]]


def flat_then_cosine(optimizer: Optimizer | Lookahead, total_steps: int, flat: float = 0.7) -> LambdaLR:
    """Return a schedule: constant rate for the fraction `flat` of the steps, then cosine decay to 0."""
    require_count("total_steps", total_steps)
    require_fraction("flat", flat)
    start = flat * total_steps

    def factor(step: int) -> float:
        if step <= start:
            return 1.0
        return 0.5 * (1 + math.cos(math.pi * min(1.0, (step - start) / (total_steps - start))))

    return LambdaLR(optimizer.optimizer if isinstance(optimizer, Lookahead) else optimizer, factor)


def attribute_weight(step: int, total_steps: int, start: float = 0.5) -> float:
    """Return the weight λ of the attribute loss: it falls by a cosine from `start` to 0 at `total_steps`.

    The loss is (1 - λ) · loss of the labels + λ · loss of the attributes (SPIN paper, appendix A.2).
    The papers start at 0.5, but at 1.0 for UCI tables and at 0.1 for several genomic windows.
    """
    progress = min(max(step / total_steps, 0.0), 1.0)
    return start * 0.5 * (1 + math.cos(math.pi * progress))
