"""Snakemake wrapper of `spinimpute impute`."""

__author__ = "The spinimpute developers"
__license__ = "Apache-2.0"

from shlex import join, quote

from snakemake.shell import shell

FILES = ("map", "model", "sex", "chain")
LOO_TABLES = (".sites.tsv", ".samples.tsv", ".windows.tsv")

extra = snakemake.params.get("extra", "")

options = []
for name in FILES:
    if path := snakemake.input.get(name):
        options += [f"--{name}", path]
if report := snakemake.output.get("report"):
    options += ["--report", report]
if multiqc := snakemake.output.get("multiqc"):
    options += ["--multiqc", multiqc]
if loo := snakemake.output.get("loo"):
    prefix = loo[0].removesuffix(LOO_TABLES[0])
    if list(loo) != [prefix + table for table in LOO_TABLES]:
        raise ValueError(f"output.loo must be multiext(PREFIX, {', '.join(map(repr, LOO_TABLES))})")
    options += ["--loo", prefix]
options = join(options)

# snakemake.log_fmt_shell() does not quote
log = f"> {quote(str(snakemake.log))} 2>&1" if snakemake.log else ""

shell(
    "spinimpute impute"
    " --vcf {snakemake.input.vcf:q}"
    " --panel {snakemake.input.panel:q}"
    " {options}"
    " --threads {snakemake.threads}"
    " {extra}"
    " --out {snakemake.output.vcf:q}"
    " {log}"
)
