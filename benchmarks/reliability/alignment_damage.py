"""Damage to reads, and to headers of variant files, with correct lengths and checksums."""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator
from random import Random
from typing import NamedTuple

from benchmarks.reliability.damage import damaged_bytes, damaged_text
from benchmarks.reliability.packed_damage import RAW, in_place
from spinimpute.vcf.bgzf import EOF_BLOCK

_ROOM = 8_000  # bytes for a header
_MOST_STORED = 60_000  # bytes of a block
_BGZF_START = b"\x1f\x8b\x08\x04\0\0\0\0\0\xff\x06\0BC\x02\0"
# empty pieces of a deflated stream: stored ones, the last one, and one by the fixed code before a stored one
_FIVE_BYTES, _LAST_PIECE, _SIX_BYTES = b"\0\0\0\xff\xff", b"\x01\0\0\xff\xff", b"\x02\0\0\0\xff\xff"
_CRAM_START = 26  # bytes: magic, version, name of the file
_CRC = struct.Struct("<I")


def damaged_header(content: bytes, draw: Random) -> bytes:
    """Return a VCF with a damaged header; the records are unchanged."""
    end = content.index(b"\n#CHROM") + 1
    return damaged_text(content[:end], draw) + content[end:]


def roomy_bam(content: bytes) -> bytes:
    """Return an uncompressed BAM whose header has room, so that another header moves no read."""
    header, *blocks = _bgzf_blocks(content)
    return stored_block(header, _ROOM) + b"".join(map(stored_block, blocks))


def damaged_bam(content: bytes, draw: Random) -> bytes:
    """Return a BAM of `roomy_bam` with a damaged header or damaged reads, at the offsets of the index."""
    if draw.random() < RAW:
        return damaged_bytes(content, draw)
    header, *blocks = _bgzf_blocks(content)
    if draw.random() < 0.7:
        end = 8 + int.from_bytes(header[4:8], "little")
        text = damaged_text(header[8:end], draw)
        header = header[:4] + struct.pack("<i", len(text)) + text + header[end:]
    elif draw.random() < 0.3:
        header = in_place(header, draw)
    else:
        at = draw.randrange(len(blocks))
        blocks[at] = damaged_bytes(blocks[at], draw)[: len(blocks[at])].ljust(len(blocks[at]), b"\0")
    pieces = [header[start : start + _MOST_STORED] for start in range(0, len(header), _MOST_STORED)]
    return b"".join([stored_block(piece, _ROOM) for piece in pieces] + [stored_block(one) for one in blocks])


