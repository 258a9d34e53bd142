"""Human genome builds: lengths of chromosomes, and boundaries of the pseudo-autosomal regions of X (PAR).

Men have two copies of PAR1 and PAR2 (with Y) and one copy of the rest of X.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from spinimpute.genotypes.sites import LAST_POSITION, Region, plain_chromosome
from spinimpute.runtime.errors import InputError

# Bases of chromosomes 1 to 22, X and Y. Source: Genome Reference Consortium, assembled molecules, GRCh37
# (GCF_000001405.13) and GRCh38 (GCF_000001405.26).
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
HAPLOID_CHROMOSOMES = ("Y", "MT")
NON_PAR = "non-PAR"
# Last position of PAR1 and first position of PAR2 on X. Source: Genome Reference Consortium.
_PAR1_END_PAR2_START = {"GRCh37": (2_699_520, 154_931_044), "GRCh38": (2_781_479, 155_701_383)}
_LENGTH = re.compile(r"[<,]length=(\d{1,15})(?!\d)")


def contig_length(line: str) -> int | None:
    """Return the length in a "##contig=<...>" line; None if there is none or it is too large for BCF."""
    found = _LENGTH.search(line)
    return int(found[1]) if found and int(found[1]) <= LAST_POSITION else None


def infer_build(contig_line: str, chrom: str) -> str:
    """Return "GRCh37" or "GRCh38" by the chromosome's length in the header; "" if it fits neither."""
    length = contig_length(contig_line)
    plain = plain_chromosome(chrom)
    if length is None or plain not in CHROMOSOMES:
        return ""
    number = CHROMOSOMES.index(plain)
    return next((b for b, lengths in CHROMOSOME_LENGTHS.items() if lengths[number] == length), "")


@dataclass(frozen=True)
class XRegion:
    """A region of X in which the ploidy of every sample is constant: PAR1, non-PAR or PAR2."""

    name: str
    region: Region

    def contains(self, first: int, last: int) -> bool:
        """Return whether all positions from first to last lie in the region."""
        return self.region.start <= first and last <= self.region.end


def is_x(chrom: str) -> bool:
    """Return whether `chrom` is a name of chromosome X."""
    return plain_chromosome(chrom) == "X"


def x_regions(chrom: str, build: str) -> list[XRegion]:
    """Return PAR1, non-PAR and PAR2 of X, with `chrom` as its name.

    Raises InputError for an unknown build.
    """
    if build not in _PAR1_END_PAR2_START:
        raise InputError(
            "argument", f"unknown genome build {build!r}. Give {' or '.join(CHROMOSOME_LENGTHS)}"
        )
    par1_end, par2_start = _PAR1_END_PAR2_START[build]
    return [
        XRegion("PAR1", Region(chrom, 1, par1_end)),
        XRegion(NON_PAR, Region(chrom, par1_end + 1, par2_start - 1)),
        XRegion("PAR2", Region(chrom, par2_start, LAST_POSITION)),
    ]
