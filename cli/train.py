"""`spinimpute train`: train a predictor's network on simulated segments, or fine-tune it on a panel."""

from __future__ import annotations

from typing import Any

import click

from .commands import Command, Count, option
from .messages import say
from .options import device_option, force_option, out_option, progress_bar, quiet_option


@click.command(cls=Command)
@option(
    "--config",
    required=True,
    metavar="FILE",
    help="Configuration (TOML), such as those in configs/.",
    group="Input",
)
@out_option("Checkpoint (.safetensors); the log and the training state are written next to it.")
@option(
    "--panel",
    metavar="FILE",
    help="Panel (.spin) whose samples are the training data in place of simulations.",
    group="Input",
)
@option(
    "--init", metavar="FILE", help="Checkpoint to start from; 'shipped' for the shipped model.", group="Input"
)
@option("--resume", is_flag=True, help="Continue an interrupted run.", group="Training")
@option("--steps", type=Count(), help="Number of steps. Default: the configuration's.", group="Training")
@option("--seed", type=Count(0), help="Random seed. Default: the configuration's.", group="Training")
@option(
    "--log", metavar="FILE", help="Log of the losses (JSON lines). Default: OUT.log.jsonl.", group="Output"
)
@option(
    "--threads", "-t", type=Count(), help="Number of threads. Default: PyTorch's choice.", group="Performance"
)
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
    """Meta-train a model on simulated segments, or fine-tune it on a panel's samples.

    To use several GPUs, run torchrun --nproc-per-node N -m spinimpute train ... The configuration's
    training.tasks must be a multiple of N.
    """
    from spinimpute.predictors.train import train as run
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
    if is_first():
        say(f"{result.path}: validation r2 {result.validation_r2:.4f} after {result.steps} steps")
