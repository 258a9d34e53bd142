"""The budget of a run, equal for all rows of a table: sizes, tasks, steps, and the held-out tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.simulated.ablation import SETS
from spinimpute.predictors.spin.settings import SPINSettings
from spinimpute.training.episodes import EpisodeSettings
from spinimpute.training.simulation import SimulationSettings
from spinimpute.training.trainer import TrainingSettings

SEGMENTS = 600  # as in configs/spin.toml


@dataclass(frozen=True)
class Budget:
    """Sizes of a run and of its test.

    held_out: number of segments of `SimulatedSource.validation`. sets: number of sets of
    `benchmarks.simulated.ablation`. episodes_each: number of tasks drawn from each segment of both. device:
    "cpu" or "cuda".
    """

    spin: SPINSettings
    episodes: EpisodeSettings
    simulation: SimulationSettings
    steps: int
    held_out: int
    episodes_each: int
    sets: tuple[tuple[int, int, float, int], ...]
    device: str = "cpu"

    def training(self, seed: int, chosen: Mapping[str, Any]) -> TrainingSettings:
        """Return the settings of one run; the tasks of a seed are the same in all rows."""
        settings = {"steps": self.steps, "seed": seed, **chosen}
        return TrainingSettings(**settings, validate_every=max(settings["steps"] // 3, 1), validation_tasks=8)

    def as_dict(self) -> dict[str, Any]:
        """Return the budget as JSON values, without the device, which is no part of the budget."""
        return {name: value for name, value in asdict(self).items() if name != "device"}


# much smaller than configs/spin.toml, so that most runs take less than a minute on one core
BUDGET = Budget(
    SPINSettings(flank=64, fewest_points=48, inducing_points=128),
    EpisodeSettings(
        blocks=2,
        queries=10,
        sites_per_gap=5,
        context_samples=60,
        array_density=(40.0, 1_000.0),
        whole_share=0.5,
        foreign_share=0.3,
    ),
    SimulationSettings(
        length=(200_000, 600_000), samples=(100, 400), recombination_rate=(0.2e-8, 4e-8), demes=4
    ),
    steps=600,
    held_out=48,
    episodes_each=4,
    sets=tuple(SETS),
)
