"""Imputed labels against true ones: tables made with known answers, and a slow count of everything."""

from collections import Counter
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import spinimpute
from spinimpute.evaluation.labels import LabelEvaluation
from spinimpute.runtime.errors import InputError
from tests.conftest import Runner

CALLS = "sample\tlocus\tfields\tallele1\tallele2\tprobability\tprobability1\tprobability2\n"
TYPES = "sample\tlocus\tallele1\tallele2\n"
LABELS = ("01:01", "01:02", "02:01", "03:01", "03:02", "04")


def write(path: Path, header: str, *rows: str) -> Path:
    path.write_text(header + "".join(row.replace(" ", "\t") + "\n" for row in rows))
    return path


def calls(folder: Path, *rows: str) -> Path:
    """Write imputed labels: sample, locus, fields, two alleles, and the probability of the pair."""
    return write(folder / "calls.tsv", CALLS, *(f"{row} 1 1" for row in rows))


def types(folder: Path, *rows: str) -> Path:
    return write(folder / "types.tsv", TYPES, *rows)


def only(rows: list[dict[str, Any]] | None, **wanted: object) -> dict[str, Any]:
    (row,) = (row for row in rows or [] if all(row[name] == value for name, value in wanted.items()))
    return row


def test_pairs_have_no_order_and_labels_may_be_unknown(tmp_path: Path) -> None:
    imputed = calls(
        tmp_path,
        "a HLA-A 2 01:01 02:01 0.95",
        "a HLA-A 1 01 02 0.96",
        "b HLA-A 2 01:01 01:01 0.55",
        "b HLA-A 1 01 01 0.9",
        "c HLA-A 2 02:01 03:01 0.2",
        "c HLA-A 1 02 03 0.4",
        "d HLA-A 2 02:01 03:01 0.7",
        "d HLA-A 1 02 03 0.8",
        "x HLA-A 2 02:01 03:01 0.7",
        "a HLA-B 2 02:01 03:01 0.7",
    )
    true = types(
        tmp_path,
        "a A 02:01:01 01:01:02",  # exchanged, and finer
        "b A A*01:01 A*01:02",  # one of two copies is right
        "c A 02 03:01",  # at two fields, one label is unknown
        "d A . 04:01",
        "e A 01:01 01:01",
        "a C 1 2",
    )
    result = spinimpute.evaluate_labels(imputed, true)
    assert result.samples == ["a", "b", "c", "d"]
    assert (result.truth_only_samples, result.imputed_only_samples) == (["e"], ["x"])
    assert (result.truth_only_loci, result.imputed_only_loci) == (["C"], ["HLA-B"])
    fine = only(result.by_locus, locus="HLA-A", fields=2)
    assert [fine[name] for name in ("people", "labels", "right", "pairs", "pairs_right")] == [4, 6, 4, 2, 1]
    assert (fine["accuracy"], fine["pair_accuracy"]) == (4 / 6, 1 / 2)
    assert fine["mean_probability"] == pytest.approx((0.95 + 0.55) / 2)
    coarse = only(result.by_locus, locus="HLA-A", fields=1)
    assert [coarse[name] for name in ("people", "labels", "right", "pairs", "pairs_right")] == [4, 7, 6, 3, 3]
    assert only(result.by_locus, locus="all", fields=2) == fine | {"locus": "all"}
    called = only(result.thresholds, locus="HLA-A", fields=2, threshold=0.7)
    assert [called[name] for name in ("pairs", "called", "call_rate", "pair_accuracy")] == [2, 1, 0.5, 1]
    tenth = only(result.calibration, locus="HLA-A", fields=2, bin="[0.5,0.6)")
    assert [tenth[name] for name in ("predictions", "mean_predicted", "observed")] == [1, 0.55, 0]
    label = only(result.by_label, fields=2, label="01:01")
    assert [label[name] for name in ("labels", "right", "called", "called_right")] == [2, 2, 3, 2]
    assert label["frequency"] == 2 / 6
    sample = only(result.by_sample, sample="b", fields=2)
    assert (sample["labels"], sample["right"], sample["pairs_right"]) == (2, 1, 0)


def best_matching(true: tuple[str, ...], called: tuple[str, ...]) -> int:
    return max(sum(a == b for a, b in zip(true, order, strict=False)) for order in permutations(called))


