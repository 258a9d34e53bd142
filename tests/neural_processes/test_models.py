"""Properties of all neural processes, whatever their weights."""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from torch.distributions import Distribution

from benchmarks.neural_processes.cost import saved_bytes
from spinimpute.neural_processes.gaussian_tasks import ProcessBatch, ProcessSettings, TaskBatch, draw_tasks
from spinimpute.neural_processes.models import NeuralProcess, make_model
from spinimpute.neural_processes.settings import KINDS, ModelSettings
from spinimpute.neural_processes.training import TrainingSettings
from spinimpute.nn import points
from spinimpute.nn.attention import MultiHeadAttention, recorded_attention

SMALL = {"width": 16, "heads": 2, "inducing_points": 5, "blocks": 2}
TASKS = ProcessSettings(context=(6, 12), target=(3, 7), tasks=4)


def made(kind: str, seed: int = 0, **more: object) -> NeuralProcess:
    torch.manual_seed(seed)
    return make_model(ModelSettings(kind, **{**SMALL, **more})).eval()


def draw(settings: ProcessSettings = TASKS, number: int = 0) -> tuple[TaskBatch, ProcessBatch]:
    return draw_tasks(settings, 3, number)


def predicted(model: NeuralProcess, task: TaskBatch, seed: int = 5) -> Distribution:
    torch.manual_seed(seed)
    with torch.no_grad():
        return model(task.x_BNX, task.y_BNY, task.x_BQX, 6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sizes", [(1, 1), (3, 2)])
def test_shapes_of_any_size(kind: str, sizes: tuple[int, int]) -> None:
    x_size, y_size = sizes
    settings = replace(TASKS, x_size=x_size, y_size=y_size)
    model = made(kind, x_size=x_size, y_size=y_size)
    for context in (0, 1, 9):
        task, _ = draw(replace(settings, context=(context, context)))
        found = predicted(model, task)
        assert found.log_prob(task.y_BQY).shape == task.y_BQY.shape
        assert torch.isfinite(found.log_prob(task.y_BQY)).all()
        assert torch.isfinite(found.mean).all()
        nothing = predicted(model, task._replace(x_BQX=task.x_BQX[:, :0]))
        assert nothing.mean.shape == nothing.log_prob(task.y_BQY[:, :0]).shape == task.y_BQY[:, :0].shape
        loss = model.loss(task)
        loss.backward()
        assert torch.isfinite(loss)
        assert all(p.grad is None or torch.isfinite(p.grad).all() for p in model.parameters())


@pytest.mark.parametrize("kind", [k for k in KINDS if not k.startswith("BANP")])
def test_the_order_of_the_context_does_not_matter(kind: str) -> None:
    model, (task, _) = made(kind), draw()
    order = torch.randperm(task.x_BNX.shape[1], generator=torch.Generator().manual_seed(1))
    other = task._replace(x_BNX=task.x_BNX[:, order], y_BNY=task.y_BNY[:, order])
    one, two = predicted(model, task), predicted(model, other)
    torch.testing.assert_close((two.mean, two.stddev), (one.mean, one.stddev), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("kind", ["CIPNP+", "LBANP+", "RCIPNP"])
def test_queries_start_equal_to_keys(kind: str) -> None:
    """The start is steep: attention of an untrained model is far from uniform."""
    model = made(kind, width=64)
    layers = [(name, part) for name, part in model.named_modules() if isinstance(part, MultiHeadAttention)]
    steep = [part for name, part in layers if "read_latents" not in name]
    plain = torch.nn.Linear(64, 64).weight.std()
    for attention in steep:
        assert torch.equal(attention.query.weight, attention.key.weight)
        assert torch.equal(attention.query.bias, attention.key.bias)
        assert attention.key.weight.std() > 2.5 * plain
    assert len(steep) == {"CIPNP+": 2, "LBANP+": 4, "RCIPNP": 6}[kind]


def test_an_untrained_lbanp_reads_near_points() -> None:
    torch.manual_seed(0)
    model = make_model(ModelSettings("LBANP+"))
    task, _ = draw(replace(TASKS, context=(64, 64), target=(30, 30)))
    layers = [model.read_context[0].attention, model.answer[0].attention]
    with torch.no_grad(), recorded_attention(layers) as weights:
        model(task.x_BNX, task.y_BNY, task.x_BQX)
    (read, answered), latent_HX = weights, model.points[0, :, :1].detach()
    for weight_BGLM, queries, keys in ((read, latent_HX, task.x_BNX), (answered, task.x_BQX, latent_HX)):
        away = (weight_BGLM.mean(1) @ keys - queries).abs()
        assert away.mean() < 0.7  # 1 for uniform attention


@pytest.mark.parametrize("kind", KINDS)
def test_targets_and_tasks_do_not_see_each_other(kind: str) -> None:
    model, (task, _) = made(kind), draw()
    whole = predicted(model, task)
    alone = predicted(model, task._replace(x_BQX=task.x_BQX[:, 1:2], y_BQY=task.y_BQY[:, 1:2]))
    torch.testing.assert_close(alone.mean, whole.mean[:, 1:2], atol=1e-5, rtol=1e-4)
    if kind.strip("R+") not in ("ANP", "IPNP", "BANP"):  # these draw samples for all tasks in turn
        one = predicted(model, TaskBatch(*(part[2:3] for part in task)))
        torch.testing.assert_close(one.mean, whole.mean[2:3], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("kind", [k for k in KINDS if ModelSettings(k).has_inducing_points])
def test_a_summary_is_enough_and_does_not_grow(kind: str) -> None:
    model, sizes = made(kind), set()
    for context in (4, 400):
        task, _ = draw(replace(TASKS, context=(context, context)))
        with torch.no_grad():
            summary = model.summarize(task.x_BNX, task.y_BNY)
            torch.manual_seed(5)
            later = model.decode(summary, task.x_BQX, 6)
        torch.testing.assert_close(later.mean, predicted(model, task).mean)
        sizes.add(sum(part.numel() for kept in summary.reading_points for part in kept))
    assert len(sizes) == 1


@pytest.mark.parametrize("kind", ["RCANP", "RCIPNP", "RIPNP"])
def test_a_further_reading_is_of_the_residuals(kind: str) -> None:
    model, (task, _) = made(kind, readings=3), draw()
    read = []
    for encoder in model.left_encoders:
        encoder.embed.register_forward_hook(lambda _, given, out: read.append(given[0]))
    summary = model.summarize(task.x_BNX, task.y_BNY)
    first, second, both = model.readings(summary)
    assert [len(one.reading_points) for one in (first, second, both)] == [1, 2, 3]
    given_points = [given for given in read if given.ndim == 3]  # inducing points have no task axis
    for reading, given in zip((first, second), given_points, strict=True):
        assert torch.equal(given[..., :1], task.x_BNX)
        torch.testing.assert_close(given[..., 1:], task.y_BNY - model.mean(reading, task.x_BNX))
        assert not given.requires_grad
    # predictions use every reading, and training teaches every reading to predict
    means = [model.mean(one, task.x_BQX) for one in (first, second, both)]
    assert all((a - b).abs().max() > 1e-3 for a, b in pairwise(means))
    if kind != "RIPNP":
        log_p = [model.decode(one, task.x_BQX).log_prob(task.y_BQY).mean() for one in (first, second, both)]
        torch.testing.assert_close(model.loss(task), -torch.stack(log_p).mean())


@pytest.mark.parametrize("kind", ["RCANP", "RCIPNP", "RIPNP"])
def test_one_reading_is_the_plain_model(kind: str) -> None:
    model, plain, (task, _) = made(kind, readings=1), made(f"{kind[1:]}+"), draw()
    assert torch.equal(predicted(model, task).mean, predicted(plain, task).mean)
    torch.manual_seed(1)
    loss = model.loss(task)
    torch.manual_seed(1)
    assert torch.equal(loss, plain.loss(task))


@pytest.mark.parametrize("kind", ["RCANP", "RCIPNP", "RIPNP"])
def test_every_further_reading_has_its_own_weights(kind: str) -> None:
    model, (task, _) = made(kind, readings=4), draw()
    with torch.no_grad():
        summary = model.summarize(task.x_BNX, task.y_BNY)
        found = model.read(summary, task.x_BQX)
        key_BQE = model.position(task.x_BQX)
        readers = [model.reader, *model.left_readers]
        assert len(found) == len(readers) == len({id(reader) for reader in readers}) == 4
        for part, reader, kept in zip(found, readers, summary.reading_points, strict=True):
            torch.testing.assert_close(part, reader(key_BQE, task.x_BQX, kept))
        fewer = model.read(summary._replace(reading_points=summary.reading_points[:2]), task.x_BQX)
    assert len(fewer) == 2
    for part, other in zip(fewer, found, strict=False):
        torch.testing.assert_close(part, other)


def test_a_latent_process_learns_from_every_reading() -> None:
    model, (task, _) = made("RIPNP", samples=3), draw()
    torch.manual_seed(4)
    loss = model.loss(task)
    torch.manual_seed(4)
    summary, posterior = model.summarize(task.x_BNX, task.y_BNY), model.posterior(task)
    bounds = [model.bounds(reading, posterior, task)[1].mean() for reading in model.readings(summary)]
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
    # adding a constant to all scores changes no attention
    assert all(name.endswith("attention.key.bias") for name in without)


@pytest.mark.parametrize("kind", KINDS)
def test_wrong_shapes_are_named(kind: str) -> None:
    model, (task, _) = made(kind), draw()
    x, y, at = task.x_BNX, task.y_BNY, task.x_BQX
    for arguments, message in (
        ((x[0], y, at), r"x_context must have the shape \(\*, \*, 1\)"),
        ((x, y[:, :-1], at), r"y_context must have the shape \(4, "),
        ((x, y, at.expand(-1, -1, 2)), r"x_target must have the shape \(4, \*, 1\)"),
        ((x, y, at[:2]), r"x_target must have the shape"),
        ((x, y, at, 0), "samples must be at least 1"),
        ((x, y, at, 1.5), "samples must be a whole number"),
    ):
        with pytest.raises(ValueError, match=message):
            model(*arguments)


@pytest.mark.parametrize(
    ("settings", "wrong"),
    [
        *((ModelSettings, {"kind": "ANP", **wrong}) for wrong in (
            {"kind": "XNP"}, {"heads": 3}, {"floor": 0.0}, {"width": 0}, {"width": 16.0},
            {"architecture": "mine"}, {"objective": "elbo"}, {"kind": "ANP+", "objective": "released"},
        )),
        *((TrainingSettings, wrong) for wrong in (
            {"steps": 0}, {"steps": 2.5}, {"clip": 0.0}, {"learning_rate": None},
            {"learning_rate": float("nan")}, {"learning_rate": True},
        )),
        *((ProcessSettings, wrong) for wrong in (
            {"kernel": "cubic"}, {"context": (5, 4)}, {"target": (0, 3)}, {"noise": 0.0}, {"tasks": 2.5},
            {"noise": None}, {"x_size": 0},
        )),
    ],
)  # fmt: skip
def test_invalid_settings(settings: type, wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="must"):
        settings(**wrong)


@pytest.mark.parametrize("kind", ["ANP", "IPNP", "ANP+", "IPNP+"])
def test_bounds_are_bounds(kind: str) -> None:
    """ELBO <= importance-weighted bound <= log p, the last estimated with many samples of the prior."""
    model, (task, _) = made(kind), draw(replace(TASKS, target=(2, 2)))
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter *= 0.7  # a less informative latent variable needs fewer samples
        summary, posterior = model.summarize(task.x_BNX, task.y_BNY), model.posterior(task)
        bounds = (model.bounds(summary, posterior, task, 64) for _ in range(40))
        elbo, importance = (torch.stack(x).mean(0) for x in zip(*bounds, strict=True))
        z = model.latent(summary).sample((5_000,))
        log_p = model._decode_given_latent(summary, task.x_BQX, z).log_prob(task.y_BQY).sum((-2, -1))
        exact = (torch.logsumexp(log_p, 0) - torch.log(torch.tensor(5_000.0))) / 2
    assert (elbo <= importance + 1e-3).all()
    assert (importance <= exact + 0.04).all()
    assert (exact - importance).max() < 0.1  # with 64 samples it is nearly tight


def test_the_kl_term_pulls_the_posterior_to_the_prior() -> None:
    """With the opposite sign, as printed in the paper, training would drive the two apart without limit."""
    model, (task, _) = made("IPNP+"), draw()
    torch.manual_seed(0)
    summary = model.summarize(task.x_BNX, task.y_BNY)
    elbo, _ = model.bounds(summary, model.posterior(task), task, 2_000)
    x, y = torch.cat([task.x_BNX, task.x_BQX], 1), torch.cat([task.y_BNY, task.y_BQY], 1)
    everything = model.summarize(x, y)
    posterior, prior = model.latent(everything), model.latent(summary)
    z = posterior.sample((2_000,))
    log_p = model._decode_given_latent(summary, task.x_BQX, z).log_prob(task.y_BQY).sum((-2, -1)).mean(0)
    divergence = (posterior.log_prob(z) - prior.log_prob(z)).sum(-1).mean(0)  # by simulation
    expected = (log_p - divergence) / task.x_BQX.shape[1]
    torch.testing.assert_close(elbo, expected, atol=0.05, rtol=0.05)


def test_large_contexts_have_the_same_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recomputing activations for the gradient gives the same gradients in less memory."""
    model, (task, _) = made("CIPNP+"), draw(replace(TASKS, context=(300, 300)))
    gradients, sizes = [], []
    for least in (256, 10_000):
        monkeypatch.setattr(points, "CHECKPOINT_FROM", least)
        model.zero_grad()
        model.loss(task).backward()
        gradients.append([p.grad for p in model.parameters() if p.grad is not None])
        sizes.append(saved_bytes(model, task))
    torch.testing.assert_close(*gradients)
    assert sizes[0] < 0.7 * sizes[1]


@pytest.mark.parametrize("kind", ["CIPNP+", "IPNP+", "RCIPNP", "RIPNP"])
def test_memory_grows_little_with_large_contexts(kind: str) -> None:
    sizes = []
    for context in (300, 1100):
        task, _ = draw(replace(TASKS, context=(context, context), target=(5, 5)))
        sizes.append(saved_bytes(made(kind), task))
    a_number_each = 800 * TASKS.tasks * 4  # bytes
    # x, y and residuals of every encoder; one embedding alone has 16 numbers
    assert sizes[1] - sizes[0] < 16 * a_number_each
