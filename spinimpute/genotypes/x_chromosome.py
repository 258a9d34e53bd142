"""Chromosome X in parts: men have two copies of its pseudo-autosomal ends, and one of what lies between."""

from __future__ import annotations

from dataclasses import dataclass

from spinimpute.genotypes.builds import CHROMOSOME_LENGTHS
from spinimpute.genotypes.sites import LAST_POSITION, Region, plain_chromosome
from spinimpute.runtime.errors import InputError

NON_PAR = "non-PAR"
# Genome Reference Consortium: last position of PAR1 and first of PAR2 on X
_PAR1_END_PAR2_START = {"GRCh37": (2_699_520, 154_931_044), "GRCh38": (2_781_479, 155_701_383)}
HAPLOID_CHROMOSOMES = ("Y", "MT")


@dataclass(frozen=True)
class Part:
    """A part of a chromosome in which no sample's ploidy changes.

    Attributes
    ----------
    name : str
        PAR1, non-PAR or PAR2.
    region : Region
        Where it lies.
    """

    name: str
    region: Region

    def reaches(self, first: int, last: int) -> bool:
        """Whether it holds all positions from first to last."""
        return self.region.start <= first and last <= self.region.end


def is_x(chrom: str) -> bool:
    """Whether this is a name of chromosome X."""
    return plain_chromosome(chrom) == "X"


def parts_of_x(chrom: str, build: str) -> list[Part]:
    """The three parts of chromosome X.

    Parameters
    ----------
    chrom : str
        What the file calls X.
    build : str
        "GRCh37" or "GRCh38".

    Returns
    -------
    list of Part
        PAR1, non-PAR and PAR2.

    Raises
    ------
    InputError
        The build is another one.
    """
    if build not in _PAR1_END_PAR2_START:
        raise InputError(
            "mismatch", f"unknown genome build {build!r}: give {' or '.join(CHROMOSOME_LENGTHS)}"
        )
    par1_end, par2_start = _PAR1_END_PAR2_START[build]
    return [
        Part("PAR1", Region(chrom, 1, par1_end)),
        Part(NON_PAR, Region(chrom, par1_end + 1, par2_start - 1)),
        Part("PAR2", Region(chrom, par2_start, LAST_POSITION)),
    ]
