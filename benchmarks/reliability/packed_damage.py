"""Damage with correct checksums and lengths: the content of a file is changed, and then packed again."""

from __future__ import annotations

import copy
import gzip
import io
import json
import lzma
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any

import numpy as np
from safetensors.numpy import load, save

from benchmarks.reliability.damage import FIELDS, NUMBERS, Damage, damaged_bytes, damaged_text
from benchmarks.reliability.inputs import bgzf, checksum_of, in_one_order
from spinimpute.panels import inducing_panel, panel
from spinimpute.panels.container import compress as _compressed
from spinimpute.panels.file_kind import CRC, FileKind
from spinimpute.runtime.tensor_files import fingerprint
from spinimpute.vcf.bcf_format import RECORD_LENGTHS, START_BYTES, file_start, header_length

RAW = 0.2  # so often a file is damaged as it is
BLOCK = 2_000  # bytes of a BGZF block: small, so that a small file has several
_LZMA = [{"id": lzma.FILTER_LZMA2, "dict_size": 2**20}]
_TEXT_SECTIONS = ("ref", "alt", "id")
_VALUES: tuple[Any, ...] = (
    None, True, False, -1, 0, 1, 2, 3, 1.5, -0.0, 1e300, float("nan"), float("inf"), 2**31, 2**62,
    -(2**63), 2**70, "", "x", "\ud800", "\x1b[31m", "\x00", "20", "9" * 400, "A" * 100_000, [], [1], ["x"],
    [[]], {}, {"x": 1},
)  # fmt: skip
_FLOATS = (float("nan"), float("inf"), -float("inf"), 0.0, -1.0, 1e30, 3e38, 1e-45)


def behind_gzip(damage: Damage) -> Damage:
    """Damage the content of a gzip file, or occasionally the file."""

    def damaged(content: bytes, draw: Random) -> bytes:
        if draw.random() < RAW:
            return damaged_bytes(content, draw)
        inner = damage(gzip.decompress(content), draw)
        if draw.random() < 0.1:
            half = len(inner) // 2
            return gzip.compress(inner[:half], 1, mtime=0) + gzip.compress(inner[half:], 1, mtime=0)
        return gzip.compress(inner, 1, mtime=0)

    return damaged


def behind_bgzf(damage: Damage) -> Damage:
    """Damage the content of a BGZF file. Whole blocks may be lost, repeated or exchanged."""

    def damaged(content: bytes, draw: Random) -> bytes:
        action = draw.random()
        if action < RAW:
            return damaged_bytes(content, draw)
        if action < 0.9:
            return bgzf(damage(gzip.decompress(content), draw), BLOCK)
        blocks = list(_blocks(content))
        first, second = draw.randrange(len(blocks)), draw.randrange(len(blocks))
        blocks[first : first + 1] = draw.choice(([], [blocks[first]] * 2, [blocks[second]]))
        return b"".join(blocks)

    return damaged


def behind_zip(damage: Damage) -> Damage:
    """Damage the content of a zip archive of one file."""

    def damaged(content: bytes, draw: Random) -> bytes:
        if draw.random() < RAW:
            return damaged_bytes(content, draw)
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            (name,) = archive.namelist()
            inner = damage(archive.read(name), draw)
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", draw.choice((zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2))) as archive:
            archive.writestr(zipfile.ZipInfo(draw.choice(("genome.txt", "\x1b[31m", "../x"))), inner)
        return out.getvalue()

    return damaged


def damaged_bcf(stream: bytes, draw: Random) -> bytes:
    """Damage the header of an unpacked BCF, or bytes of a record; all lengths are correct."""
    if draw.random() < RAW:
        return damaged_bytes(stream, draw)
    start = START_BYTES + header_length(stream[:START_BYTES])
    header, records = stream[START_BYTES : start - 1], list(_records(stream[start:]))
    action = draw.random()
    if action < 0.3:
        header = damaged_text(header, draw)
    elif action < 0.8:
        at = draw.randrange(len(records))
        shared, own = records[at]
        if draw.random() < 0.6:
            shared = in_place(shared, draw)
        else:
            own = in_place(own, draw)
        records[at] = shared, own
    else:
        first, second = draw.randrange(len(records)), draw.randrange(len(records))
        records[first : first + 1] = draw.choice(([], [records[first]] * 2, [records[second]]))
    packed = (RECORD_LENGTHS.pack(len(shared), len(own)) + shared + own for shared, own in records)
    return file_start(header) + b"".join(packed)


