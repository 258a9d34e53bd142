"""`spinimpute impute`"""

from __future__ import annotations

import gc
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from spinimpute.predictors import registry

from .options import (
    Piped,
    ambiguous_option,
    chain_option,
    command_text,
    device_option,
    force_match_option,
    log_option,
    map_option,
    out_option,
    output_type_option,
    predictor_options,
    progress_bar,
    quiet_option,
    refuse_options,
    regions_options,
    sample_names,
    sex_option,
    sexes_of,
    show,
    threads_option,
)
from .target_options import (
    ONLY_FOR_LIKELIHOODS,
    ONLY_FOR_READS,
    each,
    panels_option,
    sequencing_options_of_genomes,
    sequencing_settings,
    targets_option,
)

# the output must be the same with and without them
WITHOUT_INFLUENCE = (
    "out", "threads", "max_memory", "device", "force", "quiet", "report", "report_figures", "multiqc",
    "min_typed_ratio",
)  # fmt: skip
ONLY_FOR_ARRAYS = (
    "phasing", "samples", "samples_file",
    "keep_unmatched", "predictor", "model", "ambiguous", "min_typed_ratio", "loo",
    "device", *(name for name in registry.options_by_name() if name != "max_memory"),
)  # fmt: skip


def _check_outputs(params: Mapping[str, Any]) -> None:
    """Refuse what cannot be written, before standard input is read."""
    from spinimpute.outputs.opening import choose_format
    from spinimpute.pipeline.run_plan import fixed_output
    from spinimpute.reports.report_files import ReportFiles
    from spinimpute.runtime.output_files import check_outputs

    out, tables = params["out"], _loo_tables(params["loo"]).values()
    report = ReportFiles(params["report"], params["report_figures"], params["multiqc"])
    others = [*tables, *report.to_check([out, *tables])]
    check_outputs([fixed_output(out), *others], params["force"], [], streamed=out)
    choose_format(Path(out), params["output_type"])


