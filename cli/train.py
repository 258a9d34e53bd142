"""`spinimpute train`"""

from __future__ import annotations

from typing import Any

import click

from .messages import say
from .options import (
    OptionsOnly,
    device_option,
    force_option,
    out_option,
    progress_bar,
    quiet_option,
)


@click.command(cls=OptionsOnly)
@click.option("--config", required=True, metavar="FILE", help="TOML; see configs/ of the source.")
@out_option("Checkpoint to write (.safetensors); its log and state lie beside it.")
@click.option("--panel", metavar="FILE", help="Train on this .spin panel's own samples, not on simulations.")
@click.option("--init", metavar="FILE", help="Start from this checkpoint; 'shipped' for the shipped model.")
@click.option("--resume", is_flag=True, help="Continue an interrupted run.")
@click.option("--steps", type=click.IntRange(min=1), help="Instead of the configuration's.")
@click.option("--seed", type=click.IntRange(min=0), help="Instead of the configuration's.")
@click.option("--log", metavar="FILE", help="JSON lines (default: OUT.log.jsonl).")
@click.option("--threads", "-t", type=click.IntRange(min=1), help="Threads (default: PyTorch's choice).")
@device_option
@force_option
@quiet_option
def train(
    config: str,
    out: str,
    panel: str | None,
    init: str | None,
    resume: bool,
    steps: int | None,
    seed: int | None,
    log: str | None,
    threads: int | None,
    device: str,
    force: bool,
    quiet: bool,
) -> None:
    """Meta-train a model on simulated segments, or further on a panel's own samples.

    On several GPUs, or processes: torchrun --nproc-per-node N -m spinimpute train ..., with training.tasks in
    the configuration a multiple of N.
    """
    from spinimpute.predictors.train import train as run
    from spinimpute.runtime.errors import InputError
    from spinimpute.runtime.processes import is_first

    total = 0
    with progress_bar("training", quiet or not is_first()) as show:

        def progress(entry: dict[str, Any]) -> None:
            nonlocal total
            if "configuration" in entry:
                training = entry["configuration"]["configuration"]["training"]
                total = training["steps"]
                if not quiet:
                    say(f"{entry['weights']} weights, {total} steps, seed {training['seed']}")
            elif "validation_loss" in entry and not quiet:
                say(
                    f"step {entry['step']}: loss {entry['train_loss']:.4f}, validation "
                    f"{entry['validation_loss']:.4f}, r2 {entry['validation_r2']:.4f}"
                )

        try:
            result = run(
                config,
                out,
                panel=panel,
                init=init,
                resume=resume,
                device=device,
                threads=threads,
                seed=seed,
                steps=steps,
                force=force,
                log=log,
                progress=progress,
                stepped=lambda step: show(step / total),
            )
        except ImportError as error:
            raise InputError("content", str(error)) from error
    if is_first():
        say(f"{result.path}: validation r2 {result.validation_r2:.4f} after {result.steps} steps")
