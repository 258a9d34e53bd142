"""Panels that are sites alone, VCF files with any FORMAT, and files of reads."""

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pysam
import pytest

from spinimpute.genotypes.sites import Sites

HEADER = """##fileformat=VCFv4.2
##contig=<ID={chrom},length={length}>
##contig=<ID=21>
##FORMAT=<ID=GT,Number=1,Type=String,Description="Genotype">
##FORMAT=<ID=PL,Number=G,Type=Integer,Description="Phred-scaled likelihoods">
##FORMAT=<ID=GL,Number=G,Type=Float,Description="Likelihoods">
##FORMAT=<ID=AD,Number=R,Type=Integer,Description="Reads of each allele">
##FORMAT=<ID=DP,Number=1,Type=Integer,Description="Reads">
"""


@pytest.fixture
def panel_of() -> Callable[..., SimpleNamespace]:
    """panel_of([(POS, REF, ALT), ...], chrom="20", length=63025520): what readers need of a panel."""

    def make(
        records: Sequence[tuple[int, str, str]], chrom: str = "20", length: int | None = 63025520
    ) -> SimpleNamespace:
        position, ref, alt = (list(column) for column in zip(*records, strict=True))
        sites = Sites(chrom, np.array(position, np.int64), ref, alt, ["."] * len(position))
        length_ = "" if length is None else f",length={length}"
        return SimpleNamespace(
            chrom=chrom, contig_line=f"##contig=<ID={chrom}{length_}>", sites=sites, position=sites.position
        )

    return make


@pytest.fixture
def gl_vcf(tmp_path: Path) -> Callable[..., Path]:
    """gl_vcf("100 A C PL:DP 0,3,30:1 .", ..., name="t.vcf", chrom="20"): samples are a, b, c ..."""

    def write(*records: str, chrom: str = "20", length: int = 63025520, name: str = "t.vcf") -> Path:
        n_samples = len(records[0].split()) - 4
        columns = ["#CHROM", "POS", "ID", "REF", "ALT", "QUAL", "FILTER", "INFO", "FORMAT"]
        lines = ["\t".join([*columns, *(chr(ord("a") + i) for i in range(n_samples))])]
        for record in records:
            position, ref, alt, *rest = record.split()
            lines.append("\t".join([chrom, position, ".", ref, alt, ".", ".", ".", *rest]))
        path = tmp_path / name
        path.write_text(HEADER.format(chrom=chrom, length=length) + "\n".join(lines) + "\n")
        return path

    return write


class ReadLine(NamedTuple):
    """One alignment, with the fields of SAM and a 1-based position."""

    name: str
    position: int
    cigar: str
    letters: str | None
    qualities: str | None
    flag: int = 0
    mapping_quality: int = 60
    mate: int | None = None  # its position
    contig: int = 0  # -1 for a read without a place


@pytest.fixture
def write_reads(tmp_path: Path) -> Callable[..., Path]:
    """write_reads([fields of a ReadLine, ...], name="t.bam"): sorted by position, with its index."""

    def write(
        reads: Sequence[tuple[Any, ...]],
        name: str = "t.bam",
        contigs: Sequence[tuple[str, int]] = (("20", 63025520),),
        groups: Sequence[dict[str, str]] = ({"ID": "one", "SM": "NA1"},),
        reference: Path | None = None,
        index: bool = True,
    ) -> Path:
        header = {
            "HD": {"VN": "1.6", "SO": "coordinate"},
            "SQ": [{"SN": contig, "LN": length} for contig, length in contigs],
            "RG": list(groups),
        }
        path = tmp_path / name
        mode = "wc" if path.suffix == ".cram" else "wb"
        lines = sorted((ReadLine(*read) for read in reads), key=lambda line: (line.contig < 0, line.position))
        fasta = None if reference is None else str(reference)
        with pysam.AlignmentFile(str(path), mode, header=header, reference_filename=fasta) as file:
            for line in lines:
                read = pysam.AlignedSegment(file.header)
                read.query_name, read.flag, read.reference_id = line.name, line.flag, line.contig
                read.reference_start, read.mapping_quality = line.position - 1, line.mapping_quality
                read.cigarstring, read.query_sequence = line.cigar, line.letters
                if line.mate is not None:
                    read.next_reference_id, read.next_reference_start = 0, line.mate - 1
                if line.qualities is not None:
                    read.query_qualities = pysam.qualitystring_to_array(line.qualities)
                file.write(read)
        if index:
            pysam.index(str(path))
        return path

    return write
