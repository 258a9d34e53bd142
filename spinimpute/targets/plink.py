"""Read targets in PLINK formats: .bed with .bim and .fam, or .pgen with .pvar and .psam.

The optional library pgenlib reads the files: `pip install 'spinimpute[plink]'`.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from spinimpute.genotypes.haplotypes import Calls
from spinimpute.genotypes.sites import (
    LAST_POSITION,
    NO_ALT,
    ON_ANOTHER_CHROMOSOME,
    SYMBOLIC,
    NoRecord,
    Sites,
    choose_alleles,
    chromosome_names,
    complement,
    snp_alleles,
)
from spinimpute.runtime.errors import Code, InputError, repeated
from spinimpute.runtime.packages import explain_missing_packages
from spinimpute.runtime.unpacking import why_unreadable
from spinimpute.targets.array_text import NO_POSITION
from spinimpute.targets.liftover import INDEL_ON_OTHER_STRAND, NOT_IN_CHAIN, Lift

_BED_MAGIC = b"\x6c\x1b\x01"
_PLINK_MAGIC = b"\x6c\x1b"  # .bed and .pgen
_NO_ALLELE = frozenset({"0", ".", "", "-"})
_BASES = re.compile(r"[ACGTNacgtn]+")
_ALLELES_PER_READ = 16 * 2**20  # limits the memory of a read


class _PlinkSite(NamedTuple):
    """A biallelic site: a variant of the file with one of its ALT alleles."""

    position: int
    ref: str
    alt: str
    id: str
    variant: int  # index of the variant in the file
    allele: int  # index of the ALT allele in the variant, from 1
    swapped: bool  # whether `ref` and `alt` are swapped compared with the file


def is_plink(path: Path) -> bool:
    """Return whether a file is a .bed or .pgen, by its first bytes."""
    try:
        with path.open("rb") as file:
            return file.read(len(_PLINK_MAGIC)) == _PLINK_MAGIC
    except OSError:
        return False


def read_plink(path: Path, panel: Sites, contig_line: str, lift: Lift | None = None) -> Calls:
    """Read the calls of all samples on the panel's chromosome.

    `path` is the .bed or .pgen. `panel` are the sites of all parts of the panel. `lift` converts positions to
    the panel's genome build. Heterozygotes of a .bed are unphased. If a .bim has only one allele of a site,
    the other allele is taken from the panel. Raises InputError if pgenlib is not installed, a file is missing
    or damaged, or the samples have no names.
    """
    pgenlib = load_pgenlib()
    with path.open("rb") as file:
        bed = file.read(len(_BED_MAGIC)) == _BED_MAGIC
    variants = _companion(path, "variants", [".bim"] if bed else [".pvar", ".pvar.zst", ".bim"])
    names = _companion(path, "samples", [".fam"] if bed else [".psam", ".fam"])
    samples, sexes = _samples(names)
    if variants.suffix == ".bim":
        _check_bim(variants)
    with _reading(variants, "damaged", "Is it damaged?"):
        table = pgenlib.PvarReader(os.fsencode(variants))
    with _reading(path, "read", f"Is it complete, and do {variants.name} and {names.name} belong to it?"):
        reader = pgenlib.PgenReader(os.fsencode(path), raw_sample_ct=len(samples), pvar=table)
    skipped: Counter[str] = Counter()
    chroms = [_text(table.get_variant_chrom(variant)) for variant in range(table.get_variant_ct())]
    aliases = chromosome_names(panel.chrom, set(chroms))
    rows: list[_PlinkSite] = []
    panel_alleles = snp_alleles(panel)
    for variant, chrom in enumerate(chroms):
        if chrom in aliases:
            rows += _sites(table, variant, panel_alleles, lift, skipped)
        else:
            skipped[ON_ANOTHER_CHROMOSOME] += 1
    if not rows:
        first = next((variant for variant, chrom in enumerate(chroms) if chrom in aliases), None)
        alleles = [] if first is None else _alleles(table, first)
        if first is not None and not all(_BASES.fullmatch(a) for a in alleles if a not in _NO_ALLELE):
            raise NoRecord(
                "content",
                f"target {variants}, variant {first + 1}: its alleles are {'/'.join(alleles)}, and no "
                f"variant on chromosome {panel.chrom} has bases as alleles. Recode them (plink --alleleACGT "
                "for 1 to 4, or --update-alleles)",
            )
        raise NoRecord(
            "content",
            f"target {variants}: no usable variant on chromosome {panel.chrom}. The file has chromosome "
            f"{', '.join(list(dict.fromkeys(chroms))[:10])}",
        )
    rows.sort(key=lambda row: row.position)
    with closing(table), closing(reader), _reading(path, "damaged", "Is it damaged?"):
        calls, unphased = _read(reader, rows, len(samples))
    positions, ref, alt, ids, *_ = (list(column) for column in zip(*rows, strict=True))
    sites = Sites(panel.chrom, np.array(positions, np.int64), ref, alt, ids)
    unphased_or_none = unphased if unphased.any() else None
    return Calls(sites, calls, samples, contig_line, dict(skipped), unphased_or_none, sexes)


@contextmanager
def _reading(path: Path, code: Code, advice: str) -> Iterator[None]:
    """Convert errors of pgenlib in the `with` block to InputError."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        message = error.args[0] if error.args else type(error).__name__
        message = _text(message).strip() if isinstance(message, bytes | str) else message
        raise InputError(code, f"target {path}: cannot be read ({message}). {advice}") from error


