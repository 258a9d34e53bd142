"""Inducing points of a block as bytes: soft alleles of few levels, without what can be derived.

Axes: H inducing points, S typed places of a block, U sites that it imputes, V typed sites that it sees, C
imputed sites whose alleles are kept.

A soft allele at a typed site is one of 32 values at equal distances. At the other sites it is one of 64,
spaced evenly in arcsin(sqrt(allele)): closer near 0 and 1, where rare alleles are. Not stored are places
without a typed site, imputed sites that are typed (there the block has its typed alleles) and sites where
the panel has one allele only. Mass keeps 8 significant bits. Codes lie site by site: points that are
neighbours are alike.
"""

from __future__ import annotations

import struct
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from spinimpute.genotypes.blocks import TypedPlaces
from spinimpute.panels.panel_blocks import BlockSites, EncodedBlock

TYPED_STEPS = 31
UNTYPED_STEPS = 63
_COUNT = struct.Struct("<I")
_TYPED_VALUES = (np.arange(TYPED_STEPS + 1) / TYPED_STEPS).astype(np.float32)
_UNTYPED_VALUES = (np.sin(np.arange(UNTYPED_STEPS + 1) / UNTYPED_STEPS * np.pi / 2) ** 2).astype(np.float32)


def pack_points(block: EncodedBlock, typed_index: np.ndarray) -> bytes:
    """The inducing points of a block as bytes.

    Parameters
    ----------
    block : EncodedBlock
        It imputes all of its sites.
    typed_index : int64 (T,)
        The typed panel sites.

    Returns
    -------
    bytes
        Number of points, masses, codes at typed sites, codes at the sites that are kept.
    """
    typed_HS = block.points["feature_BHX"].numpy()
    untyped_HU = block.points["label_BHU"].numpy()
    seen = _seen(block.places)
    kept_U = _kept(block.sites, typed_index)
    typed_VH = np.rint(typed_HS[:, seen].T.clip(0, 1) * TYPED_STEPS).astype(np.uint8)
    angle_CH = np.arcsin(np.sqrt(untyped_HU[:, kept_U].T.clip(0, 1))) / (np.pi / 2)
    untyped_CH = np.rint(angle_CH * UNTYPED_STEPS).astype(np.uint8)
    mass_H = block.points["mass_BH"].to(torch.bfloat16).view(torch.int16).numpy()
    return b"".join(
        [
            _COUNT.pack(len(typed_HS)),
            mass_H.astype("<i2").tobytes(),
            typed_VH.tobytes(),
            untyped_CH.tobytes(),
        ]
    )


def unpack_points(
    content: bytes, places: TypedPlaces, sites: BlockSites, typed_index: np.ndarray, part: slice
) -> dict[str, Tensor]:
    """The inducing points that `pack_points` was given, rounded.

    Parameters
    ----------
    content : bytes
        As of `pack_points`.
    places, sites : TypedPlaces, BlockSites
        Of the block.
    typed_index : int64 (T,)
        The typed panel sites.
    part : slice
        Of the block's sites, those whose soft alleles are wanted.

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
    kept_U = _kept(sites, typed_index)
    mass_H = np.frombuffer(content, "<i2", n_points, _COUNT.size)
    codes = np.frombuffer(content, np.uint8, offset=_COUNT.size + 2 * n_points)
    n_seen = places.last - places.first
    codes_XH = codes.reshape(n_seen + int(kept_U.sum()), n_points)
    if (
        n_points == 0
        or codes_XH[:n_seen].max(initial=0) > TYPED_STEPS
        or codes_XH[n_seen:].max(initial=0) > UNTYPED_STEPS
    ):
        raise ValueError("no soft haplotypes")
    typed_SH = np.zeros((len(places.cM_S), n_points), dtype=np.float32)
    typed_SH[seen] = _TYPED_VALUES[codes_XH[:n_seen]]
    kept_part = kept_U[part]
    first = n_seen + int(kept_U[: part.start].sum())
    untyped_UH = np.zeros((len(kept_part), n_points), dtype=np.float32)
    untyped_UH[kept_part] = _UNTYPED_VALUES[codes_XH[first : first + int(kept_part.sum())]]
    number_U, is_typed_U = _typed_number(sites.panel_index_U[part], typed_index)
    untyped_UH[is_typed_U] = typed_SH[number_U[is_typed_U] - places.first + places.offset]
    return {
        "feature_BHX": torch.from_numpy(np.ascontiguousarray(typed_SH.T)),
        "label_BHU": torch.from_numpy(np.ascontiguousarray(untyped_UH.T)),
        "mass_BH": torch.from_numpy(mass_H.astype(np.int16)).view(torch.bfloat16).float(),
    }


def as_stored(block: EncodedBlock, typed_index: np.ndarray) -> EncodedBlock:
    """The block as it comes back from a file.

    So a panel and the file made of it give the same, whatever the order in which haplotypes were added up.

    Parameters
    ----------
    block : EncodedBlock
        It imputes all of its sites.
    typed_index : int64 (T,)
        The typed panel sites.

    Returns
    -------
    EncodedBlock
        With rounded points.
    """
    whole = slice(0, len(block.sites.gap_U))
    content = pack_points(block, typed_index)
    return replace(block, points=unpack_points(content, block.places, block.sites, typed_index, whole))


def _seen(places: TypedPlaces) -> slice:
    """The places that hold a typed site."""
    return slice(places.offset, places.offset + places.last - places.first)


def _kept(sites: BlockSites, typed_index: np.ndarray) -> np.ndarray:
    """bool (U,): not typed, and of two alleles."""
    _, is_typed_U = _typed_number(sites.panel_index_U, typed_index)
    return ~is_typed_U & (sites.frequency_U > 0) & (sites.frequency_U < 1)


def _typed_number(panel_index_U: np.ndarray, typed_index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of each site: which typed site it is, and whether it is one."""
    number_U = np.searchsorted(typed_index, panel_index_U)
    return number_U, typed_index[np.minimum(number_U, len(typed_index) - 1)] == panel_index_U
