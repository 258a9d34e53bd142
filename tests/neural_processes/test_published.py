"""The published models: sizes of the SPIN paper's tables, attention by brute force, losses by hand."""

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Normal
from torch.nn.functional import gelu, layer_norm

from spinimpute.neural_processes.blocks import PaperBlock, ReleasedBlock
from spinimpute.neural_processes.gaussian_tasks import ProcessSettings, TaskBatch, draw_tasks
from spinimpute.neural_processes.models import NeuralProcess, make_model
from spinimpute.neural_processes.settings import PUBLISHED, SOURCES, ModelSettings
from spinimpute.neural_processes.training import TrainingSettings, gaussian_trainer, load_model

SMALL = {"width": 16, "heads": 2, "inducing_points": 5}
TASKS = ProcessSettings(context=(6, 12), target=(3, 7), tasks=4)


def made(kind: str, **more: object) -> NeuralProcess:
    torch.manual_seed(0)
    return make_model(ModelSettings(kind, **{**SMALL, **more})).eval()


def drawn(number: int = 0) -> TaskBatch:
    return draw_tasks(TASKS, 3, number)[0]


def linear(inputs: int, outputs: int, *, bias: bool = True) -> int:
    """Return the number of weights of a linear layer."""
    return inputs * outputs + outputs * bias


def expected_weights(kind: str, source: str) -> int:
    """Count the weights of Tables 16 and 17, width 128 and 32 inducing points."""
    e = 128
    norms = 2 * 2 * e
    block = norms + (
        4 * linear(e, e) + linear(e, 4 * e) + linear(4 * e, e)
        if source == "paper"
        else 3 * linear(e, e, bias=False) + linear(e, e)
    )
    encoder = linear(2, e) + linear(e, e) + block + (32 * e if "IPNP" in kind else 0)
    latent_or_pooled = 2 * e if kind in ("ANP", "IPNP") else e
    pooling = encoder + linear(e, e) + linear(e, latent_or_pooled)
    reading = encoder + linear(1, e) + linear(e, e) + block
    bootstrap = linear(2 * e, e, bias=False) if kind == "BANP" else 0
    hidden = 2 if source == "paper" else 1
    decoder = linear(257, e) + hidden * linear(e, e) + linear(e, 2) + bootstrap
    return reading + pooling + decoder


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("kind", PUBLISHED)
def test_sizes_are_those_of_tables_16_and_17(kind: str, source: str) -> None:
    model = make_model(ModelSettings(kind, architecture=source))
    assert sum(p.numel() for p in model.parameters()) == expected_weights(kind, source)
    shapes: dict[str, set[torch.Size]] = {}
    for name, part in model.named_modules():
        part.register_forward_hook(
            lambda _, given, out, name=name: shapes.setdefault(name, set()).add(tuple(given[0].shape))
        )
    x, y, at = torch.randn(2, 9, 1), torch.randn(2, 9, 1), torch.randn(2, 4, 1)
    model(x, y, at, 3)
    assert {shape[-1] for shape in shapes["decoder"]} == {257}  # X_t, r, and r' or z
    assert (2, 9, 2) in shapes["value_encoder.embed"]
    assert (2, 4, 1) in shapes["position"]
    assert ((2, 9, 1) in shapes["position"]) == ("IPNP" not in kind)


def by_head(q: Tensor, k: Tensor, v: Tensor, heads: int, divisor: float) -> Tensor:
    """Attend from each row to each other row, one head and one pair at a time."""
    out = torch.zeros_like(q)
    width = q.shape[-1] // heads
    for g in range(heads):
        part = slice(g * width, (g + 1) * width)
        for i in range(len(q)):
            weight = torch.tensor([math.exp(float(q[i, part] @ row[part]) / divisor) for row in k])
            out[i, part] = (weight[:, None] * v[:, part]).sum(0) / weight.sum()
    return out


