"""`spinimpute train`."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import spinimpute
from spinimpute.predictors.train import TrainingResult

Run = Callable[..., Any]

LIBRARY = "spinimpute.predictors.train.train"

TINY = """
[model]
kind = "spin"
inducing_points = 8
heads = 4
rounds = 1

[episodes]
blocks = 1
queries = 4
context_samples = 40
array_density = [200.0, 300.0]

[training]
steps = 4
validate_every = 2
validation_tasks = 2
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_text(TINY)
    return path


def test_arguments(run):
    arguments = [
        "train", "--config", "c.toml", "-o", "m.safetensors", "--panel", "p.spin", "--init", "shipped",
        "--resume", "--device", "cpu", "--threads", "1", "--seed", "5", "--steps", "7", "--log", "l.jsonl",
        "--force",
    ]  # fmt: skip
    with mock.patch(LIBRARY, return_value=TrainingResult(Path("m.safetensors"), 7, 0.25, 0.5)) as library:
        done = run(*arguments)
    assert done.code == 0
    assert "m.safetensors" in done.err
    assert [str(value) for value in library.call_args.args] == ["c.toml", "m.safetensors"]
    given = library.call_args.kwargs
    assert callable(given.pop("progress"))
    assert callable(given.pop("stepped"))
    assert {name: value if value is None else str(value) for name, value in given.items()} == {
        "panel": "p.spin",
        "init": "shipped",
        "resume": "True",
        "device": "cpu",
        "threads": "1",
        "seed": "5",
        "steps": "7",
        "force": "True",
        "log": "l.jsonl",
    }


def test_train_resume_and_impute(run, config, example, panel, tmp_path):
    out = tmp_path / "m.safetensors"
    common = ("train", "--config", config, "--out", out, "--panel", panel, "--device", "cpu")
    run(*common, "--steps", "2").ok()
    entries = [json.loads(line) for line in (tmp_path / "m.safetensors.log.jsonl").read_text().splitlines()]
    assert [entry["step"] for entry in entries if "step" in entry] == [2]

    run(*common).refused("--force", "--resume")
    run(*common, "--resume", "--steps", "4").ok()

    imputed = tmp_path / "o.vcf"
    run(
        "impute", "--model", out, "--vcf", example / "target.vcf.gz", "--panel", panel, "--out", imputed,
        "--region", "20:1-50000",
    ).ok()  # fmt: skip
    model = spinimpute.load_predictor(out, "cpu")
    assert f"##spinimpute_model={model.kind} {model.fingerprint} cpu\n" in imputed.read_text()


def test_msprime_is_an_extra(run, config, tmp_path):
    with mock.patch.dict("sys.modules", {"msprime": None}):
        failed = run("train", "--config", config, "--out", tmp_path / "m.safetensors")
    assert failed.code == 2
    assert failed.err.startswith("spinimpute: error: ")
    assert "spinimpute[train]" in failed.err


class TestRefusals:
    @pytest.fixture
    def refused(self, run: Run, config: Path, panel: Path, tmp_path: Path) -> Run:
        def train(*flags: str, **given: object) -> str:
            options = {
                "config": config,
                "panel": panel,
                "out": tmp_path / "m.safetensors",
                "steps": 1,
            } | given
            arguments = [text for name, value in options.items() for text in (f"--{name}", str(value))]
            failed = run("train", *arguments, *flags).refused()
            assert failed.err.count("spinimpute: error: ") == 1
            assert not (tmp_path / "m.safetensors").exists()
            return str(failed.err)

        return train

    def test_missing_files(self, refused, tmp_path):
        absent = tmp_path / "absent"
        assert f"configuration {absent}: cannot be read" in refused(config=absent)
        assert str(absent) in refused(panel=absent)
        assert str(absent) in refused(init=absent)
        assert "there is no" in refused("--resume")
        assert "absent" in refused(log=tmp_path / "absent" / "l.jsonl")
        assert "absent" in refused(out=tmp_path / "absent" / "m.safetensors")

    def test_bad_configuration(self, refused, tmp_path):
        bad = tmp_path / "bad.toml"
        bad.write_text("[model")
        assert f"configuration {bad}: not TOML" in refused(config=bad)
        bad.write_text("[model]\nkind = 'spin'\nsize = 4\n")
        assert "unknown key model.size" in refused(config=bad)
