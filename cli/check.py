"""`spinimpute check`: report how a target fits a panel, without imputing it."""

from __future__ import annotations

from pathlib import Path

import click

from spinimpute.runtime.errors import InputError, printable

from .commands import Command, option
from .options import (
    ambiguous_option,
    chain_option,
    force_option,
    load_sexes,
    map_option,
    progress_bar,
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

ONLY_FOR_ARRAYS = ("vcf", "bfile", "pfile", "ambiguous", "out")


@click.command(cls=Command)
@target_options(several=True)
@sequencing_options(several=True)
@panels_option(
    "Reference panel (.spin, VCF, BCF or M3VCF), or a folder with one per chromosome. Repeat for several; "
    "panels of the same chromosome are merged."
)
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
    vcf: str | tuple[str, ...] | None,
    gl: str | tuple[str, ...] | None,
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
    from spinimpute.pipeline.check import check as run
    from spinimpute.pipeline.settings import TargetSettings
    from spinimpute.runtime.output_files import atomic_write, check_outputs

    if gl or bam or bam_list:
        refuse_options_of_sequenced(ctx, ONLY_FOR_ARRAYS)
        from spinimpute.pipeline.sequenced.check import check_sequenced

        given = sequencing_settings(ctx.params, gl, None)
        check_outputs([samples_out], force, (bam_list, *as_tuple(panel), genetic_map, sex, *given.paths))
        with progress_bar("checking the samples", quiet=False) as progress:
            found, refusals = check_sequenced(panel, given, genetic_map, progress)
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
    check_outputs([out, samples_out], force, (*as_tuple(vcf), *as_tuple(panel), genetic_map, sex, chain))
    tables = [None if path is None else Path(path) for path in (out, samples_out)]
    settings = TargetSettings(ambiguous, load_sexes(sex), chain)
    with progress_bar("checking the target", quiet=False) as progress:
        report = run(vcf, panel, settings, genetic_map=genetic_map, progress=progress)
    for line in report.lines():
        click.echo(printable(line))
    for table, write in zip(tables, (report.write_sites, report.write_samples), strict=True):
        if table is not None:
            with atomic_write(table) as partial:
                write(partial)
    if report.refusals:
        raise InputError("mismatch", f"impute refuses this target: {report.refusals[0]}")
