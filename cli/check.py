"""`spinimpute check`"""

from __future__ import annotations

from pathlib import Path

import click

from cli.options import ambiguous_option, force_option, map_option, panel_option


@click.command()
@click.option(
    "--vcf",
    required=True,
    metavar="FILE",
    help="Target: VCF, VCF.gz, BCF or the text file of a consumer array.",
)
@panel_option("Panel file (.spin), or a phased VCF or BCF.")
@map_option
@ambiguous_option
@click.option("--out", "-o", metavar="FILE", help="Table with a row for each site that something is said of.")
@force_option
def check(
    vcf: str, panel: str, genetic_map: str | None, ambiguous: str, out: str | None, force: bool
) -> None:
    """Say what impute would make of a target: sites repaired and lost, missing calls, odd frequencies."""
    from spinimpute.errors import InputError
    from spinimpute.genotypes.check import check as run
    from spinimpute.genotypes.panel_file import Panel
    from spinimpute.imputation.pipeline import open_panel
    from spinimpute.output_files import check_output

    table = None if out is None else check_output(out, force, [vcf, panel, genetic_map])
    with open_panel(panel, genetic_map) as opened:
        if not isinstance(opened, Panel):
            raise InputError(f"panel {panel}: inducing points cannot be checked against; give a .spin file")
        report = run(vcf, opened, ambiguous)
    for line in report.lines():
        click.echo(line)
    if table is not None:
        partial = table.with_name(f".{table.name}.part")
        try:
            report.write(partial)
            partial.replace(table)
        finally:
            Path(partial).unlink(missing_ok=True)
