"""The table of sites in panel files: raw columns for memory maps, or columns that a compressor likes.

Texts (ref, alt, id) are UTF-8 with a line for each site in both. Numbers are little-endian: raw, they are
int64 positions, float64 cM, uint32 allele counts and bits of `multiallelic` in the order of `numpy.packbits`.
For a compressor, positions and cM (in units of 1e-8) are differences, and of all numbers the first bytes come
first, then the second ones, and so on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from spinimpute.genotypes.sites import LAST_POSITION, Sites

CM_UNIT = 1e-8  # genetic positions are kept as whole multiples; a base pair is about 1e-6 cM
TABLE_SECTIONS = ("position", "cM", "allele_count", "ref", "alt", "id", "multiallelic")
DISCORDANCE, CONFIRMED = "discordance", "confirmed"  # sections beside them, see `trust.site_trust`
_TEXTS = ("ref", "alt", "id")


class SiteTable(NamedTuple):
    """Sites of a panel.

    Attributes
    ----------
    sites : Sites
        n of them.
    cM : float64 (n,)
        Genetic positions; of a compressed table within 5e-9 of what was written.
    allele_count : int64 (n,)
        Haplotypes with the ALT allele.
    """

    sites: Sites
    cM: np.ndarray
    allele_count: np.ndarray


def encode_raw_table(table: SiteTable, multiallelic: np.ndarray) -> dict[str, bytes]:
    """The sections of a table that is not compressed.

    Parameters
    ----------
    table : SiteTable
        n sites.
    multiallelic : bool (n,)
        Sites split from a multi-allelic record.

    Returns
    -------
    dict of str to bytes
        The sections TABLE_SECTIONS.
    """
    return {
        "position": table.sites.position.astype("<i8").tobytes(),
        "cM": table.cM.astype("<f8").tobytes(),
        "allele_count": table.allele_count.astype("<u4").tobytes(),
        **_encode_texts(table.sites),
        "multiallelic": np.packbits(multiallelic).tobytes(),
    }


def decode_texts(section: Callable[[str], bytes], n_sites: int) -> tuple[list[str], list[str], list[str]]:
    """REF, ALT and ID of all sites.

    Parameters
    ----------
    section : callable
        Gives a section's content by its name.
    n_sites : int
        The number of sites that there must be.

    Returns
    -------
    ref, alt, id : list of str
        One text for each site.

    Raises
    ------
    ValueError
        A section is no UTF-8 text of a VCF's columns, or has another number of sites.
    """
    texts = [section(key).decode() for key in _TEXTS]
    if any(character in text for text in texts for character in "\0\t\r"):
        raise ValueError("letters that no column of a VCF can hold")
    ref, alt, name = (text.split("\n") for text in texts)
    for column in (ref, alt, name):
        if len(column) != n_sites:
            raise ValueError(f"{len(column)} entries for {n_sites} sites")
    return ref, alt, name


def write_site_table(table: SiteTable, add_section: Callable[[str, bytes], None]) -> None:
    """Write a table for a compressor.

    Parameters
    ----------
    table : SiteTable
        The table.
    add_section : callable
        (name, content) -> None, called with each section.
    """
    sites = table.sites
    add_section("position", _differences(sites.position))
    add_section("cM", _differences(np.rint(table.cM / CM_UNIT).astype(np.int64)))
    add_section("allele_count", _planes(table.allele_count.astype("<u4")))
    for name, content in _encode_texts(sites).items():
        add_section(name, content)


def read_site_table(chrom: str, section: Callable[[str], bytes]) -> SiteTable:
    """Read what `write_site_table` wrote.

    Parameters
    ----------
    chrom : str
        The chromosome's name.
    section : callable
        Gives a section's content by its name.

    Returns
    -------
    SiteTable
        All sites.

    Raises
    ------
    ValueError
        The sections are not of one table.
    """
    position, cM = _sums(section("position")), _sums(section("cM")) * CM_UNIT
    count = _from_planes(section("allele_count"), "<u4").astype(np.int64)
    if not len(position) == len(cM) == len(count):
        raise ValueError(f"{len(position)} positions, {len(cM)} cM and {len(count)} allele counts")
    check_positions(position)
    check_cM(cM)
    return SiteTable(Sites(chrom, position, *decode_texts(section, len(position))), cM, count)


def check_positions(position: np.ndarray) -> None:
    """Raise ValueError unless positions, int64 (n,), are such as a chromosome has, and never decrease."""
    if len(position) and not (
        position[0] >= 1 and position[-1] <= LAST_POSITION and (position[1:] >= position[:-1]).all()
    ):
        raise ValueError(f"positions must lie in 1 to {LAST_POSITION} and never decrease")


def check_cM(cM: np.ndarray) -> None:
    """Raise ValueError unless genetic positions, float64 (n,), are numbers and never decrease."""
    if len(cM) and not (np.isfinite(cM[[0, -1]]).all() and (cM[1:] >= cM[:-1]).all()):
        raise ValueError("genetic positions must be numbers and never decrease")


def write_increasing(index: np.ndarray) -> bytes:
    """Increasing integers, int64 (n,), as bytes for `read_increasing`."""
    return _differences(index)


def read_increasing(content: bytes) -> np.ndarray:
    """Read what `write_increasing` wrote.

    Parameters
    ----------
    content : bytes
        Of the section.

    Returns
    -------
    int64 (n,)
        The integers.

    Raises
    ------
    ValueError
        It is no such content.
    """
    return _sums(content)


def _encode_texts(sites: Sites) -> dict[str, bytes]:
    return {name: "\n".join(getattr(sites, name)).encode() for name in _TEXTS}


def _planes(values: np.ndarray) -> bytes:
    """First bytes of all values first: the high ones are mostly zero."""
    return np.ascontiguousarray(values.view(np.uint8).reshape(len(values), values.itemsize).T).tobytes()


def _from_planes(content: bytes, dtype: str) -> np.ndarray:
    width = np.dtype(dtype).itemsize
    planes = np.frombuffer(content, dtype=np.uint8).reshape(width, -1)
    return np.ascontiguousarray(planes.T).view(dtype).ravel()


def _differences(values: np.ndarray) -> bytes:
    return _planes(np.diff(values, prepend=0).astype("<i8"))


def _sums(content: bytes) -> np.ndarray:
    return np.cumsum(_from_planes(content, "<i8").astype(np.int64))
