"""Log-likelihood beside the oracle's, and calibration."""

from dataclasses import replace

import pytest
import torch
from torch.distributions import Distribution

from spinimpute.neural_processes.evaluation import HELD_OUT_SEED, calibration, cdf, score
from spinimpute.neural_processes.gaussian_tasks import ProcessSettings, draw_tasks, oracle
from spinimpute.neural_processes.models import make_model
from spinimpute.neural_processes.settings import ModelSettings
from spinimpute.neural_processes.training import TrainingSettings, gaussian_trainer

SMALL = {"width": 16, "heads": 2, "inducing_points": 5}
TASKS = ProcessSettings(context=(6, 12), target=(3, 7), tasks=4)


def test_no_model_is_better_than_the_oracle() -> None:
    settings, many = TrainingSettings(60, learning_rate=2e-3), replace(TASKS, tasks=16)
    trainer = gaussian_trainer(ModelSettings("CIPNP+", **SMALL), settings, many)
    trainer.train()
    found = score(trainer.model, TASKS, 40)
    assert found.log_likelihood < found.floored <= found.oracle + 1e-9
    assert found.gap > 0


def test_the_oracle_is_calibrated() -> None:
    class Oracle(torch.nn.Module):
        """Predicts with the process of each batch."""

        settings = ModelSettings("CANP")

        def __init__(self, tasks: ProcessSettings) -> None:
            super().__init__()
            self.tasks, self.number = tasks, 0

        def forward(self, x: torch.Tensor, y: torch.Tensor, at: torch.Tensor, samples: int) -> Distribution:
            task, process = draw_tasks(self.tasks, HELD_OUT_SEED, self.number)
            self.number += 1
            best = oracle(task, process)
            return torch.distributions.Normal(best.mean.float(), best.stddev.float())

    tasks = ProcessSettings(context=(8, 8), tasks=16)
    found = calibration(Oracle(tasks), tasks, 8, 60)
    assert found.error < 2e-4
    assert found.inside[0] == 0
    assert found.inside[-1] == 1
    assert found.targets > 10_000


def test_calibration_of_overconfident_predictions() -> None:
    class Sure(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor, at: torch.Tensor, samples: int) -> Distribution:
            return torch.distributions.Normal(torch.zeros_like(at), 1e-6)

    found = calibration(Sure(), TASKS, 8, 5)
    assert found.error == pytest.approx(sum((i / 10) ** 2 for i in range(10)) / 11, abs=1e-3)


def test_cdf_of_a_mixture() -> None:
    torch.manual_seed(0)
    model, (task, _) = make_model(ModelSettings("ANP", **SMALL)), draw_tasks(TASKS, 3, 0)
    with torch.no_grad():
        found = model(task.x_BNX, task.y_BNY, task.x_BQX, 6)
    drawn = found.sample((4_000,))
    below = (drawn <= task.y_BQY).float().mean(0)
    torch.testing.assert_close(cdf(found, task.y_BQY), below, atol=0.05, rtol=0)
