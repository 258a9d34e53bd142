"""Targets in PLINK formats: .bed with .bim and .fam, or .pgen with .pvar and .psam.

pgenlib reads the variants of one chromosome. It is an optional requirement: `pip install
'spinimpute[plink]'`.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
from spinimpute.runtime.errors import InputError, repeated
from spinimpute.targets.array_text import NO_PLACE
from spinimpute.targets.liftover import INDEL_TURNED, NOT_IN_CHAIN, Lift

_BED_MAGIC = b"\x6c\x1b\x01"
_PLINK_MAGIC = b"\x6c\x1b"
_NO_ALLELE = frozenset({"0", ".", "", "-"})
_BASES = re.compile(r"[ACGTNacgtn]+")
_BLOCK_ALLELES = 16 * 2**20  # read at once


@dataclass(frozen=True)
class _PlinkSite:
    """A biallelic site: numbers of variant and ALT in the file, and whether REF and ALT are swapped."""

    position: int
    variant: int
    allele: int
    ref: str
    alt: str
    id: str
    swapped: bool


def is_plink(path: Path) -> bool:
    """Whether a file starts as .bed and .pgen files do."""
    return _starts_with(path, _PLINK_MAGIC)


def read_plink(path: Path, panel: Sites, contig_line: str, lift: Lift | None = None) -> Calls:
    """Read the calls of all samples on the panel's chromosome.

    Heterozygotes of a .bed are unphased. If a .bim has only one allele of a site, the other one is the
    panel's. `path` is the .bed or .pgen, `panel` are the sites of all parts of the panel, and `lift` leads to
    its build. Raises InputError if pgenlib is not installed, a file is missing or damaged, or the samples
    have no names.
    """
    pgenlib = load_pgenlib()
    bed = _starts_with(path, _BED_MAGIC)
    variants, names = (_beside(path, bed, kind) for kind in ("variants", "samples"))
    samples, sexes = _samples(names)
    if variants.suffix == ".bim":
        _check_bim(variants)
    try:
        table = pgenlib.PvarReader(os.fsencode(variants))
    except (RuntimeError, MemoryError) as error:
        raise InputError(
            "damaged", f"target {variants}: cannot be read ({_message(error)}). Is it damaged?"
        ) from error
    try:
        reader = pgenlib.PgenReader(os.fsencode(path), raw_sample_ct=len(samples), pvar=table)
    except (RuntimeError, MemoryError) as error:
        raise InputError(
            "read",
            f"target {path}: cannot be read ({_message(error)}). Is it complete, and do {variants.name} and "
            f"{names.name} belong to it?",
        ) from error
    skipped: Counter[str] = Counter()
    rows = sorted(_rows(table, panel, lift, skipped), key=lambda row: row.position)
    if not rows:
        if no_bases := _no_bases(table, panel.chrom):
            raise NoRecord("content", f"target {variants}{no_bases}")
        found = list(dict.fromkeys(_text(table.get_variant_chrom(i)) for i in range(table.get_variant_ct())))
        raise NoRecord(
            "content",
            f"target {variants}: no usable variant on chromosome {panel.chrom}. The file has chromosome "
            f"{', '.join(found[:10])}",
        )
    try:
        calls, unphased = _read(reader, rows, len(samples))
    except (RuntimeError, MemoryError) as error:
        raise InputError(
            "damaged", f"target {path}: cannot be read ({_message(error)}). Is it damaged?"
        ) from error
    finally:
        reader.close()
        table.close()
    sites = Sites(
        panel.chrom,
        np.array([row.position for row in rows], np.int64),
        [row.ref for row in rows],
        [row.alt for row in rows],
        [row.id for row in rows],
    )
    none = unphased if unphased.any() else None
    return Calls(sites, calls, samples, contig_line, dict(skipped), none, sexes)


def load_pgenlib() -> Any:
    """Import the library for PLINK files; raises InputError if it is not installed."""
    try:
        import pgenlib
    except ImportError as error:
        raise InputError("package", "PLINK files need pgenlib: pip install 'spinimpute[plink]'") from error
    return pgenlib


def _starts_with(path: Path, magic: bytes) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(magic)) == magic
    except OSError:
        return False


def _beside(path: Path, bed: bool, kind: str) -> Path:
    """The file of variants or samples that belongs to a .bed or .pgen."""
    suffixes = {
        "variants": [".bim"] if bed else [".pvar", ".pvar.zst", ".bim"],
        "samples": [".fam"] if bed else [".psam", ".fam"],
    }[kind]
    for suffix in suffixes:
        if path.with_suffix(suffix).is_file():
            return path.with_suffix(suffix)
    raise InputError(
        "not-found", f"target {path}: there is no {path.with_suffix(suffixes[0])} with its {kind}"
    )


def _samples(path: Path) -> tuple[list[str], dict[str, bool]]:
    """Names of the samples, and which of them are male, if the file has sexes.

    A name is the second column of a .fam, with the family in front if names are repeated.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError("read", f"target {path}: cannot be read ({error})") from error
    columns = {"FID": 0, "IID": 1, "SEX": 4}
    rows: list[tuple[str, str, str]] = []
    for number, line in enumerate(lines, start=1):
        fields = line.split()
        if line.startswith("#"):
            if fields[0] in ("#FID", "#IID"):
                columns = {name.lstrip("#"): place for place, name in enumerate(fields)}
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


