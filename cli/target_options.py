"""Options for the panel and the target: array genotypes (--vcf, PLINK) or sequenced samples (--gl, --bam).

The commands receive --vcf, --gl and --panel as a text if given once, and as a tuple of texts if given
several times. The functions of the library accept both.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from spinimpute.runtime.errors import InputError

from .commands import Count, Decorator, combine_options, option
from .options import load_sexes, read_list, refuse_options

if TYPE_CHECKING:
    from spinimpute.pipeline.sequenced.inputs import SequencingSettings

PANEL_VARIABLE = "SPINIMPUTE_PANEL"  # environment variable with the default panel
ONLY_FOR_LIKELIHOODS = ("chain",)
ONLY_FOR_READS = ("reference", "min_mapping_quality", "min_base_quality", "max_depth", "indels")


def as_tuple(given: str | tuple[str, ...] | None) -> tuple[str, ...]:
    """Return the values of a repeatable option as a tuple."""
    if given is None:
        return ()
    return given if isinstance(given, tuple) else (given,)


def one_or_several(given: tuple[str, ...]) -> str | tuple[str, ...] | None:
    """Return a single value as a text, several values as a tuple, and no value as None."""
    return given[0] if len(given) == 1 else given or None


def _panels(ctx: click.Context, _: click.Parameter, panels: tuple[str, ...]) -> Any:
    """Return the value of --panel. Raises InputError if there is none."""
    if not any(panels[:1]) and not ctx.resilient_parsing:
        raise InputError(
            "arguments",
            f"no reference panel: give --panel FILE or set ${PANEL_VARIABLE}. A panel is a phased VCF or "
            f"BCF of fully sequenced people. Compile it once with 'spinimpute panel build --vcf panel.bcf "
            f"--map genetic.map --out panel.spin', or download that of the 1000 Genomes Project with "
            f"'spinimpute panel get'",
        )
    from spinimpute.downloads.catalogue import find_downloaded

    return one_or_several(tuple(map(find_downloaded, panels)))


def panels_option(text: str) -> Decorator:
    """Return the option --panel, which may be repeated, with the given help text."""
    return option(
        "--panel",
        metavar="FILE",
        type=click.Path(),  # makes click split the environment variable at colons
        multiple=True,
        envvar=PANEL_VARIABLE,
        callback=_panels,
        help=f"{text} Or the name of a panel of 'panel get'. Default: ${PANEL_VARIABLE}.",
        group="Panel",
    )


def _target(ctx: click.Context, _: click.Parameter, given: str | tuple[str, ...] | None) -> Any:
    """Return the target's path, or None for sequenced samples without an array target.

    It is the callback of --vcf and also evaluates --bfile and --pfile. Raises InputError unless exactly one
    of the three is given, or sequenced samples.
    """
    files = as_tuple(given)
    targets = {"--vcf": files[0] if files else None}
    for name, suffix in (("bfile", ".bed"), ("pfile", ".pgen")):  # eager options, so their values are known
        prefix = ctx.params.pop(name, None)
        targets[f"--{name}"] = prefix if prefix is None or prefix.endswith(suffix) else prefix + suffix
    if isinstance(likelihoods := ctx.params.get("gl"), tuple):
        ctx.params["gl"] = one_or_several(likelihoods)
    if ctx.resilient_parsing:
        return files
    named = {name: path for name, path in targets.items() if path}
    sequenced = any(ctx.params.get(name) for name in ("gl", "bam", "bam_list"))
    if sequenced and not named:
        return None
    if len(named) != 1:
        options = {one.name for one in ctx.command.params}
        sequenced_options = ", ".join(f"--{name} FILE" for name in ("gl", "bam") if name in options)
        raise InputError(
            "arguments",
            "give the target with one of --vcf FILE, --bfile PREFIX, --pfile PREFIX"
            f"{', or sequenced samples with ' if sequenced_options else ''}{sequenced_options}; got "
            f"{' and '.join(named) or 'none of them'}",
        )
    if sequenced and len(files) > 1:
        raise InputError(
            "arguments", f"--vcf is given {len(files)} times: give it once together with sequenced samples"
        )
    return files if len(files) > 1 else next(iter(named.values()))


_PLINK: dict[str, Any] = {"metavar": "PREFIX", "is_eager": True, "group": "Input"}


def target_options(*, several: bool = False) -> Decorator:
    """Return --vcf, --bfile and --pfile. The command receives the path of any of them as `vcf`.

    With `several`, --vcf may be repeated.
    """
    repeat = " Repeat for one file per chromosome." if several else ""
    return combine_options(
        option(
            "--vcf",
            metavar="FILE",
            multiple=several,
            callback=_target,
            help=f"Target genotypes: VCF, BCF, consumer array text or Illumina FinalReport.{repeat}",
            group="Input",
        ),
        option("--bfile", help="PLINK 1 target in place of --vcf: PREFIX.bed, .bim, .fam.", **_PLINK),
        option("--pfile", help="PLINK 2 target in place of --vcf: PREFIX.pgen, .pvar, .psam.", **_PLINK),
    )


_SEQUENCED: dict[str, Any] = {"metavar": "FILE", "is_eager": True, "group": "Reads"}
_QUALITY: dict[str, Any] = {"type": Count(0, 255), "default": 10, "group": "Reads"}


def sequencing_options(*, several: bool = False) -> Decorator:
    """Return --gl, --bam, --bam-list and their settings. With `several`, --gl may be repeated."""
    repeat = " Repeat for one file per chromosome." if several else ""
    return combine_options(
        option(
            "--gl",
            multiple=several,
            help=f"Genotype likelihoods of sequenced samples: VCF or BCF with PL, GL or GT.{repeat}",
            **_SEQUENCED,
        ),
        option(
            "--bam", multiple=True, help="Reads of a sample: BAM or CRAM. Repeat for several.", **_SEQUENCED
        ),
        option(
            "--bam-list",
            help="List of BAM and CRAM files, one per line; a sample name after a tab replaces the name in "
            "the read groups. Lines that start with # are comments.",
            **_SEQUENCED,
        ),
        option(
            "--reference",
            metavar="FILE",
            help="Reference genome (FASTA) of CRAM files without an embedded reference.",
            group="Reads",
        ),
        option("--min-mapping-quality", help="Minimum mapping quality of the reads to use.", **_QUALITY),
        option("--min-base-quality", help="Minimum quality of the bases to use.", **_QUALITY),
        option(
            "--max-depth",
            type=Count(1, 65_535),
            default=40,
            help="Maximum number of reads to use at a site.",
            group="Reads",
        ),
        option("--indels", is_flag=True, help="Use reads at insertions and deletions, too.", group="Reads"),
    )


def refuse_options_of_sequenced(ctx: click.Context, only_for_arrays: tuple[str, ...]) -> None:
    """Raise InputError if an option was given that has no effect on these sequenced samples."""
    refuse_options(ctx, only_for_arrays, "sequenced samples (--gl, --bam)")
    if not ctx.params["bam"] and ctx.params["bam_list"] is None:
        refuse_options(ctx, ONLY_FOR_READS, "likelihoods without reads (--gl without --bam)")
    if not ctx.params["gl"]:
        refuse_options(ctx, ONLY_FOR_LIKELIHOODS, "reads (--bam without --gl)")


def sequencing_settings(
    params: dict[str, Any], gl: str | tuple[str, ...] | None, array: str | None
) -> SequencingSettings:
    """Return the settings from the values of `sequencing_options`, --sex and --chain.

    `gl` and `array` are the files with genotype likelihoods and with array genotypes of the samples.
    """
    from spinimpute.pipeline.sequenced.inputs import SequencingSettings
    from spinimpute.sequencing.pileup import PileupSettings

    listed = [] if params["bam_list"] is None else _listed_reads(params["bam_list"])
    files = [*params["bam"], *(path for path, _ in listed)]
    names = [*(None for _ in params["bam"]), *(name for _, name in listed)]
    pileup = PileupSettings(
        params["min_mapping_quality"], params["min_base_quality"], params["max_depth"], params["indels"]
    )
    sexes = load_sexes(params["sex"])
    return SequencingSettings(
        gl, files, array, params["reference"], pileup, sexes, names=names, chain=params["chain"]
    )


def _listed_reads(path: str) -> list[tuple[str, str | None]]:
    """Read the file of --bam-list. Return each path, and its sample's name or None. Raises InputError."""
    files = []
    for line in read_list(path, "list of reads", "file", comment="#"):
        file, *names = (word.strip() for word in line.split("\t"))
        if len(names) > 1:
            raise InputError(
                "content",
                f"list of reads {path}: '{line}' has {1 + len(names)} columns. Give a file, a tab and its "
                "sample's name, or the file alone",
            )
        if not Path(file).exists():
            raise InputError(
                "not-found",
                f"list of reads {path}: '{file}' does not exist. Each line names a BAM or CRAM, relative to "
                f"the folder where the command is run",
            )
        files.append((file, names[0] if names else None))
    return files
