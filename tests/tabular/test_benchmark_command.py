"""`spinimpute tabular benchmark`: a table of scores on stdout, progress on stderr, a file of every fold."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

Run = Callable[..., Any]


@pytest.fixture
def run_comparison(run: Run, houses: pd.DataFrame) -> Run:
    """run_comparison(target, *arguments): of houses.csv, with few steps and folds."""

    def of_houses(target: str, *arguments: object) -> Any:
        common = ("--table", "houses.csv", "--ignore", "key", "--folds", 2, "--steps", 5, "--device", "cpu")
        of_target = () if "--target" in arguments else ("--target", target)
        return run("benchmark", *of_target, *common, *arguments)

    return of_houses


def test_numbers(run_comparison: Run) -> None:
    done = run_comparison("price", "--models", "mlp,resnet", "--weights", "weight", "-o", "scores.tsv")
    assert done.code == 0
    header, *lines = done.out.splitlines()
    assert header.split() == ["model", "RMSE", "R²", "fit", "[s]", "predict", "[s]", "weights"]
    assert sorted(line.split()[0] for line in lines) == [
        "HistGradientBoosting", "MLP", "ResNet", "k-NN", "mean",
    ]  # fmt: skip
    shown = [float(line.split()[1]) for line in lines]
    assert shown == sorted(shown)
    said = done.err.splitlines()
    assert said[0] == "task:     regression: 'price' holds fractions"
    assert [line.split(": RMSE")[0] for line in said[1:5]] == [
        f"{model}, fold {fold} of 2" for model in ("MLP", "ResNet") for fold in (1, 2)
    ]
    assert said[-1] == "output:   scores.tsv, 10 scores"
    scores = pd.read_csv("scores.tsv", sep="\t")
    assert scores["weights"].notna().sum() == 4
    best = scores.groupby("model")["rmse"].mean().sort_values()
    assert lines[0].split()[:2] == [best.index[0], f"{best.iloc[0]:.4g}"]
    again = run_comparison("price", "-o", "scores.tsv")
    assert (again.code, "already exists" in again.err) == (2, True)


def test_classes(run_comparison: Run) -> None:
    done = run_comparison("sold", "--models", "mlp", "--categorical", "zip", "-q")
    assert (done.code, done.err) == (0, "")
    header, *lines = done.out.splitlines()
    assert header.split() == ["model", "accuracy", "log", "loss", "fit", "[s]", "predict", "[s]", "weights"]
    assert len(lines) == 4
    assert any("most frequent class" in line for line in lines)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--models", "mlp,cnn"], "there is no model 'cnn'. Choose from spin, published-spin, npt, "),
        (["--models", ""], "there is no model ''"),
        (
            ["--folds", "31"],
            "the comparison failed: 31 folds need at least 62 rows with weights above 0, got 60",
        ),
        (["--ignore", "price"], "'price' is given for both --target and --ignore"),
        (["--task", "regression", "--target", "town"], "'town' holds text; use --task classification"),
        (["-o", "houses.csv"], "it is also read from"),
        (["-o", "scores.txt"], "scores.txt"),
        (["-o", "none/scores.tsv"], "there is no folder none"),
    ],
)
def test_bad_options(run_comparison: Run, arguments: list[str], said: str) -> None:
    done = run_comparison("price", *arguments)
    assert (done.code, done.out) == (2, "")
    errors = [line for line in done.err.splitlines() if line.startswith("spinimpute: error:")]
    assert errors == done.err.splitlines()[-1:]
    assert said in errors[0]
    assert [path.name for path in Path().iterdir()] == ["houses.csv"]
