"""The papers' networks on one window: K-mers of typed and untyped SNPs as columns, latent inducing points.

A training step is a task: some rows of a batch (target masking) are queries, whose labels are all hidden, and
the other rows are their context. Tests hide the labels of targets in the same way and show the panel.

Axes: N rows of a context, Q queries, D columns (30 K-mers of typed sites, 20 of untyped), K K-mers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.papers.training import Recipe, train
from benchmarks.spin.kmers import kmer_allele_probabilities, kmer_tokens
from benchmarks.spin.masking import mask_tokens, spin_loss
from spinimpute.nn.optimisers import attribute_weight
from spinimpute.nn.presets import Form, published_network
from spinimpute.nn.row_models import RowModel
from spinimpute.nn.spin import SPIN

SPIN_16, NPT_16, SET_TF_16 = "SPIN-16", "NPT-16", "Set-TF-16"
CIPNP_16 = "CIPNP-16"  # with the head of the paper's network for several windows
WITHOUT_XABD, WITHOUT_XABA = "SPIN-16 without XABD", "SPIN-16 without XABA"
NETWORKS = (SPIN_16, NPT_16, SET_TF_16, WITHOUT_XABD, WITHOUT_XABA)
QUERIES_AT_ONCE = 256

FORMS: dict[str, Form] = {NPT_16: "NPT", SET_TF_16: "SetTransformer", CIPNP_16: "CIPNP"}  # others: SPIN
Network = SPIN | RowModel


@dataclass(frozen=True)
class WindowRecipe(Recipe):
    """Training of a network on a window.

    k: SNPs of a K-mer. hidden_attributes, hidden_labels: share of the queries' tokens that are hidden (all
    labels: chunk masking; fewer: token masking). attribute_weight: initial lambda.
    """

    dropout: float = 0.4  # as searched: Table 10
    k: int = 5
    hidden_attributes: float = 0.15
    hidden_labels: float = 1.0
    attribute_weight: float = 0.5


class Unread(nn.Module):
    """Replacement of XABA that leaves latent attributes unchanged."""

    def forward(self, a_BNFE: Tensor, d_BNDE: Tensor) -> Tensor:
        return a_BNFE


def build(method: str, columns: int, recipe: WindowRecipe) -> Network:
    network = published_network(
        FORMS.get(method, "SPIN"), 2**recipe.k, columns, width=recipe.width, dropout=recipe.dropout,
        inducing_points=recipe.h, latent_attributes=recipe.f, layer_order="released",
    )  # fmt: skip
    if method == WITHOUT_XABA:
        assert isinstance(network, SPIN)
        for block in network.encoder.blocks:
            block.xaba = Unread()
    return network


class WindowNetwork:
    """A network with the tokens of a window's panel; windows may share a `network`."""

    def __init__(
        self,
        method: str,
        typed_NS: np.ndarray,
        label_NU: np.ndarray,
        recipe: WindowRecipe,
        network: Network | None = None,
    ) -> None:
        self.method, self.recipe = method, recipe
        self.n_sites = label_NU.shape[1]
        self.typed_ND = kmer_tokens(torch.from_numpy(typed_NS), recipe.k)[0]
        self.label_ND = kmer_tokens(torch.from_numpy(label_NU).to(recipe.device), recipe.k)[0]
        columns = self.typed_ND.shape[1] + self.label_ND.shape[1]
        self.is_label_D = torch.arange(columns, device=recipe.device) >= self.typed_ND.shape[1]
        self.network = build(method, columns, recipe).to(recipe.device) if network is None else network

    def train(self, train_N: np.ndarray, validation_N: np.ndarray, seed: int) -> dict[str, Any]:
        """Train on the rows train_N; the weights are chosen on the rows validation_N."""
        generator = torch.Generator().manual_seed(seed)
        return train(
            self.network,
            self.recipe,
            lambda step: self.loss(step, train_N, generator),
            lambda: self.cross_entropy(train_N, validation_N),
        )

    def loss(self, step: int, train_N: np.ndarray, generator: torch.Generator) -> Tensor:
        """Return the loss of a batch of the rows train_N."""
        rows = torch.from_numpy(np.flatnonzero(train_N))
        chosen = rows[torch.randperm(len(rows), generator=generator)[: self.recipe.batch]]
        weight = attribute_weight(step, self.recipe.steps, self.recipe.attribute_weight)
        return self._loss(torch.cat((self.typed_ND[chosen], self.label_ND[chosen]), 1), weight, generator)

    def _loss(self, batch_ND: Tensor, weight: float, generator: torch.Generator) -> Tensor:
        recipe, hidden_token = self.recipe, 2**self.recipe.k
        n_queries = int(recipe.hidden_rows * len(batch_ND))
        context_1ND, true_1QD = batch_ND[None, n_queries:], batch_ND[None, :n_queries]
        query = mask_tokens(
            true_1QD, recipe.hidden_attributes if weight else 0.0, hidden_token, generator,
            columns=~self.is_label_D,
        )  # fmt: skip
        asked_1QD = self.is_label_D.expand(true_1QD.shape)
        if recipe.hidden_labels < 1:
            drawn_1QD = torch.rand(true_1QD.shape, generator=generator).to(recipe.device)
            asked_1QD = asked_1QD & (drawn_1QD < recipe.hidden_labels)
        logit_1QDK = self._logits(
            context_1ND, query.tokens.masked_fill(asked_1QD, hidden_token), query.mask | asked_1QD
        )
        return spin_loss(logit_1QDK, true_1QD, query.in_loss | asked_1QD, self.is_label_D, weight)

    def _logits(self, context_1ND: Tensor, query_1QD: Tensor, hidden_1QD: Tensor) -> Tensor:
        shown_1ND = torch.zeros_like(context_1ND, dtype=torch.bool)
        if self.method == WITHOUT_XABD:
            assert isinstance(self.network, SPIN)
            return self.network.predict(query_1QD, hidden_1QD, self.network.encoder.start_points)
        logits: Tensor = self.network(context_1ND, shown_1ND, query_1QD, hidden_1QD)
        return logits

    def label_logits(self, context_ND: Tensor, typed_QD: Tensor) -> Tensor:
        """Return logits (Q, label columns, K) of queries with visible typed K-mers, given a context."""
        hidden_token, n_labels = 2**self.recipe.k, self.label_ND.shape[1]
        query_1QD = nn.functional.pad(typed_QD, (0, n_labels), value=hidden_token)[None]
        hidden_1QD = self.is_label_D.expand(query_1QD.shape)
        return self._logits(context_ND[None], query_1QD, hidden_1QD)[0, :, self.is_label_D]

    @torch.no_grad()
    def predict(self, context_ND: Tensor, typed_QD: Tensor) -> Tensor:
        """Return `label_logits` after training, computed in batches."""
        self.network.eval()
        return torch.cat([self.label_logits(context_ND, part) for part in typed_QD.split(QUERIES_AT_ONCE)])

    def context(self, chosen_N: np.ndarray, shuffled_labels: int | None = None) -> Tensor:
        """Return rows of the panel with their labels; with a seed, with shuffled labels."""
        typed_ND, label_ND = self.typed_ND[chosen_N], self.label_ND[chosen_N]
        if shuffled_labels is not None:
            generator = torch.Generator().manual_seed(shuffled_labels)
            label_ND = label_ND[torch.randperm(len(label_ND), generator=generator)]
        return torch.cat((typed_ND, label_ND), 1)

    def cross_entropy(self, context_N: np.ndarray, asked_N: np.ndarray) -> float:
        """Return the cross-entropy (nats per K-mer) of panel rows, given other rows."""
        logit_QDK = self.predict(self.context(context_N), self.typed_ND[asked_N])
        return float(nn.functional.cross_entropy(logit_QDK.flatten(0, 1), self.label_ND[asked_N].flatten()))

    def probabilities(self, typed_QS: np.ndarray, context_ND: Tensor) -> np.ndarray:
        """Return P(ALT) of each haplotype, (Q, U)."""
        typed_QD = kmer_tokens(torch.from_numpy(typed_QS).to(self.recipe.device), self.recipe.k)[0]
        logit_QDK = self.predict(context_ND, typed_QD)
        p_QU: np.ndarray = kmer_allele_probabilities(logit_QDK, self.n_sites).cpu().numpy()
        return p_QU
