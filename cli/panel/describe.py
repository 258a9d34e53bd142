"""`spinimpute panel info | chunks | verify`, and descriptions of new panel files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from spinimpute.runtime.errors import printable

from ..commands import Command, Count, option
from ..messages import say

if TYPE_CHECKING:
    from spinimpute.panels.reference import ReferencePanel

ARRAY_FILE = (
    "Sites of the array: a VCF or BCF of the array, such as a target, or lines of chromosome, position and "
    "optionally REF and ALT."
)
# Options that do not change the panel. Panel files omit them: equal panels are then equal files.
NOT_RECORDED = ("out", "force", "threads", "device", "quiet")


def describe_file(out: str, quiet: bool, changes: bool = False) -> None:
    """Print the sizes of the panels in a new file and, with `changes`, how they differ from the VCF."""
    from spinimpute.panels.opening import open_panel_file

    if not quiet:
        with open_panel_file(out) as parts:
            for built in parts:
                describe_panel(out, built)
                if changes:
                    describe_changes(built)


def describe_panel(out: str, built: ReferencePanel) -> None:
    """Print the size of a panel."""
    say(
        f"{out}: {built.n_haplotypes} haplotypes of {built.n_samples} samples, "
        f"{built.n_sites} sites, {built.chrom}:{built.position[0]}-{built.position[-1]}"
    )


def describe_changes(built: ReferencePanel) -> None:
    """Print which records of its VCF a new panel lacks, and how its genetic map and phase differ from it."""
    from spinimpute.panels.build import MAP_ESTIMATED
    from spinimpute.panels.panel import MOVED

    for reason, count in built.provenance.get("skipped", {}).items():
        say(f"  {count} records skipped: {reason}")
    if estimated := built.provenance.get(MAP_ESTIMATED):
        say(
            f"  genetic map estimated from the panel, between {estimated['sites']} sites: it raises the "
            f"log-likelihood of held-out haplotypes by {estimated['gain']:.1%}"
        )
    if moved := built.provenance.get(MOVED):
        wrong = (f"{share:.1%} of alleles with {carriers}" for carriers, share in moved["estimated wrong"])
        say(f"  {moved['alleles']} rare alleles moved to the other haplotype of their carrier")
        say(f"  estimated share of wrong phases, by number of carriers: {', '.join(wrong)}")


@click.command(cls=Command)
@click.argument("file")
def info(file: str) -> None:
    """Print what a panel file contains."""
    from spinimpute.panels.opening import open_panel_file
    from spinimpute.panels.spin_files import find_x_region
    from spinimpute.panels.trust.site_trust import LOW_TRUST

    with open_panel_file(file) as panels:
        for number, opened in enumerate(panels):
            part = find_x_region(opened)
            rows = {
                "chromosome": opened.chrom + (f", {part.name}" if part else ""),
                "positions": f"{opened.position[0]}-{opened.position[-1]}",
                "genetic length": f"{opened.cM[-1] - opened.cM[0]:.3f} cM",
                "sites": opened.n_sites,
                "of multi-allelic records": int(opened.multiallelic.sum()),
                **(
                    {"structural variants": len(opened.sites.written_variants())}
                    if opened.has_structural
                    else {}
                ),
                "poorly predictable": int((opened.prediction_trust < LOW_TRUST).sum()),
                **opened.described(),
                "samples": opened.n_samples,
                "haplotypes": opened.n_haplotypes,
                "checksum": opened.checksum,
                **{f"made: {key}": value for key, value in opened.provenance.items()},
            }
            if number:
                click.echo()
            for name, value in rows.items():
                click.echo(printable(f"{name:<26}{value}"))


@click.command(cls=Command)
@click.argument("file")
@option("--length-cm", type=float, metavar="CM", default=20.0, help="Maximum length of a chunk.")
@option("--sites", type=Count(), default=500_000, help="Maximum number of sites in a chunk.")
@option(
    "--overlap-cm",
    type=float,
    metavar="CM",
    default=0.0,
    help="Overlap with the previous chunk. 'ligate' compares the phase of sequenced samples in overlaps.",
)
def chunks(file: str, length_cm: float, sites: int, overlap_cm: float) -> None:
    """Print regions that can be imputed separately and joined with 'ligate', and their sizes."""
    from spinimpute.genotypes.intervals import cut_chunks
    from spinimpute.panels.opening import open_reference

    with open_reference(file) as parts:
        found = cut_chunks(parts, length_cm, sites, overlap_cm)
        haplotypes = max(part.n_haplotypes for part in parts)
    click.echo("chunk\tregion\tsites\tcM\thaplotypes")
    for number, chunk in enumerate(found, 1):
        click.echo(f"{number}\t{chunk.region}\t{chunk.sites}\t{chunk.cM:.3f}\t{haplotypes}")


@click.command(cls=Command)
@click.argument("file")
def verify(file: str) -> None:
    """Read a panel file completely and check its checksums."""
    from spinimpute.panels.opening import open_panel_file

    with open_panel_file(file) as panels:
        for opened in panels:
            opened.verify()
    click.echo(f"{file}: intact")
