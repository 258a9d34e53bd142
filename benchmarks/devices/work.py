"""One row: a process that imputes, trains or fits a table, and writes its measurements as JSON.

usage: python -m benchmarks.devices.work TASK REPORT KIND DEVICE THREADS ...
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
import time
from pathlib import Path

import spinimpute
from benchmarks.devices.plan import IMPUTE, TRAIN
from benchmarks.imputation.cases import REPOSITORY

UNTIMED_STEPS = 2
TABLE_ROWS, TABLE_COLUMNS, BATCH = 20_000, 20, 256


def main() -> None:
    task, report, kind, device, threads, *given = sys.argv[1:]
    if task == IMPUTE:
        found = _impute(kind, device, int(threads), *map(Path, given))
    elif task == TRAIN:
        found = _train(kind, device, int(threads), Path(given[0]), int(given[1]))
    else:
        found = _tabular(device, int(threads), int(given[0]))
    if device == "cuda":
        import torch

        found["gpu_mb"] = torch.cuda.max_memory_allocated() / 2**20
    Path(report).write_text(json.dumps(found))


def _impute(kind: str, device: str, threads: int, panel: Path, target: Path, out: Path) -> dict[str, float]:
    """Seconds of the stages, by name."""
    summary = spinimpute.impute(
        target,
        out,
        panel,
        predictor=spinimpute.PredictorSettings(name=kind),
        resources=spinimpute.Resources(threads=threads, device=device),
        force=True,
    )
    return {**summary.seconds, "samples": summary.samples}


def _train(kind: str, device: str, threads: int, panel: Path, steps: int) -> dict[str, float]:
    """Further training of the shipped model on a panel's samples, without its validations."""
    times: list[float] = []

    def stepped(_: int) -> None:
        wait_for(device)
        times.append(time.perf_counter())

    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "config.toml"
        every = UNTIMED_STEPS + steps
        config.write_text(
            with_few_validations((REPOSITORY / f"configs/{kind}_panel.toml").read_text(), every)
        )
        spinimpute.train(
            config,
            Path(folder) / "out.safetensors",
            panel=panel,
            init="shipped",
            device=device,
            threads=threads,
            steps=every,
            stepped=stepped,
        )
    return {"steps": steps, "step_seconds": times[-1] - times[UNTIMED_STEPS - 1]}


def with_few_validations(configuration: str, every: int) -> str:
    """Write a configuration that validates on a single task, every so many steps."""
    for name, value in (("validate_every", every), ("validation_tasks", 1)):
        configuration, count = re.subn(rf"(?m)^{name} *=.*$", f"{name} = {value}", configuration)
        if count != 1:
            raise ValueError(f"{name} is set {count} times in the configuration, not once")
    return configuration


def _tabular(device: str, threads: int, steps: int) -> dict[str, float]:
    """Fitting and predicting, of a generated table, by SPIN."""
    import torch
    from sklearn.datasets import make_classification

    from spinimpute.tabular import SPINClassifier

    torch.set_num_threads(threads)
    x, y = make_classification(TABLE_ROWS, TABLE_COLUMNS, n_informative=10, random_state=1)

    def fitted(steps: int) -> SPINClassifier:
        return SPINClassifier(
            steps=steps, evaluate_every=steps, batch_size=BATCH, device=device, random_state=1
        ).fit(x, y)

    fitted(UNTIMED_STEPS)
    start = time.perf_counter()
    model = fitted(steps)
    wait_for(device)
    done = time.perf_counter()
    model.predict_proba(x)
    return {
        "steps": steps,
        "step_seconds": done - start,
        "predicted": len(x),
        "predict_seconds": time.perf_counter() - done,
    }


def wait_for(device: str) -> None:
    """Wait until a GPU has finished its work."""
    if device == "cuda":
        import torch

        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
