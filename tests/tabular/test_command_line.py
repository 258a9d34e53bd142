"""`spinimpute tabular` on files: tables in, predictions out; status 2 and one line for bad input."""

import gzip
import io
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from spinimpute.cli.tabular_columns import TABULAR_MODELS

from spinimpute.tabular import MLPRegressor
from spinimpute.tabular.model_files import load_estimator, save_estimator
from spinimpute.tabular.table_files import parse_categories, parse_numbers, read_table

TINY = [word for one in ("steps=4", "width=8", "blocks=1") for word in ("--set", one)]
Run = Callable[..., Any]


@pytest.fixture
def fit(run: Run) -> Run:
    """fit(table, target, *arguments): a tiny MLP, into the file `m` by default."""

    def run_fit(table: str, target: str, *arguments: object) -> Any:
        few = [] if "--model" in arguments else ["--model", "mlp", *TINY[:4]]
        usual = [] if "-o" in arguments else ["-o", "m"]
        usual += [] if "--target" in arguments else ["--target", target]
        return run("fit", "--table", table, *usual, *few, *arguments)

    return run_fit


def failed(result: Any, *said: str) -> None:
    """Check for status 2, one line of error with these parts, and no model."""
    assert (result.code, result.out) == (2, "")
    errors = [line for line in result.err.splitlines() if line.startswith("spinimpute: error:")]
    assert len(errors) == 1
    assert result.err.splitlines()[-1] == errors[0]
    for part in said:
        assert part in errors[0]
    assert not Path("m").exists()


@pytest.mark.parametrize("model", sorted(TABULAR_MODELS.keys() - {"mlp"}))
def test_fit_and_predict(run: Run, fit: Run, houses: pd.DataFrame, model: str) -> None:
    heads = [] if model == "resnet" else ["--set", "heads=2"]
    tiny = TINY[:4] if model == "spin" else TINY
    options = ("--model", model, *tiny, *heads, "--ignore", "key", "--weights", "weight", "--device", "cpu")
    done = fit("houses.csv", "price", *options)
    assert done.code == 0
    assert "task:     regression: 'price' holds fractions" in done.err
    counted = int((houses["weight"] > 0).sum())
    assert f"{counted} rows, 2 columns of numbers, 2 of categories" in done.err
    houses[reversed(houses.columns)].drop(columns="price").to_csv("new.tsv", sep="\t", index=False)
    cpu = ("--device", "cpu")
    done = run("predict", "--model", "m", "--table", "new.tsv", "-o", "p.csv", "--id", "key", *cpu)
    assert done.code == 0
    assert "ignored:  weight" in done.err
    found = pd.read_csv("p.csv", float_precision="round_trip")
    assert list(found.columns) == ["key", "prediction"]
    assert list(found["key"]) == list(houses["key"])
    estimator: Any = load_estimator("m", "cpu")
    rows = read_table("houses.csv")
    features = {
        name: parse_categories(rows[name]) if name in ("town", "sold") else parse_numbers(rows[name], "")
        for name in estimator.feature_names_in_
    }
    np.testing.assert_array_equal(found["prediction"], estimator.predict(pd.DataFrame(features)))


def test_classes_and_probabilities(run: Run, fit: Run, houses: pd.DataFrame) -> None:
    done = fit("houses.csv", "sold", "--ignore", "key", "--categorical", "zip")
    assert "classification: 'sold' holds text" in done.err
    common = ("predict", "--model", "m", "--table", "houses.csv")
    shown = run(*common, "-o", "-", "--probabilities", "--id", "key", "--id", "sold", "-q")
    assert (shown.code, shown.err) == (0, "")
    found = pd.read_csv(io.StringIO(shown.out))
    assert list(found.columns) == ["key", "sold", "prediction", "probability_no", "probability_yes"]
    np.testing.assert_allclose(found["probability_no"] + found["probability_yes"], 1, atol=1e-6)
    likely = np.where(found["probability_no"] >= found["probability_yes"], "no", "yes")
    assert list(found["prediction"]) == list(likely)
    assert run(*common, "-o", "p.tsv.gz", "-q").code == 0
    written = gzip.decompress(Path("p.tsv.gz").read_bytes()).decode()
    assert written.splitlines() == ["prediction", *found["prediction"]]
    again = run(*common, "-o", "p.tsv.gz")
    assert (again.code, "already exists" in again.err) == (2, True)
    assert run(*common, "-o", "p.tsv.gz", "--force").code == 0
    assert {
        "estimator: MLPClassifier", "target: sold", "rows: 60", "classes: no, yes", "column: area: numbers",
        "column: town: 3 categories", "column: zip: 3 categories",  # 007 is not 7
        "steps: 4", "width: 8",
    } <= {*run("info", "m").out.splitlines()}  # fmt: skip


