"""`spinimpute panel build | merge | tune | info | chunks | verify`"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from spinimpute.runtime.errors import printable

from .messages import say
from .options import (
    MOST,
    OnceEach,
    OptionsOnly,
    command_text,
    device_option,
    force_option,
    map_option,
    names_in,
    out_option,
    progress_bar,
    quiet_option,
    region_option,
    threads_option,
)

if TYPE_CHECKING:
    from spinimpute.genotypes.sites import Region
    from spinimpute.panels.panel import Panel
    from spinimpute.panels.reference import ReferencePanel

MOST_READERS = 8  # unless more are asked for
# the file must be the same with and without them
WITHOUT_INFLUENCE = ("out", "force", "threads", "device", "quiet")


@click.group()
def panel() -> None:
    """Build, merge, tune, describe and verify reference panels."""


@panel.command(cls=OptionsOnly)
@click.option(
    "--vcf",
    required=True,
    metavar="FILE",
    help="Phased VCF, VCF.gz or BCF without missing calls; with --inducing also a panel file (.spin).",
)
@map_option
@region_option("Take this part only; needed if the file has several chromosomes.")
@click.option("--samples-file", metavar="FILE", help="Take these samples only, one name a line.")
@click.option(
    "--inducing",
    "inducing_points",
    type=click.IntRange(2, MOST),
    metavar="H",
    help="Make an inducing panel with H inducing points a block, at most. Needs --array.",
)
@click.option(
    "--array",
    metavar="FILE",
    help="With --inducing: the array's sites. A VCF or BCF of the array (a target, for example), or lines of "
    "chromosome, position and perhaps REF and ALT.",
)
@click.option("--model", metavar="FILE", help="With --inducing: checkpoint (default: the shipped one).")
@click.option(
    "--keep-phase",
    is_flag=True,
    help="Keep rare alleles on the haplotypes that the VCF puts them on. By default they are moved to the "
    "other haplotype of their carrier where it matches the other carriers for longer, unless the phase of "
    "nearly all is right.",
)
@click.option(
    "--keep-map",
    is_flag=True,
    help="Keep the genetic map. By default it is estimated from the panel's own haplotypes, and the estimate "
    "is taken if it explains haplotypes that were left out clearly better.",
)
@out_option("Panel file to write, by convention .spin, or .spip with --inducing.")
@click.option(
    "--threads",
    "-t",
    type=click.IntRange(1, MOST),
    help="Threads, and processes that read a large VCF or BCF which has an index (default: all processors, "
    f"but at most {MOST_READERS} processes; each takes about 100 MB). Results do not depend on it.",
)
@device_option
@force_option
@quiet_option
@click.pass_context
def build(
    ctx: click.Context,
    vcf: str,
    genetic_map: str | None,
    region: str | None,
    samples_file: str | None,
    inducing_points: int | None,
    array: str | None,
    model: str | None,
    keep_phase: bool,
    keep_map: bool,
    out: str,
    threads: int | None,
    device: str,
    force: bool,
    quiet: bool,
) -> None:
    """Compile a phased VCF or BCF of one chromosome into a panel file.

    Of chromosome X the pseudo-autosomal regions and what lies between become parts of one file, if the header
    states the chromosome's length, which identifies the build.

    With --inducing, into an inducing panel: inducing points in place of the panel's haplotypes, from which
    'impute' works for targets of one array, or of parts of it. It holds, for each interval of a few gaps
    between array sites, at most H averages of panel haplotypes, and the panel's allele counts at every site;
    no haplotype and no name. This is a compression and no proof of privacy: who has a person's genome can
    learn from the counts of rare alleles, and with many points from the averages, whether the person was in
    the panel. An average of a single haplotype is that haplotype.
    """
    from spinimpute.genotypes.sites import Region
    from spinimpute.panels.opening import open_panel_file
    from spinimpute.pipeline.maps.build import build_panels
    from spinimpute.runtime.devices import default_threads

    _check_inducing(inducing_points, array, model, out)
    samples = None if samples_file is None else names_in(samples_file, "samples file", "name")
    parsed = None if region is None else Region.parse(region)
    command = command_text(ctx, WITHOUT_INFLUENCE)
    readers = min(default_threads(), MOST_READERS) if threads is None else threads
    if inducing_points is None:
        build_panels(
            vcf, out, genetic_map, parsed, samples, force, command, readers, keep_phase, keep_map=keep_map
        )
        with open_panel_file(out) as parts:
            for built in parts:
                _describe(out, built, quiet)
                if not quiet:
                    _describe_changes(built)
        return
    from spinimpute.panels.opening import is_panel_file
    from spinimpute.predictors.spin.build import build_inducing_panel
    from spinimpute.runtime.output_files import check_output, temporary_folder

    check_output(out, force, [vcf, genetic_map, array, model, samples_file])
    with (
        temporary_folder() as folder,
        _source(
            vcf, folder / "panel.spin", genetic_map, parsed, samples, readers, keep_phase, keep_map
        ) as panel,
        progress_bar("making inducing points", quiet) as progress,
        build_inducing_panel(
            panel,
            out,
            array or "",
            inducing_points,
            model=model,
            threads=threads,
            device=device,
            force=force,
            command=command,
            progress=progress,
        ) as made,
    ):
        _describe(out, made, quiet)
        if not quiet:
            if not is_panel_file(vcf):
                _describe_changes(panel)
            share = made.mass_below["2"]
            say(f"  {share:.1%} of the inducing points stand for fewer than 2 haplotypes of the panel")
            for reason, count in made.provenance["array sites not used"].items():
                say(f"  {count} array sites not used: {reason}")


@panel.command(cls=OnceEach)
@click.argument("files", nargs=-1, required=True, metavar="FILE FILE...")
@out_option("Panel file to write, by convention .spin.")
@threads_option
@force_option
@quiet_option
@click.pass_context
def merge(
    ctx: click.Context, files: tuple[str, ...], out: str, threads: int | None, force: bool, quiet: bool
) -> None:
    """Write one panel file of several (.spin) of the same chromosome: all sites, all haplotypes.

    Haplotypes of a panel that lacks a site get the alleles of the other panel's haplotypes that they resemble
    most around it; where hardly any would have the rarer allele, none gets it. The genetic map is the first
    panel's. Samples that two panels have are kept once if their haplotypes are the same.

    'impute' with several panels of a chromosome does the same each time.
    """
    from spinimpute.panels.merging.merge import merge_panels
    from spinimpute.panels.opening import open_panel_file

    with progress_bar("merging panels", quiet) as progress:
        command = command_text(ctx, WITHOUT_INFLUENCE)
        merge_panels(files, out, threads=threads, force=force, command=command, progress=progress)
    with open_panel_file(out) as parts:
        for built in parts:
            _describe(out, built, quiet)


@panel.command(cls=OptionsOnly)
@click.option("--panel", "panel_path", required=True, metavar="FILE", help="Panel file (.spin).")
@click.option(
    "--array",
    required=True,
    metavar="FILE",
    help="The array's sites: a VCF or BCF of the array (a target, for example), or lines of chromosome, "
    "position and perhaps REF and ALT.",
)
@out_option("Panel file to write, by convention .spin.")
@threads_option
@force_option
@quiet_option
@click.pass_context
def tune(
    ctx: click.Context,
    panel_path: str,
    array: str,
    out: str,
    threads: int | None,
    force: bool,
    quiet: bool,
) -> None:
    """Tune a panel's genetic map to the panel's own haplotypes, as one array sees them.

    Each of up to 1,000 haplotypes is taken out and copied from the others; lengths between the array's sites
    become those that explain where it changes whom it copies. The panel is otherwise the same.
    """
    from spinimpute.panels.opening import open_panel_file
    from spinimpute.pipeline.maps.tune import tune_panel

    with progress_bar("tuning the map", quiet) as progress:
        tune_panel(
            panel_path,
            array,
            out,
            threads=threads,
            force=force,
            command=command_text(ctx, WITHOUT_INFLUENCE),
            progress=progress,
        )
    with open_panel_file(out) as parts:
        for built in parts:
            _describe(out, built, quiet)


def _check_inducing(inducing_points: int | None, array: str | None, model: str | None, out: str) -> None:
    from spinimpute.runtime.errors import InputError

    if inducing_points is None and (array or model):
        raise InputError(
            "content", "--array and --model go with --inducing H; a panel file (.spin) serves any array"
        )
    if inducing_points is None and out.endswith(".spip"):
        raise InputError(
            "content", f"{out}: a .spip file is made with --inducing H --array FILE; a panel file is .spin"
        )
    if inducing_points is not None and not array:
        raise InputError(
            "content",
            "--inducing needs --array FILE: inducing points are made for the sites of one array. Give a VCF "
            "or BCF of the array, or a list of positions. Targets may have typed some of its sites only: one "
            "file of the sites of several arrays serves them all, but sites that nobody typed cost accuracy",
        )


def _source(
    vcf: str,
    out: Path,
    genetic_map: str | None,
    region: Region | None,
    samples: list[str] | None,
    readers: int,
    keep_phase: bool,
    keep_map: bool,
) -> Panel:
    """A panel file as it is, or one that is built from a VCF or BCF."""
    from spinimpute.panels.opening import is_panel_file
    from spinimpute.panels.panel import Panel
    from spinimpute.pipeline.maps.build import build_panel
    from spinimpute.runtime.errors import InputError

    if not is_panel_file(vcf):
        return build_panel(
            vcf, out, genetic_map, region, samples, threads=readers, keep_phase=keep_phase, keep_map=keep_map
        )
    if genetic_map or region or samples or keep_phase or keep_map:
        raise InputError(
            "content",
            f"{vcf} is a panel file: its map, region, samples and phase were chosen when it was built; give "
            "--map, --region, --samples-file, --keep-phase and --keep-map with a VCF or BCF",
        )
    return Panel.open(vcf)


def _describe(out: str, built: ReferencePanel, quiet: bool) -> None:
    if quiet:
        return
    say(
        f"{out}: {built.n_haplotypes} haplotypes of {built.n_samples} samples, "
        f"{built.n_sites} sites, {built.chrom}:{built.position[0]}-{built.position[-1]}"
    )
    for reason, count in built.provenance.get("skipped", {}).items():
        say(f"  {count} records skipped: {reason}")


def _describe_changes(built: ReferencePanel) -> None:
    """Of a panel that was built here; what files of others say is not to be trusted."""
    from spinimpute.panels.build import MAP_ESTIMATED
    from spinimpute.panels.panel import MOVED

    if estimated := built.provenance.get(MAP_ESTIMATED):
        say(
            f"  genetic map estimated from the panel, between {estimated['sites']} sites: by it, haplotypes "
            f"that were left out gain {estimated['gain']:.1%} of their log-likelihood"
        )
    if moved := built.provenance.get(MOVED):
        wrong = (f"{share:.1%} of alleles with {carriers}" for carriers, share in moved["estimated wrong"])
        say(f"  {moved['alleles']} rare alleles moved to the other haplotype of their carrier")
        say(f"  estimated to have been wrong, by the number of carriers: {', '.join(wrong)}")


@panel.command(cls=OnceEach)
@click.argument("file")
def info(file: str) -> None:
    """Say what a panel file holds."""
    from spinimpute.panels.opening import open_panel_file
    from spinimpute.panels.spin_files import find_x_region
    from spinimpute.panels.trust.site_trust import POORLY

    with open_panel_file(file) as panels:
        for number, opened in enumerate(panels):
            part = find_x_region(opened)
            rows = {
                "chromosome": opened.chrom + (f", {part.name}" if part else ""),
                "positions": f"{opened.position[0]}-{opened.position[-1]}",
                "genetic length": f"{opened.cM[-1] - opened.cM[0]:.3f} cM",
                "sites": opened.n_sites,
                "of multi-allelic records": int(opened.multiallelic.sum()),
                "poorly predictable": (
                    int((opened.prediction_trust < POORLY).sum())
                    if opened.knows_discordance
                    else "not known: built by an earlier version"
                ),
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


@panel.command(cls=OnceEach)
@click.argument("file")
@click.option("--length-cm", type=float, default=20.0, show_default=True, help="Of a chunk, at most.")
@click.option("--sites", type=click.IntRange(min=1), default=500_000, show_default=True, help="At most.")
@click.option(
    "--overlap-cm",
    type=float,
    default=0.0,
    show_default=True,
    help="How far a chunk reaches into the one before: 'ligate' joins the phase of sequenced samples there.",
)
def chunks(file: str, length_cm: float, sites: int, overlap_cm: float) -> None:
    """Regions that can be imputed apart and joined with 'ligate', and how large each is."""
    from spinimpute.genotypes.intervals import cut_chunks
    from spinimpute.panels.opening import open_reference

    with open_reference(file) as parts:
        found = cut_chunks(parts, length_cm, sites, overlap_cm)
        haplotypes = max(part.n_haplotypes for part in parts)
    click.echo("chunk\tregion\tsites\tcM\thaplotypes")
    for number, chunk in enumerate(found, 1):
        click.echo(f"{number}\t{chunk.region}\t{chunk.sites}\t{chunk.cM:.3f}\t{haplotypes}")


@panel.command(cls=OnceEach)
@click.argument("file")
def verify(file: str) -> None:
    """Read all of a panel file and check it against its checksums."""
    from spinimpute.panels.opening import open_panel_file

    with open_panel_file(file) as panels:
        for opened in panels:
            opened.verify()
    click.echo(f"{file}: intact")
