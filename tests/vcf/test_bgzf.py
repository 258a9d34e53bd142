import gzip
import io
import shutil
import subprocess
import threading
import zlib

import numpy as np
import pytest

from spinimpute.vcf.bgzf import BLOCK_SIZE, EOF_BLOCK, BgzfWriter, compress_block


def stream(size: int, seed: int = 0) -> bytes:
    """Bytes that compress about as well as genotypes."""
    return np.random.default_rng(seed).choice([0, 0, 0, 1, 2, 200], size).astype(np.uint8).tobytes()


def compressed(data: bytes, threads: int = 1) -> tuple[bytes, BgzfWriter]:
    file = io.BytesIO()
    writer = BgzfWriter(file, threads)
    writer.write(data)
    writer.finish()
    return file.getvalue(), writer


@pytest.mark.parametrize("size", [0, 1, BLOCK_SIZE - 1, BLOCK_SIZE, BLOCK_SIZE + 1, 40 * BLOCK_SIZE + 17])
def test_gzip_reads_the_stream_back_and_the_end_is_marked(size):
    data = stream(size)
    file, _ = compressed(data)
    assert gzip.decompress(file) == data
    assert file.endswith(EOF_BLOCK)


@pytest.mark.skipif(shutil.which("bgzip") is None, reason="bgzip is not installed")
def test_bgzip_accepts_the_file(tmp_path):
    path = tmp_path / "x.gz"
    data = stream(20 * BLOCK_SIZE + 5)
    path.write_bytes(compressed(data, threads=3)[0])
    subprocess.run(["bgzip", "-t", path], check=True)
    assert subprocess.run(["bgzip", "-dc", path], check=True, capture_output=True).stdout == data


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
    data = stream(20 * BLOCK_SIZE)
    file, writer = compressed(data, threads=2)
    positions = np.array([0, 1, BLOCK_SIZE - 1, BLOCK_SIZE, 7 * BLOCK_SIZE + 3, len(data) - 1, len(data)])
    *offsets, end = writer.virtual_offsets(positions).tolist()
    assert [byte_at(file, offset) for offset in offsets] == [data[i] for i in positions[:-1]]
    assert end == (len(file) - len(EOF_BLOCK)) << 16  # all blocks are full


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
