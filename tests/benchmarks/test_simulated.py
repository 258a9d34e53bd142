"""The ablation on simulated panels, with a small panel and few sizes."""

from pathlib import Path

import pytest

pytest.importorskip("msprime", reason="msprime is not installed (extra: bench)")

import spinimpute
from benchmarks.simulated import ablation
from spinimpute.predictors.spin.predictor import SPINPredictor


def test_spin_has_the_sizes_of_its_grid() -> None:
    loaded = spinimpute.load_predictor(None, "cpu", name="spin")
    assert isinstance(loaded, SPINPredictor)
    variants = ablation.variants(loaded)
    assert len({name for name, _ in variants}) == len(ablation.SPIN_GRID)
    for (core, flank, points, rounds), (name, made) in zip(ablation.SPIN_GRID, variants, strict=True):
        assert name == f"core={core} flank={flank} points={points} rounds={rounds}"
        assert isinstance(made, SPINPredictor)
        assert (made.shape.core, made.shape.flank, made.inducing_points) == (core, flank, points)
        assert made.model.encoder.rounds == rounds


def test_main(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ablation, "SETS", [(77_001, 130, 1.2e-8, 60)])
    monkeypatch.setattr(ablation, "SPIN_GRID", [(8, 16, 16, 1), (4, 16, 8, 2)])
    out = tmp_path / "table.tsv"
    monkeypatch.setattr("sys.argv", ["ablation.py", "--predictor", "spin", "--out", str(out)])
    ablation.main()
    head, *lines = (line.split("\t") for line in out.read_text().splitlines())
    assert [line[2] for line in lines] == [
        "core=8 flank=16 points=16 rounds=1",
        "core=4 flank=16 points=8 rounds=2",
    ]
    assert all(0 < float(line[head.index("all")]) <= 1 for line in lines)
