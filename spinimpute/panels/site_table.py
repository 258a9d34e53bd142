"""Encode and decode the table of sites in panel files.

Positions and genetic positions are stored as differences of neighbouring sites. Numbers are stored in byte
planes: first the lowest bytes of all numbers, then the second bytes, because the container compresses high
bytes, which are mostly zero, very well. The texts ref, alt and id are UTF-8 with one line per site.
`multiallelic` has one bit per site in the order of `numpy.packbits`. Only panels with structural variants
have the section `structural`: a line for each, with the index of its site, END, SVTYPE and SVLEN.

Panels (.spin) have exact genetic positions. In inducing panels (.spip), they are rounded to CM_UNIT.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from spinimpute.genotypes.sites import LAST_POSITION, Sites
from spinimpute.genotypes.structural import StructuralVariant

CM_UNIT = 1e-8  # rounded genetic positions are multiples of this; a base pair is about 1e-6 cM
TABLE_SECTIONS = ("position", "cM", "allele_count", "ref", "alt", "id", "multiallelic")
STRUCTURAL = "structural"  # a section that only panels with structural variants have
DISCORDANCE, CONFIRMED = "discordance", "confirmed"  # further sections, see `trust.site_trust`
# arguments of `check_increasing`: minimum, maximum, and the error message
POSITIONS = 1, LAST_POSITION, f"positions must lie in 1 to {LAST_POSITION} and never decrease"
_MAX = float(np.finfo(np.float64).max)
GENETIC_POSITIONS = -_MAX, _MAX, "genetic positions must be numbers and never decrease"
_TEXTS = ("ref", "alt", "id")


class SiteTable(NamedTuple):
    """The sites of a panel."""

    sites: Sites
    cM: np.ndarray  # genetic positions, float64 (n,)
    allele_count: np.ndarray  # haplotypes with the ALT allele, int64 (n,)


def encode_site_table(table: SiteTable, multiallelic: np.ndarray) -> dict[str, bytes]:
    """Encode the sections TABLE_SECTIONS, with exact genetic positions. `multiallelic` is bool (n,).

    The section STRUCTURAL follows if there are structural variants.
    """
    lines = ["\t".join(map(str, (row, *variant))) for row, variant in sorted(table.sites.structural.items())]
    texts = {name: "\n".join(getattr(table.sites, name)).encode() for name in _TEXTS}
    return {
        "position": encode_increasing(table.sites.position),
        "cM": encode_cM(table.cM),
        "allele_count": _to_byte_planes(table.allele_count.astype("<u4")),
        **texts,
        "multiallelic": np.packbits(multiallelic).tobytes(),
        **({STRUCTURAL: "\n".join(lines).encode()} if lines else {}),
    }


def decode_sites(chrom: str, position: np.ndarray, section: Callable[[str], bytes]) -> Sites:
    """Decode the sites at these positions. `section` returns the content of a section, b"" if there is none.

    Raises ValueError for invalid UTF-8, characters that a VCF cannot have, another number of sites, or
    invalid structural variants.
    """
    texts = [section(key).decode() for key in _TEXTS]
    if any(character in text for text in texts for character in "\0\t\r") or "," in texts[1]:
        raise ValueError("characters that no column of a VCF can hold")
    ref, alt, name = (text.split("\n") for text in texts)
    for column in (ref, alt, name):
        if len(column) != len(position):
            raise ValueError(f"{len(column)} entries for {len(position)} sites")
    return Sites(chrom, position, ref, alt, name, _decode_structural(section(STRUCTURAL).decode(), position))


def _decode_structural(text: str, position: np.ndarray) -> dict[int, StructuralVariant]:
    found: dict[int, StructuralVariant] = {}
    for line in text.splitlines():
        row, end, svtype, svlen = line.split("\t")
        variant = StructuralVariant(int(end), svtype, svlen)
        if not (0 <= int(row) < len(position) and variant.is_valid(int(position[int(row)]))):
            raise ValueError(f"an invalid structural variant: {line!r}")
        found[int(row)] = variant
    return found


def read_site_table(chrom: str, section: Callable[[str], bytes]) -> SiteTable:
    """Decode a table with rounded genetic positions. For parameters and errors, see `decode_sites`."""
    position, cM = decode_increasing(section("position")), decode_increasing(section("cM")) * CM_UNIT
    count = decode_counts(section("allele_count"))
    if not len(position) == len(cM) == len(count):
        raise ValueError(f"{len(position)} positions, {len(cM)} cM and {len(count)} allele counts")
    check_increasing(position, *POSITIONS)
    check_increasing(cM, *GENETIC_POSITIONS)
    return SiteTable(decode_sites(chrom, position, section), cM, count)


def encode_rounded_cM(cM: np.ndarray) -> bytes:
    """Encode genetic positions, rounded to CM_UNIT."""
    return encode_increasing(np.rint(cM / CM_UNIT).astype(np.int64))


def encode_cM(cM: np.ndarray) -> bytes:
    """Encode exact genetic positions, float64 (n,)."""
    return encode_increasing(_exchange_order(cM.astype("<f8").view("<i8")))


def decode_cM(content: bytes) -> np.ndarray:
    """Decode the genetic positions of `encode_cM`. Raises ValueError if the length is wrong."""
    return _exchange_order(decode_increasing(content)).view(np.float64)


def _exchange_order(bits: np.ndarray) -> np.ndarray:
    """Convert the bits of float64 numbers to int64 numbers that have the order of the floats, and back."""
    return np.where(bits < 0, bits ^ np.int64(2**63 - 1), bits)


def decode_counts(content: bytes) -> np.ndarray:
    """Decode allele counts, int64 (n,). Raises ValueError if the length is wrong."""
    return _from_byte_planes(content, "<u4").astype(np.int64)


def check_increasing(values: np.ndarray, minimum: float, maximum: float, message: str) -> None:
    """Raise ValueError with `message` unless values (n,) lie in [minimum, maximum] and never decrease."""
    if len(values) and not (
        values[0] >= minimum and values[-1] <= maximum and (values[1:] >= values[:-1]).all()
    ):
        raise ValueError(message)


def _to_byte_planes(values: np.ndarray) -> bytes:
    """Store the first bytes of all values, then the second bytes, and so on. High bytes are mostly zero."""
    return np.ascontiguousarray(values.view(np.uint8).reshape(len(values), values.itemsize).T).tobytes()


def _from_byte_planes(content: bytes, dtype: str) -> np.ndarray:
    width = np.dtype(dtype).itemsize
    planes = np.frombuffer(content, dtype=np.uint8).reshape(width, -1)
    return np.ascontiguousarray(planes.T).view(dtype).ravel()


def encode_increasing(values: np.ndarray) -> bytes:
    """Encode increasing integers, int64 (n,), as byte planes of their differences, which compress well."""
    return _to_byte_planes(np.diff(values, prepend=0).astype("<i8"))


def decode_increasing(content: bytes) -> np.ndarray:
    """Decode the integers of `encode_increasing`. Raises ValueError if the length is wrong."""
    return np.cumsum(_from_byte_planes(content, "<i8").astype(np.int64))
