"""Embeddings of cells."""

from itertools import pairwise

import pytest
import torch

from spinimpute.nn.embedding import ColumnEmbedding, ColumnHead


def test_a_category_selects_its_weights_and_a_mask_selects_the_mask_bit() -> None:
    embed = ColumnEmbedding(5, 4, 3)
    x = torch.tensor([[[0, 4, 2], [1, 1, 5]]])
    mask = torch.tensor([[[False, False, True], [False, True, False]]])
    weight, constant = embed.categorical_weight, embed.bias + embed.index
    expected = torch.stack(
        [weight[0, 0], weight[1, 4], weight[2, 5], weight[0, 1], weight[1, 5], weight[2, 5]]
    )
    torch.testing.assert_close(embed(x, mask), expected.view(1, 2, 3, 4) + constant)


def test_the_value_of_a_masked_cell_has_no_influence() -> None:
    embed = ColumnEmbedding(5, 4, 3, continuous=[1])
    x = torch.tensor([[[0.0, 0.3, 2.0]]])
    mask = torch.tensor([[[False, True, True]]])
    other = torch.tensor([[[0.0, float("nan"), 9.0]]])
    assert torch.equal(embed(x, mask), embed(other, mask))
    assert not torch.equal(embed(x, mask), embed(x, torch.zeros_like(mask)))


def test_continuous_columns_keep_their_place_among_categorical_ones() -> None:
    embed = ColumnEmbedding(3, 4, 4, continuous=[2, 0])
    x = torch.tensor([[[0.5, 2.0, -1.5, 1.0]]])
    got = embed(x, torch.zeros(1, 1, 4, dtype=torch.bool))[0, 0] - embed.bias - embed.index
    expected = [
        0.5 * embed.continuous_weight[0, 0],
        embed.categorical_weight[0, 2],
        -1.5 * embed.continuous_weight[1, 0],
        embed.categorical_weight[1, 1],
    ]
    torch.testing.assert_close(got, torch.stack(expected))
    only = ColumnEmbedding(1, 4, 2, continuous=[0, 1])
    assert only(torch.randn(1, 3, 2), torch.zeros(1, 3, 2, dtype=torch.bool)).shape == (1, 3, 2, 4)


def test_side_information_replaces_the_column_and_allows_any_number_of_columns() -> None:
    embed = ColumnEmbedding(3, 4, None, side_width=2)
    x, mask = torch.randint(0, 3, (2, 5, 7)), torch.rand(2, 5, 7) < 0.3
    side = torch.randn(2, 7, 2)
    order = torch.randperm(7)
    moved = embed(x[..., order], mask[..., order], side[:, order])
    torch.testing.assert_close(moved, embed(x, mask, side)[:, :, order])
    assert not torch.equal(embed(x, mask, side), embed(x, mask, side + 1))
    torch.testing.assert_close(embed(x, mask, side[0])[0], embed(x, mask, side)[0])
    assert embed(x[..., :3], mask[..., :3], side[0, :3]).shape == (2, 5, 3, 4)


def test_the_head_has_a_map_for_each_column_or_one_for_all() -> None:
    x = torch.randn(2, 3, 4, 5)
    own, shared = ColumnHead(5, 6, 4), ColumnHead(5, 6, None)
    torch.testing.assert_close(own(x)[:, :, 2], x[:, :, 2] @ own.weight[2] + own.bias[2])
    torch.testing.assert_close(shared(x), x @ shared.weight[0] + shared.bias[0])


def test_wrong_tables_are_named() -> None:
    embed, sided = ColumnEmbedding(5, 4, 3), ColumnEmbedding(5, 4, 3, side_width=2)
    x, mask = torch.zeros(1, 2, 3, dtype=torch.long), torch.zeros(1, 2, 3, dtype=torch.bool)
    for module, arguments, message in (
        (embed, (x[0], mask[0]), r"x must have the shape \(\*, \*, 3\), got \(2, 3\)"),
        (embed, (x, mask[:, :1]), r"mask must have the shape \(1, 2, 3\)"),
        (embed, (x[..., :2], mask[..., :2]), "x must have the shape"),
        (embed, (x - 1, mask), r"codes 0\.\.5 \(5 = missing\), got -1\.\.-1"),
        (embed, (x, mask, torch.zeros(3, 2)), "side must be None"),
        (sided, (x, mask), "side must be given"),
        (sided, (x, mask, torch.zeros(4, 2)), r"side must have the shape \(\*, 3, 2\)"),
    ):
        with pytest.raises(ValueError, match=message):
            module(*arguments)
    with pytest.raises(ValueError, match="side_width must be positive"):
        ColumnEmbedding(5, 4, None)
    with pytest.raises(ValueError, match="continuous must hold columns below 3"):
        ColumnEmbedding(5, 4, 3, continuous=[3])
    for pieces in (1, -2, 2.5, None):
        with pytest.raises(ValueError, match="pieces must be 0 or a whole number of at least 2"):
            ColumnEmbedding(1, 4, 1, continuous=[0], pieces=pieces)


@pytest.mark.parametrize("pieces", [2, 5])
def test_scalars_are_encoded_piecewise_linearly(pieces: int) -> None:
    embed = ColumnEmbedding(1, 4, 1, continuous=[0], pieces=pieces)
    ends = [-3.0, *torch.special.ndtri(torch.arange(1, pieces) / pieces).tolist(), 3.0]
    weight = embed.continuous_weight[0]
    for scalar in (-4.0, -3.0, -0.7, 0.0, 0.1, 2.9, 3.0, 7.0):
        sum_E = scalar * weight[0] + embed.pieces.bias[0]
        for piece, (low, high) in enumerate(pairwise(ends)):
            sum_E = sum_E + min(1.0, max(0.0, (scalar - low) / (high - low))) * weight[2 + piece]
        got_E = embed(torch.tensor([[[scalar]]]), torch.zeros(1, 1, 1, dtype=torch.bool))[0, 0, 0]
        torch.testing.assert_close(got_E, torch.relu(sum_E) + embed.bias[0] + embed.index[0])
    missing_E = embed(torch.tensor([[[float("nan")]]]), torch.ones(1, 1, 1, dtype=torch.bool))[0, 0, 0]
    expected_E = torch.relu(weight[1] + embed.pieces.bias[0]) + embed.bias[0] + embed.index[0]
    torch.testing.assert_close(missing_E, expected_E)
