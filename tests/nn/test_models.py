"""Properties of SPIN, CIPNP and the baselines, whatever their weights."""

import dataclasses
import json
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Bernoulli, Categorical
from torch.nn import functional

from spinimpute.nn.attention import MAB, MABOptions
from spinimpute.nn.presets import published_network
from spinimpute.nn.spin import CIPNP, SPIN, SPINConfig, SPINEncoder

VOCABULARY, COLUMNS = 4, 6
LABELS = torch.arange(COLUMNS) >= 4
SMALL = SPINConfig(VOCABULARY, COLUMNS, width=8, inducing_points=3, latent_attributes=2, heads=2)


def build(name: str) -> nn.Module:
    torch.manual_seed(5)
    if name == "cipnp":
        return CIPNP(SMALL, pooled=True)
    if name in ("NPT", "SetTransformer"):
        return published_network(name, VOCABULARY, COLUMNS, width=8, inducing_points=3, latent_attributes=2)
    return SPIN(dataclasses.replace(SMALL, predictor=name))


def tables(rows: int, tasks: int = 2) -> tuple[Tensor, Tensor]:
    tokens = torch.randint(0, VOCABULARY, (tasks, rows, COLUMNS))
    return tokens, torch.rand(tokens.shape) < 0.1


SPINS = ["tokenwise", "flat", "row", "cipnp"]
ALL = [*SPINS, "NPT", "SetTransformer"]


@pytest.mark.parametrize("name", ALL)
def test_the_order_of_the_context_does_not_matter_but_its_content_does(name: str) -> None:
    model = build(name)
    context, query = tables(9), tables(4)
    order = torch.randperm(9)
    logits = model(*context, *query)
    assert logits.shape == (2, 4, COLUMNS, VOCABULARY)
    shuffled = model(context[0][:, order], context[1][:, order], *query)
    torch.testing.assert_close(shuffled, logits, rtol=1e-4, atol=1e-5)
    changed = context[0].clone()
    changed[:, :, 5] = (changed[:, :, 5] + 1) % VOCABULARY
    assert (model(changed, context[1], *query) - logits).abs().max() > 1e-3


@pytest.mark.parametrize("name", SPINS)
def test_a_query_does_not_depend_on_the_other_queries(name: str) -> None:
    model = build(name)
    context, (query, mask) = tables(9), tables(5)
    logits = model(*context, query, mask)
    others = torch.cat((query[:, :1], (query[:, 1:] + 1) % VOCABULARY), 1)
    masks = torch.cat((mask[:, :1], ~mask[:, 1:]), 1)
    torch.testing.assert_close(model(*context, others, masks)[:, 0], logits[:, 0])
    torch.testing.assert_close(model(*context, query[:, :1], mask[:, :1])[:, 0], logits[:, 0])


@pytest.mark.parametrize("name", SPINS)
def test_predicting_from_a_kept_encoding_equals_predicting_from_the_context(name: str) -> None:
    model = build(name)
    context, query = tables(9), tables(5)
    h = model.encode(*context)
    assert h.shape == (2, 3, 2, 8)
    assert torch.equal(model.predict(*query, h), model(*context, *query))


@pytest.mark.parametrize("name", ALL)
def test_the_value_under_a_masked_label_has_no_influence(name: str) -> None:
    model = build(name)
    context, (query, _) = tables(9), tables(4)
    mask = LABELS.expand_as(query)
    other = torch.where(mask, (query + 1) % VOCABULARY, query)
    hidden = torch.where(mask, VOCABULARY, query)
    logits = model(*context, query, mask)
    assert torch.equal(model(*context, other, mask), logits)
    assert torch.equal(model(*context, hidden, torch.zeros_like(mask)), logits)
    # those of the query's own attributes have
    other = torch.where(torch.arange(COLUMNS) == 0, (query + 1) % VOCABULARY, query)
    assert (model(*context, other, mask) - logits)[:, :, LABELS].abs().amax() > 1e-3


@pytest.mark.parametrize("name", ALL)
def test_padding_rows_of_the_context_are_ignored(name: str) -> None:
    model = build(name)
    (context, mask), query = tables(9), tables(4)
    visible = torch.arange(9).expand(2, -1) < 7
    padded = model(context, mask, *query, visible=visible)
    torch.testing.assert_close(padded, model(context[:, :7], mask[:, :7], *query), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ALL)
def test_every_weight_learns(name: str) -> None:
    model = build(name)
    context, (query, _) = tables(9), tables(4)
    mask = LABELS.expand_as(query)
    functional.cross_entropy(model(*context, query, mask)[mask], query[mask]).backward()
    idle = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    # Keys shift all scores of a query alike: their bias cancels in the softmax.
    assert [name for name in idle if not name.endswith("key.bias")] == []


