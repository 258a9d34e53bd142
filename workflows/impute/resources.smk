"""What a chunk needs, from the sizes of the panel, the chunk and the target."""

import gzip
from pathlib import Path


def memory_of_chunk(wildcards, input, attempt):
    """MB; more at each attempt."""
    return round(attempt * chunk_memory_mb(*_sizes(wildcards, input)))


def minutes_of_chunk(wildcards, input, threads, attempt):
    return round(attempt * chunk_minutes(*_sizes(wildcards, input), threads))


def chunk_memory_mb(sites, haplotypes, samples):
    """At most what `spinimpute impute --region` was seen to need: the program itself, the panel's rows of a
    window as bits, results of the windows that are worked on."""
    return 400 + 1.5 * min(sites, 100_000) * haplotypes / 8e6 + 16 * min(50e6, sites * 2 * samples) / 1e6


def chunk_minutes(sites, haplotypes, samples, threads):
    """Several times what was seen, as machines differ: starting, then by results and by the panel's size."""
    results = sites * 2 * samples / 1e6
    return 5 + (results * 1.5 + results * haplotypes / 10_000) / 60 / threads * 4


def _sizes(wildcards, input):
    """Sites of the chunk, haplotypes of the panel (by its size, 1 bit an allele), samples of the target."""
    try:
        with open(input.chunks) as table:
            rows = [line.split("\t") for line in table.readlines()[1:]]
        sites = int(rows[int(wildcards.chunk) - 1][2])
        haplotypes = 8 * Path(str(input.panel)).stat().st_size / sum(int(row[2]) for row in rows)
        with gzip.open(input.vcf, "rt") as header:
            named = next(line for line in header if line.startswith("#CHROM"))
    except FileNotFoundError:  # a dry run: nothing is made yet
        return 500_000, 5_000, 100
    return sites, haplotypes, len(named.split("\t")) - 9
