"""Writes one panel of several of the same chromosome, for all that reads panels.

Sites of both panels are as they are; haplotypes of a panel that lacks a site get alleles by the other's
haplotypes that they resemble (`nearest_carriers`).

Axes: S sites of both panels together, T sites that both have, U sites that one has, P bytes of packed bits.
"""

from __future__ import annotations

import itertools
import os
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from spinimpute.devices import choose_threads
from spinimpute.errors import InputError
from spinimpute.output_files import check_output, written_whole
from spinimpute.panels.merging.nearest_carriers import FLANK, least_carriers, nearer_to_carriers
from spinimpute.panels.merging.same_people import SamePeople, find_same_people
from spinimpute.panels.merging.site_union import ABSENT, SiteUnion, unite_sites
from spinimpute.panels.panel import MERGED, Panel
from spinimpute.panels.parts import join_panels, open_parts, part_of
from spinimpute.panels.site_table import SiteTable, raw_columns
from spinimpute.panels.stored_rows import allele_counts, store_rows
from spinimpute.panels.writer import PanelWriter, package_version
from spinimpute.partial_files import temporary_folder_in
from spinimpute.progress import Progress

_ENTRIES = 16_000_000  # sites x haplotypes that are filled in at once
_LEAST_SITES, _MOST_SITES = 1_024, 8_192  # the walks to a piece and back take 2 FLANK sites besides
_ROWS = 256  # sites that are put together at once
_NAMED = 3  # samples


def merge_panels(
    panels: Sequence[str | Path],
    out: str | Path,
    *,
    threads: int | None = None,
    force: bool = False,
    command: str = "",
    progress: Progress | None = None,
) -> None:
    """Write one panel file of several of the same chromosome.

    It has the sites of all and the haplotypes of all. Haplotypes of a panel that lacks a site get the
    alleles of those that they resemble most at the sites around it; where hardly any would have the minor
    allele, the panel lacks the site because nobody there carries it. The chromosome's name and the genetic
    map are the first panel's.

    A sample that two panels have is kept once if its haplotypes are the same; there is a warning of it.

    Parameters
    ----------
    panels : sequence of str or Path
        Panel files (`.spin`), two at least. Three are merged as the first two with the third.
    out : str or Path
        The panel file to write, by convention `.spin`.
    threads : int, optional
        By default all processors. The bytes do not depend on it.
    force : bool
        Replace `out` if it exists.
    command : str
        Recorded in the panel's provenance.
    progress : callable, optional
        Called with the fraction that is done.

    Raises
    ------
    InputError
        A panel holds no haplotypes or is given twice; they are of other chromosomes, genome builds, regions
        or parts of X; or `out` exists without `force`.
    """
    if len(panels) < 2:
        raise InputError(f"at least two panels are merged: found {len(panels)}")
    out = check_output(out, force, panels)
    threads = choose_threads(threads)
    with ExitStack() as stack:
        opened = [stack.enter_context(open_parts(path)) for path in panels]
        _check_different(opened)
        partial = stack.enter_context(written_whole(out))
        folder = stack.enter_context(temporary_folder_in(out.parent, f".{out.name}."))
        merged = opened[0]
        for number, more in enumerate(opened[1:], 1):
            last = number == len(opened) - 1
            path = folder / f"{number}.spin"
            _merge_parts(merged, more, path, threads, command, progress if last else None)
            merged = stack.enter_context(open_parts(path))
        os.replace(path, partial)


def _check_different(opened: Sequence[Sequence[Panel]]) -> None:
    for one, other in itertools.combinations(opened, 2):
        if [panel.checksum for panel in one] == [panel.checksum for panel in other]:
            raise InputError(f"panels {one[0].path} and {other[0].path} are the same: give one of them")


def _merge_parts(
    first: Sequence[Panel],
    second: Sequence[Panel],
    out: Path,
    threads: int,
    command: str,
    progress: Progress | None,
) -> None:
    """Merge two panels, of X part by part."""
    names = [
        [part.name if (part := part_of(panel)) else "whole" for panel in panels] for panels in (first, second)
    ]
    if len(first) > 1 or len(second) > 1:
        if names[0] != names[1]:
            raise InputError(
                f"panels {first[0].path} and {second[0].path} have other parts of chromosome X "
                f"({', '.join(names[0])}; {', '.join(names[1])}): build both of the same parts"
            )
        made = []
        for one, other, name in zip(first, second, names[0], strict=True):
            made.append(out.with_name(f"{out.stem}.{name}.spin"))
            _Merger.of(one, other).write(made[-1], threads, command, progress)
        join_panels(made, out)
        return
    _Merger.of(first[0], second[0]).write(out, threads, command, progress)


