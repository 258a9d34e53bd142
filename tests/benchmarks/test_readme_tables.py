"""The tables of README.md and docs/ are those of the committed results."""

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
        "README.md": 4, "accuracy.md": 4, "without-truth.md": 1,
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
        "| Some people | all | ≤.5 | mean per variant |\n"
        "| --- | --- | --- | --- |\n"
        "| Beagle 5.4 | .9000 | – | .8000 |\n"
        "| **spinimpute**, shipped model | .9500 | .5000 | .8500 |\n"
        "<!-- end -->\nafter\n"
    )
    by_variant = with_tables("<!-- mean-accuracy table old: T -->\n<!-- end -->", tmp_path)
    assert "| **spinimpute**, shipped model | .8500 | .2500 |" in by_variant


def test_time_is_the_median(tmp_path: Path) -> None:
    runs = "".join(
        f"{imputer}\timpute\t{i}\t{seconds}\t{peak}\n"
        for imputer, times in (("Beagle", (2, 30, 4)), ("mine", (8, 8, 8)))
        for i, (seconds, peak) in enumerate(zip(times, (1024, 2048, 512), strict=True))
    )
    folder(tmp_path / "a", timing="Beagle\tbuild panel\t1\t99\t1\n" + runs)
    text = with_tables("<!-- time table a: T -->\n<!-- end -->", tmp_path)
    assert "| Beagle 5.4 | 4.0 | 1.00 | 2.00 |" in text
    assert "| mine | 8.0 | 2.00 | 2.00 |" in text


def test_cost_is_of_the_samples_in_the_title(tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    rows = "20\t7\t1\t3.4\t1999.6\n5\t7\t1\t9\t9\n20\t8\t0\t5\t6\n"
    (tmp_path / "c" / "hours.tsv").write_text("samples\tpanel haplotypes\tpanel measured\tA\tB\n" + rows)
    assert with_tables("<!-- cost table c: 20 samples -->\n<!-- end -->", tmp_path) == (
        "<!-- cost table c: 20 samples -->\n| 20 samples; panel haplotypes | A | B |\n| --- | --- | --- |\n"
        "| 7 | 3 | 2,000 |\n| 8 (beyond what was measured) | 5 | 6 |\n<!-- end -->"
    )


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("no folder lacking", "<!-- accuracy table lacking: T -->\n<!-- end -->"),
        ("no weight table", "<!-- weight table lacking: T -->\n<!-- end -->"),
        ("no folder lacking", "<!-- fewer-errors number lacking: a b -->1<!-- end -->"),
        ("no weight number", "<!-- weight number lacking: a b -->1<!-- end -->"),
    ],
)
def test_unknown_names_are_errors(tmp_path: Path, name: str, text: str) -> None:
    with pytest.raises(SystemExit, match=name):
        with_tables(text, tmp_path)


def test_numbers_in_a_text(tmp_path: Path) -> None:
    folder(tmp_path / "a", "Beagle\tall\t9\t0.9\t0.8\t0.7\t0\nours\tall\t9\t0.925\t0.8\t0.7\t0\n")
    for name in "bc":
        (tmp_path / name).mkdir()
        (tmp_path / name / "sizes.tsv").write_text("imputer\tbytes\nBeagle\t200\nours\t259\n")
    text = (
        "<!-- fewer-errors number a: ours Beagle -->x<!-- end --> and "
        "<!-- file-size number b c: ours Beagle -->y<!-- end -->."
    )
    assert with_tables(text, tmp_path) == (
        "<!-- fewer-errors number a: ours Beagle -->25 %<!-- end --> and "
        "<!-- file-size number b c: ours Beagle -->1.29<!-- end -->."
    )
    (tmp_path / "c" / "sizes.tsv").write_text("imputer\tbytes\nBeagle\t200\nours\t300\n")
    assert "1.29 to 1.50" in with_tables(text, tmp_path)


def test_what_the_printed_r2_is_worth(tmp_path: Path) -> None:
    for name, share in (("a", "2.2%"), ("b", "3.4%")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "cuts.tsv").write_text(
            "imputer\tbin\tkept\tlost of true r² ≥ 0.3\tkept of constant\n"
            f"X\tall\t1 of 2 (50.0%)\t2 of 3 ({share})\t1 of 9 (11.1%)\nX\t(0,0.1]\t\t\t\n"
        )
        (tmp_path / name / "estimates.tsv").write_text(
            "imputer\tbin\tsites\tmean R2\tmean true r²\nX\tall\t9\t0.9\t0.8\nX\t(0,0.1]\t9\t0.715\t0.5\n"
        )
        (tmp_path / name / "table.tsv").write_text(
            "\t\nsamples\t9\ntyped calls left out, mean r² of a sample\t0.9620\n"
            "imputed genotypes, mean r² of a sample against the truth\t0.9597\nrank correlation\t0.6871\n"
        )
    text = "".join(
        f"<!-- {kind} table a b: T; one; two -->\n<!-- end -->\n"
        for kind in ("cuts", "printed-r2", "leave-one-out")
    )
    shown = [line for line in with_tables(text, tmp_path).splitlines() if "---" not in line]
    assert [line for line in shown if line.startswith("|")] == [
        "| T | lost of true r² ≥ 0.3 | kept of sites nobody varies at |",
        "| one: X | 2.2 % | 11.1 % |",
        "| two: X | 3.4 % | 11.1 % |",
        "| T; one | ≤.1 |",
        "| X | .71 / .50 |",
        "| T; two | ≤.1 |",
        "| X | .71 / .50 |",
        "| T | one | two |",
        "| typed calls left out, mean r² of a sample | .9620 | .9620 |",
        "| imputed genotypes, mean r² of a sample against the truth | .9597 | .9597 |",
        "| rank correlation | .6871 | .6871 |",
    ]


