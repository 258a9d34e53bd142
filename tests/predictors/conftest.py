"""Fixtures of the tests of predictors: panels and variant files from arrays of alleles."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

import spinimpute
from spinimpute.genotypes.genetic_map import GeneticMap
from spinimpute.panels.stored_rows import RowLayout, store_rows
from spinimpute.predictors.haplotype_attention.copying import GapPatterns, gap_patterns

Samples = Sequence[Sequence[int]]  # the columns of each sample, one or two


@pytest.fixture(scope="session")
def write_alleles() -> Callable[..., Path]:
    """write_alleles(path, alleles_XN, samples=None, positions=None): a VCF with phased calls on chromosome 1.

    By default every two columns are a sample. Samples are named after their columns.
    """

    def write(
        path: Path,
        alleles_XN: np.ndarray,
        samples: Samples | None = None,
        positions: np.ndarray | None = None,
    ) -> Path:
        n_sites, n = alleles_XN.shape
        samples = [(i, i + 1) for i in range(0, n, 2)] if samples is None else samples
        positions = 1_000 + 400 * np.arange(n_sites) if positions is None else positions
        names = "\t".join("s" + "_".join(map(str, sample)) for sample in samples)
        lines = ["##fileformat=VCFv4.2", "##contig=<ID=1>"]
        lines.append('##FORMAT=<ID=GT,Number=1,Type=String,Description="Genotype">')
        lines.append(f"#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\tFORMAT\t{names}")
        for position, row in zip(positions.tolist(), alleles_XN, strict=True):
            calls = "\t".join("|".join(str(row[h]) for h in sample) for sample in samples)
            lines.append(f"1\t{position}\t.\tA\tC\t.\t.\t.\tGT\t{calls}")
        path.write_text("\n".join(lines) + "\n")
        return path

    return write


@pytest.fixture(scope="session")
def panel_of(write_alleles: Callable[..., Path]) -> Callable[..., spinimpute.Panel]:
    """panel_of(path, alleles_XN, ...): a panel of these alleles, see `write_alleles`; 1 cM/Mb."""

    def build(path: Path, *arguments: object, **named: object) -> spinimpute.Panel:
        vcf = write_alleles(path.with_suffix(".vcf"), *arguments, **named)
        return spinimpute.build_panel(vcf, path, GeneticMap(np.array([1.0, 1e7]), np.array([0.0, 10.0])))

    return build


@pytest.fixture(scope="session")
def patterns_of() -> Callable[[np.ndarray, np.ndarray], GapPatterns]:
    """patterns_of(alleles_UN, start_G1): the patterns of haplotypes in gaps."""

    def find(alleles_UN: np.ndarray, start_G1: np.ndarray) -> GapPatterns:
        n = alleles_UN.shape[1]
        count_U = alleles_UN.sum(axis=1, dtype=np.int64)
        stored = np.frombuffer(store_rows(np.packbits(alleles_UN, axis=1), n), np.uint8)
        rows = RowLayout.of(count_U, n).rows(stored)
        return gap_patterns(rows, start_G1, np.arange(n), np.minimum(count_U, n - count_U))

    return find
