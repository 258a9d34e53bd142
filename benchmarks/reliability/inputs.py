"""Small good files of every format that a command reads: five targets, a panel of 24 people, 60 sites."""

from __future__ import annotations

import gzip
import hashlib
import json
import random
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cyvcf2
import pandas as pd

from benchmarks.outputs.other_formats import write_other_formats
from spinimpute.vcf.bgzf import BLOCK_SIZE, EOF_BLOCK, compress_block

Command = Callable[[Sequence[str]], None]

PEOPLE, TARGETS, SITES = 24, 5, 60
FOUNDERS = 5
SPACING = 2_000  # bp
TYPED_STEP = 3  # each third site is typed
SMALL_NETWORK = ("--set", "width=8", "--set", "heads=2", "--set", "members=1")
PAR1_END = 2_699_520  # of GRCh37
CHAIN = """chain 1000 chr20 63025520 + 0 63025520 chr20 63025520 + 0 63025520 1
60000\t10\t10
1012000\t20\t20
61953490

chain 500 chr7 159138663 + 0 1000 chr20 63025520 - 0 1000 2
1000

"""
HEADER = (
    "##fileformat=VCFv4.2\n"
    '##FILTER=<ID=PASS,Description="All filters passed">\n'
    '##INFO=<ID=AC,Number=A,Type=Integer,Description="Copies of ALT">\n'
    '##INFO=<ID=AF,Number=A,Type=Float,Description="Frequency of ALT">\n'
    '##INFO=<ID=NOTE,Number=1,Type=String,Description="Any text">\n'
    '##INFO=<ID=IMP,Number=0,Type=Flag,Description="Imputed">\n'
    "##contig=<ID={chrom},length={length}>\n"
    "##contig=<ID=7>\n"
    '##FORMAT=<ID=GT,Number=1,Type=String,Description="Genotype">\n'
    '##FORMAT=<ID=DS,Number=A,Type=Float,Description="Dosage">\n'
)


@dataclass(frozen=True)
class Site:
    """haplotypes: 0 or 1, first those of the panel's people, then those of the targets."""

    position: int
    ref: str
    alt: str
    haplotypes: list[int]


def make_inputs(folder: Path, run: Command) -> None:
    """Write all files into an empty folder.

    Parameters
    ----------
    folder : Path
        The folder.
    run : callable
        Runs a command line of spinimpute, to write files that no other program writes.
    """
    draw = random.Random(1)
    sites = mosaic_sites(draw)
    _write_variants(folder, sites, run)
    _write_texts(folder, sites)
    _write_other_panels(folder, sites)
    write_other_formats(folder / "unphased.vcf.gz", folder / "forms")
    _write_array_texts(folder)
    _write_made_files(folder, run)
    _write_chromosome_x(folder, sites, run)
    _write_tables(folder, draw, run)
    for path in folder.glob("*.safetensors"):
        path.write_bytes(always_the_same(path.read_bytes()))


def mosaic_sites(draw: random.Random) -> list[Site]:
    """Return sites at which haplotypes are mosaics of few founders, so that they match over many sites."""
    n_haplotypes = 2 * (PEOPLE + TARGETS)
    founder = [draw.randrange(FOUNDERS) for _ in range(n_haplotypes)]
    sites = []
    for number in range(SITES):
        carriers = draw.sample(range(FOUNDERS), draw.randint(1, FOUNDERS - 1))
        founder = [draw.randrange(FOUNDERS) if draw.random() < 0.05 else f for f in founder]
        haplotypes = [int(f in carriers) ^ (draw.random() < 0.02) for f in founder]
        ref, alt = draw.sample("ACGT", 2)
        alt = alt + "TT" if number % 12 == 7 else alt
        sites.append(Site(1_000_000 + SPACING * number, ref, alt, haplotypes))
    return sites


def vcf_text(
    sites: Sequence[Site],
    people: range,
    names: Sequence[str],
    separator: str = "|",
    chrom: str = "20",
    length: int = 63_025_520,
    haploid: Callable[[int, int], bool] = lambda person, position: False,
) -> str:
    """Return a VCF of some people; `haploid` tells who is haploid at a position."""
    columns = ["#CHROM", "POS", "ID", "REF", "ALT", "QUAL", "FILTER", "INFO", "FORMAT", *names]
    lines = ["\t".join(columns)]
    for number, site in enumerate(sites):
        calls = []
        count = 0
        for person in people:
            copies = site.haplotypes[2 * person : 2 * person + 2]
            copies = copies[:1] if haploid(person, site.position) else copies
            copies = sorted(copies) if separator == "/" else copies
            count += sum(copies)
            calls.append(f"{separator.join(map(str, copies))}:{sum(copies)}")
        info = f"AC={count};AF={count / (2 * len(people)):.3g};NOTE=text{number}"
        start = [chrom, str(site.position), f"rs{number}", site.ref, site.alt, "30", "PASS", info, "GT:DS"]
        lines.append("\t".join([*start, *calls]))
    return HEADER.format(chrom=chrom, length=length) + "\n".join(lines) + "\n"


