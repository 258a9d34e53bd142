"""What all reference panels have in common, whatever they hold: the pipeline asks this and no kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from spinimpute.genotypes.sites import Sites

if TYPE_CHECKING:
    from spinimpute.panels.panel import Panel


class ReferencePanel(Protocol):
    """An open panel, or one of the parts of a chromosome X.

    Attributes
    ----------
    holds : str
        What it holds of its samples, such as "haplotypes": a predictor states what it can read.
    path : Path
        Of its file.
    chrom, contig_line : str
        As in the VCF that it was made of.
    n_sites, n_samples, n_haplotypes : int
        Of what it was made of.
    checksum : str
        The same for the same content.
    provenance : dict
        Where it comes from.
    """

    holds: str
    path: Path
    chrom: str
    contig_line: str
    n_sites: int
    n_samples: int
    n_haplotypes: int
    checksum: str
    provenance: dict[str, Any]

    @property
    def samples(self) -> Sequence[str]:
        """Names of the samples; none where the panel does not keep them."""
        ...

    @property
    def position(self) -> np.ndarray:
        """int64 (n_sites,), 1-based, never decreasing."""
        ...

    @property
    def cM(self) -> np.ndarray:
        """float64 (n_sites,): genetic positions."""
        ...

    @property
    def allele_count(self) -> np.ndarray:
        """int64 (n_sites,): how many haplotypes carry the ALT allele."""
        ...

    @property
    def frequency(self) -> np.ndarray:
        """float64 (n_sites,): the ALT allele's frequency."""
        ...

    @property
    def knows_discordance(self) -> bool:
        """Whether its file has the discordance of sites; else all are trusted."""
        ...

    @property
    def prediction_trust(self) -> np.ndarray:
        """float32 (n_sites,): what predictions are worth, see `trust.site_trust`."""
        ...

    @property
    def multiallelic(self) -> np.ndarray:
        """bool (n_sites,): True for sites split from a multi-allelic record."""
        ...

    @property
    def sites(self) -> Sites:
        """The sites with their alleles and IDs."""
        ...

    @property
    def haplotypes(self) -> Panel | None:
        """The panel itself where it holds haplotypes, which can be phased against; else None."""
        ...

    @property
    def array_index(self) -> np.ndarray | None:
        """int64, increasing: the sites of the array that it was made for; None: it serves any array."""
        ...

    @property
    def made_of(self) -> str:
        """What the header of an output says of it behind its checksum."""
        ...

    def check_typed(self, typed_index: np.ndarray) -> None:
        """Check that the typed sites are of use.

        Raises
        ------
        InputError
            None of them, int64 (T,), is a site of its array.
        """
        ...

    def described(self) -> Mapping[str, object]:
        """What there is to say of it beside sites, samples and provenance, by name."""
        ...

    def verify(self) -> None:
        """Read all of it.

        Raises
        ------
        InputError
            A part does not match its checksum.
        """
        ...
