"""The order of a panel's haplotypes, by which ties are decided."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

import spinimpute
from spinimpute.genotypes.genetic_map import GeneticMap
from spinimpute.genotypes.intervals import Interval
from spinimpute.predictors.haplotype_attention.chunk import HASHED_SITES, prepare_chunk


def panel_of(alleles_XN: np.ndarray, positions: np.ndarray, path: Path) -> spinimpute.Panel:
    people = range(alleles_XN.shape[1] // 2)
    lines = ["##fileformat=VCFv4.2", '##FORMAT=<ID=GT,Number=1,Type=String,Description="Genotype">']
    lines += ["##contig=<ID=1>", "#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\tFORMAT"]
    lines[-1] += "".join(f"\tp{i}" for i in people)
    for position, row in zip(positions.tolist(), alleles_XN.tolist(), strict=True):
        calls = "\t".join(f"{row[2 * i]}|{row[2 * i + 1]}" for i in people)
        lines.append(f"1\t{position}\t.\tA\tC\t.\t.\t.\tGT\t{calls}")
    vcf = path.with_suffix(".vcf")
    vcf.write_text("\n".join(lines) + "\n")
    return spinimpute.build_panel(vcf, path, GeneticMap.constant())


def test_monomorphic_sites_in_a_long_gap(mosaic: Callable[..., np.ndarray], tmp_path: Path) -> None:
    """Not all sites of a long gap are hashed: which ones are does not depend on monomorphic sites."""
    n = 2 * HASHED_SITES + 500
    alleles = mosaic(np.random.default_rng(1), n, 40)
    positions = 1_000 + 100 * np.arange(n)
    inserted = np.zeros((n // 2, 40), np.uint8)
    inserted[::3] = 1
    more = np.concatenate([positions, positions[::2] + 50])
    by_position = np.argsort(more)
    orders = []
    for name, rows, at in (
        ("a", alleles, positions),
        ("b", np.concatenate([alleles, inserted])[by_position], more[by_position]),
    ):
        with panel_of(rows, at, tmp_path / f"{name}.spin") as panel:
            typed = np.searchsorted(panel.position, positions[[0, -1]])
            window = Interval(0, panel.n_sites)
            orders.append(prepare_chunk(panel, typed, 0, window).order_N)
    np.testing.assert_array_equal(*orders)