def test_the_papers_block_by_brute_force() -> None:
    torch.manual_seed(1)
    block, (x, key, value) = PaperBlock(8, 2), torch.randn(3, 5, 8)
    nn.init.normal_(block.mab.norm.weight)
    mab = block.mab
    with torch.no_grad():
        q, k, v = mab.attention.query(mab.norm(x)), mab.attention.key(key), mab.attention.value(value)
        o = x + mab.attention.output(by_head(q, k, v, 2, math.sqrt(4)))
        hidden = gelu(mab.feed_forward[0](mab.feed_forward_norm(o)))
        expected = o + mab.feed_forward[3](hidden)
        torch.testing.assert_close(block(x[None], key[None], value[None])[0], expected)


def test_the_released_block_by_brute_force() -> None:
    torch.manual_seed(2)
    block, (x, key, value) = ReleasedBlock(8, 2), torch.randn(3, 5, 8)
    with torch.no_grad():
        q, k, v = x @ block.query.weight.T, key @ block.key.weight.T, value @ block.value.weight.T
        o = layer_norm(q + by_head(q, k, v, 2, math.sqrt(8)), [8])
        expected = layer_norm(o + torch.relu(block.feed_forward(o)), [8])
        torch.testing.assert_close(block(x[None], key[None], value[None])[0], expected)


@pytest.mark.parametrize("source", SOURCES)
def test_targets_attend_to_inducing_points_alone(source: str) -> None:
    """CIPNP: K = V = H_D, and r(x, H) = MAB(x, H)."""
    model, task = made("CIPNP", architecture=source), drawn()
    with torch.no_grad():
        summary = model.summarize(task.x_BNX, task.y_BNY)
        (points,) = summary.reading_points
        assert torch.equal(points.key_BLE, points.value_BLE)
        assert points.value_BLE.shape == (4, 5, 16)
        query = model.position(task.x_BQX)
        r_BQE = model.reader.block(query, points.value_BLE, points.value_BLE)
        pooled_BQE = summary.pooled_BE[:, None].expand(-1, task.x_BQX.shape[1], -1)
        expected = model.decoder(torch.cat([task.x_BQX, r_BQE, pooled_BQE], -1))
        found = model(task.x_BNX, task.y_BNY, task.x_BQX)
    torch.testing.assert_close((found.mean, found.stddev), (expected.mean, expected.stddev))


@pytest.mark.parametrize("kind", PUBLISHED)
def test_the_order_of_the_context_and_other_targets_do_not_matter(kind: str) -> None:
    model, task = made(kind, architecture="released"), drawn()
    order = torch.randperm(task.x_BNX.shape[1])

    def means(x: Tensor, y: Tensor, at: Tensor) -> Tensor:
        torch.manual_seed(5)
        return model(x, y, at, 6).mean

    with torch.no_grad():
        whole = means(*task[:3])
        if kind != "BANP":  # the bootstrap draws points by their numbers
            torch.testing.assert_close(means(task.x_BNX[:, order], task.y_BNY[:, order], task.x_BQX), whole)
        torch.testing.assert_close(means(*task[:2], task.x_BQX[:, 1:2]), whole[:, 1:2])


def log_density(y: Tensor, mean: Tensor, sd: Tensor) -> Tensor:
    return -0.5 * ((y - mean) / sd) ** 2 - sd.log() - 0.5 * math.log(2 * math.pi)


@pytest.mark.parametrize("objective", SOURCES)
@pytest.mark.parametrize("kind", ["CANP", "CIPNP"])
def test_the_conditional_loss_by_hand(kind: str, objective: str) -> None:
    model, task = made(kind, objective=objective), drawn()
    x, y = task.x_BQX, task.y_BQY
    if objective == "released":
        x, y = torch.cat([task.x_BNX, x], 1), torch.cat([task.y_BNY, y], 1)
    found = model(task.x_BNX, task.y_BNY, x)
    torch.testing.assert_close(model.loss(task), -log_density(y, found.mean, found.stddev).mean())


