"""`spinimpute impute`: impute array genotypes, or sequenced samples (--gl, --bam), from a reference panel."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from spinimpute.predictors import registry
from spinimpute.runtime.errors import InputError

from .commands import PipedCommand, command_text, option
from .options import (
    ambiguous_option,
    chain_option,
    device_option,
    filter_options,
    force_match_option,
    load_sexes,
    log_option,
    map_option,
    out_option,
    output_type_option,
    predictor_options,
    print_summary,
    progress_bar,
    quiet_option,
    refuse_options,
    regions_options,
    sample_names,
    sex_option,
    threads_option,
)
from .target_options import (
    ONLY_FOR_READS,
    as_tuple,
    one_or_several,
    panels_option,
    refuse_options_of_sequenced,
    sequencing_options,
    sequencing_settings,
    target_options,
)

if TYPE_CHECKING:
    from spinimpute.quality.summary import ImputationSummary, SequencedSummary

FORMATS = ("GT", "DS", "HDS", "GP", "ML")
# Options that do not change the results. Headers omit them: equal results then have equal headers.
NOT_RECORDED = (
    "out", "threads", "max_memory", "device", "force", "quiet", "report", "report_figures", "multiqc",
    "min_typed_ratio", "sites", "labels",
)  # fmt: skip
ONLY_FOR_ARRAYS = (
    "phasing", "samples", "samples_file",
    "keep_unmatched", "predictor", "model", "ambiguous", "min_typed_ratio", "loo",
    "device", *(name for name in registry.options_by_name() if name != "max_memory"),
)  # fmt: skip


def _check_outputs(params: Mapping[str, Any], inputs: tuple[object, ...] = ()) -> None:
    """Raise InputError if an output cannot be written, or if it would replace one of the `inputs`.

    `PipedCommand` calls this without `inputs` before it reads standard input; `impute` checks `inputs`, too.
    """
    from spinimpute.outputs.opening import choose_format
    from spinimpute.pipeline.run_plan import get_single_output, site_table_of_bgen
    from spinimpute.reports.report_files import ReportFiles
    from spinimpute.runtime.output_files import check_outputs

    out, tables = params["out"], _loo_tables(params["loo"]).values()
    report = ReportFiles(params["report"], params["report_figures"], params["multiqc"])
    sites = params["sites"]
    if sites is None and out.lower().endswith(".bgen"):
        sites = site_table_of_bgen(out)
    others = [None if sites is None else get_single_output(sites), *tables, params["labels"]]
    others += report.paths_to_check([out, *tables])
    check_outputs([get_single_output(out), *others], params["force"], inputs, streamed=out)
    choose_format(Path(out), params["output_type"], params["mergeable"])


@click.command(cls=PipedCommand, check=_check_outputs)
@target_options(several=True)
@sequencing_options(several=True)
@panels_option(
    "Reference panel (.spin, .spip, VCF, BCF or M3VCF), or a folder with one per chromosome. Repeat for "
    "several; panels of the same chromosome are merged."
)
@map_option
@out_option(
    "Output (.vcf.gz, .bcf, .vcf, .pgen or .bgen); - for standard output, {chrom} in the name for one file "
    "per chromosome."
)
@output_type_option
@option(
    "--format",
    "formats",
    metavar="A,B,...",
    default="GT,DS",
    help="Fields of the output, from GT, DS, HDS, GP and ML (mean length of the alleles).",
    group="Output",
)
@option(
    "--decimals", type=click.IntRange(1, 5), default=3, help="Decimals of DS, HDS and GP.", group="Output"
)
@option(
    "--bgen-bits",
    type=click.Choice(["8", "16"]),
    default="8",
    help="Bits of each probability of a .bgen output.",
    group="Output",
)
@filter_options
@option(
    "--sites",
    metavar="FILE",
    help="Table of all sites, before filters: alleles, AF, MAF, AVG_CS, R2, ER2, TYPED (.tsv.gz). Default "
    "for BGEN: PREFIX.sites.tsv.gz.",
    group="Output",
)
@regions_options("Region to impute. An output with one region is a chunk; 'spinimpute ligate' joins chunks.")
@option(
    "--buffer",
    type=float,
    metavar="CM",
    help="Use only typed sites within this distance of a region. For a phased target, further sites are "
    "added where the results depend on them. Default: all typed sites of the chromosome.",
    group="Region",
)
@option(
    "--phasing",
    type=click.Choice(["auto", "never"]),
    default="auto",
    help="Treatment of unphased genotypes: phase them first, or refuse them.",
    group="Advanced",
)
@option("--keep-unmatched", is_flag=True, help="Write typed sites that the panel lacks, too.", group="Output")
@option(
    "--predictor",
    type=click.Choice([row.name for row in registry.PREDICTORS]),
    help="Predictor: "
    + "; ".join(f"{row.name}: {row.help}" for row in registry.PREDICTORS)
    + ". Default: haplotype for panels of haplotypes (.spin), spin for panels of inducing points (.spip).",
    group="Advanced",
)
@option(
    "--model", metavar="FILE", help="Checkpoint of the predictor. Default: the shipped one.", group="Advanced"
)
@predictor_options
@ambiguous_option
@sex_option
@chain_option
@option(
    "--samples", metavar="A,B,...", help="Samples to impute, in this order (VCF, BCF targets).", group="Input"
)
@option("--samples-file", metavar="FILE", help="List of the samples to impute, one per line.", group="Input")
@option(
    "--min-typed-ratio",
    type=click.FloatRange(0, 1),
    help="Refuse a target if less than this share of the panel's sites is typed in any 5 cM of the regions.",
    group="Advanced",
)
@option(
    "--loo",
    metavar="PREFIX",
    help="Leave each typed call out to estimate accuracy: INFO/ER2, and PREFIX.sites.tsv, .samples.tsv, "
    ".windows.tsv.",
    group="Output",
)
@option(
    "--labels",
    metavar="FILE",
    help="Table of the most likely labels of each sample, such as HLA types, if the panel has labels ('panel "
    "labels').",
    group="Output",
)
@option(
    "--mergeable",
    is_flag=True,
    help="Store in INFO what 'spinimpute merge' needs to join this output with those of other samples.",
    group="Output",
)
@option(
    "--split-multiallelic",
    is_flag=True,
    help="Write a biallelic record for each ALT of a multi-allelic record.",
    group="Output",
)
@option("--report", metavar="FILE", help="Page about quality, repairs and samples (HTML).", group="Output")
@option("--report-figures", metavar="FOLDER", help="Folder for the page's figures (SVG).", group="Output")
@option(
    "--multiqc",
    metavar="FILE",
    help="Table of the samples for MultiQC, which finds names that end in _mqc.json.",
    group="Output",
)
@log_option
@threads_option
@device_option
@force_match_option
@quiet_option
@click.pass_context
def impute(
    ctx: click.Context,
    vcf: str | tuple[str, ...] | None,
    gl: str | tuple[str, ...] | None,
    panel: str | tuple[str, ...],
    genetic_map: str | None,
    out: str,
    regions: tuple[str, ...],
    quiet: bool,
    **params: Any,
) -> None:
    """Impute genotypes at all sites of a reference panel; unphased genotypes are phased first.

    \b
    For example:
      spinimpute impute --vcf target.vcf.gz --panel panel.spin --map genetic.map
        --out imputed.vcf.gz --region 20:1-5000000 --threads 8

    For low-coverage sequencing (below about 4x), give genotype likelihoods (--gl), reads (--bam, --bam-list),
    or both; --vcf then gives array genotypes of the same samples.
    """
    formats = _formats(params["formats"])
    from spinimpute.pipeline.impute import impute as run
    from spinimpute.pipeline.settings import (
        OutputSettings,
        PredictorSettings,
        RegionSettings,
        Resources,
        TargetSettings,
    )
    from spinimpute.runtime.memory import parse_size

    is_sequenced = bool(gl or params["bam"] or params["bam_list"])
    if is_sequenced:
        refuse_options_of_sequenced(ctx, ONLY_FOR_ARRAYS)
    else:
        refuse_options(ctx, ONLY_FOR_READS, "targets that are not sequenced")
    if not out.lower().endswith(".bgen"):
        refuse_options(ctx, ("bgen_bits",), "outputs other than BGEN")
    names = ("bam_list", "reference", "model", "sex", "chain", "samples_file", "regions_file")
    files = (*as_tuple(vcf), *as_tuple(gl), *params["bam"], *as_tuple(panel), genetic_map)
    _check_outputs({"out": out, **params}, (*files, *map(params.get, names)))
    tables = _loo_tables(params["loo"])
    output = OutputSettings(
        formats,
        params["keep_unmatched"],
        leave_one_out=bool(tables),
        leave_one_out_tables=tables,
        labels=params["labels"],
        report=params["report"],
        report_figures=params["report_figures"],
        multiqc=params["multiqc"],
        decimals=params["decimals"],
        min_r2=params["min_r2"],
        min_maf=params["min_maf"],
        sites=params["sites"],
        bgen_bits=int(params["bgen_bits"]),
        mergeable=params["mergeable"],
        split_multiallelic=params["split_multiallelic"],
        output_type=params["output_type"],
        header_lines=[f"##spinimpute_command={command_text(ctx, NOT_RECORDED)}"],
    )
    budget = None if params["max_memory"] is None else parse_size(params["max_memory"])
    common: dict[str, Any] = {
        "genetic_map": genetic_map,
        "region": RegionSettings(one_or_several(regions), params["buffer"], params["regions_file"]),
        "output": output,
        "force": params["force"],
    }
    summary: ImputationSummary | SequencedSummary
    with progress_bar("imputing", quiet) as progress:
        if is_sequenced:
            from spinimpute.pipeline.sequenced.impute import impute_sequenced

            assert vcf is None or isinstance(vcf, str), "the option has been checked"
            settings = sequencing_settings(params, gl, vcf)
            resources = Resources(params["threads"], max_memory=budget)
            summary = impute_sequenced(out, panel, settings, resources=resources, progress=progress, **common)
        else:
            assert vcf is not None, "the option has been checked"
            options = {name: params[name] for name in registry.options_by_name() if name != "max_memory"}
            given = {name: value for name, value in options.items() if value is not None}
            samples = sample_names(params["samples"], params["samples_file"])
            summary = run(
                vcf,
                out,
                panel,
                predictor=PredictorSettings(params["predictor"], params["model"], given),
                target=TargetSettings(
                    params["ambiguous"], load_sexes(params["sex"]), params["chain"], samples
                ),
                phasing=params["phasing"],
                resources=Resources(params["threads"], params["device"], budget),
                min_typed_ratio=params["min_typed_ratio"],
                progress=progress,
                **common,
            )
    print_summary(summary, out, quiet)


def _loo_tables(prefix: str | None) -> dict[str, Path]:
    """Return the path of each table that --loo writes, by the table's name."""
    if prefix is None:
        return {}
    from spinimpute.quality.leave_one_out import TABLES

    name = prefix.rpartition("/")[2]
    if prefix == "-":
        raise InputError(
            "argument", "--loo -: the tables cannot go to standard output. Give the beginning of their names"
        )
    if not name or name.startswith("."):
        raise InputError(
            "argument",
            f"--loo {prefix!r}: the tables would be hidden files. Give the beginning of their names, such as "
            "'quality'",
        )
    return {table: Path(f"{prefix}.{table}.tsv") for table in TABLES}


def _formats(text: str) -> tuple[str, ...]:
    """Return the FORMAT fields of --format. Raises InputError for an unknown or repeated field."""
    formats = [name.strip().upper() for name in text.split(",")]
    if not set(formats) <= set(FORMATS) or len(set(formats)) < len(formats):
        raise InputError(
            "argument", f"--format {text}: give each of {', '.join(FORMATS)} at most once, with commas"
        )
    return tuple(sorted(formats, key=lambda name: name != "GT"))  # the VCF specification requires GT first