@pytest.mark.parametrize("name", ALL)
def test_bfloat16_runs_and_agrees(name: str) -> None:
    model = build(name)
    context, query = tables(9), tables(4)
    exact = model(*context, *query)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = model(*context, *query)
    torch.testing.assert_close(mixed.float(), exact, rtol=0.1, atol=0.1)
    half = model.to(torch.bfloat16)(*context, *query)
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half.float(), exact, rtol=0.1, atol=0.15)
    half.float().sum().backward()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("name", ALL)
def test_cuda_agrees_with_the_cpu(name: str) -> None:
    model = build(name)
    context, query = tables(9), tables(4)
    exact = model(*context, *query)
    device = torch.device("cuda")
    got = model.to(device)(*(tensor.to(device) for tensor in (*context, *query)))
    torch.testing.assert_close(got.cpu(), exact, rtol=1e-3, atol=1e-3)


def test_columns_described_by_side_information_can_be_new_and_in_any_order() -> None:
    model = SPIN(SPINConfig(VOCABULARY, None, width=8, side_width=3, latent_start="learned", heads=2))
    for columns in (4, 9):
        context, query = (torch.randint(0, VOCABULARY, (2, n, columns)) for n in (7, 3))
        shown, hidden = torch.zeros_like(context) == 1, torch.rand(query.shape) < 0.5
        side = torch.randn(2, columns, 3)
        logits = model(context, shown, query, hidden, side)
        order = torch.randperm(columns)
        moved = model(context[..., order], shown, query[..., order], hidden[..., order], side[:, order])
        torch.testing.assert_close(moved, logits[:, :, order], rtol=1e-4, atol=1e-5)
        assert (model(context, shown, query, hidden, side + 1) - logits).abs().max() > 1e-3


def test_rows_of_npt_read_each_other() -> None:
    model = build("NPT")
    tokens, mask = tables(6)
    logits = model.rows(tokens, mask)
    order = torch.randperm(6)
    moved = model.rows(tokens[:, order], mask[:, order])
    torch.testing.assert_close(moved, logits[:, order], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(model(tokens[:, :4], mask[:, :4], tokens[:, 4:], mask[:, 4:]), logits[:, 4:])


def test_cipnp_gives_distributions() -> None:
    context, query = tables(9), tables(4)
    model = build("cipnp")
    categorical = model.distribution(model(*context, *query))
    assert isinstance(categorical, Categorical)
    assert categorical.log_prob(query[0]).shape == query[0].shape
    binary = CIPNP(dataclasses.replace(SMALL, vocabulary=2), "bernoulli")
    context, query = ((tokens % 2, mask) for tokens, mask in (context, query))
    parameters = binary(*context, *query)
    bernoulli = binary.distribution(parameters)
    assert isinstance(bernoulli, Bernoulli)
    torch.testing.assert_close(bernoulli.probs, parameters[..., 0].sigmoid())
    unpooled = CIPNP(SMALL)
    assert sum(p.numel() for p in unpooled.parameters()) < sum(p.numel() for p in model.parameters())


def test_a_configuration_survives_json() -> None:
    config = dataclasses.replace(SMALL, continuous=(1, 3))
    read = SPINConfig(**json.loads(json.dumps(dataclasses.asdict(config))))
    assert read == config
    model, copy = SPIN(config), SPIN(read)
    copy.load_state_dict(model.state_dict())
    x = torch.rand(1, 5, COLUMNS).round()
    mask = torch.zeros_like(x, dtype=torch.bool)
    assert torch.equal(model(x, mask, x, mask), copy(x, mask, x, mask))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"columns": None}, "side_width must be positive"),
        ({"columns": None, "side_width": 2}, "latent_start='linear'; use 'learned'"),
        (
            {"columns": None, "side_width": 2, "latent_start": "learned", "predictor": "flat"},
            "columns must be",
        ),
        ({"predictor": "other"}, "predictor must be one of tokenwise, flat, row, got 'other'"),
        ({"latent_start": "zero"}, "latent_start must be one of linear, learned, got 'zero'"),
        ({"blocks": 0}, "blocks must be at least 1, got 0"),
        ({"inducing_points": 0}, "inducing_points must be at least 1"),
        ({"predictor_layers": 0}, "predictor_layers must be at least 1"),
        ({"predictor_layers": 1.5}, "predictor_layers must be a whole number, got 1.5"),
        ({"blocks": True}, "blocks must be a whole number"),
        ({"inducing_points": "3"}, "inducing_points must be a whole number, got '3'"),
        ({"heads": 3}, "heads must divide the width"),
        ({"predictor": "row", "members": 0}, "members must be at least 1, got 0"),
    ],
)
def test_contradictions_are_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SPIN(dataclasses.replace(SMALL, **changes))


