"""The assignment of labels to haplotypes, compared with sums over all pairs of alleles."""

import numpy as np

from spinimpute.pipeline.labels.assign import BACKGROUND, assign_labels, predict_labels
from spinimpute.pipeline.labels.copying_weights import CopyingWeights
from spinimpute.pipeline.labels.types_table import Locus


def weights_of(weight_NN: np.ndarray) -> CopyingWeights:
    rows, columns = np.nonzero(weight_NN)
    first_N1 = np.searchsorted(rows, np.arange(len(weight_NN) + 1))
    return CopyingWeights(columns.astype(np.int32), weight_NN[rows, columns].astype(np.float32), first_N1)


def test_predictions_are_weighted_means() -> None:
    rng = np.random.default_rng(2)
    weight_NN = rng.random((9, 9)) * (rng.random((9, 9)) < 0.4)
    weight_NN[4] = 0  # resembles no other haplotype
    share_NK = rng.dirichlet(np.ones(3), 9)
    frequency_K = np.array([0.5, 0.3, 0.2])
    expected_NK = weight_NN @ share_NK + BACKGROUND * frequency_K
    expected_NK /= expected_NK.sum(axis=1, keepdims=True)
    found_NK = predict_labels(weights_of(weight_NN), share_NK, frequency_K)
    np.testing.assert_allclose(found_NK, expected_NK, atol=1e-6)
    np.testing.assert_allclose(found_NK[4], frequency_K, atol=1e-6)


def locus_of(pairs: list[tuple[int, int]], n_alleles: int) -> Locus:
    """A locus at which each sample has two alleles, numbered from 1; 0 is unknown."""
    allowed_MK = np.concatenate([np.ones((1, n_alleles), bool), np.eye(n_alleles, dtype=bool)])
    names = [str(k) for k in range(n_alleles)]
    return Locus("A", 1, names, allowed_MK, np.array(pairs))


def test_labels_follow_similar_haplotypes() -> None:
    """Ten samples with the haplotypes of two of three groups; a group has one label."""
    rng = np.random.default_rng(4)
    group_N = np.concatenate([rng.permutation(3)[:2] for _ in range(10)])
    sample_N = np.repeat(np.arange(10), 2)
    similar_NN = (group_N[:, None] == group_N) & (sample_N[:, None] != sample_N)
    weight_NN = np.where(similar_NN, 0.9, 0.1) * (sample_N[:, None] != sample_N)
    weight_NN /= weight_NN.sum(axis=1, keepdims=True)
    pairs = [tuple(sorted(group_N[2 * x : 2 * x + 2] + 1)) for x in range(10)]
    pairs[3] = (pairs[3][0], 0)
    pairs[7] = (0, 0)
    haplotype_X2 = np.arange(20).reshape(10, 2)
    for order in (1, -1):  # the order of a person's labels has no meaning
        locus = locus_of([pair[::order] for pair in pairs], 3)
        assigned = assign_labels(locus, weights_of(weight_NN), haplotype_X2)
        np.testing.assert_allclose(assigned.share_NK.sum(axis=1), 1, atol=1e-5)
        np.testing.assert_array_equal(assigned.label_N, group_N)


def test_haploid_samples_and_no_evidence() -> None:
    weights = weights_of(np.zeros((6, 6)))
    haplotype_X2 = np.array([[0, 0], [1, 2], [3, 3], [4, 5]])
    locus = locus_of([(1, 0), (1, 2), (0, 0), (0, 3)], 3)
    share_NK, label_N = assign_labels(locus, weights, haplotype_X2)
    np.testing.assert_allclose(share_NK[0], [1, 0, 0], atol=1e-6)
    np.testing.assert_allclose(share_NK[1:3], [[0.5, 0.5, 0]] * 2, atol=1e-6)
    # nothing says which order is right: each known label is on one haplotype
    np.testing.assert_array_equal(label_N[:3], [0, 0, 1])
    assert sorted(label_N[4:]) == [-1, 2]
