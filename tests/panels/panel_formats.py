"""Write the haplotypes of a VCF in other formats of panels, one character at a time."""

import gzip
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from spinimpute.genotypes.genetic_map import GeneticMap
from spinimpute.panels.build import BuildJob, compile_panel
from spinimpute.panels.formats.detection import PanelSource, source_files
from spinimpute.panels.formats.hap_legend import HapLegend

MAP = GeneticMap.constant(1.3)

PLOIDY_SEPARATORS = {2: "|", 3: ","}
HEADERS = {
    1: "##fileformat=M3VCF\n##version=1.2\n##compression=block\n",
    2: "##fileformat=M3VCFv2.0\n",
    3: "##subfileformat=MVCFv3.0\n##fileformat=VCFv4.2\n##phasing=full\n",
}


class VcfRecord(NamedTuple):
    """A record of a VCF; a call is "0|1", or "1" if haploid."""

    chrom: str
    position: int
    name: str
    ref: str
    alt: str
    calls: list[str]

    @property
    def alleles(self) -> str:
        """The alleles of all haplotypes."""
        return "".join(self.calls).replace("|", "")


class SourcePanel(NamedTuple):
    """The content of a panel's VCF."""

    samples: list[str]
    contig_lines: list[str]
    records: list[VcfRecord]


def source_panel(*records: tuple[int, str, str, list[str]], chrom: str = "20") -> SourcePanel:
    """Return a panel of the samples s0, s1 ... A record has position, REF, ALT and calls."""
    samples = [f"s{i}" for i in range(len(records[0][3]))]
    return SourcePanel(
        samples,
        [f"##contig=<ID={chrom}>"],
        [VcfRecord(chrom, position, ".", ref, alt, calls) for position, ref, alt, calls in records],
    )


def read_vcf(path: Path) -> SourcePanel:
    """Read a phased VCF, VCF.gz or BCF."""
    text = subprocess.check_output(["bcftools", "view", str(path)], text=True)
    lines = text.splitlines()
    contigs = [line for line in lines if line.startswith("##contig")]
    rows = [line.split("\t") for line in lines if not line.startswith("##")]
    records = [
        VcfRecord(row[0], int(row[1]), row[2], row[3], row[4], [call.split(":")[0] for call in row[9:]])
        for row in rows[1:]
    ]
    return SourcePanel(rows[0][9:], contigs, records)


def first_sites(path: Path, n: int) -> SourcePanel:
    """Return the first biallelic records of a VCF, with a contig line without length."""
    panel = read_vcf(path)
    records = [record for record in panel.records if "," not in record.alt]
    return SourcePanel(panel.samples, [f"##contig=<ID={records[0].chrom}>"], records[:n])


def write_vcf_text(path: Path, panel: SourcePanel) -> Path:
    """Write a VCF."""
    gt = '##FORMAT=<ID=GT,Number=1,Type=String,Description="Genotype">'
    columns = ["#CHROM", "POS", "ID", "REF", "ALT", "QUAL", "FILTER", "INFO", "FORMAT", *panel.samples]
    lines = ["##fileformat=VCFv4.2", *panel.contig_lines, gt, "\t".join(columns)]
    for record in panel.records:
        fixed = [record.chrom, str(record.position), record.name, record.ref, record.alt]
        lines.append("\t".join([*fixed, ".", ".", ".", "GT", *record.calls]))
    return write_text(path, "".join(f"{line}\n" for line in lines))


def write_text(path: Path, text: str) -> Path:
    """Write a text, compressed if the name ends in .gz."""
    return write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> Path:
    """Write bytes, compressed if the name ends in .gz."""
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def write_m3vcf(
    path: Path,
    panel: SourcePanel,
    version: int = 1,
    block: int = 7,
    overlap: bool = True,
    dense: bool = False,
) -> Path:
    """Write M3VCF with `block` records in a block, and with blocks that share records if `overlap`.

    With `dense`, the alleles of version 2 are written as in version 1.
    """
    ploidy = [call.count("|") + 1 for call in panel.records[0].calls]
    blocks = []
    start = 0
    while start < len(panel.records) - (1 if overlap and start else 0):
        blocks.append(panel.records[start : start + block])
        start += block - 1 if overlap else block
    header = HEADERS[version]
    if version == 1:
        header += f"##n_blocks={len(blocks)}\n##n_haps={sum(ploidy)}\n##n_markers={len(panel.records)}\n"
        header += "##<Note=This is NOT a VCF File and cannot be read by vcftools>\n"
        columns = [
            f"{s}_HAP_{i}" for s, n in zip(panel.samples, ploidy, strict=True) for i in range(1, n + 1)
        ]
    else:
        header += "".join(f"{line}\n" for line in panel.contig_lines)
        columns = panel.samples
    fixed = ["#CHROM", "POS", "ID", "REF", "ALT", "QUAL", "FILTER", "INFO", "FORMAT"]
    lines = ["\t".join([*fixed, *columns])]
    for number, records in enumerate(blocks, 1):
        lines += _block_lines(records, number, version, ploidy, dense)
    return write_text(path, header + "".join(f"{line}\n" for line in lines))


