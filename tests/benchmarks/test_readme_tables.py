"""The tables of README.md and docs/ are those of the committed results.

This pins every kind of table; made-up results show what counts as the result of an imputer or a model.
"""

import argparse
import json
import re
from pathlib import Path

import pytest

from benchmarks.imputation.options import RESULTS
from benchmarks.imputation.readme import BLOCK, NUMBER, PAGES, refresh, with_tables
from benchmarks.neural_processes.contexts import CARRIED_FROM, MARKS, READMES, TABLES
from benchmarks.neural_processes.contexts import with_tables as with_processes
from benchmarks.neural_processes.results import RESULTS as PROCESSES
from benchmarks.tabular.report import ON_ALL_SETS, mean_ranks, read_results

REPOSITORY = Path(__file__).resolve().parents[2]
HEAD = "imputer\tbin\tsites\tpooled_r2\tmean_r2\tnrc\tmissing_sites\n"


def test_tables_are_those_of_the_results() -> None:
    found = {}
    for page in PAGES:
        text = page.read_text()
        found[page.name] = len(BLOCK.findall(text))
        assert with_tables(text, RESULTS) == text, f"{page}: run: python -m benchmarks.imputation readme"
    assert (found["README.md"], found["accuracy.md"], found["whole-genomes.md"]) == (2, 12, 1)
    assert found["without-truth.md"] == 3
    numbers = {page.name: len(NUMBER.findall(page.read_text())) for page in PAGES}
    assert {name: n for name, n in numbers.items() if n} == {
        "README.md": 4, "accuracy.md": 4, "file-formats.md": 1,
    }  # fmt: skip


def test_every_page_is_rewritten(tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "hours.tsv").write_text("samples\tpanel haplotypes\tpanel measured\tA\n20\t7\t1\t3.4\n")
    pages = [tmp_path / "a.md", tmp_path / "b.md"]
    for page in pages:
        page.write_text("<!-- cost table c: 20 samples -->\nold\n<!-- end -->\n")
    arguments = argparse.Namespace(pages=pages, results=tmp_path, check=True)
    with pytest.raises(SystemExit, match=r"a\.md: tables differ"):
        refresh(arguments)
    arguments.check = False
    refresh(arguments)
    assert all("| 7 | 3 |" in page.read_text() for page in pages)
    arguments.check = True
    refresh(arguments)


def folder(path: Path, accuracy: str = "", timing: str = "") -> None:
    path.mkdir()
    (path / "accuracy.tsv").write_text(HEAD + accuracy)
    (path / "timing.tsv").write_text("imputer\tstage\trun\tseconds\tpeak_mb\n" + timing)


def test_first_folder_of_an_imputer_counts(tmp_path: Path) -> None:
    folder(tmp_path / "new", "Beagle\tall\t9\t0.9\t0.8\t0.7\t0\nBeagle\t(0,0.5]\t9\tnan\t0.8\t0.7\t0\n")
    old = "Beagle\tall\t9\t0.1\t0.1\t0.7\t0\nBeagle\t(0,0.5]\t9\t0.1\t0.1\t0.7\t0\n"
    mine = "spinimpute\tall\t9\t0.95\t0.85\t0.7\t0\nspinimpute\t(0,0.5]\t9\t0.5\t0.25\t0.7\t0\n"
    folder(tmp_path / "old", mine + old)
    text = "before\n<!-- accuracy table new old: Some people -->\nanything\n<!-- end -->\nafter\n"
    assert with_tables(text, tmp_path) == (
        "before\n<!-- accuracy table new old: Some people -->\n"
        "| Some people | all | ≤.5 | mean r² per variant |\n"
        "| --- | --- | --- | --- |\n"
        "| Beagle 5.4 | .9000 | – | .8000 |\n"
        "| **spinimpute**, shipped model | .9500 | .5000 | .8500 |\n"
        "<!-- end -->\nafter\n"
    )
    by_variant = with_tables("<!-- mean-accuracy table old: T -->\n<!-- end -->", tmp_path)
    assert "| **spinimpute**, shipped model | .8500 | .2500 |" in by_variant


def test_time_is_the_median(tmp_path: Path) -> None:
    runs = ("build panel\t1\t99\t1", "impute\t1\t2\t1024", "impute\t2\t30\t2048", "impute\t3\t4\t512")
    folder(tmp_path / "a", timing="".join(f"Beagle\t{run}\n" for run in runs) + "mine\timpute\t1\t8\t2048\n")
    text = with_tables("<!-- time table a: T -->\n<!-- end -->", tmp_path)
    assert "| Beagle 5.4 | 4.0 | 1.00 | 2.00 |" in text
    assert "| mine | 8.0 | 2.00 | 2.00 |" in text


