"""`spinimpute check`: report how a target fits a panel, without imputing it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from spinimpute.runtime.errors import InputError, printable

from .commands import Command, option
from .options import (
    ambiguous_option,
    chain_option,
    force_option,
    load_sexes,
    map_option,
    refuse_options,
    sex_option,
)
from .target_options import (
    ONLY_FOR_READS,
    as_tuple,
    panels_option,
    refuse_options_of_sequenced,
    sequencing_options,
    sequencing_settings,
    target_options,
)

if TYPE_CHECKING:
    from spinimpute.panels.reference import ReferencePanel
    from spinimpute.pipeline.check import CheckReport

ONLY_FOR_ARRAYS = ("vcf", "bfile", "pfile", "ambiguous", "out")


@click.command(cls=Command)
@target_options()
@sequencing_options()
@panels_option("Reference panel (.spin, VCF or BCF). Panels of the same chromosome are merged.")
@map_option
@ambiguous_option
@sex_option
@chain_option
@option("--out", "-o", metavar="FILE", help="Table of the sites that are repaired or lost.", group="Output")
@option("--samples-out", metavar="FILE", help="Table of the samples.", group="Output")
@force_option
@click.pass_context
def check(
    ctx: click.Context,
    vcf: str | None,
    gl: str | None,
    bam: tuple[str, ...],
    bam_list: str | None,
    panel: str | tuple[str, ...],
    genetic_map: str | None,
    ambiguous: str,
    sex: str | None,
    chain: str | None,
    out: str | None,
    samples_out: str | None,
    force: bool,
    **_: object,
) -> None:
    """Report what 'impute' would do with a target: repaired and lost sites, missing calls, frequencies, sex.

    The exit status is 2 if 'impute' would refuse the target. For sequenced samples (--gl, --bam, --bam-list)
    the report has unusable files, matched and exchanged sites, and coverage.
    """
    from spinimpute.panels.opening import open_reference
    from spinimpute.pipeline.check import check as run
    from spinimpute.pipeline.maps.build import estimate_map_only
    from spinimpute.pipeline.settings import TargetSettings
    from spinimpute.runtime.output_files import atomic_write, check_outputs

    if gl or bam or bam_list:
        refuse_options_of_sequenced(ctx, ONLY_FOR_ARRAYS)
        from spinimpute.pipeline.sequenced.intervals import check_sequenced

        given = sequencing_settings(ctx.params, gl, None)
        check_outputs([samples_out], force, (bam_list, *as_tuple(panel), genetic_map, sex, *given.paths))
        with open_reference(panel, genetic_map, refine=estimate_map_only) as opened:
            found, refusals = check_sequenced(opened, given)
        warnings = [f"warning:  {warning}" for warning in dict.fromkeys([*found.warnings, *refusals])]
        for line in [*(found.input_lines() if found.samples else []), *warnings]:
            click.echo(printable(line))
        if samples_out is not None and found.samples:
            with atomic_write(Path(samples_out)) as partial:
                found.coverage.write(partial)
        if refusals:
            raise InputError("content", f"impute refuses {len(refusals)} of these files: {refusals[0]}")
        return
    refuse_options(ctx, ONLY_FOR_READS, "targets that are not sequenced")
    assert vcf is not None, "one of them is given"
    check_outputs([out, samples_out], force, (vcf, *as_tuple(panel), genetic_map, sex, chain))
    tables = [None if path is None else Path(path) for path in (out, samples_out)]
    settings = TargetSettings(ambiguous, load_sexes(sex), chain)
    if isinstance(panel, tuple):
        for one in panel:
            with open_reference(one) as opened:
                _describe(one, opened, run(vcf, opened, settings))
    with open_reference(panel, genetic_map, refine=estimate_map_only) as opened:
        report = run(vcf, opened, settings)
    for line in report.lines():
        click.echo(printable(line))
    for table, write in zip(tables, (report.write_sites, report.write_samples), strict=True):
        if table is not None:
            with atomic_write(table) as partial:
                write(partial)
    if report.refusals:
        raise InputError("mismatch", f"impute refuses this target: {report.refusals[0]}")


def _describe(path: str, panels: Sequence[ReferencePanel], report: CheckReport) -> None:
    """Print a line about one of several panels and its match with the target."""
    n_sites = sum(panel.n_sites for panel in panels)
    click.echo(
        printable(
            f"panel:    {Path(path).name}: {panels[0].n_samples} samples, {n_sites} sites, "
            f"{report.n_matched} of {report.n_sites} typed sites"
        )
    )
