"""Opens the writer for an output: VCF, VCF.gz, BCF, PLINK 2 or BGEN."""

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


def choose_format(path: Path, output_type: str | None) -> str:
    """The format of an output: "z" (VCF.gz), "b" (BCF), "v" (VCF), PGEN or BGEN.

    `output_type`, "z", "b" or "v", is the format that the user gave; else the suffix decides. Raises
    InputError as `choose_output_type` does, and if PGEN is chosen but pgenlib is not installed.
    """
    output_format = _BY_SUFFIX.get(path.suffix.lower())
    if output_format is None:
        return choose_output_type(path, output_type, tuple(_BY_SUFFIX))
    if output_type is not None:
        raise InputError(
            "arguments",
            f"output type {output_type!r} contradicts the name {path}, which means {output_format}. "
            "Leave one of them out",
        )
    if output_format == PGEN:
        load_pgenlib()
    return output_format


@contextmanager
def open_writer(
    path: Path,
    output_format: str,
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
    """Open the writer for a format of `choose_format`; close it at the end, or abandon it after an exception.

    Other parameters and errors are those of the writers, which have the same methods. `n_records`, the number
    of records, and `sexes`, which samples are male, are for PLINK and BGEN.
    """
    common = (path, samples, ploidy, contig_lines, header_lines, formats)
    if output_format == PGEN:
        with PlinkWriter(*common, n_records, sexes, extra_info_lines, decimals) as plink:
            yield plink
        return
    if output_format == BGEN:
        with BgenWriter(path, samples, ploidy, formats, sexes, decimals) as bgen:
            yield bgen
        return
    with GenotypeWriter(*common, output_format, threads, extra_info_lines, decimals) as writer:
        yield writer
