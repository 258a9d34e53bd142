import gzip
import io
import itertools
import shutil
import subprocess
import threading
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spinimpute.vcf.bgzf import BLOCK_SIZE, EOF_BLOCK, BgzfWriter, compress_block


def stream(size: int, seed: int = 0) -> bytes:
    """Bytes that compress about as well as genotypes."""
    return np.random.default_rng(seed).choice([0, 0, 0, 1, 2, 200], size).astype(np.uint8).tobytes()


def compressed(data: bytes, threads: int = 1, cuts: list[int] | None = None) -> bytes:
    file = io.BytesIO()
    writer = BgzfWriter(file, threads)
    bounds = [0, *sorted(cuts or []), len(data)]
    for start, stop in itertools.pairwise(bounds):
        writer.write(data[start:stop])
    writer.finish()
    return file.getvalue()


@pytest.mark.parametrize("size", [0, 1, BLOCK_SIZE - 1, BLOCK_SIZE, BLOCK_SIZE + 1, 40 * BLOCK_SIZE + 17])
def test_gzip_reads_the_stream_back_and_the_end_is_marked(size):
    data = stream(size)
    file = compressed(data)
    assert gzip.decompress(file) == data
    assert file.endswith(EOF_BLOCK)


@pytest.mark.skipif(shutil.which("bgzip") is None, reason="bgzip is not installed")
def test_bgzip_accepts_the_file(tmp_path):
    path = tmp_path / "x.gz"
    data = stream(20 * BLOCK_SIZE + 5)
    path.write_bytes(compressed(data, threads=3))
    subprocess.run(["bgzip", "-t", path], check=True)
    assert subprocess.run(["bgzip", "-dc", path], check=True, capture_output=True).stdout == data


@settings(max_examples=15, deadline=None)
@given(
    threads=st.integers(1, 4),
    cuts=st.lists(st.integers(0, 36 * BLOCK_SIZE), max_size=6),
)
def test_bytes_depend_neither_on_threads_nor_on_calls(threads, cuts):
    data = stream(36 * BLOCK_SIZE + 1000)
    assert compressed(data, threads, cuts) == compressed(data)


def test_an_incompressible_block_fits_into_its_length_field():
    data = np.random.default_rng(0).bytes(BLOCK_SIZE)
    block = compress_block(data)
    assert len(block) <= 2**16
    assert int.from_bytes(block[16:18], "little") == len(block) - 1
    assert gzip.decompress(block) == data


def byte_at(file: bytes, offset: int) -> int:
    """The byte to which a virtual offset leads."""
    block = file[offset >> 16 :]
    return zlib.decompressobj(-zlib.MAX_WBITS).decompress(block[18:])[offset & 0xFFFF]


def test_virtual_offsets_lead_to_the_bytes():
    data = stream(20 * BLOCK_SIZE + 100)
    file = io.BytesIO()
    writer = BgzfWriter(file, threads=2)
    writer.write(data)
    writer.finish()
    positions = np.array(
        [0, 1, BLOCK_SIZE - 1, BLOCK_SIZE, 7 * BLOCK_SIZE + 3, 20 * BLOCK_SIZE, len(data) - 1], dtype=np.int64
    )
    offsets = writer.virtual_offsets(positions)
    assert offsets.dtype == np.uint64
    assert [byte_at(file.getvalue(), int(offset)) for offset in offsets] == [data[i] for i in positions]


def test_the_end_of_a_stream_of_full_blocks_is_the_end_of_file_block():
    data = stream(3 * BLOCK_SIZE)
    file = io.BytesIO()
    writer = BgzfWriter(file)
    writer.write(data)
    writer.finish()
    end = int(writer.virtual_offsets(np.array([len(data)]))[0])
    assert end == (len(file.getvalue()) - len(EOF_BLOCK)) << 16


class FullDisk(io.BytesIO):
    def write(self, data):
        raise OSError(28, "No space left on device")


@pytest.mark.parametrize("threads", [1, 3])
def test_a_full_disk_is_an_error_and_threads_end(threads):
    writer = BgzfWriter(FullDisk(), threads)
    with pytest.raises(OSError, match="No space"):  # noqa: PT012 - with threads the error comes later
        writer.write(stream(20 * BLOCK_SIZE))
        writer.finish()
    writer.abandon()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("bgzf")]
