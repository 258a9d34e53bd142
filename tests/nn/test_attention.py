"""Attention blocks against their formulas written out."""

from collections.abc import Callable
from unittest.mock import Mock

import pytest
import torch
from torch import Tensor, nn

from spinimpute.nn import attention
from spinimpute.nn.attention import (
    ABA,
    ABD,
    ABLA,
    MAB,
    XABA,
    XABD,
    MABOptions,
    MultiHeadAttention,
    attention_weights,
    recorded_attention,
)
from spinimpute.nn.row_models import ISAB
from spinimpute.nn.streaming import KeysValues, streamed_attention


def attention_by_hand(layer: MultiHeadAttention, x: Tensor, h: Tensor, divisor: float) -> Tensor:
    q, k, v = layer.query(x), layer.key(h), layer.value(h)
    width = q.shape[-1] // layer.heads
    heads = []
    for head in range(layer.heads):
        part = slice(head * width, (head + 1) * width)
        scores = q[..., part] @ k[..., part].transpose(-1, -2) / divisor
        heads.append(torch.softmax(scores, -1) @ v[..., part])
    return layer.output(torch.cat(heads, -1))


@pytest.mark.parametrize(("scale", "divisor"), [("head", 4**0.5), ("full", 12**0.5)])
def test_multi_head_attention_equals_its_formula(scale: attention.Scale, divisor: float) -> None:
    layer = MultiHeadAttention(12, 7, heads=3, scale=scale)
    x, h = torch.randn(2, 5, 12), torch.randn(2, 9, 7)
    torch.testing.assert_close(layer(x, h), attention_by_hand(layer, x, h, divisor))


@pytest.mark.parametrize("learned_residual", [False, True])
def test_mab_equals_the_formula_of_the_paper(learned_residual: bool) -> None:
    block = MAB(12, 7, MABOptions(heads=2, learned_residual=learned_residual))
    for norm in (block.norm, block.feed_forward_norm):
        nn.init.normal_(norm.weight)
    x, h = torch.randn(2, 5, 12), torch.randn(2, 9, 7)
    o = attention_by_hand(block.attention, block.norm(x), h, 6**0.5)
    o = o + (x @ block.residual.weight.T + block.residual.bias if learned_residual else x)
    first, _, _, second, _ = block.feed_forward
    assert (first.in_features, first.out_features) == (12, 48)
    expected = o + second(nn.functional.gelu(first(block.feed_forward_norm(o))))
    torch.testing.assert_close(block(x, h), expected)


def test_invisible_keys_are_ignored() -> None:
    block = MAB(8, 8, MABOptions(heads=2))
    x, h = torch.randn(2, 3, 8), torch.randn(2, 6, 8)
    visible = torch.tensor([[True, False, True, True, False, True]]).expand(2, -1)
    torch.testing.assert_close(block(x, h, visible), block(x, h[:, [0, 2, 3, 5]]))


@pytest.mark.parametrize("visible", [False, True])
def test_blocks_of_queries_and_batches_change_nothing(monkeypatch: pytest.MonkeyPatch, visible: bool) -> None:
    q, k, v = (torch.randn(5, 2, n, 6, dtype=torch.float64, requires_grad=True) for n in (11, 7, 7))
    mask = (torch.rand(5, 7) < 0.6).index_fill(1, torch.tensor([0]), True) if visible else None

    def run() -> list[Tensor]:
        out = attention.attend(q, k, v, scale=0.3, visible_BM=mask)
        return [out, *torch.autograd.grad((out * out).sum(), (q, k, v))]

    whole = run()
    for name, value in (("FUSED_HEAD_WIDTH", 4), ("QUERY_BLOCK", 4), ("BATCH_BLOCK", 2)):
        monkeypatch.setattr(attention, name, value)
    fused = Mock(wraps=nn.functional.scaled_dot_product_attention)
    monkeypatch.setattr(nn.functional, "scaled_dot_product_attention", fused)
    torch.testing.assert_close(run(), whole)
    shapes = [call.args[0].shape for call in fused.call_args_list]
    assert max(shape[0] for shape in shapes) == 2
    assert max(shape[2] for shape in shapes) == 4
    with torch.no_grad():
        torch.testing.assert_close(attention.attend(q, k, v, scale=0.3, visible_BM=mask), whole[0])


