"""What a chunk needs, from the sizes of the panel, the chunk and the target."""

import gzip
from functools import cache
from pathlib import Path

LOOKED_AT = 20_000_000  # letters of a target, from which its size is estimated
BESIDE = 3_600  # typed sites around a chunk that are read with it, at most
LARGE_PANEL = 12_000  # haplotypes; of larger ones reads are imputed from the likeliest
SNAKEMAKE_MB = 400  # two processes of Snakemake in a job of Slurm, which count for its memory
BUFFER_CM = 1  # around a chunk of sequenced samples, on either side


def memory_of_chunk(wildcards, input, threads, attempt):
    """MB; more at each attempt."""
    sites, haplotypes, n_samples, share = _sizes(wildcards, input)
    samples = samples_of_job(n_samples)
    calls = calls_of(str(input.vcf)) * samples / n_samples if Path(input.vcf).is_file() else 0
    if wildcards.chrom not in ("X", "chrX"):  # of which all is read, as it has parts
        calls = calls_read(calls, share, samples)
    return SNAKEMAKE_MB + round(attempt * chunk_memory_mb(sites, haplotypes, samples, threads, calls))


def minutes_of_chunk(wildcards, input, threads, attempt):
    sites, haplotypes, samples, _ = _sizes(wildcards, input)
    return round(attempt * chunk_minutes(sites, haplotypes, samples_of_job(samples), threads))


def calls_read(calls, share, samples):
    """Of a target, for a chunk with this share of the panel's sites: typed sites lie unevenly."""
    return min(calls, 3 * share * calls + BESIDE * 2 * samples)


def chunk_memory_mb(sites, haplotypes, samples, threads, calls):
    """What `spinimpute impute --region` works well with, and keeps to: the program itself, the target's calls
    that are read, prepared parts of the panel, what threads work on, results that are being written. Where the
    panel's typed sites are very dense, prepared parts take up to three times as much."""
    read = 380 + 5 * calls / 1e6
    panel = haplotypes * (0.008 + 0.0006 * threads)
    return read + panel + 12 * threads + 45 * min(8e6, sites * 2 * samples) / 1e6


def chunk_minutes(sites, haplotypes, samples, threads):
    """Several times what was seen, as machines differ: starting, then by results and by the panel's size."""
    results = sites * 2 * samples / 1e6
    return 5 + (results * 1.5 + results * haplotypes / 10_000) / 60 / threads * 4


def memory_of_reads(wildcards, input, threads, attempt):
    """MB, of a chunk of sequenced samples; more at each attempt."""
    sites, haplotypes = _sizes_around(wildcards, input)
    samples = samples_of_job(len(READS[wildcards.target]))
    return SNAKEMAKE_MB + round(attempt * reads_memory_mb(sites, haplotypes, samples, threads))


def minutes_of_reads(wildcards, input, threads, attempt):
    sites, haplotypes = _sizes_around(wildcards, input)
    samples = samples_of_job(len(READS[wildcards.target]))
    return round(attempt * reads_minutes(sites, haplotypes, samples, threads))


def reads_memory_mb(sites, haplotypes, samples, threads):
    """What `spinimpute impute --bam --region` takes, and keeps to: the program; of the sites that are computed at
    once, the panel, and what each thread works on; likelihoods, and bases of up to four reads a site."""
    at_once = min(sites, 131_072)
    of_samples = samples * (20 * at_once + 120 * sites)
    if haplotypes <= LARGE_PANEL:
        return 300 + (_over_all(at_once, haplotypes, threads) + of_samples) / 1e6
    # a search by one site in four, then chains over 2,000 states
    common = at_once / 4
    panel = haplotypes * common / 2 + 1_500 * at_once + 250e6
    of_thread = 2_800 * at_once + 340_000 * at_once**0.5 + 1e6
    at_work = max(_over_all(common, min(haplotypes, 20_000), threads), threads * of_thread)
    return 300 + 1.2 * (panel + at_work + 600 * common * min(samples, 64) + of_samples) / 1e6


def _over_all(at_once, haplotypes, threads):
    """Bytes, where all haplotypes may be copied: patterns of the panel, and what each thread works on."""
    spans = at_once / 16
    of_thread = (220 * haplotypes + 170_000 + 36 * min(haplotypes, 192) ** 2) * spans**0.5 + 1_500 * at_once
    return haplotypes * (7.5 * spans + 40 * spans**0.5) + threads * of_thread


def reads_minutes(sites, haplotypes, samples, threads):
    """Several times what was seen: starting, reading (one file after the other), and the haplotypes at all sites."""
    results = sites * samples / 1e6
    return 5 + (8 * results + 4 * results * min(haplotypes, 20_000) / 400 / threads) / 60


@cache
def calls_of(vcf):
    """Haplotypes times records; a large file's about, by how much of it the first ones take."""
    with open(vcf, "rb") as compressed, gzip.open(compressed, "rt") as text:
        named = next(line for line in text if line.startswith("#CHROM"))
        records = length = 0
        for line in text:
            records += 1
            length += len(line)
            if length > LOOKED_AT:
                records *= Path(vcf).stat().st_size / compressed.tell()
                break
    return round(2 * (len(named.split("\t")) - 9) * records)


def _sizes(wildcards, input):
    """Sites of the chunk, haplotypes of the panel, samples of the target; the chunk's share of all sites."""
    try:
        with open(input.chunks) as table:
            rows = [line.split("\t") for line in table.readlines()[1:]]
        if any(len(row) != 5 for row in rows):
            raise ValueError(f"{input.chunks}: made by an older version; delete it")
        _, _, sites, _, haplotypes = rows[int(wildcards.chunk) - 1]
        n_samples = len(samples_in_header(input.vcf))
    except FileNotFoundError:  # a dry run: nothing is made yet
        return 500_000, 5_000, 100, 1
    share = int(sites) / sum(int(row[2]) for row in rows)
    return int(sites), int(haplotypes), n_samples, share


def _sizes_around(wildcards, input):
    """Sites that a chunk is computed with, which reach beyond it, and haplotypes of the panel."""
    try:
        with open(input.chunks) as table:
            rows = [line.split("\t") for line in table.readlines()[1:]]
    except FileNotFoundError:  # a dry run: nothing is made yet
        return 500_000, 5_000
    _, _, sites, length, haplotypes = rows[int(wildcards.chunk) - 1]
    around = int(sites) * (1 + 2 * BUFFER_CM / max(float(length), 0.01))
    return min(round(around), sum(int(row[2]) for row in rows)), int(haplotypes)
