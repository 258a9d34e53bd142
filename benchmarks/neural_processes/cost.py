"""Time and memory of a training step by context size, and of predictions from a very large context."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from benchmarks.imputation.tables import markdown, write_tsv
from benchmarks.neural_processes.results import INDUCING, folder_of, machine
from spinimpute.neural_processes.gaussian_tasks import ProcessSettings, TaskBatch, draw_tasks
from spinimpute.neural_processes.models import NeuralProcess, make_model
from spinimpute.neural_processes.settings import KINDS, ModelSettings

CONTEXTS = (64, 128, 256, 512, 1_024, 2_048)
MOST = {"BANP": 1_024, "BANP+": 1_024, "RCANP": 1_024}  # a step takes minutes beyond
LARGE_CONTEXT = 100_000

Costs = dict[str, dict[int, tuple[float, float]]]  # of a model and a context: seconds, megabytes


def cost(arguments: argparse.Namespace) -> None:
    """Measure one training step for growing contexts, and CIPNP with a very large context.

    Existing rows of cost.tsv are not measured again.
    """
    torch.set_num_threads(arguments.threads)
    out = folder_of("cost")
    costs = _read(out / "cost.tsv")
    for context in CONTEXTS:
        tasks = ProcessSettings(context=(context, context), target=(34, 34))
        task, _ = draw_tasks(tasks, 1, 0, arguments.device)
        for kind in KINDS:
            if context > MOST.get(kind, context) or context in costs[kind]:
                continue
            model = make_model(ModelSettings(kind, inducing_points=INDUCING)).to(arguments.device)
            seconds, mb = seconds_per_step(model, task, 2), saved_bytes(model, task) / 2**20
            costs[kind][context] = seconds, mb
            print(f"{kind} {context}: {seconds:.3f} s, {mb:.0f} MB", flush=True)
            rows = [(k, n, f"{s:.4f}", f"{m:.1f}") for k, of in costs.items() for n, (s, m) in of.items()]
            write_tsv(out / "cost.tsv", [("kind", "context", "seconds", "MB"), *rows])
    very_large = large_context(arguments)
    configuration = {"machine": machine(arguments.device), "threads": arguments.threads, "large": very_large}
    (out / "configuration.json").write_text(json.dumps(configuration, indent=1) + "\n")
    text = report(costs, very_large)
    (out / "report.md").write_text(text)
    print(text)


def seconds_per_step(model: NeuralProcess, task: TaskBatch, repeats: int = 3) -> float:
    """Return the wall-clock time of a loss and its gradient, the fastest of several."""
    times = []
    for _ in range(repeats + 1):
        started = time.perf_counter()
        model.loss(task).backward()
        if task.x_BNX.device.type == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - started)
        model.zero_grad(set_to_none=True)
    return min(times[1:])


def saved_bytes(model: NeuralProcess, task: TaskBatch) -> int:
    """Return the bytes that a training step keeps between its two passes, without parameters.

    The storage of each tensor counts once.
    """
    kept: dict[int, int] = {}
    own = {p.untyped_storage().data_ptr() for p in model.parameters()}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = model.loss(task)
    total = sum(kept.values())
    del loss
    return total


def _read(path: Path) -> Costs:
    costs: Costs = {kind: {} for kind in KINDS}
    for line in path.read_text().splitlines()[1:] if path.exists() else ():
        kind, context, seconds, mb = line.split("\t")
        costs[kind][int(context)] = float(seconds), float(mb)
    return costs


def report(costs: Costs, large: dict[str, float]) -> str:
    parts = ["# Cost", f"16 tasks, 34 targets, {INDUCING} inducing points."]
    for which, title, digits in ((0, "Seconds of a training step", 3), (1, "Kept for backward, MB", 0)):
        rows = [["model", *map(str, CONTEXTS), "line fits with r²", "slope, late : early"]]
        for kind, of in costs.items():
            cells = [f"{of[n][which]:.{digits}f}" if n in of else "–" for n in CONTEXTS]
            line, slopes = growth({n: cost[which] for n, cost in of.items()})
            grown = ["–", "–"] if slopes is None else [f"{line:.4f}", f"{slopes:.1f}"]
            rows.append([kind, *cells, *grown])
        parts += [f"## {title}", markdown(rows)]
    parts.append(
        "The slope between the last two sizes over that between 256 and 512 points is 1 where costs are "
        "linear; it doubles with each doubling of the context where they are quadratic. Attention keeps "
        "nothing quadratic: PyTorch's fused kernels compute it again. From 256 points on CIPNP, IPNP, "
        "RCIPNP and RIPNP do the same with all that grows with the context, but for the points themselves."
        "\n\n"
        f"A CIPNP with {LARGE_CONTEXT:,} context points predicts 64 targets in {large['seconds']:.1f} s, in "
        f"{large['mb']:.0f} MB more than before (one task, on the processor, largest resident set)."
    )
    return "\n\n".join(parts) + "\n"


def growth(cost_of: dict[int, float]) -> tuple[float, float | None]:
    """Return r² of the straight line through costs by context, and the ratio of the late to the early slope.

    None if the early slope is below a hundredth of the costs for each doubling: the costs do not grow.
    """
    x, y = np.array(list(cost_of), float), np.array(list(cost_of.values()))
    residual = y - np.polyval(np.polyfit(x, y, 1), x)
    *_, before, last = cost_of
    late = (cost_of[last] - cost_of[before]) / (last - before)
    early = (cost_of[512] - cost_of[256]) / 256
    grows = 256 * early > 0.01 * cost_of[512]
    return 1 - float(residual.var() / y.var()), late / early if grows else None


def large_context(arguments: argparse.Namespace) -> dict[str, float]:
    """Measure seconds and megabytes in a separate process on the CPU."""
    command = [sys.executable, "-m", "benchmarks.neural_processes", "large"]
    command += ["--threads", str(arguments.threads)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout))


def large(arguments: argparse.Namespace) -> None:
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    model = make_model(ModelSettings("CIPNP+", inducing_points=INDUCING)).eval()
    x, y, at = torch.randn(1, LARGE_CONTEXT, 1), torch.randn(1, LARGE_CONTEXT, 1), torch.randn(1, 64, 1)
    with torch.no_grad():
        model(x[:, :100], y[:, :100], at)
        before = peak_mb()
        started = time.perf_counter()
        model(x, y, at)
        seconds = time.perf_counter() - started
    print(json.dumps({"seconds": seconds, "mb": peak_mb() - before}))


def peak_mb() -> float:
    """Return the peak resident set so far; `getrusage` would include that of the parent process."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["VmHWM"].split()[0]) / 1024
