"""`spinimpute ligate` and `spinimpute merge`: join imputed files of regions, or of batches of samples."""

from __future__ import annotations

import click

from .commands import Command, option
from .options import (
    filter_options,
    force_option,
    out_option,
    output_type_option,
    print_summary,
    progress_bar,
    quiet_option,
    threads_option,
)


@click.command(cls=Command)
@click.argument("chunks", nargs=-1, required=True, metavar="CHUNK...")
@out_option("Output (.vcf.gz, .bcf or .vcf); its index is written next to it.")
@option(
    "--panel",
    metavar="FILE",
    help="Panel of the chunks, to check that the chunks have each of its sites once.",
    group="Panel",
)
@option("--allow-gaps", is_flag=True, help="Join regions with sites missing between them.", group="Output")
@output_type_option
@threads_option
@force_option
@quiet_option
def ligate(
    chunks: tuple[str, ...],
    out: str,
    panel: str | None,
    allow_gaps: bool,
    output_type: str | None,
    threads: int | None,
    force: bool,
    quiet: bool,
) -> None:
    """Join the chunks of a chromosome that 'impute --region' wrote, given in any order.

    All chunks are checked before anything is written. None may be damaged or missing, and all must have the
    same samples. Chunks may overlap. If a sample's phase differs between two chunks in their overlap, its
    haplotypes are exchanged in the second chunk. Chunks of a phased target give the same file as a single
    run, for any --buffer.
    """
    from spinimpute.pipeline.ligate import ligate as run
    from spinimpute.runtime.output_files import check_outputs

    check_outputs([out], force, [*chunks, panel])
    with progress_bar("joining", quiet) as progress:
        summary = run(
            chunks,
            out,
            panel=panel,
            output_type=output_type,
            allow_gaps=allow_gaps,
            threads=threads,
            force=force,
            progress=progress,
        )
    print_summary(summary, out, quiet)


@click.command(cls=Command)
@click.argument("batches", nargs=-1, required=True, metavar="BATCH...")
@out_option("Output (.vcf.gz, .bcf or .vcf); its index is written next to it.")
@output_type_option
@option(
    "--mergeable",
    is_flag=True,
    help="Keep in INFO what is needed to merge the output with further files.",
    group="Output",
)
@filter_options
@option(
    "--sites",
    metavar="FILE",
    help="Table of all sites, before filters: alleles, AF, MAF, AVG_CS, R2, ER2, TYPED (.tsv.gz).",
    group="Output",
)
@threads_option
@force_option
@quiet_option
def merge(
    batches: tuple[str, ...],
    out: str,
    output_type: str | None,
    mergeable: bool,
    min_r2: float,
    min_maf: float,
    sites: str | None,
    threads: int | None,
    force: bool,
    quiet: bool,
) -> None:
    """Join files of different samples that 'impute --mergeable' wrote for one region or chromosome.

    The output has the samples in the order of the files. AF, MAF, R2, AVG_CS and ER2 are recomputed: they
    equal those of a single run with all samples. The files must have the same panel, sites and options.

    Phase an unphased target with 'spinimpute phase' first: otherwise its phase depends on the other samples
    of a run.
    """
    from spinimpute.pipeline.merging.merge import merge_samples
    from spinimpute.runtime.output_files import check_outputs

    check_outputs([out, sites], force, batches)
    with progress_bar("merging", quiet) as progress:
        summary = merge_samples(
            batches,
            out,
            output_type=output_type,
            mergeable=mergeable,
            min_r2=min_r2,
            min_maf=min_maf,
            sites=sites,
            threads=threads,
            force=force,
            progress=progress,
        )
    print_summary(summary, out, quiet)
