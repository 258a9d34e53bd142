"""SPIN as in the paper: K-mers of typed and untyped sites as columns, latent inducing points, flat predictor.

SPIN of Rastogi et al. 2023 (section 3.2, A.2 and A.3), meta-trained across segments. Columns are the K-mers
of a block's typed places, then the K-mers of the untyped sites of each gap. In addition to the columns' own
weights, the network receives positions and frequencies of the SNPs. The paper trains on a single window and
does not need them.

Axes: B blocks, N context haplotypes, Q queries, S typed places, G gaps, U sites of a gap, D columns, V
K-mers, C numbers on a column, L label columns of a gap.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.spin.kmers import kmer_allele_probabilities, kmer_tokens
from benchmarks.spin.masking import mask_tokens, masked_cross_entropy
from spinimpute.nn.optimisers import attribute_weight
from spinimpute.nn.presets import Form, published_network
from spinimpute.nn.spin import SPIN
from spinimpute.predictors.spin.learner import SPINLearner
from spinimpute.predictors.spin.settings import SPINSettings
from spinimpute.training.episodes import Episode, EpisodeSettings
from spinimpute.training.trainer import Outcome

ATTRIBUTE_MASK = 0.15  # share of the queries' attribute tokens that are hidden and asked for
ATTRIBUTE_WEIGHT = 0.1  # lambda at the start: the paper's setting for several windows
PUBLISHED_TRAINING = {"optimiser": "lamb", "flat": 0.7}  # LAMB with Lookahead, A.5
NUMBERS_OF_A_SITE = 4


class PaperForm(nn.Module):
    """`SPIN` over the K-mers of a block, with the sizes of SPIN-16."""

    def __init__(self, settings: SPINSettings, sites_per_gap: int, form: Form = "SPIN") -> None:
        super().__init__()
        k = settings.k
        self.k, self.attributes = k, -(-settings.shape.n_typed // k)
        columns = self.attributes + settings.core * -(-sites_per_gap // k)
        network = published_network(
            form,
            2**k,
            columns,
            heads=4,
            inducing_points=32,
            layer_order="released",
            side_width=NUMBERS_OF_A_SITE * k,
        )
        assert isinstance(network, SPIN)
        self.spin = network

    def tokens(self, typed_BXS: Tensor, label_BXGU: Tensor) -> Tensor:
        """Return tokens (B, X, D) of alleles, 2^K if an allele is -1."""
        return torch.cat(
            [kmer_tokens(typed_BXS, self.k)[0], kmer_tokens(label_BXGU, self.k)[0].flatten(2)], -1
        )

    def side(
        self, typed_BS: tuple[Tensor, Tensor, Tensor], label_BGU: tuple[Tensor, Tensor, Tensor]
    ) -> Tensor:
        """Return numbers (B, D, C) from positions in cM, frequencies, and whether there is a site."""
        return torch.cat([self._numbers(*typed_BS), self._numbers(*label_BGU).flatten(1, 2)], dim=1)

    def _numbers(self, cM: Tensor, frequency: Tensor, valid: Tensor) -> Tensor:
        f = frequency.clamp(1e-4, 1 - 1e-4)
        numbers = torch.stack(
            [
                torch.sign(cM) * torch.log1p(cM.abs() * 100) / 3 * valid,
                f * valid,
                torch.minimum(f, 1 - f).log() / 4 * valid,
                valid,
            ],
            dim=-1,
        )
        padded = F.pad(numbers, (0, 0, 0, -numbers.shape[-2] % self.k))
        return padded.unflatten(-2, (-1, self.k)).flatten(-2)


class PaperLearner(SPINLearner):
    """Training tasks of SPIN, with the loss of the paper: labels, and fewer and fewer hidden attributes.

    hidden_share: share of the queries' label tokens that are hidden in training; 1 is chunk masking.
    """

    model: PaperForm  # type: ignore[assignment]

    def __init__(
        self,
        settings: SPINSettings,
        episodes: EpisodeSettings,
        form: Form = "SPIN",
        hidden_share: float = 1.0,
        device: str = "cpu",
    ) -> None:
        super().__init__(settings, episodes, torch.device(device))
        self.model = PaperForm(settings, episodes.sites_per_gap, form).to(device)
        self.hidden_share = hidden_share

    def outcome(self, task: object, progress: float, rng: np.random.Generator) -> Outcome:
        """See `Learner`. Without gradients, all labels are hidden."""
        assert isinstance(task, Episode)
        model, hidden_token = self.model, 2**self.settings.k
        valid_BGU = self._float(task.valid_BGU)
        context_BND = model.tokens(self._float(task.typed_BNS), self._labels(task.context_BGUN, valid_BGU))
        shown_BQS = torch.where(self._float(task.known_BQS) > 0, self._float(task.query_BQS), -1.0)
        truth_BQD = model.tokens(shown_BQS, self._labels(task.truth_BGUQ, valid_BGU))
        is_attribute_D = torch.arange(truth_BQD.shape[2], device=self.device) < model.attributes
        share = self.hidden_share if torch.is_grad_enabled() else 1.0
        hidden_BQD = torch.from_numpy(rng.random(truth_BQD.shape) < share).to(self.device) & ~is_attribute_D
        weight = attribute_weight(round(progress * 1_000), 1_000, ATTRIBUTE_WEIGHT)
        generator = torch.Generator().manual_seed(int(rng.integers(2**31)))
        query = mask_tokens(
            torch.where(hidden_BQD, hidden_token, truth_BQD),
            ATTRIBUTE_MASK * (weight > 0),
            hidden_token,
            generator,
            columns=is_attribute_D,
        )
        side_BDC = self._side(task, valid_BGU)
        points = model.spin.encode(context_BND, context_BND == hidden_token, side_BDC)
        logit_BQDV = model.spin.predict(query.tokens, query.mask, points, side_BDC)
        # a gap without sites has nothing to predict
        asked_BD = F.pad(F.pad(valid_BGU, (0, -valid_BGU.shape[2] % model.k)).unflatten(
            2, (-1, model.k)).amax(-1).flatten(1), (model.attributes, 0)) > 0  # fmt: skip
        loss = masked_cross_entropy(logit_BQDV, truth_BQD, hidden_BQD & asked_BD.unsqueeze(1))
        if weight > 0:
            loss = (1 - weight) * loss + weight * masked_cross_entropy(logit_BQDV, truth_BQD, query.in_loss)
        label_BQGLV = logit_BQDV.detach()[:, :, model.attributes :].unflatten(2, (valid_BGU.shape[1], -1))
        p_BQGU = kmer_allele_probabilities(label_BQGLV, valid_BGU.shape[2])
        asked = task.valid_BGU > 0
        return Outcome(
            loss,
            p_BQGU.permute(0, 2, 3, 1).cpu().numpy()[asked].ravel(),
            task.truth_BGUQ[asked].astype(np.float32).ravel(),
            np.repeat(task.frequency_BGU[asked], p_BQGU.shape[1]),
        )

    def _labels(self, allele_BGUX: np.ndarray, valid_BGU: Tensor) -> Tensor:
        """(B, X, G, U), 0 where there is no site."""
        return (self._float(allele_BGUX) * valid_BGU.unsqueeze(-1)).permute(0, 3, 1, 2)

    def _side(self, task: Episode, valid_BGU: Tensor) -> Tensor:
        cM_BS, core, flank = self._float(task.cM_BS), self.settings.core, self.settings.flank
        left_BG, right_BG = cM_BS[:, flank : flank + core], cM_BS[:, flank + 1 : flank + core + 1]
        cM_BGU = torch.lerp(left_BG.unsqueeze(-1), right_BG.unsqueeze(-1), self._float(task.fraction_BGU))
        return self.model.side(
            (cM_BS, self._float(task.typed_BNS).mean(1), self._float(task.valid_BS)),
            (cM_BGU, self._float(task.frequency_BGU), valid_BGU),
        )


class Frequencies(SPINLearner):
    """Predicts the context's allele frequencies."""

    def __init__(self, settings: SPINSettings, episodes: EpisodeSettings) -> None:
        super().__init__(settings, episodes, torch.device("cpu"))
        self.model = nn.Module()  # type: ignore[assignment]

    def outcome(self, task: object, progress: float, rng: np.random.Generator) -> Outcome:
        """See `Learner`. There is nothing to learn."""
        assert isinstance(task, Episode)
        asked = task.valid_BGU > 0
        truth = task.truth_BGUQ[asked].astype(np.float32)
        frequency = np.repeat(task.frequency_BGU[asked], truth.shape[1])
        return Outcome(torch.zeros(()), frequency, truth.ravel(), frequency)
