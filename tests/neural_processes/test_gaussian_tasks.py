"""Tasks of Gaussian processes, and the oracle that knows the process."""

import pytest
import torch

from spinimpute.neural_processes.gaussian_tasks import KERNELS, ProcessSettings, draw_tasks, oracle

TASKS = ProcessSettings(context=(6, 12), target=(3, 7), tasks=4)


@pytest.mark.parametrize("kernel", KERNELS)
def test_tasks_have_the_covariance_of_their_process(kernel: str) -> None:
    settings = ProcessSettings(kernel, context=(2, 2), target=(1, 1), tasks=6, x_size=2)
    task, process = draw_tasks(settings, 1, 0)
    x = torch.cat([task.x_BNX, task.x_BQX], 1).double()
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


def test_the_variance_of_draws() -> None:
    settings = ProcessSettings(context=(1, 1), target=(1, 1), tasks=4_000, scale=(0.7, 0.7))
    task, _ = draw_tasks(settings, 2, 0)
    assert float(task.y_BQY.var()) == pytest.approx(0.49 + 0.0004, rel=0.08)


def test_the_same_seed_gives_the_same_tasks() -> None:
    first, second, other = draw_tasks(TASKS, 1, 7)[0], draw_tasks(TASKS, 1, 7)[0], draw_tasks(TASKS, 1, 8)[0]
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert first.x_BNX.shape != other.x_BNX.shape or not torch.equal(first.x_BNX, other.x_BNX)


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_oracle_is_the_conditional_of_a_gaussian(kernel: str) -> None:
    task, process = draw_tasks(ProcessSettings(kernel, context=(5, 5), target=(2, 2), tasks=3), 4, 0)
    best = oracle(task, process)
    joint = process.noisy_covariance(torch.cat([task.x_BNX, task.x_BQX], 1).double())
    gain = joint[:, 5:, :5] @ torch.linalg.inv(joint[:, :5, :5])
    torch.testing.assert_close(best.mean, gain @ task.y_BNY.double())
    variance = (joint[:, 5:, 5:] - gain @ joint[:, :5, 5:]).diagonal(dim1=1, dim2=2)
    torch.testing.assert_close(best.variance[..., 0], variance)
    empty = task._replace(x_BNX=task.x_BNX[:, :0], y_BNY=task.y_BNY[:, :0])
    torch.testing.assert_close(oracle(empty, process).mean, torch.zeros(3, 2, 1).double())
