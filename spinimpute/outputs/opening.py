"""Choice of the output format (VCF, VCF.gz, BCF, PLINK 2 or BGEN) and of its writer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from spinimpute.outputs.bgen_writer import DEFAULT_BITS, BgenWriter
from spinimpute.outputs.plink_writer import PlinkWriter
from spinimpute.outputs.selection import NO_FILTER, RecordFilter, SelectingWriter
from spinimpute.runtime.errors import InputError, argument
from spinimpute.targets.plink import load_pgenlib
from spinimpute.vcf.header import OutputLayout, make_header
from spinimpute.vcf.writer import GenotypeWriter, choose_output_type

PGEN, BGEN = "pgen", "bgen"
_BY_SUFFIX = {".pgen": PGEN, ".bgen": BGEN}

RecordWriter = GenotypeWriter | PlinkWriter | BgenWriter | SelectingWriter


def choose_format(path: Path, output_type: str | None, mergeable: bool = False) -> str:
    """Return the format of an output: "z" (VCF.gz), "b" (BCF), "v" (VCF), PGEN or BGEN.

    `output_type` is the user's choice of "z", "b" or "v"; if it is None, the suffix of `path` decides. Raises
    InputError if the type contradicts the suffix, for the reasons of `choose_output_type`, if the format is
    PGEN and pgenlib is not installed, or if a PGEN or BGEN must be `mergeable`.
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
    if mergeable:
        raise InputError(
            "arguments",
            f"{argument('mergeable', True)}: {path} cannot be merged. 'spinimpute merge' reads VCF and BCF; "
            "name the output .vcf.gz or .bcf",
        )
    if output_format == PGEN:
        load_pgenlib()
    return output_format


def check_stored_fields(output_format: str, formats: Sequence[str], split_multiallelic: bool) -> None:
    """Raise InputError if an output cannot hold one of the FORMAT fields.

    BGEN holds probabilities of genotypes or haplotypes, from which DS, GP and HDS follow.
    """
    if "ML" in formats and (split_multiallelic or output_format in (PGEN, BGEN)):
        cause = f"a .{output_format} output" if output_format in (PGEN, BGEN) else ""
        raise InputError(
            "arguments",
            f"{argument('format')}: ML, the mean length, needs records with all ALT alleles, but "
            f"{cause or argument('split_multiallelic', True)} has a record for each. Leave ML out, or write "
            f".vcf.gz or .bcf without {argument('split_multiallelic', True)}",
        )
    unfit = [name for name in formats if name in ("HDS", "GP")]
    if output_format == PGEN and unfit:
        raise InputError(
            "arguments",
            f"{argument('format')}: a .pgen output holds GT or DS, not {' and '.join(unfit)}. Leave "
            f"{'it' if len(unfit) == 1 else 'them'} out, or write .bgen, .bcf or .vcf.gz",
        )


def open_writer(
    path: Path,
    output_format: str,
    layout: OutputLayout,
    n_records: int,
    threads: int,
    sexes: Mapping[str, bool] | None = None,
    *,
    bgen_bits: int = DEFAULT_BITS,
    record_filter: RecordFilter = NO_FILTER,
    site_table: Path | None = None,
) -> AbstractContextManager[RecordWriter]:
    """Return the writer for a format of `choose_format`. All writers have the same methods.

    `n_records` is the number of records before `record_filter`; only PLINK needs it. `sexes` says which
    samples are male, for PLINK and BGEN. `bgen_bits` is the parameter `bits` of `BgenWriter`. `site_table` is
    the path of a table of all sites, see `SelectingWriter`. See the writers for the other parameters and the
    errors.
    """
    layout = layout._replace(header_lines=[*layout.header_lines, *record_filter.header_lines])
    writer: GenotypeWriter | PlinkWriter | BgenWriter
    if output_format == PGEN:
        writer = PlinkWriter(path, layout, n_records, sexes, may_be_fewer=bool(record_filter))
    elif output_format == BGEN:
        writer = BgenWriter(path, layout, sexes, bits=bgen_bits, threads=threads)
    else:
        writer = GenotypeWriter(path, layout, output_format, threads)
    if site_table is None and not record_filter:
        return writer
    return SelectingWriter(writer, make_header(layout), record_filter, site_table)
