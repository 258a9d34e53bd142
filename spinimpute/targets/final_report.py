"""Read targets from a FinalReport, the text file that Illumina's GenomeStudio exports.

It has a header and a table, in which each row is the call of one sample at one site. Alleles are bases; the
names of their columns state the strand.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from spinimpute.genotypes.haplotypes import Calls
from spinimpute.genotypes.sites import (
    LAST_POSITION,
    ON_ANOTHER_CHROMOSOME,
    NoRecord,
    Sites,
    choose_alleles,
    chromosome_names,
    complement,
    same_chromosome,
    snp_alleles,
)
from spinimpute.runtime.errors import InputError, repeated
from spinimpute.targets.array_text import NO_ALLELES, NO_POSITION
from spinimpute.targets.liftover import NOT_IN_CHAIN, Lift

if TYPE_CHECKING:
    import pandas as pd  # slow to import, and few targets are reports

_FIRST_LINE = b"[Header]"
_DATA = "[Data]"
_MAX_HEADER_LINES = 100
# In order of preference. Plus is the strand of the reference genome; the others vary between sites.
_STRANDS = ("Plus", "Forward", "Top", "Design")
_ROWS_PER_READ = 1_000_000
_MISSING = frozenset({"-", "0", ""})


class _Columns(NamedTuple):
    """Header of the table: its line number in the file, the separator, and which columns to read."""

    line: int
    separator: str
    names: dict[str, str]  # column name in the file -> column name here


def is_final_report(path: Path) -> bool:
    """Return whether a file starts with the first line of a FinalReport."""
    try:
        with path.open("rb") as file:
            return file.read(64).lstrip(b"\xef\xbb\xbf").startswith(_FIRST_LINE)
    except OSError:
        return False


def read_final_report(path: Path, panel: Sites, contig_line: str, lift: Lift | None = None) -> Calls:
    """Read the unphased calls of all samples on the panel's chromosome. REF and ALT are the panel's.

    `panel` are the sites of all parts of the panel. `lift` converts positions to the panel's genome build.
    Raises InputError if the report is truncated, has no table, lacks a required column, or has no call on
    the chromosome.
    """
    import pandas as pd

    rows, n_elsewhere = _read_rows(path, _find_columns(path), panel.chrom)
    if not len(rows):
        raise NoRecord("content", f"target {path}: no call on chromosome {panel.chrom}")
    position = pd.to_numeric(rows["position"], errors="coerce").to_numpy(np.float64)
    has_position = (position >= 1) & (position <= LAST_POSITION) & (position % 1 == 0)
    not_in_chain = np.zeros(len(rows), bool)
    bases = np.char.upper(rows[["first", "second"]].to_numpy(dtype=str))  # one row per call
    if lift is not None:
        position, other_strand, not_in_chain = _lift_positions(position, has_position, lift)
        bases[other_strand] = np.vectorize(complement, otypes=[bases.dtype])(bases[other_strand])
    bases = np.where(np.isin(bases, list(_MISSING)), "", bases)
    has_bases = np.isin(bases, ["", "A", "C", "G", "T"]).all(axis=1)
    skipped = {
        ON_ANOTHER_CHROMOSOME: n_elsewhere,
        NO_POSITION: int(rows["name"][~has_position].nunique()),
        NO_ALLELES: int(rows["name"][has_position & ~has_bases].nunique()),
        NOT_IN_CHAIN: int(rows["name"][not_in_chain].nunique()),
    }
    usable = has_position & has_bases & ~not_in_chain
    if not usable.any():
        raise NoRecord(
            "content", f"target {path}: no call on chromosome {panel.chrom} has a position and bases"
        )
    rows, bases = rows[usable], bases[usable]
    key = pd.MultiIndex.from_arrays([position[usable].astype(np.int64), rows["name"]])
    site_of_row, keys = pd.factorize(key, sort=True)
    sample_of_row, samples = pd.factorize(rows["sample"])
    repeated_call = pd.Series(site_of_row.astype(np.int64) << 32 | sample_of_row).duplicated().to_numpy()
    if repeated_call.any():
        row = rows.iloc[int(repeated_call.argmax())]
        raise InputError(
            "content",
            f"target {path}: the call of {row['name']} in sample {row['sample']} is repeated. Rename one of "
            "the samples if two have the same name",
        )
    positions, names = zip(*keys, strict=True)
    ref, alt = _choose_site_alleles(panel, positions, site_of_row, bases)
    calls = np.full((len(keys), len(samples), 2), -1, np.int8)
    is_alt = bases == alt[site_of_row][:, None]
    called = ((bases == ref[site_of_row][:, None]) | is_alt).all(axis=1)
    calls[site_of_row[called], sample_of_row[called]] = np.sort(is_alt[called].astype(np.int8), axis=1)
    unphased = calls[:, :, 0] != calls[:, :, 1]
    return Calls(
        Sites(panel.chrom, np.array(positions, np.int64), ref.tolist(), alt.tolist(), list(map(str, names))),
        calls,
        [str(name) for name in samples],
        contig_line,
        {reason: count for reason, count in skipped.items() if count},
        unphased if unphased.any() else None,
    )


def _find_columns(path: Path) -> _Columns:
    """Find the table's header. Raises InputError if a required column is missing or a name is repeated."""
    line, columns, separator = _find_table(path)
    if (twice := repeated(columns)) is not None:
        raise InputError(
            "content", f"target {path}, line {line}: two columns are named {twice}. Export the report again"
        )
    strand = next((s for s in _STRANDS if {f"Allele1 - {s}", f"Allele2 - {s}"} <= set(columns)), None)
    sample = next((name for name in ("Sample ID", "Sample Name") if name in columns), None)
    missing = [name for name in ("SNP Name", "Chr", "Position") if name not in columns]
    missing += [] if sample else ["Sample ID"]
    missing += [] if strand else ["Allele1 - Plus", "Allele2 - Plus"]
    if missing:
        raise InputError(
            "content",
            f"target {path}, line {line}: the report has no column {', '.join(missing)}. Export it from "
            "GenomeStudio in standard format with these columns",
        )
    names = {
        "SNP Name": "name",
        str(sample): "sample",
        "Chr": "chrom",
        "Position": "position",
        f"Allele1 - {strand}": "first",
        f"Allele2 - {strand}": "second",
    }
    return _Columns(line, separator, names)


