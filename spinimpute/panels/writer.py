"""Write panel files (.spin). `panel` describes their contents."""

from __future__ import annotations

import importlib.metadata
import os
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from spinimpute.panels.container import ContainerWriter, compress
from spinimpute.panels.panel import BLOCK_SITES, KIND, Panel
from spinimpute.panels.site_table import CONFIRMED, DISCORDANCE, STRUCTURAL, TABLE_SECTIONS, encode_cM
from spinimpute.panels.stored_rows import RowLayout, store_rows
from spinimpute.panels.trust.rare_phase import Moves
from spinimpute.panels.trust.site_trust import SiteDoubts


class PanelWriter:
    """Writer of a panel to an empty binary file: haplotypes as they are computed, the rest in `finish`."""

    def __init__(self, file: BinaryIO, n_haplotypes: int) -> None:
        self._container = ContainerWriter(file, KIND)
        self._n_haplotypes = n_haplotypes
        # rows and allele counts of the next block
        self._stored, self._count_X = bytearray(), np.empty(0, dtype=np.int64)

    def add_rows(self, stored: bytes, allele_count_X: np.ndarray) -> None:
        """Append rows encoded by `store_rows`, with their allele counts, integers (X,)."""
        self._stored += stored
        self._count_X = np.concatenate([self._count_X, allele_count_X.astype(np.int64)])
        while len(self._count_X) >= BLOCK_SITES:
            self._write_block()

    def _write_block(self) -> None:
        """Write the first BLOCK_SITES of the waiting rows, or all if there are fewer."""
        # numba loads slowly, and commands that only read the site table do not need it
        from spinimpute.panels.haplotype_runs import encode_runs

        layout = RowLayout.of(self._count_X[:BLOCK_SITES], self._n_haplotypes)
        end = int(layout.start_X1[-1])
        self._container.add_block(compress(encode_runs(bytes(self._stored[:end]), layout)))
        del self._stored[:end]
        self._count_X = self._count_X[BLOCK_SITES:]

    def finish(self, table: dict[str, bytes], doubts: SiteDoubts, header: dict[str, Any]) -> None:
        """Write the site table (`encode_site_table`), the doubts, the header and the preamble.

        The checksum covers all entries of the header except the provenance.
        """
        if len(self._count_X):
            self._write_block()
        for name, content in table.items():
            self._container.add_section(name, content)
        # the checksum includes the doubts, because results depend on them
        self._container.add_section(DISCORDANCE, doubts.discordance.tobytes())
        self._container.add_section(CONFIRMED, np.packbits(doubts.confirmed).tobytes())
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
            if moves is not None:
                packed = _switch_alleles(packed, start, moves)
            writer.add_rows(store_rows(packed, panel.n_haplotypes), count)
        stored = [name for name in (*TABLE_SECTIONS, STRUCTURAL) if name in panel.container.sections]
        table = {name: panel.container.section(name) for name in stored}
        if cM is not None:
            table["cM"] = encode_cM(cM)
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
