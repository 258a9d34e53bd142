"""`spinimpute convert` and `spinimpute phase`: a target as VCF or BCF, at the sites of a panel."""

from __future__ import annotations

import click

from .commands import PipedCommand, command_text
from .options import (
    ambiguous_option,
    chain_option,
    force_match_option,
    log_option,
    map_option,
    out_option,
    output_type_option,
    progress_bar,
    quiet_option,
    sex_option,
    sexes_of,
    show,
    threads_option,
)
from .target_options import each, panels_option, target_options

# the output must be the same with and without these options
WITHOUT_EFFECT = ("out", "threads", "force", "quiet")


@click.command(cls=PipedCommand)
@target_options()
@panels_option("Reference panel (.spin, .spip, VCF or BCF). Panels of the same chromosome are merged.")
@map_option
@out_option("Output (.vcf.gz, .bcf, .vcf, .pgen or .bgen); - for standard output.")
@output_type_option
@ambiguous_option
@sex_option
@chain_option
@log_option
@force_match_option
@quiet_option
@click.pass_context
def convert(
    ctx: click.Context,
    vcf: str,
    panel: str | tuple[str, ...],
    genetic_map: str | None,
    out: str,
    output_type: str | None,
    ambiguous: str,
    sex: str | None,
    chain: str | None,
    force: bool,
    quiet: bool,
) -> None:
    """Convert a target of any format to VCF or BCF, with the panel's REF and ALT.

    Typed sites that the panel lacks are left out. 'spinimpute impute' reads all formats itself.
    """
    from spinimpute.pipeline.settings import FileSettings, TargetSettings
    from spinimpute.pipeline.typed_file import convert as run
    from spinimpute.runtime.output_files import check_outputs

    check_outputs([out], force, (vcf, *each(panel), genetic_map, sex, chain), streamed=out)
    summary = run(
        vcf,
        out,
        panel,
        genetic_map=genetic_map,
        target=TargetSettings(ambiguous, sexes_of(sex), chain),
        output=FileSettings(
            output_type=output_type,
            header_lines=[f"##spinimpute_command={command_text(ctx, WITHOUT_EFFECT)}"],
        ),
        force=force,
    )
    show(summary, out, quiet)


@click.command(cls=PipedCommand)
@target_options()
@panels_option("Reference panel (.spin, VCF or BCF). Panels of the same chromosome are merged.")
@map_option
@out_option("Output (.vcf.gz, .bcf, .vcf, .pgen or .bgen); - for standard output.")
@output_type_option
@ambiguous_option
@sex_option
@chain_option
@log_option
@threads_option
@force_match_option
@quiet_option
@click.pass_context
def phase(
    ctx: click.Context,
    vcf: str,
    panel: str | tuple[str, ...],
    genetic_map: str | None,
    out: str,
    output_type: str | None,
    ambiguous: str,
    sex: str | None,
    chain: str | None,
    threads: int | None,
    force: bool,
    quiet: bool,
) -> None:
    """Phase genotypes at the sites of a reference panel and fill in missing calls.

    Typed sites that the panel lacks are left out. 'spinimpute impute' phases unphased genotypes itself.
    """
    from spinimpute.pipeline.settings import FileSettings, TargetSettings
    from spinimpute.pipeline.typed_file import phase as run
    from spinimpute.runtime.output_files import check_outputs

    check_outputs([out], force, (vcf, *each(panel), genetic_map, sex, chain), streamed=out)
    with progress_bar("phasing", quiet) as progress:
        summary = run(
            vcf,
            out,
            panel,
            genetic_map=genetic_map,
            target=TargetSettings(ambiguous, sexes_of(sex), chain),
            output=FileSettings(
                output_type=output_type,
                header_lines=[f"##spinimpute_command={command_text(ctx, WITHOUT_EFFECT)}"],
            ),
            threads=threads,
            force=force,
            progress=progress,
        )
    show(summary, out, quiet)