def load_pgenlib() -> Any:
    """Import and return pgenlib. Raises InputError if it is not installed."""
    with explain_missing_packages("reading and writing PLINK files"):
        import pgenlib
    return pgenlib


def _companion(path: Path, kind: str, suffixes: list[str]) -> Path:
    """Return the file with the variants or samples of a .bed or .pgen: the first suffix that exists."""
    for suffix in suffixes:
        if path.with_suffix(suffix).is_file():
            return path.with_suffix(suffix)
    raise InputError(
        "not-found", f"target {path}: there is no {path.with_suffix(suffixes[0])} with its {kind}"
    )


def _samples(path: Path) -> tuple[list[str], dict[str, bool]]:
    """Read a .fam or .psam. Return the samples' names, and for samples of known sex whether they are male.

    The name is the individual ID (IID). If two samples have the same IID, all names become FID_IID.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError("read", f"target {path}: {why_unreadable(error)}") from error
    columns = {"FID": 0, "IID": 1, "SEX": 4}
    rows: list[tuple[str, str, str]] = []
    for number, line in enumerate(lines, start=1):
        fields = line.split()
        if line.startswith("#"):
            if fields[0] in ("#FID", "#IID"):
                columns = {name.lstrip("#"): column for column, name in enumerate(fields)}
                if "IID" not in columns:
                    raise InputError(
                        "content",
                        f"target {path}, line {number}: no column IID among {' '.join(fields)}. Add it",
                    )
            continue
        if not fields:
            continue
        if len(fields) <= columns["IID"]:
            raise InputError(
                "content",
                f"target {path}, line {number}: {len(fields)} columns, and none has the sample's ID",
            )
        family, sex = (
            fields[columns[name]] if name in columns and columns[name] < len(fields) else "0"
            for name in ("FID", "SEX")
        )
        rows.append((family, fields[columns["IID"]], sex))
    if not rows:
        raise InputError("content", f"target {path}: there are no samples in it")
    names = [iid for _, iid, _ in rows]
    if repeated(names) is not None:
        names = [f"{family}_{iid}" for family, iid, _ in rows]
    if (twice := repeated(names)) is not None:
        raise InputError("content", f"target {path}: two samples are named {twice}. Rename one of them")
    male = {"1": True, "M": True, "2": False, "F": False}
    sexes = {n: male[sex.upper()] for n, (_, _, sex) in zip(names, rows, strict=True) if sex.upper() in male}
    return names, sexes


def _check_bim(path: Path) -> None:
    """Raise InputError for lines that pgenlib would misread."""
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, start=1):
            fields = line.split()
            if len(fields) != 6:
                raise InputError(
                    "content", f"target {path}, line {number}: {len(fields)} columns, but a .bim has 6"
                )
            if not fields[3].lstrip("-").isdecimal():
                raise InputError(
                    "content", f"target {path}, line {number}: the position {fields[3]!r} is not a number"
                )


def _sites(
    table: Any,
    variant: int,
    panel_alleles: dict[int, list[tuple[str, str]]],
    lift: Lift | None,
    skipped: Counter[str],
) -> Iterator[_PlinkSite]:
    """Yield a site for each ALT allele of a variant. Count unusable variants and alleles in `skipped`."""
    position = int(table.get_variant_pos(variant))
    if not 1 <= position <= LAST_POSITION:
        skipped[NO_POSITION] += 1
        return
    alleles = _alleles(table, variant)
    if lift is not None:
        lifted = lift.convert(position)
        if lifted is None:
            skipped[NOT_IN_CHAIN] += 1
            return
        position, other_strand = lifted
        if other_strand and max(map(len, alleles)) > 1:
            skipped[INDEL_ON_OTHER_STRAND] += 1
            return
        alleles = list(map(complement, alleles)) if other_strand else alleles
    name = _text(table.get_variant_id(variant))
    ref, *alts = alleles
    for number, alt in enumerate(alts, start=1):
        if (ref in _NO_ALLELE) != (alt in _NO_ALLELE):
            known = alt if ref in _NO_ALLELE else ref
            if known.upper() not in {"A", "C", "G", "T"}:
                skipped[NO_ALT] += 1
                continue
            first, second = choose_alleles({known.upper()}, panel_alleles.get(position, []))
            # whether allele 0, the file's REF, is the second allele here
            swapped = (first == known.upper()) != (known == ref)
            yield _PlinkSite(position, first, second, name, variant, number, swapped)
        elif _BASES.fullmatch(ref) and _BASES.fullmatch(alt):
            yield _PlinkSite(position, ref, alt, name, variant, number, False)
        else:
            skipped[NO_ALT if alt in _NO_ALLELE else SYMBOLIC] += 1


def _alleles(table: Any, variant: int) -> list[str]:
    return [_text(table.get_allele_code(variant, i)) for i in range(table.get_allele_ct(variant))]


def _read(reader: Any, rows: list[_PlinkSite], n_samples: int) -> tuple[np.ndarray, np.ndarray]:
    """Read the calls, int8 (S, X, 2), and a mask of unphased heterozygotes, bool (S, X)."""
    calls = np.empty((len(rows), n_samples, 2), np.int8)
    unphased = np.zeros((len(rows), n_samples), bool)
    step = max(1, _ALLELES_PER_READ // (8 * n_samples))
    for start in range(0, len(rows), step):
        block = rows[start : start + step]
        alleles = np.empty((len(block), 2 * n_samples), np.int32)
        phased = np.empty((len(block), n_samples), np.uint8)
        variants = np.array([row.variant for row in block], np.uint32)
        reader.read_alleles_and_phasepresent_list(variants, alleles, phased)
        is_alt = alleles == np.array([row.allele for row in block])[:, None]
        swapped = np.array([row.swapped for row in block])[:, None]
        coded = np.where(alleles < 0, -1, is_alt ^ swapped).reshape(len(block), n_samples, 2)
        calls[start : start + step] = coded
        unphased[start : start + step] = (coded[:, :, 0] != coded[:, :, 1]) & (phased == 0)
    return calls, unphased


def _text(name: bytes | str) -> str:
    return name.decode("utf-8", "replace") if isinstance(name, bytes) else name
