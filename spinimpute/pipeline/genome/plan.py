"""Which panel and which target file each chromosome has, in the order in which they are imputed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from spinimpute.genotypes.regions import regions_on_chromosome
from spinimpute.genotypes.sites import Region, chromosome_names, plain_chromosome, same_chromosome
from spinimpute.panels.opening import PANEL_FILES, is_panel_file, open_panel_file
from spinimpute.panels.reference import ReferencePanel
from spinimpute.pipeline.chunk_file import PANEL_LINE
from spinimpute.runtime.errors import InputError
from spinimpute.runtime.output_files import PLACEHOLDER, words_in_braces
from spinimpute.targets.formats import VARIANTS, format_of
from spinimpute.vcf.index_reader import fresh_index
from spinimpute.vcf.variant_file import VariantFile

_LAST = 1_000  # behind all numbered chromosomes
_LETTERS = {"X": _LAST, "Y": _LAST + 1, "MT": _LAST + 2}

Panel = ReferencePanel | str | Path
Several = Panel | Sequence[Panel]


@dataclass(frozen=True)
class Chromosome:
    """A chromosome, and what it is imputed from. Of a single one no more is stated than its files.

    Attributes
    ----------
    name : str
        As the panel calls it.
    panel : str, Path or ReferencePanel
        Where it is imputed from.
    vcf : str or Path
        The target file.
    contig_line : str
        For the header.
    panel_lines : sequence of str
        The header lines that name its panels; several for a chromosome X in parts.
    holds : str
        What the panel holds.
    more_panels : sequence of str, Path or ReferencePanel
        Others of the chromosome, which are merged with it when it is imputed.
    """

    name: str
    panel: Panel
    vcf: str | Path
    contig_line: str = ""
    panel_lines: Sequence[str] = ()
    holds: str = ""
    more_panels: Sequence[Panel] = ()

    @property
    def panels(self) -> Several:
        """All panels of the chromosome, as `open_reference` takes them."""
        return [self.panel, *self.more_panels] if self.more_panels else self.panel


def panel_files(panel: Several) -> list[Panel]:
    """The panels that are given: one, several, or all in a folder.

    Raises
    ------
    InputError
        None is given, or the folder holds none.
    """
    found: list[Panel] = []
    for one in panel if isinstance(panel, Sequence) and not isinstance(panel, str) else [panel]:
        if not isinstance(one, str | Path) or not Path(one).is_dir():
            found.append(one)
            continue
        inside = sorted(path for path in Path(one).iterdir() if path.suffix in PANEL_FILES)
        if not inside:
            raise InputError(
                "content", f"panel {one}: this folder holds no file of {' or '.join(PANEL_FILES)}"
            )
        found += inside
    if not found:
        raise InputError("content", "no panel is given: give one for each chromosome")
    return found


def target_files(vcf: str | Path | Sequence[str | Path]) -> list[str | Path]:
    """The target files that are given. Raises InputError if there is none."""
    files = [vcf] if isinstance(vcf, str | Path) else list(vcf)
    if not files:
        raise InputError("content", "no target is given: give one file, or one for each chromosome")
    return files


def plan_genome(
    files: Sequence[str | Path], panels: Sequence[Panel], regions: Sequence[Region] = ()
) -> tuple[list[Chromosome], dict[str, str], list[str]]:
    """Give each chromosome its panel and its target file.

    Parameters
    ----------
    files : sequence of str or Path
        One target file with all chromosomes, or several VCF or BCF, each with others; none if all chromosomes
        are in files of another kind.
    panels : sequence of ReferencePanel, str or Path
        Panel files, or open panels: one or several for each chromosome, in any order.
    regions : sequence of Region
        Leave out the chromosomes that none is on; without any, none.

    Returns
    -------
    list of Chromosome
        In the order of the target's contig lines; those of no such line follow: 1 to 22, X, Y, MT.
    dict of str to str
        What is left out for want of a panel or a target file: chromosome, and a sentence on it.
    list of str
        Other warnings for the user.

    Raises
    ------
    InputError
        Two target files are of one chromosome; a panel is no panel file; the files have other samples; or no
        panel is of a region's chromosome.
    """
    found = _by_chromosome([_panel(one, next(iter(files), "")) for one in panels])
    for region in regions:
        if not any(same_chromosome(region.chrom, one.name) for one in found):
            names = ", ".join(one.name for one in found)
            raise InputError(
                "arguments",
                f"no panel is of the chromosome of region {region}, they are of {names}: give a panel of it, "
                "or leave the region out",
            )
    found = [one for one in found if not regions or regions_on_chromosome(regions, one.name)]
    warnings: list[str] = []
    contigs: list[str] = []
    left_out: dict[str, str] = {}
    if len(files) > 1:
        contigs, found, left_out = _in_their_files(files, found)
        left_out = {
            chrom: why
            for chrom, why in left_out.items()
            if not regions or regions_on_chromosome(regions, chrom)
        }
    elif files and format_of(Path(files[0])) is VARIANTS:
        with VariantFile(files[0], "target") as file:
            contigs = file.contigs
        if len(found) > 1 and not fresh_index(Path(files[0])):
            warnings.append(
                f"{files[0]} has no index that is newer than it: it is read anew for each chromosome. "
                "'bcftools index' of a .vcf.gz or .bcf spares that"
            )
    return sorted(found, key=lambda one: _place(one.name, contigs)), left_out, warnings


def _panel(panel: Panel, vcf: str | Path) -> Chromosome:
    if not isinstance(panel, str | Path):
        return _chromosome([panel], panel, vcf)
    path = Path(panel)
    if path.is_file() and not is_panel_file(path):
        raise InputError(
            "mismatch",
            f"{path} is no panel file: with several panels, targets or outputs each panel is to be one; make "
            "it with 'spinimpute panel build'",
        )
    with open_panel_file(path) as parts:
        return _chromosome(parts, panel, vcf)


def _by_chromosome(panels: Sequence[Chromosome]) -> list[Chromosome]:
    """One of each chromosome: of several, the first one has the others with it."""
    found: list[Chromosome] = []
    for one in panels:
        at = next((i for i, other in enumerate(found) if same_chromosome(one.name, other.name)), None)
        if at is None:
            found.append(one)
        else:
            found[at] = replace(
                found[at],
                panel_lines=[*found[at].panel_lines, *one.panel_lines],
                more_panels=[*found[at].more_panels, one.panel],
            )
    return found


def _chromosome(parts: Sequence[ReferencePanel], panel: Panel, vcf: str | Path) -> Chromosome:
    first = parts[0]
    return Chromosome(first.chrom, panel, vcf, first.contig_line, panel_lines(parts), first.holds)


def panel_lines(parts: Sequence[ReferencePanel]) -> list[str]:
    """The header lines that name a panel: one for each of its parts."""
    return [f"{PANEL_LINE}{part.checksum}{part.made_of}" for part in parts]


def _in_their_files(
    files: Sequence[str | Path], found: Sequence[Chromosome]
) -> tuple[list[str], list[Chromosome], dict[str, str]]:
    """Contigs of the first file if it lists all, the chromosomes with their files, and what is left out."""
    contigs: list[str] = []
    samples: list[str] = []
    held: dict[str, tuple[str, str | Path]] = {}  # by plain name
    for number, path in enumerate(files):
        if format_of(Path(path)) is not VARIANTS:
            raise InputError(
                "content", f"target {path}: of several files, one for each chromosome, each is VCF or BCF"
            )
        with VariantFile(path, "target") as file:
            if not number:
                contigs, samples = file.contigs, file.samples
            elif file.samples != samples:
                raise InputError(
                    "mismatch",
                    f"targets {files[0]} and {path} have other samples, or another order of them: give files "
                    "of the same samples (bcftools view -S)",
                )
            record = next(file.records(), None)
        if record is None:
            raise InputError("content", f"target {path}: there is no record in it")
        name = record.CHROM
        if (other := held.get(plain_chromosome(name))) is not None:
            raise InputError(
                "mismatch",
                f"targets {other[1]} and {path} are both of chromosome {name}: give one file for each",
            )
        held[plain_chromosome(name)] = name, path
    chosen: list[Chromosome] = []
    left_out: dict[str, str] = {}
    names = [name for name, _ in held.values()]
    used: set[str] = set()
    for one in found:
        meant = sorted(chromosome_names(one.name, names))
        used |= set(meant)
        if not meant:
            left_out[one.name] = f"no target file is of chromosome {one.name}: it is left out"
            continue
        if len(meant) > 1:
            paths = " and ".join(str(held[plain_chromosome(name)][1]) for name in meant)
            raise InputError(
                "content", f"targets {paths} are both of chromosome {one.name}: give one file for each"
            )
        vcf = held[plain_chromosome(meant[0])][1]
        chosen.append(replace(one, vcf=vcf))
    if not chosen:
        raise InputError(
            "content",
            f"the targets are of chromosomes {', '.join(names)}, the panels of "
            f"{', '.join(one.name for one in found)}: none of them is in both",
        )
    left_out |= {
        name: f"target {path}: there is no panel of chromosome {name}: it is left out"
        for name, path in held.values()
        if name not in used
    }
    whole = all(chromosome_names(one.name, contigs) for one in chosen)
    return contigs if whole else [], chosen, left_out


def _place(chrom: str, contigs: Sequence[str]) -> tuple[int, int, str]:
    """Where a chromosome stands."""
    plain = plain_chromosome(chrom)
    number = int(plain) if plain.isdecimal() and len(plain) < 4 else _LETTERS.get(plain, _LAST + 3)
    meant = chromosome_names(chrom, contigs)
    at = next((i for i, name in enumerate(contigs) if name in meant), len(contigs))
    return at, number, plain


def check_placeholders(out: str | Path) -> None:
    """Raise InputError for an output whose name has something in braces that is not PLACEHOLDER."""
    unknown = next((word for word in words_in_braces(out) if word != PLACEHOLDER), None)
    if unknown is not None:
        raise InputError(
            "content",
            f"output {out}: {unknown} would be part of the name as it is; {PLACEHOLDER} stands for the name "
            "of each chromosome. Write that, or give a name without braces",
        )


def fixed_output(out: str | Path) -> str | Path | None:
    """An output that is one file, which can be checked at once; None with PLACEHOLDER.

    Raises
    ------
    InputError
        As of `check_placeholders`.
    """
    check_placeholders(out)
    return None if PLACEHOLDER in str(out) else out


def fits_into_names(chrom: str) -> bool:
    """Whether a chromosome's name can stand in the name of a file without leading to another folder."""
    return chrom not in (os.curdir, os.pardir) and not set(chrom) & {os.sep, os.altsep, "\0"}


def output_of(out: str | Path, chrom: str) -> Path:
    """The file of a chromosome; out: with PLACEHOLDER.

    Raises
    ------
    InputError
        The chromosome's name does not fit into the name of a file.
    """
    if not fits_into_names(chrom):
        raise InputError(
            "content",
            f"output {out}: chromosome {chrom!r} cannot be part of a file's name. Give one output for all "
            "chromosomes, or rename the chromosome (bcftools annotate --rename-chrs)",
        )
    return Path(str(out).replace(PLACEHOLDER, chrom))


def outputs(out: str | Path, plan: Sequence[Chromosome]) -> list[tuple[Path, list[Chromosome]]]:
    """The files to be written, and the chromosomes of each.

    Parameters
    ----------
    out : str or Path
        One file, or with PLACEHOLDER in its name one for each chromosome.
    plan : sequence of Chromosome
        In order.

    Returns
    -------
    list of (Path, list of Chromosome)
        In order.

    Raises
    ------
    InputError
        As of `output_of`.
    """
    if PLACEHOLDER not in str(out):
        return [(Path(out), list(plan))]
    return [(output_of(out, one.name), [one]) for one in plan]
