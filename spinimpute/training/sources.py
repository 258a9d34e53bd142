"""Sources of training tasks: simulated segments, or segments of a user's panel."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np

from spinimpute.genotypes.blocks import HaplotypeSource
from spinimpute.panels.panel import Panel
from spinimpute.runtime.errors import InputError
from spinimpute.training.episodes import MIN_SITES, usable_sites
from spinimpute.training.simulation import Segment, SimulationSettings, simulate_segment

FIRST_VALIDATION_SEED = 1_000_000_000  # held-out segments; training seeds lie below
SEED_STRIDE = 100_000  # between the first segments of two training seeds
CACHED_SEGMENTS = 600
MIN_SAMPLES = 40
MAX_TRIES = 100


class SimulatedSource:
    """Simulated segments by number, made when they are needed; each training seed has its own segments."""

    def __init__(self, seed: int, segments: int, settings: SimulationSettings) -> None:
        if not 1 <= segments <= SEED_STRIDE:
            raise InputError("content", f"simulation.segments must lie in 1..{SEED_STRIDE}, got {segments}")
        self.first, self.segments, self.settings = seed * SEED_STRIDE, segments, settings
        self._cache: OrderedDict[int, Segment] = OrderedDict()

    def __call__(self, rng: np.random.Generator) -> HaplotypeSource:
        """Draw a segment of this seed."""
        number = int(rng.integers(self.segments))
        if number not in self._cache:
            self._cache[number] = simulate_segment(self.first + number, self.settings)
            if len(self._cache) > CACHED_SEGMENTS:
                self._cache.popitem(last=False)
        self._cache.move_to_end(number)
        return self._cache[number]

    def validation(self, count: int) -> list[HaplotypeSource]:
        """Simulate segments that are the same for every training seed and that none of them trains on."""
        return [simulate_segment(FIRST_VALIDATION_SEED + i, self.settings) for i in range(count)]


class PanelSegment:
    """Sites and samples of a panel, as a source of tasks.

    Query samples are queries and never context; by default tasks draw their queries.
    """

    sample_deme = None

    def __init__(
        self, panel: Panel, start: int, stop: int, columns: np.ndarray, query_samples: np.ndarray | None
    ) -> None:
        self.query_samples = query_samples
        self._panel, self._start, self._columns = panel, start, columns
        self.position = panel.position[start:stop]
        self.cM = panel.cM[start:stop]
        self.haplotype_sample = panel.haplotype_sample[columns]
        self.n_sites, self.n_haplotypes = stop - start, len(columns)

    def alleles(self, start: int, stop: int) -> np.ndarray:
        """Alleles of the sites [start, stop), uint8 (X, A)."""
        return self._panel.alleles(self._start + start, self._start + stop)[:, self._columns]


class PanelSource:
    """Random segments of a panel, with a length in bp.

    A tenth of the samples are held out: they are the queries of validation and never take part in training.
    Raises InputError for a panel with too few samples.
    """

    def __init__(self, panel: Panel, seed: int, length: int = 300_000) -> None:
        if panel.n_samples < MIN_SAMPLES:
            raise InputError(
                "content",
                f"{panel.path}: training needs at least {MIN_SAMPLES} samples, got {panel.n_samples}. "
                "Use the shipped model.",
            )
        rng = np.random.default_rng([seed, 3])
        samples = rng.permutation(panel.n_samples)
        n_held_out = max(8, panel.n_samples // 10)
        self.panel, self.length = panel, length
        self.held_out, self.samples = np.sort(samples[:n_held_out]), np.sort(samples[n_held_out:])

    def __call__(self, rng: np.random.Generator) -> HaplotypeSource:
        """Draw a segment, without the held-out samples."""
        return self._segment(rng, self.samples, None)

    def validation(self, count: int) -> list[HaplotypeSource]:
        """Draw segments with the held-out samples as queries and all others as context."""
        rng = np.random.default_rng(4)
        every = np.arange(self.panel.n_samples)
        return [self._segment(rng, every, self.held_out) for _ in range(count)]

    def _segment(
        self, rng: np.random.Generator, samples: np.ndarray, queries: np.ndarray | None
    ) -> PanelSegment:
        panel = self.panel
        columns = np.flatnonzero(np.isin(panel.haplotype_sample, samples))
        for _ in range(MAX_TRIES):
            # start at a site, not at any position: long intervals of a chromosome have no sites
            start = int(rng.integers(panel.n_sites))
            stop = int(np.searchsorted(panel.position, panel.position[start] + self.length))
            start = int(np.searchsorted(panel.position, panel.position[stop - 1] - self.length))
            if usable_sites(panel.alleles(start, stop)[:, columns]) >= 2 * MIN_SITES:
                return PanelSegment(panel, start, stop, columns, queries)
        raise InputError(
            "content",
            f"{panel.path}: the panel is too sparse to train on: {MAX_TRIES} segments of {self.length:,} bp "
            f"had fewer than {2 * MIN_SITES} common sites each",
        )
