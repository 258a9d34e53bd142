"""Attention blocks against their formulas written out."""

import pytest
import torch
from torch import Tensor, nn

from spinimpute.nn import attention, fused_attention
from spinimpute.nn.attention import ABA, ABD, ABLA, MAB, XABA, XABD, MABOptions, MultiHeadAttention
from spinimpute.nn.set_transformer import ISAB


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


def test_invisible_keys_are_as_if_they_were_not_there() -> None:
    block = MAB(8, 8, MABOptions(heads=2))
    x, h = torch.randn(2, 3, 8), torch.randn(2, 6, 8)
    visible = torch.tensor([[True, False, True, True, False, True]]).expand(2, -1)
    torch.testing.assert_close(block(x, h, visible), block(x, h[:, [0, 2, 3, 5]]))


@pytest.mark.parametrize("visible", [False, True])
def test_blocks_of_queries_and_batches_change_nothing(monkeypatch: pytest.MonkeyPatch, visible: bool) -> None:
    q, k, v = (torch.randn(5, 2, n, 6, dtype=torch.float64, requires_grad=True) for n in (11, 7, 7))
    mask = (torch.rand(5, 7) < 0.6).index_fill(1, torch.tensor([0]), True) if visible else None

    def run() -> list[Tensor]:
        out = fused_attention.attend(q, k, v, scale=0.3, visible_BM=mask)
        return [out, *torch.autograd.grad((out * out).sum(), (q, k, v))]

    whole = run()
    monkeypatch.setattr(fused_attention, "FUSED_HEAD_WIDTH", 4)
    monkeypatch.setattr(fused_attention, "QUERY_BLOCK", 4)
    monkeypatch.setattr(fused_attention, "BATCH_BLOCK", 2)
    calls = []
    fused = nn.functional.scaled_dot_product_attention

    def counted(*args: Tensor, **kwargs: Tensor) -> Tensor:
        calls.append(args[0].shape)
        return fused(*args, **kwargs)

    monkeypatch.setattr(nn.functional, "scaled_dot_product_attention", counted)
    for blocked, expected in zip(run(), whole, strict=True):
        torch.testing.assert_close(blocked, expected)
    assert max(shape[0] for shape in calls) == 2
    assert max(shape[2] for shape in calls) == 4
    with torch.no_grad():
        torch.testing.assert_close(fused_attention.attend(q, k, v, scale=0.3, visible_BM=mask), whole[0])


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
    layer = MultiHeadAttention(8, 6)
    with pytest.raises(ValueError, match=r"x must have 3 dimensions, however: x\.ndim=2"):
        layer(torch.randn(5, 8), torch.randn(1, 5, 6))
    with pytest.raises(ValueError, match=r"h must have 6 numbers .*however: h\.shape=\(1, 5, 8\)"):
        layer(torch.randn(1, 5, 8), torch.randn(1, 5, 8))
    with pytest.raises(ValueError, match="h must have 2 tasks"):
        layer(torch.randn(2, 5, 8), torch.randn(1, 5, 6))
    with pytest.raises(ValueError, match="visible must have 5 keys"):
        layer(torch.randn(1, 5, 8), torch.randn(1, 5, 6), torch.ones(1, 4, dtype=torch.bool))
    with pytest.raises(ValueError, match="heads must divide"):
        MultiHeadAttention(8, 6, heads=3)
    with pytest.raises(ValueError, match=r"h must have 4 dimensions, however: h\.ndim=3"):
        XABD(4, 6, MABOptions())(torch.randn(2, 3, 24), torch.randn(2, 3, 4, 6))
    with pytest.raises(ValueError, match="d must have 4 attributes"):
        ABD(4, 6, MABOptions())(torch.randn(2, 3, 5, 6))
    for settings, message in (
        ({"heads": 0}, "heads"),
        ({"scale": "x"}, "scale"),
        ({"dropout": 1.0}, "dropout"),
    ):
        with pytest.raises(ValueError, match=f"{message} must be"):
            MABOptions(**settings)
