"""`spinimpute convert` and `spinimpute phase`: write a target at the sites of a panel, as it is or phased.

The output is VCF, BCF, PLINK 2 or BGEN. A target need not be converted or phased before imputing it:
'spinimpute impute' reads all formats and phases unphased genotypes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from .commands import Decorator, PipedCommand, check_out, combine_options, command_text
from .options import (
    ambiguous_option,
    chain_option,
    force_match_option,
    load_sexes,
    log_option,
    map_option,
    out_option,
    output_type_option,
    print_summary,
    progress_bar,
    quiet_option,
    sex_option,
    threads_option,
)
from .target_options import as_tuple, panels_option, target_options

if TYPE_CHECKING:
    from spinimpute.quality.summary import ImputationSummary

# Options that do not change the results. Headers omit them: equal results then have equal headers.
NOT_RECORDED = ("out", "threads", "force", "quiet")


def _shared_options(panel_formats: str) -> Decorator:
    """Return a decorator that adds the options of both commands."""
    return combine_options(
        target_options(several=True),
        panels_option(
            f"Reference panel ({panel_formats}), or a folder with one per chromosome. Repeat for several; "
            "panels of the same chromosome are merged."
        ),
        map_option,
        out_option(
            "Output (.vcf.gz, .bcf, .vcf, .pgen or .bgen); - for standard output, {chrom} in the name for "
            "one file per chromosome."
        ),
        output_type_option,
        ambiguous_option,
        sex_option,
        chain_option,
        log_option,
        force_match_option,
        quiet_option,
        click.pass_context,
    )


@click.command(cls=PipedCommand)
@_shared_options(".spin, .spip, VCF, BCF or M3VCF")
def convert(ctx: click.Context, **params: Any) -> None:
    """Convert a target of any format to VCF, BCF, PLINK 2 or BGEN, with the panel's REF and ALT.

    Typed sites that are not in the panel are left out. You need not convert a target before imputing it:
    'spinimpute impute' reads all formats.
    """
    from spinimpute.pipeline.typed_file import convert as run

    print_summary(_call(run, ctx, params), params["out"], params["quiet"])


@click.command(cls=PipedCommand)
@_shared_options(".spin, VCF or BCF")
@threads_option
def phase(ctx: click.Context, threads: int | None, **params: Any) -> None:
    """Phase genotypes at the sites of a reference panel and fill in missing calls.

    Typed sites that are not in the panel are left out. You need not phase a target before imputing it:
    'spinimpute impute' phases unphased genotypes.
    """
    from spinimpute.pipeline.typed_file import phase as run

    with progress_bar("phasing", params["quiet"]) as progress:
        summary = _call(run, ctx, params, threads=threads, progress=progress)
    print_summary(summary, params["out"], params["quiet"])


def _call(
    run: Callable[..., ImputationSummary], ctx: click.Context, params: dict[str, Any], **more: Any
) -> ImputationSummary:
    """Check the output, and call `run`, a function of the library, with the values of the options."""
    from spinimpute.pipeline.settings import FileSettings, TargetSettings

    vcf, out, panel = params["vcf"], params["out"], params["panel"]
    files = (*as_tuple(vcf), *as_tuple(panel))
    check_out(params, (*files, *map(params.get, ("genetic_map", "sex", "chain"))))
    return run(
        vcf,
        out,
        panel,
        genetic_map=params["genetic_map"],
        target=TargetSettings(params["ambiguous"], load_sexes(params["sex"]), params["chain"]),
        output=FileSettings(
            output_type=params["output_type"],
            header_lines=[f"##spinimpute_command={command_text(ctx, NOT_RECORDED)}"],
        ),
        force=params["force"],
        **more,
    )
