"""Checksums of output files."""

from __future__ import annotations

import hashlib
from pathlib import Path

import cyvcf2

NO_OUTPUTS = ("inputs", "in")  # folders of files that commands read
INPUTS = NO_OUTPUTS[0]
WORDED = (".html", ".svg", ".csi", ".tbi", ".jsonl")  # their words, times or offsets may change


def outputs_in(folder: Path) -> set[Path]:
    """The output files below a folder, relative to it."""
    return {
        path.relative_to(folder)
        for path in folder.rglob("*")
        if path.is_file()
        and not set(NO_OUTPUTS) & set(path.relative_to(folder).parts)
        and path.suffix not in WORDED
    }


def checksum(path: Path) -> str:
    """SHA-256 of a file's bytes, or of the records of a VCF or BCF."""
    if not path.name.endswith((".vcf", ".vcf.gz", ".bcf")):
        return hashlib.sha256(path.read_bytes()).hexdigest()
    digest = hashlib.sha256()
    for record in cyvcf2.VCF(str(path)):
        digest.update(str(record).encode())
    return digest.hexdigest()
