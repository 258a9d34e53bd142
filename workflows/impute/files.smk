"""Names of files, and what depends on the configuration."""

import csv
import re
from pathlib import Path
from shlex import quote

OUT = config["out"]
TARGETS = config["targets"]
PANELS = {str(chrom): panel for chrom, panel in config["panels"].items()}
FORMAT = config.get("format", "GT,DS")
DECIMALS = config.get("decimals", 3)
THREADS = config.get("threads", 2)
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


def write_list(reads, out):
    """Samples and their files as `spinimpute impute --bam-list` takes them."""
    Path(out).write_text("".join(f"{path}\t{sample}\n" for sample, path in reads.items()))


def one_of(names):
    """A regular expression that matches these names, and nothing if there are none."""
    return "|".join(map(re.escape, names)) or "(?!)"


TYPED = one_of([name for name in TARGETS if name not in READS])
SEQUENCED = one_of(READS)


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


# A shell command that prints the region of a chunk. Without a shared file system, only the job has the table.
REGION = "$(awk -F '\\t' 'NR == {wildcards.chunk} + 1 {{print $2}}' {input.chunks:q})"
