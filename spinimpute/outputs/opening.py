"""Opens the writer of an output by its name: VCF, VCF.gz, BCF, PLINK 2 or BGEN."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from spinimpute.outputs.bgen_writer import BgenWriter
from spinimpute.outputs.plink_writer import PlinkWriter
from spinimpute.runtime.errors import InputError
from spinimpute.targets.plink import load_pgenlib
from spinimpute.vcf.header import DEFAULT_DECIMALS
from spinimpute.vcf.indexed_file import choose_output_type
from spinimpute.vcf.writer import GenotypeWriter

PGEN, BGEN = "pgen", "bgen"
_BY_SUFFIX = {".pgen": PGEN, ".bgen": BGEN}

RecordWriter = GenotypeWriter | PlinkWriter | BgenWriter


def choose_form(path: Path, output_type: str | None) -> str:
    """The form of an output: as asked for, or else by its suffix.

    Parameters
    ----------
    path : Path
        Of the output.
    output_type : str or None
        "z" (VCF.gz), "b" (BCF) or "v" (VCF), if the user gave one.

    Returns
    -------
    str
        "z", "b", "v", PGEN or BGEN.

    Raises
    ------
    InputError
        As `choose_output_type`; or pgenlib, which PGEN needs, is not installed.
    """
    form = _BY_SUFFIX.get(path.suffix.lower())
    if form is None:
        return choose_output_type(path, output_type, tuple(_BY_SUFFIX))
    if output_type is not None:
        raise InputError(
            "arguments",
            f"output type {output_type!r} contradicts the name {path}, which means {form}: leave one of them "
            "out",
        )
    if form == PGEN:
        load_pgenlib()
    return form


@contextmanager
def open_writer(
    path: Path,
    form: str,
    samples: Sequence[str],
    ploidy: np.ndarray,
    contig_lines: Sequence[str],
    header_lines: Sequence[str],
    formats: Sequence[str],
    n_records: int,
    threads: int,
    *,
    sexes: Mapping[str, bool] | None = None,
    extra_info_lines: Sequence[str] = (),
    decimals: int = DEFAULT_DECIMALS,
) -> Iterator[RecordWriter]:
    """Open the writer of a form, which is closed at the end, or abandoned after an exception.

    Parameters
    ----------
    path : Path
        Of the output.
    form : str
        As of `choose_form`.
    samples, ploidy, contig_lines, header_lines, formats
        As of `GenotypeWriter`.
    n_records : int
        How many records there will be; PLINK's file begins with it.
    threads : int
        As of `GenotypeWriter`.
    sexes : mapping, optional
        Whether samples are male, where it is known, for PLINK.
    extra_info_lines, decimals
        As of `GenotypeWriter`.

    Yields
    ------
    GenotypeWriter, PlinkWriter or BgenWriter
        All have the same methods.

    Raises
    ------
    InputError
        As of the writers.
    """
    common = (path, samples, ploidy, contig_lines, header_lines, formats)
    if form == PGEN:
        with PlinkWriter(*common, n_records, sexes, extra_info_lines, decimals) as plink:
            yield plink
        return
    if form == BGEN:
        with BgenWriter(path, samples, ploidy, formats, sexes, decimals) as bgen:
            yield bgen
        return
    with GenotypeWriter(*common, form, threads, extra_info_lines, decimals) as writer:
        yield writer
