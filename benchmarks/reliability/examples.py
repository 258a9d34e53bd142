"""The commands that are killed, or run on a disk that fills up, with the example of the repository."""

from __future__ import annotations

from pathlib import Path

from benchmarks.reliability.fuzzer import run_here

EXAMPLE = Path(__file__).resolve().parents[2] / "data" / "example"
OUT = "{out}"

# name -> command line; {e} is the folder of the example, {g} that of what was made of it, {out} the outputs'
COMMANDS = {
    "impute": "impute --vcf {e}/target.vcf.gz --panel {g}/panel.spin -t 2 -f -o {out}/o.vcf.gz",
    "impute, with report": "impute --vcf {e}/target.vcf.gz --panel {g}/panel.spin -t 2 -f -o {out}/o.bcf "
    "--report {out}/o.html --loo {out}/quality",
    "impute, panel as VCF": "impute --vcf {e}/target.vcf.gz --panel {e}/panel.vcf.gz -t 1 -f -o {out}/o.vcf",
    "phase": "phase --vcf {e}/target.vcf.gz --panel {g}/panel.spin -t 1 -f -o {out}/o.bcf",
    "panel build": "panel build --vcf {e}/panel.vcf.gz --map {e}/genetic.map -t 2 -f -o {out}/o.spin",
    "panel tune": "panel tune --panel {g}/panel.spin --array {e}/array.txt -t 1 -f -o {out}/o.spin",
    "ligate": "ligate {g}/1.vcf.gz {g}/2.vcf.gz -t 2 -f -o {out}/o.vcf.gz",
    "evaluate": "evaluate --truth {e}/truth.vcf.gz --imputed {g}/imputed.vcf.gz --panel {g}/panel.spin "
    "--typed {e}/target.vcf.gz -f -o {out}/evaluation",
}


def prepare(folder: Path) -> None:
    """Make the inputs of the commands: a panel, an imputed file and two chunks."""
    panel = ["--panel", f"{folder}/panel.spin", "-t", "1", "-q"]
    source = ["--vcf", f"{EXAMPLE}/panel.vcf.gz", "--map", f"{EXAMPLE}/genetic.map"]
    run_here(["panel", "build", *source, "-o", f"{folder}/panel.spin", "-t", "1", "-q"])
    target = ["impute", "--vcf", f"{EXAMPLE}/target.vcf.gz", *panel]
    run_here([*target, "-o", f"{folder}/imputed.vcf.gz"])
    run_here([*target, "-o", f"{folder}/1.vcf.gz", "-r", "20:1-400000"])
    run_here([*target, "-o", f"{folder}/2.vcf.gz", "-r", "20:400001-"])


def words_of(name: str, made: Path, out: Path) -> list[str]:
    """Return the command line of a command."""
    return [word.format(e=EXAMPLE, g=made, out=out) for word in COMMANDS[name].split()]
