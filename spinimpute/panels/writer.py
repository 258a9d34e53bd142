"""Writing panel files; see `panel` for what is in them."""

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
    """Writes haplotypes as they come, the rest at the end.

    Parameters
    ----------
    file : binary file
        Empty, open for writing.
    n_haplotypes : int
        Haplotypes of all samples.
    """

    def __init__(self, file: BinaryIO, n_haplotypes: int) -> None:
        self._container = ContainerWriter(file, KIND)
        self._n_haplotypes = n_haplotypes
        self._container.start_section("haplotypes")
        self._block_crc: list[int] = []
        self._rows_in_block = 0

    def add_rows(self, stored: bytes, allele_count_X: np.ndarray) -> None:
        """Append the rows of some sites.

        Parameters
        ----------
        stored : bytes
            As `stored_rows.store_rows` made them.
        allele_count_X : integers (X,)
            Haplotypes with ALT at each of these sites.
        """
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
        # of bits, whatever the form in which they are stored: a panel's checksum is that of its content
        packed = layout.expand(np.frombuffer(stored, dtype=np.uint8), np.arange(n_sites))
        self._container.checksum.update(packed.data)
        self._container.extend_section("haplotypes", stored)

    def finish(self, table: dict[str, bytes], doubts: SiteDoubts, header: dict[str, Any]) -> None:
        """Write the site table, the header and the preamble.

        Parameters
        ----------
        table : dict of str to bytes
            The sections TABLE_SECTIONS.
        doubts : SiteDoubts
            What is known against the sites.
        header : dict
            The entries that panel files have. The checksum covers all but the provenance.
        """
        for name in TABLE_SECTIONS:
            self._container.add_section(name, table[name])
        # results depend on it: with the same haplotypes, files of earlier versions have other checksums
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
    """Write a panel again with other genetic positions, another phase of rare alleles, or other doubts.

    Parameters
    ----------
    panel : Panel
        What to write.
    out : Path
        The file to write.
    provenance : dict
        Added to the panel's own.
    cM : float64 (n_sites,), optional
        Never decreasing; by default the panel's.
    moves : Moves, optional
        Alleles to move; by default none.
    doubts : SiteDoubts, optional
        What is known against the sites; by default what the panel says.

    Raises
    ------
    InputError
        The panel is damaged.
    OSError
        `out` cannot be written.
    """
    with out.open("wb") as file:
        writer = PanelWriter(file, panel.n_haplotypes)
        for start in range(0, panel.n_sites, BLOCK_SITES):
            stop = min(start + BLOCK_SITES, panel.n_sites)
            packed, count = panel.packed(start, stop), panel.allele_count[start:stop]
            same = np.array_equal(allele_counts(packed), count)
            panel.container.require(same, "its haplotypes do not have the allele counts that it states")
            if moves is not None:
                packed = _moved(packed, start, moves)
            writer.add_rows(store_rows(packed, panel.n_haplotypes), count)
        table = {name: panel.container.section(name) for name in TABLE_SECTIONS}
        if cM is not None:
            table["cM"] = cM.astype("<f8").tobytes()
        header = panel.container.header
        writer.finish(table, doubts or panel.doubts, header | {"provenance": panel.provenance | provenance})
        file.flush()
        os.fsync(file.fileno())


def _moved(packed_XB: np.ndarray, first: int, moves: Moves) -> np.ndarray:
    """Packed bits of consecutive sites with those alleles moved that are theirs."""
    theirs = slice(*np.searchsorted(moves.site_M, [first, first + len(packed_XB)]))
    moved_XB = packed_XB.copy()
    for haplotype_M in (moves.from_M[theirs], moves.to_M[theirs]):  # one has either allele
        bit_M = (128 >> (haplotype_M & 7)).astype(np.uint8)
        np.bitwise_xor.at(moved_XB, (moves.site_M[theirs] - first, haplotype_M >> 3), bit_M)
    return moved_XB


def package_version() -> str:
    """The version of spinimpute; "unknown" in a checkout that is not installed."""
    try:
        return importlib.metadata.version("spinimpute")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
