"""Merge several panels of the same chromosome into one panel file.

Panels are merged in pairs. The result has all sites and all haplotypes of both panels. Sites in both panels
are copied. At other sites, `filling` imputes the alleles of the panel that lacks the site.

Axes: S sites of the union of both panels, N haplotypes.
"""

from __future__ import annotations

import itertools
import os
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from spinimpute.genotypes.intervals import Interval
from spinimpute.panels.file_kind import check_panel_output
from spinimpute.panels.merging.filling import Filling
from spinimpute.panels.merging.shared_samples import SharedSamples, find_shared_samples
from spinimpute.panels.merging.site_union import (
    ABSENT,
    SiteUnion,
    check_chromosome_and_build,
    check_early,
    few_shared_warning,
    unite_sites,
)
from spinimpute.panels.panel import MERGED, Panel
from spinimpute.panels.site_table import SiteTable, encode_site_table
from spinimpute.panels.spin_files import find_x_region, join_panels, open_spin_file
from spinimpute.panels.stored_rows import allele_counts, store_rows
from spinimpute.panels.writer import PanelWriter, package_version
from spinimpute.runtime.devices import choose_threads
from spinimpute.runtime.errors import InputError
from spinimpute.runtime.output_files import atomic_write
from spinimpute.runtime.partial_files import temporary_folder_in
from spinimpute.runtime.progress import Progress, split_progress

_ENTRIES = 16_000_000  # sites x haplotypes of a window, within the limits of the next line
_MIN_SITES, _MAX_SITES = 1_024, 8_192  # sites of a window; each window also reads 2 FLANK sites around it
_MAX_NAMES = 3  # samples listed in a warning
_MAX_NAME = 150  # characters of a temporary file's name
Result = TypeVar("Result")


def merge_panels(
    panels: Sequence[str | Path],
    out: str | Path,
    *,
    threads: int | None = None,
    force: bool = False,
    command: str = "",
    progress: Progress | None = None,
) -> None:
    """Write one panel file from several panels of the same chromosome.

    The merged panel has all sites and all haplotypes. Haplotypes of a panel that lacks a site get the alleles
    of the haplotypes that they resemble most at the sites around it. If hardly any of them would get the
    minor allele, all get the major allele, as if nobody in the panel carried the minor allele. A sample that
    is in two panels with the same haplotypes is kept once, with a warning. The chromosome's name and the
    genetic map are the first panel's.

    Parameters
    ----------
    panels : sequence of str or Path
        At least two panel files (`.spin`). The first two are merged, then the result with the third, and so
        on.
    out : str or Path
        Panel file to write, by convention `.spin`.
    threads : int, optional
        Number of threads. Default: all processors. The result does not depend on it.
    force : bool
        Overwrite `out` if it exists.
    command : str
        Command line to record in the panel's provenance.
    progress : callable, optional
        Called with the fraction that is done.

    Raises
    ------
    InputError
        A panel has no haplotypes or is given twice; the panels differ in chromosome, genome build, region or
        parts of X; or, without `force`, `out` exists.
    """
    if len(panels) < 2:
        raise InputError("content", f"give at least two panels to merge, got {len(panels)}")
    out = check_panel_output(out, force, panels)
    threads = choose_threads(threads)
    with ExitStack() as stack:
        opened = [stack.enter_context(open_spin_file(path)) for path in panels]
        _check_mergeable(opened)
        partial_out = stack.enter_context(atomic_write(out))
        folder = stack.enter_context(temporary_folder_in(out.parent, f".{out.name}."))
        merged: Sequence[Panel] = opened[0]
        shares = split_progress(progress, [1.0] * (len(opened) - 1))
        for number, next_panels in enumerate(opened[1:]):
            # messages about the next merge will contain this name
            path = folder / merged_name(panels[: number + 2])
            _merge_parts(merged, next_panels, path, threads, command, shares[number])
            merged = stack.enter_context(open_spin_file(path))
        os.replace(path, partial_out)


def merged_name(panels: Sequence[str | Path]) -> str:
    """Return the file name of a merged panel. Messages and reports contain it."""
    return f"{'+'.join(Path(panel).stem for panel in panels)[-_MAX_NAME:]}.spin"


