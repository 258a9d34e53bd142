"""The plan of a run: which panels, target file and output file each chromosome has."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

from spinimpute.genotypes.genetic_map import GeneticMap
from spinimpute.genotypes.regions import regions_on_chromosome
from spinimpute.genotypes.sites import Region, chromosome_names, plain_chromosome, same_chromosome
from spinimpute.genotypes.structural import is_symbolic
from spinimpute.outputs.opening import BGEN, PGEN, choose_format
from spinimpute.outputs.selection import TABLE_SUFFIX, check_table_name
from spinimpute.panels.merging.merge import check_mergeable
from spinimpute.panels.opening import (
    PANEL_FILES,
    PanelArgument,
    get_panel_paths,
    is_panel_file,
    map_conflict_error,
    open_panel_file,
)
from spinimpute.panels.reference import ReferencePanel
from spinimpute.pipeline.chunk_file import PANEL_LINE
from spinimpute.runtime.errors import InputError
from spinimpute.runtime.output_files import PLACEHOLDER, find_placeholders
from spinimpute.targets.formats import VARIANTS, detect_format
from spinimpute.vcf.index_reader import has_fresh_index
from spinimpute.vcf.variant_file import VariantFile

_MAX_NUMBER = 1_000  # larger than all chromosome numbers
_LETTER_RANKS = {"X": _MAX_NUMBER, "Y": _MAX_NUMBER + 1, "MT": _MAX_NUMBER + 2}

NO_PANEL, NO_TARGET = "no panel contains", "no target file contains"  # why a chromosome is left out
MAX_NAMES = 30  # number of chromosomes that a message names

Panel = ReferencePanel | str | Path


@dataclass(frozen=True)
class Chromosome:
    """The inputs of a chromosome. With one panel, target and output, only `panels` and `vcf` are set."""

    name: str  # name in the panel; "" if not yet read
    panels: Sequence[Panel]  # merged if there are several
    vcf: str | Path
    contig_line: str = ""
    panel_lines: Sequence[str] = ()  # header lines that name the panels
    holds: str = ""  # "haplotypes" or "inducing points"
    multiallelic: bool = False  # whether a panel has sites of multi-allelic records
    symbolic_alts: Sequence[str] = ()  # symbolic ALT alleles of structural variants, sorted


@dataclass(frozen=True)
class RunPlan:
    """The chromosomes of each output. With `skip_absent`, chromosomes that the target lacks are skipped."""

    outputs: dict[Path, list[Chromosome]]
    regions: Sequence[Region]
    skip_absent: bool = False
    warnings: list[str] = field(default_factory=list)


def plan_run(
    out: str | Path,
    files: Sequence[str | Path],
    panels: Sequence[Panel],
    regions: Sequence[Region],
    output_type: str | None,
    genetic_map: str | Path | GeneticMap | None,
) -> RunPlan:
    """Plan which chromosomes are imputed, from which files, into which outputs.

    If `out` contains PLACEHOLDER, each chromosome has its own output. `files` are the target files, empty
    if samples have only reads or an array. Raises InputError if the files cannot be used together.
    """
    one_output = get_single_output(out)
    if len(files) < 2 and len(panels) < 2 and one_output is not None:
        return RunPlan({Path(out): [Chromosome("", panels, next(iter(files), ""))]}, regions)
    chromosomes, left_out, warnings = assign_files(files, panels, regions)
    for reason in dict.fromkeys(left_out.values()):
        names = [chrom for chrom, why in left_out.items() if why == reason]
        it = "it" if len(names) == 1 else "them"
        warnings.append(f"{name_chromosomes(names)} {'is' if it == 'it' else 'are'} left out: {reason} {it}")
    if one_output is None:
        read = {Path(path).resolve() for path in files}
        for chrom in left_out:
            if fits_file_name(chrom) and get_output_path(out, chrom).resolve() not in read:
                warnings += warn_of_older_output(get_output_path(out, chrom), chrom)
    if genetic_map is not None:
        raise map_conflict_error()
    for one in chromosomes:
        if len(one.panels) > 1:  # check now, not hours later when this chromosome is imputed
            check_mergeable(get_panel_paths(one.panels))
    first = chromosomes[0]
    for one in chromosomes:
        if one.holds != first.holds:
            raise InputError(
                "mismatch",
                f"the panel of chromosome {first.name} holds {first.holds}, and the panel of chromosome "
                f"{one.name} holds {one.holds}. Give panels of one kind, or impute these "
                "chromosomes in separate runs",
            )
    if one_output is None:
        outputs = {get_output_path(out, one.name): [one] for one in chromosomes}
    else:
        outputs = {Path(out): chromosomes}
        if len(chromosomes) > 1 and choose_format(Path(out), output_type) in (BGEN, PGEN):
            raise InputError(
                "arguments",
                f"{out} would hold {len(chromosomes)} chromosomes, but {Path(out).suffix} files hold one. "
                f"Put {PLACEHOLDER} in its name",
            )
    return RunPlan(outputs, regions, True, warnings)


def get_site_tables(plan: RunPlan, out: str | Path, sites: str | Path | None) -> dict[Path, Path]:
    """Return the path of the table of sites of each output that has one. `sites` is the user's choice.

    A BGEN output always has a table, because it cannot store R2. Raises InputError if only one of `out` and
    `sites` has a file for each chromosome.
    """
    if sites is None:
        return {path: site_table_of_bgen(path) for path in plan.outputs if path.suffix.lower() == ".bgen"}
    check_table_name(sites)
    if (get_single_output(sites) is None) is not (get_single_output(out) is None):
        raise InputError(
            "arguments",
            f"{out} and {sites}: each output has its own table of sites. Put {PLACEHOLDER} in both names, or "
            "in neither",
        )
    return {path: get_output_path(sites, chromosomes[0].name) for path, chromosomes in plan.outputs.items()}


def site_table_of_bgen(out: str | Path) -> Path:
    """Return the default path of the table of sites of a BGEN output."""
    return Path(out).with_suffix(TABLE_SUFFIX)


def list_panels(panel: PanelArgument) -> list[Panel]:
    """List the given panels; replace folders by their panel files. Raises InputError if there are none."""
    listed: list[Panel] = []
    for one in panel if isinstance(panel, Sequence) and not isinstance(panel, str) else [panel]:
        if not isinstance(one, str | Path) or not Path(one).is_dir():
            listed.append(one)
            continue
        files_in_folder = sorted(
            path
            for path in Path(one).iterdir()
            if path.suffix in PANEL_FILES
            and not path.name.startswith(".")  # macOS writes attributes to ._NAME
        )
        if not files_in_folder:
            raise InputError(
                "not-found", f"panel {one}: the folder contains no {' or '.join(PANEL_FILES)} file"
            )
        listed += files_in_folder
    if not listed:
        raise InputError("arguments", "no panel: give one for each chromosome")
    return listed


def assign_files(
    files: Sequence[str | Path], panels: Sequence[Panel], regions: Sequence[Region] = ()
) -> tuple[list[Chromosome], dict[str, str], list[str]]:
    """Assign panels and a target file to each chromosome.

    Returns a list of chromosomes, a dict with the reason (NO_PANEL or NO_TARGET) for each chromosome that is
    left out, and a list of warnings. Chromosomes are sorted like the target's contig lines. Chromosomes
    without a contig line follow in the order 1 to 22, X, Y, MT. If there are regions, chromosomes without
    regions are dropped. Raises InputError if two target files have the same chromosome or different samples,
    or if a region has no panel.
    """
    chromosomes = _join_same_chromosome([_open_chromosome(one, next(iter(files), "")) for one in panels])
    for region in regions:
        if not any(same_chromosome(region.chrom, one.name) for one in chromosomes):
            names = ", ".join(one.name for one in chromosomes)
            raise InputError(
                "arguments",
                f"region {region}: the panels are of chromosome {names}. Give a panel of chromosome "
                f"{region.chrom}, or leave the region out",
            )
    chromosomes = [one for one in chromosomes if not regions or regions_on_chromosome(regions, one.name)]
    warnings: list[str] = []
    contigs: list[str] = []
    left_out: dict[str, str] = {}
    if len(files) > 1:
        contigs, chromosomes, left_out = _assign_targets(files, chromosomes)
    elif files:
        target_format = detect_format(Path(files[0]))
        listed = [] if target_format.chromosomes is None else target_format.chromosomes(Path(files[0]))
        used = {name for one in chromosomes for name in chromosome_names(one.name, listed)}
        left_out = {name: NO_PANEL for name in listed if name not in used}
        if target_format is VARIANTS:
            with VariantFile(files[0], "target") as file:
                contigs = file.contigs
            if len(chromosomes) > 1 and not has_fresh_index(Path(files[0])):
                warnings.append(
                    f"{files[0]} has no index that is newer than the file, so the whole file is read for "
                    "each chromosome. Compress the file with bgzip and index it with 'bcftools index'"
                )
    if regions:
        left_out = {chrom: why for chrom, why in left_out.items() if regions_on_chromosome(regions, chrom)}
    return sorted(chromosomes, key=lambda one: _sort_key(one.name, contigs)), left_out, warnings


def _open_chromosome(panel: Panel, vcf: str | Path) -> Chromosome:
    if (
        isinstance(panel, str | Path)
        and Path(panel).is_file()
        and Path(panel).suffix not in PANEL_FILES  # a damaged panel file is reported as damaged
        and not is_panel_file(panel)
    ):
        raise InputError(
            "content",
            f"{panel} is not a panel file, and several panels, targets or outputs need panel files. "
            "Compile it with 'spinimpute panel build'",
        )
    opened = open_panel_file(panel) if isinstance(panel, str | Path) else nullcontext([panel])
    with opened as parts:
        first = parts[0]
        return Chromosome(
            first.chrom,
            [panel],
            vcf,
            first.contig_line,
            panel_lines(parts),
            first.holds,
            has_multiallelic(parts),
            find_symbolic_alts(parts),
        )


def _join_same_chromosome(panels: Sequence[Chromosome]) -> list[Chromosome]:
    """Join entries of the same chromosome: their panels will be merged."""
    joined: list[Chromosome] = []
    for one in panels:
        index = next((i for i, other in enumerate(joined) if same_chromosome(one.name, other.name)), None)
        if index is None:
            joined.append(one)
        else:
            joined[index] = replace(
                joined[index],
                panels=[*joined[index].panels, *one.panels],
                panel_lines=[*joined[index].panel_lines, *one.panel_lines],
                multiallelic=joined[index].multiallelic or one.multiallelic,
                symbolic_alts=sorted({*joined[index].symbolic_alts, *one.symbolic_alts}),
            )
    return joined


def panel_lines(parts: Sequence[ReferencePanel]) -> list[str]:
    """Return the header lines that identify a panel: one for each of its parts."""
    return [f"{PANEL_LINE}{part.checksum}{part.made_of}" for part in parts]


def has_multiallelic(parts: Sequence[ReferencePanel]) -> bool:
    """Return whether any part of a panel has sites of multi-allelic records."""
    return any(bool(part.multiallelic.any()) for part in parts)


def find_symbolic_alts(parts: Sequence[ReferencePanel]) -> list[str]:
    """Return the symbolic ALT alleles of the structural variants of a panel, sorted."""
    alts = {part.sites.alt[row] for part in parts if part.has_structural for row in part.sites.structural}
    return sorted(filter(is_symbolic, alts))


def _assign_targets(
    files: Sequence[str | Path], chromosomes: Sequence[Chromosome]
) -> tuple[list[str], list[Chromosome], dict[str, str]]:
    """Assign one of several target files to each chromosome.

    Returns the contigs of the first file (an empty list if they lack a chromosome), the chromosomes with
    their files, and the reason for each chromosome that is left out.
    """
    contigs: list[str] = []
    samples: list[str] = []
    file_by_name: dict[str, tuple[str, str | Path]] = {}  # contig name and file, by plain chromosome name
    for index, path in enumerate(files):
        if detect_format(Path(path)) is not VARIANTS:
            raise InputError(
                "content", f"target {path}: with several target files, each must be a VCF or BCF file"
            )
        with VariantFile(path, "target") as file:
            if not index:
                contigs, samples = file.contigs, file.samples
            elif file.samples != samples:
                raise InputError(
                    "mismatch",
                    f"targets {files[0]} and {path} differ in their samples, or in the order of samples. "
                    "Give files of the same samples (bcftools view -S)",
                )
            record = next(file.records(), None)
        if record is None:
            raise InputError("content", f"target {path}: the file contains no record")
        name = record.CHROM
        if (other := file_by_name.get(plain_chromosome(name))) is not None:
            raise InputError(
                "mismatch",
                f"targets {other[1]} and {path} both contain chromosome {name}. Give one file per chromosome",
            )
        file_by_name[plain_chromosome(name)] = name, path
    chosen: list[Chromosome] = []
    left_out: dict[str, str] = {}
    names = [name for name, _ in file_by_name.values()]
    used: set[str] = set()
    for one in chromosomes:
        matching = sorted(chromosome_names(one.name, names))
        used |= set(matching)
        if not matching:
            left_out[one.name] = NO_TARGET
            continue
        if len(matching) > 1:
            paths = " and ".join(str(file_by_name[plain_chromosome(name)][1]) for name in matching)
            raise InputError(
                "mismatch",
                f"targets {paths} both contain chromosome {one.name}. Give one file per chromosome",
            )
        chosen.append(replace(one, vcf=file_by_name[plain_chromosome(matching[0])][1]))
    if not chosen:
        raise InputError(
            "mismatch",
            f"the targets contain chromosomes {', '.join(names)}, the panels "
            f"{', '.join(one.name for one in chromosomes)}: they have no chromosome in common",
        )
    left_out |= {name: NO_PANEL for name, _ in file_by_name.values() if name not in used}
    has_all = all(chromosome_names(one.name, contigs) for one in chosen)
    return contigs if has_all else [], chosen, left_out


def _sort_key(chrom: str, contigs: Sequence[str]) -> tuple[int, int, str]:
    """Return a key that sorts chromosomes by contig lines, then by number."""
    plain = plain_chromosome(chrom)
    rank = int(plain) if plain.isdecimal() and len(plain) < 4 else _LETTER_RANKS.get(plain, _MAX_NUMBER + 3)
    matching = chromosome_names(chrom, contigs)
    index = next((i for i, name in enumerate(contigs) if name in matching), len(contigs))
    return index, rank, plain


def name_chromosomes(names: Sequence[str]) -> str:
    """Return "chromosome 1", or "chromosomes 1, 2 and X"."""
    listed = (
        list(names) if len(names) <= MAX_NAMES else [*names[:MAX_NAMES], f"{len(names) - MAX_NAMES} more"]
    )
    if len(listed) == 1:
        return f"chromosome {listed[0]}"
    return f"chromosomes {', '.join(listed[:-1])} and {listed[-1]}"


def left_out_warning(errors: Mapping[str, InputError]) -> list[str]:
    """Return one warning about the chromosomes that the target lacks. `errors` has the reason of each."""
    if not errors:
        return []
    first, error = next(iter(errors.items()))
    if len(errors) == 1:
        return [f"chromosome {first} is left out: {error}"]
    return [f"{name_chromosomes(list(errors))} are left out. Chromosome {first}: {error}"]


def get_single_output(out: str | Path) -> str | Path | None:
    """Return `out` if it is a single file; None if its name contains PLACEHOLDER.

    Raises InputError for other words in braces.
    """
    unknown = next((word for word in find_placeholders(out) if word != PLACEHOLDER), None)
    if unknown is not None:
        raise InputError(
            "argument",
            f"output {out}: unknown placeholder {unknown}. Write {PLACEHOLDER} for the name of each "
            "chromosome, or give a name without braces",
        )
    return None if PLACEHOLDER in str(out) else out


def fits_file_name(chrom: str) -> bool:
    """Return whether a chromosome's name can be part of a file name: it must not lead to another folder."""
    return chrom not in (os.curdir, os.pardir) and not set(chrom) & {os.sep, "\0"}


def get_output_path(out: str | Path, chrom: str) -> Path:
    """Return the output file of a chromosome. Raises InputError if the name cannot be part of a file name."""
    if not fits_file_name(chrom):
        raise InputError(
            "argument",
            f"output {out}: chromosome {chrom!r} cannot be part of a file name. Give one output for all "
            "chromosomes, or rename the chromosome (bcftools annotate --rename-chrs)",
        )
    return Path(str(out).replace(PLACEHOLDER, chrom))


def warn_of_older_output(path: Path, chrom: str) -> list[str]:
    """Return a warning if a chromosome that is left out has an output file from an earlier run."""
    if os.path.exists(path):  # unlike Path.exists, no error if the name is too long
        return [f"{path} is of an earlier run and is kept: this run leaves chromosome {chrom} out"]
    return []
