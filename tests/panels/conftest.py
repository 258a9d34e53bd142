"""Small panel files, and panel files with valid checksums and changed contents."""

import copy
import json
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import spinimpute
from spinimpute.genotypes.sites import Region
from spinimpute.panels import inducing_panel, panel
from spinimpute.panels.container import Container, ContainerWriter, compress
from spinimpute.panels.file_kind import FileKind

KINDS: dict[str, FileKind] = {"spin": panel.KIND, "spip": inducing_panel.KIND}

Change = Callable[[dict[str, Any], dict[str, bytes], list[bytes]], None]


@pytest.fixture(scope="session")
def files(example: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Small panel files of both kinds."""
    folder = tmp_path_factory.mktemp("small_panels")
    spin, spip = folder / "p.spin", folder / "p.spip"
    region = Region("20", 1, 120_000)
    with spinimpute.build_panel(example / "panel.vcf.gz", spin, example / "genetic.map", region) as built:
        array = np.arange(3, built.n_sites, 40)
        spinimpute.build_inducing_panel(built, spip, array, inducing_points=8).close()
    return {"spin": spin, "spip": spip}


def header_of(content: bytes, kind: FileKind) -> dict[str, Any]:
    _, _, _, offset, length, _ = kind.preamble.unpack_from(content)
    header: dict[str, Any] = json.loads(content[offset : offset + length])
    return header


def sealed(content: bytes, kind: FileKind, header: bytes, **preamble: int) -> bytes:
    """A file with another header, or other numbers in its preamble, and with valid checksums."""
    magic, version, _, offset, _, _ = kind.preamble.unpack_from(content)
    numbers = {
        "version": version,
        "crc": zlib.crc32(header),
        "offset": offset,
        "length": len(header),
        "total": offset + len(header),
    } | preamble
    first = kind.preamble.pack(magic, *numbers.values())
    crc = struct.pack("<I", zlib.crc32(first))
    return first + crc + content[kind.preamble_bytes : offset] + header


def rewritten(source: Path, out: Path, change: Change) -> Path:
    """The file after `change` has changed its header, sections and blocks in place."""
    kind = KINDS[source.suffix[1:]]
    with Container(source, kind) as opened:
        sections = {name: opened.section(name) for name in opened.sections if name != "parts"}
        parts = [opened.block(number) for number in range(opened.n_blocks)]
        header = copy.deepcopy(opened.header)
    change(header, sections, parts)
    with out.open("wb") as file:
        writer = ContainerWriter(file, kind)
        for part in parts:
            writer.add_block(compress(part))
        for name, section in sections.items():
            writer.add_section(name, section)
        writer.finish(header, {})
    return out