def test_the_same_seed_the_same_model(fit: Run, houses: pd.DataFrame) -> None:
    found = []
    for seed in (1, 1, 2):
        assert fit("houses.csv", "price", "--seed", seed, "--force", "-q").err == ""
        found.append(load_estimator("m", "cpu").network_.state_dict())
    same = [all((found[0][key] == other[key]).all() for key in other) for other in found[1:]]
    assert same == [True, False]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (range(40), "regression: 'y' holds 40 different numbers"),
        ([1, 2, 3] * 10, "classification: 'y' holds 3 different whole numbers"),
        (["1.0", "2", "3.50"] * 10, "regression: 'y' holds fractions"),
        (["1e3", "x"] * 10, "classification: 'y' holds text"),
        (["True", "False"] * 10, "classification: 'y' holds text"),
    ],
)
def test_the_default_task(fit: Run, values: Any, said: str) -> None:
    pd.DataFrame({"x": range(len(values)), "y": list(values)}).to_csv("t.csv", index=False)
    done = fit("t.csv", "y")
    assert done.code == 0
    assert said in done.err


def test_a_missing_target(fit: Run) -> None:
    Path("t.csv").write_text("x,y\n" + "".join(f"{i},{'' if i == 4 else i / 2}\n" for i in range(30)))
    failed(fit("t.csv", "y"), "'y' is missing in row 5", "--drop-missing-target")
    assert "29 rows" in fit("t.csv", "y", "--drop-missing-target").err
    Path("m").unlink()
    text = Path("t.csv").read_text().replace("\n9,", "\ninf,")
    Path("t.csv").write_text(text)  # rows are those of the file, whatever was left out
    failed(fit("t.csv", "y", "--drop-missing-target"), "row 10, column 'x': 'inf' is not within ±1e+36")


BODY = "".join(f"{i},{'ab'[i % 2]},{i / 3}\n" for i in range(30))
BAD_TABLES: list[tuple[bytes, str]] = [
    (b"", "it is empty"),
    (b"\n\n", "it is empty"),
    (b"x,c,y\n", "a header and no rows"),
    (b"x,x,y\n1,2,3\n", "two columns are named 'x'"),
    (b"x,c,y\n1,2,3\n1,2\n", "row 2 (line 3) has 2 cells, the header has 3"),
    (b"x,c,y\n1,2,3,4\n", "row 1 (line 2) has 4 cells, the header has 3"),
    (b'x,c,y\n1,"2,3\n', "unexpected end of data"),
    (b"x,c,y\n1,M\xfcnchen,3\n", "not UTF-8 text (byte 0xfc)"),
    (b"\x00\x01,\x02\n\x00,1\n", "control characters"),
    (b'"a\nb",c,y\n1,2,3\n', "control characters"),
    (b"x,c\n1,2\n", "no column 'y' of --target; it has x, c"),
    (b"y\n1\n2\n", "no column is left"),
    (b"x,c,y\n1,2,3\n2,2,3\n", "'y' is '3' in every row"),
    (b"x,c,y\n1,2,\n2,2,NaN\n", "'y' is missing in every row"),
    (b"x,c,y\ninf,a,1.5\n1,b,2\n", "row 1, column 'x': 'inf' is not within ±1e+36"),
    (b"x,c,y\n1,a,1.5\n1,b,inf\n", "row 2, column 'y': 'inf' is not within ±1e+36"),
    (b"x,c,y\n1,a,1.5\n1" + b"0" * 400 + b",b,2\n", "row 2, column 'x': '1000"),
    (b"x,c,y\n1," + b"a" * 200_000 + b",2\n", "line 2: field larger than field limit"),
    (b'x,y\n1,2\n3,"4\n5,6\n', "line 4: unexpected end of data. Look for an unclosed quotation mark"),
    (b"x,y\n1,2\n3,a\0\n", "row 2, column 'y': the cell holds a NUL byte"),
    (b"y\n1\n\n3\n", 'line 3 is blank. Write ""'),
    ("x,y\n1,2\n".encode("utf-16"), "UTF-16. Convert it with: iconv -f utf-16 -t utf-8"),
    (gzip.compress(b"x,y\n1,2\n", mtime=0), "It is gzipped, so its name must end with .gz"),
]


