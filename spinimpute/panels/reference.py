"""The interface through which the pipeline uses reference panels.

Two classes implement it: `Panel` (haplotypes, from .spin files) and `InducingPanel` (inducing points, .spip).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from spinimpute.genotypes.records import RecordRows
from spinimpute.genotypes.sites import Sites

if TYPE_CHECKING:
    from spinimpute.panels.panel import Panel


class ReferencePanel(Protocol):
    """An open panel of a chromosome, or of one part of X (PAR1, PAR2 or the rest)."""

    holds: str  # "haplotypes" or "inducing points"; a predictor can read one or both of these
    path: Path
    chrom: str  # the chromosome's name in the VCF from which the panel was built
    contig_line: str  # the "##contig" line of that VCF's header
    n_sites: int
    n_samples: int
    n_haplotypes: int
    checksum: str  # equal for panels with equal content
    provenance: dict[str, Any]  # how the panel was made: source, map, command ...
    made_of: str  # text after the checksum in headers and reports, such as " (merged of A and B)", or ""

    @property
    def samples(self) -> Sequence[str]:
        """Sample names; empty if the panel does not keep them."""

    @property
    def position(self) -> np.ndarray:
        """int64 (n_sites,), 1-based, never decreasing."""

    @property
    def cM(self) -> np.ndarray:
        """Genetic positions, float64 (n_sites,)."""

    @property
    def allele_count(self) -> np.ndarray:
        """Number of haplotypes with the ALT allele, int64 (n_sites,)."""

    @property
    def frequency(self) -> np.ndarray:
        """Frequency of the ALT allele, float64 (n_sites,)."""

    @property
    def prediction_trust(self) -> np.ndarray:
        """Weight (0 to 1) of predictions at each site, float32 (n_sites,), see `trust.site_trust`."""

    @property
    def multiallelic(self) -> np.ndarray:
        """Sites split from a multi-allelic record, bool (n_sites,)."""

    @property
    def has_structural(self) -> bool:
        """Whether some sites are structural variants."""

    @property
    def records(self) -> RecordRows:
        """Which sites were split from one multi-allelic record."""

    @property
    def sites(self) -> Sites:
        """The sites with their alleles and IDs."""

    @property
    def haplotypes(self) -> Panel | None:
        """This panel as a `Panel` of haplotypes, which phasing needs, or None if it has none."""

    @property
    def array_index(self) -> np.ndarray | None:
        """Sites of the array for which the panel was made, int64, increasing; None if it fits any array."""

    def check_typed(self, typed_index: np.ndarray) -> None:
        """Raise InputError if none of the typed sites, int64 (T,), is on the panel's array."""

    def described(self) -> Mapping[str, object]:
        """Return additional properties to print, by name."""

    def verify(self) -> None:
        """Read the whole file. Raises InputError if a checksum does not match."""
