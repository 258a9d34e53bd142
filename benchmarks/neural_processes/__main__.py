"""Neural processes on Gaussian-process tasks: the settings of the SPIN paper's section 4.2.

    python -m benchmarks.neural_processes train --context 64 128 --steps 600 --seeds 1 2 3
    python -m benchmarks.neural_processes train --context 64 128 --steps 2000 --seeds 1 2 3
    python -m benchmarks.neural_processes train --context 512 1024 --after 64 128 --steps 0 --tasks 8
    python -m benchmarks.neural_processes cost
    python -m benchmarks.neural_processes calibration --context 64 128
    python -m benchmarks.neural_processes figure
    python -m benchmarks.neural_processes contexts
    python -m benchmarks.neural_processes sunspots

All models are trained on the same tasks. Results with configuration and log go to results/DATE-NAME, or to
results/DATE-NAME-steps-N if the number of steps is not 600. `--after-steps N` starts from the models of such
a folder. Existing models are not trained again, and training continues from the last state in
--models-folder, so an interrupted command can be continued. The improved models have 64 inducing points by
default. The published models have half as many as the smallest context has points, and the paper's learning
rate in

    python -m benchmarks.neural_processes train --context 64 128 --steps 60000 --learning-rate 5e-4 \\
        --seeds 1 --models CIPNP --batches 300
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.device_option import add_device
from benchmarks.neural_processes.calibrate import calibrate
from benchmarks.neural_processes.contexts import contexts
from benchmarks.neural_processes.cost import cost, large
from benchmarks.neural_processes.figure import figure
from benchmarks.neural_processes.results import INDUCING, STEPS
from benchmarks.neural_processes.sunspots import PICTURE, sunspots
from benchmarks.neural_processes.sunspots import STEPS as SUNSPOT_STEPS
from benchmarks.neural_processes.train import train
from spinimpute.neural_processes.gaussian_tasks import KERNELS
from spinimpute.neural_processes.settings import IMPROVED, KINDS


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.neural_processes", description=__doc__)
    commands = parser.add_subparsers(required=True)
    for name, function in (
        ("train", train),
        ("cost", cost),
        ("calibration", calibrate),
        ("large", large),
        ("figure", figure),
        ("contexts", contexts),
    ):
        sub = commands.add_parser(name)
        sub.set_defaults(function=function)
        add_device(sub)
        sub.add_argument("--threads", type=int, default=1)
        sub.add_argument("--batches", type=int, default=100)
        sub.add_argument("--samples", type=int, default=50, help="samples of latent and bootstrapping models")
        sub.add_argument("--models-folder", default="/tmp/neural-processes", help="folder of the weights")
        if name in ("train", "calibration"):
            sub.add_argument(
                "--context", type=int, nargs=2, default=[64, 128], help="range of context points in training"
            )
            sub.add_argument("--steps", type=int, default=STEPS, help="steps of training")
        if name == "train":
            sub.add_argument("--after", type=int, nargs=2, help="start from the models of this context")
            sub.add_argument("--after-steps", type=int, help=f"training steps of those models ({STEPS})")
            sub.add_argument("--tasks", type=int, default=16, help="tasks of a batch")
            # twice the paper's, which is for 100,000 steps
            sub.add_argument("--learning-rate", type=float, default=1e-3)
            sub.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
            sub.add_argument("--models", nargs="+", default=list(IMPROVED), choices=KINDS)
            sub.add_argument(
                "--inducing-points",
                type=int,
                help=f"default: {INDUCING}; published models: half of the smallest context",
            )
            sub.add_argument(
                "--released", action="store_true", help="published models as in their released code"
            )
            sub.add_argument("--floor", type=float, default=0.1)
            sub.add_argument("--kernel", default="rbf", choices=KERNELS)
    sub = commands.add_parser("sunspots", help="gaps in a real time series")
    sub.set_defaults(function=sunspots)
    sub.add_argument("--threads", type=int, default=1)
    sub.add_argument("--steps", type=int, default=SUNSPOT_STEPS)
    sub.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    sub.add_argument("--picture", type=Path, default=PICTURE, help="SVG file to write")
    arguments = parser.parse_args()
    arguments.function(arguments)


if __name__ == "__main__":
    main()
