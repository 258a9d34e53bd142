"""`spinimpute panel merge | tune | labels`: make a panel file from others."""

from __future__ import annotations

import click

from ..commands import Command, command_text, option
from ..messages import say, warn
from ..options import force_option, out_option, progress_bar, quiet_option, threads_option
from .describe import ARRAY_FILE, NOT_RECORDED, describe_file


@click.command(cls=Command)
@click.argument("files", nargs=-1, required=True, metavar="FILE FILE...")
@out_option("Panel file (.spin).")
@threads_option
@force_option
@quiet_option
@click.pass_context
def merge(
    ctx: click.Context, files: tuple[str, ...], out: str, threads: int | None, force: bool, quiet: bool
) -> None:
    """Merge panel files (.spin) of the same chromosome into one with all sites and all haplotypes.

    If a panel lacks a site, each of its haplotypes gets the allele of the best-matching haplotype of the
    other panel. If hardly any haplotype would get the rarer allele, all get the more common one. The genetic
    map is the first panel's. If a sample is in both panels with the same haplotypes, it is kept once.

    'impute' can also merge panels, but does so in each run.
    """
    from spinimpute.panels.merging.merge import merge_panels

    with progress_bar("merging panels", quiet) as progress:
        command = command_text(ctx, NOT_RECORDED)
        merge_panels(files, out, threads=threads, force=force, command=command, progress=progress)
    describe_file(out, quiet)


@click.command(cls=Command)
@option("--panel", "panel_path", required=True, metavar="FILE", help="Panel file (.spin).", group="Panel")
@option("--array", required=True, metavar="FILE", help=ARRAY_FILE, group="Input")
@out_option("Panel file (.spin).")
@threads_option
@force_option
@quiet_option
@click.pass_context
def tune(
    ctx: click.Context, panel_path: str, array: str, out: str, threads: int | None, force: bool, quiet: bool
) -> None:
    """Tune a panel's genetic map to the panel's haplotypes, at the sites of one array.

    Up to 1,000 haplotypes are held out, each in turn, and modelled as a mosaic of the other haplotypes. The
    genetic lengths between the array's sites are fitted to the positions at which the mosaic switches from
    one haplotype to another. Everything else in the panel file stays the same.
    """
    from spinimpute.pipeline.maps.tune import tune_panel

    with progress_bar("tuning the map", quiet) as progress:
        tune_panel(
            panel_path,
            array,
            out,
            threads=threads,
            force=force,
            command=command_text(ctx, NOT_RECORDED),
            progress=progress,
        )
    describe_file(out, quiet)


@click.command(cls=Command)
@option("--panel", "panel_path", required=True, metavar="FILE", help="Panel file (.spin).", group="Panel")
@option(
    "--types",
    required=True,
    metavar="FILE",
    help="Labels of the panel's samples: a tab-separated table with the columns sample, locus, position, "
    "allele1 and allele2, such as NA12878, HLA-A, 29942470, 01:01 and 11:01.",
    group="Input",
)
@out_option("Panel file (.spin).")
@threads_option
@force_option
@quiet_option
@click.pass_context
def labels(
    ctx: click.Context, panel_path: str, types: str, out: str, threads: int | None, force: bool, quiet: bool
) -> None:
    """Add labels that are known per person to a panel, such as HLA types, so that 'impute' imputes them.

    Each locus becomes a multi-allelic record with ALTs such as <HLA-A*01:01>. The two labels of a person are
    assigned to the person's haplotypes by the labels of similar haplotypes. Labels may be missing, or known
    at a lower resolution (01 in place of 01:01).
    """
    from spinimpute.pipeline.labels.build import add_labels

    with progress_bar("comparing haplotypes", quiet) as progress:
        summary = add_labels(
            panel_path,
            types,
            out,
            threads=threads,
            force=force,
            command=command_text(ctx, NOT_RECORDED),
            progress=progress,
        )
    if summary.unknown_samples:
        some = ", ".join(summary.unknown_samples[:3]) + (", ..." if len(summary.unknown_samples) > 3 else "")
        warn(f"{len(summary.unknown_samples)} samples of the table are not in the panel ({some})")
    describe_file(out, quiet)
    if not quiet:
        for one in summary.loci:
            unknown = f", {one.without_label} haplotypes without a label" if one.without_label else ""
            say(
                f"  {one.locus}: {one.alleles} alleles of {one.samples} samples; the haplotype is certain "
                f"for {one.certain:.1%} of the labels{unknown}"
            )
