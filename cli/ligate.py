"""`spinimpute ligate`"""

from __future__ import annotations

import click

from .messages import say, warn
from .options import (
    OnceEach,
    force_option,
    out_option,
    output_type_option,
    progress_bar,
    quiet_option,
    threads_option,
)


@click.command(cls=OnceEach)
@click.argument("chunks", nargs=-1, required=True, metavar="CHUNK...")
@out_option("Output: .vcf.gz, .bcf or .vcf; its index is written beside it.")
@click.option(
    "--panel", metavar="FILE", help="The panel of the chunks: check that each of its sites is there once."
)
@click.option("--allow-gaps", is_flag=True, help="Join regions although sites between them may be missing.")
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
    """Join chunks of a chromosome, given in any order, that 'impute --region' wrote.

    All are read and checked before anything is written: none may be damaged, missing or of other samples.
    Chunks may overlap; where a sample's phase differs there, its haplotypes are exchanged in the right one.
    Chunks of a phased target give the file of a single run, whatever their --buffer.
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
    for warning in summary.warnings:
        warn(warning)
    if not quiet:
        for line in [*summary.lines(), f"output:   {out}"]:
            say(line)
