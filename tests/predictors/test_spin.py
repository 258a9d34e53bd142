"""SPIN on blocks: relations that hold for any weights, and inducing points that carry the panel."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import spinimpute
from spinimpute.genotypes.sites import match_sites
from spinimpute.panels import panel_blocks
from spinimpute.panels.panel_blocks import BlockPlan, BlockPredictor, BlockReader, PanelBlock
from spinimpute.predictors.spin import torch_blocks
from spinimpute.predictors.spin.predictor import SPINPredictor
from spinimpute.quality.metrics import minor_allele_dosage, pooled_r2, site_statistics
from spinimpute.training.simulation import Segment
from spinimpute.vcf.reader import read_haplotypes
from tests.array_panel import ArrayPanel
from tests.conftest import spin_predictor

pytestmark = pytest.mark.slow

PREDICTORS = ["random_predictor", "random_predictor_of_3mers"]


def reader_of(predictor: BlockPredictor, panel: ArrayPanel, typed: np.ndarray) -> BlockReader:
    return BlockReader(panel, typed, predictor.shape, 0, len(typed), 0, panel.n_sites)


def impute(
    predictor: BlockPredictor,
    panel: ArrayPanel,
    typed: np.ndarray,
    query_QT: np.ndarray,
    known_QT: np.ndarray,
) -> np.ndarray:
    out = np.full((panel.n_sites, len(query_QT)), np.nan, dtype=np.float32)
    for block in reader_of(predictor, panel, typed):
        out[block.sites.panel_index_U] = predict(predictor, block, query_QT, known_QT)
    return out


def predict(
    predictor: BlockPredictor, block: PanelBlock, query_QT: np.ndarray, known_QT: np.ndarray
) -> np.ndarray:
    fill = block.places.fill
    return predictor.predict(predictor.encode(block), fill(query_QT.T), fill(known_QT.T))


@pytest.fixture
def panel(segment: Segment) -> ArrayPanel:
    return ArrayPanel(segment.alleles(0, 300)[:, :80], segment.cM[:300])


@pytest.fixture
def typed(panel: ArrayPanel) -> np.ndarray:
    return np.flatnonzero(np.minimum(panel.frequency, 1 - panel.frequency) > 0.05)[::2]


@pytest.fixture
def query_QT(segment: Segment, typed: np.ndarray) -> np.ndarray:
    return segment.alleles(0, 300)[typed, 80:90].T.copy()


@pytest.fixture(params=PREDICTORS)
def predictor(request: pytest.FixtureRequest) -> BlockPredictor:
    chosen: BlockPredictor = request.getfixturevalue(request.param)
    return chosen


def test_alleles_of_missing_calls_have_no_effect(
    predictor: BlockPredictor, panel: ArrayPanel, typed: np.ndarray, query_QT: np.ndarray
) -> None:
    known = (np.random.default_rng(1).random(query_QT.shape) < 0.7).astype(np.uint8)
    shown = impute(predictor, panel, typed, query_QT, known)
    flipped = impute(predictor, panel, typed, np.where(known > 0, query_QT, 1 - query_QT), known)
    np.testing.assert_array_equal(flipped, shown)
    assert not np.allclose(impute(predictor, panel, typed, query_QT, np.ones_like(known)), shown)


def test_labels_of_the_context_reach_the_inducing_points(
    predictor: BlockPredictor, panel: ArrayPanel, typed: np.ndarray
) -> None:
    other = panel.alleles_XN.copy()
    rng = np.random.default_rng(2)
    for site in np.setdiff1d(np.arange(panel.n_sites), typed):  # the same frequency, other carriers
        other[site] = rng.permutation(other[site])
    panels = panel, ArrayPanel(other, panel.cM)
    points = [predictor.encode(reader_of(predictor, source, typed).read(3)).points for source in panels]
    change = max(float(np.abs(points[1][name] - value).max()) for name, value in points[0].items())
    assert change > 1e-3


def test_a_block_has_the_same_points_whichever_sites_are_imputed(
    random_predictor: SPINPredictor, panel: ArrayPanel, typed: np.ndarray
) -> None:
    whole = reader_of(random_predictor, panel, typed).read(2)
    first, last = whole.sites.panel_index_U[[3, -3]].tolist()
    part = BlockReader(panel, typed, random_predictor.shape, 0, len(typed), first, last).read(2)
    assert len(part.sites.gap_U) < len(whole.sites.gap_U)
    expected, found = (random_predictor.encode(block).points for block in (whole, part))
    inside = np.isin(whole.sites.panel_index_U, part.sites.panel_index_U)
    expected["label_BHU"] = expected["label_BHU"][:, inside]
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


def test_blocks_without_untyped_sites_and_with_more_than_are_compared(
    random_predictor: SPINPredictor, panel: ArrayPanel, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything = np.arange(panel.n_sites)
    block = BlockReader(panel, everything, random_predictor.shape, 0, panel.n_sites, 0, panel.n_sites).read(4)
    assert block.compared_NC.shape == (panel.n_haplotypes, 0)
    assert random_predictor.encode(block).points["mass_BH"].sum() == pytest.approx(panel.n_haplotypes)
    few = np.array([100, 120, 200])
    monkeypatch.setattr(panel_blocks, "MAX_COMPARED", 20)
    monkeypatch.setattr(panel_blocks, "FAR_SITES", 30)
    block = BlockReader(panel, few, random_predictor.shape, 0, 3, 0, panel.n_sites).read(0)
    assert len(block.sites.gap_U) == panel.n_sites
    assert block.compared_NC.shape == (panel.n_haplotypes, 20)
    compared = BlockPlan(random_predictor.shape, few, panel.cM, panel.frequency).compared(0)
    assert compared.min() >= 70
    assert compared.max() <= 230
    assert not np.isin(few, compared).any()


def test_carriers_of_an_allele_come_together(
    random_predictor: SPINPredictor, panel: ArrayPanel, typed: np.ndarray
) -> None:
    """Compare with points that compete by typed alleles alone."""
    predictor = spin_predictor(random_predictor.model, "", 4)

    def impurity(reader: BlockReader, compared: bool) -> float:
        """Share of non-carriers among haplotypes that share a point with a carrier."""
        together, carriers = 0.0, 0.0
        for block in reader:
            weight_C = block.compared_frequency_C * compared  # 0: all alleles are the same, as in padding
            points = predictor.encode(replace(block, compared_frequency_C=weight_C)).points
            carriers_HU = points["mass_BH"][:, None] * points["label_BHU"]
            together += float((carriers_HU * points["label_BHU"]).sum())
            carriers += float(carriers_HU.sum())
        return 1 - together / carriers

    reader = reader_of(predictor, panel, typed)
    assert impurity(reader, compared=True) < 0.95 * impurity(reader, compared=False)


def test_batches_change_nothing(
    random_predictor: SPINPredictor,
    panel: ArrayPanel,
    typed: np.ndarray,
    query_QT: np.ndarray,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    block = reader_of(random_predictor, panel, typed).read(2)
    whole = predict(random_predictor, block, query_QT, np.ones_like(query_QT))
    for size in (1, 7):
        monkeypatch.setattr(torch_blocks, "BATCH_ENTRIES", 40 * size)
        for name in ("LABELS_PER_BATCH", "QUERIES_PER_BATCH", "SITES_PER_BATCH"):
            monkeypatch.setattr(torch_blocks, name, size)
        parts = predict(random_predictor, block, query_QT, np.ones_like(query_QT))
        np.testing.assert_allclose(parts, whole, atol=5e-4)


def test_extreme_panels_give_probabilities(predictor: BlockPredictor, rng: np.random.Generator) -> None:
    cM = np.repeat(np.linspace(0, 0.1, 20), 2)  # positions that share a place
    for alleles in (
        rng.integers(0, 2, (40, 2), dtype=np.uint8),
        np.zeros((40, 10), dtype=np.uint8),
        np.ones((40, 10), dtype=np.uint8),
        np.repeat(rng.integers(0, 2, (40, 1), dtype=np.uint8), 30, axis=1),
    ):
        for typed in (np.array([17]), np.array([0, 39]), np.arange(40)):
            query = rng.integers(0, 2, (3, len(typed)), dtype=np.uint8)
            p = impute(predictor, ArrayPanel(alleles, cM), typed, query, np.ones_like(query))
            assert np.isfinite(p).all()
            assert ((p >= 0) & (p <= 1)).all()
            constant = np.isin(alleles.mean(1), (0, 1))
            np.testing.assert_array_equal(p[constant], np.repeat(alleles.mean(1)[constant, None], 3, axis=1))


def test_inducing_points_share_out_the_panel(
    random_predictor: SPINPredictor, panel: ArrayPanel, typed: np.ndarray
) -> None:
    block = reader_of(random_predictor, panel, typed).read(2)
    points = random_predictor.encode(block).points
    mass_H = points["mass_BH"]
    assert float(mass_H.sum()) == pytest.approx(panel.n_haplotypes, rel=1e-5)
    # the inducing points, weighted by mass, average to the panel
    mean_U = (mass_H[:, None] * points["label_BHU"]).sum(0) / mass_H.sum()
    np.testing.assert_allclose(mean_U, block.sites.frequency_U, atol=1e-5)


def r2_of_example(example: Path, panel: spinimpute.Panel, shuffle: bool) -> tuple[float, float]:
    """Pooled r2 of the shipped model and of the panel's frequencies at untyped sites of the example."""
    target = read_haplotypes(example / "target.vcf.gz")
    truth = read_haplotypes(example / "truth.vcf.gz")
    typed = match_sites(panel.sites, target.sites).panel_index
    at_truth = match_sites(panel.sites, truth.sites)
    alleles = panel.alleles(0, panel.n_sites)
    if shuffle:
        rng = np.random.default_rng(3)
        for site in np.setdiff1d(np.arange(panel.n_sites), typed):
            alleles[site] = rng.permutation(alleles[site])
    predictor = spinimpute.load_predictor(name="spin")
    source = ArrayPanel(alleles, panel.cM)
    query = target.alleles[match_sites(panel.sites, target.sites).target_index].T.astype(np.uint8)
    p = impute(predictor, source, typed, query, np.ones_like(query))
    scored = np.setdiff1d(at_truth.panel_index, typed)
    rows = np.searchsorted(at_truth.panel_index, scored)
    true = truth.alleles[at_truth.target_index][rows]
    frequency = panel.frequency[scored]
    counts, _ = minor_allele_dosage((true[:, ::2] + true[:, 1::2]).astype(np.float32), frequency)
    results = []
    for dosage in (p[scored, ::2] + p[scored, 1::2], np.repeat(2 * frequency[:, None], 20, axis=1)):
        turned, _ = minor_allele_dosage(dosage.astype(np.float32), frequency)
        results.append(pooled_r2(site_statistics(counts, turned)))
    return results[0], results[1]


def test_shuffling_the_panels_labels_destroys_the_accuracy(
    example: Path, example_panel: spinimpute.Panel
) -> None:
    intact, frequencies = r2_of_example(example, example_panel, shuffle=False)
    shuffled, _ = r2_of_example(example, example_panel, shuffle=True)
    assert intact > 0.9 > 2 * frequencies
    assert shuffled < frequencies + 0.05
