"""Predictions as corrections of pooled labels."""

from typing import Any

import pytest
import torch
from torch import Tensor

from spinimpute.nn.carrying import CarriedPoints, LabelReader, Reading
from spinimpute.nn.predictors import SHARE_OFFSET, CorrectingPredictor

COLUMNS, WIDTH, CLASSES, FEATURES, HEADS, MEMBERS, QUERIES = 3, 4, 2, 6, 2, 3, 7


def build(**changes: Any) -> CorrectingPredictor:
    torch.manual_seed(1)
    sizes = {"width": WIDTH, "columns": COLUMNS, "outputs": CLASSES, "features": FEATURES, "heads": HEADS}
    more = {"row_width": 8, "layers": 2, "members": MEMBERS, "probabilities": True}
    return CorrectingPredictor(**{**sizes, **more, **changes})


def inputs() -> tuple[Tensor, Reading]:
    torch.manual_seed(2)
    label_BHU = torch.rand(2, 5, CLASSES).softmax(-1)
    points = CarriedPoints(torch.randn(2, 5, FEATURES), label_BHU, torch.ones(2, 5))
    read = LabelReader(HEADS)(torch.randn(2, QUERIES, FEATURES), points)
    return torch.randn(2, QUERIES, COLUMNS, WIDTH), read


@pytest.mark.parametrize("probabilities", [True, False])
def test_an_untrained_predictor_gives_the_pooled_labels(probabilities: bool) -> None:
    x_BQDE, read = inputs()
    outputs_BAQO, base_BAQO = build(probabilities=probabilities)(x_BQDE, read)
    assert torch.equal(outputs_BAQO, base_BAQO)
    pooled_BQO = read.label_BGQU.mean(1)
    wanted = (pooled_BQO + SHARE_OFFSET).log() if probabilities else pooled_BQO
    for member in range(MEMBERS):
        torch.testing.assert_close(base_BAQO[:, member], wanted)


def test_a_class_without_labels_has_a_finite_logit() -> None:
    x_BQDE, read = inputs()
    nothing = read._replace(label_BGQU=torch.zeros_like(read.label_BGQU))
    assert build()(x_BQDE, nothing)[0].isfinite().all()


def test_a_member_predicts_as_it_would_alone() -> None:
    (x_BQDE, read), ensemble = inputs(), build()
    with torch.no_grad():
        for parameter in (ensemble.head_A1RO, ensemble.bias_A1O, ensemble.gate_AG):
            parameter.normal_()
    outputs_BAQO, _ = ensemble(x_BQDE, read)
    for member in range(MEMBERS):
        single, state = build(members=1), ensemble.state_dict()
        state["fold.weight"] = state["fold.weight"] * state.pop("fold.scaling")[member]
        for name in ("gate_AG", "head_A1RO", "bias_A1O"):
            state[name] = state[name][[member]]
        single.load_state_dict(state)
        alone_BQO = single(x_BQDE, read)[0][:, 0]
        torch.testing.assert_close(alone_BQO, outputs_BAQO[:, member], rtol=1e-4, atol=1e-5)
    assert (outputs_BAQO[:, 0] - outputs_BAQO[:, 1]).abs().max() > 0.1


def test_queries_never_meet() -> None:
    (x_BQDE, read), predictor = inputs(), build()
    with torch.no_grad():
        predictor.head_A1RO.normal_()
    some = Reading(
        *(part[..., :3, :] for part in read[:2]), read.feature_BQX[:, :3], read.density_BGQ[..., :3]
    )
    torch.testing.assert_close(predictor(x_BQDE[:, :3], some)[0], predictor(x_BQDE, read)[0][:, :, :3])


@pytest.mark.parametrize(("name", "message"), [("layers", "predictor_layers"), ("members", "members")])
def test_invalid_counts(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"{message} must be at least 1"):
        build(**{name: 0})
