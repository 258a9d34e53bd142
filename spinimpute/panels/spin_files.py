"""A panel of a whole chromosome X: one file that holds the panel files of its parts (`container.join_files`).

Any other chromosome is one panel file.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path

from spinimpute.genotypes.builds import NON_PAR, XRegion, infer_build, is_x, x_regions
from spinimpute.genotypes.genetic_map import GeneticMap
from spinimpute.genotypes.sites import NoRecord, Region, Sites, same_chromosome
from spinimpute.panels.build import PanelRefiner, choose_map, compile_panel
from spinimpute.panels.container import join_files, read_joined_ranges
from spinimpute.panels.panel import KIND, Panel
from spinimpute.panels.reference import ReferencePanel
from spinimpute.runtime.errors import InputError, refuse_pipe
from spinimpute.runtime.output_files import CannotWrite, check_output, written_whole
from spinimpute.runtime.partial_files import temporary_folder_in
from spinimpute.vcf.variant_file import VariantFile


@contextmanager
def open_spin_file(path: str | Path) -> Iterator[list[Panel]]:
    """Open the panels of a panel file for a `with` block.

    Yields
    ------
    list of Panel
        By position; most files hold one.

    Raises
    ------
    InputError
        As `Panel.open`.
    """
    path = Path(path)
    with ExitStack() as stack:
        ranges = read_joined_ranges(path, KIND)
        if ranges is None:
            yield [stack.enter_context(Panel.open(path))]
        else:
            panels = [stack.enter_context(Panel.open(path, start, size)) for start, size in ranges]
            for left, right in pairwise(panels):
                _check_order(path, left, right)
            yield panels


class OpenPanels(dict[str, Panel]):
    """Open panels by chromosome, for a `with` block or to be closed."""

    def close(self) -> None:
        """Close all panels."""
        for panel in self.values():
            panel.close()

    def __enter__(self) -> OpenPanels:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_panels(paths: str | Path | Iterable[str | Path]) -> OpenPanels:
    """Open the panel files of several chromosomes.

    Parameters
    ----------
    paths : str, Path or iterable of them
        Panel files (`.spin`).

    Returns
    -------
    OpenPanels
        A panel for each chromosome, in the order given, under the name that its file uses, such as "chr20". A
        chromosome X in parts has one for each, such as "X PAR1". To be closed.

    Raises
    ------
    InputError
        As `Panel.open`; there is no file, or two files have panels of one chromosome.
    """
    panels = OpenPanels()
    with ExitStack() as stack:
        stack.callback(panels.close)
        for path in [paths] if isinstance(paths, str | Path) else paths:
            opened = stack.enter_context(open_spin_file(path))
            for panel in opened:
                for other in panels.values():
                    if other.path != panel.path and same_chromosome(other.chrom, panel.chrom):
                        raise InputError(
                            "mismatch",
                            f"{other.path} and {panel.path} are both panels of chromosome {panel.chrom}: "
                            "give one of them, or make one of them (merge_panels)",
                        )
                part = find_x_region(panel) if len(opened) > 1 else None
                name = panel.chrom if part is None else f"{panel.chrom} {part.name}"
                if name in panels:
                    raise InputError("content", f"panel {path} is given twice: give it once")
                panels[name] = panel
        if not panels:
            raise InputError("content", "there is no panel to open: give at least one file")
        stack.pop_all()  # all are open, and stay so
    return panels


def _check_order(path: Path, left: Panel, right: Panel) -> None:
    if left.chrom != right.chrom or left.samples != right.samples:
        raise InputError(
            "mismatch", f"panel {path}: its parts are of several chromosomes or samples; build it again"
        )
    if left.position[-1] >= right.position[0]:
        raise InputError(
            "mismatch",
            f"panel {path}: its parts do not follow one another ({left.chrom}:{left.position[-1]} is before "
            f"{right.position[0]}); build it again",
        )


def find_x_region(panel: ReferencePanel) -> XRegion | None:
    """Which part of X a panel lies in; None for other chromosomes, and where the genome build is unknown."""
    build = infer_build(panel.contig_line, panel.chrom)
    if not is_x(panel.chrom) or not build:
        return None
    first, last = int(panel.position[0]), int(panel.position[-1])
    return next((part for part in x_regions(panel.chrom, build) if part.contains(first, last)), None)


def haploid_in_males(panel: ReferencePanel) -> bool:
    """Whether men have one copy of what the panel covers: X, unless it is known to be PAR1 or PAR2."""
    part = find_x_region(panel)
    return is_x(panel.chrom) and (part is None or part.name == NON_PAR)


def concatenate_sites(panels: Sequence[ReferencePanel]) -> Sites:
    """The sites of all parts."""
    if len(panels) == 1:
        return panels[0].sites
    return Sites.concatenate([panel.sites for panel in panels])


def compile_panel_file(
    vcf: str | Path,
    out: str | Path,
    genetic_map: str | Path | GeneticMap | None = None,
    region: Region | None = None,
    samples: Sequence[str] | None = None,
    force: bool = False,
    command: str = "",
    threads: int = 1,
    keep_phase: bool = False,
    *,
    refine: PanelRefiner | None = None,
) -> None:
    """Build a panel file as `compile_panel` does; of a chromosome X of known genome build, one of parts.

    Read it with `open_spin_file`.

    Parameters
    ----------
    vcf, out, genetic_map, region, samples, force, command, threads, keep_phase, refine
        As for `compile_panel`.

    Raises
    ------
    InputError
        As `compile_panel`.
    """
    out = check_output(out, force, [vcf, genetic_map])
    refuse_pipe(Path(vcf), "panel")
    parts = _parts_in(vcf, region)
    if len(parts) < 2:
        chosen = parts[0].region if parts else region
        compile_panel(
            vcf,
            out,
            genetic_map,
            chosen,
            samples,
            force,
            command,
            threads,
            keep_phase,
            refine=refine,
        ).close()
        return
    genetic_map = choose_map(genetic_map, parts[0].region.chrom)
    with (
        written_whole(out) as partial,
        temporary_folder_in(out.parent, f".{out.name}.") as folder,
    ):
        made: list[Path] = []
        for part in parts:
            path = folder / f"{part.name}.spin"
            try:
                compile_panel(
                    vcf, path, genetic_map, part.region, samples, False, command, threads, keep_phase,
                    refine=refine,
                ).close()  # fmt: skip
            except NoRecord:
                continue
            except CannotWrite as error:  # the user knows `out`, not the temporary file
                raise CannotWrite(out, error.error) from error
            made.append(path)
        if not made:
            raise NoRecord("content", f"panel {vcf}: no usable record in {region or parts[0].region.chrom}")
        whole = made[0]
        if len(made) > 1:
            whole = folder / "parts"
            join_panels(made, whole)
        os.replace(whole, partial)


def _parts_in(vcf: str | Path, region: Region | None) -> list[XRegion]:
    """The parts of X that a region overlaps, cut to it; none for other chromosomes and unknown builds."""
    with VariantFile(vcf, "panel") as file:
        try:
            chrom = region.chrom if region else next(file.records()).CHROM
        except (InputError, StopIteration):  # whatever is wrong with it, the reader has the better message
            return []
        if not is_x(chrom):
            return []
        chrom = next((name for name in file.contigs if is_x(name)), chrom)
        build = infer_build(file.contig_line(chrom), chrom)
    if not build:
        return []
    wanted = region or Region(chrom)
    parts = []
    for part in x_regions(chrom, build):
        start, end = max(part.region.start, wanted.start), min(part.region.end, wanted.end)
        if start <= end:
            parts.append(XRegion(part.name, Region(chrom, start, end)))
    return parts


def join_panels(panels: list[Path], out: Path) -> None:
    """Write one file of parts.

    Parameters
    ----------
    panels : sequence of Path
        The panel files of the parts, in order of position.
    out : Path
        The file to write.
    """
    join_files(panels, out, KIND)
