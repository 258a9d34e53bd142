"""What a chunk needs, from the sizes of the panel, the chunk and the target."""

import gzip


def memory_of_chunk(wildcards, input, attempt):
    """MB; more at each attempt."""
    return round(attempt * chunk_memory_mb(*_sizes(wildcards, input)))


def minutes_of_chunk(wildcards, input, threads, attempt):
    return round(attempt * chunk_minutes(*_sizes(wildcards, input), threads))


def chunk_memory_mb(sites, haplotypes, samples):
    """What `spinimpute impute --region` works well with, and keeps to: the program itself, prepared parts of
    the panel, results that are being written."""
    return 400 + 0.008 * haplotypes + 45 * min(8e6, sites * 2 * samples) / 1e6


def chunk_minutes(sites, haplotypes, samples, threads):
    """Several times what was seen, as machines differ: starting, then by results and by the panel's size."""
    results = sites * 2 * samples / 1e6
    return 5 + (results * 1.5 + results * haplotypes / 10_000) / 60 / threads * 4


def _sizes(wildcards, input):
    """Sites of the chunk, haplotypes of the panel, samples of the target."""
    try:
        with open(input.chunks) as table:
            rows = [line.split("\t") for line in table.readlines()[1:]]
        _, _, sites, _, haplotypes = rows[int(wildcards.chunk) - 1]
        with gzip.open(input.vcf, "rt") as header:
            named = next(line for line in header if line.startswith("#CHROM"))
    except FileNotFoundError:  # a dry run: nothing is made yet
        return 500_000, 5_000, 100
    return int(sites), int(haplotypes), len(named.split("\t")) - 9
