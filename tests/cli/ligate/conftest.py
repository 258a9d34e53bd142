"""Chunks of the example, whole files beside them, and copies that are changed."""

import gzip
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import spinimpute
from spinimpute.vcf.bgzf import EOF_BLOCK, compress_block

ABUTTING = ("20:1-300000", "20:300001-712345", "20:712346-2000000")
OVERLAPPING = ("20:1-350000", "20:300000-720000", "20:650000-2000000")
FORMATS = ("GT", "DS", "HDS", "GP")
SUFFIXES = (".vcf.gz", ".bcf", ".vcf")


@pytest.fixture(params=SUFFIXES)
def suffix(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def abutting() -> tuple[str, ...]:
    return ABUTTING


@pytest.fixture
def overlapping() -> tuple[str, ...]:
    return OVERLAPPING


@pytest.fixture(scope="session")
def opened(panel: Path) -> Any:
    with spinimpute.Panel.open(panel) as opened_panel:
        yield opened_panel


@pytest.fixture(scope="session")
def impute() -> Callable[..., Path]:
    """impute(vcf, out, panel, region=None, **options) -> out."""

    def run(vcf: Path, out: Path, panel: Any, region: str | None = None, **options: Any) -> Path:
        output = spinimpute.OutputSettings(
            options.pop("formats", FORMATS), decimals=options.pop("decimals", 3)
        )
        spinimpute.impute(
            vcf,
            out,
            panel,
            region=spinimpute.RegionSettings(region=region),
            resources=spinimpute.Resources(threads=1),
            output=output,
            **options,
        )
        return out

    return run


@pytest.fixture(scope="session")
def made(
    example: Path, opened: Any, impute: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A folder of files of the example's phased target: whole.*, and chunks a0.*, a1.* ..., o0.*, o1.* ..."""
    folder = tmp_path_factory.mktemp("chunks")
    for suffix in SUFFIXES:
        impute(example / "target.vcf.gz", folder / f"whole{suffix}", opened)
        for letter, regions in (("a", ABUTTING), ("o", OVERLAPPING)):
            for number, region in enumerate(regions):
                out = folder / f"{letter}{number}{suffix}"
                impute(example / "target.vcf.gz", out, opened, region)
    return folder


@pytest.fixture
def unphased(edited_target: Callable[[Callable[[str], str]], Path]) -> Path:
    def unphase(text: str) -> str:
        return re.sub(r"\t([01])\|([01])", lambda m: f"\t{min(m[1], m[2])}/{max(m[1], m[2])}", text)

    return edited_target(unphase)


@pytest.fixture(scope="session")
def content() -> Callable[[Path], bytes]:
    """content(path): of a file, uncompressed."""

    def read(path: Path) -> bytes:
        data = path.read_bytes()
        return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data

    return read


@pytest.fixture(scope="session")
def rewritten(content: Callable[[Path], bytes]) -> Callable[..., Path]:
    """rewritten(path, out, change): a copy whose content is changed, with new checksums."""

    def rewrite(path: Path, out: Path, change: Callable[[bytes], bytes]) -> Path:
        data = change(content(path))
        if path.suffix == ".vcf":
            out.write_bytes(data)
            return out
        step = 0xFF00
        blocks = [compress_block(data[start : start + step]) for start in range(0, len(data), step)]
        out.write_bytes(b"".join(blocks) + EOF_BLOCK)
        return out

    return rewrite
