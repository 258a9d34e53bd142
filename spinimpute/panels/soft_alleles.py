"""Encode the inducing points of a block as bytes, for .spip files (`inducing_panel`).

An inducing point stands for several panel haplotypes (its mass). It has tokens and soft alleles.

A *token* is the distribution of K-mers (alleles at K typed sites) among the point's haplotypes. Queries are
compared with tokens. Shares are rounded to twentieths that sum to 1. (Steps of 1/31 were as accurate but made
larger files; steps of 1/15 were less accurate.) The file has a bit for each K-mer that says whether it
occurs, and the share of each K-mer that occurs. The most frequent K-mer is stored as 0 and has the remaining
share.

A *soft allele* is the mean allele of the point's haplotypes at an imputed site. It is rounded to one of 64
levels that are evenly spaced in arcsin(sqrt(allele)), and therefore denser near 0 and 1, where rare alleles
are. Sites with only one allele in the panel are not stored. Masses are rounded to 8 significant bits.

Many values lie exactly between two steps, such as the soft allele 0.5, and many K-mers of a token have equal
shares. Float32 sums differ slightly between processors, so such ties are decided by rules that small
differences do not reach: soft alleles and masses are rounded down, and the K-mers with the lowest numbers get
the larger shares.

The values of all points for one K-mer or site are stored together: they are similar and compress well.

Axes: H inducing points, D columns (tokens of a point), V = 2^K K-mers, U sites that a block imputes, C sites
whose alleles are stored, L stored shares.
"""

from __future__ import annotations

import math
import struct
from dataclasses import replace
from functools import cache

import numpy as np
import torch
from torch import Tensor

from spinimpute.genotypes.blocks import PaddedSites
from spinimpute.genotypes.kmers import MAX_SNPS
from spinimpute.panels.panel_blocks import BlockSites, EncodedBlock

TOKEN_STEPS = 20  # shares are multiples of 1 / TOKEN_STEPS
LABEL_STEPS = 63  # soft alleles have LABEL_STEPS + 1 levels
# Margins of ties, far above the differences between processors and far below the steps.
REMAINDER_MARGIN = 2e-4  # remainders of shares, in steps, are equal up to this difference
LEVEL_MARGIN = 1 / 32  # levels of soft alleles up to this much above the middle of two steps are rounded down
MASS_FACTOR = 1 - 2**-11  # multiplies masses before they are rounded
_SIZES = struct.Struct("<IBI")  # H, K, L
_LABEL_VALUES = (np.sin(np.arange(LABEL_STEPS + 1) / LABEL_STEPS * np.pi / 2) ** 2).astype(np.float32)


def pack_points(block: EncodedBlock) -> bytes:
    """Encode the inducing points of a block, which must include all sites that the block imputes.

    The bytes are sizes, masses, bits and shares of K-mers, and levels of the soft alleles.
    """
    token_DVH = block.points["feature_BHF"].unflatten(-1, (-1, 2**block.k)).permute(1, 2, 0).numpy()
    code_DVH = _round_shares(token_DVH)
    occurs_DVH = code_DVH > 0
    np.put_along_axis(code_DVH, code_DVH.argmax(1)[:, None], 0, axis=1)
    code_L = code_DVH[occurs_DVH]
    stored_U = _stored_sites(block.sites)
    level_CH = _label_levels(block.points["label_BHU"].numpy()[:, stored_U].T.clip(0, 1))
    mass_H = _round_masses(block.points["mass_BH"]).view(torch.int16).numpy()
    return b"".join(
        [
            _SIZES.pack(len(mass_H), block.k, len(code_L)),
            mass_H.astype("<i2").tobytes(),
            np.packbits(occurs_DVH).tobytes(),
            code_L.tobytes(),
            level_CH.astype(np.uint8).tobytes(),
        ]
    )


