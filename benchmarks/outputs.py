"""Checksums of what the commands write, to compare two versions of the program byte for byte.

    python -m benchmarks.outputs checksums.tsv --data shared/data/genotypes
    python -m benchmarks.outputs before.tsv --data ... --python other/venv/bin/python

The commands run on the example and on the two real sets: panels built and tuned, targets phased, unphased, as
PLINK 1 and 2 and as array text, both predictors, leave-one-out. `diff` tells which outputs differ.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import click
import cyvcf2
import numpy as np

EXAMPLE = Path(__file__).resolve().parent.parent / "data" / "example"
# set -> genetic map, h of inducing points in place of the panel
SETS = {"chr20_eur": ("plink.chr20.GRCh37.map", 256), "chr22_1kg": ("plink.chr22.GRCh37.map", 64)}
PLINK_1 = {0: 3, 1: 2, 2: 0, -1: 1}  # copies of ALT -> bits, with ALT as the first allele


@click.command()
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--data", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Real sets.")
@click.option("--python", default=sys.executable, help="The interpreter that has the version to be run.")
@click.option("--only", help="Run the commands of this set alone.")
def main(out: Path, data: Path | None, python: str, only: str | None) -> None:
    """Write the checksum of each output, a line each."""
    lines: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        for name, commands in _sets(work, data):
            if only not in (None, name):
                continue
            (work / name).mkdir()
            for command in commands:
                before = _files(work / name)
                _run(python, command, work / name)
                for path in sorted(_files(work / name) - before):
                    digest = hashlib.sha256((work / name / path).read_bytes()).hexdigest()
                    lines[f"{name}/{path}"] = digest
                    click.echo(f"{digest[:16]}  {name}/{path}")
    out.write_text("".join(f"{digest}\t{path}\n" for path, digest in lines.items()))


def _sets(work: Path, data: Path | None) -> Iterator[tuple[str, Iterator[str]]]:
    """Commands are given one by one, so that one may read what the ones before wrote."""
    yield "example", _example(work / "example")
    if data is not None:
        for name, (genetic_map, points) in SETS.items():
            folder = data.resolve() / name
            yield name, _real(folder, data.resolve() / "maps" / genetic_map, points, work / name)


def _example(work: Path) -> Iterator[str]:
    e = "forms"  # outputs hold the command with its paths, which must not be those of a checkout
    shutil.copytree(EXAMPLE, work / e)
    yield f"panel build --vcf {e}/panel.vcf.gz --map {e}/genetic.map --out panel.spin"
    yield f"impute --vcf {e}/target.vcf.gz --panel panel.spin --out imputed.vcf.gz --format GT,DS,GP,HDS"
    yield f"panel build --vcf panel.spin --inducing 16 --array {e}/array.txt --out points.spip"
    yield f"impute --vcf {e}/target.vcf.gz --panel points.spip --out points.vcf"
    files = f"--truth {e}/truth.vcf.gz --imputed imputed.vcf.gz --typed {e}/target.vcf.gz"
    yield f"evaluate {files} --panel panel.spin --out evaluation"


def _real(folder: Path, genetic_map: Path, points: int, work: Path) -> Iterator[str]:
    d, phased, unphased = (
        shlex.quote(str(folder / p)) for p in ("", "target.phased.bcf", "target.unphased.vcf.gz")
    )
    yield f"panel build --vcf {d}/panel.bcf --map {shlex.quote(str(genetic_map))} --out panel.spin"
    yield f"impute --vcf {phased} --panel panel.spin --out phased.bcf --format GT,DS,GP,HDS"
    yield f"impute --vcf {phased} --panel panel.spin --out loo.vcf.gz --loo quality"
    yield f"impute --vcf {unphased} --panel panel.spin --out unphased.vcf.gz"
    yield f"phase --vcf {unphased} --panel panel.spin --out target.bcf"
    yield f"panel tune --panel panel.spin --array {phased} --out tuned.spin"
    yield f"impute --vcf {phased} --panel tuned.spin --out tuned.bcf"
    spin = f"--predictor spin --inducing-points {points}"
    yield f"impute --vcf {phased} --panel panel.spin --out spin.bcf {spin}"
    yield f"panel build --vcf panel.spin --inducing {points} --array {phased} --out points.spip"
    yield f"impute --vcf {phased} --panel points.spip --out points.bcf"
    write_other_forms(folder / "target.unphased.vcf.gz", work / "forms")
    yield "convert --bfile forms/array --panel panel.spin --out plink1.vcf.gz"
    yield "convert --pfile forms/array --panel panel.spin --out plink2.vcf.gz"
    yield "impute --vcf forms/array.txt --panel panel.spin --out text.vcf.gz"
    yield "check --vcf forms/array.txt --panel panel.spin --out check.tsv"


def write_other_forms(vcf: Path, folder: Path) -> None:
    """The target as PLINK 1 and 2, and its first sample as a text of 23andMe."""
    from pgenlib import PgenWriter

    folder.mkdir()
    reader = cyvcf2.VCF(str(vcf), gts012=True)
    records = [(v.CHROM, v.POS, v.ID, v.REF, v.ALT[0], v.gt_types.copy()) for v in reader]
    copies_TX = np.array([[-1 if g == 3 else g for g in record[5]] for record in records], np.int8)
    samples = reader.samples
    bits_TX = np.vectorize(PLINK_1.get)(copies_TX).astype(np.uint8)
    padded = np.pad(bits_TX, ((0, 0), (0, -len(samples) % 4))).reshape(len(records), -1, 4)
    packed = (padded << np.array([0, 2, 4, 6], np.uint8)).sum(2).astype(np.uint8)
    (folder / "array.bed").write_bytes(b"\x6c\x1b\x01" + packed.tobytes())
    names = [record[2] or f"{record[0]}:{record[1]}" for record in records]
    sites = list(zip(names, records, strict=True))
    (folder / "array.bim").write_text(
        "".join(f"{c}\t{n}\t0\t{p}\t{a}\t{r}\n" for n, (c, p, _, r, a, _) in sites)
    )
    (folder / "array.fam").write_text("".join(f"{s} {s} 0 0 0 -9\n" for s in samples))
    header = "#CHROM\tPOS\tID\tREF\tALT\n"
    (folder / "array.pvar").write_text(
        header + "".join(f"{c}\t{p}\t{n}\t{r}\t{a}\n" for n, (c, p, _, r, a, _) in sites)
    )
    (folder / "array.psam").write_text("#IID\n" + "".join(f"{s}\n" for s in samples))
    with PgenWriter(os.fsencode(folder / "array.pgen"), len(samples), len(records), False) as writer:
        for copies_X in copies_TX:
            writer.append_biallelic(np.where(copies_X < 0, -9, copies_X).astype(np.int8))
    with (folder / "array.txt").open("w") as file:
        file.write("# rsid\tchromosome\tposition\tgenotype\n")
        for (n, (c, p, _, r, a, _)), copies_X in zip(sites, copies_TX, strict=True):
            if len(r) > 1 or len(a) > 1:
                continue
            genotype = {0: r + r, 1: r + a, 2: a + a, -1: "--"}[int(copies_X[0])]
            file.write(f"{n}\t{c}\t{p}\t{genotype}\n")


def _files(folder: Path) -> set[Path]:
    return {
        path.relative_to(folder) for path in folder.rglob("*") if path.is_file() and "forms" not in path.parts
    }


def _run(python: str, command: str, folder: Path) -> None:
    words = [python, "-m", "spinimpute", *shlex.split(command)]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise click.ClickException(f"{command}\n{done.stderr}")


if __name__ == "__main__":
    main()
