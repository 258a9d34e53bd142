"""Episodes: training tasks that simulate an imputation.

An episode splits the samples of a segment into context (which serves as the reference panel) and queries
(which are imputed), and chooses the typed sites of an array. The network sees all alleles of the context, but
only the typed alleles of queries; it must predict their alleles at untyped sites. Blocks, gaps and places are
defined in `genotypes.blocks`.

Axes: A all haplotypes of a segment, N context haplotypes, Q query haplotypes, T typed sites, B blocks,
S typed sites of a block (places), G gaps of a block, U sites of a gap, C untyped sites of a block by which
haplotypes are compared, H inducing points, X any sites (in `Episode`: X = S + C).
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
from spinimpute.training.callset_errors import CallErrors, add_call_errors, count_alleles, switch_phases
from spinimpute.training.pedigrees import add_relatives

MIN_SITES = 20  # polymorphic sites that a segment needs, to draw an array from them


@dataclass(frozen=True)
class EpisodeSettings:
    """The table [episodes] of a configuration file: the distribution from which episodes are drawn.

    A tuple of rates or shares lists equally likely values, of which each episode draws one; array_density is
    a range. Raises InputError for a value out of its range.
    """

    blocks: int = 4  # number of blocks, B
    queries: int = 24  # number of samples to impute
    sites_per_gap: int = 6  # number of sites to predict in each gap, U
    compared_sites: int = 256  # maximum C; the sites to predict are always compared
    context_samples: int = 30  # minimum number of samples in the context
    array_density: tuple[float, float] = (40.0, 1_000.0)  # typed sites per Mb, drawn log-uniformly
    array_minimum_frequency: tuple[float, ...] = (0.001, 0.01, 0.05)  # of the minor allele at typed sites
    genotype_error: tuple[float, ...] = (0.0, 0.0005, 0.002, 0.005)  # error rate of queries' typed alleles
    missing_rate: tuple[float, ...] = (0.0, 0.0, 0.01)  # of queries' typed alleles
    # share of episodes whose queries come from a population with few or no samples in the context
    foreign_share: float = 0.0
    whole_share: float = 0.3  # share of episodes whose context consists of all samples that are not queries
    most_entries: int = 0  # maximum sites x haplotypes of an episode; longer segments are cut. 0: no limit
    # haplotype attention: recombination scale; 0: estimated from the context, as in imputation
    jumps_per_cM: float = JUMPS_PER_CM
    mismatch: float = TRAINING_MISMATCH  # haplotype attention: mismatch rate of the hidden Markov model
    relative_share: tuple[float, ...] = (0.0,)  # share of queries with a relative in the context
    # errors of the panel, see `CallErrors`
    flawed_carriers: int = 8  # CallErrors.max_carriers
    switch_rate: tuple[float, ...] = (0.0,)  # phase switches per Mb and sample
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
                f"episodes.relative_share must lie between 0 and 1, got {list(self.relative_share)}",
            )
        for name in rates:
            if not all(0 <= value < 0.5 for value in getattr(self, name)):
                raise InputError(
                    "content", f"episodes.{name} must lie between 0 and 0.5, got {list(getattr(self, name))}"
                )


@dataclass(frozen=True)
class Episode:
    """A batch of blocks with the same segment, array, context and queries."""

    typed_BNS: np.ndarray  # uint8, alleles of the context at typed sites
    query_BQS: np.ndarray  # uint8, alleles of the queries at typed sites
    known_BQS: np.ndarray  # uint8, 1 if the allele is known, 0 if it is missing
    cM_BS: np.ndarray  # genetic positions of the typed sites, relative to the block's middle
    valid_BS: np.ndarray  # 1 for a typed site, 0 for padding
    compared_BNC: np.ndarray  # uint8, alleles of the context at the compared untyped sites; 0 for padding
    start_BHX: np.ndarray  # float32, mean alleles of the groups with which inducing points are initialized
    start_mass_BH: np.ndarray  # float32, 1 for an inducing point, 0 for padding
    context_BGUN: np.ndarray  # uint8, alleles of the context at the sites to predict
    truth_BGUQ: np.ndarray  # uint8, true alleles of the queries at these sites
    frequency_BGU: np.ndarray  # float32, frequency of ALT in the context
    fraction_BGU: np.ndarray  # float32, relative position in the gap, see `gap_geometry`
    distance_BGU: np.ndarray  # float32, cM to the nearer typed site
    valid_BGU: np.ndarray  # float32, 1 for a site, 0 for padding


class SourceInterval:
    """A source of haplotypes that consists of an interval of sites of another source."""

    def __init__(self, source: HaplotypeSource, start: int, stop: int) -> None:
        self._source, self._start = source, start
        self.position, self.cM = source.position[start:stop], source.cM[start:stop]
        self.n_sites, self.n_haplotypes = stop - start, source.n_haplotypes
        self.haplotype_sample = source.haplotype_sample
        self.query_samples, self.sample_deme = source.query_samples, source.sample_deme

    def alleles(self, start: int, stop: int) -> np.ndarray:
        """Return the alleles of the sites [start, stop), uint8 (stop - start, n_haplotypes)."""
        return self._source.alleles(self._start + start, self._start + stop)


def draw_interval(source: HaplotypeSource, rng: np.random.Generator, most_entries: int) -> HaplotypeSource:
    """Draw the interval of a segment that an episode uses, with at most most_entries sites x haplotypes.

    Returns the whole segment if it is small enough or if most_entries is 0.
    """
    max_sites = most_entries // source.n_haplotypes
    if most_entries == 0 or source.n_sites <= max_sites:
        return source
    start = int(rng.integers(source.n_sites - max_sites + 1))
    return SourceInterval(source, start, start + max_sites)


@dataclass(frozen=True)
class Split:
    """A task before it is cut into blocks: context, queries and an array."""

    alleles_XA: np.ndarray  # uint8, alleles of all haplotypes at all sites of the segment
    context_N: np.ndarray  # int64, columns of the context in alleles_XA
    query_Q: np.ndarray  # int64, columns of the queries
    typed_T: np.ndarray  # int64, rows of the typed sites
    typed_query_TQ: np.ndarray  # uint8, typed alleles of the queries, with genotyping errors
    known_TQ: np.ndarray  # uint8, 0 if a call is missing


def usable_sites(alleles_XN: np.ndarray) -> int:
    """Count the sites whose minor allele is on at least a tenth of the haplotypes (at least two)."""
    carriers = alleles_XN.sum(1)
    minimum = max(2, alleles_XN.shape[1] // 10)
    return int(((carriers >= minimum) & (carriers <= alleles_XN.shape[1] - minimum)).sum())


def _draw_foreign_queries(
    samples: np.ndarray, deme: np.ndarray, rng: np.random.Generator, settings: EpisodeSettings
) -> tuple[np.ndarray, np.ndarray]:
    """Draw queries from one population; return them, and context samples of which few or none are from it.

    If the other populations have too few samples, queries and context come from all populations.
    """
    is_native = deme[samples] == deme[samples[0]]
    natives, others = samples[is_native], samples[~is_native]
    n_queries = min(settings.queries, len(natives), len(samples) // 4)
    if len(others) < settings.context_samples:
        return samples[:n_queries], samples[n_queries:]
    kept = int(len(natives) * rng.uniform(0, 0.2)) if rng.random() < 0.7 else 0
    return natives[:n_queries], rng.permutation(np.append(others, natives[n_queries : n_queries + kept]))


def _diploid_columns(sample_A: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Return both columns of each diploid sample, int64 (samples, 2)."""
    _, count = np.unique(sample_A[columns], return_counts=True)
    order = np.argsort(sample_A[columns], kind="stable")
    starts = np.cumsum(count) - count
    return columns[order[starts[count == 2, None] + np.arange(2)]]


