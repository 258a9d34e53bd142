"""The saved inducing points: complete or refused; and the array functions at their edges."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

import spinimpute
from spinimpute.errors import InputError
from spinimpute.imputation import allele_predictor
from spinimpute.imputation.allele_predictor import AllelePredictor

TYPED = np.arange(7, 4_400, 45)


@pytest.fixture
def alleles(rng: np.random.Generator) -> np.ndarray:
    return rng.integers(-1, 2, (len(TYPED), 4)).astype(np.int8)


@pytest.fixture
def saved(example_panel: spinimpute.Panel, random_predictor: AllelePredictor, tmp_path: Path) -> Path:
    path = tmp_path / "h.safetensors"
    spinimpute.encode_panel(example_panel, TYPED, random_predictor).save(path)
    return path


def contents(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    with safe_open(str(path), framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, file.metadata()  # noqa: SIM118


@pytest.mark.parametrize("threads", [2, 3])
def test_the_same_points_for_any_number_of_threads(
    threads: int,
    example_panel: spinimpute.Panel,
    random_predictor: AllelePredictor,
    tmp_path: Path,
) -> None:
    """The same numbers, not the same bytes: safetensors writes its metadata in no particular order."""
    spinimpute.encode_panel(example_panel, TYPED, random_predictor, threads=1).save(tmp_path / "one")
    spinimpute.encode_panel(example_panel, TYPED, random_predictor, threads=threads).save(tmp_path / "more")
    (one, described), (more, other) = contents(tmp_path / "one"), contents(tmp_path / "more")
    assert described == other
    assert one.keys() == more.keys()
    for name, tensor in one.items():
        assert torch.equal(tensor, more[name]), name


def test_blocks_cover_the_panel(saved: Path, example_panel: spinimpute.Panel) -> None:
    opened = spinimpute.InducingPanel.open(saved)
    covered = np.concatenate([block.sites.panel_index_U for block in opened.blocks])
    np.testing.assert_array_equal(covered, np.arange(example_panel.n_sites))
    np.testing.assert_array_equal(opened.typed_index, TYPED)
    np.testing.assert_allclose(opened.frequency, example_panel.frequency, rtol=1e-6)


def test_damaged_files_are_refused(saved: Path, tmp_path: Path) -> None:
    content = saved.read_bytes()
    tensors, metadata = contents(saved)
    for name in ("cut", "half", "text", "tensor", "list"):
        path = tmp_path / name
        if name == "cut":
            path.write_bytes(content[:-3])
        elif name == "half":
            path.write_bytes(content[: len(content) // 2])
        elif name == "text":
            path.write_bytes(b"inducing points")
        elif name == "tensor":
            save_file({k: v for k, v in tensors.items() if k != "frequency"}, str(path), metadata)
        else:
            save_file(tensors, str(path), metadata | {"metadata": json.dumps([1, 2])})
        with pytest.raises(InputError, match=name):
            spinimpute.InducingPanel.open(path)
    with pytest.raises(InputError, match="absent"):
        spinimpute.InducingPanel.open(tmp_path / "absent")


@pytest.mark.parametrize(("core", "flank"), [(8, 64), (8, 132)])
def test_points_of_a_version_with_other_sizes_are_refused(
    core: int, flank: int, example_panel: spinimpute.Panel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same weights cut blocks differently in another version (16 and 128, 8 and 132: as many places)."""
    alleles = np.zeros((len(TYPED), 1), dtype=np.int8)
    compressed = spinimpute.encode_panel(
        example_panel, TYPED, spinimpute.load_predictor(inducing_points=8), threads=1
    )
    monkeypatch.setattr(allele_predictor, "CORE", core)
    monkeypatch.setattr(allele_predictor, "FLANK", flank)
    other = spinimpute.load_predictor(inducing_points=8)
    with pytest.raises(InputError, match="encode the panel again"):
        spinimpute.impute_haplotypes(compressed, alleles, TYPED, other)


def test_columns_stand_alone(
    saved: Path, example_panel: spinimpute.Panel, random_predictor: AllelePredictor, alleles: np.ndarray
) -> None:
    opened = spinimpute.InducingPanel.open(saved)
    for source in (example_panel, opened):
        together = spinimpute.impute_haplotypes(source, alleles, TYPED, random_predictor)
        alone = spinimpute.impute_haplotypes(source, alleles[:, [2]], TYPED, random_predictor)
        assert together.dtype == np.float32
        np.testing.assert_allclose(alone[:, 0], together[:, 2], atol=1e-5)
        known = alleles >= 0
        np.testing.assert_array_equal(together[TYPED][known], alleles[known])
        nobody = spinimpute.impute_haplotypes(source, alleles[:, :0], TYPED, random_predictor)
        assert nobody.shape == (example_panel.n_sites, 0)


@pytest.mark.parametrize("threads", [0, -1])
def test_the_number_of_threads_is_checked_as_in_impute(
    threads: int, example_panel: spinimpute.Panel, random_predictor: AllelePredictor, alleles: np.ndarray
) -> None:
    with pytest.raises(InputError, match="threads must be at least 1"):
        spinimpute.impute_haplotypes(example_panel, alleles, TYPED, random_predictor, threads=threads)
    with pytest.raises(InputError, match="threads must be at least 1"):
        spinimpute.encode_panel(example_panel, TYPED, random_predictor, threads=threads)
