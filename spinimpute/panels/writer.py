"""Write panel files (.spin). `panel` describes their contents."""

from __future__ import annotations

import importlib.metadata
import os
import zlib
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from spinimpute.panels.container import ContainerWriter
from spinimpute.panels.panel import BLOCK_SITES, KIND, Panel
from spinimpute.panels.site_table import CONFIRMED, DISCORDANCE, TABLE_SECTIONS
from spinimpute.panels.stored_rows import RowLayout, allele_counts, store_rows
from spinimpute.panels.trust.rare_phase import Moves
from spinimpute.panels.trust.site_trust import SiteDoubts


class PanelWriter:
    """Writer of a panel to an empty binary file: haplotypes as they are computed, the rest in `finish`."""

    def __init__(self, file: BinaryIO, n_haplotypes: int) -> None:
        self._container = ContainerWriter(file, KIND)
        self._n_haplotypes = n_haplotypes
        self._container.start_section("haplotypes")
        self._block_crc: list[int] = []
        self._rows_in_block = 0

    def add_rows(self, stored: bytes, allele_count_X: np.ndarray) -> None:
        """Append rows encoded by `store_rows`, with their allele counts, integers (X,)."""
        layout = RowLayout.of(allele_count_X, self._n_haplotypes)
        n_sites = len(allele_count_X)
        done = 0
        while done < n_sites:
            if self._rows_in_block == 0:
                self._block_crc.append(0)
            end = min(done + BLOCK_SITES - self._rows_in_block, n_sites)
            rows = stored[layout.start_X1[done] : layout.start_X1[end]]
            self._block_crc[-1] = zlib.crc32(rows, self._block_crc[-1])
            self._rows_in_block = (self._rows_in_block + end - done) % BLOCK_SITES
            done = end
        # the checksum is computed from the bits, so it does not depend on the format of the rows
        packed = layout.expand(np.frombuffer(stored, dtype=np.uint8), np.arange(n_sites))
        self._container.checksum.update(packed.data)
        self._container.extend_section("haplotypes", stored)

    def finish(self, table: dict[str, bytes], doubts: SiteDoubts, header: dict[str, Any]) -> None:
        """Write the site table (TABLE_SECTIONS), the doubts, the header and the preamble.

        The checksum covers all entries of the header except the provenance.
        """
        for name in TABLE_SECTIONS:
            self._container.add_section(name, table[name])
        # the checksum includes the doubts, because results depend on them
        self._container.add_section(DISCORDANCE, doubts.discordance.tobytes())
        self._container.add_section(CONFIRMED, np.packbits(doubts.confirmed).tobytes())
        block_crc = np.array(self._block_crc, dtype="<u4").tobytes()
        self._container.add_section("block_crc", block_crc, in_checksum=False)
        identity = header.copy()
        provenance = identity.pop("provenance")
        self._container.finish(identity, {"provenance": provenance})


def rewrite_panel(
    panel: Panel,
    out: Path,
    provenance: dict[str, Any],
    cM: np.ndarray | None = None,
    moves: Moves | None = None,
    doubts: SiteDoubts | None = None,
) -> None:
    """Write a modified copy of a panel to `out`, and add `provenance` to its provenance.

    `cM` and `doubts` replace the panel's genetic positions and doubts. `moves` are rare alleles to move to
    the sibling haplotype. Arguments that are None change nothing. Raises InputError if the panel is damaged,
    and OSError if `out` cannot be written.
    """
    with out.open("wb") as file:
        writer = PanelWriter(file, panel.n_haplotypes)
        for start in range(0, panel.n_sites, BLOCK_SITES):
            stop = min(start + BLOCK_SITES, panel.n_sites)
            packed, count = panel.packed(start, stop), panel.allele_count[start:stop]
            same = np.array_equal(allele_counts(packed), count)
            panel.container.require(same, "its haplotypes do not have the allele counts that it states")
            if moves is not None:
                packed = _switch_alleles(packed, start, moves)
            writer.add_rows(store_rows(packed, panel.n_haplotypes), count)
        table = {name: panel.container.section(name) for name in TABLE_SECTIONS}
        if cM is not None:
            table["cM"] = cM.astype("<f8").tobytes()
        header = panel.container.header
        writer.finish(table, doubts or panel.doubts, header | {"provenance": panel.provenance | provenance})
        file.flush()
        os.fsync(file.fileno())


def _switch_alleles(packed_XB: np.ndarray, first: int, moves: Moves) -> np.ndarray:
    """Move the alleles `moves` in packed bits of consecutive sites, which start at panel site `first`."""
    chosen = slice(*np.searchsorted(moves.site_M, [first, first + len(packed_XB)]))
    switched_XB = packed_XB.copy()
    for haplotype_M in (
        moves.from_M[chosen],
        moves.to_M[chosen],
    ):  # the two have different alleles: flip both
        bit_M = (128 >> (haplotype_M & 7)).astype(np.uint8)
        np.bitwise_xor.at(switched_XB, (moves.site_M[chosen] - first, haplotype_M >> 3), bit_M)
    return switched_XB


def package_version() -> str:
    """Return the version of spinimpute, or "unknown" if it is not installed."""
    try:
        return importlib.metadata.version("spinimpute")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
