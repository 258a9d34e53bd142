"""`spinimpute check`"""

from __future__ import annotations

from pathlib import Path

import click

from spinimpute.errors import printable

from .options import (
    OptionsOnly,
    ambiguous_option,
    chain_option,
    force_option,
    map_option,
    panel_option,
    sex_option,
    sexes_of,
    target_option,
)


@click.command(cls=OptionsOnly)
@target_option
@panel_option("Panel file (.spin), or a phased VCF or BCF.")
@map_option
@ambiguous_option
@sex_option
@chain_option
@click.option("--out", "-o", metavar="FILE", help="Table with a row for each site that something is said of.")
@click.option("--samples-out", metavar="FILE", help="Table with a row for each sample.")
@force_option
def check(
    vcf: str,
    panel: str,
    genetic_map: str | None,
    ambiguous: str,
    sex: str | None,
    chain: str | None,
    out: str | None,
    samples_out: str | None,
    force: bool,
) -> None:
    """Say what impute would make of a target: sites repaired or lost, missing calls, frequencies, sex.

    Ends with status 2 where impute would refuse the target; what was found is told before.
    """
    from spinimpute.errors import InputError
    from spinimpute.output_files import check_outputs, written_whole
    from spinimpute.panels.opening import open_panels
    from spinimpute.pipeline.check import check as run
    from spinimpute.pipeline.settings import TargetSettings

    check_outputs([out, samples_out], force, (vcf, panel, genetic_map, sex, chain))
    tables = [None if path is None else Path(path) for path in (out, samples_out)]
    with open_panels(panel, genetic_map) as opened:
        report = run(vcf, opened, TargetSettings(ambiguous, sexes_of(sex), chain))
    for line in report.lines():
        click.echo(printable(line))
    for table, write in zip(tables, (report.write_sites, report.write_samples), strict=True):
        if table is not None:
            with written_whole(table) as partial:
                write(partial)
    if report.refusals:
        raise InputError(f"impute refuses this target: {report.refusals[0]}")
