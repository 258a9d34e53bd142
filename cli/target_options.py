"""Options of commands that read a panel and a target: files of arrays, of PLINK, of sequenced samples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from .options import Command, Option, names_in, sexes_of

if TYPE_CHECKING:
    from spinimpute.pipeline.sequenced.inputs import SequencingSettings

PANEL_VARIABLE = "SPINIMPUTE_PANEL"
ONLY_FOR_LIKELIHOODS = ("chain",)
ONLY_FOR_READS = ("reference", "min_mapping_quality", "min_base_quality", "max_depth", "indels")


def _given_panel(ctx: click.Context, _: click.Parameter, panel: str | None) -> str | None:
    if panel or ctx.resilient_parsing:
        return panel
    from spinimpute.runtime.errors import InputError

    raise InputError(
        "mismatch",
        f"no reference panel: give --panel FILE or set ${PANEL_VARIABLE}. A panel is a phased VCF or BCF of "
        "fully sequenced people, for example the 1000 Genomes Project's; compile it once with "
        "'spinimpute panel build --vcf panel.bcf --map genetic.map --out panel.spin'",
    )


def _one_or_several(ctx: click.Context, option: click.Parameter, panels: tuple[str, ...]) -> Any:
    _given_panel(ctx, option, panels[0] if panels else None)
    return panels[0] if len(panels) == 1 else panels


def each(given: str | tuple[str, ...] | None) -> tuple[str, ...]:
    """What was given with an option that may be repeated."""
    if given is None:
        return ()
    return given if isinstance(given, tuple) else (given,)


def panels_option(what: str) -> Option:
    """--panel, which may be repeated, with this help: the command receives a text, or a tuple of several.

    By default what the environment variable PANEL_VARIABLE says.
    """
    return click.option(
        "--panel",
        metavar="FILE",
        type=click.Path(),  # splits the variable at colons, as paths are in others
        multiple=True,
        envvar=PANEL_VARIABLE,
        callback=_one_or_several,
        help=f"{what} Default: ${PANEL_VARIABLE}.",
    )


def _given_target(ctx: click.Context, _: click.Parameter, vcf: str | None) -> str | None:
    """One of --vcf, --bfile and --pfile; the latter name the files of PLINK without their suffix."""
    if ctx.resilient_parsing:
        return vcf
    from spinimpute.runtime.errors import InputError

    given = {
        "--vcf": vcf,
        "--bfile": _with_suffix(ctx.meta.get("bfile"), ".bed"),
        "--pfile": _with_suffix(ctx.meta.get("pfile"), ".pgen"),
    }
    named = {name: path for name, path in given.items() if path}
    if not named and ctx.meta.get("sequenced"):
        return None
    if len(named) != 1:
        found = " and ".join(named) or "none of them"
        options = {option.name for option in ctx.command.params}
        of_sequenced = ", ".join(f"--{name} FILE" for name in ("gl", "bam") if name in options)
        raise InputError(
            "content",
            "give the target with one of --vcf FILE, --bfile PREFIX, --pfile PREFIX"
            f"{', or what is sequenced with ' if of_sequenced else ''}{of_sequenced}; found {found}",
        )
    return next(iter(named.values()))


def _with_suffix(prefix: str | None, suffix: str) -> str | None:
    return prefix if prefix is None or prefix.endswith(suffix) else prefix + suffix


def _kept(ctx: click.Context, option: click.Parameter, prefix: str | None) -> None:
    ctx.meta[str(option.name)] = prefix


def target_option(command: Command) -> Command:
    """Add --vcf, --bfile and --pfile; the command receives `vcf`, whichever it was."""
    return _target_options(command)


def targets_option(command: Command) -> Command:
    """The same; --vcf may be repeated, and the command then receives a tuple."""
    return _target_options(command, several=True)


def _given_targets(ctx: click.Context, option: click.Parameter, files: tuple[str, ...]) -> Any:
    from spinimpute.runtime.errors import InputError

    first = _given_target(ctx, option, files[0] if files else None)
    if len(files) > 1 and ctx.meta.get("sequenced"):
        raise InputError(
            "content", f"--vcf is given {len(files)} times: beside sequenced samples give it once"
        )
    return files if len(files) > 1 else first


def _target_options(command: Command, *, several: bool = False) -> Command:
    plink: dict[str, Any] = {"metavar": "PREFIX", "is_eager": True, "expose_value": False, "callback": _kept}
    for option in (
        click.option("--pfile", help="The same of PLINK 2: PREFIX.pgen, .pvar, .psam.", **plink),
        click.option("--bfile", help="Target of PLINK 1 in place of --vcf: PREFIX.bed, .bim, .fam.", **plink),
        click.option(
            "--vcf",
            metavar="FILE",
            multiple=several,
            callback=_given_targets if several else _given_target,
            help="Target: VCF, VCF.gz, BCF, a consumer array's text, or a FinalReport, known by content."
            + (" May be repeated: one VCF or BCF for each chromosome." if several else ""),
        ),
    ):
        command = option(command)
    return command


def _sequenced(ctx: click.Context, _: click.Parameter, value: Any) -> Any:
    if value:
        ctx.meta["sequenced"] = True
    return value


def _sequenced_files(ctx: click.Context, option: click.Parameter, files: tuple[str, ...]) -> Any:
    """The same where an option may be repeated and one file is the usual case."""
    return _sequenced(ctx, option, files if len(files) > 1 else next(iter(files), None))


_SEQUENCED: dict[str, Any] = {"metavar": "FILE", "is_eager": True, "callback": _sequenced}


def sequencing_options(command: Command, *, several: bool = False) -> Command:
    """Add --gl, --bam, --bam-list and what belongs to them, in place of a target.

    several: --gl may be repeated, and the command then receives a tuple.
    """
    quality: dict[str, Any] = {"type": click.IntRange(0, 255), "default": 10, "show_default": True}
    for option in (
        click.option("--indels", is_flag=True, help="Reads count at insertions and deletions, too."),
        click.option(
            "--max-depth",
            type=click.IntRange(1, 65_535),
            default=40,
            show_default=True,
            help="Reads that count at a site.",
        ),
        click.option("--min-base-quality", help="Of a base that counts.", **quality),
        click.option("--min-mapping-quality", help="Of a read that counts.", **quality),
        click.option(
            "--reference", metavar="FILE", help="Reference genome (FASTA) of CRAMs that do not hold it."
        ),
        click.option(
            "--bam-list",
            help="A file with a BAM or CRAM in each line, and behind a tab its sample's name, if it is to be "
            "another one than in the read groups. Lines that start with # are comments.",
            **_SEQUENCED,
        ),
        click.option("--bam", multiple=True, help="BAM or CRAM of a sample; may be repeated.", **_SEQUENCED),
        click.option(
            "--gl",
            multiple=several,
            help="Sequenced samples: genotype likelihoods (PL, GL or GT)."
            + (" May be repeated: one file for each chromosome." if several else ""),
            **(_SEQUENCED | ({"callback": _sequenced_files} if several else {})),
        ),
    ):
        command = option(command)
    return command


def sequencing_options_of_genomes(command: Command) -> Command:
    """The same, with a file of likelihoods for each chromosome."""
    return sequencing_options(command, several=True)


def sequencing_settings(
    gl: str | tuple[str, ...] | None,
    bam: tuple[str, ...],
    bam_list: str | None,
    array: str | None,
    reference: str | None,
    counted: tuple[int, int, int, bool],
    sex: str | None,
    chain: str | None,
) -> SequencingSettings:
    """What the options of `sequencing_options` say; counted: as of `PileupSettings`."""
    from spinimpute.pipeline.sequenced.inputs import SequencingSettings
    from spinimpute.sequencing.pileup import PileupSettings

    listed = [] if bam_list is None else _listed_reads(bam_list)
    files = [*bam, *(path for path, _ in listed)]
    names = [*(None for _ in bam), *(name for _, name in listed)]
    pileup = PileupSettings(*counted)
    return SequencingSettings(gl, files, array, reference, pileup, sexes_of(sex), names=names, chain=chain)


def _listed_reads(path: str) -> list[tuple[str, str | None]]:
    """The files in a list, and the names of their samples where it gives any."""
    from pathlib import Path

    from spinimpute.runtime.errors import InputError

    found = []
    for line in names_in(path, "list of reads", "file", comment="#"):
        file, *names = (word.strip() for word in line.split("\t"))
        if len(names) > 1:
            raise InputError(
                "content",
                f"list of reads {path}: '{line}' has {1 + len(names)} columns; give a file, a tab and its "
                "sample's name, or the file alone",
            )
        if not Path(file).exists():
            raise InputError(
                "content",
                f"list of reads {path}: '{file}' is not there; each line names a BAM or CRAM, as seen from "
                "where the command is run",
            )
        found.append((file, names[0] if names else None))
    return found
