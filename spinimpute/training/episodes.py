"""Meta-learning episodes: a segment, an array, a disjoint split of samples into context and query.

Everything untyped of a query is hidden (chunk masking); the context shows all its alleles. A sample's two
haplotypes are always on the same side of the split.

Axes: B blocks, N context haplotypes, Q query haplotypes, S typed places, G gaps, U sites of a gap, C untyped
sites of a block by which haplotypes are compared, X = S + C.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spinimpute.genotypes.blocks import (
    FAR_SITES,
    BlockShape,
    HaplotypeSource,
    gap_geometry,
    group_means,
    initial_groups,
    pad_typed_sites,
)
from spinimpute.genotypes.haplotypes import sibling_haplotypes
from spinimpute.hmm.parameters import JUMPS_PER_CM, TRAINING_MISMATCH
from spinimpute.runtime.errors import InputError
from spinimpute.training.callset_errors import count_alleles, spoil_panel, switch_phases
from spinimpute.training.pedigrees import lay_relatives

FEWEST_SITES = 20  # polymorphic ones, to draw an array from


@dataclass(frozen=True)
class EpisodeSettings:
    """Ranges from which an episode is drawn: the table [episodes] of a configuration.

    Attributes
    ----------
    blocks : int
        B.
    queries : int
        Samples that are imputed.
    sites_per_gap : int
        U.
    compared_sites : int
        Untyped sites of a block by which haplotypes are compared, at most, unless more are asked for.
    context_samples : int
        Least number of samples in the context.
    array_density : tuple of float
        Typed sites per Mb, log-uniform between the two.
    array_minimum_frequency : tuple of float
        Least minor-allele frequencies of typed sites, of which one is drawn.
    genotype_error, missing_rate : tuple of float
        Rates for the queries' typed alleles, of which one is drawn.
    foreign_share : float
        Share of episodes whose queries come from one population of which the context has few samples or none.
    whole_share : float
        Share of episodes whose context is all other samples.
    most_entries : int
        Largest number of sites times haplotypes of an episode (0: no limit); a longer segment is cut.
    jumps_per_cM : float
        Recombination scale of the copying probabilities (0: the context's own, `most_likely_scale`, as in
        imputation).
    mismatch : float
        Mismatch rate of the copying probabilities.
    relative_share : tuple of float
        Shares of the queries that have a relative in the context, of which one is drawn, see `lay_relatives`.
    flawed_carriers : int
        Alleles carried more often are phased and found well.
    switch_rate, rare_phase_error, missed_allele, wrong_call, wrong_common_call : tuple of float
        Errors of the panel's call set, of which one value each is drawn, see `callset_errors`.

    Raises
    ------
    InputError
        A rate is out of its range.
    """

    blocks: int = 4
    queries: int = 24
    sites_per_gap: int = 6
    compared_sites: int = 256
    context_samples: int = 30
    array_density: tuple[float, float] = (40.0, 1_000.0)
    array_minimum_frequency: tuple[float, ...] = (0.001, 0.01, 0.05)
    genotype_error: tuple[float, ...] = (0.0, 0.0005, 0.002, 0.005)
    missing_rate: tuple[float, ...] = (0.0, 0.0, 0.01)
    foreign_share: float = 0.0
    whole_share: float = 0.3
    most_entries: int = 0
    jumps_per_cM: float = JUMPS_PER_CM
    mismatch: float = TRAINING_MISMATCH
    relative_share: tuple[float, ...] = (0.0,)
    flawed_carriers: int = 8
    switch_rate: tuple[float, ...] = (0.0,)
    rare_phase_error: tuple[float, ...] = (0.0,)
    missed_allele: tuple[float, ...] = (0.0,)
    wrong_call: tuple[float, ...] = (0.0,)
    wrong_common_call: tuple[float, ...] = (0.0,)

    def __post_init__(self) -> None:
        rates = (
            "array_minimum_frequency",
            "genotype_error",
            "missing_rate",
            "wrong_call",
            "wrong_common_call",
        )
        if not all(0 <= share <= 1 for share in self.relative_share):
            raise InputError(
                "content",
                f"episodes.relative_share must lie between 0 and 1, found {list(self.relative_share)}",
            )
        for name in rates:
            if not all(0 <= value < 0.5 for value in getattr(self, name)):
                raise InputError(
                    "content",
                    f"episodes.{name} must lie between 0 and 0.5, found {list(getattr(self, name))}",
                )


@dataclass(frozen=True)
class Episode:
    """One batch of blocks that share a segment, an array and a split of samples.

    Attributes
    ----------
    typed_BNS, query_BQS : uint8
        Alleles of context and queries at typed places.
    known_BQS : uint8
        0 where a query's call is missing.
    cM_BS, valid_BS
        Genetic positions of the typed places; whether there is a site.
    compared_BNC : uint8
        Alleles of the context at untyped sites of the block by which haplotypes are compared; padding is 0.
    start_BHX, start_mass_BH : float32
        Mean alleles of groups that inducing points start from, typed and compared; and 1, or 0 for padding.
    context_BGUN, truth_BGUQ : uint8
        Alleles at the sites to predict.
    frequency_BGU : float32
        Of ALT in the context.
    fraction_BGU, distance_BGU : float32
        See `gap_geometry`.
    asked_BGU : float32
        1, or 0 for padding.
    """

    typed_BNS: np.ndarray
    query_BQS: np.ndarray
    known_BQS: np.ndarray
    cM_BS: np.ndarray
    valid_BS: np.ndarray
    compared_BNC: np.ndarray
    start_BHX: np.ndarray
    start_mass_BH: np.ndarray
    context_BGUN: np.ndarray
    truth_BGUQ: np.ndarray
    frequency_BGU: np.ndarray
    fraction_BGU: np.ndarray
    distance_BGU: np.ndarray
    asked_BGU: np.ndarray


class SourceInterval:
    """The sites [start, stop) of another source."""

    def __init__(self, source: HaplotypeSource, start: int, stop: int) -> None:
        self._source, self._start = source, start
        self.position, self.cM = source.position[start:stop], source.cM[start:stop]
        self.n_sites, self.n_haplotypes = stop - start, source.n_haplotypes
        self.haplotype_sample = source.haplotype_sample
        self.query_samples, self.sample_deme = source.query_samples, source.sample_deme

    def alleles(self, start: int, stop: int) -> np.ndarray:
        """Alleles of the sites [start, stop), uint8 (stop - start, n_haplotypes)."""
        return self._source.alleles(self._start + start, self._start + stop)


def draw_interval(source: HaplotypeSource, rng: np.random.Generator, most_entries: int) -> HaplotypeSource:
    """Draw the part of a segment that an episode uses.

    Parameters
    ----------
    source : HaplotypeSource
        The segment.
    rng : numpy.random.Generator
        Draws the place.
    most_entries : int
        Largest number of sites times haplotypes; 0 for no limit.

    Returns
    -------
    HaplotypeSource
        A random span of the sites; the source itself if it is small enough.
    """
    most = most_entries // source.n_haplotypes
    if most_entries == 0 or source.n_sites <= most:
        return source
    start = int(rng.integers(source.n_sites - most + 1))
    return SourceInterval(source, start, start + most)


@dataclass(frozen=True)
class Split:
    """A drawn task before it is cut into blocks.

    Attributes
    ----------
    alleles_XA : uint8
        All sites and haplotypes of the segment.
    context_N, query_Q : int64
        Columns of haplotypes.
    typed_T : int64
        Typed sites.
    typed_query_TQ, known_TQ : uint8
        Alleles of the queries there, and 0 where a call is missing.
    """

    alleles_XA: np.ndarray
    context_N: np.ndarray
    query_Q: np.ndarray
    typed_T: np.ndarray
    typed_query_TQ: np.ndarray
    known_TQ: np.ndarray


def usable_sites(alleles_XN: np.ndarray) -> int:
    """Count sites with two alleles, each carried by at least a tenth of the haplotypes and by at least 2.

    Parameters
    ----------
    alleles_XN : uint8
        Alleles, 0 or 1.

    Returns
    -------
    int
        Number of such sites.
    """
    carriers = alleles_XN.sum(1)
    fewest = max(2, alleles_XN.shape[1] // 10)
    return int(((carriers >= fewest) & (carriers <= alleles_XN.shape[1] - fewest)).sum())


def _foreign_queries(
    samples: np.ndarray, deme: np.ndarray, rng: np.random.Generator, settings: EpisodeSettings
) -> tuple[np.ndarray, np.ndarray]:
    """Queries of one random sample's population; the context has few or none of it, and all others."""
    own = deme[samples] == deme[samples[0]]
    natives, others = samples[own], samples[~own]
    n_queries = min(settings.queries, len(natives), len(samples) // 4)
    if len(others) < settings.context_samples:
        return samples[:n_queries], samples[n_queries:]
    kept = int(len(natives) * rng.uniform(0, 0.2)) if rng.random() < 0.7 else 0
    return natives[:n_queries], rng.permutation(np.append(others, natives[n_queries : n_queries + kept]))


def _pairs(sample_A: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Columns of the samples that have two haplotypes, int64 (samples, 2)."""
    _, number = np.unique(sample_A[columns], return_counts=True)
    order = np.argsort(sample_A[columns], kind="stable")
    starts = np.cumsum(number) - number
    return columns[order[starts[number == 2, None] + np.arange(2)]]


def draw_split(source: HaplotypeSource, rng: np.random.Generator, settings: EpisodeSettings) -> Split:
    """Draw samples for context and query, an array, and errors and missing calls of the queries.

    Parameters
    ----------
    source : HaplotypeSource
        The segment.
    rng : numpy.random.Generator
        Its state decides the split.
    settings : EpisodeSettings
        Ranges of all that is drawn.

    Returns
    -------
    Split
        The task.

    Raises
    ------
    ValueError
        The source has fewer than 8 samples or fewer than 20 sites of usable frequency.
    """
    sample_A = np.asarray(source.haplotype_sample)
    samples = np.unique(sample_A)
    if len(samples) < 8:
        raise ValueError(f"an episode needs at least 8 samples, the panel has {len(samples)}")
    if source.query_samples is None:
        samples = rng.permutation(samples)
        n_queries = min(settings.queries, len(samples) // 4)
        queries, rest = samples[:n_queries], samples[n_queries:]
        deme = source.sample_deme if settings.foreign_share > 0 else None
        if deme is not None and rng.random() < settings.foreign_share:
            queries, rest = _foreign_queries(samples, deme, rng, settings)
    else:
        queries = rng.permutation(source.query_samples)[: settings.queries]
        rest = rng.permutation(np.setdiff1d(samples, source.query_samples))
    fewest = min(settings.context_samples, len(rest))
    size = (
        len(rest)
        if rng.random() < settings.whole_share
        else int(np.exp(rng.uniform(np.log(fewest), np.log(len(rest) + 1))))
    )
    context_N = np.flatnonzero(np.isin(sample_A, rest[:size]))
    query_Q = np.flatnonzero(np.isin(sample_A, queries))
    alleles_XA = source.alleles(0, source.n_sites)
    if max(settings.relative_share) > 0:
        share = float(rng.choice(settings.relative_share))
        queries_P2, context_P2 = _pairs(sample_A, query_Q), _pairs(sample_A, context_N)
        lay_relatives(alleles_XA, source.cM, queries_P2, context_P2, rng, share)
    switch_phases(
        alleles_XA, source.position, sibling_haplotypes(sample_A), rng, rng.choice(settings.switch_rate)
    )
    spoil_panel(
        alleles_XA,
        context_N,
        sibling_haplotypes(sample_A),
        rng,
        rng.choice(settings.rare_phase_error),
        rng.choice(settings.missed_allele),
        rng.choice(settings.wrong_call),
        rng.choice(settings.wrong_common_call),
        settings.flawed_carriers,
    )
    frequency = count_alleles(alleles_XA, context_N) / len(context_N)
    minor = np.minimum(frequency, 1 - frequency)
    usable = np.flatnonzero(minor > rng.choice(settings.array_minimum_frequency))
    if len(usable) < FEWEST_SITES:
        usable = np.flatnonzero(minor > 0)
    if len(usable) < FEWEST_SITES:
        raise ValueError(
            f"an episode needs at least {FEWEST_SITES} polymorphic sites, the segment has {len(usable)}"
        )
    megabases = (source.position[-1] - source.position[0]) / 1e6
    density = np.exp(rng.uniform(*np.log(settings.array_density)))
    n_typed = int(np.clip(density * megabases, 10, len(usable) * 0.8))
    # arrays prefer common sites, some more than others
    preference = (minor[usable] + 0.02) ** rng.uniform(0, 1)
    typed_T = np.sort(rng.choice(usable, n_typed, replace=False, p=preference / preference.sum()))
    typed_query_TQ = alleles_XA[np.ix_(typed_T, query_Q)]
    wrong = rng.random(typed_query_TQ.shape) < rng.choice(settings.genotype_error)
    known = rng.random(typed_query_TQ.shape) >= rng.choice(settings.missing_rate)
    return Split(alleles_XA, context_N, query_Q, typed_T, typed_query_TQ ^ wrong, known.astype(np.uint8))


def draw_episode(
    source: HaplotypeSource,
    rng: np.random.Generator,
    settings: EpisodeSettings,
    shape: BlockShape,
    inducing_points: int,
) -> Episode:
    """Draw an episode; the same source and generator state give the same one.

    Parameters
    ----------
    source : HaplotypeSource
        The segment.
    rng : numpy.random.Generator
        Its state decides the episode.
    settings : EpisodeSettings
        Ranges of all that is drawn.
    shape : BlockShape
        Gaps of a block and typed places around them.
    inducing_points : int
        Largest number of inducing points of a block.

    Returns
    -------
    Episode
        B blocks.

    Raises
    ------
    ValueError
        As `draw_split`.
    """
    split = draw_split(source, rng, settings)
    typed_cM = source.cM[split.typed_T]
    n_typed = len(split.typed_T)
    typed_context_TN = split.alleles_XA[np.ix_(split.typed_T, split.context_N)]
    frequency = count_alleles(split.alleles_XA, split.context_N) / len(split.context_N)
    polymorphic = (frequency > 0) & (frequency < 1)
    n_blocks = n_typed // shape.core + 1
    blocks = rng.integers(0, n_blocks, size=settings.blocks)
    b, g, u = settings.blocks, shape.core, settings.sites_per_gap
    asked = np.zeros((b, g, u), dtype=np.int64)
    asked_BGU = np.zeros((b, g, u), dtype=np.float32)
    fraction_BGU, distance_BGU = np.zeros_like(asked_BGU), np.zeros_like(asked_BGU)
    typed, query, known, places, compared = [], [], [], [], []
    for i, block in enumerate(blocks):
        place = pad_typed_sites(int(block), typed_cM, shape, 0, n_typed)
        places.append(place)
        typed.append(place.fill(typed_context_TN))
        query.append(place.fill(split.typed_query_TQ))
        known.append(place.fill(split.known_TQ))
        untyped = []
        for j in range(g):
            gap = int(block) * g + j
            if gap > n_typed:
                break
            low = split.typed_T[gap - 1] + 1 if gap else max(split.typed_T[0] - FAR_SITES, 0)
            high = split.typed_T[gap] if gap < n_typed else min(low + FAR_SITES, source.n_sites)
            candidates = np.flatnonzero(polymorphic[low:high]) + low
            if len(candidates) == 0:
                continue
            chosen = np.sort(rng.choice(candidates, min(u, len(candidates)), replace=False))
            n = len(chosen)
            untyped.append(candidates)
            asked[i, j, :n], asked_BGU[i, j, :n] = chosen, 1
            fraction_BGU[i, j, :n], distance_BGU[i, j, :n] = gap_geometry(
                source.cM[chosen], np.full(n, gap), typed_cM
            )
        compared.append(_compared(untyped, asked[i][asked_BGU[i] > 0], settings.compared_sites, rng))
    compared_BNC = _stacked([split.alleles_XA[np.ix_(sites, split.context_N)] for sites in compared])
    compared_BNC = compared_BNC.transpose(0, 2, 1)
    starts = []
    for typed_NS, compared_NC in zip(typed, compared_BNC, strict=True):
        group_N = initial_groups(typed_NS, inducing_points, shape)
        starts.append(group_means(np.concatenate([typed_NS, compared_NC], axis=1), group_N))
    return Episode(
        typed_BNS=np.stack(typed),
        query_BQS=np.stack(query),
        known_BQS=np.stack(known),
        cM_BS=np.stack([p.cM_S for p in places]),
        valid_BS=np.stack([p.valid_S for p in places]),
        compared_BNC=compared_BNC,
        start_BHX=_stacked(starts),
        start_mass_BH=_stacked([np.ones(len(start), np.float32) for start in starts]),
        context_BGUN=split.alleles_XA[asked][..., split.context_N],
        truth_BGUQ=split.alleles_XA[asked][..., split.query_Q],
        frequency_BGU=frequency[asked].astype(np.float32),
        fraction_BGU=fraction_BGU,
        distance_BGU=distance_BGU,
        asked_BGU=asked_BGU,
    )


def _compared(
    candidates: list[np.ndarray], asked: np.ndarray, most: int, rng: np.random.Generator
) -> np.ndarray:
    """Of a block's sites those by which haplotypes are compared: those that are asked for, and others."""
    others = np.setdiff1d(np.concatenate([*candidates, asked]), asked)
    if len(others) > max(most - len(asked), 0):
        others = rng.choice(others, max(most - len(asked), 0), replace=False)
    return np.sort(np.concatenate([asked, others]))


def _stacked(rows: list[np.ndarray]) -> np.ndarray:
    """Arrays of one type that differ in length, filled up with zeros: (B, longest, ...)."""
    out = np.zeros((len(rows), max(map(len, rows)), *rows[0].shape[1:]), dtype=rows[0].dtype)
    for i, row in enumerate(rows):
        out[i, : len(row)] = row
    return out
