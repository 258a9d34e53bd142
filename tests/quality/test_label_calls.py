"""The table of labels: pairs compared with all ordered pairs, resolutions, haploid samples."""

import csv
import itertools
from pathlib import Path

import numpy as np
import pytest

from spinimpute.quality import label_calls
from spinimpute.quality.label_calls import COLUMNS, LabelCalls, pairs_of_labels


def brute_force(p_K: np.ndarray, q_K: np.ndarray) -> tuple[tuple[int, int], float]:
    total: dict[tuple[int, int], float] = {}
    for a, b in itertools.product(range(len(p_K)), repeat=2):
        pair = (min(a, b), max(a, b))
        total[pair] = total.get(pair, 0.0) + p_K[a] * q_K[b]
    return max(total.items(), key=lambda item: item[1])


@pytest.mark.parametrize("batch", [1, 4_000_000])
def test_pairs_are_those_of_brute_force(batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(label_calls, "_BATCH_VALUES", batch)
    rng = np.random.default_rng(5)
    ploidy = rng.integers(1, 3, 30)
    p_KQ = rng.dirichlet(np.full(6, 0.4), int(ploidy.sum())).T
    pairs = pairs_of_labels(p_KQ, ploidy)
    first_X = np.cumsum(ploidy) - ploidy
    for x, first in enumerate(first_X.tolist()):
        if ploidy[x] == 1:
            assert pairs.label_X2[x].tolist() == [p_KQ[:, first].argmax(), -1]
            assert pairs.probability_X[x] == pytest.approx(p_KQ[:, first].max())
            continue
        pair, probability = brute_force(p_KQ[:, first], p_KQ[:, first + 1])
        assert tuple(pairs.label_X2[x].tolist()) == pair
        assert pairs.probability_X[x] == pytest.approx(probability)
        for label, carrier in zip(pair, pairs.carrier_X2[x], strict=True):
            assert carrier == pytest.approx(1 - np.prod(1 - p_KQ[label, first : first + 2]))


def test_resolutions(tmp_path: Path) -> None:
    p_KQ = np.array([[0.3, 0.1, 0.2], [0.3, 0.1, 0.7], [0.4, 0.8, 0.1]])
    calls = LabelCalls(["a", "b"])
    calls.add("HLA-A", ["01:01", "01:02", "02"], p_KQ, np.array([2, 1]))
    calls.write(tmp_path / "labels.tsv")
    with (tmp_path / "labels.tsv").open() as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    assert tuple(rows[0]) == COLUMNS
    assert [tuple(row.values()) for row in rows] == [
        ("a", "HLA-A", "2", "02", "02", "0.3200", "0.8800", "0.8800"),
        ("b", "HLA-A", "2", "01:02", "", "0.7000", "0.7000", ""),
        ("a", "HLA-A", "1", "01", "02", "0.5600", "0.6800", "0.8800"),
        ("b", "HLA-A", "1", "01", "", "0.9000", "0.9000", ""),
    ]