def test_wrong_distributions_and_shapes_are_named() -> None:
    with pytest.raises(ValueError, match="vocabulary must be 2 for a Bernoulli distribution, got 4"):
        CIPNP(SMALL, "bernoulli")
    with pytest.raises(ValueError, match="predictor must be 'tokenwise' for CIPNP"):
        CIPNP(dataclasses.replace(SMALL, predictor="flat"))
    with pytest.raises(ValueError, match="distribution must be one of categorical, bernoulli"):
        CIPNP(SMALL, "normal")
    encoder, model, query = SPINEncoder(8, 5), build("tokenwise"), tables(4)
    for d in (torch.randn(3, 5, 8), torch.randn(1, 3, 6, 8)):
        with pytest.raises(ValueError, match=r"d must have the shape \(\*, \*, 5, 8\), got"):
            encoder(d)
    for h in (torch.randn(3, 2, 8), torch.randn(1, 3, 2, 8)):
        with pytest.raises(ValueError, match=r"h must have the shape \(2, \*, \*, 8\), got"):
            model.predict(*query, h)


def millions(model: nn.Module) -> float:
    return sum(parameter.numel() for parameter in model.parameters()) / 1e6


def test_embedding_width_16() -> None:
    with torch.device("meta"):
        assert millions(published_network("SPIN", 32, 50)) == pytest.approx(8.05, abs=0.005)
        assert millions(published_network("NPT", 32, 50)) == pytest.approx(16.7, abs=0.05)
        assert millions(published_network("SetTransformer", 32, 50)) == pytest.approx(33.4, abs=0.05)
        flat = MAB(50 * 16, 10 * 16, MABOptions(learned_residual=True))
        assert millions(flat) == pytest.approx(7.31, abs=0.005)


def test_npt_64_at_400_snps() -> None:
    with torch.device("meta"):
        assert millions(published_network("NPT", 32, 80 + 30, width=64, heads=4)) == pytest.approx(
            1289, abs=0.6
        )


def test_the_tokenwise_predictor_does_not_grow_with_the_square_of_the_columns() -> None:
    with torch.device("meta"):
        few, many = (millions(SPIN(SPINConfig(32, columns))) for columns in (50, 500))
    assert few < 0.75
    assert (many - few) / 450 < 0.002, "each column adds its embedding and its head only"


@pytest.mark.parametrize("order", ["paper", "released"])
def test_the_order_of_the_encoders_layers(order: str) -> None:
    """XABD reads latent attributes before ABLA in the paper (3.2.1), after it in the released code."""
    torch.manual_seed(3)
    encoder, d_BNDE = SPINEncoder(8, 5, blocks=3, layer_order=order), torch.randn(2, 7, 5, 8)
    a_BNFE = encoder._start(d_BNDE)
    h_BHFE = encoder.start_points.expand(2, -1, -1, -1)
    first, second, third = encoder.blocks
    if order == "paper":  # the second block holds the ABLA of the paper's first layer
        layers = [(first, second.abla), (second, third.abla), (third, None)]
        for block, abla in layers:
            a_BNFE = block.xaba(a_BNFE, d_BNDE)
            h_BHFE = block.xabd(h_BHFE, a_BNFE)
            a_BNFE = a_BNFE if abla is None else abla(a_BNFE)
    else:
        for block in (first, second, third):
            a_BNFE = block.abla(block.xaba(a_BNFE, d_BNDE))
            h_BHFE = block.xabd(h_BHFE, a_BNFE)
    torch.testing.assert_close(encoder(d_BNDE), h_BHFE)
    chunks = d_BNDE.split(3, 1)
    torch.testing.assert_close(encoder.encode_stream(chunks), h_BHFE)
    kept = encoder.encode_stream(chunks, keep_latents=True)
    torch.testing.assert_close(kept, h_BHFE)


def test_weights_of_the_other_order_are_refused() -> None:
    paper, released = (SPIN(dataclasses.replace(SMALL, layer_order=o)) for o in ("paper", "released"))
    for model, other in ((paper, released), (released, paper)):
        with pytest.raises(RuntimeError, match=r"blocks\.0\.abla"):
            model.load_state_dict(other.state_dict())
    with pytest.raises(ValueError, match="layer_order must be one of paper, released"):
        SPIN(dataclasses.replace(SMALL, layer_order="other"))