def draw_split(source: HaplotypeSource, rng: np.random.Generator, settings: EpisodeSettings) -> Split:
    """Draw context samples, queries, an array, errors of the panel, and errors and missing calls of queries.

    Both haplotypes of a sample are in the context, or both are queries. Raises ValueError for a source with
    fewer than 8 samples or MIN_SITES polymorphic sites.
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
            queries, rest = _draw_foreign_queries(samples, deme, rng, settings)
    else:
        queries = rng.permutation(source.query_samples)[: settings.queries]
        rest = rng.permutation(np.setdiff1d(samples, source.query_samples))
    minimum = min(settings.context_samples, len(rest))
    size = (
        len(rest)
        if rng.random() < settings.whole_share
        else int(np.exp(rng.uniform(np.log(minimum), np.log(len(rest) + 1))))
    )
    context_N = np.flatnonzero(np.isin(sample_A, rest[:size]))
    query_Q = np.flatnonzero(np.isin(sample_A, queries))
    alleles_XA = source.alleles(0, source.n_sites)
    if max(settings.relative_share) > 0:
        share = float(rng.choice(settings.relative_share))
        queries_P2, context_P2 = _diploid_columns(sample_A, query_Q), _diploid_columns(sample_A, context_N)
        add_relatives(alleles_XA, source.cM, queries_P2, context_P2, rng, share)
    switch_phases(
        alleles_XA, source.position, sibling_haplotypes(sample_A), rng, rng.choice(settings.switch_rate)
    )
    errors = CallErrors(
        rng.choice(settings.rare_phase_error),
        rng.choice(settings.missed_allele),
        rng.choice(settings.wrong_call),
        rng.choice(settings.wrong_common_call),
        settings.flawed_carriers,
    )
    add_call_errors(alleles_XA, context_N, sibling_haplotypes(sample_A), rng, errors)
    frequency = count_alleles(alleles_XA, context_N) / len(context_N)
    minor = np.minimum(frequency, 1 - frequency)
    usable = np.flatnonzero(minor > rng.choice(settings.array_minimum_frequency))
    if len(usable) < MIN_SITES:
        usable = np.flatnonzero(minor > 0)
    if len(usable) < MIN_SITES:
        raise ValueError(
            f"an episode needs at least {MIN_SITES} polymorphic sites, the segment has {len(usable)}"
        )
    megabases = (source.position[-1] - source.position[0]) / 1e6
    density = np.exp(rng.uniform(*np.log(settings.array_density)))
    n_typed = int(np.clip(density * megabases, 10, len(usable) * 0.8))
    # arrays prefer common sites, some arrays more than others
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
    """Draw an episode, with at most `inducing_points` inducing points in a block.

    The source and the generator's state determine it. Raises ValueError for small sources (`draw_split`).
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
    site_BGU = np.zeros((b, g, u), dtype=np.int64)
    valid_BGU = np.zeros((b, g, u), dtype=np.float32)
    fraction_BGU, distance_BGU = np.zeros_like(valid_BGU), np.zeros_like(valid_BGU)
    typed, query, known, padded_blocks, compared = [], [], [], [], []
    for i, block in enumerate(blocks):
        padded = pad_typed_sites(int(block), typed_cM, shape, 0, n_typed)
        padded_blocks.append(padded)
        typed.append(padded.fill(typed_context_TN))
        query.append(padded.fill(split.typed_query_TQ))
        known.append(padded.fill(split.known_TQ))
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
            site_BGU[i, j, :n], valid_BGU[i, j, :n] = chosen, 1
            fraction_BGU[i, j, :n], distance_BGU[i, j, :n], *_ = gap_geometry(
                source.cM[chosen], np.full(n, gap), typed_cM
            )
        compared.append(_draw_compared(untyped, site_BGU[i][valid_BGU[i] > 0], settings.compared_sites, rng))
    compared_BNC = _pad_and_stack([split.alleles_XA[np.ix_(sites, split.context_N)] for sites in compared])
    compared_BNC = compared_BNC.transpose(0, 2, 1)
    starts = []
    for typed_NS, compared_NC in zip(typed, compared_BNC, strict=True):
        group_N = initial_groups(typed_NS, inducing_points, shape)
        starts.append(group_means(np.concatenate([typed_NS, compared_NC], axis=1), group_N))
    return Episode(
        typed_BNS=np.stack(typed),
        query_BQS=np.stack(query),
        known_BQS=np.stack(known),
        cM_BS=np.stack([p.cM_S for p in padded_blocks]),
        valid_BS=np.stack([p.valid_S for p in padded_blocks]),
        compared_BNC=compared_BNC,
        start_BHX=_pad_and_stack(starts),
        start_mass_BH=_pad_and_stack([np.ones(len(start), np.float32) for start in starts]),
        context_BGUN=split.alleles_XA[site_BGU][..., split.context_N],
        truth_BGUQ=split.alleles_XA[site_BGU][..., split.query_Q],
        frequency_BGU=frequency[site_BGU].astype(np.float32),
        fraction_BGU=fraction_BGU,
        distance_BGU=distance_BGU,
        valid_BGU=valid_BGU,
    )


def _draw_compared(
    candidates: list[np.ndarray], predicted: np.ndarray, max_sites: int, rng: np.random.Generator
) -> np.ndarray:
    """Draw the sites by which haplotypes are compared: the predicted sites, and others up to `max_sites`."""
    others = np.setdiff1d(np.concatenate([*candidates, predicted]), predicted)
    if len(others) > max(max_sites - len(predicted), 0):
        others = rng.choice(others, max(max_sites - len(predicted), 0), replace=False)
    return np.sort(np.concatenate([predicted, others]))


def _pad_and_stack(rows: list[np.ndarray]) -> np.ndarray:
    """Stack arrays of different lengths, padded with zeros to the longest one: (B, length, ...)."""
    out = np.zeros((len(rows), max(map(len, rows)), *rows[0].shape[1:]), dtype=rows[0].dtype)
    for i, row in enumerate(rows):
        out[i, : len(row)] = row
    return out
