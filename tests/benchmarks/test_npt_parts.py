"""NPT with a part less or another setting: what is left out is not there."""

from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.papers.small_tables import NPT_WITHOUT_ABA, PARTS_OF_NPT, TableNetwork, TableRecipe
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
