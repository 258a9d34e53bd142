"""Neural processes: what must hold of every model, whatever its weights."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch.distributions import Distribution

from spinimpute.neural_processes import blocks
from spinimpute.neural_processes.evaluation import HELD_OUT_SEED, calibration, cdf, saved_bytes, score
from spinimpute.neural_processes.gaussian_tasks import (
    KERNELS,
    Process,
    ProcessSettings,
    Task,
    draw_tasks,
    oracle,
    with_floor,
)
from spinimpute.neural_processes.models import KINDS, LatentProcess, ModelSettings, NeuralProcess, make_model
from spinimpute.neural_processes.training import (
    STATE_FORMAT,
    TrainingSettings,
    gaussian_trainer,
    load_model,
)
from spinimpute.nn.attention import MultiHeadAttention
from spinimpute.nn.attention_maps import recorded_attention
from spinimpute.tensor_files import load_tensors, save_tensors

SMALL = {"width": 16, "heads": 2, "inducing_points": 5, "blocks": 2}
TASKS = ProcessSettings(context=(6, 12), target=(3, 7), tasks=4)


def made(kind: str, seed: int = 0, **more: object) -> NeuralProcess:
    torch.manual_seed(seed)
    return make_model(ModelSettings(kind, **{**SMALL, **more})).eval()  # type: ignore[arg-type]


def draw(settings: ProcessSettings = TASKS, number: int = 0) -> tuple[Task, Process]:
    return draw_tasks(settings, 3, number)


def predicted(model: NeuralProcess, task: Task, seed: int = 5) -> Distribution:
    torch.manual_seed(seed)
    with torch.no_grad():
        return model(task.x_BMX, task.y_BMY, task.x_BNX, 6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sizes", [(1, 1), (3, 2)])
def test_shapes_of_any_size(kind: str, sizes: tuple[int, int]) -> None:
    x_size, y_size = sizes
    settings = replace(TASKS, x_size=x_size, y_size=y_size)
    model = made(kind, x_size=x_size, y_size=y_size)
    for context in (0, 1, 9):
        task, _ = draw(replace(settings, context=(context, context)))
        found = predicted(model, task)
        assert found.log_prob(task.y_BNY).shape == task.y_BNY.shape
        assert torch.isfinite(found.log_prob(task.y_BNY)).all()
        assert torch.isfinite(found.mean).all()
        loss = model.loss(task)
        loss.backward()
        assert torch.isfinite(loss)
        assert all(p.grad is None or torch.isfinite(p.grad).all() for p in model.parameters())


@pytest.mark.parametrize("kind", [k for k in KINDS if k != "BANP"])
def test_the_order_of_the_context_means_nothing(kind: str) -> None:
    model, (task, _) = made(kind), draw()
    order = torch.randperm(task.x_BMX.shape[1], generator=torch.Generator().manual_seed(1))
    other = task._replace(x_BMX=task.x_BMX[:, order], y_BMY=task.y_BMY[:, order])
    for name in ("mean", "stddev"):
        torch.testing.assert_close(
            getattr(predicted(model, task), name),
            getattr(predicted(model, other), name),
            atol=1e-5,
            rtol=1e-4,
        )


@pytest.mark.parametrize("kind", ["CIPNP", "LBANP"])
def test_what_asks_starts_as_what_answers(kind: str) -> None:
    """Steeply: attention of an untrained model is far from even."""
    model = made(kind, width=64)
    steep = [
        part
        for name, part in model.named_modules()
        if isinstance(part, MultiHeadAttention) and "read_latents" not in name
    ]
    plain = torch.nn.Linear(64, 64).weight.std()
    for attention in steep:
        assert torch.equal(attention.query.weight, attention.key.weight)
        assert torch.equal(attention.query.bias, attention.key.bias)
        assert attention.key.weight.std() > 2.5 * plain
    assert len(steep) == {"CIPNP": 3, "LBANP": 4}[kind]


def test_an_untrained_lbanp_reads_what_is_near() -> None:
    torch.manual_seed(0)
    model = make_model(ModelSettings("LBANP"))
    task, _ = draw(replace(TASKS, context=(64, 64), target=(30, 30)))
    layers = [model.read_context[0].attention, model.answer[0].attention]
    with torch.no_grad(), recorded_attention(layers) as weights:
        model(task.x_BMX, task.y_BMY, task.x_BNX)
    latent_HX = model.points[0, :, :1].detach()
    for weight_BGLM, asked, told in (
        (weights[0], latent_HX, task.x_BMX),
        (weights[1], task.x_BNX, latent_HX),
    ):
        away = (weight_BGLM.mean(1) @ told - asked).abs()
        assert away.mean() < 0.7  # 1 where all are read alike


@pytest.mark.parametrize("kind", KINDS)
def test_targets_and_tasks_do_not_see_each_other(kind: str) -> None:
    model, (task, _) = made(kind), draw()
    whole = predicted(model, task)
    alone = predicted(model, task._replace(x_BNX=task.x_BNX[:, 1:2], y_BNY=task.y_BNY[:, 1:2]))
    torch.testing.assert_close(alone.mean, whole.mean[:, 1:2], atol=1e-5, rtol=1e-4)
    if kind not in ("ANP", "IPNP", "RIPNP", "BANP"):  # whose samples are drawn for all tasks in turn
        one = predicted(model, Task(*(part[2:3] for part in task)))
        torch.testing.assert_close(one.mean, whole.mean[2:3], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("kind", ["CIPNP", "IPNP", "LBANP", "RCIPNP", "RIPNP"])
def test_a_summary_is_enough_and_does_not_grow(kind: str) -> None:
    model, sizes = made(kind), set()
    for context in (4, 400):
        task, _ = draw(replace(TASKS, context=(context, context)))
        with torch.no_grad():
            summary = model.summarize(task.x_BMX, task.y_BMY)
            torch.manual_seed(5)
            later = model.decode(summary, task.x_BNX, 6)
        torch.testing.assert_close(later.mean, predicted(model, task).mean)
        sizes.add(sum(part.numel() for part in (*summary[:3], *summary.left)))
    assert len(sizes) == 1


@pytest.mark.parametrize("kind", ["RCANP", "RCIPNP", "RIPNP"])
def test_a_further_reading_is_of_what_is_left(kind: str) -> None:
    model, (task, _) = made(kind, readings=3), draw()
    read = []
    for encoder in model.left_encoders:  # type: ignore[union-attr]
        encoder.register_forward_hook(lambda _, given, out: read.append(given[0]))
    summary = model.summarize(task.x_BMX, task.y_BMY)
    first, second, both = model.readings(summary)  # type: ignore[operator]
    assert [len(one.left) for one in (first, second, both)] == [0, 1, 2]
    for reading, given in zip((first, second), read, strict=True):
        assert torch.equal(given[..., :1], task.x_BMX)
        torch.testing.assert_close(given[..., 1:], task.y_BMY - model.mean(reading, task.x_BMX))  # type: ignore[operator]
        assert not given.requires_grad
    # predictions use every reading, and training teaches every reading to predict
    means = [model.mean(one, task.x_BNX) for one in (first, second, both)]  # type: ignore[operator]
    assert all((a - b).abs().max() > 1e-3 for a, b in pairwise(means))
    if kind != "RIPNP":
        log_p = [model.decode(one, task.x_BNX).log_prob(task.y_BNY).mean() for one in (first, second, both)]
        torch.testing.assert_close(model.loss(task), -torch.stack(log_p).mean())


@pytest.mark.parametrize("kind", ["RCANP", "RCIPNP", "RIPNP"])
def test_one_reading_is_the_plain_model(kind: str) -> None:
    model, plain, (task, _) = made(kind, readings=1), made(kind[1:]), draw()
    assert torch.equal(predicted(model, task).mean, predicted(plain, task).mean)
    torch.manual_seed(1)
    loss = model.loss(task)
    torch.manual_seed(1)
    assert torch.equal(loss, plain.loss(task))


@pytest.mark.parametrize("kind", ["RCANP", "RCIPNP", "RIPNP"])
def test_every_further_reading_has_its_own_weights(kind: str) -> None:
    model, (task, _) = made(kind, readings=4), draw()
    with torch.no_grad():
        summary = model.summarize(task.x_BMX, task.y_BMY)
        found = model.read_left(summary, task.x_BNX)  # type: ignore[operator]
        for number, part in enumerate(found.split(16, -1)):
            reader, encoder = model.left_readers[number], model.left_encoders[number]  # type: ignore[index]
            values = summary.left[number]
            if kind == "RCANP":
                expected = reader(model.position(task.x_BNX), summary.key_BLE, values)  # type: ignore[operator]
            else:
                expected = reader(encoder.at(task.x_BNX), values, values)
            torch.testing.assert_close(part, expected)
        fewer = model.read_left(summary._replace(left=summary.left[:1]), task.x_BNX)  # type: ignore[operator]
    assert torch.equal(fewer[..., :16], found[..., :16])
    assert not fewer[..., 16:].any()


def test_a_latent_process_learns_from_every_reading() -> None:
    model, (task, _) = made("RIPNP", samples=3), draw()
    assert isinstance(model, LatentProcess)
    torch.manual_seed(4)
    loss = model.loss(task)
    torch.manual_seed(4)
    summary, posterior = model.summarize(task.x_BMX, task.y_BMY), model._posterior(task)
    bounds = [model._bounds(reading, posterior, task)[1].mean() for reading in model.readings(summary)]
    assert len(bounds) == 3
    torch.testing.assert_close(loss, -torch.stack(bounds).mean())


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_every_weight_has_a_gradient(kind: str, autocast: bool) -> None:
    model, (task, _) = made(kind), draw()
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        loss = model.loss(task)
    loss.backward()
    without = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    # scores that all grow alike change no attention
    assert all(name.endswith("attention.key.bias") for name in without)


@pytest.mark.parametrize("kind", KINDS)
def test_wrong_shapes_are_named(kind: str) -> None:
    model, (task, _) = made(kind), draw()
    x, y, at = task.x_BMX, task.y_BMY, task.x_BNX
    for arguments, said in (
        ((x[0], y, at), "x_context must have 3 dimensions"),
        ((x, y[:, :-1], at), "y_context must have"),
        ((x, y, at.expand(-1, -1, 2)), "x_target must have 1 input dimensions"),
        ((x, y, at[:2]), "x_target must have 4 tasks"),
    ):
        with pytest.raises(ValueError, match=said):
            model(*arguments)
    for samples, said in ((0, "samples must be at least 1"), (1.5, "samples must be a whole number")):
        with pytest.raises(ValueError, match=said):
            model(x, y, at, samples)


def test_settings_that_cannot_be() -> None:
    for wrong in (
        {"kind": "XNP"},
        {"kind": "ANP", "heads": 3},
        {"kind": "ANP", "floor": 0.0},
        {"kind": "ANP", "width": 0},
        {"kind": "ANP", "width": 16.0},
    ):
        with pytest.raises(ValueError, match="must"):
            ModelSettings(**wrong)  # type: ignore[arg-type]
    for settings in (
        {"steps": 0},
        {"steps": 2.5},
        {"clip": 0.0},
        {"learning_rate": None},
        {"learning_rate": float("nan")},
        {"learning_rate": True},
    ):
        with pytest.raises(ValueError, match="must"):
            TrainingSettings(**settings)  # type: ignore[arg-type]
    for task in (
        {"kernel": "cubic"},
        {"context": (5, 4)},
        {"target": (0, 3)},
        {"noise": 0.0},
        {"tasks": 2.5},
        {"noise": None},
        {"x_size": 0},
    ):
        with pytest.raises(ValueError, match="must"):
            ProcessSettings(**task)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", KINDS)
def test_no_targets_have_no_predictions(kind: str) -> None:
    model, (task, _) = made(kind), draw(TASKS)
    found = model(task.x_BMX, task.y_BMY, task.x_BNX[:, :0])
    assert found.mean.shape == task.y_BNY[:, :0].shape
    assert found.log_prob(task.y_BNY[:, :0]).shape == task.y_BNY[:, :0].shape


@pytest.mark.parametrize("kind", ["ANP", "IPNP"])
def test_bounds_are_bounds(kind: str) -> None:
    """ELBO <= importance-weighted bound <= log p, the last by very many samples of the prior."""
    model, (task, _) = made(kind), draw(replace(TASKS, target=(2, 2)))
    assert isinstance(model, LatentProcess)
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter *= 0.7  # a latent variable that says less: few samples must do here
        elbo, importance = (
            torch.stack(x).mean(0) for x in zip(*(model.bounds(task, 64) for _ in range(40)), strict=True)
        )
        summary = model.summarize(task.x_BMX, task.y_BMY)
        z = model.latent(summary).sample((5_000,))
        log_p = model._given(summary, task.x_BNX, z).log_prob(task.y_BNY).sum((-2, -1))
        exact = (torch.logsumexp(log_p, 0) - torch.log(torch.tensor(5_000.0))) / 2
    assert (elbo <= importance + 1e-3).all()
    assert (importance <= exact + 0.04).all()
    assert (exact - importance).max() < 0.1  # with 64 samples it is nearly tight


def test_the_kl_term_pulls_the_posterior_to_the_prior() -> None:
    """With the sign turned, as printed in the paper, training would drive the two apart without end."""
    model, (task, _) = made("IPNP"), draw()
    assert isinstance(model, LatentProcess)
    torch.manual_seed(0)
    elbo, _ = model.bounds(task, 2_000)
    summary = model.summarize(task.x_BMX, task.y_BMY)
    everything = model.summarize(
        torch.cat([task.x_BMX, task.x_BNX], 1), torch.cat([task.y_BMY, task.y_BNY], 1)
    )
    posterior, prior = model.latent(everything), model.latent(summary)
    z = posterior.sample((2_000,))
    log_p = model._given(summary, task.x_BNX, z).log_prob(task.y_BNY).sum((-2, -1)).mean(0)
    divergence = (posterior.log_prob(z) - prior.log_prob(z)).sum(-1).mean(0)  # by simulation
    expected = (log_p - divergence) / task.x_BNX.shape[1]
    torch.testing.assert_close(elbo, expected, atol=0.05, rtol=0.05)


# tasks and the oracle


@pytest.mark.parametrize("kernel", KERNELS)
def test_tasks_have_the_covariance_of_their_process(kernel: str) -> None:
    settings = ProcessSettings(kernel, context=(2, 2), target=(1, 1), tasks=6, x_size=2)
    task, process = draw_tasks(settings, 1, 0)
    x = torch.cat([task.x_BMX, task.x_BNX], 1).double()
    covariance = process.noisy_covariance(x)
    torch.testing.assert_close(covariance, covariance.mT)
    assert (torch.linalg.eigvalsh(covariance) > 0).all()
    b, i, j = 4, 0, 2
    d = x[b, i] - x[b, j]
    length, scale, period = (float(v[b]) for v in (process.length_B, process.scale_B, process.period_B))
    r = float(d.norm()) / length
    expected = {
        "rbf": scale**2 * torch.exp(torch.tensor(-0.5 * r**2)),
        "matern52": scale**2 * (1 + 5**0.5 * r + 5 * r**2 / 3) * torch.exp(torch.tensor(-(5**0.5) * r)),
        "periodic": scale**2 * torch.exp(-2 * (torch.sin(torch.pi * d / period) / length).square().sum()),
    }[kernel]
    assert float(covariance[b, i, j]) == pytest.approx(float(expected), rel=1e-6)


def test_draws_vary_as_they_should() -> None:
    settings = ProcessSettings(context=(1, 1), target=(1, 1), tasks=4_000, scale=(0.7, 0.7))
    task, _ = draw_tasks(settings, 2, 0)
    assert float(task.y_BNY.var()) == pytest.approx(0.49 + 0.0004, rel=0.08)


def test_the_same_seed_gives_the_same_tasks() -> None:
    first, second, other = draw_tasks(TASKS, 1, 7)[0], draw_tasks(TASKS, 1, 7)[0], draw_tasks(TASKS, 1, 8)[0]
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert first.x_BMX.shape != other.x_BMX.shape or not torch.equal(first.x_BMX, other.x_BMX)


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_oracle_is_the_conditional_of_a_gaussian(kernel: str) -> None:
    task, process = draw_tasks(ProcessSettings(kernel, context=(5, 5), target=(2, 2), tasks=3), 4, 0)
    best = oracle(task, process)
    joint = process.noisy_covariance(torch.cat([task.x_BMX, task.x_BNX], 1).double())
    gain = joint[:, 5:, :5] @ torch.linalg.inv(joint[:, :5, :5])
    torch.testing.assert_close(best.mean, gain @ task.y_BMY.double())
    variance = (joint[:, 5:, 5:] - gain @ joint[:, :5, 5:]).diagonal(dim1=1, dim2=2)
    torch.testing.assert_close(best.variance[..., 0], variance)
    empty = task._replace(x_BMX=task.x_BMX[:, :0], y_BMY=task.y_BMY[:, :0])
    torch.testing.assert_close(oracle(empty, process).mean, torch.zeros(3, 2, 1).double())


def test_nobody_is_better_than_the_oracle() -> None:
    trainer = gaussian_trainer(
        ModelSettings("CIPNP", **SMALL), TrainingSettings(60, learning_rate=2e-3), replace(TASKS, tasks=16)
    )
    trainer.train()
    found = score(trainer.model, TASKS, 40)
    assert found.log_likelihood < found.floored <= found.oracle + 1e-9
    assert found.gap > 0


def test_a_floor_costs_the_oracle() -> None:
    task, process = draw()
    best = oracle(task, process)
    floored = with_floor(best, 0.1)
    assert (floored.stddev >= 0.1).all()
    assert float(floored.log_prob(task.y_BNY.double()).mean()) < float(
        best.log_prob(task.y_BNY.double()).mean()
    )


# evaluation


def test_calibration_of_the_truth_is_nearly_zero() -> None:
    class Oracle(torch.nn.Module):
        """Knows the process of the batch that is asked for."""

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
    found = calibration(Oracle(tasks), tasks, 8, 60)  # type: ignore[arg-type]
    assert found.error < 2e-4
    assert found.inside[0] == 0
    assert found.inside[-1] == 1
    assert found.targets > 10_000


def test_calibration_of_the_too_sure() -> None:
    class Sure(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor, at: torch.Tensor, samples: int) -> Distribution:
            return torch.distributions.Normal(torch.zeros_like(at), 1e-6)

    found = calibration(Sure(), TASKS, 8, 5)  # type: ignore[arg-type]
    assert found.error == pytest.approx(sum((i / 10) ** 2 for i in range(10)) / 11, abs=1e-3)


def test_cdf_of_a_mixture() -> None:
    model, (task, _) = made("ANP"), draw()
    found = predicted(model, task)
    drawn = found.sample((4_000,))
    torch.testing.assert_close(
        cdf(found, task.y_BNY), (drawn <= task.y_BNY).float().mean(0), atol=0.05, rtol=0
    )


# training


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
    resumed.resume(tmp_path / "state")
    assert resumed.step == 3
    resumed.train()
    for a, b in zip(whole.model.parameters(), resumed.model.parameters(), strict=True):
        assert torch.equal(a, b)
    resumed.save(tmp_path / "model")
    loaded, described = load_model(tmp_path / "model")
    assert described["step"] == 8
    task, _ = draw()
    torch.testing.assert_close(predicted(loaded, task).mean, predicted(whole.model.eval(), task).mean)


def test_states_of_before_there_were_readings_are_resumed(tmp_path) -> None:  # type: ignore[no-untyped-def]
    def trainer():  # type: ignore[no-untyped-def]
        return gaussian_trainer(ModelSettings("CANP", **SMALL), TrainingSettings(3, seed=4), TASKS)

    half = trainer()
    half.train(until=2)
    half.save_state(tmp_path / "state")
    tensors, metadata = load_tensors(tmp_path / "state", STATE_FORMAT, "training state")
    del metadata["run"]["model"]["readings"], metadata["run"]["start"]
    save_tensors(tmp_path / "old", tensors, metadata, STATE_FORMAT)
    resumed = trainer()
    resumed.resume(tmp_path / "old")
    assert resumed.step == 2


def test_numbers_of_numpy_can_be_saved(tmp_path) -> None:  # type: ignore[no-untyped-def]
    settings = ModelSettings("CANP", width=np.int64(16), heads=np.int32(2))  # type: ignore[arg-type]
    trainer = gaussian_trainer(settings, TrainingSettings(np.int64(1)), TASKS)  # type: ignore[arg-type]
    trainer.train()
    trainer.save(tmp_path / "model")
    assert load_model(tmp_path / "model")[0].settings.width == 16


def test_states_of_other_networks_are_not_resumed(tmp_path) -> None:  # type: ignore[no-untyped-def]
    from spinimpute.errors import InputError

    trainer = gaussian_trainer(ModelSettings("LBANP", **SMALL), TrainingSettings(3, seed=4), TASKS)
    trainer.train(until=1)
    trainer.save_state(tmp_path / "state")
    tensors, metadata = load_tensors(tmp_path / "state", STATE_FORMAT, "training state")
    for name in ("/weights/points", "/weights/embed.0.weight"):
        save_tensors(tmp_path / "old", tensors | {name: tensors[name][:, :1]}, metadata, STATE_FORMAT)
        with pytest.raises(InputError, match="old holds the weights of another network"):
            trainer.resume(tmp_path / "old")


def test_another_run_is_not_resumed(tmp_path) -> None:  # type: ignore[no-untyped-def]
    from spinimpute.errors import InputError

    one = gaussian_trainer(ModelSettings("CANP", **SMALL), TrainingSettings(8), TASKS)
    one.save_state(tmp_path / "state")
    other = gaussian_trainer(ModelSettings("CANP", **SMALL), TrainingSettings(9), TASKS)
    with pytest.raises(InputError, match="belongs to other settings"):
        other.resume(tmp_path / "state")
    with pytest.raises(InputError, match="not a neural process"):
        load_model(tmp_path / "state")


@pytest.mark.parametrize("kind", KINDS)
def test_learning(kind: str) -> None:
    """Better than the best that knows nothing of the context: the marginal of all tasks."""
    tasks = ProcessSettings(context=(8, 24), target=(8, 8), length_scale=(0.8, 1.2), scale=(0.8, 1.0))
    settings = ModelSettings(kind, width=32, heads=2, inducing_points=8, blocks=2, samples=2)
    trainer = gaussian_trainer(settings, TrainingSettings(60, learning_rate=3e-3), tasks)
    trainer.train()
    prior = draw_tasks(replace(tasks, context=(0, 0)), HELD_OUT_SEED, 0)
    alone = float(oracle(*prior).log_prob(prior[0].y_BNY.double()).mean())
    assert score(trainer.model, tasks, 20, 10).log_likelihood > alone + 0.15


def test_large_contexts_have_the_same_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is computed again for the gradient is the same as what would have been kept, in less memory."""
    model, (task, _) = made("CIPNP"), draw(replace(TASKS, context=(300, 300)))
    found = []
    for least in (256, 10_000):
        monkeypatch.setattr(blocks, "RECOMPUTED_FROM", least)
        model.zero_grad()
        model.loss(task).backward()
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        found.append((gradients, saved_bytes(model, task)))
    for again, kept in zip(found[0][0], found[1][0], strict=True):
        torch.testing.assert_close(again, kept)
    assert found[0][1] < 0.7 * found[1][1]


@pytest.mark.parametrize("kind", ["CIPNP", "IPNP", "RCIPNP", "RIPNP"])
def test_of_large_contexts_the_points_alone_are_kept(kind: str) -> None:
    sizes = []
    for context in (300, 1100):
        task, _ = draw(replace(TASKS, context=(context, context), target=(5, 5)))
        sizes.append(saved_bytes(made(kind), task))
    a_number_each = 800 * TASKS.tasks * 4  # bytes
    # x and y, and what is left of it, of every encoder; an embedding is of 16 numbers
    assert sizes[1] - sizes[0] < 16 * a_number_each
