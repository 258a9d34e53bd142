"""Genome builds, distinguished by the lengths of their chromosomes."""

from __future__ import annotations

import re
from dataclasses import dataclass

from spinimpute.genotypes.sites import LAST_POSITION, Region, plain_chromosome
from spinimpute.runtime.errors import InputError

# Genome Reference Consortium, assembled molecules: GRCh37 (GCF_000001405.13), GRCh38 (GCF_000001405.26)
CHROMOSOME_LENGTHS = {
    "GRCh37": (
        249250621, 243199373, 198022430, 191154276, 180915260, 171115067, 159138663, 146364022, 141213431,
        135534747, 135006516, 133851895, 115169878, 107349540, 102531392, 90354753, 81195210, 78077248,
        59128983, 63025520, 48129895, 51304566, 155270560, 59373566,
    ),
    "GRCh38": (
        248956422, 242193529, 198295559, 190214555, 181538259, 170805979, 159345973, 145138636, 138394717,
        133797422, 135086622, 133275309, 114364328, 107043718, 101991189, 90338345, 83257441, 80373285,
        58617616, 64444167, 46709983, 50818468, 156040895, 57227415,
    ),
}  # fmt: skip
CHROMOSOMES = (*(str(i) for i in range(1, 23)), "X", "Y")
_LENGTH = re.compile(r"[<,]length=(\d{1,15})(?!\d)")


def contig_length(line: str) -> int | None:
    """The length that a "##contig=<...>" line states; None if it states none that BCF can hold."""
    stated = _LENGTH.search(line)
    return int(stated[1]) if stated and int(stated[1]) <= LAST_POSITION else None


def infer_build(contig_line: str, chrom: str) -> str:
    """GRCh37 or GRCh38 if the header states the chromosome's length, else ""."""
    length = contig_length(contig_line)
    plain = plain_chromosome(chrom)
    if length is None or plain not in CHROMOSOMES:
        return ""
    place = CHROMOSOMES.index(plain)
    return next((b for b, lengths in CHROMOSOME_LENGTHS.items() if lengths[place] == length), "")


NON_PAR = "non-PAR"
# Genome Reference Consortium: last position of PAR1 and first of PAR2 on X
_PAR1_END_PAR2_START = {"GRCh37": (2_699_520, 154_931_044), "GRCh38": (2_781_479, 155_701_383)}
HAPLOID_CHROMOSOMES = ("Y", "MT")


@dataclass(frozen=True)
class XRegion:
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


def x_regions(chrom: str, build: str) -> list[XRegion]:
    """The three parts of chromosome X.

    Parameters
    ----------
    chrom : str
        What the file calls X.
    build : str
        "GRCh37" or "GRCh38".

    Returns
    -------
    list of XRegion
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
        XRegion("PAR1", Region(chrom, 1, par1_end)),
        XRegion(NON_PAR, Region(chrom, par1_end + 1, par2_start - 1)),
        XRegion("PAR2", Region(chrom, par2_start, LAST_POSITION)),
    ]
