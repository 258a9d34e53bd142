"""The model of Li and Stephens over all paths, in double precision and without any of the tricks."""

import numpy as np


def forward_backward(
    panel_SN: np.ndarray, emission_S2: np.ndarray, jump_S: np.ndarray, possible_N: np.ndarray | float = 1.0
) -> tuple[np.ndarray, float]:
    """Posteriors (S, N) of the copied haplotype, and the log-likelihood.

    No call comes from haplotypes that are not possible.
    """
    n_places, n = panel_SN.shape
    emission_SN = np.take_along_axis(emission_S2.astype(float), panel_SN.astype(int), axis=1) * possible_N
    jump_S, log_likelihood = jump_S.astype(float), 0.0
    forward_SN, backward_SN = np.empty((n_places, n)), np.ones((n_places, n))
    before = np.full(n, 1 / n)
    for s in range(n_places):
        value = ((1 - jump_S[s]) * before + jump_S[s] * before.mean()) * emission_SN[s]
        log_likelihood += np.log(value.sum())
        before = forward_SN[s] = value / value.sum()
    for s in range(n_places - 1, 0, -1):
        behind = emission_SN[s] * backward_SN[s]
        value = (1 - jump_S[s]) * behind + jump_S[s] * behind.mean()
        backward_SN[s - 1] = value / value.sum()
    posterior_SN = forward_SN * backward_SN
    return posterior_SN / posterior_SN.sum(axis=1, keepdims=True), log_likelihood
