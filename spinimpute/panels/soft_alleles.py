"""Inducing points of a block as bytes: soft alleles of few levels, without what can be derived.

Axes: H inducing points, S typed places of a block, U sites that it imputes, V typed sites that it sees, C
imputed sites whose alleles are kept.

A soft allele at a typed place, which queries are compared with, is one of 8 values at equal distances (32
gave the same accuracy and larger files). At the sites that a block imputes it is one of 64, spaced evenly in
arcsin(sqrt(allele)): closer near 0 and 1, where rare alleles are. Not stored are places without a typed site,
and sites where the panel has one allele only. Mass keeps 8 significant bits. Codes lie site by site: points
that are neighbours are alike.
"""

from __future__ import annotations

import struct
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from spinimpute.genotypes.blocks import TypedPlaces
from spinimpute.panels.panel_blocks import BlockSites, EncodedBlock

TYPED_STEPS = 7
LABEL_STEPS = 63
_COUNT = struct.Struct("<I")
_TYPED_VALUES = (np.arange(TYPED_STEPS + 1) / TYPED_STEPS).astype(np.float32)
_LABEL_VALUES = (np.sin(np.arange(LABEL_STEPS + 1) / LABEL_STEPS * np.pi / 2) ** 2).astype(np.float32)


def pack_points(block: EncodedBlock) -> bytes:
    """The inducing points of a block as bytes.

    Parameters
    ----------
    block : EncodedBlock
        It imputes all of its sites.

    Returns
    -------
    bytes
        Number of points, masses, codes at typed sites, codes at the sites that are kept.
    """
    typed_HS = block.points["feature_BHX"].numpy()
    label_HU = block.points["label_BHU"].numpy()
    seen = _seen(block.places)
    kept_U = _kept(block.sites)
    typed_VH = np.rint(typed_HS[:, seen].T.clip(0, 1) * TYPED_STEPS).astype(np.uint8)
    angle_CH = np.arcsin(np.sqrt(label_HU[:, kept_U].T.clip(0, 1))) / (np.pi / 2)
    label_CH = np.rint(angle_CH * LABEL_STEPS).astype(np.uint8)
    mass_H = block.points["mass_BH"].to(torch.bfloat16).view(torch.int16).numpy()
    return b"".join(
        [
            _COUNT.pack(len(typed_HS)),
            mass_H.astype("<i2").tobytes(),
            typed_VH.tobytes(),
            label_CH.tobytes(),
        ]
    )


def unpack_points(
    content: bytes, places: TypedPlaces, sites: BlockSites, part: slice, most: int | None = None
) -> dict[str, Tensor]:
    """The inducing points that `pack_points` was given, rounded.

    Parameters
    ----------
    content : bytes
        As of `pack_points`.
    places, sites : TypedPlaces, BlockSites
        Of the block.
    part : slice
        Of the block's sites, those whose soft alleles are wanted.
    most : int, optional
        Points of a block, at most.

    Returns
    -------
    dict of str to Tensor
        feature_BHX (typed places), label_BHU (of the part), mass_BH; see `nn.carrying.CarriedPoints`.

    Raises
    ------
    ValueError, struct.error
        The content is of another block.
    """
    (n_points,) = _COUNT.unpack_from(content)
    seen = _seen(places)
    kept_U = _kept(sites)
    mass_H = np.frombuffer(content, "<i2", n_points, _COUNT.size)
    codes = np.frombuffer(content, np.uint8, offset=_COUNT.size + 2 * n_points)
    n_seen = places.last - places.first
    codes_XH = codes.reshape(n_seen + int(kept_U.sum()), n_points)
    if (
        not 0 < n_points <= (n_points if most is None else most)
        or codes_XH[:n_seen].max(initial=0) > TYPED_STEPS
        or codes_XH[n_seen:].max(initial=0) > LABEL_STEPS
    ):
        raise ValueError("no inducing points")
    mass_BH = torch.from_numpy(mass_H.astype(np.int16)).view(torch.bfloat16).float()
    if not (torch.isfinite(mass_BH).all() and (mass_BH >= 0).all() and mass_BH.sum() > 0):
        raise ValueError("no masses")
    typed_SH = np.zeros((len(places.cM_S), n_points), dtype=np.float32)
    typed_SH[seen] = _TYPED_VALUES[codes_XH[:n_seen]]
    kept_part = kept_U[part]
    first = n_seen + int(kept_U[: part.start].sum())
    label_UH = np.zeros((len(kept_part), n_points), dtype=np.float32)
    label_UH[kept_part] = _LABEL_VALUES[codes_XH[first : first + int(kept_part.sum())]]
    return {
        "feature_BHX": torch.from_numpy(np.ascontiguousarray(typed_SH.T)),
        "label_BHU": torch.from_numpy(np.ascontiguousarray(label_UH.T)),
        "mass_BH": mass_BH,
    }


def as_stored(block: EncodedBlock) -> EncodedBlock:
    """The block as it comes back from a file.

    So a panel and the file made of it give the same, whatever the order in which haplotypes were added up.

    Parameters
    ----------
    block : EncodedBlock
        It imputes all of its sites.

    Returns
    -------
    EncodedBlock
        With rounded points.
    """
    whole = slice(0, len(block.sites.gap_U))
    return replace(block, points=unpack_points(pack_points(block), block.places, block.sites, whole))


def _seen(places: TypedPlaces) -> slice:
    """The places that hold a typed site."""
    return slice(places.offset, places.offset + places.last - places.first)


def _kept(sites: BlockSites) -> np.ndarray:
    """bool (U,): of two alleles."""
    return (sites.frequency_U > 0) & (sites.frequency_U < 1)