def bgzf(content: bytes, block: int = BLOCK_SIZE) -> bytes:
    """Return the content as BGZF, in blocks of this many bytes."""
    blocks = [compress_block(content[start : start + block]) for start in range(0, len(content), block)]
    return b"".join(blocks) + EOF_BLOCK


def checksum_of(description: Any) -> str:
    """Return the checksum that is stored with the description of a tabular model."""
    return hashlib.sha256(json.dumps(description, sort_keys=True).encode()).hexdigest()[:16]


def always_the_same(model: bytes) -> bytes:
    """Return a model without values that differ from run to run: the order of its metadata, and its peak
    memory.
    """
    length = int.from_bytes(model[:8], "little")
    tree = json.loads(model[8 : 8 + length])
    metadata = json.loads(tree["__metadata__"]["metadata"])
    if "description" in metadata and "peak_memory_" in metadata["description"]["fitted"]:
        metadata["description"]["fitted"]["peak_memory_"] = 0
        metadata["checksum"] = checksum_of(metadata["description"])
        tree["__metadata__"]["metadata"] = json.dumps(metadata, sort_keys=True)
    head = json.dumps(tree).encode()
    return in_one_order(len(head).to_bytes(8, "little") + head + model[8 + length :])


def in_one_order(model: bytes) -> bytes:
    """Return a safetensors file with sorted header entries; the library writes metadata in any order."""
    length = int.from_bytes(model[:8], "little")
    head = json.dumps(json.loads(model[8 : 8 + length]), sort_keys=True).encode()
    head += b" " * (-len(head) % 8)
    return len(head).to_bytes(8, "little") + head + model[8 + length :]


