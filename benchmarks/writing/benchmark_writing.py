"""Time GenotypeWriter on random genotypes. Run it from the repository root.

    python benchmarks/writing/benchmark_writing.py
    python benchmarks/writing/benchmark_writing.py --threads 1,2,4 --formats GT,DS,HDS,GP

There are two kinds of dosages. "imputed" (mostly certain, with the allele frequencies of a population)
resembles the dosages of real runs; "noise" (uniform) compresses worst.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np

from spinimpute.genotypes.sites import Sites
from spinimpute.vcf.header import OutputLayout
from spinimpute.vcf.record_block import RecordBlock
from spinimpute.vcf.writer import GenotypeWriter

BLOCK = 2_000  # records per call of write_block


def random_dosages(n_sites: int, n_haplotypes: int, kind: str, rng: np.random.Generator) -> np.ndarray:
    """Return P(ALT) of each haplotype, float32 (n_sites, n_haplotypes)."""
    if kind == "noise":
        return rng.random((n_sites, n_haplotypes), dtype=np.float32)
    frequency = rng.beta(0.15, 1.5, size=(n_sites, 1)).astype(np.float32)
    allele = rng.random((n_sites, n_haplotypes), dtype=np.float32) < frequency
    uncertain = rng.random((n_sites, n_haplotypes), dtype=np.float32) < 0.3
    doubt = rng.exponential(0.02, size=(n_sites, n_haplotypes)).astype(np.float32) * uncertain
    return np.abs(allele - doubt).clip(0, 1)


def time_writing(path: Path, dosage: np.ndarray, formats: list[str], threads: int) -> float:
    """Return the seconds to write the file and its index."""
    n_sites, n_haplotypes = dosage.shape
    n_samples = n_haplotypes // 2
    position = np.arange(1, n_sites + 1, dtype=np.int64) * 1_000
    start = time.perf_counter()
    with GenotypeWriter(
        path,
        OutputLayout(
            [f"sample{i}" for i in range(n_samples)],
            np.full(n_samples, 2, dtype=np.uint8),
            ["##contig=<ID=22,length=51304566>"],
            formats=formats,
        ),
        threads=threads,
    ) as writer:
        for first in range(0, n_sites, BLOCK):
            block = dosage[first : first + BLOCK]
            n = len(block)
            sites = Sites("22", position[first : first + n], ["A"] * n, ["G"] * n, ["."] * n)
            frequency = block.mean(axis=1)
            writer.write_block(
                RecordBlock(
                    "22", sites, block, {"AF": frequency, "R2": frequency}, None, np.zeros(n, dtype=bool)
                )
            )
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description="Time the writing of VCF.gz and BCF.")
    parser.add_argument("--sites", type=int, default=32_781)
    parser.add_argument("--samples", type=int, default=250, help="diploid samples")
    parser.add_argument("--threads", default="1,2", help="numbers of compression threads, with commas")
    parser.add_argument("--formats", default="GT,DS", help="FORMAT fields, with commas")
    parser.add_argument("--repeat", type=int, default=3, help="the fastest of so many runs counts")
    arguments = parser.parse_args()
    formats = arguments.formats.split(",")
    rng = np.random.default_rng(1)
    print(f"{arguments.sites} records x {arguments.samples} diploid samples, {':'.join(formats)}")
    print(f"{'dosages':<9}{'format':<8}{'threads':>7}{'seconds':>9}{'MB':>8}")
    with tempfile.TemporaryDirectory() as folder:
        for kind in ("imputed", "noise"):
            dosage = random_dosages(arguments.sites, 2 * arguments.samples, kind, rng)
            for suffix in ("bcf", "vcf.gz"):
                path = Path(folder) / f"out.{suffix}"
                for threads in map(int, arguments.threads.split(",")):
                    seconds = min(
                        time_writing(path, dosage, formats, threads) for _ in range(arguments.repeat)
                    )
                    size = path.stat().st_size / 1e6
                    print(f"{kind:<9}{suffix:<8}{threads:>7}{seconds:>9.2f}{size:>8.1f}")


if __name__ == "__main__":
    main()
