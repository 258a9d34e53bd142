"""Recognize the format of a panel by its content, and open the reader of the format."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from spinimpute.genotypes.builds import is_x
from spinimpute.genotypes.sites import Region
from spinimpute.panels.formats.foreign import refuse_foreign_panel
from spinimpute.panels.formats.hap_legend import HapLegend, HapLegendReader
from spinimpute.panels.formats.m3vcf import M3vcfReader, m3vcf_version
from spinimpute.panels.formats.text_panel import TextPanelReader
from spinimpute.panels.vcf_reading import BatchReader, ParallelBatchReader
from spinimpute.runtime.errors import InputError
from spinimpute.vcf.index_reader import split_by_size
from spinimpute.vcf.variant_file import VariantFile, starts_as_variant_file

AnyBatchReader = BatchReader | ParallelBatchReader | TextPanelReader


PanelSource = str | Path | HapLegend


def source_files(source: PanelSource) -> list[Path]:
    """Return the files of a source of a panel. The first has the haplotypes."""
    if isinstance(source, HapLegend):
        return [Path(source.hap), Path(source.legend), Path(source.sample)]
    return [Path(source)]


def is_m3vcf(path: PanelSource) -> bool:
    """Return whether a file, plain or gzip, starts like M3VCF; False if it cannot be read."""
    if isinstance(path, HapLegend):
        return False
    path = Path(path)
    try:
        return path.is_file() and m3vcf_version(path) is not None
    except OSError:
        return False


def has_source_format(path: Path) -> bool:
    """Return whether a file starts like a format from which a panel can be built: VCF, BCF or M3VCF."""
    return path.is_file() and (starts_as_variant_file(path) or is_m3vcf(path))


def read_x_contigs(source: PanelSource) -> tuple[str, dict[str, str]]:
    """Return the chromosome of the first record, and the "##contig" lines of X by its name in the file.

    The chromosome is "" if there is no record. Raises InputError if the file or its header cannot be read.
    """
    if isinstance(source, HapLegend):
        return source.chrom, {}
    if is_m3vcf(source):
        reader = M3vcfReader(Path(source), None, None)
        reader.close()
        return reader.first_chrom, {name: line for name, line in reader.contig_lines.items() if is_x(name)}
    refuse_foreign_panel(source)
    with VariantFile(source, "panel") as file:
        lines = {name: file.contig_line(name) for name in file.contigs if is_x(name)}
        try:
            return next(file.records()).CHROM, lines
        except (InputError, StopIteration):  # `BatchReader` will raise an error with a better message
            return "", lines


def open_batch_reader(
    source: PanelSource, region: Region | None, samples: Sequence[str] | None, threads: int = 1
) -> AnyBatchReader:
    """Open the haplotypes from which a panel is built.

    `region` and `samples` are those to read. A large indexed VCF or BCF is read by `threads` processes.
    Raises InputError if the file cannot be read or has another format.
    """
    if isinstance(source, HapLegend):
        return HapLegendReader(source, region, samples)
    if is_m3vcf(source):
        return M3vcfReader(Path(source), region, samples)
    refuse_foreign_panel(source)
    reader = BatchReader(source, region, samples)
    if threads > 1 and (regions := split_by_size(Path(source), reader.contigs, region)):
        reader.close()
        return ParallelBatchReader(source, region, samples, regions, threads)
    return reader
