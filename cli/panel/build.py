"""`spinimpute panel build | get`: make panel files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from spinimpute.runtime.errors import InputError, printable

from ..commands import Command, Count, command_text, option
from ..messages import say
from ..options import (
    check_inducing,
    choose_source,
    device_option,
    force_option,
    map_option,
    out_option,
    progress_bar,
    quiet_option,
    read_list,
    refuse_options,
    threads_option,
)
from .describe import ARRAY_FILE, NOT_RECORDED, describe_changes, describe_file, describe_panel

if TYPE_CHECKING:
    from spinimpute.downloads.catalogue import PublishedPanel
    from spinimpute.genotypes.sites import Region
    from spinimpute.panels.formats.detection import PanelSource
    from spinimpute.panels.panel import Panel

MAX_READERS = 8  # maximum number of processes that read a VCF or BCF, unless --threads is given


@click.command(cls=Command)
@option(
    "--vcf",
    metavar="FILE",
    help="Phased VCF, BCF or M3VCF without missing calls; with --inducing also a panel file (.spin).",
    group="Input",
)
@option(
    "--hap",
    metavar="FILE",
    help="Haplotypes of IMPUTE or SHAPEIT (.hap) in place of --vcf, with the next three options.",
    group="Input",
)
@option("--legend", metavar="FILE", help="Sites of --hap: ID, position and two alleles.", group="Input")
@option("--sample", metavar="FILE", help="Samples of --hap.", group="Input")
@option("--chromosome", metavar="CHR", help="Chromosome of --hap.", group="Input")
@map_option
@option(
    "--region",
    "-r",
    metavar="CHR[:FROM-TO]",
    help="Region to use. Required if the file has several chromosomes.",
    group="Region",
)
@option("--samples-file", metavar="FILE", help="List of the samples to use, one per line.", group="Input")
@option(
    "--inducing",
    "inducing_points",
    type=Count(2),
    metavar="H",
    help="Build an inducing panel with at most H inducing points per block. Requires --array.",
    group="Panel",
)
@option("--array", metavar="FILE", help=f"{ARRAY_FILE} For --inducing.", group="Panel")
@option(
    "--model", metavar="FILE", help="Checkpoint for --inducing. Default: the shipped one.", group="Advanced"
)
@option(
    "--keep-phase",
    is_flag=True,
    help="Keep rare alleles on the haplotypes of the VCF. By default, a rare allele is moved to the "
    "carrier's other haplotype if that one has longer matches with other carriers. Nothing is moved if "
    "nearly all rare alleles seem to be phased correctly.",
    group="Advanced",
)
@option(
    "--keep-map",
    is_flag=True,
    help="Keep the genetic map. By default, a map is estimated from the panel's haplotypes. It replaces the "
    "given map if it explains held-out haplotypes clearly better.",
    group="Advanced",
)
@option(
    "--split-multiallelic",
    is_flag=True,
    help="Treat each ALT of a multi-allelic record as a biallelic site. By default, the probabilities of the "
    "alleles of such a record add up to 1.",
    group="Advanced",
)
@out_option("Panel file (.spin, or .spip with --inducing).")
@option(
    "--threads",
    "-t",
    type=Count(),
    help="Number of threads, and of processes that read a large indexed VCF or BCF. Default: one per "
    f"processor, and at most {MAX_READERS} processes of about 100 MB. Results do not depend on it.",
    group="Performance",
)
@device_option
@force_option
@quiet_option
@click.pass_context
def build(
    ctx: click.Context,
    vcf: str | None,
    hap: str | None,
    legend: str | None,
    sample: str | None,
    chromosome: str | None,
    genetic_map: str | None,
    region: str | None,
    samples_file: str | None,
    inducing_points: int | None,
    array: str | None,
    model: str | None,
    keep_phase: bool,
    keep_map: bool,
    split_multiallelic: bool,
    out: str,
    threads: int | None,
    device: str,
    force: bool,
    quiet: bool,
) -> None:
    """Compile phased haplotypes of one chromosome into a panel file.

    Chromosome X is split at the pseudo-autosomal boundaries; one file has all parts. The genome build is
    inferred from the contig length in the header.

    --inducing builds an inducing panel for targets that were typed with one array, or at some of its sites.
    Each block of gaps between array sites has at most H inducing points, which are averages of panel
    haplotypes. Each site has the panel's allele counts. The file has no haplotypes and no names of samples.

    An inducing panel is compressed, not anonymous. Somebody who has a person's genome can find out whether
    this person was in the panel, from the counts of rare alleles or, if there are many inducing points, from
    the averages. An average of a single haplotype is that haplotype.
    """
    from spinimpute.genotypes.sites import Region
    from spinimpute.pipeline.maps.build import build_panels

    check_inducing(inducing_points, array, model, out)
    source = choose_source(vcf, hap, legend, sample, chromosome)
    samples = None if samples_file is None else read_list(samples_file, "samples file", "name")
    parsed = None if region is None else Region.parse(region)
    command = command_text(ctx, NOT_RECORDED)
    readers = _count_readers(threads)
    if inducing_points is None:
        build_panels(
            source,
            out,
            genetic_map,
            parsed,
            samples,
            force,
            command,
            readers,
            keep_phase,
            keep_map=keep_map,
            split_multiallelic=split_multiallelic,
        )
        describe_file(out, quiet, changes=True)
        return
    from spinimpute.panels.file_kind import SPIP, check_panel_output
    from spinimpute.panels.formats.detection import source_files
    from spinimpute.panels.opening import is_panel_file
    from spinimpute.predictors.spin.build import build_inducing_panel
    from spinimpute.runtime.output_files import temporary_folder

    check_panel_output(out, force, [*source_files(source), genetic_map, array, model, samples_file], SPIP)
    with (
        temporary_folder() as folder,
        _open_or_build(
            source,
            folder / "panel.spin",
            genetic_map,
            parsed,
            samples,
            readers,
            keep_phase,
            keep_map,
            split_multiallelic,
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
        if not quiet:
            describe_panel(out, made)
            if not is_panel_file(source_files(source)[0]):
                describe_changes(panel)
            share = made.mass_below["2"]
            say(f"  {share:.1%} of the inducing points stand for fewer than 2 haplotypes of the panel")
            for reason, count in made.provenance["array sites not used"].items():
                say(f"  {count} array sites not used: {reason}")


@click.command(cls=Command)
@click.argument("name", required=False)
@option("--list", "list_only", is_flag=True, help="List the panels, or NAME, and the downloaded chromosomes.")
@option("--chromosomes", metavar="A,B-C,...", help="Chromosomes to get. Default: 1-22,X.")
@option(
    "--out",
    "-o",
    metavar="FOLDER",
    help="Folder for the panel files. Default: a folder of your data, see --list.",
)
@option("--base-url", metavar="URL", help="Folder of a mirror that has the VCF files.")
@option("--map-url", metavar="URL", help="Folder of a mirror that has the genetic maps.")
@threads_option
@quiet_option
@click.pass_context
def get(
    ctx: click.Context,
    name: str | None,
    list_only: bool,
    chromosomes: str | None,
    out: str | None,
    base_url: str | None,
    map_url: str | None,
    threads: int | None,
    quiet: bool,
) -> None:
    """Download a published panel and its genetic map, and build its panel files.

    \b
    For example:
      spinimpute panel get 1000g-30x --chromosomes 20-22
      spinimpute impute --panel 1000g-30x --vcf target.vcf.gz --out imputed.vcf.gz

    Chromosomes that have been built are skipped, and interrupted downloads are resumed. Only the panel files
    are kept.
    """
    from spinimpute.downloads.catalogue import choose_chromosomes, find_published, published_panels
    from spinimpute.downloads.get_panel import get_panel
    from spinimpute.downloads.transfer import check_url

    if list_only:
        refuse_options(ctx, ("chromosomes", "out", "base_url", "map_url", "threads", "quiet"), "--list")
        for one in published_panels().values() if name is None else [find_published(name)]:
            _describe_published(one, one.default_folder(), click.echo)
        return
    if name is None:
        raise InputError(
            "arguments", "give the NAME of a panel. 'spinimpute panel get --list' lists the panels"
        )
    published = find_published(name)
    choose_chromosomes(chromosomes)  # a wrong option is reported alone
    for url in (base_url, map_url):
        if url is not None:
            check_url(url)
    if not quiet:
        _describe_published(published, published.default_folder() if out is None else Path(out), say)
    with progress_bar("downloading", quiet) as progress:
        get_panel(
            name,
            out,
            chromosomes,
            base_url=base_url,
            map_url=map_url,
            threads=_count_readers(threads),
            progress=progress,
            report_built=lambda path: describe_file(str(path), quiet, changes=True),
        )


def _describe_published(published: PublishedPanel, folder: Path, write: Callable[[str], None]) -> None:
    """Print what a published panel is, where it comes from, and what has been downloaded to a folder."""
    from spinimpute.downloads.catalogue import PUBLISHED_CHROMOSOMES

    downloaded = [chrom for chrom in PUBLISHED_CHROMOSOMES if (folder / published.spin_name(chrom)).exists()]
    write(f"{published.id}: {published.title}")
    rows = {
        "build": f"{published.build}, {published.haplotypes:,} haplotypes, chromosomes 1 to 22 and X",
        "source": published.url,
        "maps": f"{published.map_url}/{published.map_archive}",
        "terms": published.terms,
        "citation": published.citation,
        "folder": folder,
        "downloaded": ", ".join(downloaded) or "no chromosome",
    }
    for title, value in rows.items():
        write(printable(f"  {title + ':':<12}{value}"))


def _count_readers(threads: int | None) -> int:
    """Return the number of threads, and of processes that read a VCF or BCF, for the value of --threads."""
    from spinimpute.runtime.devices import choose_threads

    return min(choose_threads(None), MAX_READERS) if threads is None else threads


def _open_or_build(
    source: PanelSource,
    out: Path,
    genetic_map: str | None,
    region: Region | None,
    samples: list[str] | None,
    readers: int,
    keep_phase: bool,
    keep_map: bool,
    split_multiallelic: bool,
) -> Panel:
    """Open a panel file, or build the panel file `out` from other files and open it.

    Raises InputError if options that apply only to other files are given with a panel file.
    """
    from spinimpute.panels.formats.detection import source_files
    from spinimpute.panels.opening import is_panel_file
    from spinimpute.panels.panel import Panel
    from spinimpute.pipeline.maps.build import build_panel

    path = source_files(source)[0]
    if not is_panel_file(path):
        return build_panel(
            source,
            out,
            genetic_map,
            region,
            samples,
            threads=readers,
            keep_phase=keep_phase,
            keep_map=keep_map,
            split_multiallelic=split_multiallelic,
        )
    if genetic_map or region or samples or keep_phase or keep_map or split_multiallelic:
        raise InputError(
            "arguments",
            f"{path} is a panel file: its map, region, samples and phase were chosen when it was built. Give "
            "--map, --region, --samples-file, --keep-phase, --keep-map and --split-multiallelic when you "
            "build a panel",
        )
    return Panel.open(path)
