"""Names of files, and what depends on the configuration."""

from pathlib import Path
from shlex import quote

OUT = config["out"]
TARGETS = config["targets"]
PANELS = {str(chrom): panel for chrom, panel in config["panels"].items()}
FORMAT = config.get("format", "GT,DS")
DECIMALS = config.get("decimals", 3)
THREADS = config.get("threads", 2)
PAIRS = [
    (name, chrom)
    for name, target in TARGETS.items()
    for chrom in target.get("chromosomes", PANELS)
]

# said before anything is made: most files are needed late
for kind, entries in (("target", TARGETS), ("panel", PANELS)):
    for name, entry in entries.items():
        for what, path in entry.items():
            if what != "chromosomes" and not Path(path).is_file():
                raise WorkflowError(f"{kind} {name}: there is no file {path} ({what})")
for name, chrom in PAIRS:
    if chrom not in PANELS:
        raise WorkflowError(f"target {name}: there is no panel of chromosome {chrom}")


def imputed():
    return [f"{OUT}/{name}.{chrom}.vcf.gz" for name, chrom in PAIRS]


def evaluations():
    return [f"{OUT}/{name}/{chrom}/evaluation" for name, chrom in PAIRS if "truth" in TARGETS[name]]


def panel_of(wildcards):
    return PANELS[wildcards.chrom].get("spin", f"{OUT}/panels/{wildcards.chrom}.spin")


def extras_of(wildcards):
    """Files that a target's options name."""
    target = TARGETS[wildcards.target]
    return [target[name] for name in ("sex", "chain") if name in target]


def options_of(wildcards):
    """Of a target."""
    target = TARGETS[wildcards.target]
    return " ".join(f"--{name} {quote(target[name])}" for name in ("sex", "chain") if name in target)


def chunks_of(wildcards):
    """Files of all chunks of a chromosome: how many there are is known when its panel is."""
    with checkpoints.chunks.get(chrom=wildcards.chrom).output[0].open() as table:
        count = sum(1 for _ in table) - 1
    return [f"{OUT}/{wildcards.target}/{wildcards.chrom}/chunk.{n}.vcf.gz" for n in range(1, count + 1)]


def region_of(wildcards, input):
    with open(input.chunks) as table:
        return table.readlines()[int(wildcards.chunk)].split("\t")[1]
