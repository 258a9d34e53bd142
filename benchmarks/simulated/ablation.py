"""Accuracy by the sizes that a model uses in imputation, on simulated panels.

usage: python benchmarks/simulated/ablation.py [--predictor spin] [--model model.safetensors] [--out FILE]

Sizes of haplotype attention: the number of IBS classes; the numbers of haplotypes searched and at most used
at each typed site; and the number of typed sites around a block at which they are searched. Sizes of SPIN:
gaps of a block, typed sites on each side of the block, inducing points, rounds of the encoder.

Defaults are chosen with this script, never with the real target files of `benchmarks/imputation`. Needs
msprime.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

import spinimpute
from spinimpute.genotypes.genetic_map import GeneticMap
from spinimpute.hmm.pbwt import CandidateSettings
from spinimpute.predictors.haplotype_attention.predictor import HaplotypePredictor
from spinimpute.predictors.spin.predictor import SPINPredictor
from spinimpute.quality.metrics import minor_allele_dosage, pooled_r2, site_statistics
from spinimpute.training.simulation import Segment, SimulationSettings, simulate_segment

# seed, people, recombination per bp, typed sites per Mb: outside the seeds of training and validation
SETS = [
    (77_001, 450, 1.2e-8, 700),
    (77_002, 2_350, 1.2e-8, 700),
    (77_003, 1_000, 1.5e-8, 150),
    (77_004, 2_000, 0.2e-8, 400),
    (77_005, 2_600, 0.02e-8, 400),
]
TARGETS = 100  # people
BINS = (0.0, 0.001, 0.005, 0.02, 0.5)
HAPLOTYPE_GRID = [
    # classes, nearest, most, margin
    (8, 6, 256, 4),
    (16, 6, 256, 4),
    (24, 6, 256, 4),
    (48, 6, 256, 4),
    (24, 2, 256, 4),
    (24, 12, 256, 4),
    (24, 6, 64, 4),
    (24, 6, 1024, 4),
    (24, 6, 256, 0),
    (24, 6, 256, 12),
]
SPIN_GRID = [
    # core gaps, typed sites on each side, inducing points, rounds
    (8, 128, 1024, 2),
    (4, 128, 1024, 2),
    (16, 128, 1024, 2),
    (8, 64, 1024, 2),
    (8, 192, 1024, 2),
    (8, 128, 256, 2),
    (8, 128, 2048, 2),
    (8, 128, 1024, 1),
    (8, 128, 1024, 3),
]


def simulated_set(seed: int, people: int, rate: float, density: float) -> tuple[Segment, np.ndarray]:
    """Return a segment of 0.9 Mb, and the typed sites of an array that prefers common sites."""
    settings = SimulationSettings(
        length=(900_000, 900_001),
        samples=(people, people + 1),
        recombination_rate=(rate, rate * 1.0001),
        recent_growth=(4.0, 8.0),
    )
    segment = simulate_segment(seed, settings)
    rng = np.random.default_rng(seed)
    frequency = segment.alleles(0, segment.n_sites)[:, : -2 * TARGETS].mean(1)
    minor = np.minimum(frequency, 1 - frequency)
    usable = np.flatnonzero(minor > 0.01)
    weight = (minor[usable] + 0.02) ** 0.6
    typed = rng.choice(usable, int(density * 0.9), replace=False, p=weight / weight.sum())
    return segment, np.sort(typed)


def write_panel(segment: Segment, folder: Path) -> spinimpute.Panel:
    """Write the segment without its last people as a panel file."""
    alleles = segment.alleles(0, segment.n_sites)[:, : -2 * TARGETS]
    names = "\t".join(f"p{i}" for i in range(alleles.shape[1] // 2))
    vcf, genetic_map = folder / "panel.vcf", folder / "panel.map"
    calls = np.array(["0|0", "1|0", "0|1", "1|1"])
    with vcf.open("w") as file:
        file.write("##fileformat=VCFv4.2\n##contig=<ID=1>\n")
        file.write('##FORMAT=<ID=GT,Number=1,Type=String,Description="Genotype">\n')
        file.write(f"#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\tFORMAT\t{names}\n")
        for position, row in zip(segment.position, alleles, strict=True):
            genotypes = "\t".join(calls[row[::2] + 2 * row[1::2]])
            file.write(f"1\t{position}\t.\tA\tC\t.\tPASS\t.\tGT\t{genotypes}\n")
    points = zip(segment.position, segment.cM, strict=True)
    genetic_map.write_text("".join(f"1 . {cM:.9f} {position}\n" for position, cM in points))
    return spinimpute.build_panel(vcf, folder / "panel.spin", GeneticMap.read(genetic_map, "1"))


def resized(loaded: SPINPredictor, core: int, flank: int, points: int, rounds: int) -> SPINPredictor:
    """Return a model with the same weights and other sizes."""
    settings = dataclasses.replace(loaded.settings, core=core, flank=flank, rounds=rounds)
    return SPINPredictor(loaded.weights, settings, loaded.fingerprint, "cpu", points)


def variants(
    loaded: HaplotypePredictor | SPINPredictor,
) -> list[tuple[str, HaplotypePredictor | SPINPredictor]]:
    """Return models with the same weights and other sizes, each with a name."""
    if isinstance(loaded, SPINPredictor):
        names = ("core", "flank", "points", "rounds")
        return [(_named(names, sizes), resized(loaded, *sizes)) for sizes in SPIN_GRID]
    names = ("classes", "nearest", "most", "margin")
    return [
        (
            _named(names, sizes),
            HaplotypePredictor(
                loaded.weights, loaded.settings, "", "cpu", CandidateSettings(*sizes[1:]), sizes[0]
            ),
        )
        for sizes in HAPLOTYPE_GRID
    ]


def _named(names: Sequence[str], sizes: Sequence[int]) -> str:
    return " ".join(f"{name}={size}" for name, size in zip(names, sizes, strict=True))


def r2_by_frequency(p_UQ: np.ndarray, truth_UQ: np.ndarray, frequency: np.ndarray) -> list[float]:
    """Return the pooled dosage r2 of all sites and of each bin, counted in copies of the panel's minor
    allele.
    """
    dosage, minor = minor_allele_dosage(p_UQ[:, ::2] + p_UQ[:, 1::2], frequency)
    truth, _ = minor_allele_dosage((truth_UQ[:, ::2] + truth_UQ[:, 1::2]).astype(np.float32), frequency)
    statistics = site_statistics(truth, dosage)
    bins = [(0.0, 0.5), *itertools.pairwise(BINS)]
    chosen = [(minor > low) & (minor <= high) for low, high in bins]
    return [pooled_r2(statistics[c]) if c.any() else float("nan") for c in chosen]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--predictor", choices=["haplotype", "spin"])
    parser.add_argument("--model", help="checkpoint (default: the shipped one)")
    parser.add_argument("--out", type=Path, help="write the table there too")
    args = parser.parse_args()
    loaded = spinimpute.load_predictor(args.model, "cpu", name=args.predictor)
    if not isinstance(loaded, HaplotypePredictor | SPINPredictor):
        parser.error("--model must hold haplotype attention or SPIN")
    names = ["all", *(f"({a:g},{b:g}]" for a, b in itertools.pairwise(BINS))]
    rows = ["\t".join(["set", "haplotypes", "sizes", "seconds", *names])]
    print(rows[0])
    for seed, people, rate, density in SETS:
        segment, typed = simulated_set(seed, people, rate, density)
        with tempfile.TemporaryDirectory() as folder, write_panel(segment, Path(folder)) as panel:
            # sites that only the targets vary at are not in question
            kept = np.searchsorted(segment.position, panel.position)
            truth = segment.alleles(0, segment.n_sites)[kept, -2 * TARGETS :]
            typed_here = np.flatnonzero(np.isin(kept, typed))
            scored = (panel.frequency > 0) & (panel.frequency < 1)
            scored[typed_here] = False
            for name, predictor in variants(loaded):
                start = time.perf_counter()
                p = spinimpute.impute_haplotypes(
                    panel,
                    truth[typed_here],
                    typed_here,
                    predictor=spinimpute.PredictorSettings(model=predictor),
                )
                seconds = time.perf_counter() - start
                r2 = r2_by_frequency(p[scored], truth[scored], panel.frequency[scored])
                cells = [seed, panel.n_haplotypes, name, f"{seconds:.1f}"]
                rows.append("\t".join([*map(str, cells), *(f"{value:.4f}" for value in r2)]))
                print(rows[-1], flush=True)
    print(f"torch {torch.__version__}, model {args.model or 'shipped'}")
    if args.out:
        args.out.write_text("\n".join(rows) + "\n")


if __name__ == "__main__":
    main()
