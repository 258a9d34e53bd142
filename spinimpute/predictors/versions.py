"""Versions of everything that results depend on."""

from __future__ import annotations

import platform
import re
from importlib.metadata import PackageNotFoundError, requires, version

from spinimpute.predictors import registry
from spinimpute.predictors.loading import FORMAT
from spinimpute.runtime.devices import choose_threads
from spinimpute.runtime.tensor_files import fingerprint, load_tensors


def environment() -> dict[str, str]:
    """Versions, by name: spinimpute, its shipped models, Python, each library, the system and the GPU."""
    import torch  # slow to load, and wanted here alone

    found = {"spinimpute": version("spinimpute")}
    shipped = {row.name: row.shipped_checkpoint for row in registry.PREDICTORS if row.shipped is not None}
    for name, path in sorted(shipped.items()):
        weights, _ = load_tensors(path, FORMAT, "model")
        found[f"model {name}"] = fingerprint(weights)
    found["python"] = platform.python_version()
    for name in _libraries():
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "missing"
    found["system"] = f"{platform.system()} {platform.release()} {platform.machine()}"
    found["processors"] = str(choose_threads(None))
    found["gpu"] = torch.cuda.get_device_name() if torch.cuda.is_available() else "none that torch can use"
    return found


def _libraries() -> list[str]:
    """Names of the required libraries; those of extras carry a marker."""
    wanted = requires("spinimpute") or []
    return sorted(re.split(r"[^\w.-]", line, maxsplit=1)[0] for line in wanted if "extra ==" not in line)