def _rows(table: Any, panel: Sites, lift: Lift | None, skipped: Counter[str]) -> Iterator[_PlinkSite]:
    chroms = [_text(table.get_variant_chrom(variant)) for variant in range(table.get_variant_ct())]
    meant = chromosome_names(panel.chrom, set(chroms))
    places = snp_alleles(panel)
    for variant, chrom in enumerate(chroms):
        if chrom not in meant:
            skipped[ON_ANOTHER_CHROMOSOME] += 1
            continue
        position = int(table.get_variant_pos(variant))
        if not 1 <= position <= LAST_POSITION:
            skipped[NO_PLACE] += 1
            continue
        other_strand = False
        if lift is not None:
            place = lift.place(position)
            if place is None:
                skipped[NOT_IN_CHAIN] += 1
                continue
            position, other_strand = place
        name = _text(table.get_variant_id(variant))
        count = int(table.get_allele_ct(variant))
        ref, *alts = (_text(table.get_allele_code(variant, i)) for i in range(count))
        if other_strand:
            if max(map(len, (ref, *alts))) > 1:
                skipped[INDEL_TURNED] += 1
                continue
            ref, *alts = map(complement, (ref, *alts))
        for allele, alt in enumerate(alts, start=1):
            if (ref in _NO_ALLELE) != (alt in _NO_ALLELE):
                known = alt if ref in _NO_ALLELE else ref
                if known.upper() not in {"A", "C", "G", "T"}:
                    skipped[NO_ALT] += 1
                    continue
                first, second = choose_alleles({known.upper()}, places.get(position, []))
                # calls count `known` as the file does: REF is 0
                swapped = (first == known.upper()) != (known == ref)
                yield _PlinkSite(position, variant, allele, first, second, name, swapped)
            elif _BASES.fullmatch(ref) and _BASES.fullmatch(alt):
                yield _PlinkSite(position, variant, allele, ref, alt, name, False)
            else:
                skipped[NO_ALT if alt in _NO_ALLELE else SYMBOLIC] += 1


def _no_bases(table: Any, chrom: str) -> str:
    """Number and alleles of the first variant on a chromosome, for a message; "" if the alleles are bases."""
    chroms = [_text(table.get_variant_chrom(variant)) for variant in range(table.get_variant_ct())]
    meant = chromosome_names(chrom, set(chroms))
    for variant in (number for number, name in enumerate(chroms) if name in meant):
        alleles = [_text(table.get_allele_code(variant, i)) for i in range(table.get_allele_ct(variant))]
        if all(_BASES.fullmatch(allele) for allele in alleles if allele not in _NO_ALLELE):
            return ""
        return (
            f", variant {variant + 1}: its alleles are {'/'.join(alleles)}, and no variant on chromosome "
            f"{chrom} has letters of bases. Recode them (plink --alleleACGT for 1 to 4, or --update-alleles)"
        )
    return ""


def _read(reader: Any, rows: list[_PlinkSite], n_samples: int) -> tuple[np.ndarray, np.ndarray]:
    """Read the calls, int8 (S, X, 2), and which of them are unphased, bool (S, X)."""
    calls = np.empty((len(rows), n_samples, 2), np.int8)
    unphased = np.zeros((len(rows), n_samples), bool)
    step = max(1, _BLOCK_ALLELES // (8 * n_samples))
    for start in range(0, len(rows), step):
        block = rows[start : start + step]
        alleles = np.empty((len(block), 2 * n_samples), np.int32)
        phased = np.empty((len(block), n_samples), np.uint8)
        variants = np.array([row.variant for row in block], np.uint32)
        reader.read_alleles_and_phasepresent_list(variants, alleles, phased)
        of_alt = alleles == np.array([row.allele for row in block])[:, None]
        swapped = np.array([row.swapped for row in block])[:, None]
        coded = np.where(alleles < 0, -1, of_alt ^ swapped).reshape(len(block), n_samples, 2)
        calls[start : start + step] = coded
        unphased[start : start + step] = (coded[:, :, 0] != coded[:, :, 1]) & (phased == 0)
    return calls, unphased


def _text(name: bytes | str) -> str:
    return name.decode("utf-8", "replace") if isinstance(name, bytes) else name


def _message(error: BaseException) -> str:
    message = error.args[0] if error.args else type(error).__name__
    return _text(message).strip() if isinstance(message, bytes | str) else str(message)