def _choose_site_alleles(
    panel: Sites, positions: Sequence[int], site_of_row: np.ndarray, bases: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return REF and ALT of each site, two arrays of text: those of the panel SNP with the called bases."""
    panel_alleles = snp_alleles(panel)
    called_bases: list[set[str]] = [set() for _ in positions]
    for base in "ACGT":
        for site in np.unique(site_of_row[(bases == base).any(axis=1)]):
            called_bases[site].add(base)
    pairs = [
        choose_alleles(called, panel_alleles.get(int(position), []))
        for called, position in zip(called_bases, positions, strict=True)
    ]
    ref, alt = (np.array(alleles) for alleles in zip(*pairs, strict=True))
    return ref, alt


def _lift_positions(
    position: np.ndarray, has_position: np.ndarray, lift: Lift
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the rows' positions in the panel's build, and two masks of rows, bool.

    The first mask marks the rows whose strand changes. The second one marks the rows without a position in
    the panel's build.
    """
    distinct, row = np.unique(np.where(has_position, position, 0), return_inverse=True)
    results = [lift.convert(int(p)) if p else None for p in distinct]
    lifted = np.array([result[0] if result else 0 for result in results], np.float64)[row]
    other_strand = np.array([result is not None and result[1] for result in results])[row]
    not_in_chain = has_position & np.array([result is None for result in results])[row]
    return lifted, other_strand, not_in_chain


def _find_table(path: Path) -> tuple[int, list[str], str]:
    """Return the line number of the table's header, the column names, and the separator."""
    try:
        with path.open(encoding="utf-8-sig", errors="replace") as file:
            for number, line in enumerate(file, start=1):
                if line.strip().rstrip(",;") == _DATA:
                    head = file.readline().rstrip("\r\n")
                    separator = next((sign for sign in "\t," if sign in head), ";")
                    return number + 1, [name.strip() for name in head.split(separator)], separator
                if number == _MAX_HEADER_LINES:
                    break
    except OSError as error:
        raise InputError("read", f"target {path}: cannot be read: {error.strerror}") from error
    raise InputError(
        "content", f"target {path}: it starts like a FinalReport, but has no line {_DATA}. Export it again"
    )


def _read_rows(path: Path, columns: _Columns, chrom: str) -> tuple[pd.DataFrame, int]:
    """Return the rows of a chromosome, and the number of SNPs on other chromosomes."""
    import pandas as pd

    with path.open("rb") as file:
        file.seek(-1, 2)
        if file.read(1) != b"\n":
            raise InputError(
                "damaged", f"target {path}: the file is truncated: its last line has no newline. Get it again"
            )
    kept: list[pd.DataFrame] = []
    others: set[str] = set()
    n_before = 0
    try:
        with pd.read_csv(
            path,
            sep=columns.separator,
            skiprows=columns.line - 1,
            usecols=lambda name: name.strip() in columns.names,
            dtype=str,
            index_col=False,
            keep_default_na=False,
            chunksize=_ROWS_PER_READ,
            encoding="utf-8",
            encoding_errors="replace",
        ) as reader:
            for chunk in reader:
                chunk = chunk.rename(columns=lambda name: columns.names[name.strip()])
                if not set(columns.names.values()) <= set(chunk.columns):
                    raise InputError(
                        "content",
                        f"target {path}: its header mixes several kinds of line ends, so that line "
                        f"{columns.line} does not name the columns. Export it again",
                    )
                needed = chunk[["name", "sample", "chrom", "position"]]
                incomplete = np.flatnonzero((needed.isna() | (needed == "")).any(axis=1))
                if len(incomplete):
                    line = columns.line + 1 + n_before + int(incomplete[0])
                    raise InputError(
                        "content",
                        f"target {path}, line {line}: no name, sample, chromosome or position. Is the file "
                        "truncated?",
                    )
                wanted = [name for name in chunk["chrom"].unique() if same_chromosome(name, chrom)]
                here = chunk["chrom"].isin(wanted)
                kept.append(chunk[here])
                others.update(chunk["name"][~here])
                n_before += len(chunk)
    except (ValueError, OSError) as error:  # pandas raises ValueErrors that name the line
        raise InputError("read", f"target {path}: the table cannot be read ({str(error).strip()})") from error
    if not kept:
        return pd.DataFrame(), len(others)
    rows = pd.concat(kept, ignore_index=True)
    here = rows["chrom"].isin(chromosome_names(chrom, rows["chrom"].unique()))
    others.update(rows["name"][~here])
    return rows[here].reset_index(drop=True), len(others)
