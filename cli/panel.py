"""`spinimpute panel build | info | verify`"""

from __future__ import annotations

from pathlib import Path

import click

from cli.command_text import command_text
from cli.options import force_option, map_option, out_option, region_option


@click.group()
def panel() -> None:
    """Build, describe and verify reference panels."""


@panel.command()
@click.option("--vcf", required=True, metavar="FILE", help="Phased VCF, VCF.gz or BCF without missing calls.")
@map_option
@region_option("Take this part only; needed if the file has several chromosomes.")
@click.option("--samples-file", metavar="FILE", help="Take these samples only, one name a line.")
@out_option("Panel file to write, by convention .spin.")
@force_option
@click.pass_context
def build(
    ctx: click.Context,
    vcf: str,
    genetic_map: str | None,
    region: str | None,
    samples_file: str | None,
    out: str,
    force: bool,
) -> None:
    """Compile a phased VCF or BCF of one chromosome into a panel file."""
    from spinimpute.genotypes.panel_file import build_panel
    from spinimpute.genotypes.sites import Region

    samples = None if samples_file is None else _names(samples_file)
    parsed = None if region is None else Region.parse(region)
    command = command_text(ctx, without=("out", "force"))
    with build_panel(vcf, out, genetic_map, parsed, samples, force, command) as built:
        click.echo(
            f"{out}: {built.n_haplotypes} haplotypes of {built.n_samples} samples, {built.n_sites} sites, "
            f"{built.chrom}:{built.position[0]}-{built.position[-1]}",
            err=True,
        )
        for reason, count in built.provenance.get("skipped", {}).items():
            click.echo(f"  {count} records skipped: {reason}", err=True)


def _names(path: str) -> list[str]:
    from spinimpute.errors import InputError

    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"samples file {path}: cannot be read ({error})") from error
    names = [line.strip() for line in lines if line.strip()]  # a name may hold blanks
    if not names:
        raise InputError(f"samples file {path}: there is no name in it")
    return names


@panel.command()
@click.argument("file")
def info(file: str) -> None:
    """Say what a panel file holds."""
    from spinimpute.genotypes.panel_file import Panel

    with Panel.open(file) as opened:
        rows = {
            "chromosome": opened.chrom,
            "positions": f"{opened.position[0]}-{opened.position[-1]}",
            "genetic length": f"{opened.cM[-1] - opened.cM[0]:.3f} cM",
            "sites": opened.n_sites,
            "of multi-allelic records": int(opened.multiallelic.sum()),
            "samples": opened.n_samples,
            "haplotypes": opened.n_haplotypes,
            "checksum": opened.checksum,
            **{f"made: {key}": value for key, value in opened.provenance.items()},
        }
    for name, value in rows.items():
        click.echo(f"{name:<26}{value}")


@panel.command()
@click.argument("file")
def verify(file: str) -> None:
    """Read all of a panel file and check it against its checksums."""
    from spinimpute.genotypes.panel_file import Panel

    with Panel.open(file) as opened:
        _ = opened.sites, opened.cM, opened.allele_count, opened.multiallelic
        step = 4_096
        for start in range(0, opened.n_sites, step):
            opened.packed(start, min(start + step, opened.n_sites))
    click.echo(f"{file}: intact")