@pytest.mark.parametrize(("content", "said"), BAD_TABLES)
def test_bad_tables(fit: Run, content: bytes, said: str) -> None:
    Path("t.csv").write_bytes(content)
    failed(fit("t.csv", "y"), "table t.csv: ", said)


def test_bad_files(run: Run, fit: Run, tmp_path: Path) -> None:
    failed(fit("none.csv", "y"), "none.csv", "no such file")
    Path("folder.csv").mkdir()
    failed(fit("folder.csv", "y"), "it is a folder")
    Path("t.xlsx").write_bytes(b"PK")
    failed(fit("t.xlsx", "y"), ".csv.gz, .tsv, .tsv.gz, .parquet")
    whole = gzip.compress(b"x,y\n" + b"1,2\n" * 1000)
    for content in (b"x,y\n1,2\n", whole[:-9], whole[:30] + b"???" + whole[33:]):
        Path("t.csv.gz").write_bytes(content)
        failed(fit("t.csv.gz", "y"), "t.csv.gz: it cannot be read")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--ignore", "y"], "'y' is given for both --target and --ignore"),
        (["--categorical", "y"], "'y' is given for both --target and --categorical"),
        (["--weights", "y"], "'y' is given for both --target and --weights"),
        (["--ignore", "z"], "no column 'z' of --ignore"),
        (["--weights", "c"], "row 1, column 'c': 'a' is not a number"),
        (["--weights", "zero"], "every weight in column 'zero' is 0"),
        (["--weights", "minus"], "row 1, column 'minus': a weight must be 0 or more, got '-1'"),
        (["--set", "colour=1"], "no parameter 'colour'; it has batch_size, "),
        (["--set", "width"], "NAME=VALUE"),
        (["--set", "batch_size=2.5"], "batch_size must be a whole number"),
        (["--set", "learning_rate=fast"], "learning_rate must be a number, got 'fast'"),
        (["--set", "dropout=nan"], "dropout must be finite"),
        (["--model", "npt", "--set", "attribute_masking=9"], "attribute_masking must be in [0, 1], got"),
        (["--set", "layers=1000000000000", "--set", "validation_fraction=2"], "validation_fraction"),
        (["--set", "device=cuda"], "use --device"),
        (["--set", "random_state=1"], "use --seed"),
        (["--steps", "3"], "steps is given twice"),
        (["--task", "regression", "--target", "c"], "'c' holds text; use --task classification"),
        (["--model", "mlp", "--set", "width=100000000000"], "training failed"),
        (["-o", "none/m"], "there is no folder none"),
        (["-o", "t.csv"], "it is also read from"),
    ],
)
def test_bad_options(fit: Run, arguments: list[str], said: str) -> None:
    lines = BODY.splitlines()
    Path("t.csv").write_text("x,c,y,zero,minus\n" + "".join(f"{line},0,-1\n" for line in lines))
    failed(fit("t.csv", "y", *arguments), said)


@pytest.mark.parametrize("command", [[], ["fit"], ["predict"], ["info"], ["benchmark"]])
def test_help_imports_nothing_heavy(command: list[str]) -> None:
    code = (
        "import sys\nfrom cli.main import run_command\nrun_command()\n"
        "print([name for name in ('torch', 'numpy', 'pandas', 'sklearn') if name in sys.modules])"
    )
    words = [sys.executable, "-c", code, "tabular", *command, "-h"]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.startswith("Usage: spinimpute tabular")
    assert done.stdout.endswith("\n[]\n")


def test_no_gpu(fit: Run) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is one")
    failed(fit("t.csv", "y", "--device", "cuda"), "no CUDA device is available")