def test_attention_between_attributes_stays_inside_a_datapoint() -> None:
    options = MABOptions(heads=2)
    xaba, abla, aba = XABA(8, options), ABLA(8, options), ABA(8, options)
    a, d = torch.randn(2, 4, 3, 8), torch.randn(2, 4, 5, 8)
    other = d.clone()
    other[:, 1] += 1
    for before, after in ((xaba(a, d), xaba(a, other)), (abla(d), abla(other)), (aba(d), aba(other))):
        changed = (before != after).flatten(2).any(-1)
        assert changed.tolist() == [[False, True, False, False]] * 2
    torch.testing.assert_close(xaba(a, d)[0, 2], xaba.mab(a[0, 2][None], d[0, 2][None])[0])


def test_datapoints_are_unfolded_to_one_vector() -> None:
    options = MABOptions(heads=2)
    h, a = torch.randn(2, 3, 4, 6), torch.randn(2, 7, 4, 6)
    xabd = XABD(4, 6, options)
    expected = xabd.mab(h.reshape(2, 3, 24), a.reshape(2, 7, 24)).reshape(2, 3, 4, 6)
    torch.testing.assert_close(xabd(h, a), expected)
    abd = ABD(4, 6, options)
    rows = a.reshape(2, 7, 24)
    torch.testing.assert_close(abd(a), abd.mab(rows, rows).reshape(2, 7, 4, 6))


def test_isab_is_two_mabs_through_inducing_points() -> None:
    isab = ISAB(3, 8, MABOptions(heads=2))
    x = torch.randn(2, 7, 8)
    summary = isab.read(isab.inducing.expand(2, -1, -1), x)
    assert summary.shape == (2, 3, 8)
    torch.testing.assert_close(isab(x), isab.write(x, summary))
    order = torch.randperm(7)
    torch.testing.assert_close(isab(x[:, order]), isab(x)[:, order])


def test_dropout_acts_in_training_only() -> None:
    block = MAB(8, 8, MABOptions(dropout=0.5))
    x = torch.randn(2, 5, 8)
    assert not torch.equal(block(x, x), block(x, x))
    block.eval()
    assert torch.equal(block(x, x), block(x, x))


def test_wrong_shapes_and_settings_are_named() -> None:
    layer, h = MultiHeadAttention(8, 6), torch.randn(1, 5, 6)
    for x, wrong, message in (
        (torch.randn(5, 8), h, r"x must have the shape \(\*, \*, 8\), got \(5, 8\)"),
        (torch.randn(1, 5, 8), torch.randn(1, 5, 8), r"h must have the shape \(1, \*, 6\), got \(1, 5, 8\)"),
        (torch.randn(2, 5, 8), h, "h must have the shape"),
    ):
        with pytest.raises(ValueError, match=message):
            layer(x, wrong)
    with pytest.raises(ValueError, match="heads must divide"):
        MultiHeadAttention(8, 6, heads=3)
    for settings in ({"heads": 0}, {"scale": "x"}, {"dropout": 1.0}, {"score": "cosine"}, {"steepness": 0.0}):
        with pytest.raises(ValueError, match=f"{next(iter(settings))} must be"):
            MABOptions(**settings)


def distances_by_hand(layer: MultiHeadAttention, key_x: Tensor, key_h: Tensor) -> Tensor:
    """Attention weights (B, G, L, M)."""
    q, k = (part.unflatten(-1, (layer.heads, -1)) for part in (layer.query(key_x), layer.key(key_h)))
    away_BLMG = (q[:, :, None] - k[:, None]).square().sum(-1)
    return torch.softmax(-away_BLMG * layer.scale / 2, 2).permute(0, 3, 1, 2)


@pytest.mark.parametrize("labels_of_heads", [False, True])
def test_distances_and_labels_equal_their_formulas(labels_of_heads: bool) -> None:
    layer = MultiHeadAttention(12, 12, heads=3, score="distance", steepness=2.0).double()
    x, key, value = (torch.randn(2, n, 12, dtype=torch.float64) for n in (5, 7, 7))
    label = torch.randn(2, *([3] if labels_of_heads else []), 7, 4, dtype=torch.float64)
    weight_BGLM = distances_by_hand(layer, x, key)
    read_BLW, label_BGLU = layer.look_up(layer.queries(x), key, value, label)
    value_BGMP = layer.value(value).unflatten(-1, (3, 4)).transpose(1, 2)
    expected = layer.output((weight_BGLM @ value_BGMP).transpose(1, 2).flatten(-2))
    torch.testing.assert_close(read_BLW, expected)
    label_BGMU = label if labels_of_heads else label[:, None].expand(-1, 3, -1, -1)
    torch.testing.assert_close(label_BGLU, weight_BGLM @ label_BGMU)
    torch.testing.assert_close(layer(x, key), layer.look_up(layer.queries(x), key, key)[0])


