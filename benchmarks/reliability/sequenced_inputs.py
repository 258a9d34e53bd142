"""Good files of sequenced samples: reads, a reference genome, likelihoods, lists; and two panels to merge."""

from __future__ import annotations

import random
from pathlib import Path

import pysam

from benchmarks.reliability.alignment_damage import roomy_bam, roomy_cram
from benchmarks.reliability.inputs import (
    HEADER,
    PEOPLE,
    SITES,
    TARGETS,
    TYPED_STEP,
    Command,
    Site,
    bgzf,
    mosaic_sites,
    vcf_text,
    write_bcf,
)

SPACING = 200  # bp between sites of the short genome: a CRAM is read with all of its letters
START = 150
LENGTH = START + SPACING * SITES
LINE = 60  # letters of a line of the FASTA
READ, DEPTH = 90, 3
FROM_CWD = "../../../in"  # where damaged files lie, from where a command is run


def make_sequenced_inputs(folder: Path, run: Command) -> None:
    """Write all files into the folder that `make_inputs` filled.

    Parameters
    ----------
    folder : Path
        The folder.
    run : callable
        Runs a command line of spinimpute.
    """
    draw = random.Random(2)
    sites = mosaic_sites(random.Random(1))  # those of all other files
    genome = draw.choices("ACGT", k=LENGTH)
    short = []
    for number, site in enumerate(sites):
        position = START + SPACING * number
        ref = genome[position - 1]
        short.append(Site(position, ref, draw.choice([a for a in "ACGT" if a != ref]), site.haplotypes))
    _write_reference(folder, {"20": "".join(genome), "7": "ACGT" * 250})
    _write_reads(folder, genome, short, draw)
    _write_likelihoods(folder, sites)
    (folder / "reads.list").write_text(f"{FROM_CWD}/reads.bam\n{FROM_CWD}/reads.bam\tsecond\n")
    (folder / "target_names.txt").write_text("t4\nt0\nt2\n")
    (folder / "regions.txt").write_text("20\t1010000\t1060000\n20\t1080000\t1090000\tname\n")
    panels = {
        "panel_short": (short, range(PEOPLE), LENGTH),
        "panel_a": (sites[:-5], range(PEOPLE // 2), 63_025_520),
        "panel_b": (sites[3:], range(PEOPLE // 2, PEOPLE), 63_025_520),
    }
    for name, (some, people, length) in panels.items():
        text = vcf_text(some, people, [f"p{person}" for person in people], length=length)
        (folder / f"{name}.vcf").write_text(text)
        panel = ["--vcf", f"{folder}/{name}.vcf", "-o", f"{folder}/{name}.spin"]
        run(["panel", "build", *panel, "-t", "1", "-q"])


def _write_reference(folder: Path, chromosomes: dict[str, str]) -> None:
    """A FASTA and its index."""
    text = index = ""
    for name, letters in chromosomes.items():
        text += f">{name}\n"
        index += f"{name}\t{len(letters)}\t{len(text)}\t{LINE}\t{LINE + 1}\n"
        text += "".join(f"{letters[start : start + LINE]}\n" for start in range(0, len(letters), LINE))
    (folder / "genome.fa").write_text(text)
    (folder / "genome.fa.fai").write_text(index)


def _write_reads(folder: Path, genome: list[str], sites: list[Site], draw: random.Random) -> None:
    """Reads of the first target in pairs, as BAM and CRAM with their indexes."""
    header = pysam.AlignmentHeader.from_dict(
        {
            "HD": {"VN": "1.6", "SO": "coordinate"},
            "SQ": [{"SN": "20", "LN": LENGTH}, {"SN": "7", "LN": 1_000}],
            "RG": [{"ID": "g1", "SM": "t0", "LB": "library", "PL": "ILLUMINA"}, {"ID": "g2", "SM": "t0"}],
            "PG": [{"ID": "aligner", "VN": "1"}],
            "CO": ["made for tests"],
        }
    )
    copies = [list(genome), list(genome)]
    for site in sites:
        for copy, carried in zip(copies, site.haplotypes[2 * PEOPLE :], strict=False):
            copy[site.position - 1] = site.alt if carried else site.ref
    starts = sorted(draw.randrange(LENGTH - READ) for _ in range(DEPTH * LENGTH // READ))
    with pysam.AlignmentFile(str(folder / "reads.bam"), "wb", header=header) as file:
        for number, start in enumerate(starts):
            read = pysam.AlignedSegment(header)
            read.query_name, read.flag, read.reference_id = f"r{number // 2}", 0, 0
            read.reference_start, read.mapping_quality = start, 60
            read.cigarstring = f"{READ}M" if number % 7 else f"5S{READ - 5}M"
            read.query_sequence = "".join(draw.choice(copies)[start : start + READ])
            read.query_qualities = pysam.qualitystring_to_array("5" * READ)
            read.set_tag("RG", "g1")
            file.write(read)
    reference = str(folder / "genome.fa")
    with (
        pysam.AlignmentFile(str(folder / "reads.bam"), "rb") as source,
        pysam.AlignmentFile(
            str(folder / "reads.cram"), "wc", template=source, reference_filename=reference
        ) as packed,
    ):
        for read in source:
            packed.write(read)
    for name, with_room in (("reads.bam", roomy_bam), ("reads.cram", roomy_cram)):
        (folder / name).write_bytes(with_room((folder / name).read_bytes()))
        pysam.index(str(folder / name))


def _write_likelihoods(folder: Path, sites: list[Site]) -> None:
    """PL, GL and GT of the targets at some sites, as VCF, VCF.gz and BCF."""
    lines = [
        HEADER.format(chrom="20", length=63_025_520),
        '##FORMAT=<ID=PL,Number=G,Type=Integer,Description="Phred-scaled likelihoods">\n',
        '##FORMAT=<ID=GL,Number=G,Type=Float,Description="Likelihoods">\n',
        "\t".join(["#CHROM", "POS", "ID", "REF", "ALT", "QUAL", "FILTER", "INFO", "FORMAT"]),
        *(f"\tt{number}" for number in range(TARGETS)),
        "\n",
    ]
    for number, site in enumerate(sites[::TYPED_STEP]):
        calls = []
        for person in range(PEOPLE, PEOPLE + TARGETS):
            carried = sum(site.haplotypes[2 * person : 2 * person + 2])
            phred = [20 * abs(copies - carried) + number % 3 * (copies != carried) for copies in range(3)]
            likelihoods = (",".join(map(str, phred)), ",".join(f"{-p / 10:g}" for p in phred))
            calls.append(":".join([("0/0", "0/1", "1/1")[carried], *likelihoods]))
        fixed = ["20", str(site.position), ".", site.ref, site.alt, "30", "PASS", "NOTE=x", "GT:PL:GL"]
        lines.append("\t".join([*fixed, *calls]) + "\n")
    text = "".join(lines)
    (folder / "gl_header.vcf").write_text(text)
    (folder / "likelihoods.vcf.gz").write_bytes(bgzf(text.encode(), 2_000))
    write_bcf(folder / "gl_header.vcf", folder / "likelihoods.bcf")
