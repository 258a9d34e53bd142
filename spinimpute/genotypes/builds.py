"""Genome builds, distinguished by the lengths of their chromosomes."""

from __future__ import annotations

import re

from spinimpute.genotypes.sites import LAST_POSITION, plain_chromosome

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


def build_of(contig_line: str, chrom: str) -> str:
    """GRCh37 or GRCh38 if the header states the chromosome's length, else ""."""
    length = contig_length(contig_line)
    plain = plain_chromosome(chrom)
    if length is None or plain not in CHROMOSOMES:
        return ""
    place = CHROMOSOMES.index(plain)
    return next((b for b, lengths in CHROMOSOME_LENGTHS.items() if lengths[place] == length), "")