def stored_block(data: bytes, size: int = 0) -> bytes:
    """Return an uncompressed BGZF block, padded to this size with empty pieces if the data leave room."""
    if not data:
        return EOF_BLOCK
    packed = b"\0" + struct.pack("<HH", len(data), len(data) ^ 0xFFFF) + data
    missing = size - (18 + len(packed) + len(_LAST_PIECE) + 8)
    if missing >= 20:
        packed += missing % 5 * _SIX_BYTES + (missing // 5 - missing % 5) * _FIVE_BYTES
    packed += _LAST_PIECE
    head = _BGZF_START + struct.pack("<H", 18 + len(packed) + 8 - 1)
    return head + packed + struct.pack("<II", zlib.crc32(data), len(data))


def _bgzf_blocks(content: bytes) -> Iterator[bytes]:
    """What the blocks hold."""
    at = 0
    while at < len(content):
        size = int.from_bytes(content[at + 16 : at + 18], "little") + 1
        yield zlib.decompress(content[at + 18 : at + size - 8], -15)
        at += size


def roomy_cram(content: bytes) -> bytes:
    """Return a CRAM whose header has room, so that another header moves no read."""
    first, *others = _containers(content)
    first.blocks[:] = [_text_block(_text_of(first.blocks[0]))]
    header = bytes(6) + bytes([1, 1, 0])  # no reference, place, length, records, bases; one block, at 0
    return content[:_CRAM_START] + b"".join(map(_packed, [_Container(header, first.blocks), *others]))


class _Container(NamedTuple):
    """A container of a CRAM: its header behind the length and before the checksum, and its blocks."""

    header: bytes
    blocks: list[bytes]  # without their checksums


def damaged_cram(content: bytes, draw: Random) -> bytes:
    """Return a CRAM with a damaged header, container or block; the checksums are correct."""
    if draw.random() < RAW:
        return damaged_bytes(content, draw)
    containers = list(_containers(content))
    if draw.random() < 0.5:
        containers[0].blocks[0] = _text_block(damaged_text(_text_of(containers[0].blocks[0]), draw))
    else:
        at = draw.randrange(len(containers))
        header, blocks = containers[at]
        if draw.random() < 0.3:
            containers[at] = _Container(in_place(header, draw), blocks)
        else:
            number = draw.randrange(len(blocks))
            blocks[number] = in_place(blocks[number], draw)
    return content[:_CRAM_START] + b"".join(_packed(one) for one in containers)


def _packed(container: _Container) -> bytes:
    blocks = b"".join(block + _CRC.pack(zlib.crc32(block)) for block in container.blocks)
    header = struct.pack("<i", len(blocks)) + container.header
    return header + _CRC.pack(zlib.crc32(header)) + blocks


def _containers(content: bytes) -> Iterator[_Container]:
    at = _CRAM_START
    while at < len(content):
        (length,) = struct.unpack_from("<i", content, at)
        start = at = at + 4
        for _ in range(4):  # the reference, where it starts, its length, the records
            _, at = _itf8(content, at)
        for _ in range(2):
            at = _after_ltf8(content, at)  # a number of records, of bases
        _, at = _itf8(content, at)  # blocks
        n_landmarks, at = _itf8(content, at)
        for _ in range(n_landmarks):
            _, at = _itf8(content, at)
        header, at = content[start:at], at + _CRC.size
        end, blocks = at + length, []
        while at < end:
            data, _ = _data_of(content, at)
            blocks.append(content[at : data.stop])
            at = data.stop + _CRC.size
        yield _Container(header, blocks)


def _data_of(content: bytes, block: int) -> tuple[slice, int]:
    """Where the data of a block lies, and how long they are when unpacked."""
    _, at = _itf8(content, block + 2)  # behind the method and the kind: a number
    size, at = _itf8(content, at)
    raw_size, at = _itf8(content, at)
    return slice(at, at + size), raw_size


def _text_of(block: bytes) -> bytes:
    """The header's text in the first block, without the path of the reference: it differs from run to run."""
    data, _ = _data_of(block, 0)
    unpacked = zlib.decompress(block[data], 31) if block[0] == 1 else block[data]
    return re.sub(rb"\tUR:\S+", b"", unpacked[4 : 4 + struct.unpack_from("<i", unpacked)[0]])


def _text_block(text: bytes) -> bytes:
    """A block with a header's text, not compressed, of the same size where there is room."""
    data = (struct.pack("<i", len(text)) + text).ljust(_ROOM, b"\0")
    return bytes(3) + 2 * _as_itf8(len(data)) + data


def _itf8(content: bytes, at: int) -> tuple[int, int]:
    """A number of 32 bits, whose first byte has as many leading ones as bytes follow; and what follows it."""
    first = content[at]
    more = next((n for n in range(4) if not first & (0x80 >> n)), 4)
    value = int.from_bytes(content[at : at + 1 + more], "big")
    if more == 4:  # of the last byte, four bits count
        value = value >> 4 & 0xFFFFFFF0 | content[at + 4] & 0x0F
    else:
        value &= (1 << 7 * (more + 1)) - 1
    return value, at + 1 + more


def _after_ltf8(content: bytes, at: int) -> int:
    """Where a number of 64 bits, written in the same way, ends."""
    return at + 1 + next((n for n in range(8) if not content[at] & (0x80 >> n)), 8)


def _as_itf8(number: int) -> bytes:
    """As short as can be, which htslib relies on; below 2^28."""
    more = next(n for n in range(4) if number < 1 << 7 * (n + 1))
    return (number | (0xF00 >> more & 0xFF) << 8 * more).to_bytes(more + 1, "big")