def check_mergeable(panels: Sequence[str | Path]) -> None:
    """Raise InputError for panels that `merge_panels` would refuse, without comparing all of their sites.

    The sites of a third panel are not checked, because it may share sites with the second one only.
    """
    with ExitStack() as stack:
        _check_mergeable([stack.enter_context(open_spin_file(path)) for path in panels])


def _check_mergeable(opened: Sequence[Sequence[Panel]]) -> None:
    for first, second in itertools.combinations(opened, 2):
        if [panel.checksum for panel in first] == [panel.checksum for panel in second]:
            raise InputError(
                "mismatch", f"panels {first[0].path} and {second[0].path} are the same: give one of them"
            )
        check_chromosome_and_build(first[0], second[0])
        first_names, second_names = _names_of_parts(first), _names_of_parts(second)
        if (len(first) > 1 or len(second) > 1) and first_names != second_names:
            raise InputError(
                "mismatch",
                f"panels {first[0].path} and {second[0].path} have different parts of chromosome X "
                f"({', '.join(first_names)}; {', '.join(second_names)}): build both of the same parts",
            )
    for parts in zip(opened[0], opened[1], strict=True):
        check_early(*parts)


def _names_of_parts(panels: Sequence[Panel]) -> list[str]:
    return [part.name if (part := find_x_region(panel)) else "whole" for panel in panels]


def _merge_parts(
    first: Sequence[Panel],
    second: Sequence[Panel],
    out: Path,
    threads: int,
    command: str,
    progress: Progress | None,
) -> None:
    """Merge two panels. On X, merge each part separately."""
    pairs = list(zip(first, second, strict=True))
    unions = [unite_sites(*pair) for pair in pairs]
    shared_by_part = [find_shared_samples(*args) for args in zip(pairs, unions, strict=True)]
    same = set(shared_by_part[0].same).intersection(*(shared.same for shared in shared_by_part))
    shared = [find_shared_samples(*args, same) for args in zip(pairs, unions, strict=True)]
    _warn(pairs, unions, shared[0])
    part_paths = [out.with_name(f"{out.stem}.{name}.spin") for name in _names_of_parts(first)]
    shares = split_progress(progress, [float(len(union.sites)) for union in unions])
    for number, parts in enumerate(zip(pairs, unions, shared, part_paths, strict=True)):
        pair, union, shared_samples, path = parts
        merger = _Merger(pair, union, shared_samples, Filling(pair, union))
        merger.write(path, threads, command, shares[number])
    if len(part_paths) > 1:
        join_panels(part_paths, out)
    else:
        part_paths[0].replace(out)


