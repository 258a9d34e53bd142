"""Checksums of output files."""

from __future__ import annotations

import hashlib
from pathlib import Path

import cyvcf2
from safetensors import safe_open

NO_OUTPUTS = ("inputs", "in")  # folders of files that commands read
INPUTS = NO_OUTPUTS[0]
WORDED = (".html", ".svg", ".csi", ".tbi", ".jsonl")  # their words, times or offsets may change


def outputs_in(folder: Path) -> set[Path]:
    """Return the output files below a folder, relative to the folder."""
    return {
        path.relative_to(folder)
        for path in folder.rglob("*")
        if path.is_file()
        and not set(NO_OUTPUTS) & set(path.relative_to(folder).parts)
        and path.suffix not in WORDED
    }


def checksum(path: Path) -> str:
    """Return the SHA-256 of a file. For VCF and BCF it covers the records, for a checkpoint the tensors."""
    digest = hashlib.sha256()
    if path.name.endswith((".vcf", ".vcf.gz", ".bcf")):
        for record in cyvcf2.VCF(str(path)):
            digest.update(str(record).encode())
    elif path.name.endswith((".safetensors", ".safetensors.state")):  # metadata contains memory and time
        with safe_open(path, "np") as checkpoint:
            for name in sorted(checkpoint.keys()):
                tensor = checkpoint.get_tensor(name)
                digest.update(f"{name} {tensor.dtype} {tensor.shape}".encode() + tensor.tobytes())
    else:
        digest.update(path.read_bytes())
    return digest.hexdigest()
