"""Features that an attacker computes: how well a person's haplotypes fit a file, compared with non-members.

Axes: X sites, Q haplotypes of the tested people, with two adjacent columns for each person; P people; H
inducing points; in a block: U sites, S typed places, D columns of K-mers, V K-mers. Every feature is float64
(P,). Larger values are evidence for membership.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from spinimpute.panels.inducing_panel import InducingPanel
from spinimpute.panels.panel_blocks import BlockPredictor, EncodedBlock
from spinimpute.panels.soft_alleles import PointStates
from spinimpute.predictors.spin.kmers import kmer_numbers, split_columns

Features = dict[str, np.ndarray]
LEAST = 1e-7  # probability of an allele that nothing speaks for
DOSAGE_STEP = 1e-4  # of a dosage written with --decimals 4, which tell more than the default's three
ERRORS = (0.001, 0.03)
JUMP = 0.01  # probability that a haplotype leaves the links between two blocks
LEAST_FORWARD = 1e-300  # avoids the log of 0


def of_person(value_Q: np.ndarray) -> np.ndarray:
    """Return the sum over a person's two haplotypes."""
    return value_Q.reshape(-1, 2).sum(1).astype(np.float64)


def count_features(
    alleles_XQ: np.ndarray, panel: InducingPanel, reference: InducingPanel, sites: np.ndarray
) -> Features:
    """Return the likelihood ratio of a person's alleles from allele counts alone, with sites taken as
    independent.

    sites: bool (X,), sites that the attacker knows.
    """
    n = panel.n_haplotypes
    inside = (panel.allele_count[sites] / n).clip(LEAST, 1 - LEAST)
    outside = (reference.allele_count[sites] + 0.5) / (reference.n_haplotypes + 1)
    carried_XQ = alleles_XQ[sites].astype(np.float64)
    ratio_Q = np.log(inside / outside) @ carried_XQ + np.log((1 - inside) / (1 - outside)) @ (1 - carried_XQ)
    count = panel.allele_count[sites]
    impossible_Q = (count == 0) @ carried_XQ + (count == n) @ (1 - carried_XQ)
    return {"ratio": of_person(ratio_Q), "impossible": -of_person(impossible_Q)}


def file_features(
    alleles_XQ: np.ndarray, panel: InducingPanel, sites: np.ndarray
) -> tuple[Features, Features]:
    """Return how likely a person's haplotypes are as noisy draws from the inducing points, without and with
    the links between blocks.

    Without links, the blocks are independent. With links, the haplotypes go from point to point along the
    chromosome (`LinkedBlocks`). "own" uses the sites that a block imputes; each site counts once. "wide" uses
    untyped sites, and the K-mers of typed sites in and around the block, which distinguish inducing points.
    The number in a name is the error rate of the draws.
    """
    names = [f"{reach} {error}" for reach in ("own", "wide") for error in ERRORS]
    alone = {name: np.zeros(alleles_XQ.shape[1]) for name in names}
    chains = {name: LinkedBlocks() for name in names}
    frequency = panel.frequency
    for number in range(panel.n_blocks):
        block, states = panel.read(number), panel.read_states(number)
        index_U = block.sites.panel_index_U
        label_HU = block.points["label_BHU"]
        known_U, untyped_U = sites[index_U], ~np.isin(index_U, panel.array_index)
        share_H = block.points["mass_BH"] / panel.n_haplotypes
        token_HDV, kmer_DQ = _known_kmers(block, panel.array_index, alleles_XQ, sites)
        for name in names:
            reach, text = name.split()
            error = float(text)
            chosen_U = known_U if reach == "own" else known_U & untyped_U
            index = index_U[chosen_U]
            p_HU = (1 - error) * label_HU[:, chosen_U] + error * frequency[index]
            fit_HQ = _site_fit(p_HU.clip(LEAST, 1 - LEAST), alleles_XQ[index])
            if reach == "wide":
                of_panel_DV = np.tensordot(share_H, token_HDV, axes=1)
                fit_HQ += _kmer_fit((1 - error) * token_HDV + error * of_panel_DV, kmer_DQ)
            alone[name] += _mixture(fit_HQ, share_H)
            chains[name].add(fit_HQ, share_H, states)
    linked = {f"{name}, linked": of_person(chain.likelihood_Q) for name, chain in chains.items()}
    return {name: of_person(value) for name, value in alone.items()}, linked


