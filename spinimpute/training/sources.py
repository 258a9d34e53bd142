"""Sources from which training tasks draw their segments: a simulation, or a user's panel."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock

import numpy as np

from spinimpute.genotypes.blocks import HaplotypeSource
from spinimpute.panels.panel import Panel
from spinimpute.runtime.errors import InputError
from spinimpute.training.episodes import MIN_SITES, usable_sites
from spinimpute.training.simulation import Segment, SimulationSettings, simulate_segment

FIRST_VALIDATION_SEED = 1_000_000_000  # of held-out segments; seeds of training segments are smaller
SEED_STRIDE = 100_000  # training seed s has segments with the simulation seeds s * SEED_STRIDE, ...
CACHED_SEGMENTS = 600  # maximum number of simulated segments kept in memory
MIN_SAMPLES = 40  # of a panel
MAX_TRIES = 100  # number of random intervals of a panel that are tried


class SimulatedSource:
    """Source of segments that are simulated when first drawn; training seeds share no segment."""

    def __init__(self, seed: int, segments: int, settings: SimulationSettings) -> None:
        if not 1 <= segments <= SEED_STRIDE:
            raise InputError("content", f"simulation.segments must lie in 1..{SEED_STRIDE}, got {segments}")
        self.first, self.segments, self.settings = seed * SEED_STRIDE, segments, settings
        self._cache: OrderedDict[int, Segment] = OrderedDict()
        self._lock = Lock()  # several threads draw tasks

    def __call__(self, rng: np.random.Generator) -> HaplotypeSource:
        """Draw one of the segments of this training seed."""
        number = int(rng.integers(self.segments))
        segment = self._cache.get(number)
        if segment is None:
            segment = simulate_segment(self.first + number, self.settings)
        with self._lock:
            self._cache[number] = segment
            self._cache.move_to_end(number)
            if len(self._cache) > CACHED_SEGMENTS:
                self._cache.popitem(last=False)
        return segment

    def validation(self, count: int) -> list[HaplotypeSource]:
        """Simulate the held-out segments, which are equal for all training seeds."""
        return [simulate_segment(FIRST_VALIDATION_SEED + i, self.settings) for i in range(count)]


class PanelSegment:
    """An interval of sites and some samples of a panel, as a source of haplotypes.

    `query_samples` are only used as queries. If it is None, each task draws its queries from all samples.
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
        """Return the alleles of the sites [start, stop), uint8 (stop - start, n_haplotypes)."""
        return self._panel.alleles(self._start + start, self._start + stop)[:, self._columns]


class PanelSource:
    """Source of random segments of a panel; `length` is in bp.

    A tenth of the samples is held out: they are the queries of validation, and training never uses them.
    Raises InputError for a panel with fewer than MIN_SAMPLES samples.
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
        all_samples = np.arange(self.panel.n_samples)
        return [self._segment(rng, all_samples, self.held_out) for _ in range(count)]

    def _segment(
        self, rng: np.random.Generator, samples: np.ndarray, queries: np.ndarray | None
    ) -> PanelSegment:
        panel = self.panel
        columns = np.flatnonzero(np.isin(panel.haplotype_sample, samples))
        for _ in range(MAX_TRIES):
            # start at a site, as a random position may be in a long interval without sites
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
