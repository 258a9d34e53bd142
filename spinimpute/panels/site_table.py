"""Sites, genetic positions and allele counts as few bytes: the columns that a compressor likes."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from spinimpute.genotypes.sites import Sites

CM_UNIT = 1e-8  # genetic positions are kept as whole multiples; a base pair is about 1e-6 cM


class SiteTable(NamedTuple):
    """cM: float64 (n,), within 5e-9 of what was written; allele_count: int64 (n,)."""

    sites: Sites
    cM: np.ndarray
    allele_count: np.ndarray


def write_site_table(table: SiteTable, add_section: Callable[[str, bytes], None]) -> None:
    sites = table.sites
    add_section("position", _differences(sites.position))
    add_section("cM", _differences(np.rint(table.cM / CM_UNIT).astype(np.int64)))
    add_section("allele_count", _planes(table.allele_count.astype("<u4")))
    for name in ("ref", "alt", "id"):
        add_section(name, "\n".join(getattr(sites, name)).encode())


def read_site_table(chrom: str, section: Callable[[str], bytes]) -> SiteTable:
    """section: what gives a section's content by its name."""
    position = _sums(section("position"))
    ref, alt, name = (section(key).decode().split("\n") for key in ("ref", "alt", "id"))
    count = _from_planes(section("allele_count"), "<u4").astype(np.int64)
    return SiteTable(Sites(chrom, position, ref, alt, name), _sums(section("cM")) * CM_UNIT, count)


def write_increasing(index: np.ndarray) -> bytes:
    """Increasing integers int64 (n,), for `read_increasing`."""
    return _differences(index)


def read_increasing(content: bytes) -> np.ndarray:
    return _sums(content)


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
