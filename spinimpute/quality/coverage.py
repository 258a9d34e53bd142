"""How much is known of each sequenced sample: its reads, and the sites without any.

Axes: X samples.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from spinimpute.quality.tables import write_table
from spinimpute.sequencing.likelihoods import GenotypeLikelihoods

LOW_SHARE = 1 / 3  # of the samples' median; men have half of the reads on X
SHOWN_SAMPLES = 10  # one by one; of more the range
NAMED_SAMPLES = 3  # in a warning


@dataclass(frozen=True)
class _Part:
    """What is known in one part of the chromosome.

    Attributes
    ----------
    sites, known, counted : int
        Panel sites, those at which something is known of any sample, and those at which reads were counted.
    known_X, covered_X : int64 (X,)
        At how many sites something is known of a sample, and at how many it has reads.
    reads_X : int64 (X,)
        Reads at the counted sites.
    """

    sites: int
    known: int
    counted: int
    known_X: np.ndarray
    covered_X: np.ndarray
    reads_X: np.ndarray


@dataclass(frozen=True)
class Reads:
    """Reads of samples at the sites at which they were counted.

    Attributes
    ----------
    depth_X : float64 (X,)
        The mean number at a site.
    without_X : float64 (X,)
        The share of the sites without any.
    expected_X : float64 (X,)
        What that would be if reads lay by chance (Poisson): exp(-depth).
    """

    depth_X: np.ndarray
    without_X: np.ndarray
    expected_X: np.ndarray


@dataclass
class Coverage:
    """What is known of each sample, collected from one part of the chromosome after the other.

    Attributes
    ----------
    samples : list of str
        Names.
    parts : list of _Part
        What was added.
    """

    samples: list[str] = field(default_factory=list)
    parts: list[_Part] = field(default_factory=list)

    def add(self, likelihoods: GenotypeLikelihoods, n_sites: int) -> None:
        """Add a part of the chromosome.

        Parameters
        ----------
        likelihoods : GenotypeLikelihoods
            What is known there; the samples are in the same order in all parts.
        n_sites : int
            Sites of the panel there.
        """
        self.samples = likelihoods.samples
        known_SX, depth_SX = likelihoods.known_SX, likelihoods.depth_SX
        covered_X, reads_X = np.zeros((2, len(self.samples)), np.int64)
        if depth_SX is not None:
            covered_X, reads_X = (depth_SX > 0).sum(axis=0), depth_SX.sum(axis=0, dtype=np.int64)
        n_known, n_counted = int(known_SX.any(axis=1).sum()), len(likelihoods.counted_index)
        self.parts.append(_Part(n_sites, n_known, n_counted, known_SX.sum(axis=0), covered_X, reads_X))

    @property
    def known_sites(self) -> int:
        """Sites of the panel at which something is known of any sample."""
        return sum(part.known for part in self.parts)

    @property
    def unknown_X(self) -> np.ndarray:
        """The share of the panel's sites at which nothing is known of a sample, float64 (X,)."""
        known_X = np.sum([part.known_X for part in self.parts], axis=0)
        return np.asarray(1 - known_X / sum(part.sites for part in self.parts))

    @property
    def reads(self) -> Reads | None:
        """Of each sample; None if reads were not counted at any site."""
        parts = [part for part in self.parts if part.counted]
        if not parts:
            return None
        share = np.array([part.counted for part in parts]) / sum(part.counted for part in parts)
        depth_PX = np.array([part.reads_X / part.counted for part in parts])
        without_PX = np.array([1 - part.covered_X / part.counted for part in parts])
        return Reads(share @ depth_PX, share @ without_PX, share @ np.exp(-depth_PX))

    @property
    def low_X(self) -> np.ndarray:
        """Samples of which nothing is known, or little beside the others, bool (X,)."""
        measure_X = 1 - self.unknown_X if self.reads is None else self.reads.depth_X
        return (self.unknown_X == 1) | (measure_X < LOW_SHARE * np.median(measure_X))

    def by_sample(self) -> list[dict[str, Any]]:
        """What is known of each sample.

        Returns
        -------
        list of dict
            A row for each sample: sample, depth, without_reads and expected (as of `Reads`; None where there
            are none), unknown, note ("low" as `low_X`).
        """
        unknown_X, low_X, reads = self.unknown_X, self.low_X, self.reads
        return [
            {
                "sample": name,
                "depth": None if reads is None else float(reads.depth_X[x]),
                "without_reads": None if reads is None else float(reads.without_X[x]),
                "expected": None if reads is None else float(reads.expected_X[x]),
                "unknown": float(unknown_X[x]),
                "note": "low" if low_X[x] else "",
            }
            for x, name in enumerate(self.samples)
        ]

    def write(self, path: Path) -> None:
        """Write `by_sample` as a table separated by tabs; raises OSError if that cannot be done."""
        write_table(path, self.by_sample())

    def warnings(self) -> list[str]:
        """Sentences about samples of which nothing is known, or little beside the others."""
        nothing_X = self.unknown_X == 1
        little_X = self.low_X & ~nothing_X
        found = []
        if nothing_X.any():
            found.append(
                f"nothing is known of {self._named(nothing_X)}: what is imputed are the panel's frequencies"
            )
        if little_X.any():
            measure = "reads" if self.reads is not None else "sites of which something is known"
            found.append(
                f"{self._named(little_X)}: less than a third of the {measure} that samples have in the median"
            )
        return found

    def _named(self, chosen_X: np.ndarray) -> str:
        names = [self.samples[x] for x in np.flatnonzero(chosen_X)]
        more = ", ..." if len(names) > NAMED_SAMPLES else ""
        return f"{len(names)} of {len(self.samples)} samples ({', '.join(names[:NAMED_SAMPLES])}{more})"

    def lines(self) -> list[str]:
        """The coverage as text: of few samples one by one, of more the range."""
        if len(self.samples) <= SHOWN_SAMPLES:
            return [f"coverage: {row['sample']}: {_of_sample(row)}" for row in self.by_sample()]
        out = [f"unknown:  {_range(self.unknown_X, '.1%')} of a sample's sites"]
        if self.reads is not None:
            expected = _range(self.reads.expected_X, ".1%")
            out += [
                f"depth:    {_range(self.reads.depth_X, '.2f')} reads a site",
                f"no reads: {_range(self.reads.without_X, '.1%')} of the sites; by chance {expected}",
            ]
        return out


def _of_sample(row: dict[str, Any]) -> str:
    unknown = f"nothing is known at {row['unknown']:.1%} of the sites"
    if row["depth"] is None:
        return unknown
    return (
        f"{row['depth']:.2f} reads a site, none at {row['without_reads']:.1%} (by chance "
        f"{row['expected']:.1%}); {unknown}"
    )


def _range(of_X: np.ndarray, form: str) -> str:
    return f"{of_X.min():{form}} to {of_X.max():{form}}, median {np.median(of_X):{form}}"
