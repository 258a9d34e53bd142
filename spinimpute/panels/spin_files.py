"""Build and open panel files (.spin), which hold one panel, or several for chromosome X.

Males are diploid in the pseudo-autosomal regions PAR1 and PAR2 and haploid in the rest of X. Each of the
three parts is therefore a panel of its own, and a panel file of X joins them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from spinimpute.genotypes.builds import NON_PAR, XRegion, infer_build, is_x, x_regions
from spinimpute.genotypes.sites import NoRecord, Region, Sites, same_chromosome
from spinimpute.panels.build import BuildJob, choose_map, compile_panel
from spinimpute.panels.container import join_files, read_joined_ranges
from spinimpute.panels.file_kind import check_panel_output
from spinimpute.panels.formats.detection import PanelSource, read_x_contigs, source_files
from spinimpute.panels.panel import KIND, Panel
from spinimpute.panels.reference import ReferencePanel
from spinimpute.runtime.errors import InputError, refuse_pipe
from spinimpute.runtime.output_files import CannotWrite, atomic_write
from spinimpute.runtime.partial_files import temporary_folder_in


@contextmanager
def open_spin_file(path: str | Path) -> Iterator[list[Panel]]:
    """Open the panels of a panel file, in order of position. Most files have one. Raises InputError."""
    path = Path(path)
    panels: list[Panel] = []
    try:
        ranges: Sequence[tuple[int, int | None]] = read_joined_ranges(path, KIND) or [(0, None)]
        for start, size in ranges:
            panels.append(Panel.open(path, start, size))
        for left, right in pairwise(panels):
            if left.chrom != right.chrom or left.samples != right.samples:
                raise InputError(
                    "mismatch",
                    f"panel {path}: its parts have different chromosomes or samples; build it again",
                )
            if left.position[-1] >= right.position[0]:
                raise InputError(
                    "mismatch",
                    f"panel {path}: its parts are not in order of position ({left.chrom}:"
                    f"{left.position[-1]} comes before {right.position[0]}); build it again",
                )
        yield panels
    finally:
        for panel in panels:
            panel.close()


class OpenPanels(dict[str, Panel]):
    """Open panels by chromosome. Close them, or use them in a `with` block."""

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
        A dict of panels by the chromosome's name in their file, such as "chr20", in the order given. The
        regions of chromosome X are panels of their own, such as "X PAR1". Close it after use.

    Raises
    ------
    InputError
        A file is not a panel or is damaged, no file is given, or two files have panels of one chromosome.
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
                            "give one of them, or merge them (merge_panels)",
                        )
                part = find_x_region(panel) if len(opened) > 1 else None
                name = panel.chrom if part is None else f"{panel.chrom} {part.name}"
                if name in panels:
                    raise InputError("content", f"panel {path} is given twice: give it once")
                panels[name] = panel
        if not panels:
            raise InputError("content", "there is no panel to open: give at least one file")
        stack.pop_all()  # success: keep all files open
    return panels


def find_x_region(panel: ReferencePanel) -> XRegion | None:
    """Return the part of X in which a panel lies. None for other chromosomes and unknown genome builds."""
    build = infer_build(panel.contig_line, panel.chrom)
    if not is_x(panel.chrom) or not build:
        return None
    first, last = int(panel.position[0]), int(panel.position[-1])
    return next((part for part in x_regions(panel.chrom, build) if part.contains(first, last)), None)


def haploid_in_males(panel: ReferencePanel) -> bool:
    """Return whether males are haploid in a panel: on X, unless the panel is known to be PAR1 or PAR2."""
    part = find_x_region(panel)
    return is_x(panel.chrom) and (part is None or part.name == NON_PAR)


def concatenate_sites(panels: Sequence[ReferencePanel]) -> Sites:
    """Return the sites of all panels of a chromosome."""
    if len(panels) == 1:
        return panels[0].sites
    return Sites.concatenate([panel.sites for panel in panels])


def compile_panel_file(job: BuildJob) -> None:
    """Build a panel file from a VCF. If the genome build is known, X is split into its parts.

    Raises InputError like `compile_panel`.
    """
    out = check_panel_output(job.out, job.force, [*source_files(job.vcf), job.genetic_map])
    for path in source_files(job.vcf):
        refuse_pipe(path, "panel")
    parts = _parts_in(job.vcf, job.region)
    if len(parts) < 2:
        compile_panel(replace(job, region=parts[0].region if parts else job.region)).close()
        return
    genetic_map = choose_map(job.genetic_map, parts[0].region.chrom)
    with atomic_write(out) as partial, temporary_folder_in(out.parent, f".{out.name}.") as folder:
        part_paths: list[Path] = []
        for part in parts:
            path = folder / f"{part.name}.spin"
            try:
                compile_panel(
                    replace(job, out=path, genetic_map=genetic_map, region=part.region, force=False)
                ).close()
            except NoRecord:
                continue
            except CannotWrite as error:  # the message must name `out`, not the temporary file
                raise CannotWrite(out, error.error) from error
            part_paths.append(path)
        if not part_paths:
            where = job.region or parts[0].region.chrom
            raise NoRecord("content", f"panel {source_files(job.vcf)[0]}: no usable record in {where}")
        joined = part_paths[0]
        if len(part_paths) > 1:
            joined = folder / "parts"
            join_panels(part_paths, joined)
        os.replace(joined, partial)


def _parts_in(source: PanelSource, region: Region | None) -> list[XRegion]:
    """Return the parts of X, cut to `region`. Empty for other chromosomes and unknown genome builds."""
    first_chrom, x_lines = read_x_contigs(source)
    chrom = region.chrom if region else first_chrom
    if not is_x(chrom):
        return []
    chrom = next(iter(x_lines), chrom)
    build = infer_build(x_lines.get(chrom, ""), chrom)
    if not build:
        return []
    wanted = region or Region(chrom)
    parts = []
    for part in x_regions(chrom, build):
        start, end = max(part.region.start, wanted.start), min(part.region.end, wanted.end)
        if start <= end:
            parts.append(XRegion(part.name, Region(chrom, start, end)))
    return parts


def join_panels(panels: Sequence[Path], out: Path) -> None:
    """Join the panel files of the parts of X. They must be in order of position."""
    join_files(panels, out, KIND)
