"""Simulation of genomic segments for training, with msprime.

Each segment has its own demography (populations and their sizes), recombination map and number of samples,
drawn from the ranges in `SimulationSettings`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from spinimpute.runtime.errors import InputError
from spinimpute.runtime.packages import explain_missing_packages

if TYPE_CHECKING:
    import msprime

GENERATION_YEARS = 25.0  # years of a generation
CONTINENTS = ("AFR", "EUR", "EAS")
MIN_SAMPLES = 8  # of a segment
MIN_LENGTH = 10_000  # bp


@dataclass(frozen=True)
class SimulationSettings:
    """The table [simulation] of a configuration file: the distribution from which segments are drawn.

    Pairs are ranges (minimum, maximum). They are wide, because one model must serve panels of hundreds or
    thousands of haplotypes, of one population or many, in regions with little or much recombination. Raises
    InputError for a value out of its range.
    """

    length: tuple[int, int] = (300_000, 1_000_000)  # bp
    samples: tuple[int, int] = (150, 1_500)  # number of samples
    recombination_rate: tuple[float, float] = (0.1e-8, 4e-8)  # mean rate per bp and generation
    mutation_rate: tuple[float, float] = (1.2e-8, 2.0e-8)  # per bp and generation
    # The length is multiplied, the mutation rate divided by it: longer segments, about as many sites.
    stretch: tuple[float, float] = (1.0, 1.0)
    size_factor: tuple[float, float] = (0.5, 2.0)  # all population sizes are multiplied by it
    recent_growth: tuple[float, float] = (1.0, 12.0)  # factor of growth in the last 200 generations
    hotspots_per_mb: tuple[float, float] = (5.0, 40.0)
    hotspot_share: tuple[float, float] = (0.3, 0.9)  # share of recombination that is in hotspots
    gene_conversion_share: float = 0.4  # share of segments with gene conversion
    poor_share: float = 0.0  # share of segments with little recombination: poor_rate is their mean rate
    poor_rate: tuple[float, float] = (0.01e-8, 0.2e-8)  # replaces recombination_rate in these segments
    demes: int = 1  # maximum number of demes (subpopulations) of a continent; 1 to this many are drawn
    deme_age: tuple[float, float] = (15.0, 400.0)  # generations since demes of a continent split
    deme_migration: float = 1e-3  # maximum share of a deme that moves in from another deme, per generation

    def __post_init__(self) -> None:
        if self.samples[0] < MIN_SAMPLES or self.length[0] < MIN_LENGTH:
            raise InputError(
                "content",
                f"simulation.samples must be at least {MIN_SAMPLES} and simulation.length at least "
                f"{MIN_LENGTH} bp, got {list(self.samples)} and {list(self.length)}",
            )
        shares = (self.gene_conversion_share, self.poor_share, self.deme_migration, self.hotspot_share[1])
        if not all(0 <= share <= 1 for share in shares):
            raise InputError(
                "content",
                "simulation.gene_conversion_share, poor_share, deme_migration and hotspot_share must lie "
                f"between 0 and 1, got {', '.join(map(str, shares[:3]))} and {list(self.hotspot_share)}",
            )


@dataclass(frozen=True)
class Segment:
    """A simulated segment, a source of haplotypes; haplotypes 2i and 2i + 1 belong to sample i."""

    position: np.ndarray  # int64 (n_sites,), bp, increasing
    cM: np.ndarray  # float64 (n_sites,)
    packed: np.ndarray  # uint8 (n_sites, ceil(n_haplotypes / 8)), bit-packed alleles
    n_haplotypes: int
    sample_deme: np.ndarray  # int64 (n_samples,), index of the deme of each sample
    description: dict[str, float | int | str]  # values that were drawn for this segment
    query_samples: ClassVar[None] = None  # none reserved: each task draws its queries from all samples

    @property
    def n_sites(self) -> int:
        """Number of sites."""
        return len(self.position)

    @property
    def haplotype_sample(self) -> np.ndarray:
        """Index of the sample of each haplotype, int64 (n_haplotypes,)."""
        return np.arange(self.n_haplotypes) // 2

    def alleles(self, start: int, stop: int) -> np.ndarray:
        """Return the alleles (0 or 1) of the sites [start, stop), uint8 (stop - start, n_haplotypes)."""
        return np.unpackbits(self.packed[start:stop], axis=1, count=self.n_haplotypes)


def out_of_africa(size_factor: float, recent_growth: float):  # type: ignore[no-untyped-def]
    """Return a `msprime.Demography` of three continents, with an out-of-Africa event and recent growth.

    Sizes, times and migration rates are from Gutenkunst et al. 2009 (PLoS Genet. 5:e1000695, table 1), except
    that the ancestral size remains 7,300 until the out-of-Africa event (in the paper it grows to 12,300 at
    t_af). All sizes are multiplied by size_factor. In the last 200 generations (5,000 years) populations grow
    by the factor recent_growth: real panels have many more rare variants than the published model predicts.
    """
    import msprime

    recent = 200.0
    t_eu_as, t_b, t_af = (years / GENERATION_YEARS for years in (21_200, 140_000, 220_000))
    growth = {"AFR": 0.0, "EUR": 0.004, "EAS": 0.0055}
    founders = {"AFR": 12_300.0, "EUR": 1_000.0, "EAS": 510.0}
    demography = msprime.Demography()
    recent_rate = np.log(recent_growth) / recent
    for name in ("AFR", "EUR", "EAS"):
        before = founders[name] * np.exp(growth[name] * (t_eu_as - recent)) * size_factor
        demography.add_population(name=name, initial_size=before * recent_growth, growth_rate=recent_rate)
    demography.add_population(name="OOA", initial_size=2_100 * size_factor)
    demography.add_population(name="ANC", initial_size=7_300 * size_factor)
    demography.set_symmetric_migration_rate(["AFR", "EUR"], 3e-5)
    demography.set_symmetric_migration_rate(["AFR", "EAS"], 1.9e-5)
    demography.set_symmetric_migration_rate(["EUR", "EAS"], 9.6e-5)
    for name in ("AFR", "EUR", "EAS"):
        demography.add_population_parameters_change(time=recent, population=name, growth_rate=growth[name])
    demography.add_population_split(time=t_eu_as, derived=["EUR", "EAS"], ancestral="OOA")
    demography.add_symmetric_migration_rate_change(time=t_eu_as, populations=["AFR", "OOA"], rate=25e-5)
    demography.add_population_split(time=t_b, derived=["AFR", "OOA"], ancestral="ANC")
    # changes no size, but msprime's random numbers: without this event, seeds give other segments
    demography.add_population_parameters_change(time=t_af, population="ANC", initial_size=7_300 * size_factor)
    demography.sort_events()
    return demography


def split_into_demes(
    demography: msprime.Demography, rng: np.random.Generator, settings: SimulationSettings
) -> dict[str, list[str]]:
    """Split continents into demes of unequal sizes, in place; return the names of the demes by continent.

    Demes simulate a common situation: the panel lacks the population of the target. Even populations that
    split recently share few rare alleles. A continent with a single deme is not changed.
    """
    demes: dict[str, list[str]] = {}
    age = dict.fromkeys(CONTINENTS, 0.0)
    for continent in CONTINENTS:
        n = int(rng.integers(1, settings.demes + 1))
        if n == 1:
            demes[continent] = [continent]
            continue
        demes[continent] = [f"{continent}{i}" for i in range(n)]
        now = demography[continent]
        for name, share in zip(demes[continent], rng.dirichlet(np.full(n, 2.0)), strict=True):
            size = max(share, 0.05) * now.initial_size
            demography.add_population(name=name, initial_size=size, growth_rate=now.growth_rate)
        rate = rng.uniform(0, settings.deme_migration)
        if rate > 0:
            demography.set_symmetric_migration_rate(demes[continent], rate)
        age[continent] = _log_uniform(rng, settings.deme_age)
        demography.add_population_split(time=age[continent], derived=demes[continent], ancestral=continent)
    # Demes exchange no migrants with other continents: two continents do so only until (forward in time) the
    # first of them splits into demes.
    for i, one in enumerate(CONTINENTS):
        for other in CONTINENTS[i + 1 :]:
            oldest_split = max(age[one], age[other])
            if oldest_split > 0:
                row, column = demography[one].id, demography[other].id
                rate = float(demography.migration_matrix[row, column])
                demography.set_symmetric_migration_rate([one, other], 0)
                demography.add_symmetric_migration_rate_change(
                    time=oldest_split, populations=[one, other], rate=rate
                )
    demography.sort_events()
    return demes


def recombination_map(rng: np.random.Generator, length: int, settings: SimulationSettings, mean_rate: float):  # type: ignore[no-untyped-def]
    """Draw a `msprime.RateMap` with hotspots of 1 to 3 kb; mean_rate is per bp and generation."""
    import msprime

    n_hotspots = rng.poisson(rng.uniform(*settings.hotspots_per_mb) * length / 1e6)
    share = rng.uniform(*settings.hotspot_share) if n_hotspots else 0.0
    step = 500
    edges = np.append(np.arange(0, length, step), length)
    background = rng.gamma(2.0, 0.5, len(edges) - 1)
    background = background / background.mean() * (1 - share)
    heat = np.zeros(len(edges) - 1)
    for _ in range(n_hotspots):
        first = int(rng.integers(0, len(heat)))
        heat[first : first + int(rng.integers(2, 7))] += rng.gamma(0.6)
    if heat.sum() > 0:
        heat *= share / heat.mean()
    rate = background + heat
    rate *= mean_rate / np.average(rate, weights=np.diff(edges))
    return msprime.RateMap(position=edges, rate=rate)


def _log_uniform(rng: np.random.Generator, bounds: tuple[float, float]) -> float:
    return float(np.exp(rng.uniform(np.log(bounds[0]), np.log(bounds[1]))))


def simulate_segment(seed: int, settings: SimulationSettings = SimulationSettings()) -> Segment:
    """Simulate a segment; seed, settings and the version of msprime determine it.

    Only polymorphic sites are kept. Raises InputError if msprime is not installed.
    """
    with explain_missing_packages("simulating segments"):
        import msprime

    rng = np.random.default_rng(seed)
    stretch = _log_uniform(rng, settings.stretch) if settings.stretch != (1, 1) else 1.0
    length = int(_log_uniform(rng, settings.length) * stretch)
    n_samples = int(_log_uniform(rng, settings.samples))
    poor = settings.poor_share > 0 and rng.random() < settings.poor_share
    mean_rate = _log_uniform(rng, settings.poor_rate if poor else settings.recombination_rate)
    rates = recombination_map(rng, length, settings, mean_rate)
    demography = out_of_africa(
        _log_uniform(rng, settings.size_factor), _log_uniform(rng, settings.recent_growth)
    )
    demes = {name: [name] for name in CONTINENTS}
    if settings.demes > 1:
        demes = split_into_demes(demography, rng, settings)
    shares = rng.dirichlet([0.4, 0.4, 0.4])  # often almost all samples are from one continent
    counts = rng.multinomial(n_samples, shares)
    names: list[str] = []
    sample_counts: list[int] = []
    for continent, count in zip(CONTINENTS, counts, strict=True):
        n, names = len(demes[continent]), names + demes[continent]
        sample_counts += [count] if n == 1 else rng.multinomial(count, rng.dirichlet(np.ones(n))).tolist()
    gene_conversion = rng.random() < settings.gene_conversion_share
    ancestry = msprime.sim_ancestry(
        samples={name: int(n) for name, n in zip(names, sample_counts, strict=True) if n},
        demography=demography,
        recombination_rate=rates,
        gene_conversion_rate=mean_rate * 2 if gene_conversion else None,
        gene_conversion_tract_length=300 if gene_conversion else None,
        random_seed=int(rng.integers(1, 2**31)),
    )
    mutated = msprime.sim_mutations(
        ancestry,
        rate=_log_uniform(rng, settings.mutation_rate) / stretch,
        model=msprime.BinaryMutationModel(),
        random_seed=int(rng.integers(1, 2**31)),
    )
    # msprime sorts samples by population; shuffle them
    order = rng.permutation(n_samples)
    columns = np.stack([2 * order, 2 * order + 1], axis=1).ravel()
    positions, rows = [], []
    for variant in mutated.variants():
        alleles = variant.genotypes[columns]
        if 0 < alleles.sum() < len(columns):
            positions.append(int(variant.site.position) + 1)
            rows.append(np.packbits(alleles.astype(np.uint8)))
    position = np.array(positions, dtype=np.int64)
    return Segment(
        position=position,
        cM=rates.get_cumulative_mass(np.minimum(position, length)) * 100.0,
        packed=np.stack(rows),
        n_haplotypes=len(columns),
        sample_deme=np.repeat(np.arange(len(sample_counts)), sample_counts)[order],
        description={
            "seed": seed,
            "length": length,
            "samples": n_samples,
            **dict(zip(CONTINENTS, counts.tolist(), strict=True)),
            "mean_rate": mean_rate,
            "gene_conversion": int(gene_conversion),
        },
    )
