"""Opens the writer for an output: VCF, VCF.gz, BCF, PLINK 2 or BGEN."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from spinimpute.outputs.bgen_writer import BgenWriter
from spinimpute.outputs.plink_writer import PlinkWriter
from spinimpute.runtime.errors import InputError
from spinimpute.targets.plink import load_pgenlib
from spinimpute.vcf.header import OutputLayout
from spinimpute.vcf.writer import GenotypeWriter, choose_output_type

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


def open_writer(
    path: Path,
    output_format: str,
    layout: OutputLayout,
    n_records: int,
    threads: int,
    sexes: Mapping[str, bool] | None = None,
) -> AbstractContextManager[RecordWriter]:
    """Open the writer for a format of `choose_format`.

    Other parameters and errors are those of the writers, which have the same methods. `n_records`, the number
    of records, and `sexes`, which samples are male, are for PLINK and BGEN.
    """
    if output_format == PGEN:
        return PlinkWriter(path, layout, n_records, sexes)
    if output_format == BGEN:
        return BgenWriter(path, layout, sexes)
    return GenotypeWriter(path, layout, output_format, threads)
