"""Read and write safetensors files: named tensors with JSON metadata, a format name and a checksum.

Trained models and training states are stored in this format.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from spinimpute.runtime.errors import InputError, why_no_file


def save_tensors(
    path: str | Path, tensors: Mapping[str, np.ndarray], metadata: dict[str, Any], kind: str
) -> None:
    """Write tensors and JSON metadata to a temporary file, and rename it when it is complete.

    `kind` is the name and version of the format, for example "spinimpute-checkpoint-1".
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        encoded = save(
            {name: np.asarray(tensor, order="C") for name, tensor in tensors.items()},
            {
                "format": kind,
                "metadata": json.dumps(metadata, sort_keys=True),
                "fingerprint": fingerprint(tensors),
            },
        )
        temporary.write_bytes(encoded)
        os.replace(temporary, path)
    except (OSError, SafetensorError) as error:
        raise InputError("write", f"cannot write {path}: {error}") from error
    finally:
        temporary.unlink(missing_ok=True)


def load_tensors(path: str | Path, kind: str, what: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the tensors and metadata of a file that `save_tensors` wrote.

    `what` names the content in messages, such as "model". Raises InputError if the file is damaged, or if its
    format is not `kind`.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError("read", f"{what} {path}: {why_no_file(path)}")
    if not os.access(path, os.R_OK):  # safetensors would say that there is no such file
        raise InputError("read", f"{what} {path}: cannot be opened: {os.strerror(errno.EACCES)}")
    try:
        with safe_open(str(path), framework="numpy") as file:
            header = file.metadata() or {}
            found = header.get("format")
            if found != kind:
                if found is not None and found.rpartition("-")[0] == kind.rpartition("-")[0]:
                    raise InputError(
                        "mismatch",
                        f"{what} {path} is of another version of spinimpute (its format is {found!r}, this "
                        f"version reads {kind!r}). Make it again with this version or read it with the other",
                    )
                raise InputError(
                    "content",
                    f"{path} is not a {what} of spinimpute (its format is {found!r}, expected {kind!r})",
                )
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            metadata = json.loads(header["metadata"])
        if header["fingerprint"] != fingerprint(tensors):
            raise InputError(
                "damaged", f"{what} {path}: damaged: its values do not match their checksum; copy it again"
            )
    except (SafetensorError, OSError, ValueError, KeyError) as error:
        raise InputError(
            "damaged", f"{what} {path}: not a readable safetensors file ({error}); copy it again"
        ) from error
    return tensors, metadata


def fingerprint(tensors: Mapping[str, np.ndarray]) -> str:
    """Return a checksum of the tensors and their names, 16 hexadecimal digits. Metadata are not included."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        digest.update(name.encode())
        digest.update(tensors[name].tobytes())
    return digest.hexdigest()[:16]
