"""Training: models learn, runs resume, files are read back."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from spinimpute.neural_processes.evaluation import HELD_OUT_SEED, score
from spinimpute.neural_processes.gaussian_tasks import ProcessSettings, draw_tasks, oracle
from spinimpute.neural_processes.models import KINDS, ModelSettings
from spinimpute.neural_processes.training import (
    STATE_FORMAT,
    TrainingSettings,
    gaussian_trainer,
    load_model,
)
from spinimpute.runtime.errors import InputError
from spinimpute.runtime.tensor_files import load_tensors, save_tensors

SMALL = {"width": 16, "heads": 2, "inducing_points": 5, "blocks": 2}
TASKS = ProcessSettings(context=(6, 12), target=(3, 7), tasks=4)


@pytest.mark.parametrize("kind", ["CIPNP", "IPNP", "BANP"])
def test_resuming_is_the_same_run(kind: str, tmp_path) -> None:  # type: ignore[no-untyped-def]
    def trainer():  # type: ignore[no-untyped-def]
        return gaussian_trainer(ModelSettings(kind, **SMALL), TrainingSettings(8, seed=4), TASKS)

    whole = trainer()
    whole.train()
    half = trainer()
    half.train(until=3)
    half.save_state(tmp_path / "state")
    resumed = trainer()
    resumed.restore_state(tmp_path / "state")
    assert resumed.step == 3
    resumed.train()
    for a, b in zip(whole.model.parameters(), resumed.model.parameters(), strict=True):
        assert torch.equal(a, b)
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


def test_numbers_of_numpy_can_be_saved(tmp_path) -> None:  # type: ignore[no-untyped-def]
    settings = ModelSettings("CANP", width=np.int64(16), heads=np.int32(2))  # type: ignore[arg-type]
    trainer = gaussian_trainer(settings, TrainingSettings(np.int64(1)), TASKS)  # type: ignore[arg-type]
    trainer.train()
    trainer.save(tmp_path / "model")
    assert load_model(tmp_path / "model")[0].settings.width == 16


def test_states_of_other_networks_are_not_resumed(tmp_path) -> None:  # type: ignore[no-untyped-def]
    trainer = gaussian_trainer(ModelSettings("LBANP", **SMALL), TrainingSettings(3, seed=4), TASKS)
    trainer.train(until=1)
    trainer.save_state(tmp_path / "state")
    tensors, metadata = load_tensors(tmp_path / "state", STATE_FORMAT, "training state")
    for name in ("/weights/points", "/weights/embed.0.weight"):
        save_tensors(tmp_path / "old", tensors | {name: tensors[name][:, :1]}, metadata, STATE_FORMAT)
        with pytest.raises(InputError, match="old holds the weights of another network"):
            trainer.restore_state(tmp_path / "old")


def test_another_run_is_not_resumed(tmp_path) -> None:  # type: ignore[no-untyped-def]
    one = gaussian_trainer(ModelSettings("CANP", **SMALL), TrainingSettings(8), TASKS)
    one.save_state(tmp_path / "state")
    other = gaussian_trainer(ModelSettings("CANP", **SMALL), TrainingSettings(9), TASKS)
    with pytest.raises(InputError, match=r"belongs to another run \(training.steps is 8 there, 9 here\)"):
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