def test_equal_projections_find_equal_keys() -> None:
    torch.manual_seed(0)
    x = torch.randn(1, 40, 32)
    nearest = []
    for score in ("distance", "dot"):
        layer = MultiHeadAttention(32, 32, heads=4, score=score, steepness=3.0)
        assert torch.equal(layer.query.weight, layer.key.weight)
        nearest.append((attention_weights(layer, x, x).argmax(-1) == torch.arange(40)).float().mean())
    assert nearest[0] == 1
    assert nearest[1] < 1  # a long key wins


def test_distances_keep_their_precision_in_bfloat16() -> None:
    layer = MultiHeadAttention(8, 8, heads=2, score="distance", steepness=3.0)
    x = 100 + torch.linspace(0, 1, 30)[None, :, None].expand(-1, -1, 8)  # hardly apart, far from 0
    label = torch.linspace(0, 1, 30)[None, :, None]
    with torch.autocast("cpu", torch.bfloat16):
        _, found = layer.look_up(layer.queries(x), x, x, label)
    _, expected = layer.look_up(layer.queries(x), x, x, label)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("score", ["dot", "distance"])
def test_attention_without_keys(score: str) -> None:
    layer = MultiHeadAttention(8, 8, heads=2, score=score)
    x, nothing = torch.randn(2, 3, 8), torch.randn(2, 0, 8)
    read, label = layer.look_up(layer.queries(x), nothing, nothing, torch.zeros(2, 0, 4))
    torch.testing.assert_close(read, layer.output.bias.expand_as(read))
    assert torch.equal(label, torch.zeros(2, 2, 3, 4))


def test_xabd_with_labels_equals_its_formula_at_once_and_in_chunks() -> None:
    options = MABOptions(heads=2, score="distance", steepness=3.0)
    xabd = XABD(2, 6, options).double()
    h, key_h = (torch.randn(2, 3, 2, 6, dtype=torch.float64) for _ in range(2))
    a, key_a = (torch.randn(2, 9, 2, 6, dtype=torch.float64) for _ in range(2))
    label = torch.randn(2, 9, 4, dtype=torch.float64)
    weight = distances_by_hand(xabd.mab.attention, key_h.flatten(-2), key_a.flatten(-2))
    value = xabd.mab.attention.value(a.flatten(-2)).unflatten(-1, (2, -1)).transpose(1, 2)
    o = h.flatten(-2) + xabd.mab.attention.join_heads(weight @ value)
    expected = o + xabd.mab.feed_forward(xabd.mab.feed_forward_norm(o))

    def chunk(start: int, stop: int) -> Callable[[], KeysValues]:
        part = slice(start, stop)
        return lambda: KeysValues(*xabd.keys_values(key_a[:, part], a[:, part], label[:, part]))

    scale = xabd.mab.attention.scale
    at_once = attention.attend(xabd.queries(key_h), *xabd.keys_values(key_a, a, label), scale=scale)
    in_chunks = streamed_attention(xabd.queries(key_h), [chunk(0, 4), chunk(4, 4), chunk(4, 9)], scale=scale)
    for read in (at_once, in_chunks):
        found, carried = xabd.carry(h, read)
        torch.testing.assert_close(found, expected.unflatten(-1, (2, 6)))
        torch.testing.assert_close(carried, weight @ label[:, None])


@pytest.mark.parametrize("heads", [1, 4])
def test_recorded_weights_make_the_layers_output(heads: int) -> None:
    block = MAB(8, 6, MABOptions(heads=heads))
    x, h = torch.randn(2, 5, 8), torch.randn(2, 7, 6)
    visible = torch.rand(2, 7) < 0.6
    visible[:, 0] = True
    with recorded_attention([block.attention]) as maps:
        expected = block.attention(x, h, visible)
        block(x, h)
    block(x, h)  # is no longer recorded
    assert [tuple(found.shape) for found in maps] == [(2, heads, 5, 7)] * 2
    weights = maps[0]
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, heads, 5))
    assert not weights.masked_select(~visible[:, None, None]).any()
    _, values = block.attention.keys_values(h)
    torch.testing.assert_close(block.attention.join_heads(weights @ values), expected)
