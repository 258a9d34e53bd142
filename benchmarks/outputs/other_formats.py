"""A target in formats other than VCF: PLINK 1, PLINK 2 and the text format of 23andMe."""

from __future__ import annotations

import os
from pathlib import Path

import cyvcf2
import numpy as np

PLINK_1 = {0: 3, 1: 2, 2: 0, -1: 1}  # copies of ALT -> bits, with ALT as the first allele


def write_other_formats(vcf: Path, folder: Path) -> None:
    """Write a target as array.bed, array.pgen and, for its first sample, array.txt into a new folder."""
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
