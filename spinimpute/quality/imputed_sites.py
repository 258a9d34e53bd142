"""Quality of imputed sites for a report, collected window by window."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from spinimpute.quality.metrics import DEFAULT_BINS, frequency_bins

GOOD_R2 = 0.8
COMMON = 0.05  # minor allele frequency; rarer sites are imputed less well everywhere


@dataclass
class ImputedSites:
    """Estimated quality of every panel site: lists with an entry for each window."""

    chroms: list[str] = field(default_factory=list)
    positions: list[np.ndarray] = field(default_factory=list)  # integers (n_sites,): positions in base pairs
    # float32 (n_sites,): minor allele frequency in the panel
    minor: list[np.ndarray] = field(default_factory=list)
    r2: list[np.ndarray] = field(default_factory=list)  # float32 (n_sites,): estimated R2, see `site_quality`
    typed: list[np.ndarray] = field(default_factory=list)  # bool (n_sites,): whether the site is typed
    # float32 (n_sites, 2): explained and residual sums of squares, see `dosage_variance`
    variance: list[np.ndarray] = field(default_factory=list)

    def add(
        self,
        chrom: str,
        position: np.ndarray,
        frequency: np.ndarray,
        r2: np.ndarray,
        typed: np.ndarray,
        variance: np.ndarray,
    ) -> None:
        """Add the sites of a window; `frequency` is that of ALT in the panel."""
        self.chroms.append(chrom)
        self.positions.append(position)
        self.minor.append(np.minimum(frequency, 1 - frequency).astype(np.float32))
        self.r2.append(r2.astype(np.float32))
        self.typed.append(typed)
        self.variance.append(variance.astype(np.float32))

    def columns(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Position, minor allele frequency, R2 and whether typed, of the sites of all windows."""
        position, minor, r2, typed = map(np.concatenate, (self.positions, self.minor, self.r2, self.typed))
        return position, minor, r2, typed

    def expected_r2(self, mask: np.ndarray) -> float:
        """The r2 of dosages that the probabilities imply, for a bool mask of the sites of all windows.

        It is pooled over sites and samples, with deviations from the panel's frequencies. NaN without
        variance.
        """
        explained, residual = np.concatenate(self.variance)[mask].sum(axis=0, dtype=np.float64).tolist()
        return explained / (explained + residual) if explained + residual else float("nan")

    @property
    def common(self) -> np.ndarray:
        """Imputed sites with a minor allele frequency of at least COMMON, bool (n_sites,)."""
        _, minor, _, typed = self.columns()
        return np.asarray(~typed & (minor >= COMMON))

    def by_frequency(self, bins: Sequence[float] = DEFAULT_BINS) -> list[dict[str, Any]]:
        """Quality of imputed sites by minor allele frequency.

        A row for each bin (low, high] with imputed sites: bin, sites, r2 (mean), good (share of sites with
        R2 of at least GOOD_R2), expected_r2.
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
        """Rows of chrom, sites (of the panel), typed, r2 (mean) and expected_r2 of the `common` sites."""
        chrom = np.repeat(self.chroms, [len(position) for position in self.positions])
        names = list(dict.fromkeys(self.chroms))
        group_rows = self._rows_by_group([chrom == name for name in names])
        return [{"chrom": name} | row for name, row in zip(names, group_rows, strict=True)]

    def by_segment(self, n_segments: int = 60) -> list[dict[str, Any]]:
        """Rows of equally long segments of a single chromosome.

        Columns are Mb (the middle), length_Mb, and those of `by_chromosome`.
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
        """Numbers of panel and typed sites, and quality of common sites, for each mask of sites."""
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