def damaged_panel(kind: FileKind) -> Damage:
    """Damage the preamble, header, sections or parts of a panel file; the checksums are correct."""

    def damaged(content: bytes, draw: Random) -> bytes:
        action = draw.random()
        if action < 0.1:
            return damaged_bytes(content, draw)
        header, sections, parts = unpacked_panel(content, kind)
        if action < 0.2:
            return _other_preamble(content, kind, draw)
        if action < 0.5:
            return assembled(kind, _other_values(header, draw), sections, parts)
        if action < 0.6:
            text = json.dumps(header).encode()
            return assembled(kind, damaged_text(text, draw), sections, parts)
        if parts and action < 0.75:
            at = draw.randrange(len(parts))
            parts[at] = in_place(parts[at], draw)
        else:
            name = draw.choice(sorted(sections))
            damage = damaged_text if name in _TEXT_SECTIONS and draw.random() < 0.8 else in_place
            sections[name] = damage(sections[name], draw)
        return assembled(kind, header, sections, parts)

    return damaged


damaged_spin = damaged_panel(panel.KIND)
damaged_spip = damaged_panel(inducing_panel.KIND)


def damaged_joined(content: bytes, draw: Random) -> bytes:
    """Damage the offsets in a file of several panels, or one of the panels; the checksums are correct."""
    kind = panel.KIND
    first = len(kind.joined_magic)
    (count,) = struct.unpack_from("<I", content, first)
    places = list(struct.iter_unpack("<QQ", content[first + 4 : first + 4 + 16 * count]))
    if draw.random() < RAW:
        return damaged_bytes(content, draw)
    if draw.random() < 0.4:
        at = draw.randrange(count)
        places[at] = draw.choice(
            ((draw.choice(NUMBERS), places[at][1]), (places[at][0], draw.choice(NUMBERS)), places[-1 - at])
        )
        return _joined(places, content)
    pieces = [content[start : start + size] for start, size in places]
    at = draw.randrange(count)
    pieces[at] = damaged_spin(pieces[at], draw) if draw.random() < 0.8 else pieces[-1 - at]
    start = places[0][0]
    body, new = b"", []
    for piece in pieces:
        body += bytes(-len(body) % 64)
        new.append((start + len(body), len(piece)))
        body += piece
    return _joined(new, content[:start] + body)


def damaged_model(content: bytes, draw: Random) -> bytes:
    """Damage a model: the description of its tensors, its metadata or its weights."""
    action = draw.random()
    if action < 0.1:
        return damaged_bytes(content, draw)
    length = int.from_bytes(content[:8], "little")
    head = json.loads(content[8 : 8 + length])
    if action < 0.35:
        return _with_head(json.dumps(_other_values(head, draw)).encode(), content[8 + length :])
    metadata = head["__metadata__"]
    if action < 0.75:
        inner = _other_values(json.loads(metadata["metadata"]), draw)
        if isinstance(inner, dict) and {"checksum", "description"} <= set(inner):  # of a table's model
            inner["checksum"] = checksum_of(inner["description"])
        metadata["metadata"] = json.dumps(inner)
        return _with_head(json.dumps(head).encode(), content[8 + length :])
    if action < 0.8:
        return _with_head(damaged_text(content[8 : 8 + length], draw), content[8 + length :])
    tensors = {name: np.array(tensor) for name, tensor in load(content).items()}
    name = draw.choice(sorted(tensors))
    tensor = tensors[name].reshape(-1)
    change = draw.random()
    if change < 0.6 and tensor.size:
        start = draw.randrange(tensor.size)
        with np.errstate(all="ignore"):
            value = np.array(draw.choice(_FLOATS), np.float64)
            tensor[start : start + draw.choice((1, 10, tensor.size))] = (
                value.astype(tensor.dtype) if tensor.dtype.kind == "f" else draw.choice((0, 1, 2, 127))
            )
    elif change < 0.8:
        tensors[name] = tensor[: draw.randint(0, tensor.size)].copy()
    else:
        del tensors[name]
    metadata["fingerprint"] = fingerprint(tensors)
    return in_one_order(save(tensors, metadata))


def unpacked_panel(content: bytes, kind: FileKind) -> tuple[dict[str, Any], dict[str, bytes], list[bytes]]:
    """Return header, sections and parts of a panel file, decompressed."""
    _, _, _, offset, length, _ = kind.preamble.unpack_from(content)
    header = json.loads(content[offset : offset + length])
    sections = {}
    for name, place in header.pop("sections").items():
        stored = content[place["offset"] : place["offset"] + place["nbytes"]]
        sections[name] = _decompressed(stored)
    parts = []
    for start, nbytes, _ in struct.iter_unpack("<QII", sections.pop("parts")):
        parts.append(_decompressed(content[start : start + nbytes]))
    return header, sections, parts


