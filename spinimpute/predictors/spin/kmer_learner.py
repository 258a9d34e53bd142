"""Tasks and loss of `KmerSPIN`: chunk masking of the queries' labels, token masking of their attributes.

Axes: N context haplotypes, Q query haplotypes, S typed places, U labels, D columns (K-mers).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from spinimpute.genotypes.blocks import HaplotypeSource, place_typed
from spinimpute.genotypes.kmers import kmer_allele_probabilities, kmer_tokens
from spinimpute.nn.masking import attribute_weight, mask_tokens, masked_cross_entropy
from spinimpute.predictors.spin.kmer_spin import ColumnInformation, KmerSettings, KmerSPIN
from spinimpute.training.episodes import EpisodeSettings, draw_split
from spinimpute.training.learner import Outcome

ATTRIBUTE_MASK = 0.15  # part of the queries' attribute tokens that are hidden and asked for
ATTRIBUTE_WEIGHT = 0.1  # λ at the start: the multi-window setting of the paper's authors


@dataclass(frozen=True)
class KmerTask:
    """One block: alleles uint8 (0, 1), int8 for queries (-1 missing); cM relative to the block's middle."""

    typed_NS: np.ndarray
    labels_NU: np.ndarray
    query_QS: np.ndarray
    truth_QU: np.ndarray
    typed_cM_S: np.ndarray
    valid_S: np.ndarray
    label_cM_U: np.ndarray
    frequency_U: np.ndarray


class KmerLearner:
    """Tasks and loss of `KmerSPIN`; the loss of labels and attributes is that of the paper, A.2."""

    def __init__(self, settings: KmerSettings, episodes: EpisodeSettings, device: torch.device) -> None:
        self.settings = settings
        self.episodes = episodes
        self.device = device
        self.model = KmerSPIN(settings).to(device)

    def draw(self, source: HaplotypeSource, rng: np.random.Generator) -> list[KmerTask]:
        """Draw an episode's blocks as tasks."""
        shape = self.settings.shape
        split = draw_split(source, rng, self.episodes)
        typed_cM = source.cM[split.typed_T]
        n_typed = len(split.typed_T)
        typed_TN = split.alleles_XA[np.ix_(split.typed_T, split.context_N)]
        known_TQ = np.where(split.known_TQ > 0, split.typed_query_TQ.astype(np.int8), np.int8(-1))
        is_typed = np.zeros(source.n_sites, dtype=bool)
        is_typed[split.typed_T] = True
        tasks = []
        for _ in range(self.episodes.blocks):
            block = int(rng.integers(0, (n_typed - 1) // shape.core + 1))
            low = split.typed_T[max(block * shape.core - 1, 0)]
            high = split.typed_T[min((block + 1) * shape.core - 1, n_typed - 1)]
            labels = np.flatnonzero(~is_typed[low:high]) + low
            if len(labels) == 0:
                continue
            first = int(rng.integers(0, max(len(labels) - self.settings.labels, 0) + 1))
            labels = labels[first : first + self.settings.labels]
            places = place_typed(block, typed_cM, shape, 0, n_typed)
            middle = typed_cM[places.first] - places.cM_S[places.offset]
            labels_NU = split.alleles_XA[np.ix_(labels, split.context_N)].T
            tasks.append(
                KmerTask(
                    places.fill(typed_TN),
                    labels_NU,
                    places.fill(known_TQ),
                    split.alleles_XA[np.ix_(labels, split.query_Q)].T,
                    places.cM_S,
                    places.valid_S,
                    source.cM[labels] - middle,
                    labels_NU.mean(0),
                )
            )
        return tasks or self.draw(source, rng)

    def outcome(self, task: object, progress: float, rng: np.random.Generator) -> Outcome:
        """Cross-entropy of the labels, with that of masked attributes."""
        assert isinstance(task, list)
        parts = [self._outcome(one, progress, rng) for one in task]
        return Outcome(
            torch.stack([part.loss for part in parts]).mean(),
            np.concatenate([part.predicted for part in parts]),
            np.concatenate([part.truth for part in parts]),
            np.concatenate([part.frequency for part in parts]),
        )

    def _outcome(self, task: KmerTask, progress: float, rng: np.random.Generator) -> Outcome:
        model, k = self.model, self.settings.k
        n_labels = task.labels_NU.shape[1]
        typed_1NS, labels_1NU = self._codes(task.typed_NS), self._codes(task.labels_NU)
        side = model.side(
            self._information(task.typed_cM_S, task.typed_NS.mean(0), task.valid_S),
            self._information(task.label_cM_U, task.frequency_U, np.ones(n_labels)),
        )
        h_BHFE = model.spin.encode(*model.context_tokens(typed_1NS, labels_1NU), side)
        tokens, _ = model.query_tokens(self._codes(task.query_QS), n_labels)
        attributes = tokens.shape[2] - -(-n_labels // k)
        is_attribute = torch.arange(tokens.shape[2], device=self.device) < attributes
        weight = attribute_weight(round(progress * 1_000), 1_000, ATTRIBUTE_WEIGHT)
        generator = torch.Generator(self.device).manual_seed(int(rng.integers(2**31)))
        hidden = mask_tokens(tokens, ATTRIBUTE_MASK * (weight > 0), 2**k, generator, columns=is_attribute)
        logits = model.spin.predict(hidden.tokens, hidden.mask, h_BHFE, side)
        truth = kmer_tokens(self._codes(task.truth_QU), k)[0]
        on_labels = model.label_logits(logits, n_labels)
        loss = masked_cross_entropy(on_labels, truth, torch.ones_like(truth, dtype=torch.bool))
        if weight > 0:
            loss = (1 - weight) * loss + weight * masked_cross_entropy(logits, tokens, hidden.loss)
        p_QU = kmer_allele_probabilities(on_labels.detach().float(), n_labels)[0].cpu().numpy()
        n_queries = len(p_QU)
        return Outcome(
            loss,
            p_QU.ravel(),
            task.truth_QU.astype(np.float32).ravel(),
            np.tile(task.frequency_U, n_queries),
        )

    def _codes(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self.device, torch.int64)[None]

    def _information(self, cM: np.ndarray, frequency: np.ndarray, valid: np.ndarray) -> ColumnInformation:
        rows = [torch.from_numpy(np.asarray(x, dtype=np.float32))[None] for x in (cM, frequency, valid)]
        return ColumnInformation(*(row.to(self.device) for row in rows))
