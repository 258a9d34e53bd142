"""Inducing points that carry labels: exact in chunks, invariant to order, dependent on the context."""

from typing import get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from spinimpute.nn.carrying import (
    Axis,
    CarriedPoints,
    CarryingEncoder,
    LabelReader,
    SquaredDistance,
    attend_to_points,
    multiply,
    pooled_labels,
    split_float32,
    spread_out,
)

NO_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
AXES = st.sampled_from(get_args(Axis))
DEVICES = ["cpu", pytest.param("cuda", marks=NO_GPU)]


class Dots:
    """A `Similarity`: minus the squared distance, times a learned steepness."""

    def __init__(self, steepness: Tensor) -> None:
        self.steepness = steepness

    def sums(self, r_BHN: Tensor, x_BNX: Tensor) -> Tensor:
        return r_BHN @ x_BNX

    def keys(self, feature_BHF: Tensor) -> Tensor:
        return feature_BHF

    def scores(self, x_BNX: Tensor, keys: Tensor) -> Tensor:
        return -self.steepness * (x_BNX.unsqueeze(2) - keys.unsqueeze(1)).square().sum(-1)


def context(n: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x_BNX = torch.randn(2, n, 3, generator=generator, dtype=torch.float64)
    return x_BNX, (torch.rand(2, n, 4, generator=generator) < 0.3).double()


def start_of(x_BNX: Tensor, count: int) -> CarriedPoints:
    start_BHX = x_BNX[:, :count]
    return CarriedPoints(start_BHX, start_BHX[..., :0], torch.ones(start_BHX.shape[:2]).to(start_BHX))


@settings(max_examples=30, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 6), min_size=1, max_size=5).filter(lambda sizes: sum(sizes) >= 3),
    rounds=st.integers(1, 3),
    seed=st.integers(0, 1_000),
    axis=AXES,
)
def test_chunks_change_neither_points_nor_gradients(
    sizes: list[int], rounds: int, seed: int, axis: Axis
) -> None:
    x_BNX, label_BNU = context(sum(sizes), seed)
    found = []
    for parts in ([sum(sizes)], sizes):
        encoder = CarryingEncoder[Tensor](rounds, axis).double()
        x = x_BNX.clone().requires_grad_()
        steepness = torch.tensor(1.3, dtype=torch.float64, requires_grad=True)
        chunks = list(zip(x.split(parts, 1), label_BNU.split(parts, 1), strict=True))
        points = encoder(chunks, start_of(x, 3), Dots(steepness))
        loss = sum((part.square() * (i + 1)).sum() for i, part in enumerate(points))
        gradients = torch.autograd.grad(loss, [x, steepness, *encoder.parameters()])
        found.append([*points, *gradients])
    torch.testing.assert_close(*found, rtol=1e-9, atol=1e-9)


