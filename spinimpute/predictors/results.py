"""Storage for the imputed probabilities of one tile (256 gaps between typed sites).

Engines compute a few queries at a time, at all sites of the tile. Output records need all queries of a few
sites at a time. The results therefore must be stored in between: in memory, or in a temporary file if there
are too many queries. The temporary file has no name, so the system deletes it when the process ends.

Axes: U sites of the tile, X some of these sites, Q queries.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from spinimpute.runtime.errors import InputError

BYTES = np.dtype(np.float32).itemsize  # of one probability


@dataclass
class MemoryResults:
    """P(ALT) of all queries at the sites of a tile, float32, in memory."""

    p_UQ: np.ndarray

    def put(self, start: int, queries: slice, p_XQ: np.ndarray) -> None:
        """Store P(ALT) of some queries at the sites [start, start + X)."""
        self.p_UQ[start : start + len(p_XQ), queries] = p_XQ

    def take(self, start: int, stop: int) -> np.ndarray:
        """Return P(ALT) of all queries at the sites [start, stop). The caller may modify the array."""
        return self.p_UQ[start:stop]

    def copy_to(self, start: int, out_XQ: np.ndarray) -> None:
        """Write P(ALT) of all queries at the sites [start, start + X) to an array."""
        out_XQ[:] = self.p_UQ[start : start + len(out_XQ)]

    def close(self) -> None:
        """Release the storage. Arrays that `take` has returned stay valid."""


class FileResults(MemoryResults):
    """P(ALT) of all queries at the sites of a tile, in a temporary file.

    Each query must be stored exactly once, at all sites.
    """

    def __init__(self, n_sites: int, n_queries: int, folder: Path) -> None:
        self._n_sites, self._n_queries, self._folder = n_sites, n_queries, folder
        self._stored: list[slice] = []
        self._lock = threading.Lock()
        try:
            # report a full disk now, not after hours of computing
            if shutil.disk_usage(folder).free < n_sites * n_queries * BYTES:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115
        except OSError as error:
            raise self._error(error) from error

    def put(self, start: int, queries: slice, p_XQ: np.ndarray) -> None:
        """Store P(ALT) of some queries at all sites; `start` must be 0."""
        if start or len(p_XQ) != self._n_sites:
            raise ValueError(f"results must cover all {self._n_sites} sites, got {len(p_XQ)} from {start}")
        content = np.ascontiguousarray(p_XQ).reshape(-1).view(np.uint8).data
        offset = self._n_sites * queries.start * BYTES
        try:
            while content:
                n_written = os.pwrite(self._file.fileno(), content, offset)
                content, offset = content[n_written:], offset + n_written
        except OSError as error:
            raise self._error(error) from error
        with self._lock:
            self._stored.append(slice(queries.start, queries.start + p_XQ.shape[1]))

    def take(self, start: int, stop: int) -> np.ndarray:
        """Read P(ALT) of all queries at the sites [start, stop)."""
        p_XQ = np.empty((stop - start, self._n_queries), np.float32)
        self.copy_to(start, p_XQ)
        return p_XQ

    def copy_to(self, start: int, out_XQ: np.ndarray) -> None:
        """Read P(ALT) of all queries at the sites [start, start + X) into an array."""
        for queries in self._stored:
            width = queries.stop - queries.start
            offset = (self._n_sites * queries.start + start * width) * BYTES
            out_XQ[:, queries] = self._read(len(out_XQ) * width, offset).reshape(-1, width)

    def close(self) -> None:
        """Close the file, which deletes it."""
        self._file.close()

    def _read(self, count: int, offset: int) -> np.ndarray:
        """Read `count` float32 numbers; `offset` is in bytes."""
        content = bytearray()
        try:
            while len(content) < count * BYTES:
                part = os.pread(self._file.fileno(), count * BYTES - len(content), offset + len(content))
                if not part:
                    raise OSError(errno.EIO, "the file is truncated")
                content += part
        except OSError as error:
            raise InputError(
                "read",
                f"{self._folder}: temporary results cannot be read again: {error.strerror}. "
                "Impute once more.",
            ) from error
        return np.frombuffer(content, np.float32)

    def _error(self, error: OSError) -> InputError:
        size = self._n_sites * self._n_queries * BYTES / 1e6
        return InputError(
            "write",
            f"{self._folder}: temporary results ({size:.0f} MB) cannot be written to the folder of the "
            f"output: {error.strerror}. Free some space there.",
        )
