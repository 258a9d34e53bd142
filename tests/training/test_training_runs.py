"""Training runs that end early, continue, or cannot start."""

import json
from pathlib import Path

import pytest

import spinimpute
from spinimpute.predictors.loading import FORMAT
from spinimpute.predictors.train import train
from spinimpute.runtime.errors import InputError
from spinimpute.runtime.tensor_files import load_tensors
from spinimpute.training.trainer import AlleleValidation, Trainer

TABLES = {
    "model": 'kind = "spin"\ncore = 2\nflank = 4\ninducing_points = 8\nheads = 4\npair_heads = 3',
    "episodes": "blocks = 2\nqueries = 6\ncontext_samples = 8\narray_density = [300, 800]",
    "simulation": "segments = 3\nlength = [40_000, 50_000]\nsamples = [20, 24]",
    "training": "steps = 4\nvalidate_every = 1\nvalidation_tasks = 2",
}


def configuration(path: Path, **replaced: str) -> Path:
    path.write_text("\n".join(f"[{table}]\n{text}" for table, text in (TABLES | replaced).items()))
    return path


def test_log_lines_of_a_continued_run(tmp_path: Path) -> None:
    config, out = configuration(tmp_path / "c.toml"), tmp_path / "m"
    log = tmp_path / "log.jsonl"

    def stop(entry: dict[str, object]) -> None:
        if entry.get("step") == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(config, out, log=log, progress=stop)
    result = train(config, out, log=log, resume=True)
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    steps = [entry["step"] for entry in entries if "step" in entry]
    assert steps == [1, 2, 3, 3, 4]  # step 3 was reported, not saved, and done again
    first, again = (entry for entry in entries if entry.get("step") == 3)
    assert all(first[key] == again[key] for key in ("train_loss", "validation_loss", "validation_r2"))
    assert result.validation_loss == min(e["validation_loss"] for e in entries if "step" in e)
    assert not (tmp_path / "m.log.jsonl").exists()


def test_a_finished_run_has_nothing_to_continue(tmp_path: Path) -> None:
    config, out = configuration(tmp_path / "c.toml"), tmp_path / "m"
    first = train(config, out)
    content = out.read_bytes()
    second = train(config, out, resume=True)
    assert second == first
    assert out.read_bytes() == content


def test_a_run_out_of_patience_has_nothing_to_continue(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(Trainer, "validate", lambda self: AlleleValidation(float(self.step), 0.0))
    training = TABLES["training"].replace("steps = 4", "steps = 20\npatience = 2")
    config = configuration(tmp_path / "c.toml", training=training)
    result = train(config, tmp_path / "m")
    assert (result.steps, result.validation_loss) == (3, 1.0)  # the best model is kept
    assert train(config, tmp_path / "m", resume=True).steps == 3


def test_only_the_best_model_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Trainer, "validate", lambda self: AlleleValidation(abs(self.step - 2.0), 0.5))
    out = tmp_path / "m"
    result = train(configuration(tmp_path / "c.toml"), out)
    assert result.steps == 4
    assert result.validation_loss == 0
    assert load_tensors(out, FORMAT, "model")[1]["provenance"]["step"] == 2


def test_an_older_result_needs_force(tmp_path: Path) -> None:
    config, out = configuration(tmp_path / "c.toml"), tmp_path / "m"
    out.write_bytes(b"precious")
    with pytest.raises(InputError, match="already exists"):
        train(config, out)
    assert out.read_bytes() == b"precious"
    with pytest.raises(InputError, match="also read from"):
        train(config, config, force=True)
    train(config, out, force=True, steps=1)
    assert spinimpute.load_predictor(out).kind == "spin"


def test_a_model_of_3mers_learns_from_a_panel_and_imputes(example, example_panel, tmp_path) -> None:
    config = configuration(tmp_path / "c.toml", model=TABLES["model"] + "\nk = 3")
    train(config, tmp_path / "m", panel=example_panel.path, steps=2)
    predictor = spinimpute.PredictorSettings(model=tmp_path / "m")
    region, target = spinimpute.RegionSettings("20:400000-450000"), example / "target.vcf.gz"
    summary = spinimpute.impute(target, tmp_path / "o.bcf", example_panel, predictor=predictor, region=region)
    assert 0 < summary.written_sites < example_panel.n_sites


def test_states_that_cannot_be_continued(tmp_path: Path) -> None:
    config, out = configuration(tmp_path / "c.toml"), tmp_path / "m"
    train(config, out, steps=2)
    state = tmp_path / "m.state"
    content = state.read_bytes()
    wide = configuration(tmp_path / "wide.toml", model=TABLES["model"] + "\nhidden = 8")
    lamb = configuration(tmp_path / "lamb.toml", training=TABLES["training"] + '\noptimiser = "lamb"')
    for other, differing in (
        (wide, "model.hidden is 24 in the state, 8 now"),
        (lamb, 'optimiser is "adam" in the state'),
    ):
        with pytest.raises(InputError, match=rf"belongs to another run \(configuration.*{differing}"):
            train(other, out, resume=True)
    with pytest.raises(InputError, match=r"configuration.training.seed is 1 in the state, 8 now"):
        train(config, out, resume=True, seed=8)
    state.write_bytes(content[:-9])
    with pytest.raises(InputError, match="not a readable safetensors file"):
        train(config, out, resume=True)
    state.write_bytes(out.read_bytes())
    with pytest.raises(InputError, match="is not a training state"):
        train(config, out, resume=True)


@pytest.mark.parametrize(
    ("table", "line", "message"),
    [
        ("simulation", 'segments = "many"', "simulation.segments"),
        ("simulation", "segments = 2.5", "simulation.segments"),
        ("simulation", "segments = true", "simulation.segments"),
        ("simulation", "samples = [2, 4]", "samples"),
        ("simulation", "length = [50, 60]", "length|sites"),
        ("simulation", "gene_conversion_share = -1.0", "gene_conversion_share"),
        ("episodes", "genotype_error = [2.0]", "genotype_error"),
        ("episodes", "missing_rate = [-1.0]", "missing_rate"),
        ("training", "steps = 0", "steps"),
        ("training", "seed = -1", "seed"),
        ("training", "validate_every = true", "validate_every"),
    ],
)
def test_values_out_of_range(tmp_path: Path, table: str, line: str, message: str) -> None:
    key = line.split(" = ")[0]
    kept = [old for old in TABLES[table].splitlines() if not old.startswith(key + " ")]
    config = configuration(tmp_path / "c.toml", **{table: "\n".join([*kept, line])})
    with pytest.raises(InputError, match=message):
        train(config, tmp_path / "m")
    assert not (tmp_path / "m").exists()


def test_a_diverging_run_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A loss that is not finite is never an improvement: no checkpoint is written."""
    monkeypatch.setattr(Trainer, "validate", lambda self: AlleleValidation(float("nan"), 0.0))
    with pytest.raises(InputError, match="validation loss"):
        train(configuration(tmp_path / "c.toml"), tmp_path / "m")
    assert not (tmp_path / "m").exists()