@settings(max_examples=30, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 6), min_size=1, max_size=5).filter(lambda sizes: sum(sizes) >= 3),
    rounds=st.integers(1, 3),
    steepness=st.sampled_from([0.0, 0.5, 2.0]),
    far=st.sampled_from([0.0, 30.0]),
    axis=AXES,
)
def test_points_and_gradients_are_those_of_the_definition(
    sizes: list[int], rounds: int, steepness: float, far: float, axis: Axis
) -> None:
    """Explicit loops over rounds, points and datapoints; datapoints that are far away give extreme scores."""
    x, label_BNU = context(sum(sizes))
    x = (x + far * torch.arange(sum(sizes))[:, None]).requires_grad_()
    start, steep = start_of(x.detach(), 3), torch.tensor(steepness, dtype=torch.float64, requires_grad=True)
    encoder = CarryingEncoder[Tensor](rounds, axis).double()
    chunks = list(zip(x.split(sizes, 1), label_BNU.split(sizes, 1), strict=True))
    found = encoder(chunks, start, Dots(steep))
    weight_BHN = torch.zeros(2, 3, sum(sizes))
    feature, mass = start.feature_BHF, start.mass_BH
    for _ in range(rounds):
        away_BHN = torch.stack([(x - feature[:, [h]]).square().sum(-1) for h in range(3)], 1)
        if axis == "points":
            log_BHN = -steep * away_BHN + 0.5 * (mass[..., None] + 0.1).log()
            weight_BHN = (log_BHN - log_BHN.logsumexp(1, keepdim=True)).exp()
        else:
            weight_BHN = (-steep * away_BHN - (-steep * away_BHN).logsumexp(2, keepdim=True)).exp()
        mass = weight_BHN.sum(-1) if axis == "points" else torch.full_like(mass, sum(sizes) / 3)
        mean_BHN = weight_BHN / weight_BHN.sum(-1, keepdim=True).clamp(min=1e-30)
        feature = mean_BHN @ x
    expected = CarriedPoints(feature, mean_BHN @ label_BNU, mass)
    torch.testing.assert_close(tuple(found), tuple(expected))
    torch.testing.assert_close(encoder.shares(chunks, start, Dots(steep)), mean_BHN)
    losses = (
        sum((part * (i + 1)).square().mean() for i, part in enumerate(points)) for points in (found, expected)
    )
    gradients = (torch.autograd.grad(loss, [x, steep]) for loss in losses)
    torch.testing.assert_close(*gradients, rtol=1e-6, atol=1e-9 * (1 + far) ** 2)


def test_points_that_attend_to_datapoints_do_not_depend_on_each_other() -> None:
    x_BNX, label_BNU = context(9)
    encoder = CarryingEncoder[tuple[Tensor, Tensor]](2, "datapoints").double()
    few, many = (
        encoder([(x_BNX, label_BNU)], start_of(x_BNX, count), SquaredDistance("datapoints"))
        for count in (1, 4)
    )
    torch.testing.assert_close(few.label_BHU, many.label_BHU[:, :1])
    with pytest.raises(ValueError, match="axis must be one of points, got 'datapoints'"):
        encoder.assign([(x_BNX, label_BNU)], start_of(x_BNX, 2), SquaredDistance("datapoints"))


def test_the_order_of_datapoints_changes_nothing() -> None:
    x_BNX, label_BNU = context(20)
    order = torch.randperm(20, generator=torch.Generator().manual_seed(1))
    encoder, start = CarryingEncoder[Tensor](2).double(), start_of(x_BNX, 5)
    one = encoder([(x_BNX, label_BNU)], start, Dots(torch.tensor(1.0)))
    other = encoder([(x_BNX[:, order], label_BNU[:, order])], start, Dots(torch.tensor(1.0)))
    torch.testing.assert_close(tuple(other), tuple(one))


def read_labels(logit_BGQH: Tensor, points: CarriedPoints) -> tuple[Tensor, Tensor]:
    attention_BGQH = attend_to_points(logit_BGQH, points.mass_BH)
    return attention_BGQH, pooled_labels(attention_BGQH, points.label_BHU)


def test_with_a_point_for_each_datapoint_labels_are_looked_up() -> None:
    x_BNX, label_BNU = context(12)
    similarity = Dots(torch.tensor(500.0))
    points = CarryingEncoder[Tensor](2).double()([(x_BNX, label_BNU)], start_of(x_BNX, 12), similarity)
    torch.testing.assert_close(points.label_BHU, label_BNU, rtol=0, atol=1e-4)
    torch.testing.assert_close(points.mass_BH, torch.ones_like(points.mass_BH), rtol=0, atol=1e-4)
    logit_BGQH = similarity.scores(x_BNX, similarity.keys(points.feature_BHF)).unsqueeze(1)
    attention_BGQH, pooled_BGQU = read_labels(logit_BGQH, points)
    torch.testing.assert_close(pooled_BGQU[:, 0], label_BNU, rtol=0, atol=1e-4)
    assert (attention_BGQH.argmax(-1)[0, 0] == torch.arange(12)).all()