def unpack_points(
    content: bytes, places: PaddedSites, sites: BlockSites, part: slice, max_points: int | None = None
) -> tuple[int, dict[str, Tensor]]:
    """Decode the result of `pack_points`. Return K and the rounded points (`nn.carrying.CarriedPoints`).

    The labels (soft alleles) are those of the sites `part` of the block. Raises ValueError or struct.error if
    the content does not fit the block, or has more than `max_points` points.
    """
    n_points, k, n_shares = _SIZES.unpack_from(content)
    if not 0 < n_points <= (n_points if max_points is None else max_points):
        raise ValueError(f"a block of {n_points} inducing points")
    if not 0 < k <= MAX_SNPS:
        raise ValueError(f"tokens of {k} SNPs")
    shape_DVH = (-(-len(places.cM_S) // k), 2**k, n_points)
    stored_U = _stored_sites(sites)
    mass_H = np.frombuffer(content, "<i2", n_points, _SIZES.size)
    codes = np.frombuffer(content, np.uint8, offset=_SIZES.size + 2 * n_points)
    n_tokens = math.prod(shape_DVH)
    packed, code_L, label = np.split(codes, np.cumsum([-(-n_tokens // 8), n_shares]))
    if 8 * len(packed) < n_tokens:  # checked before memory is allocated
        raise ValueError("tokens are missing")
    occurs_DVH = np.unpackbits(packed, count=n_tokens).astype(bool).reshape(shape_DVH)
    if len(code_L) != occurs_DVH.sum():
        raise ValueError("the number of shares is not that of the K-mers")
    code_DVH = np.zeros(shape_DVH, dtype=np.uint8)
    code_DVH[occurs_DVH] = code_L
    most_frequent_DVH = occurs_DVH & (code_DVH == 0)
    remaining_D1H = TOKEN_STEPS - code_DVH.sum(1, keepdims=True, dtype=np.int64)
    if (most_frequent_DVH.sum(1) != 1).any() or (remaining_D1H <= 0).any():
        raise ValueError("shares that do not add up to 1")
    label_CH = label.reshape(int(stored_U.sum()), n_points)
    if label_CH.max(initial=0) > LABEL_STEPS:
        raise ValueError("soft alleles above 1")
    mass_BH = torch.from_numpy(mass_H.astype(np.int16)).view(torch.bfloat16).float()
    if not (torch.isfinite(mass_BH).all() and (mass_BH >= 0).all() and mass_BH.sum() > 0):
        raise ValueError("invalid masses")
    token_DVH = np.where(most_frequent_DVH, remaining_D1H, code_DVH) / np.float32(TOKEN_STEPS)
    stored_part = stored_U[part]
    first = int(stored_U[: part.start].sum())
    label_UH = np.zeros((len(stored_part), n_points), dtype=np.float32)
    label_UH[stored_part] = _LABEL_VALUES[label_CH[first : first + int(stored_part.sum())]]
    return k, {
        "feature_BHF": torch.from_numpy(token_DVH.reshape(-1, n_points).T.astype(np.float32)),
        "label_BHU": torch.from_numpy(np.ascontiguousarray(label_UH.T)),
        "mass_BH": mass_BH,
    }


def round_points(block: EncodedBlock) -> EncodedBlock:
    """Return a block with its points rounded as in a file.

    Rounding makes the results from a panel equal to the results from the .spip file made from it. It also
    removes differences that come from the order of summation.
    """
    whole = slice(0, len(block.sites.gap_U))
    _, points = unpack_points(pack_points(block), block.places, block.sites, whole)
    return replace(block, points=points)


def round_tensors(token_BHDV: Tensor, label_BHU: Tensor, mass_BH: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the tokens, labels and masses of several blocks, rounded as in a file, on their device."""
    scaled_BHDV = token_BHDV * TOKEN_STEPS
    code_BHDV = scaled_BHDV.floor()
    missing_BHD1 = TOKEN_STEPS - code_BHDV.sum(-1, keepdim=True)
    code_BHDV += _largest(scaled_BHDV - code_BHDV, missing_BHD1)
    limits, values = _label_levels_on(label_BHU.device)
    level_BHU = torch.bucketize(label_BHU, limits, right=True)
    return code_BHDV / TOKEN_STEPS, values[level_BHU], _round_masses(mass_BH).to(mass_BH.dtype)


@cache
def _label_levels_on(device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the smallest label of each level but the first, by bisection, and the value of each level."""
    low, high = np.zeros(LABEL_STEPS, np.int32), np.full(LABEL_STEPS, np.float32(1).view(np.int32))
    while (low < high).any():  # positive floats have the order of their bits
        middle = (low + high) // 2
        reached = _label_levels(middle.view(np.float32)) > np.arange(LABEL_STEPS)
        low, high = np.where(reached, low, middle + 1), np.where(reached, middle, high)
    return torch.from_numpy(low.view(np.float32)).to(device), torch.from_numpy(_LABEL_VALUES).to(device)


def _label_levels(label: np.ndarray) -> np.ndarray:
    """Return the levels of soft alleles from 0 to 1."""
    return np.rint(np.arcsin(np.sqrt(label)) / (np.pi / 2) * LABEL_STEPS - LEVEL_MARGIN)


def _round_masses(mass: Tensor) -> Tensor:
    """Return masses with 8 significant bits, bfloat16."""
    return (mass * MASS_FACTOR).to(torch.bfloat16)


def _round_shares(token_DVH: np.ndarray) -> np.ndarray:
    """Round shares to integers that sum to TOKEN_STEPS, by the largest-remainder method, uint8 (D, V, H)."""
    scaled_DVH = token_DVH * np.float32(TOKEN_STEPS)
    code_DVH = np.floor(scaled_DVH).astype(np.uint8)
    missing_DH = TOKEN_STEPS - code_DVH.sum(1, dtype=np.int64)
    d_M, h_M = np.nonzero(missing_DH)
    remainder_MV = torch.from_numpy(scaled_DVH[d_M, :, h_M] - code_DVH[d_M, :, h_M])
    missing_M1 = torch.from_numpy(missing_DH[d_M, h_M, None])
    code_DVH[d_M, :, h_M] += _largest(remainder_MV, missing_M1).numpy()
    return code_DVH


def _largest(x_LV: Tensor, count_L1: Tensor) -> Tensor:
    """Return the entries that are the `count` largest of their row, bool (L, V); ties go by order."""
    sorted_LV = x_LV.sort(dim=-1, descending=True).values
    smallest_L1 = sorted_LV.gather(-1, (count_L1.long() - 1).clamp(0, x_LV.shape[-1] - 1))
    above_LV = x_LV > smallest_L1 + REMAINDER_MARGIN
    tied_LV = (x_LV >= smallest_L1 - REMAINDER_MARGIN) & ~above_LV
    n_tied_L1 = count_L1 - above_LV.sum(-1, keepdim=True)
    return above_LV | tied_LV & (tied_LV.cumsum(-1) <= n_tied_L1)


def _stored_sites(sites: BlockSites) -> np.ndarray:
    """Return the sites that are stored, bool (U,): those with two alleles in the panel."""
    return (sites.frequency_U > 0) & (sites.frequency_U < 1)
