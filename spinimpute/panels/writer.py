"""Writing panel files; see `panel_file` for their layout."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import zlib
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from spinimpute.panels.panel import (
    BLOCK_SITES,
    CRC,
    FORMAT_VERSION,
    MAGIC,
    PREAMBLE,
    TABLE_SECTIONS,
    Panel,
)
from spinimpute.panels.stored_rows import RowLayout, store_rows

_ALIGNMENT = 64


class PanelWriter:
    """Writes haplotypes as they come, the rest at the end."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._sections: dict[str, dict[str, int]] = {}
        self._content_hash = hashlib.sha256()
        self._block_crc: list[int] = []
        self._rows_in_block = 0
        self._crc = self._nbytes = 0
        file.write(b"\0" * (PREAMBLE.size + CRC.size))  # written last: until then this is no panel
        self._haplotypes_offset = self._align()

    def add_rows(self, stored: bytes, allele_count_X: np.ndarray, n_haplotypes: int) -> None:
        """Append the rows of some sites as `stored_rows.store_rows` made them."""
        layout = RowLayout.of(allele_count_X, n_haplotypes)
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
        self._crc = zlib.crc32(stored, self._crc)
        self._nbytes += len(stored)
        # of bits, whatever the form in which they are stored: a panel's checksum tells its content
        packed = layout.expand(np.frombuffer(stored, dtype=np.uint8), np.arange(n_sites))
        self._content_hash.update(packed.data)
        self._file.write(stored)

    def finish(self, table: dict[str, bytes], header: dict[str, Any]) -> None:
        """Write the site table, the header and the preamble."""
        self._sections["haplotypes"] = {
            "offset": self._haplotypes_offset,
            "nbytes": self._nbytes,
            "crc": self._crc,
        }
        for name, content in table.items():
            self._content_hash.update(name.encode() + content)
            self._add_section(name, content)
        self._add_section("block_crc", np.array(self._block_crc, dtype="<u4").tobytes())
        identity = {key: header[key] for key in ("chrom", "contig_line", "samples", "ploidy", "n_sites")}
        self._content_hash.update(json.dumps(identity, sort_keys=True).encode())
        checksum = self._content_hash.hexdigest()
        encoded = json.dumps(
            header | {"checksum": checksum, "sections": self._sections}, sort_keys=True, ensure_ascii=False
        ).encode()
        offset = self._align()
        self._file.write(encoded)
        preamble = PREAMBLE.pack(
            MAGIC, FORMAT_VERSION, zlib.crc32(encoded), offset, len(encoded), self._file.tell()
        )
        self._file.seek(0)
        self._file.write(preamble + CRC.pack(zlib.crc32(preamble)))

    def _add_section(self, name: str, content: bytes) -> None:
        self._sections[name] = {"offset": self._align(), "nbytes": len(content), "crc": zlib.crc32(content)}
        self._file.write(content)

    def _align(self) -> int:
        self._file.write(b"\0" * (-self._file.tell() % _ALIGNMENT))
        return self._file.tell()


def write_with_map(panel: Panel, out: Path, cM: np.ndarray, provenance: dict[str, Any]) -> None:
    """Write a panel again with other genetic positions, float64 (n_sites,), never decreasing.

    provenance: added to the panel's own. Raises InputError if the panel is damaged, OSError if `out` cannot
    be written.
    """
    with out.open("wb") as file:
        writer = PanelWriter(file)
        for start in range(0, panel.n_sites, BLOCK_SITES):
            stop = min(start + BLOCK_SITES, panel.n_sites)
            stored = store_rows(panel.packed(start, stop), panel.n_haplotypes)
            writer.add_rows(stored, panel.allele_count[start:stop], panel.n_haplotypes)
        table = {name: panel._section(name) for name in TABLE_SECTIONS}
        table["cM"] = cM.astype("<f8").tobytes()
        header = {
            "chrom": panel.chrom,
            "contig_line": panel.contig_line,
            "samples": panel.samples,
            "ploidy": "".join(map(str, panel.ploidy.tolist())),
            "n_sites": panel.n_sites,
            "provenance": panel.provenance | provenance,
        }
        writer.finish(table, header)
        file.flush()
        os.fsync(file.fileno())


def package_version() -> str:
    """Of spinimpute."""
    try:
        return importlib.metadata.version("spinimpute")
    except importlib.metadata.PackageNotFoundError:  # run from a checkout that is not installed
        return "unknown"