def test_odd_columns(run: Run, fit: Run) -> None:
    """Constant, empty, of huge numbers, without a name, and of keys; a byte-order mark at the start."""
    n = 1_002
    rows = pd.DataFrame({"x": range(n), "same": 7, "empty": "", "huge": [f"{i}{'0' * 30}" for i in range(n)]})
    rows[""], rows["y"] = range(n), rows["x"] % 7 + 0.5
    rows["date"] = pd.date_range("2001-01-01", periods=n).strftime("%Y-%m-%d")
    rows.to_csv("t.csv", index=False, encoding="utf-8-sig")
    done = fit("t.csv", "y", "--set", "scaling=quantile")
    assert done.code == 0
    warned = [line for line in done.err.splitlines() if "warning" in line]
    assert len(warned) == 2
    assert "column 'empty' is missing in every row" in warned[0]
    assert "column 'date' holds a different text in every row: 1002 categories" in warned[1]
    assert "column: Unnamed: 4: numbers" in run("info", "m").out
    assert run("predict", "--model", "m", "--table", "t.csv", "-o", "p.csv").code == 0
    assert pd.read_csv("p.csv")["prediction"].notna().all()


def test_predicting_with_other_tables(run: Run, fit: Run) -> None:
    Path("t.csv").write_text("x,c,y\n" + BODY)
    assert fit("t.csv", "y").code == 0
    Path("m").rename("model")

    def predict(text: str, *arguments: object) -> Any:
        Path("new.csv").write_text(text)
        output = [] if "-o" in arguments else ["-o", "p.csv"]
        return run("predict", "--model", "model", "--table", "new.csv", *arguments, *output)

    failed(predict("x\n1\n"), "no column 'c' that the model reads; it has x")
    failed(predict("z\n1\n"), "no column 'x', 'c'")
    failed(predict("x,c\n1,a\nten,b\n"), "row 2, column 'x': 'ten' is not a number")
    failed(predict("x,c\n1,a\n-inf,b\n"), "row 2, column 'x': '-inf' is not within ±1e+36")
    failed(predict("x,c\n"), "a header and no rows")
    failed(predict("x,c\n1,a\n", "--probabilities"), "predicts numbers")
    failed(predict("x,c\n1,a\n", "--id", "k"), "no column 'k' of --id")
    failed(predict("x,c,prediction\n1,a,1\n", "--id", "prediction"), "--id prediction")
    failed(predict("x,c\n1,a\n", "-o", "p.doc"), "p.doc")
    assert not Path("p.csv").exists()
    Path("model").rename("whole")
    Path("model").write_bytes(Path("whole").read_bytes()[:-4])
    failed(predict("x,c\n1,a\n"), "tabular model model", "copy it again")
    Path("whole").rename("model")
    done = predict("c,x\nnew,NA\n,5\nnew,7\na,1\n")
    assert done.code == 0
    assert "column 'c': 2 cells hold a category that training rows lack" in done.err
    assert len(pd.read_csv("p.csv")) == 4


def test_a_model_without_names_of_columns(run: Run) -> None:
    rows = np.random.default_rng(0).normal(size=(20, 2))
    save_estimator(MLPRegressor(steps=1, width=4).fit(rows, rows[:, 0]), "m2")
    Path("t.csv").write_text("x\n1\n")
    failed(run("predict", "--model", "m2", "--table", "t.csv", "-o", "-"), "without names of columns")
    assert "column: 1: numbers" in run("info", "m2").out


def test_parquet(run: Run, fit: Run, houses: pd.DataFrame) -> None:
    pytest.importorskip("pyarrow")
    area, town = pd.to_numeric(houses["area"], errors="coerce"), houses["town"].astype("category")
    typed = houses.assign(area=area, town=town, new=houses["sold"] == "yes")
    typed.to_parquet("houses.parquet")
    typed.to_csv("typed.csv", index=False)
    for name in ("houses.parquet", "typed.csv"):
        assert fit(name, "sold", "--ignore", "key", "--force", "--categorical", "weight").code == 0
        for other in ("houses.parquet", "typed.csv"):
            out = f"{name}.{other}.parquet"
            assert run("predict", "--model", "m", "--table", other, "-o", out, "--probabilities").code == 0
    found = [pd.read_parquet(path) for path in Path().glob("*.*.*.parquet")]
    assert len(found) == 4
    for other in found:
        pd.testing.assert_frame_equal(other, found[0])
    Path("m").unlink()
    Path("bad.parquet").write_bytes(b"PAR1 and more")
    failed(fit("bad.parquet", "x"), "not a readable Parquet file")


