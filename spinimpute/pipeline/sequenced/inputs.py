"""What sequenced samples are read from: likelihoods, reads, or both of the same samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from spinimpute.errors import InputError
from spinimpute.genotypes.sites import NoMatch, NoRecord, Region
from spinimpute.panels.panel import Panel
from spinimpute.sequencing.likelihoods import GenotypeLikelihoods, merge_likelihoods
from spinimpute.sequencing.pileup import PileupSettings, read_alignments
from spinimpute.sequencing.variant_likelihoods import read_variant_likelihoods
from spinimpute.vcf.variant_file import VariantFile


@dataclass(frozen=True)
class SequencingSettings:
    """What is known of the samples. Likelihoods and reads of the same samples are taken together.

    Attributes
    ----------
    likelihoods : str, Path or None
        A VCF, VCF.gz or BCF with PL, GL or GT, see `read_variant_likelihoods`.
    alignments : sequence of str or Path
        BAM or CRAM files, one for each sample, see `read_alignments`.
    reference : str, Path or None
        The reference genome that CRAMs were written with.
    pileup : PileupSettings
        Which bases of reads count.
    sexes : dict or None
        Whether each sample is male, for chromosome X.
    """

    likelihoods: str | Path | None = None
    alignments: Sequence[str | Path] = ()
    reference: str | Path | None = None
    pileup: PileupSettings = field(default_factory=PileupSettings)
    sexes: dict[str, bool] | None = None

    @property
    def paths(self) -> list[str | Path | None]:
        """All files that are read."""
        return [self.likelihoods, *self.alignments, self.reference]


def read_likelihoods(
    settings: SequencingSettings, panel: Panel, region: Region | None
) -> GenotypeLikelihoods | None:
    """Likelihoods at the sites of a panel, or of a part of one of X.

    Parameters
    ----------
    settings : SequencingSettings
        What is read.
    panel : Panel
        Open.
    region : Region or None
        Of the chromosome; None for all.

    Returns
    -------
    GenotypeLikelihoods or None
        None if nothing is known at any site. The samples are in the order of the file of likelihoods, or else
        of the files of reads, whatever is known of them.

    Raises
    ------
    InputError
        Nothing is given, or as the readers; `NoRecord` and `NoMatch` are answered with None.
    """
    parts = []
    if settings.likelihoods is None and not settings.alignments:
        raise InputError("nothing is known of the samples: give a file of likelihoods, or reads")
    if settings.likelihoods is not None:
        try:
            parts.append(read_variant_likelihoods(settings.likelihoods, panel, region, sexes=settings.sexes))
        except (NoRecord, NoMatch):
            if region is None:
                raise
    if settings.alignments:
        try:
            pileup = read_alignments(
                settings.alignments,
                panel,
                region,
                reference=settings.reference,
                sexes=settings.sexes,
                settings=settings.pileup,
            )
            parts.append(pileup.likelihoods)
        except NoRecord:
            if region is None:
                raise
    if not parts:
        return None
    if settings.likelihoods is not None and settings.alignments:
        with VariantFile(Path(settings.likelihoods), "target") as file:
            names = list(file.samples)
        parts = [part.in_order(names) for part in parts]
    return parts[0] if len(parts) == 1 else merge_likelihoods(*parts)


def at_all_sites(likelihoods: GenotypeLikelihoods, first: int, last: int) -> np.ndarray:
    """Likelihoods at the panel sites [first, last), uint8 (S, X, 3); all 0 where nothing is known."""
    low, high = np.searchsorted(likelihoods.panel_index, [first, last])
    phred_SX3 = np.zeros((last - first, len(likelihoods.samples), 3), np.uint8)
    here = likelihoods.part(slice(low, high))
    # of a haploid sample without reads the stored ones are not all the same
    phred_SX3[here.panel_index - first] = np.where(here.known_SX[..., None], here.phred_SX3, 0)
    return phred_SX3
