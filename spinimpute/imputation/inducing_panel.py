"""A panel's inducing points for one array: enough to impute without the panel.

The file holds, for each block, what the model's encoder made of the panel, the table of imputed sites and
the typed sites they were made for. It is no proof of privacy: soft haplotypes that
stand for a single person's haplotype show that haplotype. With many inducing points it is larger than the
panel file, which holds a bit where this holds a float.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from spinimpute.errors import InputError
from spinimpute.genotypes.sites import Sites
from spinimpute.imputation.blocks import TypedPlaces
from spinimpute.imputation.checkpoint import load_tensors, save_tensors
from spinimpute.imputation.panel_blocks import BlockSites, EncodedBlock

FORMAT = "spinimpute-inducing-panel-1"
_TEXTS = ("ref", "alt", "id")
_SITES = ("panel_index_U", "gap_U", "frequency_U", "fraction_U", "distance_U", "cM_U")


@dataclass(frozen=True)
class InducingPanel:
    """Encoded blocks in order, and what they are for.

    sites: all imputed sites; typed_index: int64 (T,), which of them are typed; frequency: float32 (n_sites,);
    fingerprint: of the model that made the blocks and must read them; checksum: of the panel.
    """

    sites: Sites
    typed_index: np.ndarray
    frequency: np.ndarray
    n_haplotypes: int
    blocks: list[EncodedBlock]
    kind: str
    fingerprint: str
    checksum: str

    def save(self, path: str | Path) -> None:
        """Write to a safetensors file. Raises InputError if it cannot be written."""
        tensors: dict[str, Tensor] = {
            "position": torch.from_numpy(self.sites.position),
            "typed_index": torch.from_numpy(self.typed_index),
            "frequency": torch.from_numpy(self.frequency),
            # as tensors: a safetensors header has room for a few million sites only
            **{name: _text(getattr(self.sites, name)) for name in _TEXTS},
        }
        ranges: list[dict[str, Any]] = []
        for i, block in enumerate(self.blocks):
            ranges.append(
                {"first": block.places.first, "last": block.places.last, "offset": block.places.offset}
            )
            tensors[f"{i}/places/cM_S"] = _tensor(block.places.cM_S)
            tensors[f"{i}/places/valid_S"] = _tensor(block.places.valid_S)
            tensors[f"{i}/frequency_S"] = _tensor(block.frequency_S)
            tensors |= {f"{i}/sites/{name}": _tensor(getattr(block.sites, name)) for name in _SITES}
            tensors |= {f"{i}/points/{name}": value for name, value in block.points.items()}
        metadata = {
            "chrom": self.sites.chrom,
            "n_haplotypes": self.n_haplotypes,
            "blocks": ranges,
            "kind": self.kind,
            "fingerprint": self.fingerprint,
            "checksum": self.checksum,
        }
        save_tensors(path, tensors, metadata, FORMAT)

    @classmethod
    def open(cls, path: str | Path) -> InducingPanel:
        """Read what `save` wrote. Raises InputError if the file is something else or damaged."""
        tensors, metadata = load_tensors(path, FORMAT, "inducing panel")
        try:
            arrays = {name: tensor for name, tensor in tensors.items() if "/" in name}
            blocks = [
                _block(i, ranges, arrays, metadata["n_haplotypes"])
                for i, ranges in enumerate(metadata["blocks"])
            ]
            ref, alt, names = (bytes(tensors[name].numpy()).decode().split("\n") for name in _TEXTS)
            sites = Sites(metadata["chrom"], tensors["position"].numpy(), ref, alt, names)
            return cls(
                sites,
                tensors["typed_index"].numpy(),
                tensors["frequency"].numpy(),
                metadata["n_haplotypes"],
                blocks,
                metadata["kind"],
                metadata["fingerprint"],
                metadata["checksum"],
            )
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"inducing panel {path}: incomplete ({error}); copy it again") from error


def _text(lines: list[str]) -> Tensor:
    return torch.from_numpy(np.frombuffer("\n".join(lines).encode(), dtype=np.uint8).copy())


def _tensor(array: np.ndarray) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(array))


def _block(i: int, ranges: dict[str, int], tensors: dict[str, Tensor], n_haplotypes: int) -> EncodedBlock:
    def array(name: str) -> np.ndarray:
        return tensors[f"{i}/{name}"].numpy()

    prefix = f"{i}/points/"
    return EncodedBlock(
        places=TypedPlaces(array("places/cM_S"), array("places/valid_S"), **ranges),
        frequency_S=array("frequency_S"),
        sites=BlockSites(*(array(f"sites/{name}") for name in _SITES)),
        n_haplotypes=n_haplotypes,
        points={name[len(prefix) :]: value for name, value in tensors.items() if name.startswith(prefix)},
    )
