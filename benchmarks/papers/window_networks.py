"""The papers' networks on one window: K-mers of typed and untyped SNPs as columns, latent inducing points.

Training is in episodes: of a batch, a share of the rows (target masking) are queries, whose labels are all
hidden, and the others their context. Tests hide the labels of targets in the same way and show the panel.

Axes: N rows of a context, Q queries, D columns (30 K-mers of typed sites, 20 of untyped), K K-mers.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.process_memory import bytes_of, forget_peak
from benchmarks.spin.kmers import kmer_allele_probabilities, kmer_tokens
from spinimpute.nn.attention import MABOptions
from spinimpute.nn.masking import attribute_weight, mask_tokens, spin_loss
from spinimpute.nn.npt import NPT
from spinimpute.nn.optimisers import Lamb, Lookahead, flat_then_cosine
from spinimpute.nn.set_transformer import SetTransformer
from spinimpute.nn.spin import SPIN, SPINConfig

SPIN_16, NPT_16, SET_TF_16 = "SPIN-16", "NPT-16", "Set-TF-16"
WITHOUT_XABD, WITHOUT_XABA = "SPIN-16 −XABD", "SPIN-16 −XABA"
NETWORKS = (SPIN_16, NPT_16, SET_TF_16, WITHOUT_XABD, WITHOUT_XABA)
MEASURED_STEPS = 3  # after which the peak of memory is taken: later ones need no more
QUERIES_AT_ONCE = 256

Network = SPIN | NPT | SetTransformer


@dataclass(frozen=True)
class Recipe:
    """How a network of a window is trained; the paper's settings but for what `papers/README.md` says.

    hidden_rows: share of a batch that are queries; hidden_attributes: of their attribute tokens; h, f:
    inducing points and latent attributes; attribute_weight: lambda at the start.
    """

    steps: int = 1_000
    batch: int = 256
    width: int = 16
    h: int = 10
    f: int = 10
    k: int = 5
    dropout: float = 0.0
    learning_rate: float = 1e-2
    hidden_rows: float = 0.3
    hidden_attributes: float = 0.15
    attribute_weight: float = 0.5
    clip: float = 1.0
    looks: int = 10

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class Unread(nn.Module):
    """In the place of XABA: latent attributes stay what they were."""

    def forward(self, a_BNFE: Tensor, d_BNDE: Tensor) -> Tensor:
        return a_BNFE


def build(method: str, columns: int, recipe: Recipe) -> Network:
    options = MABOptions(learned_residual=True, dropout=recipe.dropout)
    vocabulary = 2**recipe.k
    if method == NPT_16:
        return NPT(vocabulary, columns, recipe.width, 2, options)
    if method == SET_TF_16:
        return SetTransformer(vocabulary, columns, recipe.width, 2, recipe.h, recipe.f, options)
    network = SPIN(
        SPINConfig(
            vocabulary, columns, recipe.width, recipe.h, recipe.f, blocks=2, predictor="flat",
            learned_residual=True, dropout=recipe.dropout,
        )
    )  # fmt: skip
    if method == WITHOUT_XABA:
        for block in network.encoder.blocks:
            block.xaba = Unread()
    return network


class WindowNetwork:
    """A network with the tokens of a window's panel."""

    def __init__(self, method: str, typed_NS: np.ndarray, label_NU: np.ndarray, recipe: Recipe) -> None:
        self.method, self.recipe = method, recipe
        self.n_sites = label_NU.shape[1]
        self.typed_ND = kmer_tokens(torch.from_numpy(typed_NS), recipe.k)[0]
        self.label_ND = kmer_tokens(torch.from_numpy(label_NU), recipe.k)[0]
        columns = self.typed_ND.shape[1] + self.label_ND.shape[1]
        self.is_label_D = torch.arange(columns) >= self.typed_ND.shape[1]
        self.network = build(method, columns, recipe)

    @property
    def parameters(self) -> int:
        return sum(p.numel() for p in self.network.parameters())

    def train(self, train_N: np.ndarray, validation_N: np.ndarray, seed: int) -> dict[str, Any]:
        """Learn from the rows of train_N; the weights with the least loss on validation_N stay."""
        recipe, network = self.recipe, self.network
        generator = torch.Generator().manual_seed(seed)
        optimiser = Lookahead(Lamb(network.parameters(), lr=recipe.learning_rate))
        schedule = flat_then_cosine(optimiser, recipe.steps)
        table_ND = torch.cat((self.typed_ND, self.label_ND), 1)
        train = torch.from_numpy(np.flatnonzero(train_N))
        forget_peak()
        before, spent, peak = bytes_of("VmRSS"), 0.0, 0
        looks: list[dict[str, float]] = []
        best: dict[str, Tensor] = {}
        for step in range(recipe.steps):
            network.train()
            started = time.process_time()
            chosen = train[torch.randperm(len(train), generator=generator)[: recipe.batch]]
            weight = attribute_weight(step, recipe.steps, recipe.attribute_weight)
            loss = self._loss(table_ND[chosen], weight, generator)
            optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(network.parameters(), recipe.clip)
            optimiser.step()
            schedule.step()
            spent += time.process_time() - started
            if step + 1 == MEASURED_STEPS:
                peak = bytes_of("VmHWM") - before
            if (step + 1) % max(1, recipe.steps // recipe.looks) == 0:
                held_out = self.cross_entropy(train_N, validation_N)
                if not looks or held_out < min(look["validation loss"] for look in looks):
                    best = {name: value.clone() for name, value in network.state_dict().items()}
                looks.append({"step": step + 1, "loss": loss.item(), "validation loss": held_out})
                print(self.method, looks[-1], f"{spent / (step + 1):.3f} s a step", flush=True)
        network.load_state_dict(best)
        return {
            "looks": looks,
            "seconds a step": spent / recipe.steps,
            "peak bytes of training": peak,
            "bytes of weights, gradients and optimiser": 20 * self.parameters,
        }

    def _loss(self, batch_ND: Tensor, weight: float, generator: torch.Generator) -> Tensor:
        recipe, hidden_token = self.recipe, 2**self.recipe.k
        n_queries = int(recipe.hidden_rows * len(batch_ND))
        context_1ND, true_1QD = batch_ND[None, n_queries:], batch_ND[None, :n_queries]
        query = mask_tokens(
            true_1QD, recipe.hidden_attributes if weight else 0.0, hidden_token, generator,
            columns=~self.is_label_D,
        )  # fmt: skip
        hidden_1QD = query.mask | self.is_label_D
        logit_1QDK = self._logits(
            context_1ND, query.tokens.masked_fill(self.is_label_D, hidden_token), hidden_1QD
        )
        return spin_loss(logit_1QDK, true_1QD, query.loss | self.is_label_D, self.is_label_D, weight)

    def _logits(self, context_1ND: Tensor, query_1QD: Tensor, hidden_1QD: Tensor) -> Tensor:
        shown_1ND = torch.zeros_like(context_1ND, dtype=torch.bool)
        if self.method == WITHOUT_XABD:
            assert isinstance(self.network, SPIN)
            return self.network.predict(query_1QD, hidden_1QD, self.network.encoder.start_points)
        logits: Tensor = self.network(context_1ND, shown_1ND, query_1QD, hidden_1QD)
        return logits

    @torch.no_grad()
    def label_logits(self, context_ND: Tensor, typed_QD: Tensor) -> Tensor:
        """Logits (Q, label columns, K) of queries that show their typed K-mers, given a context."""
        self.network.eval()
        hidden_token, n_labels = 2**self.recipe.k, self.label_ND.shape[1]
        query_1QD = nn.functional.pad(typed_QD, (0, n_labels), value=hidden_token)[None]
        parts = [
            self._logits(context_ND[None], part, self.is_label_D.expand(part.shape))[0, :, self.is_label_D]
            for part in query_1QD.split(QUERIES_AT_ONCE, 1)
        ]
        return torch.cat(parts)

    def context(self, chosen_N: np.ndarray, shuffled_labels: int | None = None) -> Tensor:
        """Rows of the panel with their labels; with a seed, each row with those of another."""
        typed_ND, label_ND = self.typed_ND[chosen_N], self.label_ND[chosen_N]
        if shuffled_labels is not None:
            generator = torch.Generator().manual_seed(shuffled_labels)
            label_ND = label_ND[torch.randperm(len(label_ND), generator=generator)]
        return torch.cat((typed_ND, label_ND), 1)

    def cross_entropy(self, context_N: np.ndarray, asked_N: np.ndarray) -> float:
        """Nats a K-mer of panel rows, given others."""
        logit_QDK = self.label_logits(self.context(context_N), self.typed_ND[asked_N])
        return float(nn.functional.cross_entropy(logit_QDK.flatten(0, 1), self.label_ND[asked_N].flatten()))

    def probabilities(self, typed_QS: np.ndarray, context_ND: Tensor) -> np.ndarray:
        """P(ALT) of each haplotype, (Q, U)."""
        typed_QD = kmer_tokens(torch.from_numpy(typed_QS), self.recipe.k)[0]
        p_QU: np.ndarray = kmer_allele_probabilities(
            self.label_logits(context_ND, typed_QD), self.n_sites
        ).numpy()
        return p_QU
