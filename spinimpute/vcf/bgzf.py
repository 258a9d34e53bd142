"""Read and write BGZF, the blocked gzip format of VCF.gz, BCF and their indexes.

BGZF compresses a stream in independent blocks. A *virtual offset* is the address of a byte of the stream: the
offset of its block in the file times 2**16, plus the offset of the byte within the decompressed block.

The writer compresses blocks in parallel. Every block except the last holds exactly BLOCK_SIZE bytes of the
stream, so the file does not depend on the number of threads or on the sizes of the write calls. The reader
compares every block with its checksum.
"""

import struct
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from io import BufferedReader
from pathlib import Path
from typing import Protocol

import numpy as np
from deflate import deflate_compress

from spinimpute.runtime.unpacking import GZIP_MAGIC

BLOCK_SIZE = 0xFF00
"""Uncompressed bytes per block, as in htslib. Even incompressible data stay below BGZF's limit of 64 KiB."""

COMPRESSION_LEVEL = 7
"""Compression level of libdeflate, measured on 9.5 MB of GT:DS text. Level 7 makes files as small as zlib's
level 7 does, in half the time. Level 8 saves 4 % more space but takes twice the time of level 7. With level 6
files are 6 % larger, in 0.6 of the time."""

EOF_BLOCK = bytes.fromhex("1f8b08040000000000ff0600424302001b0003000000000000000000")
"""Empty block at the end of a complete file."""

_BLOCK_HEADER_BYTES = 18  # its last two bytes are the length of the block
_MAX_INFLATED = 1 << 16  # maximum number of bytes to decompress from a block; a valid block has no more
_BLOCKS_PER_TASK = 16  # blocks that a thread compresses or decompresses in one task
_TASKS_IN_FLIGHT_PER_THREAD = 2  # tasks that are running or whose result waits in memory


def starts_as_bgzf(head: bytes) -> bool:
    """Return whether the first 14 bytes of a file are those of BGZF. Plain gzip lacks the "BC" field."""
    return head.startswith(EOF_BLOCK[:4]) and head[12:14] == EOF_BLOCK[12:14]


def compress_block(data: bytes | memoryview) -> bytes:
    """Compress at most BLOCK_SIZE bytes into one BGZF block."""
    deflated = deflate_compress(data, COMPRESSION_LEVEL)
    header = struct.pack(
        "<4BI2BH2B2H", 0x1F, 0x8B, 8, 4, 0, 0, 0xFF, 6, ord("B"), ord("C"), 2, len(deflated) + 25
    )
    return header + deflated + struct.pack("<2I", zlib.crc32(data), len(data))


def _compress_blocks(data: bytes) -> list[bytes]:
    view = memoryview(data)
    return [compress_block(view[start : start + BLOCK_SIZE]) for start in range(0, len(data), BLOCK_SIZE)]


class _Sink(Protocol):
    def write(self, data: bytes, /) -> object: ...


class BgzfWriter:
    """Writer of a BGZF stream into a file that the caller opens and closes.

    With several threads, a pool compresses the blocks. Blocks are written in order, and the number of blocks
    that wait in memory is limited. Writing raises OSError if the file cannot be written.
    """

    def __init__(self, file: _Sink, threads: int = 1) -> None:
        self._file = file
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="bgzf") if threads > 1 else None
        self._tasks: deque[Callable[[], list[bytes]]] = deque()
        self._max_tasks = threads * _TASKS_IN_FLIGHT_PER_THREAD if threads > 1 else 0
        self._buffer = bytearray()
        self._block_lengths: list[int] = []

    def write(self, data: bytes | bytearray | memoryview, *, last: bool = False) -> None:
        """Append bytes to the stream. If they are the `last`, also write all buffered blocks."""
        self._buffer += data
        size = BLOCK_SIZE * _BLOCKS_PER_TASK
        stop = len(self._buffer) if last else len(self._buffer) // size * size
        with memoryview(self._buffer) as buffered:
            parts = [bytes(buffered[start : min(start + size, stop)]) for start in range(0, stop, size)]
        del self._buffer[:stop]
        for part in parts:
            if self._pool is None:
                self._tasks.append(partial(_compress_blocks, part))
            else:
                self._tasks.append(self._pool.submit(_compress_blocks, part).result)
        while len(self._tasks) > (0 if last else self._max_tasks):
            blocks = self._tasks.popleft()()
            self._block_lengths.extend(map(len, blocks))
            self._file.write(b"".join(blocks))

    def finish(self) -> None:
        """Write the remaining bytes and the end-of-file block."""
        self.write(b"", last=True)
        self._file.write(EOF_BLOCK)
        self.abandon()

    def abandon(self) -> None:
        """Discard the unwritten blocks and stop the threads. After `finish` there is nothing to discard."""
        self._tasks.clear()
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def virtual_offsets(self, positions: np.ndarray) -> np.ndarray:
        """Return the virtual offsets, uint64, of positions in the uncompressed stream.

        Call it only after `finish`. The end of the stream is a valid position.
        """
        block_start = np.concatenate([[0], np.cumsum(self._block_lengths, dtype=np.uint64)]).astype(np.uint64)
        block, within = np.divmod(positions, BLOCK_SIZE)
        return (block_start[block] << np.uint64(16)) | within.astype(np.uint64)


