"""The contents of records that are written together, as all writers of genotypes take them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from spinimpute.genotypes.sites import Sites


@dataclass(frozen=True)
class RecordBlock:
    """The contents of r consecutive records of a contig.

    `hap_dosage`, float32 (r, n_haplotypes), is P(ALT) clipped to 0 to 1, or NaN if missing. `info` maps INFO
    keys to numbers (r,), to bool (r,) for a flag, or to None; non-finite numbers are not written.
    `haplotypes`, int8 (r, n_haplotypes), are the calls 0, 1 or -1 (missing). Without them, ALT is called if
    P(ALT) >= 0.5. `typed`, bool (r,), marks sites that the target has. `unphased`, bool (r, n_samples), marks
    calls to write with "/". The contig is `chrom`; `sites.chrom` is ignored.

    `continues`, bool (r,), marks rows that belong to the same multi-allelic record as the row before; it
    never cuts a record. VCF and BCF then have one record for these rows. Without it, all are biallelic.
    """

    chrom: str
    sites: Sites
    hap_dosage: np.ndarray
    info: Mapping[str, np.ndarray | None]
    haplotypes: np.ndarray | None
    typed: np.ndarray
    unphased: np.ndarray | None = None
    continues: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.sites)

    def take(self, rows: slice | np.ndarray) -> RecordBlock:
        """Return some of the records."""
        return RecordBlock(
            self.chrom,
            self.sites.take(rows),
            self.hap_dosage[rows],
            {key: None if values is None else np.asarray(values)[rows] for key, values in self.info.items()},
            None if self.haplotypes is None else self.haplotypes[rows],
            self.typed[rows],
            None if self.unphased is None else self.unphased[rows],
            None if self.continues is None else self.continues[rows],
        )
