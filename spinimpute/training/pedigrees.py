"""Relatives: people whose haplotypes are recombined from those of founders.

A haplotype is told by where it changes from one founder's haplotype to another, so that pedigrees can be laid
over any haplotypes, simulated or real, before their alleles are known.

Axes: I pieces of a haplotype, F haplotypes of founders, X sites.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

KINDS = ("parent", "child", "sib", "cousin")
TWIN = "twin"  # or the same person a second time
OTHERS = {
    "parent": 1,
    "child": 1,
    "sib": 1,
    "cousin": 3,
    TWIN: 1,
}  # people of whom the relative takes a place


@dataclass(frozen=True)
class Mosaic:
    """A haplotype in pieces of founders' haplotypes.

    Attributes
    ----------
    start_I : float64
        Where a piece begins, cM from the segment's start; the first is 0.
    founder_I : int64
        The founder's haplotype that it is.
    """

    start_I: np.ndarray
    founder_I: np.ndarray

    def founders_at(self, cM_X: np.ndarray) -> np.ndarray:
        """The founders' haplotypes at genetic positions, int64 (X,)."""
        return self.founder_I[np.searchsorted(self.start_I, cM_X, side="right").clip(min=1) - 1]


Person = tuple[Mosaic, Mosaic]


def founder(first: int, second: int) -> Person:
    """A person who has two haplotypes of founders as they are."""
    return tuple(Mosaic(np.zeros(1), np.array([column])) for column in (first, second))  # type: ignore[return-value]


def meiosis(parent: Person, length_cM: float, rng: np.random.Generator) -> Mosaic:
    """Draw a haplotype that a parent passes on; crossovers do not interfere.

    Parameters
    ----------
    parent : Person
        Both haplotypes.
    length_cM : float
        Of the segment.
    rng : numpy.random.Generator
        Draws the crossovers.

    Returns
    -------
    Mosaic
        Pieces of both.
    """
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
    """Draw a person and a relative.

    Parameters
    ----------
    kind : str
        What the relative is to the person: one of KINDS, or TWIN.
    founders : iterator of Person
        One is taken for a twin, two for parent, child and sib, four for a cousin.
    length_cM : float
        Of the segment.
    rng : numpy.random.Generator
        Draws who passes on what.

    Returns
    -------
    Person, Person
        The person and the relative.

    Raises
    ------
    ValueError
        There is no such kind.
    """
    if kind == TWIN:
        one = next(founders)
        return one, one
    if kind not in KINDS:
        raise ValueError(f"no kind of relative: {kind!r}")
    one, other = next(founders), next(founders)
    if kind == "parent":
        return child(one, other, length_cM, rng), one
    if kind == "child":
        return one, child(one, other, length_cM, rng)
    both = tuple(child(one, other, length_cM, rng) for _ in range(2))
    if kind == "sib":
        return both[0], both[1]
    return child(both[0], next(founders), length_cM, rng), child(both[1], next(founders), length_cM, rng)


def alleles_of(people: Sequence[Person], alleles_XF: np.ndarray, cM_X: np.ndarray) -> np.ndarray:
    """Alleles of people's haplotypes.

    Parameters
    ----------
    people : sequence of Person
        Their haplotypes follow each other in pairs.
    alleles_XF : uint8
        Of the founders.
    cM_X : float64
        Genetic positions of the sites from the segment's start.

    Returns
    -------
    uint8 (X, 2 * people)
        Alleles.
    """
    sites = np.arange(len(cM_X))
    columns = [alleles_XF[sites, one.founders_at(cM_X)] for person in people for one in person]
    return np.stack(columns, axis=1)


def lay_relatives(
    alleles_XA: np.ndarray,
    cM_X: np.ndarray,
    queries: np.ndarray,
    context: np.ndarray,
    rng: np.random.Generator,
    share: float,
) -> None:
    """Give queries a relative in the context, in place.

    A query is recombined of itself and people of the context, of whom one becomes the relative: a parent,
    child, sib, cousin or twin, as likely as each other.

    Parameters
    ----------
    alleles_XA : uint8
        Of all haplotypes.
    cM_X : float64
        Genetic positions of the sites.
    queries, context : int64 (people, 2)
        Columns of each person; nobody is both.
    rng : numpy.random.Generator
        Draws who has a relative, and which.
    share : float
        Of the queries.
    """
    cM_X = cM_X - cM_X[0]
    length_cM = float(cM_X[-1])
    others = iter(rng.permutation(context))
    for columns in queries[rng.random(len(queries)) < share]:
        kind = str(rng.choice(list(OTHERS)))
        taken = list(itertools.islice(others, OTHERS[kind]))
        if len(taken) < OTHERS[kind]:
            return
        founders = (founder(*pair.tolist()) for pair in (columns, *taken))
        both = alleles_of(family(kind, founders, length_cM, rng), alleles_XA, cM_X)
        alleles_XA[:, columns], alleles_XA[:, taken[0]] = both[:, :2], both[:, 2:]
