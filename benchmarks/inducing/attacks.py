"""What an attacker computes: how well a person's haplotypes fit a file, beside people who are not in it.

Axes: X sites, Q haplotypes of the people who are tested, two columns each in the order of people; P people; H
inducing points; U sites of a block. Every feature is float64 (P,); larger speaks for membership.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from spinimpute.panels.inducing_panel import InducingPanel
from spinimpute.panels.panel_blocks import BlockPredictor, EncodedBlock

Features = dict[str, np.ndarray]
LEAST = 1e-7  # probability of an allele that nothing speaks for
DOSAGE_STEP = 1e-4  # of a dosage written with --decimals 4, which tell more than the default's three
ERRORS = (0.001, 0.03)


def of_person(value_Q: np.ndarray) -> np.ndarray:
    """The sum over a person's two haplotypes."""
    return value_Q.reshape(-1, 2).sum(1).astype(np.float64)


def count_features(
    alleles_XQ: np.ndarray, panel: InducingPanel, reference: InducingPanel, sites: np.ndarray
) -> Features:
    """From allele counts alone: the likelihood ratio of a person's alleles, sites taken as independent.

    sites: bool (X,), those that are known to the attacker.
    """
    n = panel.n_haplotypes
    inside = (panel.allele_count[sites] / n).clip(LEAST, 1 - LEAST)
    outside = (reference.allele_count[sites] + 0.5) / (reference.n_haplotypes + 1)
    carried_XQ = alleles_XQ[sites].astype(np.float64)
    ratio_Q = np.log(inside / outside) @ carried_XQ + np.log((1 - inside) / (1 - outside)) @ (1 - carried_XQ)
    count = panel.allele_count[sites]
    impossible_Q = (count == 0) @ carried_XQ + (count == n) @ (1 - carried_XQ)
    return {"ratio": of_person(ratio_Q), "impossible": -of_person(impossible_Q)}


def file_features(alleles_XQ: np.ndarray, panel: InducingPanel, sites: np.ndarray) -> Features:
    """How likely a person's haplotypes are as noisy draws from the inducing points, block by block.

    "own": at the sites that a block imputes, each site once; "wide": with the typed sites around it, which
    tell inducing points apart. Draws err with the probability in the name.
    """
    names = [f"{reach} {error}" for reach in ("own", "wide") for error in ERRORS]
    out = {name: np.zeros(alleles_XQ.shape[1]) for name in names}
    typed, frequency = panel.array_index, panel.frequency
    for number in range(panel.n_blocks):
        block = panel.read(number)
        index_U = block.sites.panel_index_U
        known_U = sites[index_U]
        own_HU = block.points["label_BHU"].numpy()[:, known_U]
        index_U = index_U[known_U]
        places = block.places
        around = typed[places.first : places.last]
        further = ~np.isin(around, index_U)
        at = slice(places.offset, places.offset + len(around))
        wide_HS = _typed_alleles(block)[:, at][:, further]
        log_mass_H = np.log(block.points["mass_BH"].numpy() / panel.n_haplotypes + 1e-9)
        for name in out:
            reach, error = name.split()
            soft, index = own_HU, index_U
            if reach == "wide":
                soft = np.concatenate([own_HU, wide_HS], axis=1)
                index = np.concatenate([index_U, around[further]])
            p = (1 - float(error)) * soft + float(error) * frequency[index]
            out[name] += _mixture(p.clip(LEAST, 1 - LEAST), log_mass_H, alleles_XQ[index])
    return {name: of_person(value) for name, value in out.items()}


def _typed_alleles(block: EncodedBlock) -> np.ndarray:
    """Mean alleles (H, S) at a block's typed places."""
    kmer_V = np.arange(2**block.k)
    allele_VK = (kmer_V[:, None] >> np.arange(block.k)[::-1]) & 1
    token_HDV = block.points["feature_BHF"].unflatten(-1, (-1, 2**block.k)).numpy()
    n_places = len(block.places.cM_S)
    first = (-n_places % block.k) // 2
    return (token_HDV @ allele_VK).reshape(len(token_HDV), -1)[:, first : first + n_places]


def _mixture(p_HU: np.ndarray, log_mass_H: np.ndarray, alleles_UQ: np.ndarray) -> np.ndarray:
    """Log likelihood (Q,) of haplotypes under a mixture of independent sites."""
    off_HU = np.log1p(-p_HU)
    odds_HU = (np.log(p_HU) - off_HU).astype(np.float32)
    fit_HQ = odds_HU @ alleles_UQ.astype(np.float32) + (off_HU.sum(1) + log_mass_H)[:, None]
    best_Q = fit_HQ.max(0)
    return best_Q + np.log(np.exp(fit_HQ - best_Q).sum(0))


def imputed(panel: InducingPanel, predictor: BlockPredictor, alleles_XQ: np.ndarray) -> np.ndarray:
    """P(ALT), float32 (X, Q), of people who are typed at the array's sites, to the decimals of an output."""
    p_XQ = np.empty(alleles_XQ.shape, dtype=np.float32)
    typed_TQ = alleles_XQ[panel.array_index]
    for number in range(panel.n_blocks):
        block = panel.read(number)
        query_QS = block.places.fill(typed_TQ)
        known_QS = np.repeat(block.places.valid_S[None].astype(np.uint8), len(query_QS), axis=0)
        p_XQ[block.sites.panel_index_U] = predictor.predict(block, query_QS, known_QS)
    return np.round(p_XQ / DOSAGE_STEP) * DOSAGE_STEP


def dosage_features(alleles_XQ: np.ndarray, p_XQ: np.ndarray, sites: np.ndarray) -> Features:
    """How well a person's alleles were imputed: the model's loss.

    sites: bool (X,), those that count (not typed, known to the attacker).
    """
    p = p_XQ[sites].clip(DOSAGE_STEP / 2, 1 - DOSAGE_STEP / 2)
    carried = alleles_XQ[sites] > 0
    loss_Q = np.log(np.where(carried, p, 1 - p)).sum(0)
    missed_Q = (np.where(carried, p, 1 - p) <= DOSAGE_STEP).sum(0)
    return {"loss": of_person(loss_Q), "missed": -of_person(missed_Q)}


def against(found: Features, reference: Features) -> Features:
    """Features of the file, and their excess over those of a file of other people."""
    excess = {f"{name}, excess": found[name] - reference[name] for name in found}
    return {**found, **excess}


def carrier_ranks(alleles_XQ: np.ndarray, p_XQ: np.ndarray, rare: np.ndarray) -> tuple[int, int]:
    """How many alleles have one carrier among the people, and for how many that one has the highest dosage.

    rare: int (R,), sites whose minor allele has one copy in the panel.
    """
    minor = alleles_XQ[rare].astype(bool)
    guess = p_XQ[rare].astype(np.float64)
    turned = minor.mean(1) > 0.5
    minor[turned], guess[turned] = ~minor[turned], 1 - guess[turned]
    single = minor.sum(1) == 1
    carrier = minor[single].argmax(1)
    guess = guess[single]
    # ties count for nothing: the carrier's dosage must be larger than all others
    own = guess[np.arange(len(guess)), carrier]
    others = guess.copy()
    others[np.arange(len(guess)), carrier] = -1
    return len(own), int((own > others.max(1)).sum())


def table_of(features: Mapping[str, np.ndarray]) -> np.ndarray:
    """(P, features), in the order of the names."""
    return np.stack([features[name] for name in sorted(features)], axis=1)
