"""Accuracy by site and by people: recombination rate, distance to typed sites, ancestry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from benchmarks.imputation.programs import better_peer
from spinimpute.genotypes.genetic_map import GeneticMap
from spinimpute.quality.metrics import pooled_r2, site_statistics

WINDOW = 50_000  # bp around a site in which its recombination rate is taken
DISTANCE_EDGES = (0, 500, 2_000, 5_000, 20_000)  # bp
OUTSIDE = "outside the typed sites"
RARE = 0.01  # minor allele frequency
FREQUENCY_CLASSES = ("all", f"≤{RARE:g}", f">{RARE:g}")


@dataclass(frozen=True)
class Stratum:
    """Some of the sites for some of the people."""

    dimension: str
    label: str
    sites: np.ndarray  # bool (X,)
    people: np.ndarray  # bool (S,)


@dataclass(frozen=True)
class Cell:
    """A stratum, or its rare or common sites, with the pooled r2 of each imputer."""

    dimension: str
    label: str
    frequency: str  # one of FREQUENCY_CLASSES
    sites: int
    genotypes: int
    r2: dict[str, float]

    def below(self, label: str) -> tuple[str, float] | None:
        """Return the better peer and its lead over `label`; None if `label` is equal or ahead."""
        peer = better_peer(self.r2)
        if peer is None or not peer[1] > self.r2[label]:
            return None
        return peer[0], peer[1] - self.r2[label]


def recombination_rate(position: np.ndarray, genetic_map: GeneticMap, window: int = WINDOW) -> np.ndarray:
    """Return cM per Mb in a window around each position, float64 (X,)."""
    half = window / 2
    return (genetic_map.cM(position + half) - genetic_map.cM(position - half)) / (window / 1e6)


def recombination_strata(position: np.ndarray, genetic_map: GeneticMap, n_people: int) -> list[Stratum]:
    """Return quartiles of the sites by recombination rate, lowest first; equal quartiles are merged."""
    rate = recombination_rate(position, genetic_map)
    edges = np.unique(np.quantile(rate, [0, 0.25, 0.5, 0.75, 1]))
    everyone = np.ones(n_people, dtype=bool)
    if len(edges) == 1:  # the same rate everywhere
        label = f"{edges[0]:.3g} cM/Mb"
        return [Stratum("recombination", label, np.ones(len(rate), dtype=bool), everyone)]
    quartile = np.clip(np.searchsorted(edges, rate, side="left") - 1, 0, len(edges) - 2)
    return [
        Stratum("recombination", f"{low:.3g} to {high:.3g} cM/Mb", quartile == i, everyone)
        for i, (low, high) in enumerate(pairwise(edges))
    ]


def distance_strata(position: np.ndarray, typed: np.ndarray, n_people: int) -> list[Stratum]:
    """Group sites by distance to the nearest typed site. Sites before the first or after the last form one
    group.

    typed: sorted positions, at least one.
    """
    right = np.searchsorted(typed, position)
    to_left = position - typed[np.maximum(right - 1, 0)]
    to_right = typed[np.minimum(right, len(typed) - 1)] - position
    distance = np.minimum(np.abs(to_left), np.abs(to_right))
    outside = (position < typed[0]) | (position > typed[-1])
    everyone = np.ones(n_people, dtype=bool)
    strata = []
    for low, high in pairwise((*DISTANCE_EDGES, None)):
        chosen = ~outside & (distance >= low) & (high is None or distance < high)
        label = f"{low:,} bp and more" if high is None else f"{low:,} to {high:,} bp"
        strata.append(Stratum("distance to a typed site", label, chosen, everyone))
    strata.append(Stratum("distance to a typed site", OUTSIDE, outside, everyone))
    return [stratum for stratum in strata if stratum.sites.any()]


def people_strata(
    people: Sequence[str], populations: Mapping[str, tuple[str, str]], n_sites: int
) -> list[Stratum]:
    """Return all sites for the people of each superpopulation, and of each population if this differs."""
    if not populations:
        return []
    everywhere = np.ones(n_sites, dtype=bool)
    unknown = ("unknown", "unknown")
    of_people = [populations.get(name, unknown) for name in people]
    dimensions = {"superpopulation": [pair[1] for pair in of_people]}
    if any(population != of_all for population, of_all in of_people):
        dimensions["population"] = [pair[0] for pair in of_people]
    return [
        Stratum(dimension, label, everywhere, np.array([one == label for one in of]))
        for dimension, of in dimensions.items()
        for label in sorted(set(of))
    ]


def cells(
    strata: Sequence[Stratum],
    minor_frequency: np.ndarray,
    true_XS: np.ndarray,
    dosages: Mapping[str, np.ndarray],
) -> list[Cell]:
    """Return the pooled r2 of each imputer in each stratum, for all sites, rare sites and common sites.

    true_XS and dosages (by label): minor alleles, (X, S).
    """
    rare = minor_frequency <= RARE
    classes = dict(zip(FREQUENCY_CLASSES, (np.ones_like(rare), rare, ~rare), strict=True))
    reduced: dict[bytes, dict[str, np.ndarray]] = {}  # sums of each site, by the people summed over
    out = []
    for stratum in strata:
        group = stratum.people.tobytes()
        if group not in reduced:
            columns = np.flatnonzero(stratum.people)
            reduced[group] = {
                label: site_statistics(true_XS[:, columns], dosage[:, columns])
                for label, dosage in dosages.items()
            }
        for name, of_class in classes.items():
            chosen = stratum.sites & of_class
            if not chosen.any():
                continue
            sums = {label: sums_of[chosen] for label, sums_of in reduced[group].items()}
            genotypes = int(next(iter(sums.values()))["genotypes"].sum())
            r2 = {label: pooled_r2(of_label) for label, of_label in sums.items()}
            out.append(Cell(stratum.dimension, stratum.label, name, int(chosen.sum()), genotypes, r2))
    return out
