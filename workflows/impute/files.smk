"""Names of files, and what depends on the configuration."""

import csv
import gzip
import re
from pathlib import Path
from shlex import quote

OUT = config["out"]
TARGETS = config["targets"]
PANELS = {str(chrom): panel for chrom, panel in config["panels"].items()}
FORMAT = config.get("format", "GT,DS")
DECIMALS = config.get("decimals", 3)
THREADS = config.get("threads", 2)
SAMPLES_PER_JOB = config.get("samples_per_job")  # None: all
OPTIONS = ("sex", "chain", "reference")  # of a target, that name files
OVERLAP_CM = 0.5  # of chunks of sequenced samples, for their phase
PAIRS = [
    (name, chrom)
    for name, target in TARGETS.items()
    for chrom in target.get("chromosomes", PANELS)
]

# said before anything is made: most files are needed late
for kind, entries in (("target", TARGETS), ("panel", PANELS)):
    for name, entry in entries.items():
        for what, path in entry.items():
            if what not in ("chromosomes", "indels") and not exists(path):
                raise WorkflowError(f"{kind} {name}: there is no file {path} ({what})")
for name, chrom in PAIRS:
    if chrom not in PANELS:
        raise WorkflowError(f"target {name}: there is no panel of chromosome {chrom}")


def files_in_sheet(name, sheet):
    """Sample -> BAM or CRAM, and -> its index, of a target that was sequenced."""
    with open(sheet, newline="", encoding="utf-8-sig") as table:
        rows = csv.DictReader(table, delimiter="\t")
        if not {"sample", "path"} <= set(rows.fieldnames or []):
            raise WorkflowError(
                f"target {name}: {sheet} must have the columns sample and path, with a tab between them"
            )
        reads, indexes = {}, {}
        for row in rows:
            where = f"target {name}: {sheet}, line {rows.line_num}"
            sample, path = row["sample"], row["path"]
            if not sample or not path:
                raise WorkflowError(f"{where}: there must be a sample and a path")
            if sample in reads:
                raise WorkflowError(f"{where}: sample {sample} is there twice; join its files (samtools merge)")
            if not Path(path).is_file():
                raise WorkflowError(f"{where}: there is no file {path}")
            reads[sample], indexes[sample] = path, index_of(path)
            if indexes[sample] is None:
                raise WorkflowError(f"{where}: {path} has no index; write it (samtools index)")
    if not reads:
        raise WorkflowError(f"target {name}: there is no sample in {sheet}")
    return reads, indexes


def index_of(path):
    """The index beside a file of reads; None if there is none."""
    ends = (".bai", ".csi", ".crai")
    names = [str(index) for end in ends for index in (f"{path}{end}", Path(path).with_suffix(end))]
    return next((index for index in names if Path(index).is_file()), None)


READS, INDEXES = {}, {}
for name, target in TARGETS.items():
    if "bam" in target:
        READS[name], INDEXES[name] = files_in_sheet(name, target["bam"])


def write_list(reads, out, batch=None):
    """Samples of a batch, or all, and their files as `spinimpute impute --bam-list` takes them."""
    rows = [f"{path}\t{sample}\n" for sample, path in reads.items()]
    Path(out).write_text("".join(rows if batch is None else batch_of(rows, int(batch))))


def write_names(names, out, batch=None):
    """Names of the samples of a batch, or all, as `spinimpute impute --samples-file` takes them."""
    rows = [f"{name}\n" for name in names]
    Path(out).write_text("".join(rows if batch is None else batch_of(rows, int(batch))))


def one_of(names):
    """A regular expression that matches these names, and nothing if there are none."""
    return "|".join(map(re.escape, names)) or "(?!)"


TYPED = one_of([name for name in TARGETS if name not in READS])
SEQUENCED = one_of(READS)
# targets whose chunks are imputed by one job each; the chunks of the others are merged from batches (batches.smk)
UNDIVIDED_TYPED = TYPED if SAMPLES_PER_JOB is None else one_of([])
UNDIVIDED_SEQUENCED = SEQUENCED if SAMPLES_PER_JOB is None else one_of([])


def batch_of(items, number):
    """The part of a list that the batch with this number has, counted from 1."""
    items = list(items)
    return items[(number - 1) * SAMPLES_PER_JOB : number * SAMPLES_PER_JOB]


def reads_of_batch(files, wildcards):
    """READS or INDEXES of a batch of samples."""
    return batch_of(files[wildcards.target].values(), int(wildcards.batch))


def samples_of_job(n_samples):
    """Samples that one job imputes, at most, of a target's."""
    return n_samples if SAMPLES_PER_JOB is None else min(n_samples, SAMPLES_PER_JOB)


def samples_in_header(vcf):
    """Names of the samples of a VCF.gz."""
    with gzip.open(vcf, "rt", encoding="utf-8") as text:
        return next(line for line in text if line.startswith("#CHROM")).rstrip("\n").split("\t")[9:]


def imputed():
    return [f"{OUT}/{name}.{chrom}.vcf.gz" for name, chrom in PAIRS]


def evaluations():
    return [f"{OUT}/{name}/{chrom}/evaluation" for name, chrom in PAIRS if "truth" in TARGETS[name]]


def panel_of(wildcards):
    return PANELS[wildcards.chrom].get("spin", f"{OUT}/panels/{wildcards.chrom}.spin")


def extras_of(wildcards):
    """Files that a target's options name."""
    target = TARGETS[wildcards.target]
    return [target[name] for name in OPTIONS if name in target]


def options_of(wildcards):
    """Of a target."""
    target = TARGETS[wildcards.target]
    words = [f"--{name} {quote(target[name])}" for name in OPTIONS if name in target]
    return " ".join([*words, "--indels"] if target.get("indels") else words)


def typed_of(wildcards):
    """What was imputed, if it was typed."""
    return [] if wildcards.target in READS else f"{OUT}/{wildcards.target}/{wildcards.chrom}/phased.vcf.gz"


def chunks_of(wildcards):
    """Files of all chunks of a chromosome: how many there are is known when its panel is."""
    with checkpoints.chunks.get(chrom=wildcards.chrom).output[0].open() as table:
        count = sum(1 for _ in table) - 1
    return [f"{OUT}/{wildcards.target}/{wildcards.chrom}/chunk.{n}.vcf.gz" for n in range(1, count + 1)]


def batches_of(wildcards):
    """Files of all batches of a chunk: how many there are is known when the samples are."""
    if wildcards.target in READS:
        n_samples = len(READS[wildcards.target])
    else:
        found = checkpoints.list_samples.get(target=wildcards.target, chrom=wildcards.chrom)
        with found.output[0].open() as names:
            n_samples = sum(1 for _ in names)
    chunk = f"{OUT}/{wildcards.target}/{wildcards.chrom}/chunk.{wildcards.chunk}"
    return [f"{chunk}.{n}.vcf.gz" for n in range(1, -(-n_samples // SAMPLES_PER_JOB) + 1)]


# A shell command that prints the region of a chunk. Without a shared file system, only the job has the table.
REGION = "$(awk -F '\\t' 'NR == {wildcards.chunk} + 1 {{print $2}}' {input.chunks:q})"
