"""Coverage of sequenced samples, compared with numbers worked out by hand."""

import numpy as np
import pytest

from spinimpute.quality.coverage import Coverage
from spinimpute.sequencing.likelihoods import GenotypeLikelihoods


def likelihoods_where(
    known_SX: list[list[int]], depth_SX: list[list[int]] | None = None, counted: int = 0
) -> GenotypeLikelihoods:
    """Likelihoods where known_SX is 1, at a panel's first sites; reads were counted at `counted` of them."""
    known = np.array(known_SX, np.uint8)
    samples = [f"s{x}" for x in range(known.shape[1])]
    return GenotypeLikelihoods(
        samples,
        np.full(len(samples), 2, np.uint8),
        np.arange(len(known)),
        known[..., None] * np.array([0, 3, 30], np.uint8),
        None if depth_SX is None else np.array(depth_SX, np.uint16),
        len(known),
        {},
        np.arange(counted),
    )


def test_without_counted_reads():
    coverage = Coverage()
    coverage.add(likelihoods_where([[1, 0], [1, 1], [0, 0]]), 4)
    coverage.add(likelihoods_where([[1, 0]]), 1)
    assert coverage.samples == ["s0", "s1"]
    assert coverage.known_sites == 3
    np.testing.assert_allclose(coverage.unknown_X, [2 / 5, 4 / 5])
    assert coverage.reads is None
    assert coverage.by_sample()[1] == {
        "sample": "s1", "depth": None, "without_reads": None, "expected": None, "unknown": 0.8, "note": "",
    }  # fmt: skip
    assert coverage.lines() == [
        "coverage: s0: no data at 40.0% of the sites",
        "coverage: s1: no data at 80.0% of the sites",
    ]


def test_reads_in_two_intervals():
    """Reads are counted at four of five sites, then at two of two; an array's call has no reads."""
    coverage = Coverage()
    coverage.add(likelihoods_where([[1, 1], [1, 0], [1, 1]], [[2, 4], [2, 0], [0, 0]], counted=4), 5)
    coverage.add(likelihoods_where([[0, 1]], [[0, 2]], counted=2), 2)
    reads = coverage.reads
    assert reads is not None
    np.testing.assert_allclose(reads.depth_X, [4 / 6, 6 / 6])
    np.testing.assert_allclose(reads.no_reads_X, [4 / 6, 4 / 6])
    np.testing.assert_allclose(reads.expected_no_reads_X, [(4 * np.exp(-1) + 2) / 6, np.exp(-1)])
    np.testing.assert_allclose(coverage.unknown_X, [4 / 7, 4 / 7])
    assert coverage.lines()[0] == (
        "coverage: s0: 0.67 reads per site, none at 66.7% (expected by chance: 57.9%); "
        "no data at 57.1% of the sites"
    )


def test_an_interval_without_counted_reads():
    coverage = Coverage()
    coverage.add(likelihoods_where([[1, 1]]), 10)
    coverage.add(likelihoods_where([[1, 1]], [[3, 1]], counted=1), 1)
    assert coverage.reads is not None
    assert coverage.reads.depth_X.tolist() == [3, 1]


@pytest.mark.parametrize("counted", [0, 8])
def test_samples_far_below_the_others(counted):
    """Samples are compared by reads, or by sites with data where reads were not counted."""
    known_SX = np.arange(8)[:, None] < np.array([8, 2, 0, 7, 8, 3])
    coverages = []
    for n_known in (2, 1):
        known_SX[n_known:, 1] = False
        depth = known_SX.tolist() if counted else None
        coverages.append(Coverage())
        coverages[-1].add(likelihoods_where(known_SX.tolist(), depth, counted), 8)
    before, coverage = coverages
    assert [row["note"] for row in before.by_sample()] == ["", "", "low", "", "", ""]
    assert coverage.low_X.tolist() == [False, True, True, False, False, False]
    nothing, little = coverage.warnings()
    assert nothing.startswith("1 of 6 samples (s2) have no data: ")
    measure = "reads" if counted else "sites with data"
    assert little == f"1 of 6 samples (s1) have less than a third of the median number of {measure}"


def test_one_sample_is_not_below_others_and_many_are_not_listed():
    alone = Coverage()
    alone.add(likelihoods_where([[1], [0], [0], [0], [0]]), 50)
    assert alone.warnings() == []
    many = Coverage()
    many.add(likelihoods_where([[1] * 8 + [0] * 4, [1] * 12, [1] * 12], [[3] * 12, [0] * 12, [2] * 12], 3), 3)
    assert many.lines() == [
        "no data:  0.0% to 33.3%, median 0.0% of a sample's sites",
        "depth:    1.67 to 1.67, median 1.67 reads per site",
        "no reads: 33.3% to 33.3%, median 33.3% of the sites; "
        "expected by chance: 18.9% to 18.9%, median 18.9%",
    ]
    none = Coverage()
    none.add(likelihoods_where([[1] * 8 + [0] * 4]), 1)
    assert "4 of 12 samples (s8, s9, s10, ...)" in none.warnings()[0]
