"""The encoder and the reader of labelled points: exact in chunks, dependent on the labels."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from spinimpute.nn.attention import MABOptions
from spinimpute.nn.points import INPUT_RANGE, ContextPoints, PointEncoder, PointReader, mlp, spread_positions

X, Y, WIDTH, HEADS = 2, 3, 16, 2
NEAR = MABOptions(heads=HEADS, score="distance", steepness=3.0)


def parts(seed: int = 0, points: int = 5) -> tuple[PointEncoder, Tensor, nn.Module]:
    torch.manual_seed(seed)
    encoder = PointEncoder(X, Y, WIDTH, 3, NEAR).double()
    return encoder, spread_positions(X, points).double().requires_grad_(), mlp(X, WIDTH, WIDTH, 2).double()


def context(n: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x_BNX, y_BNY = (torch.randn(2, n, size, generator=generator, dtype=torch.float64) for size in (X, Y))
    return x_BNX.requires_grad_(), y_BNY.requires_grad_()


@settings(max_examples=25, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 6), min_size=2, max_size=5).filter(lambda sizes: sum(sizes) > 0),
    seed=st.integers(0, 1_000),
)
def test_chunks_change_neither_points_nor_gradients(sizes: list[int], seed: int) -> None:
    encoder, start, position = parts(seed)
    x, y = context(sum(sizes), seed)
    found = []
    for split in ([sum(sizes)], sizes):
        chunks = list(zip(x.split(split, 1), y.split(split, 1), strict=True))
        points = encoder(chunks, start, position)
        loss = sum((part.square() * (i + 1)).sum() for i, part in enumerate(points))
        wanted = [x, y, start, *encoder.parameters(), *position.parameters()]
        found.append([*points, *torch.autograd.grad(loss, wanted)])
    torch.testing.assert_close(*found, rtol=1e-8, atol=1e-8)


def test_labels_are_means_with_the_weights_of_positions_alone() -> None:
    encoder, start, position = parts()
    x, y = context(12)
    points = encoder([(x, y)], start, position)
    layer = encoder.xabd.mab.attention
    q = layer.query(position(start[None])).unflatten(-1, (HEADS, -1))
    k = layer.key(position(x)).unflatten(-1, (HEADS, -1))
    away = (q[:, :, None] - k[:, None]).square().sum(-1)
    weight_BGHN = torch.softmax(-away * layer.scale / 2, 2).permute(0, 3, 1, 2)
    torch.testing.assert_close(points.label_BGLU, weight_BGHN @ torch.cat([y, x], -1)[:, None])
    assert points.label_BGLU.shape == (2, HEADS, 5, Y + X)


def test_carried_outputs_follow_the_labels() -> None:
    """A constant added to the labels is added to the carried outputs and leaves offsets unchanged."""
    encoder, start, position = parts()
    reader = PointReader(X, Y, WIDTH, NEAR).double()
    with torch.no_grad():
        reader.share_G.copy_(torch.tensor([0.3, -1.0]))
    x, y = context(15)
    at = torch.randn(2, 4, X, dtype=torch.float64)
    plain = reader(position(at), at, encoder([(x, y)], start, position))
    raised = reader(position(at), at, encoder([(x, y + 100)], start, position))
    torch.testing.assert_close(raised.carried_BQY, plain.carried_BQY + 100)
    torch.testing.assert_close(raised.r_BQI[..., WIDTH:], plain.r_BQI[..., WIDTH:], atol=1e-6, rtol=1e-6)
    assert plain.r_BQI.shape[-1] == reader.width == WIDTH + HEADS * (X + Y)


def test_carried_outputs_are_a_mixture_over_heads() -> None:
    torch.manual_seed(0)
    reader = PointReader(X, Y, WIDTH, NEAR)
    with torch.no_grad():
        reader.share_G.copy_(torch.tensor([0.7, -0.4]))
    key, value = torch.randn(2, 6, WIDTH), torch.randn(2, 6, WIDTH)
    label = torch.randn(2, HEADS, 6, Y + X)
    asked, at = torch.randn(2, 4, WIDTH), torch.randn(2, 4, X)
    read = reader(asked, at, ContextPoints(key, value, label))
    _, pooled_BGQU = reader.attention.look_up(reader.attention.queries(asked), key, value, label)
    share_G = torch.softmax(torch.tensor([0.7, -0.4]), 0)
    carried = sum(share_G[g] * pooled_BGQU[:, g, :, :Y] for g in range(HEADS))
    torch.testing.assert_close(read.carried_BQY, carried)
    offsets = [pooled_BGQU[:, g, :, :Y] - carried for g in range(HEADS)]
    offsets += [pooled_BGQU[:, g, :, Y:] - at for g in range(HEADS)]
    torch.testing.assert_close(read.r_BQI[..., WIDTH:], torch.cat(offsets, -1))


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("n", [40, 400])
def test_bfloat16_keeps_labels_in_float32(device: str, n: int) -> None:
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("no GPU")
    encoder, start, position = (part.float().to(device) for part in parts())
    x, y = (part.detach().float().to(device) for part in context(n))
    with torch.autocast(device, torch.bfloat16):
        points = encoder([(x, y)], start, position)
    expected = encoder([(x, y)], start, position)
    assert points.label_BGLU.dtype == torch.float32
    torch.testing.assert_close(points.label_BGLU, expected.label_BGLU, rtol=0.1, atol=0.1)


@pytest.mark.parametrize("x_size", [1, 3])
def test_positions_are_spread_over_the_inputs(x_size: int) -> None:
    torch.manual_seed(0)
    spread_HX = spread_positions(x_size, 64)
    assert spread_HX.shape == (64, x_size)
    assert (spread_HX.abs() <= INPUT_RANGE).all()
    for column in spread_HX.T:  # an eighth of the points in every eighth of the range
        shares = torch.histc(column, 8, -INPUT_RANGE, INPUT_RANGE)
        assert ((shares >= 6) & (shares <= 10)).all()
