"""Estimated quality of imputed sites, for the report of `impute`.

The run adds each window of sites when it is imputed. The report then asks for tables by allele frequency, by
chromosome, and by position.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from spinimpute.quality.metrics import DEFAULT_BINS, GOOD_R2, frequency_bins

COMMON = 0.05  # minimum MAF of the sites in comparisons along the genome; rarer sites are imputed less well


@dataclass
class ImputedSites:
    """Estimated quality of every panel site. Each list has one entry for each window."""

    chroms: list[str] = field(default_factory=list)
    positions: list[np.ndarray] = field(default_factory=list)  # int (n_sites,): positions in base pairs
    # float32 (n_sites,): minor allele frequency in the panel
    minor: list[np.ndarray] = field(default_factory=list)
    r2: list[np.ndarray] = field(default_factory=list)  # float32 (n_sites,): estimated R2, see `site_quality`
    typed: list[np.ndarray] = field(default_factory=list)  # bool (n_sites,)
    # float32 (n_sites, 2): explained and residual sum of squares, see `site_quality.dosage_variance`
    sums: list[np.ndarray] = field(default_factory=list)

    def add(
        self,
        chrom: str,
        position: np.ndarray,
        frequency: np.ndarray,
        r2: np.ndarray,
        typed: np.ndarray,
        sums: np.ndarray,
    ) -> None:
        """Add the sites of a window. `frequency` is the ALT frequency in the panel."""
        self.chroms.append(chrom)
        self.positions.append(position)
        self.minor.append(np.minimum(frequency, 1 - frequency).astype(np.float32))
        self.r2.append(r2.astype(np.float32))
        self.typed.append(typed)
        self.sums.append(sums.astype(np.float32))

    def columns(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return four columns for the sites of all windows: position, minor allele frequency, R2, typed."""
        position, minor, r2, typed = map(np.concatenate, (self.positions, self.minor, self.r2, self.typed))
        return position, minor, r2, typed

    def expected_r2(self, mask: np.ndarray) -> float:
        """Return the pooled r2 to expect at some sites if the imputed probabilities are calibrated.

        It is explained / (explained + residual) sum of squares, see `site_quality.dosage_variance`. It is NaN
        if both sums are 0. `mask` is bool over the sites of all windows.
        """
        explained, residual = np.concatenate(self.sums)[mask].sum(axis=0, dtype=np.float64).tolist()
        return explained / (explained + residual) if explained + residual else float("nan")

    @property
    def common(self) -> np.ndarray:
        """Whether each site is imputed and its minor allele frequency at least COMMON, bool (n_sites,)."""
        _, minor, _, typed = self.columns()
        return np.asarray(~typed & (minor >= COMMON))

    def by_frequency(self, bins: Sequence[float] = DEFAULT_BINS) -> list[dict[str, Any]]:
        """Return a row for each bin (low, high] of minor allele frequency that contains imputed sites.

        Columns: bin, sites, r2 (mean R2), good (share of sites with R2 of at least GOOD_R2), expected_r2.
        """
        _, minor, r2, typed = self.columns()
        rows = []
        for one in frequency_bins(bins):
            mask = ~typed & one.contains(minor)
            if not mask.any():
                continue
            rows.append(
                {
                    "bin": one.label,
                    "sites": int(mask.sum()),
                    "r2": float(r2[mask].mean()),
                    "good": float((r2[mask] >= GOOD_R2).mean()),
                    "expected_r2": self.expected_r2(mask),
                }
            )
        return rows

    def by_chromosome(self) -> list[dict[str, Any]]:
        """Return a row for each chromosome.

        Columns: chrom, sites (number of panel sites), typed (number of typed sites), and mean r2 and
        expected_r2 of the `common` sites.
        """
        chrom = np.repeat(self.chroms, [len(position) for position in self.positions])
        names = list(dict.fromkeys(self.chroms))
        group_rows = self._rows_by_group([chrom == name for name in names])
        return [{"chrom": name} | row for name, row in zip(names, group_rows, strict=True)]

    def by_segment(self, n_segments: int = 60) -> list[dict[str, Any]]:
        """Cut the only chromosome into segments of equal length, and return a row for each.

        Columns: Mb (middle of the segment), length_Mb, and the columns of `by_chromosome` without chrom.
        """
        position = np.concatenate(self.positions)
        edge = np.linspace(position[0], position[-1] + 1, n_segments + 1)
        segment = np.clip(np.searchsorted(edge, position, side="right") - 1, 0, n_segments - 1)
        group_rows = self._rows_by_group([segment == i for i in range(n_segments)])
        return [
            {"Mb": float(edge[i] + edge[i + 1]) / 2e6, "length_Mb": float(edge[i + 1] - edge[i]) / 1e6} | row
            for i, row in enumerate(group_rows)
        ]

    def _rows_by_group(self, masks: Sequence[np.ndarray]) -> list[dict[str, Any]]:
        """Return a row for each mask of sites, with the columns of `by_chromosome` without chrom."""
        _, _, r2, typed = self.columns()
        common = self.common
        rows = []
        for in_group in masks:
            mask = in_group & common
            rows.append(
                {
                    "sites": int(in_group.sum()),
                    "typed": int((in_group & typed).sum()),
                    "r2": float(r2[mask].mean()) if mask.any() else float("nan"),
                    "expected_r2": self.expected_r2(mask),
                }
            )
        return rows