@dataclass(frozen=True, eq=False)
class _Merger:
    """Two panels that become one."""

    panels: tuple[Panel, Panel]
    union: SiteUnion
    people: SamePeople

    @classmethod
    def of(cls, first: Panel, second: Panel) -> _Merger:
        panels = first, second
        union = unite_sites(*panels)
        people = find_same_people(panels, union)
        _warn(panels, union, people)
        return cls(panels, union, people)

    @property
    def n_haplotypes(self) -> int:
        """Of the merged panel."""
        return self.panels[0].n_haplotypes + len(self.people.kept_N)

    def write(self, out: Path, threads: int, command: str, progress: Progress | None) -> None:
        """Write the merged panel file; it is synced when it is complete."""
        counts: list[np.ndarray] = []
        n_sites = len(self.union.sites)
        with out.open("wb") as file:
            writer = PanelWriter(file)
            done = 0
            for stored, allele_count in self._pieces(threads):
                counts.append(allele_count)
                writer.add_rows(stored, allele_count, self.n_haplotypes)
                done += len(allele_count)
                if progress is not None:
                    progress(done / n_sites)
            table = SiteTable(self.union.sites, self.union.cM, np.concatenate(counts))
            writer.finish(raw_columns(table, self.union.multiallelic), self._header(command))
            file.flush()
            os.fsync(file.fileno())

    def _header(self, command: str) -> dict[str, Any]:
        first, second = self.panels
        ploidy = np.concatenate([first.ploidy, self.people.ploidy])
        return {
            "chrom": first.chrom,
            "contig_line": first.contig_line,
            "samples": [*first.samples, *self.people.samples],
            "ploidy": "".join(map(str, ploidy.tolist())),
            "n_sites": len(self.union.sites),
            "provenance": {
                "spinimpute": package_version(),
                "source": " + ".join(str(panel.provenance.get("source", "?")) for panel in self.panels),
                "map": str(first.provenance.get("map", "?")),
                "command": command,
                MERGED: [checksum for panel in self.panels for checksum in panel.merged or [panel.checksum]],
            },
        }

    def _pieces(self, threads: int) -> Iterator[tuple[bytes, np.ndarray]]:
        """Stored rows and allele counts of consecutive sites; some are made in advance."""
        n_sites = len(self.union.sites)
        size = min(max(_ENTRIES // self.n_haplotypes, _LEAST_SITES), _MOST_SITES)
        waiting: deque[Future[list[tuple[bytes, np.ndarray]]]] = deque()
        with ThreadPoolExecutor(threads, "merge") as pool:
            try:
                for start in range(0, n_sites, size):
                    waiting.append(pool.submit(self._piece, start, min(start + size, n_sites)))
                    if len(waiting) > threads:
                        yield from waiting.popleft().result()
                while waiting:
                    yield from waiting.popleft().result()
            finally:
                pool.shutdown(cancel_futures=True)

    def _piece(self, start: int, stop: int) -> list[tuple[bytes, np.ndarray]]:
        minor_UP, only_U = self._filled_in(start, stop)
        made = []
        for low in range(start, stop, _ROWS):
            rows = np.arange(low, min(low + _ROWS, stop))
            here = slice(*np.searchsorted(only_U, [rows[0], rows[-1] + 1]))
            alleles = [self._alleles(number, rows, only_U[here], minor_UP[here]) for number in (0, 1)]
            to, source = self.people.twin_N
            lacks = self.union.index_S[0][rows] == ABSENT
            alleles[0][np.ix_(lacks, to)] = alleles[1][np.ix_(lacks, source)]
            packed = np.packbits(np.hstack([alleles[0], alleles[1][:, self.people.kept_N]]), axis=1)
            made.append((store_rows(packed, self.n_haplotypes), allele_counts(packed)))
        for panel in self.panels:
            panel.release_memory()
        return made

    def _alleles(self, number: int, rows: np.ndarray, only: np.ndarray, filled_UP: np.ndarray) -> np.ndarray:
        """Alleles of a panel at all sites of `rows`, uint8; only: those that one panel has."""
        panel, width = self.panels[number], self._bytes[number]
        out = np.zeros((len(rows), width), np.uint8)
        has = self.union.index_S[number][rows] != ABSENT
        out[has] = self.union.rows(self.panels, number, rows[has])
        lacks = self.union.index_S[number][only] == ABSENT
        first = number * self._bytes[0]
        out[~has] = filled_UP[lacks, first : first + width]
        return np.unpackbits(out, axis=1, count=panel.n_haplotypes)

    @property
    def _bytes(self) -> tuple[int, int]:
        """Bytes of a site's packed bits in each panel."""
        first, second = self.panels
        return -(-first.n_haplotypes // 8), -(-second.n_haplotypes // 8)

    def _filled_in(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """Sites [start, stop) that one panel has, and alleles there of the haplotypes of the other one.

        Returns
        -------
        uint8 (U, P)
            Packed bits of both panels, one behind the other; those of the panel that has the site are 0.
        int64 (U,)
            The sites.
        """
        union, (first, second) = self.union, self.panels
        index_first, index_second = (index[start:stop] for index in union.index_S)
        only_U = start + np.flatnonzero((index_first == ABSENT) | (index_second == ABSENT))
        second_has_U = union.index_S[0][only_U] == ABSENT
        low = max(int(union.shared_before_S1[start]) - FLANK, 0)
        high = int(union.shared_before_S1[stop]) + FLANK
        around_T = union.shared_T[low:high]
        packed_TP = np.hstack([union.rows(self.panels, number, around_T) for number in (0, 1)])
        width, n_first = self._bytes, 8 * self._bytes[0]
        haplotypes_N = np.concatenate([np.arange(first.n_haplotypes), n_first + np.arange(second.n_haplotypes)])
        alleles_UP = np.zeros((len(only_U), sum(width)), np.uint8)
        bit_N = np.arange(8 * sum(width))
        turn_U = np.zeros(len(only_U), bool)  # where ALT is the major allele
        for number in (0, 1):
            mine = second_has_U == bool(number)
            rows = union.rows(self.panels, number, only_U[mine])
            major = allele_counts(rows) > self.panels[number].n_haplotypes // 2
            rows[major] ^= np.packbits(np.ones(self.panels[number].n_haplotypes, np.uint8))
            turn_U[mine] = major
            at = number * width[0]
            alleles_UP[mine, at : at + width[number]] = rows
        nearer_UN = nearer_to_carriers(
            packed_TP,
            haplotypes_N.astype(np.int32),
            n_first,
            union.shared_before_S1[only_U] - low,
            alleles_UP,
            second_has_U,
        )
        least_U = np.where(second_has_U, *(least_carriers(panel.n_haplotypes) for panel in self.panels))
        nearer_UN[nearer_UN.sum(axis=1) < least_U] = False
        lacks_UN = ((bit_N < n_first) == second_has_U[:, None]) & np.isin(bit_N, haplotypes_N)
        return np.packbits((nearer_UN ^ turn_U[:, None]) & lacks_UN, axis=1), only_U


def _warn(panels: tuple[Panel, Panel], union: SiteUnion, people: SamePeople) -> None:
    first, second = (panel.path.name for panel in panels)
    if turned := int(union.turned_S.sum()):
        warnings.warn(
            f"{second} has REF and ALT of {turned} SNPs exchanged, compared with {first}: they are taken as "
            f"the same sites, with the alleles of {first}",
            stacklevel=5,
        )
    if people.named_alike:
        named = ", ".join(people.named_alike[:_NAMED]) + (", ..." if len(people.named_alike) > _NAMED else "")
        different = len(people.named_alike) - len(people.same)
        rest = (
            f"; {different} have other haplotypes and are kept twice: leave them out of one panel (panel build "
            "--samples-file)"
            if different
            else ""
        )
        warnings.warn(
            f"{first} and {second} both have {len(people.named_alike)} samples ({named}): "
            f"{len(people.same)} of them have the same haplotypes and are kept once{rest}",
            stacklevel=5,
        )
