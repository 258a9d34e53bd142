"""Other measures, ranks and California: verdicts of made-up results whose answer is known; the front page."""

import json
from math import ceil
from pathlib import Path
from typing import Any

import pytest

from benchmarks.papers import cells, npt_parts, page, section_california, section_measures
from benchmarks.papers.claims import (
    CANNOT,
    FAILS,
    FT_PAPER,
    HOLDS,
    NOT_RUN,
    NPT_PAPER,
    PARTLY,
    Claim,
    published,
)
from benchmarks.papers.small_tables import TRUE
from benchmarks.tabular.california import PREDICTIONS, TARGET, WITHOUT_BIASES

SHARED = section_measures.SHARED


def fits(**of_sets: dict[str, list[dict[str, Any]]]) -> dict[str, dict[str, list[dict[str, Any]]]]:
    return of_sets


def classified(accuracy: float, **measures: float) -> dict[str, Any]:
    return {"task": "classification", "loss": 1 - accuracy, **measures}


def regressed(rmse: float) -> dict[str, Any]:
    return {"task": "regression", "loss": rmse}


def of_all(npt: dict[str, Any], others: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    return {method: [npt if method == "NPT" else others] for method in SHARED}


def all_sets(npt_auroc: float, npt_accuracy: float, npt_rmse: float) -> dict[str, Any]:
    """The other five are all alike: AUROC .9, accuracy .8, RMSE 3."""
    binary = {
        name: of_all(classified(0.9, auroc=npt_auroc), classified(0.9, auroc=0.9))
        for name in section_measures.BINARY
    }
    numbers = {name: of_all(regressed(npt_rmse), regressed(3.0)) for name in section_measures.NUMBERS}
    return fits(**binary, **numbers, poker=of_all(classified(npt_accuracy), classified(0.8)))


def test_ranks_are_means_over_sets() -> None:
    assert section_measures.ranks([[0.9, 0.8, 0.7], [0.5, 0.6, 0.4]], True).tolist() == [1.5, 1.5, 3.0]
    assert section_measures.ranks([[1.0, 1.0, 2.0]], False).tolist() == [1.5, 1.5, 3.0]


@pytest.mark.parametrize(
    ("npt", "expected"),
    [((0.95, 0.9, 2.0), PARTLY), ((0.85, 0.9, 4.0), PARTLY), ((0.85, 0.7, 4.0), FAILS)],
)
def test_first_ranks(npt: tuple[float, float, float], expected: str) -> None:
    """In part at most: seconds, not the paper's searches, are what the methods share."""
    found = all_sets(*npt)
    claim = section_measures._first_ranks(found)
    assert claim.verdict == expected
    assert section_measures.mean_ranks(found, "AUROC")["NPT"][0] == (1 if npt[0] > 0.9 else len(SHARED))
    del found["poker"]["k-NN"]
    assert section_measures._first_ranks(found).verdict == NOT_RUN


def test_ranks_of_the_paper_are_made_anew_on_the_same_sets() -> None:
    """On Poker: MLP 99.5, NPT 99.3, XGBoost 95.9, boosting 94.1, LightGBM 92.8, k-NN 50.4."""
    theirs = {m: of[1] for m, of in section_measures.mean_ranks(all_sets(0.9, 0.9, 3.0), "accuracy").items()}
    assert theirs == {
        "sklearn MLP": 1, "NPT": 2, "xgboost": 3, "sklearn boosting": 4, "lightgbm": 5, "k-NN": 6,
    }  # fmt: skip


def likelihoods(npt: float, xgboost: float, neighbours: float) -> dict[str, list[dict[str, Any]]]:
    values = {"NPT": npt, "xgboost": xgboost, "k-NN": neighbours}
    return {method: [classified(0.9, log_loss=value)] for method, value in values.items()}


def test_likelihoods_are_compared_where_they_were_kept() -> None:
    old = {"NPT": [classified(0.9)], "xgboost": [classified(0.9)], "k-NN": [classified(0.9)]}
    assert section_measures._likelihood(fits(poker=old)).verdict == NOT_RUN
    claim = section_measures._likelihood(fits(poker=likelihoods(0.1, 0.2, 0.3), income=old))
    assert claim.verdict == PARTLY
    assert claim.because.endswith("poker (1 fold): NPT 0.100, XGBoost 0.200, k-NN 0.300")
    assert section_measures._likelihood(fits(poker=likelihoods(0.4, 0.2, 0.3))).verdict == FAILS
    text = section_measures._beside(
        fits(poker=likelihoods(0.1, 0.2, 0.3), income=old),
        section_measures.log_loss,
        "9",
        ("poker", "income"),
        3,
    )
    assert "| NPT | 0.100 (1) | 0.119 | – | 0.115 |" in text
    assert "| SPIN" not in text


@pytest.mark.parametrize(
    ("cancer", "income", "expected"),
    [(0.99, 0.896, PARTLY), (0.8, 0.896, PARTLY), (0.99, 0.894, PARTLY), (0.8, 0.894, FAILS)],
)
def test_level_is_within_half_a_hundredth(cancer: float, income: float, expected: str) -> None:
    others = classified(0.9, auroc=0.9)
    found = fits(
        breast_cancer=of_all(classified(0.9, auroc=cancer), others),
        income=of_all(classified(0.9, auroc=income), others),
    )
    assert section_measures._auroc(found).verdict == expected
    assert section_measures._auroc(fits(income=found["income"])).verdict == NOT_RUN


def test_mean_squared_error_is_of_each_fold() -> None:
    found = fits(boston={"NPT": [regressed(1.0), regressed(3.0)], "k-NN": [regressed(2.3)]})
    claim = section_measures._squared_error(found)
    assert (claim.verdict, claim.because) == (PARTLY, "At equal seconds. boston: NPT 5.00, k-NN 5.29")
    text = section_measures._beside(found, section_measures.squared, "12", ("boston",), 2)
    assert "| NPT | 5.00 ± 5.66 (2) | 8.77 ± 2.60 |" in text


def variant(method: str, fold: int, rmse: float) -> dict[str, Any]:
    return {
        "set": "boston",
        "method": method,
        "fold": fold,
        "found": {TRUE: rmse},
        "configuration": {"steps": 400},
    }


def test_variants_are_ranked_on_folds_that_all_have() -> None:
    order = list(npt_parts.OF_TABLE_13)  # target masking first
    rows = [variant(method, 0, 3.0 + i) for i, method in enumerate(order)]
    assert npt_parts.rank_claim(rows).verdict == NOT_RUN
    assert npt_parts.rank_claim([]).verdict == NOT_RUN
    rows += [variant(method, 1, 3.0 + i) for i, method in enumerate(order)] + [variant(order[0], 2, 9.0)]
    claim = npt_parts.rank_claim(rows)
    assert claim.verdict == PARTLY, "not by the paper's measure"
    assert "2 folds" in claim.because
    assert "| NPT, 16 heads | 5.00 ± 0.00 (2) | 16 Heads | 4.40 ± 0.60 | 5 |" in npt_parts.rank_table(rows)
    turned = [variant(row["method"], row["fold"], -row["found"][TRUE]) for row in rows]
    assert npt_parts.rank_claim(turned).verdict == FAILS


def ensemble_claim(single: tuple[float, ...], together: float) -> Claim:
    return section_california._gains({"ResNet": (single, together)})


def test_an_ensemble_is_ahead_of_all_or_of_most() -> None:
    assert ensemble_claim((0.48, 0.50), 0.47).verdict == HOLDS
    assert ensemble_claim((0.48, 0.50), 0.485).verdict == PARTLY
    assert ensemble_claim((0.48, 0.50), 0.495).verdict == FAILS
    assert section_california._gains({}).verdict == NOT_RUN
    text = section_california._ensemble_table({"ResNet": ((0.48, 0.50), 0.47)})
    assert "| ResNet | 0.490 ± 0.014 (2) | 0.470 | 2 | 0.486 | 0.478 |" in text


def test_ensembles_of_transformers_are_compared_once_they_are_there() -> None:
    fits = [trained("FTTransformer", 0.46), trained("FTTransformer", 0.47) | {"fit_seconds": 1_200}]
    claim = section_california._best_ensemble(fits, {})
    assert claim.verdict == CANNOT
    assert "took 10 to 20 minutes, and kept no predictions" in claim.because
    for error, expected in ((0.45, PARTLY), (0.49, FAILS)):
        both = {"FTTransformer": ((0.46, 0.47), error), "ResNet": ((0.48, 0.49), 0.47)}
        assert section_california._best_ensemble(fits, both).verdict == expected


def trained(model: str, rmse: float, **seconds: int) -> dict[str, Any]:
    return {"model": model, "rmse": rmse, "fit_seconds": 600, **seconds}


@pytest.mark.parametrize(
    ("without", "expected"), [(None, NOT_RUN), (0.50, HOLDS), (0.48, PARTLY), (0.45, FAILS)]
)
def test_feature_biases(without: float | None, expected: str) -> None:
    """Of .45 and .47 the standard deviation is .0141: two standard errors of one and two seeds are .0346."""
    usual = [trained("FTTransformer", rmse) for rmse in (0.45, 0.47)]
    rows = [] if without is None else [trained(WITHOUT_BIASES, without)]
    claim = section_california._biases_needed([*usual, *rows])
    assert claim.verdict == expected
    assert section_california._biases_needed([*usual[:1], *rows]).verdict == NOT_RUN


@pytest.mark.parametrize(("seconds", "expected"), [(250, HOLDS), (400, PARTLY), (110, PARTLY), (90, FAILS)])
def test_times_longer(seconds: int, expected: str) -> None:
    """Those of the processor count, where they are known."""
    rows = [
        trained("FTTransformer", 0.46, processor_seconds=seconds),
        trained("ResNet", 0.48, processor_seconds=100),
    ]
    assert section_california._slower(rows).verdict == expected
    assert section_california._slower(rows[:1]).verdict == NOT_RUN
    by_the_clock = [trained("FTTransformer", 0.46), trained(WITHOUT_BIASES, 0.47, processor_seconds=seconds)]
    claim = section_california._slower([*by_the_clock, rows[1]])
    assert claim.verdict == expected
    assert "without feature biases" in claim.because
    assert section_california.seconds([trained("MLP", 0.5)], "MLP") == [600]


def test_the_section_reads_what_there_is(tmp_path: Path) -> None:
    assert {c.verdict for c in section_california.section(tmp_path).claims[:4]} == {NOT_RUN}
    folder = tmp_path / "california"
    (folder / PREDICTIONS).mkdir(parents=True)
    for name, values in ((TARGET, [1.0, 2.0]), ("ResNet-1", [1.1, 2.1]), ("ResNet-2", [0.9, 1.9])):
        (folder / PREDICTIONS / f"{name}.json").write_text(json.dumps(values))
    for seed in (1, 2):
        (folder / f"ResNet-{seed}.json").write_text(json.dumps(trained("ResNet", 0.1)))
    claim = section_california.section(tmp_path).claims[0]
    assert claim.verdict == HOLDS
    assert claim.because == "ResNet: ensemble of 2 0.000, single 0.100 (0.100 to 0.100)"


def test_the_papers_have_these_tables() -> None:
    for paper, tables in ((NPT_PAPER, section_measures.WHOLE), (FT_PAPER, (*section_california.WHOLE, "5"))):
        assert all(published(paper, table) for table in tables)
    assert published(NPT_PAPER, "9")["NPT", "breast_cancer"] == "0.137 ± 0.026"
    assert published(FT_PAPER, "11")["california, FT-Transformer", "5 h"] == "0.457 (124)"
    whole, short = published(FT_PAPER, "23"), published(FT_PAPER, "5")
    assert {key: value.partition(" ")[0] for key, value in whole.items()} == short


def test_the_front_page_is_one_screen() -> None:
    """A line of 120 characters is one line of it; so is each further 120 of a table's row."""
    lines = page.readme(page.make_sections(cells.RESULTS)).splitlines()
    assert sum(max(1, ceil(len(line) / 120)) for line in lines) <= 45


def test_short_texts_are_for_the_front_page() -> None:
    claim = Claim("SPIN 3", "says", HOLDS, "all windows", "a range")
    assert (claim.row[-1], claim.short_row[-1]) == ("all windows", "a range")
    assert Claim("SPIN 3", "says", HOLDS, "few").short_row[-1] == "few"