def test_masses_and_labels_sum_to_those_of_the_context() -> None:
    x_BNX, label_BNU = context(30)
    encoder = CarryingEncoder[Tensor](3).double()
    points = encoder([(x_BNX, label_BNU)], start_of(x_BNX, 6), Dots(torch.tensor(0.7)))
    torch.testing.assert_close(points.mass_BH.sum(1), torch.full((2,), 30.0, dtype=torch.float64))
    carried_BU = (points.mass_BH.unsqueeze(-1) * points.label_BHU).sum(1)
    torch.testing.assert_close(carried_BU, label_BNU.sum(1), rtol=1e-4, atol=1e-4)


def test_padding_gets_no_datapoints_and_no_attention() -> None:
    x_BNX, label_BNU = context(15)
    encoder, similarity = CarryingEncoder[Tensor](2).double(), Dots(torch.tensor(1.0))
    start = start_of(x_BNX, 4)
    padded = CarriedPoints(
        torch.cat([start.feature_BHF, x_BNX[:, 4:6]], 1),
        x_BNX[:, :6, :0],
        torch.tensor([[1.0] * 4 + [0.0] * 2] * 2, dtype=torch.float64),
    )
    without = encoder([(x_BNX, label_BNU)], start, similarity)
    found = encoder([(x_BNX, label_BNU)], padded, similarity)
    for a, b in zip(without, found, strict=True):
        torch.testing.assert_close(b[:, :4], a)
    assert (found.mass_BH[:, 4:] == 0).all()
    attention_BGQH, _ = read_labels(torch.zeros(2, 1, 3, 6, dtype=torch.float64), found)
    assert (attention_BGQH[..., 4:] == 0).all()


