"""Files of training states, from which interrupted runs continue."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from spinimpute.nn.model_weights import arrays_of, tensors_of
from spinimpute.runtime.errors import InputError, argument
from spinimpute.runtime.tensor_files import load_tensors, save_tensors

PLAIN = ("run", "step", "best", "stale", "launch")  # entries of a state that JSON can hold


@dataclass(frozen=True)
class TrainingState:
    """The state of a run between two steps."""

    run: dict[str, Any]  # JSON, describes what is trained
    step: int  # number of steps so far
    best: float  # lowest validation loss so far
    stale: int  # number of validations since the lowest loss
    launch: str  # identifies the torchrun that started the process, see `processes.launch_id`
    content: dict[str, Any]  # weights, optimiser and schedule: nested dicts of tensors and JSON values

    def save(self, path: str | Path, kind: str) -> None:
        """Write a file of the format `kind`. Raise InputError if it cannot be written."""
        tensors: dict[str, Tensor] = {}
        metadata = {name: getattr(self, name) for name in PLAIN}
        metadata["plain"] = _flatten(self.content, "", tensors)
        save_tensors(path, arrays_of(tensors), metadata, kind)

    @classmethod
    def load(cls, path: str | Path, kind: str) -> TrainingState:
        """Read a state. Raise InputError if the file is missing or damaged, or lacks an entry."""
        arrays, metadata = load_tensors(path, kind, "training state")
        try:
            plain = {name: metadata[name] for name in PLAIN}
            return cls(**plain, content=_unflatten(metadata["plain"], tensors_of(arrays)))
        except KeyError as error:
            raise InputError(
                "mismatch",
                f"training state {path} lacks {error}; it may be of another version. Start again with "
                f"{argument('force', True)}.",
            ) from error


def differences(stored: Any, current: Any, name: str = "") -> list[str]:
    """Describe each difference of two JSON values: its name and both values."""
    if isinstance(stored, dict) and isinstance(current, dict):
        return [
            difference
            for key in sorted(stored.keys() | current.keys())
            for difference in differences(stored.get(key), current.get(key), f"{name}.{key}" if name else key)
        ]
    return (
        [] if stored == current else [f"{name} is {_shorten(stored)} in the state, {_shorten(current)} now"]
    )


def _shorten(value: Any) -> str:
    text = "absent" if value is None else json.dumps(value)
    return text if len(text) < 80 else "something else"


def _flatten(value: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    """Convert nested values to JSON; move tensors to a dict, whose keys are their paths."""
    if isinstance(value, Tensor):
        tensors[name] = value
        return {"__tensor__": name}
    if isinstance(value, dict):
        # a list of pairs, because optimisers have integer keys, which JSON would turn into strings
        return {"__dict__": [[key, _flatten(v, f"{name}/{key}", tensors)] for key, v in value.items()]}
    if isinstance(value, list | tuple):
        return [_flatten(v, f"{name}/{i}", tensors) for i, v in enumerate(value)]
    json.dumps(value)
    return value


def _unflatten(value: Any, tensors: dict[str, Tensor]) -> Any:
    """Invert `_flatten`."""
    if isinstance(value, dict) and "__tensor__" in value:
        return tensors[value["__tensor__"]]
    if isinstance(value, dict):
        return {key: _unflatten(v, tensors) for key, v in value["__dict__"]}
    if isinstance(value, list):
        return [_unflatten(v, tensors) for v in value]
    return value