def _write_variants(folder: Path, sites: list[Site], run: Command) -> None:
    """Panel, phased and unphased targets and the truth, each as VCF, VCF.gz, BCF and plain gzip."""
    people = [f"p{number}" for number in range(PEOPLE)]
    targets = [f"t{number}" for number in range(TARGETS)]
    of_targets = range(PEOPLE, PEOPLE + TARGETS)
    typed = sites[::TYPED_STEP]
    texts = {
        "panel": vcf_text(sites, range(PEOPLE), people),
        "target": vcf_text(typed, of_targets, targets),
        "unphased": vcf_text(typed, of_targets, targets, separator="/"),
        "truth": vcf_text(sites, of_targets, targets),
    }
    for name, text in texts.items():
        vcf = folder / f"{name}.vcf"
        vcf.write_text(text)
        (folder / f"{name}.vcf.gz").write_bytes(bgzf(text.encode(), 2_000))
        (folder / f"{name}.plain.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
        write_bcf(vcf, folder / f"{name}.bcf")


def write_bcf(vcf: Path, out: Path) -> None:
    source = cyvcf2.VCF(str(vcf))
    writer = cyvcf2.Writer(str(out), source, mode="wb")
    for record in source:
        writer.write_record(record)
    writer.close()
    source.close()


def _write_texts(folder: Path, sites: list[Site]) -> None:
    """Genetic maps, chain files, sexes, names and the sites of an array."""
    rows = [(site.position, 1 + 0.003 * number) for number, site in enumerate(sites)]
    maps = {
        "plink.map": "".join(f"20 . {cM} {position}\n" for position, cM in rows),
        "shapeit.gmap": "pos\tchr\tcM\n" + "".join(f"{position}\t20\t{cM}\n" for position, cM in rows),
        "hapmap.txt": "Chromosome\tPosition(bp)\tRate(cM/Mb)\tMap(cM)\n"
        + "".join(f"chr20\t{position}\t1.5\t{cM}\n" for position, cM in rows),
    }
    for name, text in maps.items():
        (folder / name).write_text(text)
        (folder / f"{name}.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    (folder / "old.chain").write_text(CHAIN)
    (folder / "old.chain.gz").write_bytes(gzip.compress(CHAIN.encode(), mtime=0))
    (folder / "names.txt").write_text("".join(f"p{number}\n" for number in range(0, PEOPLE, 2)))
    typed = sites[::TYPED_STEP]
    (folder / "array.sites").write_text("".join(f"20\t{s.position}\t{s.ref}\t{s.alt}\n" for s in typed))
    (folder / "array.sites.gz").write_bytes(
        gzip.compress("".join(f"20 {s.position}\n" for s in typed).encode(), mtime=0)
    )


def _write_other_panels(folder: Path, sites: list[Site]) -> None:
    """The panel as M3VCF of three versions, and as the haplotypes of IMPUTE."""
    n = 2 * PEOPLE
    people = [f"p{number}" for number in range(PEOPLE)]
    columns = "#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\tFORMAT\t"
    middle = SITES // 2
    texts = {
        1: f"##fileformat=M3VCF\n##n_blocks=2\n{columns}"
        + "\t".join(f"{name}_HAP_{number}" for name in people for number in (1, 2)),
        2: f"##fileformat=M3VCFv2.0\n##contig=<ID=20>\n{columns}" + "\t".join(people),
        3: f"##subfileformat=MVCFv3.0\n##fileformat=VCFv4.2\n{columns}" + "\t".join(people),
    }
    for block in (sites[: middle + 1], sites[middle:]):  # all haplotypes count as distinct
        first, last = block[0], block[-1]
        counts = f"VARIANTS={len(block)};REPS={n}"
        pairs = [(str(2 * number), str(2 * number + 1)) for number in range(PEOPLE)]
        span = f"20\t{first.position}-{last.position}\t<BLOCK>\t.\t.\t.\t.\t{counts}\t."
        texts[1] += "\n" + "\t".join([span, *map("\t".join, pairs)])
        texts[2] += "\n" + "\t".join([span, *map("|".join, pairs)])
        start = f"20\t{first.position}\t.\tA\t<BLOCK>\t.\t.\tEND={last.position};{counts}\tUHM"
        texts[3] += "\n" + "\t".join([start, *map(",".join, pairs)])
        for site in block:
            alleles = list(map(str, site.haplotypes[:n]))
            carriers = [number for number, allele in enumerate(alleles) if allele == "1"]
            steps = ",".join(str(b - a) for a, b in zip([0, *carriers], carriers, strict=False))
            fixed = f"\n20\t{site.position}\trs{site.position}\t{site.ref}\t{site.alt}\t.\t."
            texts[1] += f"{fixed}\t.\t{''.join(alleles)}"
            texts[2] += f"{fixed}\t.\t{steps or '-'}"
            texts[3] += f"{fixed}\tUHA={','.join(alleles)}"
    found = {f"panel_{version}.m3vcf": f"{text}\n" for version, text in texts.items()}
    found |= {
        "panel.hap": "".join(" ".join(map(str, site.haplotypes[:n])) + "\n" for site in sites),
        "panel.legend": "id position a0 a1\n"
        + "".join(f"rs{site.position} {site.position} {site.ref} {site.alt}\n" for site in sites),
        "panel.sample": "sample population group sex\n" + "".join(f"{name} A B 2\n" for name in people),
    }
    for name, text in found.items():
        (folder / name).write_text(text)
        (folder / f"{name}.gz").write_bytes(gzip.compress(text.encode(), mtime=0))


def _write_array_texts(folder: Path) -> None:
    """One person's calls as companies deliver them, and five people's as a FinalReport."""
    forms = folder / "forms"
    rows = [line.split("\t") for line in (forms / "array.txt").read_text().splitlines()[1:]]
    ancestry = "".join(f"{i}\t{c}\t{p}\t{g[0]}\t{g[-1]}\n" for i, c, p, g in rows).replace("-", "0")
    head = "#AncestryDNA raw data download\n# build 37\nrsid\tchromosome\tposition\tallele1\tallele2\n"
    (forms / "ancestry.txt").write_text(head + ancestry)
    family = "".join(f'"{i}","{c}","{p}","{g}"\n' for i, c, p, g in rows)
    (forms / "family.csv").write_text("RSID,CHROMOSOME,POSITION,RESULT\n" + family)
    content = (forms / "array.txt").read_bytes()
    (forms / "array.txt.gz").write_bytes(gzip.compress(content, mtime=0))
    with zipfile.ZipFile(forms / "array.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipfile.ZipInfo("genome.txt"), content, zipfile.ZIP_DEFLATED)
    columns = ["SNP Name", "Sample ID", "Allele1 - Plus", "Allele2 - Plus", "GC Score", "Chr", "Position"]
    lines = ["[Header]", "GSGT Version\t2.0.4", f"Num SNPs\t{len(rows)}", "[Data]", "\t".join(columns)]
    for sample in ("a", "b"):
        lines += [f"{i}\t{sample}\t{g[0]}\t{g[-1]}\t0.9\t{c}\t{p}" for i, c, p, g in rows]
    text = "\n".join(lines) + "\n"
    (forms / "report.txt").write_text(text)
    (forms / "report.csv").write_text(text.replace("\t", ","))


def _write_made_files(folder: Path, run: Command) -> None:
    """What only our commands write: panels, models, files with an index, imputed files and chunks."""
    f = str(folder)
    panel = f"{f}/panel.spin"
    run(
        ["panel", "build", "--vcf", f"{f}/panel.vcf", "--map", f"{f}/plink.map", "-o", panel, "-t", "1", "-q"]
    )
    points = ["--inducing", "8", "--array", f"{f}/array.sites", "-t", "1", "-q"]
    run(["panel", "build", "--vcf", panel, "-o", f"{f}/panel.spip", *points])
    given = ["--panel", panel, "-q"]
    for suffix in ("vcf.gz", "bcf"):
        run(["convert", "--vcf", f"{f}/truth.vcf", "-o", f"{f}/indexed.{suffix}", *given])
        run(["convert", "--vcf", f"{f}/panel.vcf", "-o", f"{f}/panel_indexed.{suffix}", *given])
        target = ["impute", "--vcf", f"{f}/target.vcf", *given, "-t", "1"]
        run([*target, "-o", f"{f}/imputed.{suffix}", "--format", "GT,DS,HDS,GP"])
        middle = 1_000_000 + SPACING * SITES // 2
        run([*target, "-o", f"{f}/chunk1.{suffix}", "-r", f"20:1-{middle}"])
        run([*target, "-o", f"{f}/chunk2.{suffix}", "-r", f"20:{middle + 1}-2000000"])
    run(["np", "train", "--steps", "1", "--context", "4", "8", "-o", f"{f}/np.safetensors", "-q"])


def _write_chromosome_x(folder: Path, sites: list[Site], run: Command) -> None:
    """The same people across the end of PAR1; every second person is a man."""
    shift = PAR1_END - sites[SITES // 2].position
    on_x = [Site(s.position + shift, s.ref, s.alt, s.haplotypes) for s in sites]

    def one_copy(person: int, position: int) -> bool:
        return person % 2 == 0 and position > PAR1_END

    def write(name: str, some: Sequence[Site], people: range, names: Sequence[str]) -> None:
        text = vcf_text(some, people, names, chrom="X", length=155_270_560, haploid=one_copy)
        (folder / name).write_text(text)

    targets = range(PEOPLE, PEOPLE + TARGETS)
    write("panel_x.vcf", on_x, range(PEOPLE), [f"p{number}" for number in range(PEOPLE)])
    write("target_x.vcf", on_x[::TYPED_STEP], targets, [f"t{number}" for number in range(TARGETS)])
    sexes = [(f"t{number}", "MF"[person % 2]) for number, person in enumerate(targets)]
    (folder / "sexes.txt").write_text("".join(f"{name} {sex}\n" for name, sex in sexes))
    fam = "".join(f"family {name} 0 0 {'MF'.index(sex) + 1} -9\n" for name, sex in sexes)
    (folder / "sexes.fam").write_text(fam)
    f = str(folder)
    run(["panel", "build", "--vcf", f"{f}/panel_x.vcf", "-o", f"{f}/panel_x.spin", "-t", "1", "-q"])


def _write_tables(folder: Path, draw: random.Random, run: Command) -> None:
    """A table with numbers, categories and missing cells, in every form, and two fitted models."""
    columns: dict[str, list[object]] = {"id": [], "size": [], "colour": [], "price": [], "kind": []}
    for number in range(40):
        size = draw.randint(1, 9)
        columns["id"].append(f"row{number}")
        columns["size"].append(None if number % 9 == 4 else size)
        columns["colour"].append(draw.choice(["red", "green", "blue", None]))
        columns["price"].append(round(size * 1.5 + draw.random(), 2))
        columns["kind"].append("large" if size > 5 else "small")
    table = pd.DataFrame(columns)
    for name, separator in (("table.csv", ","), ("table.csv.gz", ","), ("table.tsv", "\t")):
        text = table.to_csv(index=False, sep=separator).encode()
        (folder / name).write_bytes(gzip.compress(text, mtime=0) if name.endswith(".gz") else text)
    table.to_parquet(folder / "table.parquet")
    given = ["tabular", "fit", "--table", f"{folder}/table.csv", "--steps", "2", "--ignore", "id", "-q"]
    run([*given, "--target", "price", "-o", f"{folder}/spin_table.safetensors", *SMALL_NETWORK])
    run([*given, "--target", "kind", "--model", "mlp", "-o", f"{folder}/mlp_table.safetensors"])