def test_pooled_labels_follow_the_labels_of_the_context() -> None:
    x_BNX, label_BNU = context(16)
    similarity, start = Dots(torch.tensor(2.0)), start_of(x_BNX, 8)
    encoder = CarryingEncoder[Tensor](2).double()
    logit = torch.randn(2, 2, 5, 8, dtype=torch.float64)
    _, pooled = read_labels(logit, encoder([(x_BNX, label_BNU)], start, similarity))
    _, other = read_labels(logit, encoder([(x_BNX, 1 - label_BNU)], start, similarity))
    torch.testing.assert_close(pooled, 1 - other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("device", DEVICES)
def test_bfloat16_keeps_sums_in_float32(device: str) -> None:
    x_BNX, label_BNU = (part.float().to(device) for part in context(3_000))
    encoder, similarity = CarryingEncoder[Tensor](2).to(device), Dots(torch.tensor(1.0, device=device))
    with torch.autocast(device, torch.bfloat16):
        points = encoder([(x_BNX, label_BNU)], start_of(x_BNX, 8), similarity)
    assert points.mass_BH.dtype == torch.float32
    torch.testing.assert_close(points.mass_BH.sum(1).cpu(), torch.full((2,), 3_000.0), rtol=1e-3, atol=0)


def test_invalid_arguments() -> None:
    x_BNX, _ = context(4)
    with pytest.raises(ValueError, match="chunks must contain at least one chunk"):
        CarryingEncoder[Tensor](1)([], start_of(x_BNX, 2), Dots(torch.tensor(1.0)))
    with pytest.raises(ValueError, match="rounds must be at least 1"):
        CarryingEncoder[Tensor](0)
    with pytest.raises(ValueError, match="axis must be"):
        CarryingEncoder[Tensor](1, "rows")


@pytest.mark.parametrize("count", [3, 7, 20])
def test_starting_points_are_spread_datapoints(count: int) -> None:
    x_BNX, _ = context(20)
    x_BNX[1, :, 2] *= 9  # along another feature in another context
    start = spread_out(x_BNX, count)
    assert start.feature_BHF.shape == (2, count, 3)
    assert (start.mass_BH == 1).all()
    for b, widest in ((0, int(x_BNX[0].var(0).argmax())), (1, 2)):
        chosen = torch.cdist(start.feature_BHF[b], x_BNX[b]).argmin(1)
        torch.testing.assert_close(x_BNX[b, chosen], start.feature_BHF[b])
        assert len(set(chosen.tolist())) == count
        if count < 20:  # one of each of so many equal parts
            rank = x_BNX[b, :, widest].argsort().argsort()[chosen]
            assert (rank * count // 20).tolist() == list(range(count))
    order = torch.randperm(20, generator=torch.Generator().manual_seed(1))
    other = spread_out(x_BNX[:, order], count).feature_BHF
    if count == 20:
        other = other[:, order.argsort()]
    torch.testing.assert_close(other, start.feature_BHF)


def test_starting_points_do_not_depend_on_the_order_where_features_tie() -> None:
    generator = torch.Generator().manual_seed(3)
    x_BNX = torch.randint(3, (2, 60, 4), generator=generator).double()
    order = torch.randperm(60, generator=generator)
    other = spread_out(x_BNX[:, order], 7).feature_BHF
    torch.testing.assert_close(other, spread_out(x_BNX, 7).feature_BHF)


def test_scores_are_squared_distances() -> None:
    x_BNX, _ = context(20)
    point_BHX = context(5, seed=1)[0]
    away_BNH = torch.cdist(x_BNX, point_BHX).square()
    for axis, same_on_the_axis in (
        ("points", x_BNX.square().sum(-1, keepdim=True)),
        ("datapoints", point_BHX.square().sum(-1).unsqueeze(1)),
    ):
        nearness = SquaredDistance(axis)
        score_BNH = nearness.scores(x_BNX, nearness.keys(point_BHX))
        torch.testing.assert_close(score_BNH - same_on_the_axis, -away_BNH)


@settings(max_examples=20, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 6), min_size=1, max_size=4).filter(lambda sizes: sum(sizes) >= 3),
    rounds=st.integers(1, 3),
    axis=AXES,
)
def test_shares_are_the_weights_of_the_means(sizes: list[int], rounds: int, axis: Axis) -> None:
    x_BNX, label_BNU = context(sum(sizes))
    encoder = CarryingEncoder[tuple[Tensor, Tensor]](rounds, axis).double()
    nearness, start = SquaredDistance(axis), start_of(x_BNX, 3)
    start = start._replace(mass_BH=torch.tensor([[1.0, 1.0, 1.0], [1.0, 1.0, 0.0]]).double())
    chunks = list(zip(x_BNX.split(sizes, 1), label_BNU.split(sizes, 1), strict=True))
    points = encoder(chunks, start, nearness)
    share_BHN = encoder.shares(chunks, start, nearness)
    for mean, of in ((points.feature_BHF, x_BNX), (points.label_BHU, label_BNU)):
        present = points.mass_BH > 0
        torch.testing.assert_close((share_BHN @ of)[present], mean[present])
    torch.testing.assert_close(share_BHN.sum(-1), (points.mass_BH > 0).double(), rtol=1e-4, atol=1e-4)


def test_heads_are_kernel_regressions() -> None:
    x_BNX, label_BNU = context(9)
    feature_BHX, mass_BH = torch.cat((x_BNX, x_BNX.flip(1)), -1), torch.rand(2, 9).double() + 0.5
    points = CarriedPoints(feature_BHX, label_BNU, mass_BH)
    q_BQX = context(4, seed=2)[0].repeat(1, 1, 2) * torch.tensor([1.0] * 3 + [2.0] * 3)
    reader = LabelReader(2).double()
    read = reader(q_BQX, points)
    for b in range(2):
        for g in range(2):
            part = slice(3 * g, 3 * g + 3)
            for q in range(4):
                away_H = (q_BQX[b, q, part] - points.feature_BHF[b, :, part]).square().sum(-1)
                mass_H = points.mass_BH[b] + 0.1
                weight_H = mass_H * (-away_H).exp()
                share_H = weight_H / weight_H.sum()
                torch.testing.assert_close(read.attention_BGQH[b, g, q], share_H)
                torch.testing.assert_close(read.label_BGQU[b, g, q], share_H @ label_BNU[b])
                torch.testing.assert_close(read.density_BGQ[b, g, q], (weight_H.sum() / mass_H.sum()).log())
                mean_P = share_H @ points.feature_BHF[b, :, part]
                torch.testing.assert_close(read.feature_BQX[b, q, part], mean_P - q_BQX[b, q, part])


