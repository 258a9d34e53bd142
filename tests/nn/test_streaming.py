"""Reading a context in chunks equals reading it at once."""

import weakref

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from spinimpute.nn.attention import MABOptions
from spinimpute.nn.spin import SPIN, SPINConfig, SPINEncoder
from spinimpute.nn.streaming import KeysValues, StreamState, streamed_attention

chunk_sizes = st.lists(st.integers(0, 6), min_size=1, max_size=6).filter(lambda sizes: sum(sizes) > 0)


def dense(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    return torch.softmax(q @ k.transpose(-1, -2) * scale, -1) @ v


@settings(max_examples=40, deadline=None)
@given(
    sizes=chunk_sizes,
    size_of_scores=st.sampled_from([1.0, 300.0]),
    width=st.sampled_from([4, 3, 6]),
    seed=st.integers(0, 1000),
)
def test_streamed_attention_equals_attention(sizes, size_of_scores, width, seed) -> None:
    torch.manual_seed(seed)
    q = torch.randn(2, 2, 3, 4, dtype=torch.float64).mul(size_of_scores).requires_grad_()
    k, v = (torch.randn(2, 2, sum(sizes), n, dtype=torch.float64, requires_grad=True) for n in (4, width))
    parts = zip(k.split(sizes, 2), v.split(sizes, 2), strict=True)
    chunks = [lambda part=part: KeysValues(*part) for part in parts]
    target = torch.randn(2, 2, 3, width, dtype=torch.float64)
    outputs = (dense(q, k, v, 0.4), streamed_attention(q, chunks, scale=0.4, sources=[k, v]))
    results = [[out, *torch.autograd.grad((out * target).sum(), (q, k, v))] for out in outputs]
    torch.testing.assert_close(*results, rtol=1e-9, atol=1e-9)


def test_states_merge_in_any_order() -> None:
    q = torch.randn(2, 2, 3, 4)
    k, v = torch.randn(2, 2, 12, 4) * 30, torch.randn(2, 2, 12, 4)
    chunks = zip(k.split(4, 2), v.split(4, 2), strict=True)
    a, b, c = (StreamState.from_chunk(q, KeysValues(*chunk), 0.5) for chunk in chunks)
    scores = q @ k.transpose(-1, -2) * 0.5
    expected = torch.softmax(scores, -1) @ v
    from_empty = StreamState.empty(q, 4).merge(b).merge(c).merge(a)
    for whole in (a.merge(b).merge(c), c.merge(a.merge(b)), from_empty):
        torch.testing.assert_close(whole.result(), expected)
        torch.testing.assert_close(whole.log_sum_exp(), scores.logsumexp(-1, keepdim=True))


def test_a_gradient_is_not_counted_twice_when_a_source_is_named_twice() -> None:
    q, k = torch.randn(1, 1, 2, 4), torch.randn(1, 1, 5, 4, requires_grad=True)
    chunks = [lambda: KeysValues(k, k)]
    for sources in ([k], [k, k]):
        out = streamed_attention(q, chunks, scale=1.0, sources=sources)
        (got,) = torch.autograd.grad(out.sum(), k)
        (expected,) = torch.autograd.grad((torch.softmax(q @ k.transpose(-1, -2), -1) @ k).sum(), k)
        torch.testing.assert_close(got, expected)


def encoder_and_data(**settings: object) -> tuple[SPINEncoder, Tensor]:
    torch.manual_seed(3)
    sizes = {"inducing_points": 4, "latent_attributes": 3, "blocks": 3, "options": MABOptions(heads=2)}
    return SPINEncoder(8, 5, **sizes, **settings), torch.randn(2, 17, 5, 8)


@settings(max_examples=12, deadline=None)
@given(
    sizes=chunk_sizes,
    keep_latents=st.booleans(),
    start=st.sampled_from(["linear", "learned"]),
    abla=st.booleans(),
    order=st.sampled_from(["paper", "released"]),
    as_tensors=st.booleans(),
)
def test_streamed_encoder_equals_the_dense_one(sizes, keep_latents, start, abla, order, as_tensors) -> None:
    encoder, _ = encoder_and_data(latent_start=start, latent_self_attention=abla, layer_order=order)
    data = torch.randn(2, sum(sizes), 5, 8, requires_grad=True)
    parts = data.split(sizes, 1)
    chunks = list(parts) if as_tensors else [lambda part=part: part for part in parts]
    wanted = [data, *encoder.parameters()]
    target = torch.randn(2, 4, 3, 8)
    named = [] if as_tensors else parts
    outputs = (encoder(data), encoder.encode_stream(chunks, sources=named, keep_latents=keep_latents))
    results = [[h, *torch.autograd.grad((h * target).sum(), wanted)] for h in outputs]
    torch.testing.assert_close(*results, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("keep_latents", [False, True])
def test_spin_reads_tokens_as_a_stream(keep_latents: bool) -> None:
    config = SPINConfig(4, None, width=8, side_width=2, latent_start="learned", inducing_points=3, heads=2)
    model = SPIN(config)
    tokens, mask = torch.randint(0, 5, (2, 11, 6)), torch.rand(2, 11, 6) < 0.2
    side = torch.randn(6, 2, requires_grad=True)
    cuts = [(0, 4), (4, 5), (5, 11)]
    chunks = [lambda a=a, b=b: (tokens[:, a:b], mask[:, a:b]) for a, b in cuts]
    wanted = [side, *model.embedding.parameters(), *model.encoder.parameters()]
    streamed = model.encode_stream(chunks, side, keep_latents=keep_latents)
    dense = model.encode(tokens, mask, side)
    torch.testing.assert_close(streamed, dense, rtol=1e-5, atol=1e-5)
    gradients = [torch.autograd.grad(h.square().mean(), wanted) for h in (streamed, dense)]
    torch.testing.assert_close(*gradients, rtol=1e-5, atol=1e-5)
    at_once = model.encode_stream([(tokens, mask)], side)
    torch.testing.assert_close(at_once, dense, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("keep_latents", "forward_reads"), [(False, 3), (True, 1)])
def test_one_chunk_is_held_at_a_time(keep_latents: bool, forward_reads: int) -> None:
    encoder, data = encoder_and_data()
    alive: list[weakref.ref[Tensor]] = []
    reads = [0] * 4

    def read(i: int) -> Tensor:
        assert all(other() is None for other in alive), "an earlier chunk is still held"
        reads[i] += 1
        chunk = data[:, 4 * i : 4 * i + 4].clone()
        alive[:] = [weakref.ref(chunk)]
        return chunk

    chunks = [lambda i=i: read(i) for i in range(4)]
    h = encoder.encode_stream(chunks, keep_latents=keep_latents)
    assert reads == [forward_reads] * 4
    h.sum().backward()
    assert reads == [forward_reads + 3] * 4
    torch.testing.assert_close(h, encoder(data[:, :16]), rtol=1e-5, atol=1e-5)


def test_streaming_under_bfloat16_autocast_accumulates_in_float32() -> None:
    encoder, data = encoder_and_data()
    exact = encoder(data)
    exact_gradient = torch.autograd.grad(exact.sum(), encoder.start_points)[0]
    recomputed_in_bfloat16 = []

    def read(chunk: Tensor) -> Tensor:
        recomputed_in_bfloat16.append((data[0, 0] @ data[0, 0].T).dtype == torch.bfloat16)
        return chunk

    with torch.autocast("cpu", dtype=torch.bfloat16):
        h = encoder.encode_stream([lambda chunk=chunk: read(chunk) for chunk in data.split(1, 1)])
    torch.testing.assert_close(h.float(), exact, rtol=0.1, atol=0.1)
    gradient = torch.autograd.grad(h.sum(), encoder.start_points)[0]
    torch.testing.assert_close(gradient, exact_gradient, rtol=0.1, atol=0.1)
    assert len(recomputed_in_bfloat16) == 2 * 3 * 17
    assert all(recomputed_in_bfloat16), "the backward pass must recompute what the forward pass computed"
    q = torch.randn(1, 1, 2, 4, dtype=torch.bfloat16)
    assert StreamState.from_chunk(q, KeysValues(q, q), 1.0).weighted.dtype == torch.float32


def test_frozen_encoder_still_gives_gradients_to_its_start() -> None:
    encoder, data = encoder_and_data()
    for parameter in encoder.parameters():
        parameter.requires_grad_(False)
    encoder.start_points.requires_grad_()
    results = [
        torch.autograd.grad(h.sum(), encoder.start_points)[0]
        for h in (encoder(data), encoder.encode_stream(data.split(5, 1)))
    ]
    torch.testing.assert_close(*results, rtol=1e-5, atol=1e-5)


def test_invalid_streams_are_refused() -> None:
    encoder, data = encoder_and_data()
    for chunks, message in (
        ([], "at least one chunk"),
        ([data[0]], r"d must have the shape \(\*, \*, 5, 8\), got \(17, 5, 8\)"),
        ([data[:, :, :4]], "d must have the shape"),
    ):
        with pytest.raises(ValueError, match=message):
            encoder.encode_stream(chunks)
    with pytest.raises(ValueError, match="chunks must contain at least one chunk"):
        streamed_attention(torch.randn(1, 1, 2, 4), [], scale=1.0)
    dropping = SPINEncoder(8, 5, options=MABOptions(dropout=0.1))
    with pytest.raises(ValueError, match=r"dropout must be 0 to train on a stream, got 0\.1"):
        dropping.encode_stream([data])
    dropping.eval()
    torch.testing.assert_close(dropping.encode_stream([data]), dropping(data), rtol=1e-5, atol=1e-5)
