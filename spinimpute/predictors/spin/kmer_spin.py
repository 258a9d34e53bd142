"""The paper's form for windows never seen: K-mer tokens in, latent inducing points, K-mer logits out.

SPIN (Rastogi et al. 2023, section 3.2 and A.3) with the CIPNP head. A column has no identity here: what the
weights know of it is its genetic position and the panel's allele frequencies of its SNPs. Attributes are the
typed places of a block, labels up to `labels` of the sites that the block imputes.

Axes: B blocks, N panel haplotypes, Q query haplotypes, D columns (K-mers), S typed places, U imputed sites.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from spinimpute.genotypes.blocks import BlockShape
from spinimpute.genotypes.kmers import kmer_allele_probabilities, kmer_tokens
from spinimpute.nn.cipnp import CIPNP
from spinimpute.nn.model_weights import network_of
from spinimpute.nn.shapes import require_count
from spinimpute.nn.spin import SPINConfig
from spinimpute.panels.panel_blocks import EncodedBlock, PanelBlock
from spinimpute.predictors.engine import ImputationJob
from spinimpute.predictors.interface import Predictor, fitting_weights
from spinimpute.predictors.registry import KMER_KIND
from spinimpute.predictors.spin.block_engine import BlockEngine

MOST_SNPS = 16  # of a token: there are 2^k tokens
HAPLOTYPE_CHUNK = 2_048
QUERY_CHUNK = 256


@dataclass(frozen=True)
class KmerSettings:
    """Sizes of the model.

    core, flank: see `blocks.BlockShape`; k: SNPs of a token; labels: sites predicted at once; the other
    fields are those of `SPINConfig`.
    """

    core: int = 8
    flank: int = 28
    k: int = 5
    labels: int = 100
    width: int = 32
    inducing_points: int = 32
    latent_attributes: int = 10
    blocks: int = 2
    heads: int = 4
    predictor_layers: int = 2

    def __post_init__(self) -> None:
        BlockShape(self.core, self.flank)  # raises ValueError
        for name in ("k", "labels"):  # `SPINConfig` checks the others
            require_count(name, getattr(self, name))
        if self.k > MOST_SNPS:
            raise ValueError(f"k must be at most {MOST_SNPS}, found {self.k}")

    @property
    def shape(self) -> BlockShape:
        """Shape of a block."""
        return BlockShape(self.core, self.flank)


class ColumnInformation:
    """Numbers that describe the SNPs of one task: attributes first, then labels.

    cM, frequency, valid: float32 (B, n_snps).
    """

    def __init__(self, cM: Tensor, frequency: Tensor, valid: Tensor) -> None:
        self.cM, self.frequency, self.valid = cM, frequency, valid

    def grouped(self, k: int, is_label: float) -> Tensor:
        """Side information (B, D, 4k + 1) of the K-mers."""
        f = self.frequency.clamp(1e-4, 1 - 1e-4)
        rows = torch.stack(
            [
                torch.sign(self.cM) * torch.log1p(self.cM.abs() * 100) / 3,
                f * self.valid,
                torch.minimum(f, 1 - f).log() / 4 * self.valid,
                self.valid,
            ],
            dim=-1,
        )
        b, n, c = rows.shape
        d = -(-n // k)
        rows = torch.nn.functional.pad(rows, (0, 0, 0, d * k - n)).reshape(b, d, k * c)
        return torch.cat([rows, rows.new_full((b, d, 1), is_label)], dim=-1)


class KmerSPIN(nn.Module):
    """`CIPNP` over the K-mers of a block."""

    def __init__(self, settings: KmerSettings) -> None:
        super().__init__()
        self.settings = settings
        self.spin = CIPNP(
            SPINConfig(
                vocabulary=2**settings.k,
                columns=None,
                width=settings.width,
                inducing_points=settings.inducing_points,
                latent_attributes=settings.latent_attributes,
                blocks=settings.blocks,
                latent_start="learned",
                side_width=4 * settings.k + 1,
                heads=settings.heads,
                predictor_layers=settings.predictor_layers,
            )
        )

    def side(self, typed: ColumnInformation, labels: ColumnInformation) -> Tensor:
        """Side information (B, D, C) of all columns."""
        k = self.settings.k
        return torch.cat([typed.grouped(k, 0.0), labels.grouped(k, 1.0)], dim=1)

    def context_tokens(self, typed_BNS: Tensor, alleles_BNU: Tensor) -> tuple[Tensor, Tensor]:
        """Tokens and mask (B, N, D) of panel haplotypes, which show everything."""
        k = self.settings.k
        tokens = torch.cat([kmer_tokens(typed_BNS, k)[0], kmer_tokens(alleles_BNU, k)[0]], dim=-1)
        return tokens, tokens == 2**k

    def query_tokens(self, typed_BQS: Tensor, n_labels: int) -> tuple[Tensor, Tensor]:
        """Tokens and mask (B, Q, D) of queries (alleles -1 where missing), whose labels are all hidden."""
        k = self.settings.k
        typed = kmer_tokens(typed_BQS, k)[0]
        labels = typed.new_full((*typed.shape[:2], -(-n_labels // k)), 2**k)
        tokens = torch.cat([typed, labels], dim=-1)
        return tokens, tokens == 2**k

    def label_logits(self, logits_BQDK: Tensor, n_labels: int) -> Tensor:
        """The part of the logits that belongs to the labels, (B, Q, D_labels, 2^k)."""
        return logits_BQDK[:, :, -(-n_labels // self.settings.k) * -1 :]


class KmerPredictor(Predictor):
    """A `BlockPredictor` around `KmerSPIN`: one H for every `labels` sites of a block."""

    kind = KMER_KIND

    def __init__(self, model: KmerSPIN, fingerprint: str, device: torch.device) -> None:
        self.model = model.to(device).eval()
        self.fingerprint = fingerprint
        self.device, self.device_name = device, device.type

    def engine(self, job: ImputationJob) -> BlockEngine:
        """As of `Predictor`."""
        return BlockEngine(self, job)

    @property
    def shape(self) -> BlockShape:
        """Shape of a block."""
        return self.model.settings.shape

    def _parts(self, n_sites: int) -> list[slice]:
        most = self.model.settings.labels
        return [slice(i, min(i + most, n_sites)) for i in range(0, n_sites, most)]

    def _side(self, block: PanelBlock | EncodedBlock, part: slice) -> Tensor:
        sites = block.sites
        typed = (block.places.cM_S, block.frequency_S, block.places.valid_S)
        labels = (sites.cM_U[part], sites.frequency_U[part], np.ones(part.stop - part.start, np.float32))
        return self.model.side(self._information(*typed), self._information(*labels))

    def _information(self, cM: np.ndarray, frequency: np.ndarray, valid: np.ndarray) -> ColumnInformation:
        rows = [torch.from_numpy(np.asarray(x, dtype=np.float32))[None] for x in (cM, frequency, valid)]
        return ColumnInformation(*(row.to(self.device) for row in rows))

    def _alleles(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self.device, torch.int64)[None]

    @torch.inference_mode()
    def encode(self, block: PanelBlock) -> EncodedBlock:
        """Encode a block of the panel."""
        points = {}
        for i, part in enumerate(self._parts(len(block.sites.gap_U))):
            chunks = [
                self.model.context_tokens(
                    self._alleles(block.typed_NS[n : n + HAPLOTYPE_CHUNK]),
                    self._alleles(block.alleles_UN[part, n : n + HAPLOTYPE_CHUNK].T),
                )
                for n in range(0, block.n_haplotypes, HAPLOTYPE_CHUNK)
            ]
            h_BHFE = self.model.spin.encode_stream(chunks, self._side(block, part))
            points[f"{i}"] = h_BHFE[0].cpu()
        return EncodedBlock(block.places, block.frequency_S, block.sites, block.n_haplotypes, points)

    @torch.inference_mode()
    def predict(self, block: EncodedBlock, query_QS: np.ndarray, known_QS: np.ndarray) -> np.ndarray:
        """P(ALT) of queries at a block's sites."""
        out = np.empty((len(block.sites.gap_U), len(query_QS)), dtype=np.float32)
        shown_QS = np.where(known_QS > 0, query_QS.astype(np.int8), np.int8(-1))
        for i, part in enumerate(self._parts(len(out))):
            n_labels = part.stop - part.start
            h_BHFE = block.points[f"{i}"].to(self.device)[None]
            side = self._side(block, part)
            for q in range(0, len(query_QS), QUERY_CHUNK):
                tokens, mask = self.model.query_tokens(self._alleles(shown_QS[q : q + QUERY_CHUNK]), n_labels)
                logits = self.model.spin.predict(tokens, mask, h_BHFE, side)
                p_QU = kmer_allele_probabilities(self.model.label_logits(logits, n_labels), n_labels)[0]
                out[part, q : q + QUERY_CHUNK] = p_QU.T.cpu().numpy()
        constant = (block.sites.frequency_U == 0) | (block.sites.frequency_U == 1)
        out[constant] = block.sites.frequency_U[constant, None]
        return out


def load(
    weights: Mapping[str, np.ndarray],
    settings: dict[str, Any],
    fingerprint: str,
    device: str,
    options: Mapping[str, Any],
) -> KmerPredictor:
    """As of `PredictorRow.load`."""
    with fitting_weights():
        model = network_of(lambda: KmerSPIN(KmerSettings(**settings)), weights)
    return KmerPredictor(model, fingerprint, torch.device(device))
