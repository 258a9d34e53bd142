"""Masks for training, and the losses on masked cells."""

import pytest
import torch

from benchmarks.spin.masking import mask_tokens, masked_cross_entropy, spin_loss

VOCABULARY = 8
LABELS = torch.arange(10) >= 6


def table(rows: int = 400) -> torch.Tensor:
    return torch.randint(0, VOCABULARY + 1, (3, rows, 10))


def test_token_masking_hides_nine_tenths_of_the_chosen_cells() -> None:
    tokens = table()
    tokens[..., 0] = VOCABULARY
    masked = mask_tokens(tokens, 0.3, VOCABULARY, torch.Generator().manual_seed(1))
    missing = tokens == VOCABULARY
    assert not (masked.in_loss & missing).any(), "a missing cell has no truth to learn from"
    assert masked.mask[missing].all()
    share = masked.in_loss[~missing].float().mean()
    assert abs(share - 0.3) < 0.02
    assert abs(masked.mask[masked.in_loss].float().mean() - 0.9) < 0.02
    assert torch.equal(masked.tokens == VOCABULARY, masked.mask), "no value is left under a mask"
    untouched = ~masked.in_loss
    assert torch.equal(masked.tokens[untouched], tokens[untouched])
    randomised = masked.in_loss & ~masked.mask
    assert set(masked.tokens[randomised].tolist()) == set(range(VOCABULARY))
    agree = (masked.tokens == tokens)[randomised].float().mean()
    assert abs(agree - 1 / VOCABULARY) < 0.1


def test_token_masking_keeps_to_its_columns_and_to_its_generator() -> None:
    tokens = table(50)
    generators = (torch.Generator().manual_seed(4) for _ in range(2))
    first, again = (mask_tokens(tokens, 1.0, VOCABULARY, one, columns=LABELS) for one in generators)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert torch.equal(first.in_loss, LABELS & (tokens != VOCABULARY))
    assert not mask_tokens(tokens, 0.0, VOCABULARY).in_loss.any()


def test_cross_entropy_counts_masked_cells_only() -> None:
    logits = torch.randn(2, 3, 10, VOCABULARY, requires_grad=True)
    tokens = torch.randint(0, VOCABULARY, (2, 3, 10))
    loss = torch.rand(2, 3, 10) < 0.4
    expected = -logits.log_softmax(-1).gather(-1, tokens[..., None])[..., 0][loss].mean()
    got = masked_cross_entropy(logits, tokens, loss)
    torch.testing.assert_close(got, expected)
    (gradient,) = torch.autograd.grad(got, logits)
    assert torch.equal(gradient.any(-1), loss)
    elsewhere = torch.where(loss, tokens, VOCABULARY)
    torch.testing.assert_close(masked_cross_entropy(logits, elsewhere, loss), expected)
    nothing = masked_cross_entropy(logits, tokens, torch.zeros_like(loss))
    assert nothing == 0
    assert masked_cross_entropy(logits.bfloat16(), tokens, loss).dtype == torch.float32
    nothing.backward()


def test_spin_loss_weighs_labels_against_attributes() -> None:
    logits = torch.randn(2, 3, 10, VOCABULARY)
    tokens = torch.randint(0, VOCABULARY, (2, 3, 10))
    loss = torch.rand(2, 3, 10) < 0.6
    labels = masked_cross_entropy(logits[:, :, 6:], tokens[:, :, 6:], loss[:, :, 6:])
    attributes = masked_cross_entropy(logits[:, :, :6], tokens[:, :, :6], loss[:, :, :6])
    for weight in (0.0, 0.3, 1.0):
        expected = (1 - weight) * labels + weight * attributes
        torch.testing.assert_close(spin_loss(logits, tokens, loss, LABELS, weight), expected)


def test_wrong_arguments_are_named() -> None:
    tokens, logits, few = table(5), torch.randn(3, 5, 9, VOCABULARY), LABELS[:4]
    for call, message in (
        (lambda: mask_tokens(tokens[0], 0.3, VOCABULARY), r"tokens must have the shape \(\*, \*, \*\), got"),
        (lambda: mask_tokens(tokens, 1.5, VOCABULARY), r"probability must be in \[0, 1\], got 1\.5"),
        (lambda: mask_tokens(tokens, 0.3, VOCABULARY, columns=few), r"columns must have the shape \(10\)"),
        (lambda: masked_cross_entropy(logits, tokens, tokens == 0), "logits must have the shape"),
        (lambda: spin_loss(logits, tokens, tokens == 0, LABELS, 2.0), "attribute_weight must be in"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