def test_copies_of_points_and_padding_change_no_reading() -> None:
    """A point with twice the mass is two points, and a context of copies has the density of the context."""
    x_BNX, label_BNU = context(9)
    q_BQX = context(4, seed=2)[0]
    reader = LabelReader(3).double()
    mass_BH = torch.full((2, 9), 2.9).double()
    padded = CarriedPoints(
        torch.cat((x_BNX, x_BNX), 1),
        torch.cat((label_BNU, label_BNU), 1),
        torch.cat((mass_BH, 0 * mass_BH), 1),
    )
    doubled = padded._replace(mass_BH=torch.cat((mass_BH, mass_BH), 1))
    halved = padded._replace(mass_BH=torch.full((2, 18), 1.4).double())
    expected = reader(q_BQX, CarriedPoints(x_BNX, label_BNU, mass_BH))
    for points in (padded, doubled, halved):
        for name in ("label_BGQU", "feature_BQX", "density_BGQ"):
            torch.testing.assert_close(getattr(reader(q_BQX, points), name), getattr(expected, name))


@pytest.mark.parametrize("device", DEVICES)
def test_bfloat16_reads_in_float32(device: str) -> None:
    x_BNX, label_BNU = (part.float().to(device) for part in context(50))
    reader = LabelReader(3).to(device)
    points = CarriedPoints(x_BNX, label_BNU, torch.ones(x_BNX.shape[:2], device=device))
    exact = reader(x_BNX, points)
    with torch.autocast(device, torch.bfloat16):
        found = reader(x_BNX, points)
    for a, b in zip(exact, found, strict=True):
        assert b.dtype == torch.float32
        torch.testing.assert_close(a, b)


def test_padding_is_not_read_however_far_the_points_are() -> None:
    x_BNX, label_BNU = context(4)
    mass_BH = torch.tensor([[1.0, 1.0, 0.0, 1.0]] * 2).double()
    read = LabelReader(1).double()(x_BNX * 1e6, CarriedPoints(-x_BNX * 1e6, label_BNU, mass_BH))
    assert (read.attention_BGQH[..., 2] == 0).all()
    assert all(part.isfinite().all() for part in read)


def test_padding_gets_nothing_however_far_the_points_are() -> None:
    x_BNX = torch.tensor([[[-100.0], [100.0], [100.0]]])
    label_BNU = torch.tensor([[[0.0], [1.0], [1.0]]])
    start = CarriedPoints(x_BNX[:, :2], x_BNX[:, :2, :0], torch.tensor([[1.0, 0.0]]))
    points = CarryingEncoder[tuple[Tensor, Tensor]](2)([(x_BNX, label_BNU)], start, SquaredDistance())
    torch.testing.assert_close(points.mass_BH, torch.tensor([[3.0, 0.0]]))
    torch.testing.assert_close(points.label_BHU[0, 0], torch.tensor([2 / 3]))
    attention = attend_to_points(torch.tensor([[[[-2e4, 0.0]]]]), torch.tensor([[1.0, 0.0]]))
    assert attention.flatten().tolist() == [1.0, 0.0]


def test_products_with_bfloat16_lose_no_precision() -> None:
    generator = torch.Generator().manual_seed(1)
    a_BLM = torch.randn(2, 5, 7, generator=generator) * torch.logspace(-9, 3, 7)
    assert torch.equal(sum(part.double() for part in split_float32(a_BLM)), a_BLM.double())
    b_BMN = torch.randint(0, 2, (2, 7, 4), generator=generator)
    for found in (multiply(a_BLM, b_BMN.bfloat16()), multiply(b_BMN.mT.bfloat16(), a_BLM.mT).mT):
        torch.testing.assert_close(found, a_BLM @ b_BMN.float())
