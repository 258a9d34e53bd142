"""Panels and models with valid checksums and random changes are read, or refused with one line."""

import copy
import json
import random
import struct
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import spinimpute
from spinimpute.panels import site_table
from spinimpute.panels.container import Container
from spinimpute.predictors.loading import FORMAT, load_predictor
from spinimpute.predictors.registry import WEIGHTS
from spinimpute.runtime.errors import InputError
from spinimpute.runtime.tensor_files import load_tensors, save_tensors

from .conftest import KINDS, header_of, rewritten, sealed

SCALARS: list[Any] = [
    None, True, -1, 0, 1, 2, 2**31, 2**62, 2**80, 1.5, float("nan"), float("inf"), "", "x", "12", "\0", "\n",
    "20\t", "2" * 5_000, [], {}, [1], {"a": 1}, "X", "##contig=<ID=20,length=" + "9" * 5_000 + ">",
]  # fmt: skip


def places_in(value: Any, place: tuple = ()) -> Iterator[tuple]:
    """Keys and indices of all values in JSON; of lists, of the first three values."""
    if place:
        yield place
    inner = (
        value.items() if isinstance(value, dict) else enumerate(value[:3] if isinstance(value, list) else ())
    )
    for key, entry in inner:
        yield from places_in(entry, (*place, key))


def other_entry(holder: dict[str, Any], draw: random.Random) -> None:
    """Change or delete a value anywhere in JSON."""
    *outer, key = draw.choice(list(places_in(holder)))
    inner: Any = holder
    for step in outer:
        inner = inner[step]
    if draw.random() < 0.85:
        inner[key] = draw.choice(SCALARS)
    else:
        del inner[key]


def other_bytes(content: bytes, draw: random.Random) -> bytes:
    out, n = bytearray(content), len(content)
    number = draw.choice([0, -1, 2**62, -(2**62), 2**31])
    at = 8 * draw.randrange(n // 8) if n >= 8 else 0
    action = draw.randrange(6)
    if action == 0 and n:
        out[draw.randrange(n)] = draw.randrange(256)
    elif action == 1:
        del out[draw.randrange(n + 1) :]
    elif action == 2:
        out[at : at + 8] = struct.pack("<q", number)[: n - at]
    elif action == 3:
        out += draw.randbytes(draw.choice([1, 8]))
    elif action == 4 and n >= 8:
        out[at : at + 8] = struct.pack("<d", draw.choice([float("nan"), float("inf"), -5.0, 1e300]))
    elif n >= 16:
        out[:8], out[at : at + 8] = out[at : at + 8], out[:8]
    return bytes(out)


def mutated(source: Path, out: Path, draw: random.Random) -> None:
    def change(header: dict[str, Any], sections: dict[str, bytes], parts: list[bytes]) -> None:
        place = draw.random()
        if place < 0.4:
            other_entry(header, draw)
        elif place < 0.8 or not parts:
            name = draw.choice(list(sections))
            sections[name] = other_bytes(sections[name], draw)
        else:
            number = draw.randrange(len(parts))
            parts[number] = other_bytes(parts[number], draw)

    rewritten(source, out, change)


def read_or_refused(read: Callable[[], object]) -> bool:
    """Whether reading succeeds. Exceptions other than InputError fail the test."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            read()
    except InputError as error:
        assert "\n" not in str(error)  # noqa: PT017
        return False
    return True


@pytest.mark.parametrize("suffix", KINDS)
@pytest.mark.parametrize("seed", range(6))
def test_panels(files: dict[str, Path], example: Path, tmp_path: Path, suffix: str, seed: int) -> None:
    draw = random.Random(seed)
    path, out = tmp_path / f"m.{suffix}", tmp_path / "o" / "o.bcf"
    out.parent.mkdir()
    target = example / "target.vcf.gz"
    for _ in range(6):
        mutated(files[suffix], path, draw)
        done = read_or_refused(lambda: spinimpute.impute(target, out, path, force=True))
        assert done or not out.exists()
        for left in out.parent.iterdir():
            left.unlink()


@pytest.mark.parametrize("suffix", KINDS)
@pytest.mark.parametrize(
    ("section", "change"),
    [
        ("position", lambda values: values[::-1]),
        ("position", lambda values: values - values[0]),
        ("position", lambda values: values + 2**31),
        ("cM", lambda values: values[::-1]),
    ],
    ids=["falling", "from 0", "too large", "falling cM"],
)
def test_positions(
    files: dict[str, Path],
    tmp_path: Path,
    suffix: str,
    section: str,
    change: Callable[[np.ndarray], np.ndarray],
) -> None:
    def changed(header: dict[str, Any], sections: dict[str, bytes], parts: list[bytes]) -> None:
        values = site_table.decode_increasing(sections[section])
        sections[section] = site_table.encode_increasing(change(values))

    path = rewritten(files[suffix], tmp_path / f"m.{suffix}", changed)
    opener = spinimpute.Panel if suffix == "spin" else spinimpute.InducingPanel
    with (
        opener.open(path) as read,
        pytest.raises(InputError, match=r"damaged: .*positions must.*never decrease"),
    ):
        read.verify()


@pytest.mark.parametrize("entry", ["chrom", "contig_line", "checksum"])
@pytest.mark.parametrize("suffix", KINDS)
def test_texts_that_break_the_header_of_an_output(
    files: dict[str, Path], tmp_path: Path, suffix: str, entry: str
) -> None:
    content, kind = files[suffix].read_bytes(), KINDS[suffix]
    header = header_of(content, kind)
    path = tmp_path / f"m.{suffix}"
    for text in ("20\n##x", "20\tx", "20\0"):
        path.write_bytes(sealed(content, kind, json.dumps(header | {entry: text}).encode()))
        with pytest.raises(InputError, match=f"damaged: the header's entry '{entry}' is invalid"):
            Container(path, kind)


@pytest.mark.parametrize("name", ["haplotype", "spin"])
def test_models(tmp_path: Path, name: str) -> None:
    """Kernels never get weights of other sizes, whatever settings and weights a file has."""
    draw = random.Random(3)
    weights, metadata = load_tensors(WEIGHTS / f"{name}.safetensors", FORMAT, "model")
    path = tmp_path / "m.safetensors"
    refused = 0
    for _ in range(60):
        changed, said = dict(weights), copy.deepcopy(metadata)
        key = draw.choice(sorted(weights))
        tensor = weights[key]
        action = draw.randrange(8)
        if action < 2:
            other_entry(said["model"], draw)
        elif action == 2:
            del changed[key]
        else:
            others = [tensor.reshape(-1)[:0], tensor.reshape(1, -1), tensor[None], tensor.astype(np.float64)]
            changed[key] = [*others, tensor * np.float32("nan")][action - 3]
        save_tensors(path, changed, said, FORMAT)
        refused += not read_or_refused(lambda: load_predictor(path, "cpu"))
    assert refused > 20


def test_a_model_with_huge_weights(files: dict[str, Path], example: Path, tmp_path: Path) -> None:
    weights, metadata = load_tensors(WEIGHTS / "spin.safetensors", FORMAT, "model")
    path = tmp_path / "m.safetensors"
    large = {name: weight * np.float32(1e30) for name, weight in weights.items()}
    save_tensors(path, large, metadata, FORMAT)
    model = spinimpute.PredictorSettings(model=path)
    with pytest.raises(InputError, match="inducing points that are not finite"):
        spinimpute.impute(example / "target.vcf.gz", tmp_path / "o.bcf", files["spin"], predictor=model)
    assert [left.name for left in tmp_path.iterdir()] == ["m.safetensors"]
