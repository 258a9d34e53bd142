"""`train`: checkpoints with their provenance, and runs that continue bit for bit."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open

import spinimpute
from spinimpute.predictors.loading import FORMAT
from spinimpute.predictors.train import read_configuration, train
from spinimpute.runtime.errors import InputError
from spinimpute.runtime.tensor_files import load_tensors, save_tensors
from spinimpute.training.episodes import EpisodeSettings
from spinimpute.training.simulation import SimulationSettings
from spinimpute.training.trainer import TrainingSettings

REPOSITORY = Path(__file__).resolve().parents[2]
SHIPPED = REPOSITORY / "spinimpute" / "weights" / "spin.safetensors"
CONFIGURATION = """
[model]
{model}
[episodes]
blocks = 2
queries = 6
context_samples = 8
array_density = [300, 800.0]
[simulation]
segments = 3
length = [40_000, 50_000]
samples = [20, 24]
[training]
steps = {steps}
optimiser = "{optimiser}"
validate_every = 2
validation_tasks = 4
patience = {patience}
"""
# names of settings when the shipped models were trained
RECORDED_NAMES = {"simulation": {"people": "samples"}, "episodes": {"context_people": "context_samples"}}
SPIN = 'kind = "spin"\ncore = 2\nflank = 4\ninducing_points = 8\nheads = 4\npair_heads = 3'


def configuration(
    folder: Path, model: str = SPIN, steps: int = 6, optimiser: str = "adam", patience: int = 0
) -> Path:
    path = folder / "c.toml"
    path.write_text(CONFIGURATION.format(model=model, steps=steps, optimiser=optimiser, patience=patience))
    return path


def weights(path: Path) -> dict[str, torch.Tensor]:
    return load_tensors(path, FORMAT, "model")[0]


def state(path: Path) -> dict[str, torch.Tensor]:
    """Tensors of the training state: the latest weights, not the best ones."""
    with safe_open(str(path) + ".state", framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


@pytest.mark.parametrize(("model", "optimiser"), [(SPIN, "adam"), (SPIN, "lamb"), (SPIN + "\nk = 3", "lamb")])
def test_resuming_changes_nothing(
    tmp_path: Path, model: str, optimiser: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = configuration(tmp_path, model, optimiser=optimiser)
    whole, parts = tmp_path / "whole.safetensors", tmp_path / "parts.safetensors"
    train(config, whole)

    def stop(entry: dict[str, object]) -> None:
        if entry.get("step") == 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):  # after step 4 was saved, before step 6 is
        train(config, parts, progress=stop)
    result = train(config, parts, resume=True)
    assert result.steps == 6
    for mine, other in ((weights(parts), weights(whole)), (state(parts), state(whole))):
        assert mine.keys() == other.keys()
        for name, tensor in mine.items():
            assert np.array_equal(tensor, other[name]), name


def test_a_checkpoint_has_its_provenance(tmp_path: Path) -> None:
    out = tmp_path / "m.safetensors"
    entries: list[dict[str, object]] = []
    made: list[int] = []
    result = train(
        configuration(tmp_path), out, seed=4, steps=2, progress=entries.append, stepped=made.append
    )
    assert made == [1, 2]
    _, metadata = load_tensors(out, FORMAT, "model")
    provenance = metadata["provenance"]
    assert provenance["configuration"]["training"]["seed"] == 4
    assert provenance["configuration"]["simulation"]["samples"] == [20, 24]
    assert provenance["data"] == "simulated"
    assert set(provenance["versions"]) >= {"spinimpute", "torch", "numpy", "python"}
    assert provenance["validation"]["validation_r2"] == result.validation_r2
    logged = [json.loads(line) for line in (tmp_path / "m.safetensors.log.jsonl").read_text().splitlines()]
    assert logged == json.loads(json.dumps(entries))
    assert spinimpute.load_predictor(out).kind == "spin"


def test_the_seed_determines_the_weights(tmp_path: Path) -> None:
    config = configuration(tmp_path, steps=2)
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        train(config, tmp_path / name, seed=seed)
    a, b, c = (weights(tmp_path / name) for name in "abc")
    assert all(np.array_equal(a[name], b[name]) for name in a)
    assert not all(np.array_equal(a[name], c[name]) for name in a)


def test_training_on_a_panel_from_the_shipped_model(tmp_path: Path, example_panel: spinimpute.Panel) -> None:
    config = configuration(tmp_path, 'kind = "spin"\nflank = 6', steps=2)
    out = tmp_path / "tuned.safetensors"
    train(config, out, panel=example_panel.path, init="shipped")
    _, metadata = load_tensors(out, FORMAT, "model")
    assert metadata["model"]["flank"] == 6  # said by the configuration
    assert metadata["model"]["core"] == 8  # taken from the shipped model, which was trained so
    assert metadata["provenance"]["data"] == f"panel {example_panel.checksum}"
    assert metadata["provenance"]["init"]["weights"]
    tuned, shipped = weights(out), weights(SHIPPED)
    assert any(not np.array_equal(tuned[name], shipped[name]) for name in tuned)


@pytest.mark.parametrize("path", sorted((REPOSITORY / "configs").glob("*.toml")), ids=lambda path: path.stem)
def test_shipped_configurations_can_be_read(path: Path) -> None:
    assert read_configuration(path).training.steps > 0


@pytest.mark.parametrize(
    ("weights", "stages"), [("haplotype", ["haplotype_second", "haplotype"]), ("spin", ["spin"])]
)
def test_the_shipped_models_match_their_configurations(weights: str, stages: list[str]) -> None:
    _, metadata = load_tensors(SHIPPED.with_name(f"{weights}.safetensors"), FORMAT, "model")
    provenance = metadata["provenance"]
    for name in stages:  # the last one first
        assert provenance["data"] == "simulated"
        configuration = read_configuration(REPOSITORY / "configs" / f"{name}.toml")
        recorded, now = provenance["configuration"], json.loads(json.dumps(configuration.as_dict()))
        for table, names in RECORDED_NAMES.items():
            recorded[table] = {names.get(name, name): value for name, value in recorded[table].items()}
        # settings that were added since then had their default values
        for table, default in (
            ("episodes", EpisodeSettings()),
            ("simulation", SimulationSettings()),
            ("training", TrainingSettings()),
        ):
            recorded[table] = json.loads(json.dumps(dataclasses.asdict(default))) | recorded[table]
        assert recorded == now
        last = provenance
        provenance = (provenance["init"] or {}).get("provenance")
    assert last["init"] is None


def test_a_byte_order_mark_is_no_part_of_a_configuration(tmp_path: Path) -> None:
    path = configuration(tmp_path)
    before = read_configuration(path)
    path.write_text(path.read_text(), encoding="utf-8-sig")
    assert read_configuration(path) == before


DENSITY = "array_density = [300, 800.0]"
RANGE = r"episodes.array_density must be \[minimum, maximum\]"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (SPIN, 'kind = "other"', "model.kind must be one of"),
        (SPIN, "kind = []", "model.kind must be one of"),
        (SPIN, "kind = ", "not TOML"),
        (SPIN, SPIN + "\nwidht = 3", "unknown key model.widht"),
        (SPIN, SPIN + "\nhidden = 3.5", "model.hidden must be a whole number like 24"),
        (SPIN, SPIN + "\nk = 9", "model: k must be at most 8, got 9"),
        (SPIN, SPIN + "\n[other]", r"unknown table \[other\]"),
        ("inducing_points = 8", "inducing_points = 0", "model.inducing_points must be at least 1"),
        ("flank = 4", "flank = 10001", "model: flank must be an integer from 0 to 10000"),
        (
            "segments = 3",
            "gene_conversion_share = nan",
            "gene_conversion_share must be a number of at least 0",
        ),
        (DENSITY, "array_density = [300]", RANGE),
        (DENSITY, "array_density = [800.0, 300.0]", RANGE),
        (DENSITY, "array_density = 300.0", "episodes.array_density must be a list"),
    ],
)
def test_bad_configurations(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = configuration(tmp_path)
    assert read_configuration(path).episodes.array_density == (300.0, 800.0)
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(InputError, match=message):
        train(path, tmp_path / "m")
    assert not (tmp_path / "m").exists()


def test_starting_from_the_wrong_checkpoint(tmp_path: Path) -> None:
    config = configuration(tmp_path, SPIN, steps=2)
    with pytest.raises(InputError, match="is of the kind 'haplotype'"):
        train(config, tmp_path / "m", init=SHIPPED.with_name("haplotype.safetensors"))
    wide = configuration(tmp_path, SPIN + "\nhidden = 8", steps=2)
    with pytest.raises(InputError, match="weights do not fit the table"):
        train(wide, tmp_path / "m", init="shipped")
    with pytest.raises(InputError, match="to continue from"):
        train(config, tmp_path / "m", resume=True)


WRONG_SIZES = (
    ("hidden", 10**30), ("hidden", 10**6), ("core", -1), ("flank", 10**30), ("inducing_points", 2.5),
    ("heads", 10**9), ("k", 10**30), ("k", 9), ("rounds", True),
)  # fmt: skip


def test_damaged_and_foreign_checkpoints(tmp_path: Path) -> None:
    path, content = tmp_path / "m.safetensors", SHIPPED.read_bytes()

    def refused(message: str) -> None:
        with pytest.raises(InputError, match=message) as failed:
            spinimpute.load_predictor(path)
        assert "\n" not in str(failed.value)

    refused("no such file")
    flipped = bytearray(content)
    flipped[-100] ^= 4
    for wrong, message in (
        (content[:-10], "not a readable safetensors file"),
        (b"not a model", "not a readable safetensors file"),
        (bytes(flipped), "damaged: its values do not match"),
    ):
        path.write_bytes(wrong)
        refused(message)
    zeros = {"a": np.zeros(2)}
    save_tensors(path, zeros, {}, "something-else")
    refused("is not a model of spinimpute")
    save_tensors(path, zeros, {"kind": "unheard-of", "model": {}}, FORMAT)
    refused("unknown to this version")
    weights, metadata = load_tensors(SHIPPED, FORMAT, "model")
    bias = weights["decoder.last.bias"]
    forged = [(zeros, {}), *((weights, metadata["model"] | {name: value}) for name, value in WRONG_SIZES)]
    forged += [
        (weights | {"decoder.last.bias": np.full_like(bias, x)}, metadata["model"]) for x in (np.nan, np.inf)
    ]
    for tensors, model in forged:
        save_tensors(path, tensors, {"kind": "spin", "model": model}, FORMAT)
        refused("weights do not fit the settings of the model")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("c.toml", "also read from"),
        ("m.safetensors", "the log would overwrite"),
        ("m.safetensors.state", "the log would overwrite"),
    ],
)
def test_the_log_overwrites_no_other_file(tmp_path: Path, name: str, message: str) -> None:
    config = configuration(tmp_path)
    before = config.read_text()
    with pytest.raises(InputError, match=message):
        spinimpute.train(config, tmp_path / "m.safetensors", log=tmp_path / name, force=True)
    assert list(tmp_path.iterdir()) == [config]
    assert config.read_text() == before


def test_nothing_reads_pickle() -> None:
    for path in (REPOSITORY / "spinimpute").rglob("*.py"):
        text = path.read_text()
        assert "torch.load" not in text, path
        assert "pickle" not in text.replace("without pickle", "").replace("never pickle", ""), path
