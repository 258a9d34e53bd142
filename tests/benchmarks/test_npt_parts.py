"""NPT with a part less or another setting: what is left out is not there, and what is said of it follows."""

from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.papers import npt_parts, small_tables
from benchmarks.papers.claims import FAILS, NOT_RUN, NPT_PAPER, PARTLY, published
from benchmarks.papers.small_tables import NPT_WITHOUT_ABA, PARTS_OF_NPT, TRUE, TableNetwork, TableRecipe
from spinimpute.nn.attention import ABA

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
    """Of the context alone: those of queries are what is learned."""
    losses = []
    for spoilt in (0.0, 5.0):
        network = network_of(method)
        network.network.eval()
        context_ND, query_ND = network.table_ND[:10].clone(), network.table_ND[10:20]
        context_ND[::2, -1] += spoilt
        hidden_ND = network.is_label_D.expand(query_ND.shape)
        losses.append(network.outputs(context_ND, query_ND, hidden_ND, network.recipe.labels_shown))
    assert bool((losses[0] == losses[1]).all()) is not read


def test_without_feature_masking_features_are_not_learned() -> None:
    network = network_of(NO_FEATURES)
    asked = []
    outputs = network.outputs

    def noted(context_ND: Any, query_ND: Any, hidden_ND: Any, labels_shown: bool = True) -> Any:
        asked.append(hidden_ND.sum(0).tolist())
        return outputs(context_ND, query_ND, hidden_ND, labels_shown)

    network.outputs = noted  # type: ignore[method-assign]
    network.train(np.arange(20), np.arange(20, 24), seed=1)
    trained = asked[0]
    assert trained[:-1] == [0, 0, 0]
    assert trained[-1] > 0


def row(method: str, fold: int, rmse: float, name: str = "boston", steps: int = 400) -> dict[str, Any]:
    return {
        "set": name, "method": method, "fold": fold, "found": {TRUE: rmse}, "configuration": {"steps": steps}
    }  # fmt: skip


def test_verdicts_compare_the_same_folds() -> None:
    base = [row("NPT", fold, 3.0 + fold) for fold in range(4)] + [row("NPT", 0, 1.0, steps=6)]
    level = [row(NO_TARGETS, fold, 3.0 + fold + change) for fold, change in enumerate((0.1, -0.1, 0.3))]
    worse = [row(NO_FEATURES, fold, 3.0 + fold + change) for fold, change in enumerate((1.0, 1.1, 1.2))]
    without = [row(NPT_WITHOUT_ABA, 0, 2.9), row(NPT_WITHOUT_ABA, 1, 3.8)]
    robust, both = npt_parts.claims([*base, *level])
    assert robust.verdict == PARTLY, "few folds and no difference are no proof of none"
    assert "no target masking +0.10 ± 0.12 (3)" in robust.because
    assert both.verdict == NOT_RUN
    robust, both = npt_parts.claims([*base, *level, *worse, *without])
    assert robust.verdict == PARTLY
    assert "no feature masking +1.10 ± 0.06 (3) (*)" in robust.because
    assert "without ABA -0.15 ± 0.05 (2)" in robust.because
    assert "(2) (*)" not in robust.because, "of two folds three standard errors are nothing"
    assert both.verdict == PARTLY
    assert "boston, without ABA: -0.15 (2 folds)" in both.because
    assert npt_parts.claims([*base, *worse])[0].verdict == FAILS
    assert [claim.verdict for claim in npt_parts.claims([])] == [NOT_RUN, NOT_RUN]
    text = npt_parts.table([*base, *level, *without])
    assert f"| {NO_TARGETS} | 4.10 ± 1.11 (3) | 0.10 ± 0.20 (3) | 2.93 ± 0.18 |  |" in text
    assert f"| {NPT_WITHOUT_ABA} | 3.35 ± 0.64 (2) | -0.15 ± 0.07 (2) |  | 3.22 ± 0.25 |" in text


def test_every_part_has_a_figure_of_the_paper() -> None:
    four, five = published(NPT_PAPER, "4"), published(NPT_PAPER, "5")
    for method in small_tables.PARTS_OF_NPT:
        if method != NPT_WITHOUT_ABA:
            assert (npt_parts.OF_PAPER[method], "boston") in four
    assert all(("boston", column) in five for column in (*npt_parts.OF_TABLE_5.values(), "NPT"))