@pytest.mark.parametrize("objective", SOURCES)
@pytest.mark.parametrize("kind", ["ANP", "IPNP"])
def test_the_latent_loss_by_hand(kind: str, objective: str) -> None:
    """The paper's bound subtracts a divergence; the released one averages importance weights."""
    model, task = made(kind, objective=objective, samples=3), drawn()
    x_all, y_all = torch.cat([task.x_BNX, task.x_BQX], 1), torch.cat([task.y_BNY, task.y_BQY], 1)
    x, y = (x_all, y_all) if objective == "released" else (task.x_BQX, task.y_BQY)
    summary = model.summarize(task.x_BNX, task.y_BNY)
    p, q = model.latent(summary), model.latent(model.summarize(x_all, y_all))
    torch.manual_seed(4)
    z_SBE = q.rsample((3,))
    r_BQE = model.read(summary, x)[0].r_BQI
    rows = []
    for z_BE in z_SBE:
        found = model.decoder(torch.cat([x, r_BQE, z_BE[:, None].expand(-1, x.shape[1], -1)], -1))
        rows.append(log_density(y, found.mean, found.stddev).sum((1, 2)))
    log_p_SB = torch.stack(rows)
    if objective == "paper":
        ratio = (q.mean - p.mean) ** 2 + q.stddev**2
        divergence = ((p.stddev / q.stddev).log() + ratio / (2 * p.stddev**2) - 0.5).sum(-1)
        bound_B = log_p_SB.mean(0) - divergence
    else:
        weight = [log_density(z_SBE, one.mean, one.stddev).sum(-1) for one in (p, q)]
        bound_B = (log_p_SB + weight[0] - weight[1]).exp().mean(0).log()
    torch.manual_seed(4)
    torch.testing.assert_close(model.loss(task), -(bound_B / x.shape[1]).mean())


@pytest.mark.parametrize("objective", SOURCES)
def test_the_loss_of_banp_by_hand(objective: str) -> None:
    """Mean of the losses of CANP and of the mixture over bootstrapped contexts."""
    model, task = made("BANP", objective=objective, samples=3), drawn()
    x, y = task.x_BQX, task.y_BQY
    if objective == "released":
        x, y = torch.cat([task.x_BNX, x], 1), torch.cat([task.y_BNY, y], 1)
    torch.manual_seed(4)
    parts = model._bootstrapped(task.x_BNX, task.y_BNY, x, 3)
    bootstrapped = log_density(y, parts.mean, parts.stddev).exp().mean(0).log().mean()
    encoded = model._decoder_input_of(task.x_BNX, task.y_BNY, x)
    base: Normal = model.decoder(encoded)
    plain = log_density(y, base.mean, base.stddev).mean()
    torch.manual_seed(4)
    torch.testing.assert_close(model.loss(task), -(plain + bootstrapped) / 2)


@pytest.mark.parametrize("kind", PUBLISHED)
def test_released_models_learn_and_are_saved(kind: str, tmp_path: Path) -> None:
    settings = ModelSettings(kind, **SMALL, samples=2, architecture="released", objective="released")
    trainer = gaussian_trainer(settings, TrainingSettings(40, learning_rate=5e-3), TASKS)
    losses = []
    trainer.train(report=lambda progress: losses.append(progress.loss), every=10)
    assert losses[-1] < losses[0] - 0.1
    trainer.save(tmp_path / "model")
    loaded, described = load_model(tmp_path / "model")
    assert loaded.settings == settings
    assert described["step"] == 40
    task = drawn(1)
    means = []
    for model in (trainer.model.eval(), loaded):
        torch.manual_seed(5)
        with torch.no_grad():
            means.append(model(task.x_BNX, task.y_BNY, task.x_BQX, 6).mean)
    assert torch.equal(*means)
