"""Find the panel sites that a genotyping array reads, from a VCF or BCF or from a list of positions.

A .spip panel is built for one array, and training simulates arrays with these sites.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from spinimpute.genotypes.sites import NO_ALT, ON_ANOTHER_CHROMOSOME, Sites, chromosome_names, is_position
from spinimpute.runtime.errors import InputError, why_no_file
from spinimpute.runtime.unpacking import open_text, text_lines, why_unreadable
from spinimpute.vcf.variant_file import VariantFile, starts_as_variant_file

NOT_IN_PANEL = "not in the panel"
DUPLICATE = "named before"


class NoPanelSite(InputError):
    """None of the array's sites is in the panel."""


@dataclass
class PanelArray:
    """The panel sites that an array reads.

    `panel_index`, int64 (T,), are their indices in the panel, increasing. `n_sites` is the number of sites in
    the array's file, on all chromosomes. `skipped` counts the sites that were not used, by reason.
    """

    panel_index: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    n_sites: int = 0
    skipped: Counter[str] = field(default_factory=Counter)


class _ArraySite(NamedTuple):
    """A site of the array's file; `ref` and `alt` are None if the file has no alleles."""

    chrom: str
    position: int
    ref: str | None
    alt: str | None


def read_array(path: str | Path, panel: Sites, frequency: np.ndarray) -> PanelArray:
    """Find the panel sites that an array reads.

    The file is a VCF, VCF.gz or BCF, whose genotypes are ignored, or a text file, plain or gzipped. A line of
    text has chromosome, 1-based position and optionally REF and ALT, separated by blanks. Lines that start
    with #, and a first line with column names, are ignored. If a line has no alleles and the panel has
    several sites at its position, the site whose ALT `frequency` is nearest to 0.5 is used.

    Raises InputError if the file cannot be read or has another format, and NoPanelSite if none of its sites
    is in the panel.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError("not-found", f"array {path}: {why_no_file(path)}")
    array = PanelArray()
    listed_sites = _records(path, array) if starts_as_variant_file(path) else _lines(path)
    count_by_site = Counter(listed_sites)  # some files repeat a line a million times
    aliases = chromosome_names(panel.chrom, {site.chrom for site in count_by_site})
    index_by_key = {key: i for i, key in reversed(list(enumerate(panel.keys())))}
    chosen: set[int] = set()
    other_chromosomes: set[str] = set()
    for site, count in count_by_site.items():
        array.n_sites += count
        if site.chrom not in aliases:
            other_chromosomes.add(site.chrom)
            array.skipped[ON_ANOTHER_CHROMOSOME] += count
            continue
        index = _find_panel_site(site, panel, index_by_key, frequency)
        if index is None:
            array.skipped[NOT_IN_PANEL] += count
            continue
        if n_duplicates := count - (index not in chosen):
            array.skipped[DUPLICATE] += n_duplicates
        chosen.add(index)
    if not chosen:
        covered = f"{panel.chrom}:{panel.position[0]}-{panel.position[-1]}"
        counts = ", ".join(f"{reason}: {count}" for reason, count in array.skipped.items())
        raise NoPanelSite(
            "mismatch",
            f"array {path}: none of its {array.n_sites} sites is in the panel, which covers {covered}"
            + (f" ({counts})" if counts else "")
            + (
                f". The file has chromosome {', '.join(sorted(other_chromosomes)[:5])}"
                if other_chromosomes
                else ""
            )
            + ". Give the array's sites on this chromosome, in the panel's genome build",
        )
    array.panel_index = np.array(sorted(chosen), dtype=np.int64)
    return array


def _find_panel_site(
    site: _ArraySite, panel: Sites, index_by_key: Mapping[tuple[int, str, str], int], frequency: np.ndarray
) -> int | None:
    """Return the index of the panel site that an array's site means, or None if the panel lacks it."""
    if site.ref is not None and site.alt is not None:
        return index_by_key.get((site.position, site.ref.upper(), site.alt.upper()))
    start, stop = np.searchsorted(panel.position, [site.position, site.position + 1]).tolist()
    return start + int(np.argmin(np.abs(frequency[start:stop] - 0.5))) if start < stop else None


def _records(path: Path, array: PanelArray) -> Iterator[_ArraySite]:
    """Yield the sites of a VCF or BCF. Count records without an ALT of bases in `array`."""
    with VariantFile(path, "array") as file:
        for record in file.records():
            ref, alleles = file.alleles(record)
            alts = [alt for alt in alleles if alt.isalpha()]
            for alt in alts:
                yield _ArraySite(record.CHROM, record.POS, ref, alt)
            if not alts:
                array.n_sites += 1
                array.skipped[NO_ALT] += 1


def _lines(path: Path) -> Iterator[_ArraySite]:
    """Yield the sites of a text file."""
    try:
        with open_text(path) as file:
            for number, line in enumerate(text_lines(file), start=1):
                words = line.split()
                names_columns = number == 1 and len(words) > 1 and not any(map(is_position, words))
                if not words or line.startswith("#") or names_columns:
                    continue
                if len(words) not in (2, 4) or not is_position(words[1]):
                    raise InputError(
                        "content",
                        f"array {path}, line {number}: expected chromosome, position and optionally REF and "
                        f"ALT, got {line.strip()[:60]!r}",
                    )
                ref, alt = words[2:] or (None, None)
                yield _ArraySite(words[0], int(words[1]), ref, alt)
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise InputError("read", f"array {path}: {why_unreadable(error)}") from error
