"""Recorded attention is the attention that ran."""

import pytest
import torch

from spinimpute.nn.attention import MAB, MABOptions
from spinimpute.nn.attention_maps import recorded_attention


@pytest.mark.parametrize("heads", [1, 4])
def test_recorded_weights_make_the_layers_output(heads: int) -> None:
    torch.manual_seed(0)
    block = MAB(8, 6, MABOptions(heads=heads))
    x, h = torch.randn(2, 5, 8), torch.randn(2, 7, 6)
    visible = torch.rand(2, 7) < 0.6
    visible[:, 0] = True
    with recorded_attention([block.attention]) as maps:
        expected = block.attention(x, h, visible)
        block(x, h)
    assert [tuple(found.shape) for found in maps] == [(2, heads, 5, 7)] * 2
    weights = maps[0]
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, heads, 5))
    assert not weights.masked_select(~visible[:, None, None]).any()
    _, values = block.attention.keys_values(h)
    torch.testing.assert_close(block.attention.join(weights @ values), expected)


def test_nothing_is_recorded_afterwards() -> None:
    block = MAB(4, 4, MABOptions())
    with recorded_attention([block.attention]) as maps:
        pass
    block(torch.randn(1, 2, 4), torch.randn(1, 2, 4))
    assert maps == []
