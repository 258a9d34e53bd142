"""Training: models learn, runs resume, files are read back."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from spinimpute.neural_processes.evaluation import HELD_OUT_SEED, score
from spinimpute.neural_processes.gaussian_tasks import ProcessSettings, draw_tasks, oracle
from spinimpute.neural_processes.settings import KINDS, ModelSettings
from spinimpute.neural_processes.training import TrainingSettings, gaussian_trainer, load_model
from spinimpute.runtime.errors import InputError

pytestmark = pytest.mark.slow

SMALL = {"width": 16, "heads": 2, "inducing_points": 5, "blocks": 2}
TASKS = ProcessSettings(context=(6, 12), target=(3, 7), tasks=4)


@pytest.mark.parametrize("kind", ["CIPNP", "IPNP", "BANP"])
def test_resuming_is_the_same_run(kind: str, tmp_path: Path) -> None:
    def trainer():
        return gaussian_trainer(ModelSettings(kind, **SMALL), TrainingSettings(8, seed=4), TASKS)

    whole, half, resumed = trainer(), trainer(), trainer()
    whole.train()
    half.train(until=3)
    half.save_state(tmp_path / "state")
    resumed.restore_state(tmp_path / "state")
    assert resumed.step == 3
    resumed.train()
    torch.testing.assert_close(resumed.model.state_dict(), whole.model.state_dict(), rtol=0, atol=0)
    resumed.save(tmp_path / "model")
    loaded, described = load_model(tmp_path / "model")
    assert described["step"] == 8
    task, _ = draw_tasks(TASKS, 3, 0)
    means = []
    for model in (loaded, whole.model.eval()):
        torch.manual_seed(5)
        with torch.no_grad():
            means.append(model(task.x_BNX, task.y_BNY, task.x_BQX, 6).mean)
    torch.testing.assert_close(*means)


def test_numbers_of_numpy_can_be_saved(tmp_path: Path) -> None:
    settings = ModelSettings("CANP", width=np.int64(16), heads=np.int32(2))
    trainer = gaussian_trainer(settings, TrainingSettings(np.int64(1)), TASKS)
    trainer.train()
    trainer.save(tmp_path / "model")
    assert load_model(tmp_path / "model")[0].settings.width == 16


def test_another_run_is_not_resumed(tmp_path: Path) -> None:
    one = gaussian_trainer(ModelSettings("CANP", **SMALL), TrainingSettings(8), TASKS)
    one.save_state(tmp_path / "state")
    other = gaussian_trainer(ModelSettings("CANP", **SMALL), TrainingSettings(9), TASKS)
    with pytest.raises(
        InputError, match=r"belongs to another run \(training.steps is 8 in the state, 9 now\)"
    ):
        other.restore_state(tmp_path / "state")
    with pytest.raises(InputError, match="not a neural process"):
        load_model(tmp_path / "state")


@pytest.mark.parametrize("kind", KINDS)
def test_learning(kind: str) -> None:
    """Predictions are better than the best ones without the context, the marginal of all tasks."""
    tasks = ProcessSettings(context=(8, 24), target=(8, 8), length_scale=(0.8, 1.2), scale=(0.8, 1.0))
    settings = ModelSettings(kind, width=32, heads=2, inducing_points=8, blocks=2, samples=2)
    trainer = gaussian_trainer(settings, TrainingSettings(60, learning_rate=3e-3), tasks)
    trainer.train()
    prior = draw_tasks(replace(tasks, context=(0, 0)), HELD_OUT_SEED, 0)
    alone = float(oracle(*prior).log_prob(prior[0].y_BQY.double()).mean())
    assert score(trainer.model, tasks, 20, 10).log_likelihood > alone + 0.15