def test_integers_of_parquet_stay_whole(run: Run, fit: Run) -> None:
    """Integers stay whole with missing values, and beyond the precision of floating-point numbers."""
    pytest.importorskip("pyarrow")
    large = [2**60 + 1, 2**60 + 3] * 5
    key = pd.array([*range(1_000, 1_009), None], "Int16")
    large_key = pd.array([*large[:9], None], "UInt64")
    table = pd.DataFrame({"key": key, "large": large_key, "x": [9, *range(9)], "class": large})
    Path("k=1").mkdir()  # a partition's name, which is no column
    table.set_index("x").to_parquet("k=1/t.parquet")  # pandas says that x names the rows
    Path("k=1/t.parquet").rename("t.parquet")
    table.to_parquet("k=1/t.parquet")
    assert list(read_table("k=1/t.parquet")) == list(table)
    read = read_table("t.parquet")
    assert read["key"].tolist() == [*map(str, range(1_000, 1_009)), None]
    assert read["large"].tolist() == [*map(str, large[:9]), None]
    assert read["class"].tolist() == large
    done = fit("t.parquet", "class", "--task", "classification", "--ignore", "large")
    assert done.code == 0
    assert "classes: 1152921504606846977, 1152921504606846979" in run("info", "m").out
    assert "column: x: numbers" in run("info", "m").out
    shown = run("predict", "--model", "m", "--table", "t.parquet", "-o", "-", "--id", "key", "-q")
    assert [line.split(",")[0] for line in shown.out.splitlines()] == ["key", *read["key"][:9], ""]
    table[table["x"] > 3].to_parquet("part.parquet")  # rows without names are no column
    assert "__index_level_0__" not in read_table("part.parquet")
    table.set_index("x", drop=False).rename_axis("class").to_parquet("twice.parquet")
    assert list(read_table("twice.parquet")) == list(table)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (["1e-9999999999999999999", "2"], None),
        (["0", "1e-9999999999999999999"], "are the same number"),
        (["1152921504606846976.0", "1152921504606846976"], "are the same number"),
        (["0", "1", "1.0", "0"], "row 3, target 'y': '1.0' and '1' are the same number"),
        (["inf", "2"], "row 1, column 'y': 'inf' is not within ±1e+36"),
    ],
)
def test_numbers_as_classes(fit: Run, values: list[str], said: str | None) -> None:
    pd.DataFrame({"x": range(10 * len(values)), "y": values * 10}).to_csv("t.csv", index=False)
    done = fit("t.csv", "y", "--task", "classification")
    if said is None:
        assert done.code == 0
    else:
        failed(done, said)


def test_large_numbers_that_differ_little(run: Run, fit: Run) -> None:
    times = 1_700_000_000 + np.arange(60)
    pd.DataFrame({"x": np.arange(60), "y": times}).to_csv("t.csv", index=False)
    assert fit("t.csv", "y", "--task", "regression").code == 0
    assert run("predict", "--model", "m", "--table", "t.csv", "-o", "p.csv").code == 0
    assert pd.read_csv("p.csv")["prediction"].nunique() > 50


@pytest.mark.parametrize(("label", "task"), [("ab", "classification"), ([1.5, 2.5], "regression")])
def test_weights_that_leave_one_label(fit: Run, label: Any, task: str) -> None:
    pd.DataFrame({"x": range(20), "y": [*label] * 10, "w": [1, 0] * 10}).to_csv("t.csv", index=False)
    failed(fit("t.csv", "y", "--weights", "w", "--task", task), "in every row whose weight is not 0")


def test_rows_of_weight_zero_are_ignored(fit: Run) -> None:
    pd.DataFrame({"x": range(30), "y": [*"ab"] * 15, "w": [1, 0, 2] * 10}).to_csv("t.csv", index=False)
    assert "table:    20 rows" in fit("t.csv", "y", "--weights", "w").err


def test_control_characters_are_not_printed(run: Run) -> None:
    rows = pd.DataFrame({"a\x1b]0;x\x07": [0.0, 1.0], "b\nclasses: c": [1.0, 0.0]})
    save_estimator(MLPRegressor(steps=1, width=4).fit(rows, rows.iloc[:, 0]), "m", {"a\nb": 1})
    shown = run("info", "m").out
    assert "\x1b" not in shown
    assert not [line for line in shown.splitlines() if line.startswith(("classes:", "b:"))]


def test_parquet_without_pyarrow(fit: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    Path("t.parquet").write_bytes(b"PAR1")
    failed(fit("t.parquet", "y"), "pip install 'spinimpute[tables]'")