def test_tables_of_neural_processes_are_those_of_the_results() -> None:
    found = []
    for readme in READMES:
        text = readme.read_text()
        found += [name for _, name, _ in MARKS.findall(text)]
        assert with_processes(text, PROCESSES) == text, "run: python -m benchmarks.neural_processes contexts"
    assert sorted(found) == sorted(TABLES)


def runs(results: Path, values_of: dict[str, list[float]]) -> Path:
    """Results of CANP, one value for each seed."""
    for where, values in values_of.items():
        out = results / f"2026-01-01-context-{where}"
        out.mkdir()
        for seed, value in enumerate(values):
            row = {"kind": "CANP", "log_likelihood": value, "floored": 2.5}
            (out / f"CANP-{seed}.json").write_text(json.dumps(row))
    return results


def test_contexts_in_order_with_their_seeds(tmp_path: Path) -> None:
    runs(tmp_path, {"9-20": [1.0, 2.0], "5-9": [0.5], "5-9-steps-2000": [0.25]})
    for other in ("5-9-floor-0.001", "5-9-matern52", "5-9-steps-3-after-1-2-steps-0"):
        (tmp_path / f"2026-01-01-context-{other}").mkdir()
    (tmp_path / "2025-12-31-context-9-20").mkdir()  # made again later
    head, _, first, *_, last = TABLES["trained"](tmp_path).splitlines()
    assert head == "| context points | 5–9 | 5–9; 2,000 steps | 9–20 |"
    assert first == "| CANP | .500 (1) | .250 (1) | 1.500 ± .707 (2) |"
    assert last == "| who knows the process | 2.500 | 2.500 | 2.500 |"


def test_models_of_few_points_asked_with_many(tmp_path: Path) -> None:
    runs(
        tmp_path,
        {
            "900-1000-after-64-128-steps-0": [0.5],
            "64-128": [0.75],
            "64-128-floor-0.001": [0.1],
            "64-128-steps-2000": [0.2],
            "900-1000-after-64-128-steps-20": [0.3],
            "900-1000-after-5-9-steps-0": [0.4],
            "900-1000-floor-0.001-after-64-128-floor-0.001-steps-0": [0.45],
        },
    )
    (tmp_path / "2026-01-02-cost").mkdir()
    costs = "kind\tcontext\tseconds\tMB\nCANP\t1024\t3.46\t1348.2\nCANP\t128\t1\t2\nANP\t64\t1\t2\n"
    (tmp_path / "2026-01-02-cost" / "cost.tsv").write_text(costs)
    head, _, first, last = TABLES["asked"](tmp_path).splitlines()
    assert head == "| context points | 64–128 | 900–1,000 | s a step | MB kept |"
    assert first == "| CANP | .750 (1) | .500 (1) | 3.5 | 1,348 |"
    assert last == "| who knows the process | 2.500 | 2.500 |  |  |"


def test_models_from_before_inducing_points_carried_y_are_told_apart(tmp_path: Path) -> None:
    for date, name, value in (
        ("2026-01-01", "CIPNP-1", 1.0),
        ("2026-01-01", "CANP-1", 1.5),
        (CARRIED_FROM, "CIPNP-1", 2.0),
    ):
        out = tmp_path / f"{date}-context-64-128"
        out.mkdir(exist_ok=True)
        row = {"kind": name[:-2], "log_likelihood": value, "floored": 2.5}
        (out / f"{name}.json").write_text(json.dumps(row))
    canp, new, before = TABLES["trained"](tmp_path).splitlines()[2:5]
    assert (canp, new) == ("| CANP | 1.500 (1) |", "| CIPNP | 2.000 (1) |")  # of each model its latest run
    assert before == "| CIPNP before | 1.000 (1) |"
    assert "before" not in TABLES["asked"](tmp_path)


def test_contexts_after_smaller_ones(tmp_path: Path) -> None:
    values = {"steps-0": [9.0], "steps-20": [0.75], "steps-2000-steps-0": [0.25]}
    runs(tmp_path, {f"900-1000-after-64-128-{further}": value for further, value in values.items()})
    head, _, first, *_ = TABLES["further"](tmp_path).splitlines()
    assert head == (
        "| context points | 900–1,000; 20 steps after 64–128 | 900–1,000; 0 steps after 2,000 at 64–128 |"
    )
    assert first == "| CANP | .750 (1) | .250 (1) |"
    assert TABLES["trained"](tmp_path).splitlines()[0] == "| context points |"


def test_the_low_floor_has_a_table_of_its_own(tmp_path: Path) -> None:
    low = "floor-0.001"
    further = f"7-9-{low}-after-5-9-{low}-steps-4"
    runs(tmp_path, {f"5-9-{low}": [0.5], f"5-9-{low}-steps-3": [0.25], further: [0.75], "5-9": [9.0]})
    head, _, first, *_ = TABLES["floor"](tmp_path).splitlines()
    heads = ("5–9; σ ≥ .001; 3 steps", "5–9; σ ≥ .001", "7–9; σ ≥ .001; 4 steps after 5–9")
    assert head == f"| context points | {' | '.join(heads)} |"
    assert first == "| CANP | .250 (1) | .500 (1) | .750 (1) |"
    assert TABLES["further"](tmp_path).splitlines()[0] == "| context points |"


def test_mean_ranks_on_tables_are_those_of_the_results() -> None:
    found = read_results(REPOSITORY / "benchmarks" / "tabular" / "results" / "tables")
    mean_M, sets = mean_ranks(found, ON_ALL_SETS)
    text = (REPOSITORY / "docs" / "tables.md").read_text()
    assert f"On {({6: 'six', 9: 'nine'})[sets]} tables, with equal seconds" in text
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
