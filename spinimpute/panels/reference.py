"""The interface of all reference panels, haplotypes or inducing points, that the pipeline uses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from spinimpute.genotypes.sites import Sites

if TYPE_CHECKING:
    from spinimpute.panels.panel import Panel


class ReferencePanel(Protocol):
    """An open panel of a chromosome, or of one region of X."""

    holds: str  # "haplotypes" or "inducing points"; predictors state what they can read
    path: Path
    chrom: str  # name in the VCF that the panel was built from
    contig_line: str  # of that VCF's header
    n_sites: int
    n_samples: int
    n_haplotypes: int
    checksum: str  # the same for the same content
    provenance: dict[str, Any]
    knows_discordance: bool  # whether the file has the discordance of sites; otherwise all sites are trusted
    made_of: str  # its origin, which follows its checksum in the header of an output

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
        """Share of a prediction to keep at each site, float32 (n_sites,), see `trust.site_trust`."""

    @property
    def multiallelic(self) -> np.ndarray:
        """Sites split from a multi-allelic record, bool (n_sites,)."""

    @property
    def sites(self) -> Sites:
        """The sites with their alleles and IDs."""

    @property
    def haplotypes(self) -> Panel | None:
        """The panel itself if it has haplotypes, for phasing; else None."""

    @property
    def array_index(self) -> np.ndarray | None:
        """The sites of the array that it was made for, int64, increasing; None: it serves any array."""

    def check_typed(self, typed_index: np.ndarray) -> None:
        """Raise InputError if none of the typed sites, int64 (T,), is on the panel's array."""

    def described(self) -> Mapping[str, object]:
        """Further properties to print, by name."""

    def verify(self) -> None:
        """Read everything. Raises InputError if a checksum does not match."""
