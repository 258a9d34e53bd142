"""The sites of a panel that an array has, by a VCF or BCF of the array, or by a list of positions."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from spinimpute.genotypes.sites import (
    NO_ALT,
    ON_ANOTHER_CHROMOSOME,
    Sites,
    chromosome_names,
    is_position,
)
from spinimpute.runtime.errors import InputError, why_no_file
from spinimpute.runtime.unpacking import open_text, text_lines
from spinimpute.vcf.variant_file import VariantFile, starts_as_variant_file

NOT_IN_PANEL = "not in the panel"
DUPLICATE = "named before"


class NoPanelSite(InputError):
    """An array has no site in common with a panel."""


@dataclass
class PanelArray:
    """The sites of a panel that an array has.

    `panel_index`, int64 (T,), are the panel's sites, increasing. `n_sites` counts the sites of the array's
    file on any chromosome, and `skipped` those that were not taken, by reason.
    """

    panel_index: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    n_sites: int = 0
    skipped: Counter[str] = field(default_factory=Counter)


class _ArraySite(NamedTuple):
    chrom: str
    position: int
    ref: str | None  # None: unknown
    alt: str | None


def read_array(path: str | Path, panel: Sites, frequency: np.ndarray) -> PanelArray:
    """Find the sites of a panel that an array has.

    The file is a VCF, VCF.gz or BCF, whose genotypes are not read, or text, perhaps gzipped: lines of
    chromosome, 1-based position and optionally REF and ALT, separated by blanks. A first line with names of
    columns and lines that start with # are ignored. Without alleles, and with several panel sites at the
    position, the site with the ALT `frequency` nearest to 0.5 is taken.

    Raises InputError if the file cannot be read, has another format, or has no site of the panel
    (`NoPanelSite`).
    """
    path = Path(path)
    if not path.is_file():
        raise InputError("not-found", f"array {path}: {why_no_file(path)}")
    found = PanelArray()
    site_of = {key: i for i, key in reversed(list(enumerate(panel.keys())))}
    chosen: set[int] = set()
    others: set[str] = set()
    listed_sites = _records(path, found) if starts_as_variant_file(path) else _lines(path)
    sites = Counter(listed_sites)  # a line may be repeated a million times
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
            f"array {path}: none of its {found.n_sites} sites is in the panel, {where}"
            + (f" ({counts})" if counts else "")
            + (f". The file has chromosome {', '.join(sorted(others)[:5])}" if others else "")
            + ". Give the array's sites on this chromosome, in the panel's genome build",
        )
    found.panel_index = np.array(sorted(chosen), dtype=np.int64)
    return found


def _records(path: Path, found: PanelArray) -> Iterator[_ArraySite]:
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
