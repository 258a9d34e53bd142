"""Verdicts of the papers' sections on made-up results whose answer is known; parts of NPT; the front page.

The tables themselves, and how results are read, are pinned by the committed pages (`test_papers.py`).
"""

import json
from dataclasses import asdict, replace
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.papers import cells, npt_parts, page, section_california, section_measures, section_processes
from benchmarks.papers.claims import FAILS, HOLDS, PARTLY, UNDECIDED, UNTESTED, Claim
from benchmarks.papers.small_tables import (
    NPT_WITHOUT_ABA,
    PARTS_OF_NPT,
    SEMI_SUPERVISED,
    TRUE,
    TableNetwork,
    TableRecipe,
)
from benchmarks.tabular.california import WITHOUT_BIASES
from spinimpute.nn.attention import ABA

SHARED = section_measures.SHARED
NO_TARGETS, NO_FEATURES = "NPT, no target masking", "NPT, no feature masking"


def classified(accuracy: float, **measures: float) -> dict[str, Any]:
    return {"task": "classification", "loss": 1 - accuracy, **measures}


def regressed(rmse: float) -> dict[str, Any]:
    return {"task": "regression", "loss": rmse}


def of_all(npt: dict[str, Any], others: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    return {method: [npt if method == "NPT" else others] for method in SHARED}


def all_sets(npt_auroc: float, npt_accuracy: float, npt_rmse: float) -> dict[str, Any]:
    """The other five are all alike: AUROC .9, accuracy .8, RMSE 3."""
    one, others = classified(0.9, auroc=npt_auroc), classified(0.9, auroc=0.9)
    binary = {name: of_all(one, others) for name in section_measures.BINARY}
    numbers = {name: of_all(regressed(npt_rmse), regressed(3.0)) for name in section_measures.NUMBERS}
    return binary | numbers | {"poker": of_all(classified(npt_accuracy), classified(0.8))}


def test_ranks_are_means_over_sets() -> None:
    assert section_measures.ranks([[0.9, 0.8, 0.7], [0.5, 0.6, 0.4]], True).tolist() == [1.5, 1.5, 3.0]
    assert section_measures.ranks([[1.0, 1.0, 2.0]], False).tolist() == [1.5, 1.5, 3.0]


@pytest.mark.parametrize(
    ("npt", "expected"), [((0.95, 0.9, 2.0), PARTLY), ((0.85, 0.9, 4.0), PARTLY), ((0.85, 0.7, 4.0), FAILS)]
)
def test_first_ranks(npt: tuple[float, float, float], expected: str) -> None:
    """Partly at most: methods get equal seconds, not the paper's searches."""
    found = all_sets(*npt)
    assert section_measures._first_ranks(found).verdict == expected
    assert section_measures.mean_ranks(found, "AUROC")["NPT"][0] == (1 if npt[0] > 0.9 else len(SHARED))
    del found["poker"]["k-NN"]
    assert section_measures._first_ranks(found).verdict == UNTESTED


def test_likelihoods_are_compared_where_they_were_kept() -> None:
    def kept(*values: float) -> dict[str, list[dict[str, Any]]]:
        methods = zip(("NPT", "xgboost", "k-NN"), values, strict=True)
        return {method: [classified(0.9, log_loss=value)] for method, value in methods}

    old = {method: [classified(0.9)] for method in ("NPT", "xgboost", "k-NN")}
    assert section_measures._likelihood({"poker": old}).verdict == UNTESTED
    claim = section_measures._likelihood({"poker": kept(0.1, 0.2, 0.3), "income": old})
    assert claim.verdict == PARTLY
    assert claim.because.endswith("poker (1 fold): NPT 0.100, XGBoost 0.200, k-NN 0.300")
    assert section_measures._likelihood({"poker": kept(0.4, 0.2, 0.3)}).verdict == FAILS


@pytest.mark.parametrize(
    ("cancer", "income", "expected"),
    [(0.99, 0.896, PARTLY), (0.8, 0.896, PARTLY), (0.99, 0.894, PARTLY), (0.8, 0.894, FAILS)],
)
def test_level_is_within_half_a_hundredth(cancer: float, income: float, expected: str) -> None:
    others = classified(0.9, auroc=0.9)
    values = {"breast_cancer": cancer, "income": income}
    found = {name: of_all(classified(0.9, auroc=auroc), others) for name, auroc in values.items()}
    assert section_measures._auroc(found).verdict == expected
    assert section_measures._auroc({"income": found["income"]}).verdict == UNTESTED


def variant(method: str, fold: int, rmse: float, steps: int = 400) -> dict[str, Any]:
    found, configuration = {TRUE: rmse}, {"steps": steps}
    return {"set": "boston", "method": method, "fold": fold, "found": found, "configuration": configuration}


def test_variants_are_ranked_on_folds_that_all_have() -> None:
    order = list(npt_parts.OF_TABLE_13)  # target masking first
    rows = [variant(method, 0, 3.0 + i) for i, method in enumerate(order)]
    assert npt_parts.rank_claim(rows).verdict == UNTESTED
    assert npt_parts.rank_claim([]).verdict == UNTESTED
    rows += [variant(method, 1, 3.0 + i) for i, method in enumerate(order)] + [variant(order[0], 2, 9.0)]
    claim = npt_parts.rank_claim(rows)
    assert claim.verdict == PARTLY, "not by the paper's measure"
    assert "2 folds" in claim.because
    reversed_ = [variant(row["method"], row["fold"], -row["found"][TRUE]) for row in rows]
    assert npt_parts.rank_claim(reversed_).verdict == FAILS


def test_parts_are_compared_on_the_same_folds() -> None:
    base = [variant("NPT", fold, 3.0 + fold) for fold in range(4)] + [variant("NPT", 0, 1.0, steps=6)]
    level = [variant(NO_TARGETS, fold, 3.0 + fold + change) for fold, change in enumerate((0.1, -0.1, 0.3))]
    worse = [variant(NO_FEATURES, fold, 3.0 + fold + change) for fold, change in enumerate((1.0, 1.1, 1.2))]
    without = [variant(NPT_WITHOUT_ABA, 0, 2.9), variant(NPT_WITHOUT_ABA, 1, 3.8)]
    robust, both = npt_parts.claims([*base, *level])
    assert robust.verdict == PARTLY, "few folds without a difference do not prove that there is none"
    assert "no target masking +0.10 ± 0.12 (3)" in robust.because
    assert both.verdict == UNTESTED
    robust, both = npt_parts.claims([*base, *level, *worse, *without])
    assert robust.verdict == PARTLY
    assert "no feature masking +1.10 ± 0.06 (3) (*)" in robust.because
    assert "without ABA -0.15 ± 0.05 (2)" in robust.because
    assert "(2) (*)" not in robust.because, "three standard errors of two folds are no evidence"
    assert both.verdict == PARTLY
    assert "boston, without ABA: -0.15 (2 folds)" in both.because
    assert npt_parts.claims([*base, *worse])[0].verdict == FAILS
    assert [claim.verdict for claim in npt_parts.claims([])] == [UNTESTED, UNTESTED]


def test_parts_are_judged_by_trainings_that_have_ended() -> None:
    def rows(method: str, rmse: float, *losses: float) -> list[dict[str, Any]]:
        training = {"looks": [{"validation loss": loss} for loss in losses]}
        return [variant(method, fold, rmse) | {"training": training} for fold in range(2)]

    falling, flat = (0.2, 0.1), (0.1, 0.2, 0.2, 0.2)
    without_aba = rows(NPT_WITHOUT_ABA, 2.0, *flat)
    for losses, expected in ((falling, UNDECIDED), (flat, FAILS)):
        both = npt_parts.claims([*rows("NPT", 3.0, *flat), *without_aba, *rows(NO_FEATURES, 2.0, *losses)])[1]
        assert both.verdict == expected


@pytest.mark.parametrize(("together", "expected"), [(0.47, HOLDS), (0.485, PARTLY), (0.495, FAILS)])
def test_an_ensemble_is_ahead_of_all_or_of_most(together: float, expected: str) -> None:
    assert section_california._gains({"ResNet": ((0.48, 0.50), together)}).verdict == expected
    assert section_california._gains({}).verdict == UNTESTED


def trained(model: str, rmse: float, **seconds: int) -> dict[str, Any]:
    return {"model": model, "rmse": rmse, "fit_seconds": 600, **seconds}


def test_ensembles_of_transformers_are_compared_once_they_are_there() -> None:
    fits = [trained("FTTransformer", 0.46), trained("FTTransformer", 0.47, fit_seconds=1_200)]
    claim = section_california._best_ensemble(fits, {})
    assert claim.verdict == UNTESTED
    assert "took 10 to 20 minutes, and kept no predictions" in claim.because
    for error, expected in ((0.45, PARTLY), (0.49, FAILS)):
        both = {"FTTransformer": ((0.46, 0.47), error), "ResNet": ((0.48, 0.49), 0.47)}
        assert section_california._best_ensemble(fits, both).verdict == expected


@pytest.mark.parametrize(
    ("without", "expected"), [(None, UNTESTED), (0.50, HOLDS), (0.48, PARTLY), (0.45, FAILS)]
)
def test_feature_biases(without: float | None, expected: str) -> None:
    """The standard deviation of .45 and .47 is .0141; two standard errors (one and two seeds) are .0346."""
    usual = [trained("FTTransformer", rmse) for rmse in (0.45, 0.47)]
    rows = [] if without is None else [trained(WITHOUT_BIASES, without)]
    assert section_california._biases_needed([*usual, *rows]).verdict == expected
    assert section_california._biases_needed([*usual[:1], *rows]).verdict == UNTESTED


@pytest.mark.parametrize(("seconds", "expected"), [(250, HOLDS), (400, PARTLY), (110, PARTLY), (90, FAILS)])
def test_times_longer(seconds: int, expected: str) -> None:
    """Processor seconds are used where they are known."""
    transformer = trained("FTTransformer", 0.46, processor_seconds=seconds)
    other = trained("ResNet", 0.48, processor_seconds=100)
    assert section_california._slower([transformer, other]).verdict == expected
    assert section_california._slower([transformer]).verdict == UNTESTED
    by_the_clock = [trained("FTTransformer", 0.46), trained(WITHOUT_BIASES, 0.47, processor_seconds=seconds)]
    claim = section_california._slower([*by_the_clock, other])
    assert claim.verdict == expected
    assert "without feature biases" in claim.because
    assert section_california.seconds([trained("MLP", 0.5)], "MLP") == [600]


@pytest.mark.parametrize(("plus", "steps"), [("", 60_000), ("+", 20_000)])
def test_processes_after_many_steps(plus: str, steps: int, tmp_path: Path) -> None:
    def claim() -> Claim:
        published, improved = (
            c for c in section_processes.section(tmp_path).claims if "100,000 steps" in c.says
        )
        other = published if plus else improved
        assert other.verdict == UNTESTED
        return improved if plus else published

    assert claim().verdict == UNTESTED
    folder = tmp_path / f"2026-11-25-context-64-128-steps-{steps}"
    folder.mkdir()
    for kind, log_likelihood in (("CIPNP", 1.289), ("IPNP", 1.3), ("CANP", 1.25)):
        row = {"kind": kind + plus, "log_likelihood": log_likelihood, "floored": 1.349, "steps": steps}
        (folder / f"{kind}{plus}-1.json").write_text(json.dumps(row))
    assert claim().verdict == PARTLY
    assert f"CANP{plus} 1.250" in claim().because
    assert claim().because.endswith(f"not run: ANP{plus}, BANP{plus}")


def test_the_front_page_is_one_screen() -> None:
    """A table row counts as one line for each 120 characters."""
    lines = page.readme(page.make_sections(cells.RESULTS)).splitlines()
    assert sum(max(1, ceil(len(line) / 120)) for line in lines) <= 45


NO_TARGETS, NO_FEATURES = "NPT, no target masking", "NPT, no feature masking"


def network_of(method: str) -> TableNetwork:
    recipe = replace(TableRecipe(steps=2, width=16, looks=1), **PARTS_OF_NPT[method])
    torch.manual_seed(1)
    return TableNetwork(method, np.random.default_rng(1).normal(size=(30, 4)), np.arange(20), recipe)


@pytest.mark.parametrize("method", PARTS_OF_NPT)
def test_every_part_is_one_change(method: str) -> None:
    network, base = network_of(method), network_of("NPT")
    changed = {name for name, value in asdict(base.recipe).items() if asdict(network.recipe)[name] != value}
    assert changed == PARTS_OF_NPT[method].keys()
    layers, of_base = (sum(isinstance(m, ABA) for m in x.network.modules()) for x in (network, base))
    assert layers == (0 if method == NPT_WITHOUT_ABA else of_base * network.recipe.blocks // 4)
    log = network.train(np.arange(16), np.arange(16, 20), seed=1)
    assert np.isfinite(log["looks"][-1]["validation loss"])


@pytest.mark.parametrize(("method", "read"), [(NO_TARGETS, False), ("NPT", True)])
def test_hidden_labels_of_the_context_do_not_train(method: str, read: bool) -> None:
    """The labels of queries are still learned."""
    losses = []
    for spoilt in (0.0, 5.0):
        network = network_of(method)
        network.network.eval()
        context_ND, query_ND = network.table_ND[:10].clone(), network.table_ND[10:20]
        context_ND[::2, -1] += spoilt
        hidden_ND = network.is_label_D.expand(query_ND.shape)
        losses.append(network.outputs(context_ND, query_ND, hidden_ND, network.recipe.labels_shown))
    assert bool((losses[0] == losses[1]).all()) is not read


@pytest.mark.parametrize(
    ("method", "column", "read"),
    [(SEMI_SUPERVISED, 0, True), (SEMI_SUPERVISED, -1, False), ("NPT", 0, False)],
)
def test_semi_supervised_npt_reads_features_of_other_rows(method: str, column: int, read: bool) -> None:
    """Features of rows without known labels change training and predictions; their labels change nothing."""
    errors = []
    for spoilt in (0.0, 5.0):
        network = network_of(method)
        network.table_ND[24:, column] += spoilt
        network.train(np.arange(16), np.arange(16, 20), seed=1)
        errors.append(network.rmse(np.arange(20), np.arange(20, 24)))
    assert (errors[0] != errors[1]) is read


def test_without_feature_masking_features_are_not_learned() -> None:
    network = network_of(NO_FEATURES)
    asked = []
    outputs = network.outputs

    def noted(context_ND: Any, query_ND: Any, hidden_ND: Any, *others: Any, **named: Any) -> Any:
        asked.append(hidden_ND.sum(0).tolist())
        return outputs(context_ND, query_ND, hidden_ND, *others, **named)

    network.outputs = noted  # type: ignore[method-assign]
    network.train(np.arange(20), np.arange(20, 24), seed=1)
    trained = asked[0]
    assert trained[:-1] == [0, 0, 0]
    assert trained[-1] > 0
