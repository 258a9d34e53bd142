"""Recognize panels in formats that spinimpute does not read, and say how to convert them."""

from __future__ import annotations

import re
import zlib
from pathlib import Path

from spinimpute.runtime.errors import InputError
from spinimpute.runtime.unpacking import GZIP_MAGIC

_START_BYTES = 2**12
_BREF3_MAGIC = b"\x7a\x88\x74\xf4"
_ZSTANDARD_MAGIC = b"\x28\xb5\x2f\xfd"
_HAP = re.compile(rb"[01]( [01-]){3}")  # a line of IMPUTE's haplotypes
_HAPS = re.compile(rb"\S+ \S+ \d+ [A-Za-z]+ [A-Za-z]+ [01-] [01-]")  # of SHAPEIT's, with the site before them
_LEGEND = re.compile(rb"\S+ position \S+ \S+")


def refuse_foreign_panel(path: str | Path) -> None:
    """Raise InputError with the command that converts a panel, if the file has a format of another program.

    The formats are recognized by their content, and .imp5, whose format is not published, by its name.
    """
    path = Path(path)
    if not path.is_file():
        return
    start = _read_start(path)
    what = ""
    if start.startswith(_BREF3_MAGIC):
        what = (
            f"this is a panel of Beagle (.bref3). Convert it with: java -jar unbref3.jar {path} > panel.vcf"
        )
    elif start.startswith(_ZSTANDARD_MAGIC) and path.suffix != ".zst":
        what = (
            "this is a panel of Minimac4 (.msav), or another file packed with Zstandard. Export it with: sav "
            f"export {path} panel.vcf.gz (sav is a program of savvy), and give panel.vcf.gz"
        )
    elif path.suffix == ".imp5":
        what = (
            "this is a panel of IMPUTE5 (.imp5), whose format is not public. Give the VCF or BCF from which "
            "imp5Converter made it"
        )
    elif _HAPS.match(start):
        what = (
            f"these are haplotypes of SHAPEIT (.haps). Convert them with: plink2 --haps {path} ref-first "
            "--sample SAMPLE-FILE --export bcf --out panel"
        )
    elif _HAP.match(start) or _LEGEND.match(start):
        what = (
            "this is a file of IMPUTE. Build a panel from it first: spinimpute panel build --hap FILE "
            "--legend FILE --sample FILE --chromosome CHR --out panel.spin"
        )
    if what:
        raise InputError("content", f"panel {path}: {what}")


def _read_start(path: Path) -> bytes:
    """Return the first bytes of a file, decompressed if it is gzip; b"" if they cannot be read."""
    try:
        with path.open("rb") as file:
            start = file.read(_START_BYTES)
        if start.startswith(GZIP_MAGIC):
            return zlib.decompressobj(31).decompress(start, _START_BYTES)
    except (OSError, zlib.error):
        return b""
    return start
