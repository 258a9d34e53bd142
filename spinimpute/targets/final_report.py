"""Read targets from a FinalReport, the text file that Illumina's GenomeStudio exports.

It has a header and a table, in which each row is the call of one sample at one site. Alleles are bases, on
a strand that the column names tell.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

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


def is_final_report(path: Path) -> bool:
    """Whether a file starts with the first line of a FinalReport."""
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

    first_row, columns, separator = _table(path)
    strand = next((s for s in _STRANDS if {f"Allele1 - {s}", f"Allele2 - {s}"} <= set(columns)), None)
    sample = next((name for name in ("Sample ID", "Sample Name") if name in columns), None)
    if (twice := repeated(columns)) is not None:
        raise InputError(
            "content",
            f"target {path}, line {first_row}: two columns are named {twice}. Export the report again",
        )
    lacking = [name for name in ("SNP Name", "Chr", "Position") if name not in columns]
    lacking += [] if sample else ["Sample ID"]
    lacking += [] if strand else ["Allele1 - Plus", "Allele2 - Plus"]
    if lacking:
        raise InputError(
            "content",
            f"target {path}, line {first_row}: the report has no column {', '.join(lacking)}. Export it from "
            "GenomeStudio in standard format with these columns",
        )
    column_names = {
        "SNP Name": "name",
        str(sample): "sample",
        "Chr": "chrom",
        "Position": "position",
        f"Allele1 - {strand}": "first",
        f"Allele2 - {strand}": "second",
    }
    rows, elsewhere = _rows(path, first_row, separator, column_names, panel.chrom)
    if not len(rows):
        raise NoRecord("content", f"target {path}: no call on chromosome {panel.chrom}")
    position = pd.to_numeric(rows["position"], errors="coerce").to_numpy(np.float64)
    placed = (position >= 1) & (position <= LAST_POSITION) & (position % 1 == 0)
    lost = np.zeros(len(rows), bool)
    letters = rows[["first", "second"]].to_numpy(dtype=str)
    if lift is not None:
        position, other_strand, lost = _lifted(position, placed, lift)
        letters[other_strand] = np.vectorize(complement, otypes=[letters.dtype])(letters[other_strand])
    letters = np.where(np.isin(np.char.upper(letters), list(_MISSING)), "", np.char.upper(letters))
    plain = np.isin(letters, ["", "A", "C", "G", "T"]).all(axis=1)
    skipped = {
        ON_ANOTHER_CHROMOSOME: elsewhere,
        NO_POSITION: int(rows["name"][~placed].nunique()),
        NO_ALLELES: int(rows["name"][placed & ~plain].nunique()),
        NOT_IN_CHAIN: int(rows["name"][lost].nunique()),
    }
    usable = placed & plain & ~lost
    if not usable.any():
        raise NoRecord(
            "content", f"target {path}: no call on chromosome {panel.chrom} has a position and bases"
        )
    rows, letters = rows[usable], letters[usable]
    key = pd.MultiIndex.from_arrays([position[usable].astype(np.int64), rows["name"]])
    site_of_row, sites = pd.factorize(key, sort=True)
    sample_of_row, samples = pd.factorize(rows["sample"])
    again = pd.Series(site_of_row.astype(np.int64) << 32 | sample_of_row).duplicated().to_numpy()
    if again.any():
        row = rows.iloc[int(again.argmax())]
        raise InputError(
            "content",
            f"target {path}: the call of {row['name']} in sample {row['sample']} is repeated. Rename one of "
            "the samples if two have the same name",
        )
    panel_alleles = snp_alleles(panel)
    calls = np.full((len(sites), len(samples), 2), -1, np.int8)
    seen: list[set[str]] = [set() for _ in sites]  # called bases
    for base in "ACGT":
        for site in np.unique(site_of_row[(letters == base).any(axis=1)]):
            seen[site].add(base)
    positions, names = zip(*sites, strict=True)
    named = [
        choose_alleles(bases, panel_alleles.get(int(position), []))
        for bases, position in zip(seen, positions, strict=True)
    ]
    ref, alt = (np.array(alleles) for alleles in zip(*named, strict=True))
    called = (letters != "").all(axis=1)
    known = (letters == ref[site_of_row][:, None]) | (letters == alt[site_of_row][:, None])
    called &= known.all(axis=1)
    coded = np.sort((letters == alt[site_of_row][:, None]).astype(np.int8), axis=1)
    calls[site_of_row[called], sample_of_row[called]] = coded[called]
    unphased = calls[:, :, 0] != calls[:, :, 1]
    return Calls(
        Sites(panel.chrom, np.array(positions, np.int64), ref.tolist(), alt.tolist(), list(map(str, names))),
        calls,
        [str(name) for name in samples],
        contig_line,
        {reason: count for reason, count in skipped.items() if count},
        unphased if unphased.any() else None,
    )


def _lifted(
    position: np.ndarray, placed: np.ndarray, lift: Lift
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the rows' positions in the panel's build, and two masks of rows, bool.

    The first mask marks the rows whose strand changes. The second one marks the rows without a position in
    the panel's build.
    """
    different, row = np.unique(np.where(placed, position, 0), return_inverse=True)
    places = [lift.convert(int(p)) if p else None for p in different]
    lifted = np.array([place[0] if place else 0 for place in places], np.float64)[row]
    other_strand = np.array([place is not None and place[1] for place in places])[row]
    lost = placed & np.array([place is None for place in places])[row]
    return lifted, other_strand, lost


def _table(path: Path) -> tuple[int, list[str], str]:
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


def _rows(
    path: Path, first_row: int, separator: str, column_names: dict[str, str], chrom: str
) -> tuple[pd.DataFrame, int]:
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
            sep=separator,
            skiprows=first_row - 1,
            usecols=lambda name: name.strip() in column_names,
            dtype=str,
            index_col=False,
            keep_default_na=False,
            chunksize=_ROWS_PER_READ,
            encoding="utf-8",
            encoding_errors="replace",
        ) as reader:
            for chunk in reader:
                chunk = chunk.rename(columns=lambda name: column_names[name.strip()])
                if not set(column_names.values()) <= set(chunk.columns):
                    raise InputError(
                        "content",
                        f"target {path}: its header has several kinds of line ends, so that line "
                        f"{first_row} does not name the columns. Export it again",
                    )
                placed = chunk[["name", "sample", "chrom", "position"]]
                short = np.flatnonzero((placed.isna() | (placed == "")).any(axis=1))
                if len(short):
                    line = first_row + 1 + n_before + int(short[0])
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
