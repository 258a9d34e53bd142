"""Simulated relatives: people whose haplotypes are mosaics of the haplotypes of founders.

A mosaic stores only from which founder haplotype each interval comes, not the alleles. So pedigrees can be
drawn first and then filled with the alleles of any founders, simulated or real (`gather_alleles`).

Axes: I intervals of a mosaic, F haplotypes of founders, X sites.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

KINDS = ("parent", "child", "sib", "cousin")
TWIN = "twin"  # identical twin, or a second sample of the same person
# number of people of the context that are used for a relative; the first one becomes the relative
N_CONTEXT_PEOPLE = {"parent": 1, "child": 1, "sib": 1, "cousin": 3, TWIN: 1}


@dataclass(frozen=True)
class Mosaic:
    """A haplotype that consists of intervals of founders' haplotypes."""

    start_I: np.ndarray  # float64, start of each interval in cM from the segment's start; the first is 0
    founder_I: np.ndarray  # int64, index of the founder haplotype that is copied in each interval

    def founders_at(self, cM_X: np.ndarray) -> np.ndarray:
        """Return the indices of the founder haplotypes at genetic positions, int64 (X,)."""
        return self.founder_I[np.searchsorted(self.start_I, cM_X, side="right").clip(min=1) - 1]


Person = tuple[Mosaic, Mosaic]  # two haplotypes


def founder(first: int, second: int) -> Person:
    """Make a founder from the indices of two haplotypes."""
    return tuple(Mosaic(np.zeros(1), np.array([column])) for column in (first, second))  # type: ignore[return-value]


def meiosis(parent: Person, length_cM: float, rng: np.random.Generator) -> Mosaic:
    """Draw the haplotype that a parent passes on. Crossovers are independent, one per 100 cM on average."""
    crossover_cM = np.sort(rng.uniform(0, length_cM, rng.poisson(length_cM / 100)))
    edges = np.concatenate([[0.0], crossover_cM, [np.inf]])
    side = int(rng.integers(2))
    starts, founders = [], []
    for start, stop in itertools.pairwise(edges.tolist()):
        source = parent[side]
        inside = (source.start_I > start) & (source.start_I < stop)
        starts += [np.array([start]), source.start_I[inside]]
        founders += [source.founders_at(np.array([start])), source.founder_I[inside]]
        side = 1 - side
    return Mosaic(np.concatenate(starts), np.concatenate(founders))


def child(mother: Person, father: Person, length_cM: float, rng: np.random.Generator) -> Person:
    """Draw a child of two people."""
    return meiosis(mother, length_cM, rng), meiosis(father, length_cM, rng)


def family(
    kind: str, founders: Iterator[Person], length_cM: float, rng: np.random.Generator
) -> tuple[Person, Person]:
    """Draw a person, and a relative of this kind: one of KINDS or TWIN.

    `founders` must yield one founder for a twin, two for a parent, child or sib, four for a cousin. Raises
    ValueError for an unknown kind.
    """
    if kind == TWIN:
        one = next(founders)
        return one, one
    if kind not in KINDS:
        raise ValueError(f"the kind of a relative must be one of {KINDS} or {TWIN!r}, got {kind!r}")
    one, other = next(founders), next(founders)
    if kind == "parent":
        return child(one, other, length_cM, rng), one
    if kind == "child":
        return one, child(one, other, length_cM, rng)
    both = tuple(child(one, other, length_cM, rng) for _ in range(2))
    if kind == "sib":
        return both[0], both[1]
    return child(both[0], next(founders), length_cM, rng), child(both[1], next(founders), length_cM, rng)


def gather_alleles(people: Sequence[Person], alleles_XF: np.ndarray, cM_X: np.ndarray) -> np.ndarray:
    """Return the alleles of people, uint8 (X, 2 * people), with two adjacent columns for each person.

    cM_X: genetic positions of the sites, from the segment's start.
    """
    sites = np.arange(len(cM_X))
    columns = [alleles_XF[sites, one.founders_at(cM_X)] for person in people for one in person]
    return np.stack(columns, axis=1)


def add_relatives(
    alleles_XA: np.ndarray,
    cM_X: np.ndarray,
    queries: np.ndarray,
    context: np.ndarray,
    rng: np.random.Generator,
    share: float,
) -> None:
    """Give a fraction `share` of the queries a relative in the context, in place.

    The query and one to three people of the context are the founders of a pair of relatives (parent, child,
    sib, cousin or twin, with equal probability), which replaces the query and the first of these people.
    Twins copy the query. queries and context: the two columns of each person, int64 (people, 2).
    """
    cM_X = cM_X - cM_X[0]
    length_cM = float(cM_X[-1])
    others = iter(rng.permutation(context))
    for columns in queries[rng.random(len(queries)) < share]:
        kind = str(rng.choice(list(N_CONTEXT_PEOPLE)))
        taken = list(itertools.islice(others, N_CONTEXT_PEOPLE[kind]))
        if len(taken) < N_CONTEXT_PEOPLE[kind]:
            return
        founders = (founder(*pair.tolist()) for pair in (columns, *taken))
        both = gather_alleles(family(kind, founders, length_cM, rng), alleles_XA, cM_X)
        alleles_XA[:, columns], alleles_XA[:, taken[0]] = both[:, :2], both[:, 2:]
