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
    """The training state's tensors: the latest weights, not the best ones."""
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
    tuned, shipped = weights(out), weights(REPOSITORY / "spinimpute" / "weights" / "spin.safetensors")
    assert any(not np.array_equal(tuned[name], shipped[name]) for name in tuned)


@pytest.mark.parametrize("path", sorted((REPOSITORY / "configs").glob("*.toml")), ids=lambda path: path.stem)
def test_shipped_configurations_can_be_read(path: Path) -> None:
    assert read_configuration(path).training.steps > 0


@pytest.mark.parametrize(
    ("weights", "stages"), [("haplotype", ["haplotype_second", "haplotype"]), ("spin", ["spin"])]
)
def test_the_shipped_models_match_their_configurations(weights: str, stages: list[str]) -> None:
    path = REPOSITORY / "spinimpute" / "weights" / f"{weights}.safetensors"
    _, metadata = load_tensors(path, FORMAT, "model")
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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('kind = "other"', "model.kind must be one of"),
        (SPIN + "\nwidht = 3", "unknown key model.widht"),
        (SPIN + "\nhidden = 3.5", "model.hidden must be a whole number like 24"),
        (
            SPIN.replace("inducing_points = 8", "inducing_points = 0"),
            "model.inducing_points must be at least 1",
        ),
        (SPIN.replace("flank = 4", "flank = 10001"), "model: flank must be an integer from 0 to 10000"),
        (SPIN + "\nk = 9", "model: k must be at most 8, got 9"),
        (SPIN + "\n[other]", r"unknown table \[other\]"),
        (SPIN + "\n[trainings]\na = 1", r"unknown table \[trainings\]"),
        ("kind = ", "not TOML"),
        ("kind = []", "model.kind must be one of"),
        (SPIN + "\n[simulation]\ngene_conversion_share = nan", "gene_conversion_share|not TOML"),
    ],
)
def test_bad_configurations(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        train(configuration(tmp_path, text), tmp_path / "m")
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("array_density = [300]", r"episodes.array_density must be \[least, most\]"),
        ("array_density = [800.0, 300.0]", r"episodes.array_density must be \[least, most\]"),
        ("array_density = 300.0", "episodes.array_density must be a list"),
    ],
)
def test_ranges(tmp_path: Path, line: str, message: str) -> None:
    path = configuration(tmp_path)
    assert read_configuration(path).episodes.array_density == (300.0, 800.0)
    path.write_text(path.read_text().replace("array_density = [300, 800.0]", line))
    with pytest.raises(InputError, match=message):
        read_configuration(path)


def test_starting_from_the_wrong_checkpoint(tmp_path: Path) -> None:
    config = configuration(tmp_path, SPIN, steps=2)
    other = REPOSITORY / "spinimpute" / "weights" / "haplotype.safetensors"
    with pytest.raises(InputError, match="is of the kind 'haplotype'"):
        train(config, tmp_path / "m", init=other)
    wide = configuration(tmp_path, SPIN + "\nhidden = 8", steps=2)
    with pytest.raises(InputError, match="weights do not fit the table"):
        train(wide, tmp_path / "m", init="shipped")
    with pytest.raises(InputError, match="to continue from"):
        train(config, tmp_path / "m", resume=True)


def test_damaged_and_foreign_checkpoints(tmp_path: Path) -> None:
    shipped = REPOSITORY / "spinimpute" / "weights" / "spin.safetensors"
    cut = tmp_path / "cut.safetensors"
    cut.write_bytes(shipped.read_bytes()[:-10])
    foreign = tmp_path / "foreign.safetensors"
    save_tensors(foreign, {"a": np.zeros(2)}, {}, "something-else")
    newer = tmp_path / "newer.safetensors"
    save_tensors(newer, {"a": np.zeros(2)}, {"kind": "unheard-of", "model": {}}, FORMAT)
    wrong = tmp_path / "wrong.safetensors"
    save_tensors(wrong, {"a": np.zeros(2)}, {"kind": "spin", "model": {}}, FORMAT)
    weights, metadata = load_tensors(REPOSITORY / "spinimpute/weights/spin.safetensors", FORMAT, "model")
    forged = {}
    for name, value in (
        ("hidden", 10**30),
        ("hidden", 10**6),
        ("core", -1),
        ("flank", 10**30),
        ("inducing_points", 2.5),
        ("heads", 10**9),
        ("k", 10**30),
        ("k", 9),
        ("rounds", True),
    ):
        forged[name, value] = tmp_path / f"{name}{value}"
        changed = metadata | {"model": metadata["model"] | {name: value}}
        save_tensors(forged[name, value], weights, changed, FORMAT)
    for number in (np.nan, np.inf):
        forged["decoder", number] = tmp_path / f"weights-{number}"
        broken = weights | {"decoder.last.bias": np.full_like(weights["decoder.last.bias"], number)}
        save_tensors(forged["decoder", number], broken, metadata, FORMAT)
    text = tmp_path / "text.safetensors"
    text.write_text("not a model")
    for path, message in (
        (tmp_path / "absent", "no such file"),
        (cut, "not a readable safetensors file"),
        (text, "not a readable safetensors file"),
        (foreign, "is not a model of spinimpute"),
        (newer, "unknown to this version"),
        (wrong, "weights do not fit the settings of the model"),
        *((path, "weights do not fit the settings of the model") for path in forged.values()),
    ):
        with pytest.raises(InputError, match=message) as failed:
            spinimpute.load_predictor(path)
        assert "\n" not in str(failed.value)


def test_a_flipped_bit_is_noticed(tmp_path: Path) -> None:
    content = bytearray((REPOSITORY / "spinimpute" / "weights" / "spin.safetensors").read_bytes())
    content[-100] ^= 4
    (tmp_path / "m.safetensors").write_bytes(content)
    with pytest.raises(InputError, match="damaged: its values do not match"):
        spinimpute.load_predictor(tmp_path / "m.safetensors")


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
    """Numba does, from a folder that is the user's alone."""
    for path in (REPOSITORY / "spinimpute").rglob("*.py"):
        text = path.read_text()
        assert "torch.load" not in text, path
        assert "pickle" not in text.replace("without pickle", "").replace("never pickle", ""), path