@dataclass(frozen=True, eq=False)
class _Merger:
    """Merger of two panels of one chromosome, or of one part of X."""

    panels: tuple[Panel, Panel]
    union: SiteUnion
    shared: SharedSamples
    filling: Filling

    @property
    def n_haplotypes(self) -> int:
        """Number of haplotypes of the merged panel."""
        return self.panels[0].n_haplotypes + len(self.shared.kept_N)

    def write(self, out: Path, threads: int, command: str, progress: Progress | None) -> None:
        """Write the merged panel file."""
        shares = split_progress(progress, [3.0, 1.0])
        size = min(max(_ENTRIES // self.n_haplotypes, _MIN_SITES), _MAX_SITES)
        apparent = self._map_windows(self._count_apparent_carriers, size, threads, shares[0])
        lost_S = self.filling.find_lost(np.concatenate(list(apparent)))
        counts: list[np.ndarray] = []
        with out.open("wb") as file:
            writer = PanelWriter(file, self.n_haplotypes)
            merge_rows = partial(self._merge_rows, lost_S)
            for stored, allele_count in self._map_windows(merge_rows, _MIN_SITES, threads, shares[1]):
                counts.append(allele_count)
                writer.add_rows(stored, allele_count)
            table = SiteTable(self.union.sites, self.union.cM, np.concatenate(counts))
            columns = encode_site_table(table, self.union.multiallelic)
            writer.finish(columns, self.union.doubts(self.panels), self._header(command))
            file.flush()
            os.fsync(file.fileno())

    def _header(self, command: str) -> dict[str, Any]:
        first = self.panels[0]
        ploidy = [*first.ploidy.tolist(), *self.shared.ploidy.tolist()]
        return {
            "chrom": first.chrom,
            "contig_line": first.contig_line,
            "samples": [*first.samples, *self.shared.samples],
            "ploidy": "".join(map(str, ploidy)),
            "n_sites": len(self.union.sites),
            "provenance": {
                "spinimpute": package_version(),
                "source": " + ".join(str(panel.provenance.get("source", "?")) for panel in self.panels),
                "map": str(first.provenance.get("map", "?")),
                "command": command,
                MERGED: [checksum for panel in self.panels for checksum in panel.merged or [panel.checksum]],
            },
        }

    def _map_windows(
        self, make: Callable[[np.ndarray], Result], size: int, threads: int, progress: Progress | None
    ) -> Iterator[Result]:
        """Call a function for windows of `size` sites in several threads. Yield the results in order.

        Windows do not cut a record.
        """
        n_sites = len(self.union.sites)
        cuts = [Interval(start, min(start + size, n_sites)) for start in range(0, n_sites, size)]
        waiting: deque[Future[Result]] = deque()
        with ThreadPoolExecutor(threads, "merge") as pool:
            try:
                for window in self.union.records.keep_whole(cuts):
                    waiting.append(pool.submit(make, np.arange(*window)))
                    if len(waiting) > threads:
                        yield waiting.popleft().result()
                    if progress is not None:
                        progress(window.start / n_sites)
                while waiting:
                    yield waiting.popleft().result()
            finally:
                pool.shutdown(cancel_futures=True)

    def _count_apparent_carriers(self, rows: np.ndarray) -> np.ndarray:
        count_U = self.filling.count_apparent_carriers(int(rows[0]), int(rows[-1]) + 1)
        for panel in self.panels:
            panel.release_memory()
        return count_U

    def _merge_rows(self, lost_S: np.ndarray, rows: np.ndarray) -> tuple[bytes, np.ndarray]:
        """Merge the haplotypes at consecutive sites. Return the stored rows and the allele counts."""
        first, second = self.filling.alleles(rows, lost_S)
        to, source = self.shared.twin_N
        lacks = self.union.index_S[0][rows] == ABSENT
        first[np.ix_(lacks, to)] = second[np.ix_(lacks, source)]
        packed = np.packbits(np.hstack([first, second[:, self.shared.kept_N]]), axis=1)
        for panel in self.panels:
            panel.release_memory()
        return store_rows(packed, self.n_haplotypes), allele_counts(packed)


def _warn(pairs: Sequence[tuple[Panel, Panel]], unions: Sequence[SiteUnion], shared: SharedSamples) -> None:
    first, second = (panel.path.name for panel in pairs[0])
    if swapped := sum(int(union.swapped_S.sum()) for union in unions):
        warnings.warn(
            f"{second} has REF and ALT of {swapped} SNPs exchanged, compared with {first}: they are taken as "
            f"the same sites, with the alleles of {first}",
            stacklevel=4,
        )
    for pair, union in zip(pairs, unions, strict=True):
        if message := few_shared_warning(pair, union):
            warnings.warn(message, stacklevel=4)
    if not shared.same_name:
        return
    names = ", ".join(shared.same_name[:_MAX_NAMES]) + (", ..." if len(shared.same_name) > _MAX_NAMES else "")
    same, different = len(shared.same), len(shared.same_name) - len(shared.same)
    sentences = []
    if same:
        sentences.append(f"{same} have the same haplotypes in both and are kept once")
    if different:
        sentences.append(
            f"{different} have other haplotypes and are kept twice: if they are the same people, leave them "
            "out of one of the VCFs (bcftools view --samples ^NAME) and build its panel again"
        )
    both = f"{first} and {second} both have {len(shared.same_name)} samples ({names})"
    warnings.warn(f"{both}: {'; '.join(sentences)}", stacklevel=4)
