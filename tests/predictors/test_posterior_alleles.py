"""Alleles pooled by posteriors alone, and mixed with the network's predictions in large panels."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import spinimpute
from spinimpute.genotypes.genetic_map import GeneticMap
from spinimpute.panels.stored_rows import RowLayout, store_rows
from spinimpute.predictors.engine import ImputationJob
from spinimpute.predictors.haplotype_attention import copying, rare_alleles
from spinimpute.predictors.haplotype_attention import posterior_alleles as mixing
from spinimpute.predictors.haplotype_attention.posterior_alleles import (
    mix,
    posterior_alleles,
    posterior_weight,
)
from spinimpute.predictors.loading import predictor_for


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 10_000), st.integers(1, 90), st.integers(1, 4))
def test_posteriors_of_carriers_are_summed(seed: int, n_sites: int, n_gaps: int) -> None:
    rng = np.random.default_rng(seed)
    n, n_queries, before = 24, 3, int(rng.integers(0, 3))  # gaps of the chunk before the block
    ends = np.sort(rng.integers(0, n_sites + 1, n_gaps + before - 1))
    start_G1 = np.concatenate([[0], ends, [n_sites]])
    alleles_UN = (rng.random((n_sites, n)) < rng.random((n_sites, 1))).astype(np.uint8)
    stored = np.frombuffer(store_rows(np.packbits(alleles_UN, axis=1), n), np.uint8)
    rows = RowLayout.of(alleles_UN.sum(axis=1), n).rows(stored, 0, n_sites)
    count_U = alleles_UN.sum(axis=1)
    patterns = copying.gap_patterns(rows, start_G1, np.arange(n), np.minimum(count_U, n - count_U))
    count_Q = rng.integers(0, n, n_queries)
    first_Q1 = np.concatenate([[0], np.cumsum(count_Q)])
    haplotype_C = np.concatenate([np.sort(rng.choice(n, k, replace=False)) for k in count_Q]).astype(np.int32)
    posterior_CP = rng.random((len(haplotype_C), n_gaps + 1)).astype(np.float32)
    first = int(start_G1[before])
    t_U = rng.random(n_sites - first).astype(np.float32)
    found_UQ = posterior_alleles(
        posterior_CP, haplotype_C, first_Q1, patterns, before, start_G1[before:] - first, t_U
    )
    minor_UN = alleles_UN ^ (alleles_UN.sum(axis=1) > n // 2)[:, None]
    for q in range(n_queries):
        mine = slice(first_Q1[q], first_Q1[q + 1])
        share_CP = posterior_CP[mine]
        share_CP = share_CP / share_CP.sum(axis=0) if count_Q[q] else share_CP
        for g in range(n_gaps):
            for u in range(start_G1[before + g], start_G1[before + g + 1]):
                ends_2 = minor_UN[u, haplotype_C[mine]] @ share_CP[:, g : g + 2]
                t = t_U[u - first]
                assert found_UQ[u - first, q] == pytest.approx((1 - t) * ends_2[0] + t * ends_2[1], abs=1e-5)


def test_posteriors_weigh_more_in_large_panels() -> None:
    weights = [posterior_weight(n) for n in (2, 600, 4_508, mixing.SMALL, 11_000, mixing.LARGE, 10**6)]
    assert weights[:4] == [mixing.SMALLEST_WEIGHT] * 4
    assert mixing.SMALLEST_WEIGHT < weights[4] < weights[5] == weights[6] == mixing.LARGEST_WEIGHT


def test_alleles_of_one_carrier_are_left_to_the_network() -> None:
    p_UQ = np.full((4, 2), 0.5, np.float32)
    minor_UQ = np.array([[0.1, 0.3]] * 4, np.float32)
    mix(p_UQ, minor_UQ, np.array([False, True, False, True]), np.array([1, 1, 2, 2]), np.float32([0.25, 0]))
    # ALT is the major allele of the last one; of the second query there are no candidates
    expected = [[0.5, 0.5], [0.5, 0.5], [0.4, 0.5], [0.6, 0.5]]
    np.testing.assert_allclose(p_UQ, expected, atol=1e-6)


@pytest.fixture
def panel(mosaic: Callable[..., np.ndarray], tmp_path: Path) -> spinimpute.Panel:
    alleles_XN = mosaic(np.random.default_rng(3), 600, 80, founders=12, errors=0.01)
    lines = ["##fileformat=VCFv4.2", "##contig=<ID=1>"]
    lines.append(
        "#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\tFORMAT\t" + "\t".join(f"p{i}" for i in range(40))
    )
    for i, row in enumerate(alleles_XN):
        calls = "\t".join(f"{a}|{b}" for a, b in zip(row[::2], row[1::2], strict=True))
        lines.append(f"1\t{1_000 + 400 * i}\t.\tA\tC\t.\t.\t.\tGT\t{calls}")
    (tmp_path / "p.vcf").write_text("\n".join(lines) + "\n")
    return spinimpute.build_panel(tmp_path / "p.vcf", tmp_path / "p.spin", GeneticMap.constant())


def test_predictions_lie_between_network_and_posteriors(
    panel: spinimpute.Panel, monkeypatch: pytest.MonkeyPatch
) -> None:
    typed_index = np.arange(0, panel.n_sites, 5)
    typed_TQ = panel.alleles(0, panel.n_sites)[typed_index, :8].astype(np.int8)

    def predicted(weight: float) -> np.ndarray:
        monkeypatch.setattr(mixing, "SMALLEST_WEIGHT", weight)
        predictor, options = predictor_for(panel, None)
        with predictor.engine(ImputationJob(panel, typed_index, 1, 8, options)) as engine:
            windows = engine.windows(0, panel.n_sites)
            return np.concatenate([p.copy() for p in engine.predict_windows(windows, typed_TQ)])

    monkeypatch.setattr(rare_alleles, "TRAINED_RATIOS", ())  # odds are left as they are
    network_UQ, half_UQ, posterior_UQ = (predicted(weight) for weight in (0.0, 0.5, 1.0))
    np.testing.assert_allclose(half_UQ, (network_UQ + posterior_UQ) / 2, atol=1e-6)
    count_U = panel.allele_count.astype(int)
    single_U = np.minimum(count_U, 80 - count_U) < 2
    assert single_U.any()
    np.testing.assert_array_equal(posterior_UQ[single_U], network_UQ[single_U])
    changed_U = abs(posterior_UQ - network_UQ).max(axis=1) > 1e-3
    assert changed_U[~single_U].mean() > 0.2
    # Posteriors know the alleles, too: the queries themselves are in the panel.
    truth_UQ = panel.alleles(0, panel.n_sites)[:, :8]
    assert abs(posterior_UQ - truth_UQ)[~single_U].mean() < 0.05