def test_unknown_names_are_errors(tmp_path: Path) -> None:
    for name, text in (
        ("no folder lacking", "accuracy table lacking: T -->\n"),
        ("no weight table", "weight table lacking: T -->\n"),
        ("no folder lacking", "fewer-errors number lacking: a b -->1"),
        ("no weight number", "weight number lacking: a b -->1"),
    ):
        with pytest.raises(SystemExit, match=name):
            with_tables(f"<!-- {text}<!-- end -->", tmp_path)


def test_numbers_in_a_text(tmp_path: Path) -> None:
    folder(tmp_path / "a", "Beagle\tall\t9\t0.9\t0.8\t0.7\t0\nours\tall\t9\t0.925\t0.8\t0.7\t0\n")
    for name in "bc":
        (tmp_path / name).mkdir()
        (tmp_path / name / "sizes.tsv").write_text("imputer\tbytes\nBeagle\t200\nours\t259\n")
    errors = "<!-- fewer-errors number a: ours Beagle -->"
    sizes = "<!-- file-size number b c: ours Beagle -->"
    text = f"{errors}x<!-- end --> and {sizes}y<!-- end -->."
    assert with_tables(text, tmp_path) == f"{errors}25 %<!-- end --> and {sizes}1.29<!-- end -->."
    (tmp_path / "c" / "sizes.tsv").write_text("imputer\tbytes\nBeagle\t200\nours\t300\n")
    assert "1.29 to 1.50" in with_tables(text, tmp_path)


def test_tables_of_neural_processes_are_those_of_the_results() -> None:
    found = []
    for readme in READMES:
        text = readme.read_text()
        found += [name for _, name, _ in MARKS.findall(text)]
        assert with_processes(text, PROCESSES) == text, "run: python -m benchmarks.neural_processes contexts"
    assert sorted(found) == sorted(TABLES)


def write_run(folder: Path, kind: str, seed: int, value: float) -> None:
    folder.mkdir(exist_ok=True)
    row = {"kind": kind, "log_likelihood": value, "floored": 2.5}
    (folder / f"{kind}-{seed}.json").write_text(json.dumps(row))


def test_contexts_in_order_with_their_seeds(tmp_path: Path) -> None:
    runs = ("9-20", 1, 1.0), ("9-20", 2, 2.0), ("5-9", 1, 0.5), ("5-9-steps-2000", 1, 0.25)
    for where, seed, value in runs:
        write_run(tmp_path / f"2026-01-01-context-{where}", "CANP", seed, value)
    for other in ("5-9-floor-0.001", "5-9-matern52", "5-9-steps-3-after-1-2-steps-0"):
        (tmp_path / f"2026-01-01-context-{other}").mkdir()
    (tmp_path / "2025-12-31-context-9-20").mkdir()  # made again later
    head, _, first, *_, last = TABLES["trained"](tmp_path).splitlines()
    assert head == "| context points | 5–9 | 5–9; 2,000 steps | 9–20 |"
    assert first == "| CANP | .500 (1) | .250 (1) | 1.500 ± .707 (2) |"
    assert last == "| true process (upper bound) | 2.500 | 2.500 | 2.500 |"


def test_models_from_before_inducing_points_carried_y_are_told_apart(tmp_path: Path) -> None:
    runs = ("2026-01-01", "CIPNP+", 1.0), ("2026-01-01", "CANP", 1.5), (CARRIED_FROM, "CIPNP+", 2.0)
    for date, kind, value in runs:
        write_run(tmp_path / f"{date}-context-64-128", kind, 1, value)
    canp, new, before = TABLES["trained"](tmp_path).splitlines()[2:5]
    assert (canp, new) == ("| CANP | 1.500 (1) |", "| CIPNP+ | 2.000 (1) |")  # of each model its latest run
    assert before == "| CIPNP+ before | 1.000 (1) |"
    assert "before" not in TABLES["asked"](tmp_path)


def test_mean_ranks_on_tables_are_those_of_the_results() -> None:
    found = read_results(REPOSITORY / "benchmarks" / "tabular" / "results" / "tables")
    mean_M, sets = mean_ranks(found, ON_ALL_SETS)
    text = (REPOSITORY / "docs" / "tables.md").read_text()
    assert f"by their error on {({6: 'six', 9: 'nine'})[sets]} tables" in text
    (table,) = re.findall(r"\| method \| mean rank \|\n\| --- \| --- \|\n((?:\|.*\n)+)", text)
    names = {
        "scikit-learn's MLP": "sklearn MLP",
        "scikit-learn's boosting": "sklearn boosting",
        "LightGBM": "lightgbm",
        "XGBoost": "xgboost",
        "Set Transformer": "SetTransformer",
        "FT-Transformer": "FTTransformer",
    }
    rows = [line.strip("| ").split(" | ") for line in table.splitlines()]
    ranks = {names.get(name, name): float(rank) for name, rank in rows}
    assert ranks == pytest.approx(dict(zip(ON_ALL_SETS, mean_M.tolist(), strict=True)), abs=0.0501)
