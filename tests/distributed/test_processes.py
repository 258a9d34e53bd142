"""Two processes do what one does: the same weights, the same attention, and on again after a crash."""

import json
import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pytest

from spinimpute.predictors.loading import FORMAT
from spinimpute.runtime.errors import InputError
from spinimpute.runtime.processes import Processes, all_processes
from spinimpute.runtime.tensor_files import load_tensors
from spinimpute.training.trainer import Trainer, TrainingSettings

pytestmark = pytest.mark.slow

TRAIN = ["-m", "spinimpute", "train", "--config", "c.toml", "--threads", "1", "-q", "--out"]
CONFIGURATION = """
[model]
kind = "spin"
core = 2
flank = 4
inducing_points = 8
heads = 4
pair_heads = 3
[episodes]
blocks = 2
queries = 6
context_samples = 8
array_density = [300, 800.0]
[simulation]
segments = 3
length = [40_000, 50_000]
samples = [20, 24]
[training]
steps = 6
tasks = 4
validate_every = 2
validation_tasks = 5
"""


def torchrun(words: list[str], processes: int, folder: Path, restarts: int = 0, status: int = 0) -> str:
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    command = [sys.executable, *launcher, f"--max-restarts={restarts}", *words]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, cwd=folder)
    assert done.returncode == status, done.stderr[-3000:]
    return done.stderr


def trained(path: Path) -> tuple[dict[str, np.ndarray], list[dict[str, Any]]]:
    """Weights, and the log without times."""
    log = [json.loads(line) for line in Path(f"{path}.log.jsonl").read_text().splitlines()]
    for entry in log:
        entry.pop("seconds", None)
    return load_tensors(path, FORMAT, "model")[0], log


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint of one process; its folder holds the configuration, too."""
    folder = tmp_path_factory.mktemp("alone")
    (folder / "c.toml").write_text(CONFIGURATION)
    subprocess.run([sys.executable, *TRAIN, "one.safetensors"], cwd=folder, check=True, timeout=300)
    return folder / "one.safetensors"


def test_two_processes_train_the_same_model(alone: Path) -> None:
    torchrun([*TRAIN, "two.safetensors"], 2, alone.parent)
    (one, log), (two, other_log) = trained(alone), trained(alone.parent / "two.safetensors")
    np.testing.assert_equal(two, one)
    assert other_log == log


@pytest.mark.parametrize("step", [0, 4])
def test_a_killed_worker_costs_nothing_but_time(alone: Path, step: int) -> None:
    """The second process is killed before a step, once the first has saved what was done so far; torchrun
    starts both anew and they go on."""
    script = alone.parent / "killed.py"
    script.write_text(
        dedent(f"""
        import os, signal, time
        from pathlib import Path
        from spinimpute.training.trainer import STATE_FORMAT, Trainer
        from spinimpute.predictors.train import train
        from spinimpute.runtime.processes import restarted
        from spinimpute.runtime.tensor_files import load_tensors

        step = Trainer.train_step
        state, log = Path("killed-{step}.safetensors.state"), Path("killed-{step}.safetensors.log.jsonl")

        def written():
            if not (state.exists() and log.exists()):
                return False
            lines = 1 + {step} // 2  # the start, and one for each validation
            is_at = load_tensors(state, STATE_FORMAT, "training state")[1]["step"]
            return is_at == {step} and len(log.read_text().splitlines()) == lines

        def killed(trainer):
            if trainer.step == {step} and not restarted() and os.environ["RANK"] == "1":
                latest = time.monotonic() + 100
                while not written():  # by the first process, which has its own pace
                    assert time.monotonic() < latest, "the first process has not written its state and log"
                    time.sleep(0.01)
                os.kill(os.getpid(), signal.SIGKILL)
            return step(trainer)

        Trainer.train_step = killed
        train("c.toml", "killed-{step}.safetensors", threads=1)
        """)
    )
    torchrun([str(script)], 2, alone.parent, restarts=1)
    (one, log), (two, other_log) = trained(alone), trained(alone.parent / f"killed-{step}.safetensors")
    np.testing.assert_equal(two, one)
    starts = [number for number, entry in enumerate(other_log) if "configuration" in entry]
    assert len(starts) == 2
    assert other_log[: starts[1]] == log[: starts[1]]
    assert other_log[starts[1] + 1 :] == log[starts[1] :]


@pytest.mark.parametrize("keep_latents", [False, True])
def test_attention_over_the_rows_of_two_processes(tmp_path: Path, keep_latents: bool) -> None:
    script = tmp_path / "attention.py"
    script.write_text(
        dedent(f"""
        import json, torch
        from spinimpute.nn.attention import MABOptions
        from spinimpute.nn.spin import SPINEncoder
        from spinimpute.runtime.processes import SINGLE_PROCESS, all_processes

        with all_processes(torch.device("cpu")) as processes:
            assert processes.count == 2
            torch.manual_seed(3)
            encoder = SPINEncoder(8, 5, inducing_points=4, latent_attributes=3, blocks=3,
                                  options=MABOptions(heads=2))
            data, target = 3 * torch.randn(2, 23, 5, 8), torch.randn(2, 4, 3, 8)
            chunks = list(data.split([5, 1, 9, 2, 6], 1))

            def outcome(chunks, processes):
                h = encoder.encode_stream(chunks, keep_latents={keep_latents}, processes=processes)
                return [h, *torch.autograd.grad((h * target).sum(), list(encoder.parameters()))]

            alone, together = outcome(chunks, SINGLE_PROCESS), outcome(processes.own_slice(chunks), processes)
            # keys' biases change nothing: their gradients are rounding, and are compared with the others'
            largest = max(float(gradient.abs().max()) for gradient in alone[1:])
            far = max(
                float((got - expected).abs().max()) / max(largest, float(expected.abs().max()))
                for expected, got in zip(alone, together)
            )
            found = processes.gather([far])
            if processes.first:
                json.dump(found, open("far.json", "w"))
        """)
    )
    torchrun([str(script)], 2, tmp_path)
    far = json.loads((tmp_path / "far.json").read_text())
    assert len(far) == 2
    assert 0 < max(far) < 1e-5


@pytest.mark.parametrize("count", [1, 2, 3, 7])
@pytest.mark.parametrize("length", [0, 1, 5, 12])
def test_parts_of_a_list(count: int, length: int) -> None:
    items = list(range(length))
    parts = [Processes(rank, count).own_slice(items) for rank in range(count)]
    assert [item for part in parts for item in part] == items
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_a_restart_overwrites_no_other_run(alone: Path) -> None:
    before = alone.read_bytes()
    said = torchrun([*TRAIN, alone.name, "--steps", "9"], 1, alone.parent, restarts=1, status=1)
    assert said.count("already exists; use --force") == 2
    assert alone.read_bytes() == before


def test_tasks_that_cannot_be_shared_out_are_refused() -> None:
    with pytest.raises(InputError, match=r"training\.tasks must be a multiple of the 2 processes, got 3"):
        Trainer(None, TrainingSettings(tasks=3), None, [], {}, Processes(0, 2))  # type: ignore[arg-type]


def test_a_lone_process_that_was_promised_others(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    for name in ("RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(InputError, match="Start them with torchrun"), all_processes(torch.device("cpu")):
        pass
