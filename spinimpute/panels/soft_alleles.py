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

The points of neighbouring blocks are also linked: a *link* is the share of a point's haplotypes that belong
to a point of the next block, in steps of 1/200. `PointStates` has the links, the masses and the soft alleles
at the block's own typed sites. It is stored apart from the points, because it is needed for many more blocks
at a time (`predictors.spin.point_posteriors`).

Axes: H inducing points, D columns (tokens of a point), V = 2^K K-mers, U sites that a block imputes, C sites
whose alleles are stored, L stored shares or links, N panel haplotypes, P points of the block before, S own
typed sites of a block: those that end its gaps.
"""

from __future__ import annotations

import math
import struct
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from spinimpute.genotypes.blocks import PaddedSites
from spinimpute.genotypes.kmers import MAX_SNPS, mean_alleles
from spinimpute.panels.panel_blocks import BlockSites, EncodedBlock

TOKEN_STEPS = 20  # shares are multiples of 1 / TOKEN_STEPS
LABEL_STEPS = 63  # soft alleles have LABEL_STEPS + 1 levels
# Margins of ties, far above the differences between processors and far below the steps.
REMAINDER_MARGIN = 2e-4  # remainders of shares, in steps, are equal up to this difference
LEVEL_MARGIN = 1 / 32  # levels of soft alleles up to this much above the middle of two steps are rounded down
MASS_FACTOR = 1 - 2**-11  # multiplies masses before they are rounded
_SIZES = struct.Struct("<IBI")  # H, K, L
LINK_STEPS = 200  # shares of links are multiples of 1 / LINK_STEPS
MIN_LINK = 2  # smaller shares, in these steps, are not stored
_STATE_SIZES = struct.Struct("<IIII")  # H, S, P, L
LABEL_VALUES = (np.sin(np.arange(LABEL_STEPS + 1) / LABEL_STEPS * np.pi / 2) ** 2).astype(np.float32)


def pack_points(block: EncodedBlock) -> bytes:
    """Encode the inducing points of a block, which must include all sites that the block imputes.

    The bytes are sizes, masses, bits and shares of K-mers, and levels of the soft alleles.
    """
    token_DVH = block.tokens.transpose(1, 2, 0)
    code_DVH = _round_shares(token_DVH)
    occurs_DVH = code_DVH > 0
    np.put_along_axis(code_DVH, code_DVH.argmax(1)[:, None], 0, axis=1)
    code_L = code_DVH[occurs_DVH]
    stored_U = _stored_sites(block.sites)
    level_CH = label_levels(block.points["label_BHU"][:, stored_U].T.clip(0, 1))
    mass_H = _round_masses(block.points["mass_BH"])
    return b"".join(
        [
            _SIZES.pack(len(mass_H), block.k, len(code_L)),
            mass_H.astype("<u2").tobytes(),
            np.packbits(occurs_DVH).tobytes(),
            code_L.tobytes(),
            level_CH.astype(np.uint8).tobytes(),
        ]
    )


def unpack_points(
    content: bytes, places: PaddedSites, sites: BlockSites, part: slice, max_points: int | None = None
) -> tuple[int, dict[str, np.ndarray]]:
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
    mass_H = np.frombuffer(content, "<u2", n_points, _SIZES.size)
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
    token_DVH = np.where(most_frequent_DVH, remaining_D1H, code_DVH) / np.float32(TOKEN_STEPS)
    stored_part = stored_U[part]
    first = int(stored_U[: part.start].sum())
    label_UH = np.zeros((len(stored_part), n_points), dtype=np.float32)
    label_UH[stored_part] = LABEL_VALUES[label_CH[first : first + int(stored_part.sum())]]
    return k, {
        "feature_BHF": token_DVH.reshape(-1, n_points).T.astype(np.float32),
        "label_BHU": np.ascontiguousarray(label_UH.T),
        "mass_BH": _masses(mass_H),
    }


def round_points(block: EncodedBlock) -> EncodedBlock:
    """Return a block with its points rounded as in a file.

    Rounding makes the predictions of SPIN from a panel equal to those from the .spip file made from it. It
    also removes differences that come from the order of summation.
    """
    whole = slice(0, len(block.sites.gap_U))
    _, points = unpack_points(pack_points(block), block.places, block.sites, whole)
    return replace(block, points=points)


def label_levels(label: np.ndarray) -> np.ndarray:
    """Return the levels of soft alleles from 0 to 1."""
    return np.rint(np.arcsin(np.sqrt(label)) / (np.pi / 2) * LABEL_STEPS - LEVEL_MARGIN)


def _round_masses(mass_H: np.ndarray) -> np.ndarray:
    """Round masses to 8 significant bits; return the higher halves of their bits (bfloat16), uint16."""
    bits_H = (mass_H.astype(np.float32) * np.float32(MASS_FACTOR)).view(np.uint32)
    return ((bits_H + np.uint32(0x7FFF) + (bits_H >> 16 & 1)) >> 16).astype(np.uint16)


def _round_shares(token_DVH: np.ndarray) -> np.ndarray:
    """Round shares to integers that sum to TOKEN_STEPS, by the largest-remainder method, uint8 (D, V, H)."""
    scaled_DVH = token_DVH * np.float32(TOKEN_STEPS)
    code_DVH = np.floor(scaled_DVH).astype(np.uint8)
    missing_DH = TOKEN_STEPS - code_DVH.sum(1, dtype=np.int64)
    d_M, h_M = np.nonzero(missing_DH)
    remainder_MV = scaled_DVH[d_M, :, h_M] - code_DVH[d_M, :, h_M]
    code_DVH[d_M, :, h_M] += _largest(remainder_MV, missing_DH[d_M, h_M, None])
    return code_DVH


def _largest(x_LV: np.ndarray, count_L1: np.ndarray) -> np.ndarray:
    """Return the entries that are the `count` largest of their row, bool (L, V); ties go by order."""
    smallest_L1 = np.take_along_axis(
        -np.sort(-x_LV, axis=-1), (count_L1 - 1).clip(0, x_LV.shape[-1] - 1), axis=-1
    )
    above_LV = x_LV > smallest_L1 + np.float32(REMAINDER_MARGIN)
    tied_LV = (x_LV >= smallest_L1 - np.float32(REMAINDER_MARGIN)) & ~above_LV
    n_tied_L1 = count_L1 - above_LV.sum(-1, keepdims=True)
    return above_LV | tied_LV & (tied_LV.cumsum(-1) <= n_tied_L1)


def _stored_sites(sites: BlockSites) -> np.ndarray:
    """Return the sites that are stored, bool (U,): those with two alleles in the panel."""
    return (sites.frequency_U > 0) & (sites.frequency_U < 1)


class PointStates(NamedTuple):
    """The inducing points of a block as states of a chain along the chromosome."""

    mass_H: np.ndarray  # float32
    allele_SH: np.ndarray  # soft alleles at the own typed sites, float32
    # links from the points of the block before: those of point p are [first_P1[p], first_P1[p + 1])
    first_P1: np.ndarray  # int64; empty for the first block
    to_L: np.ndarray  # points of this block, int64
    share_L: np.ndarray  # float32, add up to 1 for each point of the block before that has links


def pack_states(block: EncodedBlock, own: slice, before: EncodedBlock | None) -> bytes:
    """Encode the states of a block. Its own typed sites are the places `own`.

    `before` is the block before. Both blocks must have `members`, see `EncodedBlock`.
    """
    allele_SH = mean_alleles(block.tokens, len(block.places.cM_S))[:, own].T
    mass_H = _round_masses(block.points["mass_BH"])
    step_PH = _link_steps(before, block) if before is not None else np.zeros((0, len(mass_H)), np.uint8)
    from_L, to_L = np.nonzero(step_PH)
    return b"".join(
        [
            _STATE_SIZES.pack(len(mass_H), len(allele_SH), len(step_PH), len(to_L)),
            mass_H.astype("<u2").tobytes(),
            label_levels(allele_SH.clip(0, 1)).astype(np.uint8).tobytes(),
            np.bincount(from_L, minlength=len(step_PH)).astype("<u4").tobytes(),
            to_L.astype("<u4").tobytes(),
            step_PH[from_L, to_L].tobytes(),
        ]
    )


def _link_steps(before: EncodedBlock, block: EncodedBlock) -> np.ndarray:
    """Return the shares of the links between two blocks, in steps, uint8 (P, H); smaller ones are 0."""
    assert before.members is not None
    assert block.members is not None
    haplotype_M, from_M, share_M = before.members
    haplotype_L, to_L, share_L = block.members
    # pairs of an entry of the block before and an entry of this block that have the same haplotype
    first_M, stop_M = (np.searchsorted(haplotype_L, haplotype_M, side) for side in ("left", "right"))
    count_M = stop_M - first_M
    left = np.repeat(np.arange(len(haplotype_M)), count_M)
    right = np.arange(len(left)) - np.repeat(count_M.cumsum() - stop_M, count_M)
    shape = len(before.points["mass_BH"]), len(block.points["mass_BH"])
    link = from_M[left] * shape[1] + to_L[right]
    together_PH = np.bincount(link, share_M[left] * share_L[right], math.prod(shape)).reshape(shape)
    share_PH = together_PH / together_PH.sum(1, keepdims=True).clip(1e-9)
    step_PH = np.rint(share_PH * LINK_STEPS - LEVEL_MARGIN).clip(0).astype(np.uint8)
    step_PH[step_PH < MIN_LINK] = 0
    return step_PH


def unpack_states(content: bytes, n_own: int, max_points: int) -> PointStates:
    """Decode the result of `pack_states` for a block with `n_own` own typed sites.

    Raises ValueError or struct.error if the content does not fit, or has more than `max_points` points.
    """
    n_points, n_sites, n_from, n_links = _STATE_SIZES.unpack_from(content)
    if n_sites != n_own or not 0 < n_points <= max_points:
        raise ValueError(f"{n_points} states of {n_sites} typed sites")
    expected = _STATE_SIZES.size + (2 + n_sites) * n_points + 4 * n_from + 5 * n_links
    if len(content) != expected:  # checked before memory is allocated
        raise ValueError(f"{len(content)} bytes, expected {expected}")
    position = _STATE_SIZES.size
    parts = []
    for kind, count in (
        ("<u2", n_points), ("u1", n_sites * n_points), ("<u4", n_from), ("<u4", n_links), ("u1", n_links),
    ):  # fmt: skip
        parts.append(np.frombuffer(content, kind, count, position))
        position += parts[-1].nbytes
    mass_H, level, count_P, to_L, step_L = parts
    mass_H = _masses(mass_H)
    if count_P.sum(dtype=np.int64) != n_links or (to_L >= n_points).any() or (step_L == 0).any():
        raise ValueError("the links do not fit the points")
    if level.max(initial=0) > LABEL_STEPS:
        raise ValueError("soft alleles above 1")
    first_P1 = np.concatenate([[0], count_P.cumsum(dtype=np.int64)])
    from_L = np.repeat(np.arange(n_from), count_P)
    total_P = np.bincount(from_L, step_L, minlength=n_from)
    share_L = (step_L / total_P[from_L]).astype(np.float32)
    allele_SH = LABEL_VALUES[level].reshape(n_sites, n_points)
    return PointStates(mass_H, allele_SH, first_P1, to_L.astype(np.int64), share_L)


def _masses(stored_H: np.ndarray) -> np.ndarray:
    """Return stored masses, float32 (H,). Raises ValueError if they cannot be masses."""
    mass_H: np.ndarray = (stored_H.astype(np.uint32) << 16).view(np.float32)
    if not (np.isfinite(mass_H).all() and (mass_H >= 0).all() and mass_H.any()):
        raise ValueError("invalid masses")
    return mass_H