def assembled(
    kind: FileKind,
    header: dict[str, Any] | bytes,
    sections: Mapping[str, bytes],
    parts: Sequence[bytes],
    *,
    stored_sections: Mapping[str, bytes] | None = None,
    stored_parts: Mapping[int, bytes] | None = None,
) -> bytes:
    """Return a panel file with correct checksums.

    Parameters
    ----------
    kind : FileKind
        Kind of the file.
    header : dict or bytes
        Entries of the header. In bytes (a JSON object), the offsets of the sections replace the last byte.
    sections, parts : bytes by name, and in their order
        Contents.
    stored_sections, stored_parts : mapping
        Stored bytes that replace some of the contents.

    Returns
    -------
    bytes
        The file.
    """
    body = bytearray(kind.preamble_bytes)
    table = b""
    for number, part in enumerate(parts):
        content = (stored_parts or {}).get(number) or _compressed(part)
        table += struct.pack("<QII", len(body), len(content), zlib.crc32(content))
        body += content
    places = {}
    for name, section in (dict(sections) | {"parts": table}).items():
        content = (stored_sections or {}).get(name) or _compressed(section)
        places[name] = {"offset": len(body), "nbytes": len(content), "crc": zlib.crc32(content)}
        body += content
    if isinstance(header, bytes):
        encoded = header[:-1] + b', "sections": ' + json.dumps(places).encode() + b"}"
    else:
        encoded = json.dumps({"sections": places} | header).encode()
    return _sealed(kind, bytes(body), encoded, kind.version)


def _blocks(content: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(content):
        size = int.from_bytes(content[at + 16 : at + 18], "little") + 1
        yield content[at : at + size]
        at += size


def _records(stream: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = 0
    while at < len(stream):
        n_shared, n_own = RECORD_LENGTHS.unpack_from(stream, at)
        at += RECORD_LENGTHS.size
        yield stream[at : at + n_shared], stream[at + n_shared : at + n_shared + n_own]
        at += n_shared + n_own


def in_place(content: bytes, draw: Random) -> bytes:
    """Damage bytes, mostly without changing the length, which is often checked first."""
    out = damaged_bytes(content, draw)
    return out[: len(content)].ljust(len(content), b"\0") if draw.random() < 0.7 else out


def _decompressed(stored: bytes) -> bytes:
    return lzma.decompress(stored, lzma.FORMAT_RAW, filters=_LZMA)


def _sealed(kind: FileKind, body: bytes, header: bytes, version: int) -> bytes:
    total = len(body) + len(header)
    preamble = kind.preamble.pack(kind.magic, version, zlib.crc32(header), len(body), len(header), total)
    return preamble + CRC.pack(zlib.crc32(preamble)) + body[kind.preamble_bytes :] + header


def _other_preamble(content: bytes, kind: FileKind, draw: Random) -> bytes:
    magic, *numbers = kind.preamble.unpack_from(content)
    at = draw.randrange(len(numbers))
    most = 2**32 if at < 2 else 2**64  # the version and the checksum are shorter
    numbers[at] = (draw.choice((*NUMBERS, numbers[at])) + draw.randint(-1, 1)) % most
    preamble = kind.preamble.pack(magic, *numbers)
    return preamble + CRC.pack(zlib.crc32(preamble)) + content[kind.preamble_bytes :]


def _joined(places: list[tuple[int, int]], content: bytes) -> bytes:
    magic = panel.KIND.joined_magic
    head = magic + struct.pack("<I", len(places)) + b"".join(struct.pack("<QQ", *place) for place in places)
    head += CRC.pack(zlib.crc32(head))
    return head + content[len(head) :]


def _with_head(head: bytes, data: bytes) -> bytes:
    return len(head).to_bytes(8, "little") + head + data


def _other_values(tree: Any, draw: Random) -> Any:
    """JSON with one or two of its values replaced, or taken out."""
    for _ in range(draw.randint(1, 2)):
        paths = list(_paths(tree))
        if not paths:
            return copy.deepcopy(draw.choice(_VALUES))
        *outer, key = draw.choice(paths)
        holder = tree
        for step in outer:
            holder = holder[step]
        action = draw.random()
        if action < 0.15:
            del holder[key]
        elif action < 0.3 and isinstance(holder[key], str):
            holder[key] += draw.choice(FIELDS).decode("utf-8", "surrogateescape")
        elif action < 0.45 and type(holder[key]) in (int, float):
            holder[key] = draw.choice((holder[key] + 1, holder[key] - 1, -holder[key], holder[key] * 1_000))
        else:
            holder[key] = copy.deepcopy(draw.choice(_VALUES))  # it may be changed in its turn
    return tree


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where the values are in JSON; of long lists the first ones."""
    if path:
        yield path
    inner = (
        value.items() if isinstance(value, dict) else enumerate(value[:3]) if isinstance(value, list) else ()
    )
    for key, each in inner:
        yield from _paths(each, (*path, key))
