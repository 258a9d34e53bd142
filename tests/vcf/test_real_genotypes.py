"""Real genotypes, written and read again."""

from pathlib import Path

import cyvcf2
import numpy as np
import pytest

from spinimpute.genotypes.sites import Sites
from spinimpute.vcf.header import OutputLayout
from spinimpute.vcf.writer import GenotypeWriter


def test_real_genotypes_come_back(tmp_path: Path, shared_genotypes: Path) -> None:
    source = next(iter(sorted(shared_genotypes.glob("chr22_1kg/*.bcf"))), None)
    if source is None:
        pytest.skip("there is no BCF among the real genotypes")
    reader = cyvcf2.VCF(str(source))
    contig = next(line for line in reader.raw_header.splitlines() if line.startswith("##contig"))
    samples, records, calls = reader.samples, [], []
    for record in reader:
        if len(record.ALT) == 1:
            records.append((record.POS, record.REF, record.ALT[0], record.ID or "."))
            calls.append(record.genotype.array()[:, :2].reshape(-1))
        if len(records) == 500:
            break
    reader.close()
    alleles = np.array(calls).astype(np.int8)
    position, ref, alt, name = (list(column) for column in zip(*records, strict=True))
    chrom = contig.split("ID=")[1].split(",")[0].rstrip(">")
    for suffix in ("vcf.gz", "bcf"):
        path = tmp_path / f"x.{suffix}"
        with GenotypeWriter(
            path, OutputLayout(samples, np.full(len(samples), 2, np.uint8), [contig])
        ) as writer:
            sites = Sites(chrom, np.array(position), ref, alt, name)
            writer.write_block(
                chrom, sites, alleles.astype(np.float32), {}, alleles, np.ones(len(position), bool)
            )
        again = cyvcf2.VCF(str(path))
        assert (np.array([r.genotype.array()[:, :2].reshape(-1) for r in again]) == alleles).all()
        again.close()
