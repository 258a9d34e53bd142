"""Coverage of sequenced samples: how many reads each sample has, and at how many sites it has no data.

Genotype likelihoods are added interval by interval. The results are shown in the summary and the report of
`impute`. A sample has data at a site if its genotype likelihoods are not all equal there.

Axes: X samples, I intervals, S sites with data of any sample.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from spinimpute.quality.leave_one_out import write_table
from spinimpute.sequencing.likelihoods import GenotypeLikelihoods

LOW_SHARE = 1 / 3  # samples below this share of the median are "low"; less than 1/2, as males have one X
MAX_LISTED_SAMPLES = 10  # for up to this many samples, `lines` describes each; for more it gives ranges
MAX_NAMED_SAMPLES = 3  # names in a warning


class _IntervalCounts(NamedTuple):
    """Counts in one interval of the panel. Arrays are int64 and have one value for each sample."""

    sites: int  # panel sites
    known: int  # sites with data of any sample
    counted: int  # sites at which reads were counted; some of these sites have no reads
    known_X: np.ndarray  # sites with data of the sample
    covered_X: np.ndarray  # sites with a read of the sample
    reads_X: np.ndarray  # reads of the sample, summed over the counted sites


class Reads(NamedTuple):
    """Depth of each sample at the sites where reads were counted, float64."""

    depth_X: np.ndarray  # mean number of reads per site
    no_reads_X: np.ndarray  # share of the sites without reads
    expected_no_reads_X: np.ndarray  # expected share if reads lay at random (Poisson): exp(-depth)


@dataclass
class Coverage:
    """Coverage of all samples, collected interval by interval."""

    samples: list[str] = field(default_factory=list)
    intervals: list[_IntervalCounts] = field(default_factory=list)

    def add(self, likelihoods: GenotypeLikelihoods, n_sites: int) -> None:
        """Add the likelihoods at `n_sites` consecutive sites of a panel."""
        self.samples = likelihoods.samples
        known_SX, depth_SX = likelihoods.known_SX, likelihoods.depth_SX
        covered_X, reads_X = np.zeros((2, len(self.samples)), np.int64)
        if depth_SX is not None:
            covered_X, reads_X = (depth_SX > 0).sum(axis=0), depth_SX.sum(axis=0, dtype=np.int64)
        n_known, n_counted = int(known_SX.any(axis=1).sum()), len(likelihoods.counted_index)
        counts = _IntervalCounts(n_sites, n_known, n_counted, known_SX.sum(axis=0), covered_X, reads_X)
        self.intervals.append(counts)

    @property
    def known_sites(self) -> int:
        """Number of panel sites with data of any sample."""
        return sum(interval.known for interval in self.intervals)

    @property
    def unknown_X(self) -> np.ndarray:
        """Share of the panel's sites without data, for each sample, float64."""
        known_X = np.sum([interval.known_X for interval in self.intervals], axis=0)
        return np.asarray(1 - known_X / sum(interval.sites for interval in self.intervals))

    @property
    def reads(self) -> Reads | None:
        """Depth of each sample; None if reads were not counted at any site."""
        counted = [interval for interval in self.intervals if interval.counted]
        if not counted:
            return None
        share_I = np.array([interval.counted for interval in counted]) / sum(
            interval.counted for interval in counted
        )
        depth_IX = np.array([interval.reads_X / interval.counted for interval in counted])
        no_reads_IX = np.array([1 - interval.covered_X / interval.counted for interval in counted])
        return Reads(share_I @ depth_IX, share_I @ no_reads_IX, share_I @ np.exp(-depth_IX))

    @property
    def low_X(self) -> np.ndarray:
        """Whether each sample has no data or less than LOW_SHARE of the median, bool.

        The data of a sample are its depth, or its number of sites with data if reads were not counted.
        """
        measure_X = 1 - self.unknown_X if self.reads is None else self.reads.depth_X
        return (self.unknown_X == 1) | (measure_X < LOW_SHARE * np.median(measure_X))

    def by_sample(self) -> list[dict[str, Any]]:
        """Return a row for each sample: sample, depth, without_reads, expected, unknown, note ("low" or "").

        Depth, without_reads and expected are None if reads were not counted.
        """
        unknown_X, low_X, reads = self.unknown_X, self.low_X, self.reads
        return [
            {
                "sample": name,
                "depth": None if reads is None else float(reads.depth_X[x]),
                "without_reads": None if reads is None else float(reads.no_reads_X[x]),
                "expected": None if reads is None else float(reads.expected_no_reads_X[x]),
                "unknown": float(unknown_X[x]),
                "note": "low" if low_X[x] else "",
            }
            for x, name in enumerate(self.samples)
        ]

    def write(self, path: Path) -> None:
        """Write `by_sample` as a tab-separated table; raises OSError if the file cannot be written."""
        write_table(path, self.by_sample())

    def warnings(self) -> list[str]:
        """Return warnings that name the samples without data and the samples with little data."""
        no_data_X = self.unknown_X == 1
        little_data_X = self.low_X & ~no_data_X
        warnings = []
        if no_data_X.any():
            warnings.append(
                f"{self._name_samples(no_data_X)} have no data: they get the panel's allele frequencies"
            )
        if little_data_X.any():
            measure = "reads" if self.reads is not None else "sites with data"
            warnings.append(
                f"{self._name_samples(little_data_X)} have less than a third of the median number of "
                f"{measure}"
            )
        return warnings

    def _name_samples(self, mask_X: np.ndarray) -> str:
        names = [self.samples[x] for x in np.flatnonzero(mask_X)]
        listed = ", ".join(names[:MAX_NAMED_SAMPLES]) + (", ..." if len(names) > MAX_NAMED_SAMPLES else "")
        return f"{len(names)} of {len(self.samples)} samples ({listed})"

    def lines(self) -> list[str]:
        """Return the coverage as text: a line for each sample, or ranges if there are many samples."""
        if len(self.samples) <= MAX_LISTED_SAMPLES:
            return [f"coverage: {row['sample']}: {_describe_sample(row)}" for row in self.by_sample()]
        lines = [f"no data:  {_format_range(self.unknown_X, '.1%')} of a sample's sites"]
        if self.reads is not None:
            no_reads, expected = (
                _format_range(x, ".1%") for x in (self.reads.no_reads_X, self.reads.expected_no_reads_X)
            )
            lines += [
                f"depth:    {_format_range(self.reads.depth_X, '.2f')} reads per site",
                f"no reads: {no_reads} of the sites; expected by chance: {expected}",
            ]
        return lines


def _describe_sample(row: dict[str, Any]) -> str:
    unknown = f"no data at {row['unknown']:.1%} of the sites"
    if row["depth"] is None:
        return unknown
    return (
        f"{row['depth']:.2f} reads per site, none at {row['without_reads']:.1%} (expected by chance: "
        f"{row['expected']:.1%}); {unknown}"
    )


def _format_range(values_X: np.ndarray, digits: str) -> str:
    return f"{values_X.min():{digits}} to {values_X.max():{digits}}, median {np.median(values_X):{digits}}"