class LinkedBlocks:
    """The likelihood of haplotypes that follow the links from point to point: the forward algorithm.

    A haplotype leaves the links with the probability JUMP, or if its point has none; it then goes to a random
    point.

    Attributes
    ----------
    likelihood_Q : ndarray
        Log likelihood of each haplotype in the blocks that have been added.
    """

    def __init__(self) -> None:
        self.likelihood_Q: np.ndarray = np.zeros(0)
        self._forward_HQ: np.ndarray = np.zeros((0, 0))

    def add(self, fit_HQ: np.ndarray, share_H: np.ndarray, states: PointStates) -> None:
        """Add the next block: log likelihoods of the haplotypes given a point, shares and links of points."""
        prior_HQ = np.repeat(share_H[:, None] / share_H.sum(), fit_HQ.shape[1], axis=1)
        if not len(self._forward_HQ):
            self.likelihood_Q = np.zeros(fit_HQ.shape[1])
        else:
            link_PH = np.zeros((len(self._forward_HQ), len(fit_HQ)))
            from_L = np.repeat(np.arange(len(link_PH)), np.diff(states.first_P1))
            link_PH[from_L, states.to_L] = states.share_L
            linked_HQ = (1 - JUMP) * (link_PH.T @ self._forward_HQ)
            prior_HQ = linked_HQ + (1 - linked_HQ.sum(0)) * prior_HQ
        best_Q = fit_HQ.max(0)
        forward_HQ = prior_HQ * np.exp(fit_HQ - best_Q) + LEAST_FORWARD
        total_Q = forward_HQ.sum(0)
        self.likelihood_Q = self.likelihood_Q + best_Q + np.log(total_Q)
        self._forward_HQ = forward_HQ / total_Q


def _known_kmers(
    block: EncodedBlock, typed: np.ndarray, alleles_XQ: np.ndarray, sites: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Of columns whose sites are all known: tokens of the points (H, D, V), K-mers of the people (D, Q)."""
    places = block.places
    around = typed[places.first : places.last]
    unknown_S = places.fill(~sites[around][:, None], places.first)[0]
    known_D = ~split_columns(torch.from_numpy(unknown_S), block.k).any(-1).numpy()
    allele_QS = torch.from_numpy(places.fill(alleles_XQ[around], places.first))
    kmer_DQ = kmer_numbers(allele_QS[None], block.k)[0].T.numpy()
    token_HDV = block.tokens
    return token_HDV[:, known_D], kmer_DQ[known_D]


def _site_fit(p_HU: np.ndarray, alleles_UQ: np.ndarray) -> np.ndarray:
    """Log likelihoods (H, Q) of haplotypes at independent sites."""
    off_HU = np.log1p(-p_HU)
    odds_HU = (np.log(p_HU) - off_HU).astype(np.float32)
    return odds_HU @ alleles_UQ.astype(np.float32) + off_HU.sum(1)[:, None]


def _kmer_fit(p_HDV: np.ndarray, kmer_DQ: np.ndarray) -> np.ndarray:
    """Log likelihoods (H, Q) of haplotypes at independent columns."""
    log_DHV = np.log(p_HDV.clip(LEAST, 1)).swapaxes(0, 1)
    fit_HQ = np.zeros((p_HDV.shape[0], kmer_DQ.shape[1]))
    for log_HV, kmer_Q in zip(log_DHV, kmer_DQ, strict=True):
        fit_HQ += log_HV[:, kmer_Q]
    return fit_HQ


def _mixture(fit_HQ: np.ndarray, share_H: np.ndarray) -> np.ndarray:
    """Log likelihood (Q,) of haplotypes under a mixture of inducing points."""
    fit_HQ = fit_HQ + np.log(share_H + 1e-9)[:, None]
    best_Q = fit_HQ.max(0)
    return best_Q + np.log(np.exp(fit_HQ - best_Q).sum(0))


def imputed(panel: InducingPanel, predictor: BlockPredictor, alleles_XQ: np.ndarray) -> np.ndarray:
    """Return P(ALT), float32 (X, Q), of people typed at the array's sites, rounded like an output."""
    p_XQ = np.empty(alleles_XQ.shape, dtype=np.float32)
    typed_TQ = alleles_XQ[panel.array_index]
    for number in range(panel.n_blocks):
        block = panel.read(number)
        query_QS = block.places.fill(typed_TQ)
        known_QS = np.repeat(block.places.valid_S[None].astype(np.uint8), len(query_QS), axis=0)
        p_XQ[block.sites.panel_index_U] = predictor.predict(block, query_QS, known_QS)
    return np.round(p_XQ / DOSAGE_STEP) * DOSAGE_STEP


def dosage_features(alleles_XQ: np.ndarray, p_XQ: np.ndarray, sites: np.ndarray) -> Features:
    """Return how well a person's alleles were imputed: the model's loss.

    sites: bool (X,), the sites that count (untyped, and known to the attacker).
    """
    p = p_XQ[sites].clip(DOSAGE_STEP / 2, 1 - DOSAGE_STEP / 2)
    carried = alleles_XQ[sites] > 0
    loss_Q = np.log(np.where(carried, p, 1 - p)).sum(0)
    missed_Q = (np.where(carried, p, 1 - p) <= DOSAGE_STEP).sum(0)
    return {"loss": of_person(loss_Q), "missed": -of_person(missed_Q)}


def against(found: Features, reference: Features) -> Features:
    """Return features of the file, and their differences from the features of a file of other people."""
    excess = {f"{name}, excess": found[name] - reference[name] for name in found}
    return {**found, **excess}


def carrier_ranks(alleles_XQ: np.ndarray, p_XQ: np.ndarray, rare: np.ndarray) -> tuple[int, int]:
    """Count alleles with a single carrier among the people, and those whose carrier has the highest dosage.

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
    """Return the features as a table (P, features), in the order of the names."""
    return np.stack([features[name] for name in sorted(features)], axis=1)
