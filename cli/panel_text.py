"""Messages about a new panel file: its size, and how it differs from the VCF."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .messages import say

if TYPE_CHECKING:
    from spinimpute.panels.reference import ReferencePanel


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
    """Print the size of a panel, and the number of records that were skipped."""
    say(
        f"{out}: {built.n_haplotypes} haplotypes of {built.n_samples} samples, "
        f"{built.n_sites} sites, {built.chrom}:{built.position[0]}-{built.position[-1]}"
    )
    for reason, count in built.provenance.get("skipped", {}).items():
        say(f"  {count} records skipped: {reason}")


def describe_changes(built: ReferencePanel) -> None:
    """Print how the genetic map and the phase of a new panel differ from those of its VCF."""
    from spinimpute.panels.build import MAP_ESTIMATED
    from spinimpute.panels.panel import MOVED

    if estimated := built.provenance.get(MAP_ESTIMATED):
        say(
            f"  genetic map estimated from the panel, between {estimated['sites']} sites: it raises the "
            f"log-likelihood of held-out haplotypes by {estimated['gain']:.1%}"
        )
    if moved := built.provenance.get(MOVED):
        wrong = (f"{share:.1%} of alleles with {carriers}" for carriers, share in moved["estimated wrong"])
        say(f"  {moved['alleles']} rare alleles moved to the other haplotype of their carrier")
        say(f"  estimated share of wrong phases, by number of carriers: {', '.join(wrong)}")