@click.command(cls=Piped, check=_check_outputs)
@targets_option
@sequencing_options_of_genomes
@panels_option(
    "Panel file (.spin or .spip), or a phased VCF or BCF. May be repeated, or a folder: one for each "
    "chromosome, or several, which are merged."
)
@map_option
@out_option(
    "Output: .vcf.gz, .bcf or .vcf with its index, - is stdout; .pgen with .pvar and .psam; .bgen with "
    ".sample. One for each chromosome with {chrom} in its name."
)
@output_type_option
@click.option("--format", "formats", default="GT,DS", show_default=True, help="Of GT, DS, HDS and GP.")
@click.option(
    "--decimals", type=click.IntRange(1, 5), default=3, show_default=True, help="Of DS, HDS and GP."
)
@regions_options("Impute this part of the panel only; 'ligate' joins such chunks.")
@click.option(
    "--buffer",
    type=float,
    metavar="CM",
    help="With regions: use no typed sites but those this far around one, and those that its results need.",
)
@click.option(
    "--phasing",
    type=click.Choice(["auto", "never"]),
    default="auto",
    show_default=True,
    help="Phase unphased heterozygotes first, or refuse them.",
)
@click.option("--keep-unmatched", is_flag=True, help="Also write typed sites that the panel lacks.")
@click.option(
    "--predictor",
    type=click.Choice([row.name for row in registry.PREDICTORS]),
    help="; ".join(f"{row.name}: {row.help}" for row in registry.PREDICTORS)
    + ". Default: the first of them that reads the panel.",
)
@click.option("--model", metavar="FILE", help="Checkpoint (default: the predictor's shipped one).")
@predictor_options
@ambiguous_option
@sex_option
@chain_option
@click.option("--samples", metavar="A,B,...", help="Impute these samples only, in this order (VCF, BCF).")
@click.option("--samples-file", metavar="FILE", help="Impute these samples only, one name a line.")
@click.option(
    "--min-typed-ratio",
    type=click.FloatRange(0, 1),
    metavar="X",
    help="Refuse the target if any stretch of the panel, of 5 cM, has a smaller share of typed sites.",
)
@click.option(
    "--loo",
    metavar="PREFIX",
    help="Leave typed calls out: INFO/ER2, and PREFIX.sites.tsv, .samples.tsv, .windows.tsv.",
)
@click.option(
    "--report", metavar="FILE", help="Write a page about the run: quality, repairs, samples (HTML)."
)
@click.option("--report-figures", metavar="FOLDER", help="Write the page's charts as files (SVG).")
@click.option(
    "--multiqc",
    metavar="FILE",
    help="Write a table of the samples for MultiQC, which finds names that end in _mqc.json.",
)
@log_option
@threads_option
@device_option
@click.option(
    "--seed", type=int, default=1, show_default=True, help="Only recorded: nothing is drawn at random."
)
@force_match_option
@quiet_option
@click.pass_context
def impute(
    ctx: click.Context,
    vcf: str | tuple[str, ...] | None,
    gl: str | tuple[str, ...] | None,
    bam: tuple[str, ...],
    bam_list: str | None,
    reference: str | None,
    min_mapping_quality: int,
    min_base_quality: int,
    max_depth: int,
    indels: bool,
    panel: str | tuple[str, ...],
    genetic_map: str | None,
    out: str,
    output_type: str | None,
    formats: str,
    decimals: int,
    regions: tuple[str, ...],
    regions_file: str | None,
    buffer: float | None,
    phasing: str,
    keep_unmatched: bool,
    predictor: str | None,
    model: str | None,
    ambiguous: str,
    sex: str | None,
    chain: str | None,
    samples: str | None,
    samples_file: str | None,
    min_typed_ratio: float | None,
    loo: str | None,
    report: str | None,
    report_figures: str | None,
    multiqc: str | None,
    threads: int | None,
    device: str,
    seed: int,
    force: bool,
    quiet: bool,
    **options: Any,
) -> None:
    """Impute genotypes at all sites of a reference panel; unphased ones are phased first.

    Sequenced samples are given by their genotype likelihoods (--gl), their reads (--bam, --bam-list), or
    both; --vcf then gives an array's calls of the same samples.
    """
    wanted = _formats(formats)
    gc.disable()  # nothing that is imported can be collected: looking through it takes a tenth of a second
    from spinimpute.pipeline.impute import impute as run
    from spinimpute.pipeline.run_plan import fixed_output
    from spinimpute.pipeline.settings import (
        OutputSettings,
        PredictorSettings,
        RegionSettings,
        Resources,
        TargetSettings,
    )
    from spinimpute.reports.report_files import ReportFiles
    from spinimpute.runtime.memory import parse_size
    from spinimpute.runtime.output_files import check_outputs

    header_lines = [
        f"##spinimpute_command={command_text(ctx, WITHOUT_INFLUENCE)}",
        f"##spinimpute_seed={seed}",
    ]
    where = RegionSettings(_one(regions), buffer, regions_file)
    max_memory = options.pop("max_memory")
    budget = None if max_memory is None else parse_size(max_memory)
    if gl or bam or bam_list:
        from spinimpute.pipeline.sequenced.impute import impute_sequenced

        refuse_options(ctx, ONLY_FOR_ARRAYS, "sequenced samples (--gl, --bam)")
        assert vcf is None or isinstance(vcf, str), "the option has been checked"
        if not bam and bam_list is None:
            refuse_options(ctx, ONLY_FOR_READS, "likelihoods without reads (--gl without --bam)")
        if not gl:
            refuse_options(ctx, ONLY_FOR_LIKELIHOODS, "reads (--bam without --gl)")
        read = (
            *each(gl),
            *bam,
            bam_list,
            vcf,
            reference,
            sex,
            chain,
            *each(panel),
            genetic_map,
            regions_file,
        )
        files = ReportFiles(report, report_figures, multiqc).to_check([out])
        check_outputs([fixed_output(out), *files], force, read, streamed=out)
        counted = (min_mapping_quality, min_base_quality, max_depth, indels)
        given = sequencing_settings(gl, bam, bam_list, vcf, reference, counted, sex, chain)
        gc.freeze()
        gc.enable()
        with progress_bar("imputing", quiet) as progress:
            found = impute_sequenced(
                out,
                panel,
                given,
                genetic_map=genetic_map,
                region=where,
                output=OutputSettings(
                    wanted,
                    report=report,
                    report_figures=report_figures,
                    multiqc=multiqc,
                    decimals=decimals,
                    output_type=output_type,
                    header_lines=header_lines,
                ),
                resources=Resources(threads, max_memory=budget),
                force=force,
                progress=progress,
            )
        show(found, out, quiet)
        return
    assert vcf is not None, "one of them is given"
    refuse_options(ctx, ONLY_FOR_READS, "targets that are not sequenced")
    tables = _loo_tables(loo)
    settings = OutputSettings(
        wanted,
        keep_unmatched,
        leave_one_out=loo is not None,
        leave_one_out_tables=tables,
        report=report,
        report_figures=report_figures,
        multiqc=multiqc,
        decimals=decimals,
        output_type=output_type,
        header_lines=header_lines,
    )
    inputs = (*each(vcf), *each(panel), genetic_map, model, sex, chain, samples_file, regions_file)
    others: list[str | Path | None] = [out, *tables.values()]
    files = settings.report_files.to_check(others)
    check_outputs([fixed_output(out), *tables.values(), *files], force, inputs, streamed=out)
    gc.freeze()
    gc.enable()
    with progress_bar("imputing", quiet) as progress:
        summary = run(
            vcf,
            out,
            panel,
            genetic_map=genetic_map,
            predictor=PredictorSettings(predictor, model, _given(options)),
            target=TargetSettings(ambiguous, sexes_of(sex), chain, sample_names(samples, samples_file)),
            phasing=phasing,
            region=where,
            output=settings,
            resources=Resources(threads, device, budget),
            min_typed_ratio=min_typed_ratio,
            force=force,
            progress=progress,
        )
    show(summary, out, quiet)


def _one(given: tuple[str, ...]) -> str | tuple[str, ...] | None:
    """The same as the library takes it."""
    return given[0] if len(given) == 1 else given or None


def _given(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _loo_tables(prefix: str | None) -> dict[str, Path]:
    """Where the tables of --loo go, by name."""
    if prefix is None:
        return {}
    from spinimpute.quality.leave_one_out import TABLES
    from spinimpute.runtime.errors import InputError

    name = prefix.rpartition("/")[2]
    if prefix == "-":
        raise InputError(
            "content", "--loo -: the tables cannot go to standard output; give what their names begin with"
        )
    if not name or name.startswith("."):
        raise InputError(
            "content",
            f"--loo {prefix!r}: the tables would be hidden files; give what their names begin with, such as "
            "'quality'",
        )
    return {table: Path(f"{prefix}.{table}.tsv") for table in TABLES}


def _formats(text: str) -> tuple[str, ...]:
    from spinimpute.runtime.errors import InputError

    known = ("GT", "DS", "HDS", "GP")
    formats = [name.strip().upper() for name in text.split(",")]
    wrong = [name for name in formats if name not in known]
    if wrong or len(set(formats)) < len(formats):
        raise InputError(
            "content", f"--format {text}: give each of {', '.join(known)} at most once, with commas"
        )
    # the VCF specification wants GT first
    return tuple(sorted(formats, key=lambda name: name != "GT"))