class DamagedFile(Exception):
    """Raised for a truncated or damaged file. The message says where the damage is."""


class BgzfReader:
    """Reader of a BGZF stream from the current offset of a file that the caller opens and closes.

    With one thread, the calling thread decompresses. Reading raises DamagedFile if a block is truncated or
    does not match its checksum, or if the file lacks the end-of-file block.
    """

    def __init__(self, file: BufferedReader, threads: int = 1) -> None:
        self._file = file
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="inflate") if threads > 1 else None
        self._tasks: deque[Callable[[], bytes]] = deque()
        self._max_tasks = threads * _TASKS_IN_FLIGHT_PER_THREAD if threads > 1 else 1
        self._blocks_per_task = _BLOCKS_PER_TASK if threads > 1 else 1
        self._offset = file.tell()
        self._at_end = False
        self._buffer = bytearray()

    def read(self, size: int) -> bytes:
        """Return the next `size` bytes of the stream, or fewer at the end of the stream."""
        while len(self._buffer) < size and (self._tasks or not self._at_end):
            while len(self._tasks) < self._max_tasks and not self._at_end:
                blocks, pool = self._read_blocks(), self._pool
                self._tasks.append(
                    partial(_inflate_blocks, blocks)
                    if pool is None
                    else pool.submit(_inflate_blocks, blocks).result
                )
            self._buffer += self._tasks.popleft()()
        data = bytes(memoryview(self._buffer)[:size])
        del self._buffer[:size]
        return data

    def tell(self) -> int:
        """Return how many bytes of the file, which is compressed, have been read."""
        return self._offset

    def close(self) -> None:
        """Stop the threads."""
        self._tasks.clear()
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def _read_blocks(self) -> list[tuple[int, bytes]]:
        """Read the compressed blocks of one task; return each with its offset in the file."""
        blocks: list[tuple[int, bytes]] = []
        while len(blocks) < self._blocks_per_task:
            header = self._file.read(_BLOCK_HEADER_BYTES)
            if not header:
                raise DamagedFile("the file is truncated: the block that ends a BGZF file is missing")
            if len(header) == _BLOCK_HEADER_BYTES and (
                header[:4] != EOF_BLOCK[:4] or header[10:16] != EOF_BLOCK[10:16]
            ):
                raise DamagedFile(f"the file is damaged: no BGZF block starts at byte {self._offset}")
            size = int.from_bytes(header[16:18], "little") + 1
            block = header + self._file.read(max(size - _BLOCK_HEADER_BYTES, 0))
            if len(header) < _BLOCK_HEADER_BYTES or len(block) != size:
                raise DamagedFile(f"the file is truncated in the block at byte {self._offset}")
            blocks.append((self._offset, block))
            self._offset += size
            if block == EOF_BLOCK and not self._file.peek(1):
                self._at_end = True
                break
        return blocks


@contextmanager
def open_decompressed(path: Path, threads: int = 1) -> Iterator[BufferedReader | BgzfReader]:
    """Open a file for reading, and decompress it if it is gzip (BGZF). Errors are those of `BgzfReader`."""
    with path.open("rb") as file:
        if not file.peek(len(GZIP_MAGIC)).startswith(GZIP_MAGIC):
            yield file
            return
        reader = BgzfReader(file, threads)
        try:
            yield reader
        finally:
            reader.close()


def _inflate_blocks(blocks: list[tuple[int, bytes]]) -> bytes:
    inflated = []
    for offset, block in blocks:
        try:
            data = zlib.decompressobj(-zlib.MAX_WBITS).decompress(
                block[_BLOCK_HEADER_BYTES:-8], _MAX_INFLATED
            )
        except zlib.error:
            data = None
        if data is None or struct.pack("<2I", zlib.crc32(data), len(data)) != block[-8:]:
            raise DamagedFile(f"the file is damaged: the block at byte {offset} does not match its checksum")
        inflated.append(data)
    return b"".join(inflated)