def test_all_tables_are_those_of_a_slow_count(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    people = [(f"s{x}", locus) for x in range(120) for locus in ("A", "B")]
    true = {one: tuple(rng.choice(LABELS, 2)) for one in people}
    called = {one: tuple(rng.choice(pair if rng.random() < 0.7 else LABELS, 2)) for one, pair in true.items()}
    probability = {one: round(float(rng.random()), 4) for one in people}
    population = {f"s{x}": "PQ"[x % 2] for x in range(120)}
    result = spinimpute.evaluate_labels(
        calls(tmp_path, *(f"{s} {g} 2 {' '.join(called[s, g])} {probability[s, g]}" for s, g in people)),
        types(tmp_path, *(f"{s} {g} {' '.join(true[s, g])}" for s, g in people)),
        write(tmp_path / "p.tsv", "sample\tx\tpopulation\n", *(f"{s} 1 {p}" for s, p in population.items())),
        bins=(0, 0.17, 1),
    )
    right = {one: best_matching(true[one], called[one]) for one in people}
    for locus in ("A", "B", "all"):
        here = [one for one in people if locus in ("all", one[1])]
        row = only(result.by_locus, locus=locus)
        assert row["right"] == sum(right[one] for one in here)
        assert row["pairs_right"] == sum(right[one] == 2 for one in here)
        for name in "PQ":
            group = only(result.by_population, locus=locus, population=name)
            assert group["right"] == sum(right[one] for one in here if population[one[0]] == name)
            assert group["people"] == 60
        for threshold in (0.5, 0.9):
            above = [one for one in here if probability[one] >= threshold]
            row = only(result.thresholds, locus=locus, threshold=threshold)
            assert row["call_rate"] == len(above) / len(here)
            assert row["accuracy"] == sum(right[one] for one in above) / len(above) / 2
        tenth = [one for one in here if 0.3 <= probability[one] < 0.4]
        row = only(result.calibration, locus=locus, bin="[0.3,0.4)")
        assert row["predictions"] == len(tenth)
        assert row["mean_predicted"] == pytest.approx(np.mean([probability[one] for one in tenth]))
        assert row["observed"] == np.mean([right[one] == 2 for one in tenth])
    count = {g: Counter(label for s, one in people if one == g for label in true[s, g]) for g in "AB"}
    rare = {(g, label) for g in "AB" for label in LABELS if count[g][label] / 240 <= 0.17}
    row = only(result.by_frequency, locus="all", bin="(0,0.17]")
    assert row["distinct_labels"] == len(rare)
    assert row["labels"] == sum(count[g][label] for g, label in rare)
    copies = [
        min(true[s, g].count(label), called[s, g].count(label))
        for s, g in people
        for h, label in rare
        if g == h
    ]
    assert row["right"] == sum(copies)


def test_haploid_people_have_one_label(tmp_path: Path) -> None:
    header = CALLS.removesuffix("\tprobability1\tprobability2\n") + "\n"
    imputed = write(tmp_path / "calls.tsv", header, "a L 1 1  0.9", "b L 1 2  0.6", "c L 1 1 2 0.8")
    result = spinimpute.evaluate_labels(imputed, types(tmp_path, "a L 1 1", "b L . 1", "c L 1 2"))
    row = only(result.by_locus, locus="L")
    assert [row[name] for name in ("labels", "right", "pairs", "pairs_right")] == [4, 3, 3, 2]
    with pytest.raises(InputError, match="line 2: sample a has 1 and 2 at L, but one copy in the table of"):
        spinimpute.evaluate_labels(imputed, types(tmp_path, "a L 1 2"))


def test_tables_of_other_programs(tmp_path: Path) -> None:
    """Without probabilities and numbers of fields."""
    imputed = write(tmp_path / "calls.tsv", "# HLA\n" + TYPES, "a A A*01:01 A*02:01", "b A . .")
    result = spinimpute.evaluate_labels(imputed, types(tmp_path, "a A 01:01 02:01", "b A 01:01 02:01"))
    assert only(result.by_locus, locus="A", fields=2)["pairs_right"] == 1
    assert (result.calibration, result.thresholds, result.by_population) == ([], [], None)
    assert result.truth_only_samples == ["b"]


def test_some_samples(tmp_path: Path) -> None:
    tables = (
        calls(tmp_path, "a A 1 1 2 0.9", "b A 1 1 2 0.9"),
        types(tmp_path, "a A 1 1", "b A 1 2", "c A 1 2"),
    )
    result = spinimpute.evaluate_labels(*tables, samples=["b"])
    assert (result.samples, result.truth_only_samples) == (["b"], [])
    assert only(result.by_locus, locus="A")["accuracy"] == 1
    with pytest.raises(InputError, match="sample c is not in both tables"):
        spinimpute.evaluate_labels(*tables, samples=["b", "c"])


GOOD_CALL, GOOD_TYPE = "a A 1 1 2 0.9", "a A 1 2"
BAD = {
    "no common sample": (
        [GOOD_CALL],
        ["b A 1 2"],
        "no sample is in both the table of true types (b) and the table of imputed labels (a)",
    ),
    "no common locus": (
        [GOOD_CALL],
        ["a B 1 2"],
        "no locus is in both the table of true types (B) and the table of imputed labels (A)",
    ),
    "contradiction": (
        [GOOD_CALL],
        ["a A 1:1 2", "a A 1:2 2"],
        "types.tsv, line 3: sample a has 1:2 and 2 at A, which contradicts 1:1 and 2 in line 2",
    ),
    "nothing known": (
        ["a A 2 1:1 2:1 0.9"],
        ["a A 1 2"],
        "no true label of types.tsv is known at a resolution of calls.tsv",
    ),
    "two rows": (
        [GOOD_CALL, GOOD_CALL],
        [GOOD_TYPE],
        "imputed labels calls.tsv, line 3: sample a has two rows of A with fields = 1",
    ),
    "probability": (["a A 1 1 2 1.9"], [GOOD_TYPE], "the probability is '1.9', expected a number between"),
    "fields": (["a A x 1 2 0.9"], [GOOD_TYPE], "line 2: the number of fields is 'x', expected 1, 2, ..."),
    "other locus": ([GOOD_CALL], ["a A 1 B*2"], "line 2: the allele B*2 does not belong to the locus A"),
    "no labels": ([], [GOOD_TYPE], "table of imputed labels calls.tsv: it has no labels"),
    "no types": ([GOOD_CALL], [], "table of true types types.tsv: it has no row"),
}


@pytest.mark.parametrize(("imputed", "true", "message"), BAD.values(), ids=BAD)
def test_bad_tables(
    imputed: list[str],
    true: list[str],
    message: str,
    run: Runner,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    calls(Path(), *imputed)
    types(Path(), *true)
    printed = run("evaluate", "--labels", "calls.tsv", "--types", "types.tsv", "--out", "o").refused(message)
    assert printed.err.count("\n") == 1
    assert not Path("o").exists()


def test_bad_files(run: Runner, tmp_path: Path) -> None:
    imputed, true = calls(tmp_path, GOOD_CALL), types(tmp_path, GOOD_TYPE)
    other = tmp_path / "other.tsv"
    other.write_text("sample\tlocus\tallele1\na\tA\t1\n")
    run("evaluate", "--labels", imputed, "--types", other).refused("it has no column allele2")
    run("evaluate", "--labels", other, "--types", true).refused("it has no column allele2")
    other.write_bytes(b"")
    run("evaluate", "--labels", imputed, "--types", other).refused("the file is empty")
    other.write_bytes(TYPES.encode() + b"a\tA\t1\t\xff\n")
    run("evaluate", "--labels", imputed, "--types", other).refused("it is not valid UTF-8")
    groups = ("--labels", imputed, "--types", true, "--populations")
    run("evaluate", *groups, write(other, "sample\tpopulation\n", "b P")).refused(
        "none of the compared samples"
    )
    run("evaluate", *groups, write(other, "sample\tgroup\n", "a P")).refused("it has no column population")
    both = write(other, "sample\tpopulation\n", "a P", "a Q")
    run("evaluate", *groups, both).refused("line 3: sample a is of two populations, P and Q")


def test_the_command_writes_tables(run: Runner, tmp_path: Path) -> None:
    imputed, true = calls(tmp_path, GOOD_CALL, "b A 1 1 3 0.5"), types(tmp_path, GOOD_TYPE, "b A 1 2")
    populations = write(tmp_path / "p.tsv", "sample\tpopulation\n", "a P")
    out = tmp_path / "out"
    command = ("evaluate", "--labels", imputed, "--types", true, "--out", out)
    printed = run(*command, "--populations", populations).ok(f"report: {out}")
    assert "2 people, 1 locus" in printed.out
    assert "75.0%" in printed.out
    assert "1 of the compared samples are not in it, such as b" in printed.err
    names = ("", "_alleles", "_calibration", "_frequencies", "_populations", "_samples", "_thresholds")
    assert sorted(path.name for path in out.iterdir()) == [f"labels{name}.tsv" for name in names]
    lines = (out / "labels.tsv").read_text().splitlines()
    assert lines[0].split("\t")[:5] == ["locus", "fields", "people", "labels", "right"]
    assert lines[1].split("\t")[:6] == ["all", "1", "2", "4", "3", "0.75"]
    assert "A\t1\tP\t1\t2\t2\t1" in (out / "labels_populations.tsv").read_text()
    run(*command).refused("already exists; use --force")
    run(*command, "--force", "--bins", "0,0.3,1").ok()
    assert not (out / "labels_populations.tsv").exists()
    assert "(0.3,1]" in (out / "labels_frequencies.tsv").read_text()


def test_options_that_do_not_belong_together(run: Runner, tmp_path: Path) -> None:
    imputed, true = calls(tmp_path, GOOD_CALL), types(tmp_path, GOOD_TYPE)
    run("evaluate", "--labels", imputed).refused("--labels needs --types")
    run("evaluate", "--types", true).refused("--types needs --labels")
    both = ("evaluate", "--labels", imputed, "--types", true)
    run(*both, "--panel", "x.spin").refused("--panel cannot be used with --labels and --types")
    run(*both, "--region", "6").refused("--region cannot be used with --labels and --types")
    run(*both, "--bins", "0,2").refused(
        "--bins: give two or more increasing frequencies between 0 and 1, got 0, 2"
    )
    run("evaluate", "--truth", "t", "--imputed", "i").refused(
        "--panel is missing. Give --truth, --imputed and"
    )
    run("evaluate", "--populations", "p").refused("--populations needs --labels and --types")


def test_a_result_is_printed(tmp_path: Path) -> None:
    result = spinimpute.evaluate_labels(calls(tmp_path, GOOD_CALL), types(tmp_path, GOOD_TYPE))
    assert isinstance(result, LabelEvaluation)
    assert "100.0%" in repr(result)
