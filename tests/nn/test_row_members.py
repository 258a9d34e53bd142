"""Members of the row predictor's ensemble: one model each, side by side."""

from typing import Literal

import pytest
import torch

from spinimpute.nn.attention import MABOptions
from spinimpute.nn.predictors import MemberFold, RowPredictor
from spinimpute.nn.spin import SPIN, SPINConfig

COLUMNS, WIDTH, OUTPUTS, MEMBERS, QUERIES = 5, 4, 3, 3, 7


def build(members: int) -> RowPredictor:
    torch.manual_seed(1)
    more = {"latent_attributes": 2, "row_width": 8, "layers": 2, "options": MABOptions(heads=2)}
    return RowPredictor(WIDTH, OUTPUTS, COLUMNS, members=members, **more)


def inputs() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(2, QUERIES, COLUMNS, WIDTH), torch.randn(2, 6, 2, WIDTH)


def alone(ensemble: RowPredictor, member: int) -> RowPredictor:
    """A single predictor with a member's weights: its scaling goes into the fold."""
    single = build(1)
    state = {k: v for k, v in ensemble.state_dict().items() if k != "fold.scaling"}
    state["fold.weight"] = state["fold.weight"] * ensemble.fold.scaling[member].detach()
    for part in ("head.weight", "head.bias"):
        state[part] = state[part][member * COLUMNS : (member + 1) * COLUMNS]
    single.load_state_dict(state)
    return single


def test_a_member_predicts_as_it_would_alone() -> None:
    ensemble, (x, h) = build(MEMBERS), inputs()
    logits = ensemble(x, h)
    assert logits.shape == (2, MEMBERS * QUERIES, COLUMNS, OUTPUTS)
    for member in range(MEMBERS):
        own = logits[:, member * QUERIES : (member + 1) * QUERIES]
        torch.testing.assert_close(own, alone(ensemble, member)(x, h), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("predictor", ["row", "tokenwise", "flat"])
def test_a_spin_of_any_predictor_gives_one_column(predictor: Literal["row", "tokenwise", "flat"]) -> None:
    torch.manual_seed(1)
    members = 2 if predictor == "row" else 1
    model = SPIN(SPINConfig(3, COLUMNS, 4, 4, 2, 1, predictor=predictor, members=members))
    table = torch.randint(3, (1, QUERIES, COLUMNS))
    parts = (table, torch.zeros_like(table, dtype=torch.bool)) * 2
    for only in (0, 2, -1):
        wanted = model(*parts)[:, :, [only]]
        torch.testing.assert_close(model(*parts, only=only), wanted, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match=r"only must be in -5\.\.4, got 7"):
        model(*parts, only=7)


def test_members_differ_from_the_start() -> None:
    first, second, _ = build(MEMBERS)(*inputs()).split(QUERIES, 1)
    assert (first - second).abs().max() > 1e-2


def test_categories_start_with_a_sign_and_numbers_with_a_normal_factor() -> None:
    torch.manual_seed(1)
    mixed = MemberFold(WIDTH, COLUMNS, 8, 40, continuous=(1, 4))
    scaling_MDE = mixed.scaling.detach().unflatten(-1, (COLUMNS, WIDTH))[:, 0]
    categories, numbers = scaling_MDE[:, [0, 2, 3]], scaling_MDE[:, [1, 4]]
    assert set(categories.flatten().tolist()) == {-1.0, 1.0}
    assert (categories == categories[..., :1]).all()
    assert len(categories[..., 0].unique(dim=0)) > 1
    assert len(categories[..., 0].unique(dim=1).T) > 1
    assert len(numbers.unique()) == numbers.numel()
    assert numbers.mean().abs() < 0.3
    assert (numbers.std() - 1).abs() < 0.3