def assert_equal(found: PanelSource, expected: Path, **selection: Any) -> dict[str, Any]:
    """Assert that two files give equal panels; `selection` is a region or samples. Return the provenance."""
    panels = []
    for source in (found, expected):
        file = source_files(source)[0]
        out = file.with_name(f"{file.name}.spin")
        panels.append(compile_panel(BuildJob(source, out, MAP, force=True, **selection)))
    with panels[0] as one, panels[1] as other:
        assert one.samples == other.samples
        assert one.sites.keys() == other.sites.keys()
        assert one.sites.id == other.sites.id
        np.testing.assert_array_equal(one.alleles(0, one.n_sites), other.alleles(0, one.n_sites))
        assert one.checksum == other.checksum
        return one.provenance


def write_hap_legend(folder: Path, panel: SourcePanel, end: str = "") -> HapLegend:
    """Write the files of IMPUTE. Haploid samples are male, and have "-" in their second column."""
    records = panel.records
    alleles = [
        " ".join(call.replace("|", " ") if "|" in call else f"{call} -" for call in r.calls) for r in records
    ]
    legend = ["id position a0 a1", *(f"{r.name} {r.position} {r.ref} {r.alt}" for r in records)]
    sexes = [1 if len(call) == 1 else 2 for call in records[0].calls]
    rows = [f"{s} {s} {s} {sex}" for s, sex in zip(panel.samples, sexes, strict=True)]
    paths = [
        write_text(folder / f"p.{name}{end}", "".join(f"{line}\n" for line in lines))
        for name, lines in (
            ("hap", alleles),
            ("legend", legend),
            ("sample", ["sample population group sex", *rows]),
        )
    ]
    return HapLegend(paths[0], paths[1], paths[2], records[0].chrom)


def _block_lines(
    records: Sequence[VcfRecord], number: int, version: int, ploidy: list[int], dense: bool
) -> list[str]:
    haplotypes = ["".join(alleles) for alleles in zip(*(r.alleles for r in records), strict=True)]
    distinct = sorted(set(haplotypes))
    numbers = [str(distinct.index(haplotype)) for haplotype in haplotypes]
    if version > 1:
        waiting = iter(numbers)
        numbers = [PLOIDY_SEPARATORS[version].join(next(waiting) for _ in range(n)) for n in ploidy]
    first, last = records[0], records[-1]
    counts = f"VARIANTS={len(records)};REPS={len(distinct)}"
    start = {
        1: [
            f"{first.position}-{last.position}",
            f"<BLOCK:{number}>",
            ".",
            ".",
            ".",
            ".",
            f"B{number};{counts}",
        ],
        2: [f"{first.position}-{last.position}", "<BLOCK>", ".", ".", ".", ".", counts],
        3: [str(first.position), first.name, first.ref, "<BLOCK>", ".", ".", f"END={last.position};{counts}"],
    }[version]
    lines = ["\t".join([first.chrom, *start, "UHM" if version == 3 else ".", *numbers])]
    for i, record in enumerate(records):
        alleles = [haplotype[i] for haplotype in distinct]
        carriers = [r for r, allele in enumerate(alleles) if allele == "1"]
        steps = [str(b - a) for a, b in zip([0, *carriers], carriers, strict=False)]
        last_columns = {
            1: [f"B{number}.M{i + 1};Err=0.01;Recom=0.001", "".join(alleles)],
            2: [".", "".join(alleles) if dense else ",".join(steps) or "-"],
            3: [f"AC=1;AN=2;UHA={','.join(alleles)}"],
        }[version]
        fixed = [record.chrom, str(record.position), record.name, record.ref, record.alt, ".", "."]
        lines.append("\t".join([*fixed, *last_columns]))
    return lines
