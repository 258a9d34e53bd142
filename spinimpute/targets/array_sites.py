"""Find the panel sites that a genotyping array reads, from a VCF or BCF or from a list of positions.

A .spip panel is built for one array, and training simulates arrays with these sites.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from spinimpute.genotypes.sites import NO_ALT, ON_ANOTHER_CHROMOSOME, Sites, chromosome_names, is_position
from spinimpute.runtime.errors import InputError, why_no_file
from spinimpute.runtime.unpacking import open_text, text_lines
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
    with # and a first line with column names are ignored. If a line has no alleles and the panel has several
    sites at its position, the site whose ALT `frequency` is nearest to 0.5 is used.

    Raises InputError if the file cannot be read or has another format, and NoPanelSite if none of its sites
    is in the panel.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError("not-found", f"array {path}: {why_no_file(path)}")
    found = PanelArray()
    site_of = {key: i for i, key in reversed(list(enumerate(panel.keys())))}
    chosen: set[int] = set()
    others: set[str] = set()
    listed_sites = _records(path, found) if starts_as_variant_file(path) else _lines(path)
    sites = Counter(listed_sites)  # some files repeat a line a million times
    aliases = chromosome_names(panel.chrom, {listed.chrom for listed in sites})
    for listed, count in sites.items():
        found.n_sites += count
        if listed.chrom not in aliases:
            others.add(listed.chrom)
            found.skipped[ON_ANOTHER_CHROMOSOME] += count
            continue
        if listed.ref is not None and listed.alt is not None:
            site = site_of.get((listed.position, listed.ref.upper(), listed.alt.upper()))
        else:
            first, stop = np.searchsorted(panel.position, [listed.position, listed.position + 1]).tolist()
            site = first + int(np.argmin(np.abs(frequency[first:stop] - 0.5))) if first < stop else None
        if site is None:
            found.skipped[NOT_IN_PANEL] += count
        else:
            if again := count - (site not in chosen):
                found.skipped[DUPLICATE] += again
            chosen.add(site)
    if not chosen:
        where = f"{panel.chrom}:{panel.position[0]}-{panel.position[-1]}"
        counts = ", ".join(f"{reason}: {count}" for reason, count in found.skipped.items())
        raise NoPanelSite(
            "mismatch",
            f"array {path}: none of its {found.n_sites} sites is in the panel, which covers {where}"
            + (f" ({counts})" if counts else "")
            + (f". The file has chromosome {', '.join(sorted(others)[:5])}" if others else "")
            + ". Give the array's sites on this chromosome, in the panel's genome build",
        )
    found.panel_index = np.array(sorted(chosen), dtype=np.int64)
    return found


def _records(path: Path, found: PanelArray) -> Iterator[_ArraySite]:
    """Yield the sites of a VCF or BCF. Count records without an ALT of bases in `found`."""
    with VariantFile(path, "array") as file:
        for record in file.records():
            ref, alleles = file.alleles(record)
            alts = [alt for alt in alleles if alt.isalpha()]
            for alt in alts:
                yield _ArraySite(record.CHROM, record.POS, ref, alt)
            if not alts:
                found.n_sites += 1
                found.skipped[NO_ALT] += 1


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
                        f"ALT, or a VCF or BCF, got {line.strip()[:60]!r}",
                    )
                ref, alt = words[2:] or (None, None)
                yield _ArraySite(words[0], int(words[1]), ref, alt)
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise InputError("read", f"array {path}: cannot be read ({error})") from error
