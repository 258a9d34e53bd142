"""Sites whose alleles contradict the haplotypes around them."""

from __future__ import annotations

import gzip
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import cyvcf2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import spinimpute
from spinimpute.genotypes.intervals import Interval
from spinimpute.panels import build
from spinimpute.panels.panel import Panel
from spinimpute.panels.trust.site_trust import DISCORDANCE_UNITS, NEAR, distance_to_typed, trust
from spinimpute.panels.writer import rewrite_panel
from spinimpute.pipeline.maps.build import refine_panel
from spinimpute.pipeline.trust import discordance, doubts
from spinimpute.pipeline.trust.discordance import MIN_COPIES, MIN_FREQUENCY, PRIOR, find_discordance
from spinimpute.predictors.interface import ImputationJob
from spinimpute.predictors.loading import predictor_for
from tests.array_panel import ArrayPanel


class Haplotypes(ArrayPanel):
    """All that `find_discordance` reads of a panel."""

    def __init__(self, position: np.ndarray, alleles_XN: np.ndarray, haplotype_sample: np.ndarray) -> None:
        super().__init__(alleles_XN, position / 1e6)
        self.position, self.haplotype_sample = position, haplotype_sample


def discordance_of(position: np.ndarray, alleles_XN: np.ndarray, ploidy: int = 1) -> np.ndarray:
    sample_N = np.arange(alleles_XN.shape[1]) // ploidy
    found: np.ndarray = find_discordance(Haplotypes(position, alleles_XN, sample_N)) / DISCORDANCE_UNITS  # type: ignore[arg-type]
    return found


def info_of(path: Path) -> str:
    """What `panel info` prints."""
    command = [sys.executable, "-m", "spinimpute", "panel", "info", str(path)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def nearest_by_hand(position: np.ndarray, alleles_TN: np.ndarray, t: int, sites: list[int]) -> list[set[int]]:
    """The alleles at t of all haplotypes with the longest match; sites: from the nearest one on."""
    n = alleles_TN.shape[1]
    found = []
    for i in range(n):
        lengths = {}
        for j in set(range(n)) - {i}:
            length = 0
            while length < len(sites) and alleles_TN[sites[length], i] == alleles_TN[sites[length], j]:
                length += 1
            lengths[j] = length
        longest = max(lengths.values(), default=0)
        found.append({int(alleles_TN[t, j]) for j, length in lengths.items() if length == longest > 0})
    return found


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10_000), st.integers(10, 20), st.integers(3, 25))
def test_as_found_by_comparing_all_pairs(seed, n, n_sites):
    """Where several haplotypes match as long, either of them may be taken: bounds hold."""
    rng = np.random.default_rng(seed)
    founders = rng.integers(0, 2, (n_sites, 3))
    alleles_TN = founders[np.arange(n_sites)[:, None], rng.integers(0, 3, n)[None]].astype(np.uint8)
    alleles_TN ^= (rng.random(alleles_TN.shape) < 0.1).astype(np.uint8)
    count_T = alleles_TN.sum(axis=1)
    alleles_TN = alleles_TN[np.minimum(count_T, n - count_T) >= MIN_COPIES]
    position = np.cumsum(rng.integers(1, 300, len(alleles_TN)))
    for t, found in enumerate(discordance_of(position, alleles_TN) if len(position) else []):
        left = [s for s in range(t, -1, -1) if position[s] <= position[t] - NEAR]
        right = [s for s in range(t, len(position)) if position[s] >= position[t] + NEAR]
        sides = [nearest_by_hand(position, alleles_TN, t, sites) for sites in (left, right)]
        possible = differ = 0
        for i, (one, other) in enumerate(zip(*sides, strict=True)):
            own = int(alleles_TN[t, i])
            possible += bool(one - {own} and other - {own})
            differ += one == other == {1 - own}
        assert found <= (possible + 0.51 * PRIOR / DISCORDANCE_UNITS) / PRIOR
        assert found >= differ / (n / 2 + PRIOR) - 0.51 / DISCORDANCE_UNITS
        if possible == 0:
            assert found == 0


@dataclass(frozen=True)
class Spoiled:
    """The example panel; at three pairs of neighbouring sites alleles are dealt out anew, alike at both."""

    path: Path
    sites: np.ndarray
    clean: spinimpute.Panel
    found: np.ndarray  # discordance before it is judged

    @property
    def others(self) -> np.ndarray:
        """Common sites that were left as they are."""
        return np.setdiff1d(np.flatnonzero(abs(self.clean.frequency - 0.5) < 0.4), self.sites)


@pytest.fixture(scope="module")
def spoiled(example, example_panel, tmp_path_factory) -> Spoiled:
    close = np.flatnonzero(np.diff(example_panel.position) < NEAR // 2)
    first = close[abs(example_panel.frequency[close] - 0.5) < 0.2]
    first = first[np.linspace(20, len(first) - 20, 3).astype(int)]
    n = example_panel.n_haplotypes
    rng = np.random.default_rng(1)
    lines = gzip.decompress((example / "panel.vcf.gz").read_bytes()).decode().splitlines()
    head = sum(line[0] == "#" for line in lines)
    for site in first:
        allele_N = rng.permutation(example_panel.alleles(site, site + 1)[0])
        calls = "\t".join(f"{a}|{b}" for a, b in allele_N.reshape(n // 2, 2))
        for row in (head + site, head + site + 1):
            lines[row] = "\t".join([*lines[row].split("\t")[:8], "GT", calls])
    folder = tmp_path_factory.mktemp("spoiled")
    (folder / "panel.vcf").write_text("\n".join(lines) + "\n")
    path = folder / "panel.spin"
    spinimpute.build_panel(folder / "panel.vcf", path, example / "genetic.map").close()
    with Panel.open(path) as panel:
        found = find_discordance(panel) / DISCORDANCE_UNITS
    return Spoiled(path, np.concatenate([first, first + 1]), example_panel, found)


def test_sites_that_contradict_their_surroundings_are_found(spoiled):
    assert (spoiled.found[spoiled.sites] > 0.5).all()
    assert (trust(spoiled.found[spoiled.sites]) < 0.5).all()
    assert np.median(spoiled.found[spoiled.others]) == 0
    # what was spoiled changes little around
    before_U = find_discordance(spoiled.clean)[spoiled.others] / DISCORDANCE_UNITS
    assert abs(spoiled.found[spoiled.others] - before_U).max() < 0.2
    with Panel.open(spoiled.path) as panel:
        rare = np.minimum(panel.frequency, 1 - panel.frequency) < MIN_FREQUENCY
    assert rare.any()
    assert not spoiled.found[rare].any()


def test_people_left_out_confirm_sites_that_are_predicted_badly(spoiled, tmp_path):
    """Alleles that were dealt out anew are confirmed; most others that look discordant by chance are not."""
    with Panel.open(spoiled.path) as panel:
        np.testing.assert_array_equal(panel.doubts.discordance, np.rint(spoiled.found * DISCORDANCE_UNITS))
        confirmed = panel.doubts.confirmed
        assert confirmed[spoiled.sites].all()
        suspicious = (trust(spoiled.found) < doubts.SUSPICIOUS) & (abs(panel.frequency - 0.5) < 0.45)
        suspicious[spoiled.sites] = False
        assert confirmed.sum() - len(spoiled.sites) <= suspicious.sum() / 2
        assert (panel.prediction_trust[~confirmed] == 1).all()
        np.testing.assert_array_equal(panel.prediction_trust[confirmed], panel.trust[confirmed])
        for found, known in zip(doubts.find_doubts(panel, tmp_path, 2), panel.doubts, strict=True):
            np.testing.assert_array_equal(found, known)


def predict_and_impute(panel: Panel, typed_index: np.ndarray, typed_TQ: np.ndarray) -> tuple[np.ndarray, ...]:
    """P(ALT) at all sites without and with regard to their trust."""
    predictor, options = predictor_for(panel, None)
    with predictor.engine(ImputationJob(panel, typed_index, 1, typed_TQ.shape[1], options)) as engine:
        windows = engine.windows(Interval(0, panel.n_sites))
        predicted_UQ = np.concatenate([p.copy() for p in engine.predict_windows(windows, typed_TQ)])
        return predicted_UQ, np.concatenate(list(engine.impute_windows(windows, typed_TQ)))


def test_a_typed_site_of_the_same_artefact_predicts_well(spoiled):
    """Both sites of a spoiled pair have the same alleles: if one is typed, the other is predicted well."""
    with Panel.open(spoiled.path) as panel:
        first, second = spoiled.sites[0], spoiled.sites[len(spoiled.sites) // 2]
        assert second == first + 1
        for near in (True, False):
            typed_index = np.union1d(np.arange(0, panel.n_sites, 40), spoiled.sites[:near])
            typed_index = np.setdiff1d(typed_index, [second] if near else [first, second])
            typed_TQ = panel.alleles(0, panel.n_sites)[typed_index, :40].astype(np.int8)
            predicted_UQ, imputed_UQ = predict_and_impute(panel, typed_index, typed_TQ)
            assert np.array_equal(imputed_UQ[second], predicted_UQ[second]) == near


def test_a_missing_call_nearby_predicts_nothing(spoiled):
    """Queries whose call at the typed site is missing are treated as if it was not typed."""
    with Panel.open(spoiled.path) as panel:
        first, second = spoiled.sites[0], spoiled.sites[len(spoiled.sites) // 2]
        typed_index = np.setdiff1d(np.union1d(np.arange(0, panel.n_sites, 40), [first]), [second])
        typed_TQ = panel.alleles(0, panel.n_sites)[typed_index, :40].astype(np.int8)
        typed_TQ[typed_index == first, ::2] = -1
        predicted_UQ, imputed_UQ = predict_and_impute(panel, typed_index, typed_TQ)
        frequency, kept = panel.frequency[second], panel.prediction_trust[second]
        expected_Q = predicted_UQ[second].copy()
        expected_Q[::2] = frequency + kept * (expected_Q[::2] - frequency)
        np.testing.assert_allclose(imputed_UQ[second], expected_Q, atol=1e-6)
        assert abs(imputed_UQ[second] - predicted_UQ[second]).max() > 0.05


def test_too_few_people_judge_nothing(spoiled, tmp_path, monkeypatch):
    with Panel.open(spoiled.path) as panel:
        monkeypatch.setattr(doubts, "MIN_HELD_OUT", panel.n_samples)
        assert not doubts.find_doubts(panel, tmp_path, 1).confirmed.any()


def test_places_do_not_matter(mosaic):
    """A site whose alleles are dealt out anew is found near both ends and in the middle."""
    rng = np.random.default_rng(3)
    clean_XN = mosaic(rng, 600, 400, founders=40, errors=0)
    for site in (8, 50, 300, -50, -8):
        alleles_XN = clean_XN.copy()
        alleles_XN[site] = rng.permutation(alleles_XN[site])
        found = discordance_of(np.arange(600) * 150 + 1, alleles_XN)
        assert found[site] > 0.5, site
        assert np.median(found) < 0.05


def test_order_of_samples_and_haplotypes_does_not_matter(mosaic):
    rng = np.random.default_rng(5)
    alleles_XN = mosaic(rng, 500, 300, founders=40, errors=0.002)
    position = np.arange(500) * 150 + 1
    order = np.concatenate(
        [[2 * x + 1, 2 * x] if x % 3 else [2 * x, 2 * x + 1] for x in rng.permutation(150)]
    )
    for most in (2_000, 100):
        with mock.patch.object(discordance, "MAX_HAPLOTYPES", most):
            found, shuffled = (discordance_of(position, x, 2) for x in (alleles_XN, alleles_XN[:, order]))
        np.testing.assert_array_equal(found, shuffled)


def test_long_panels_are_computed_by_parts(monkeypatch, spoiled):
    """Beyond some common sites nothing is seen of a site; that changes little."""
    monkeypatch.setattr(discordance, "_BLOCK", 300)
    monkeypatch.setattr(discordance, "_FLANK", 200)
    with Panel.open(spoiled.path) as panel:
        found = find_discordance(panel) / DISCORDANCE_UNITS
        assert abs(found - spoiled.found).max() < 0.2
        assert (found[spoiled.sites] > 0.5).all()


def test_many_haplotypes_are_thinned(monkeypatch, spoiled):
    with Panel.open(spoiled.path) as panel:
        monkeypatch.setattr(discordance, "MAX_HAPLOTYPES", panel.n_haplotypes // 2)
        found = find_discordance(panel) / DISCORDANCE_UNITS
        assert (found[spoiled.sites] > 0.4).all()
        assert np.median(found[spoiled.others]) == 0
        assert (found != spoiled.found).any()


def test_alleles_of_few_copies_say_nothing(mosaic):
    alleles_XN = mosaic(np.random.default_rng(4), 60, 20, founders=5, errors=0)
    alleles_XN[30] = np.arange(20) < 4
    assert discordance_of(np.arange(60) * 1_000 + 1, alleles_XN)[30] == 0


def test_info_counts_the_discordant_sites(spoiled):
    assert re.search(r"poorly predictable +[1-9]", info_of(spoiled.path))


def test_trust():
    assert trust(np.array([0.0, 1.0, 1.2])).tolist() == [1, 0, 0]
    falling = trust(np.linspace(0, 1, 50))
    assert (np.diff(falling) <= 0).all()
    assert falling.dtype == np.float32


def test_predictions_are_drawn_towards_frequencies(spoiled, example, tmp_path):
    """Dosages are what the predictor says, weighed by trust; R2 shows that these sites are no good."""
    out = tmp_path / "imputed.vcf.gz"
    spinimpute.impute(example / "target.vcf.gz", out, spoiled.path)
    with Panel.open(spoiled.path) as panel:
        r2 = {
            (record.POS, record.ALT[0]): record.INFO["R2"]
            for record in cyvcf2.VCF(str(out))
            if not record.INFO.get("TYPED")
        }
        typed_position = np.array([record.POS for record in cyvcf2.VCF(str(out)) if record.INFO.get("TYPED")])
        far = distance_to_typed(panel.position[spoiled.sites], typed_position) > NEAR
        sites = [(int(panel.position[site]), panel.sites.alt[site]) for site in spoiled.sites[far]]
        assert len(sites) >= 2
        assert max(r2[site] for site in sites) < 0.25
        typed_index = np.arange(0, panel.n_sites, 40)
        typed_TQ = panel.alleles(0, panel.n_sites)[typed_index, :6].astype(np.int8)
        predicted_UQ, imputed_UQ = predict_and_impute(panel, typed_index, typed_TQ)
        frequency_U1 = panel.frequency[:, None]
        expected_UQ = frequency_U1 + panel.prediction_trust[:, None] * (predicted_UQ - frequency_U1)
        np.testing.assert_allclose(imputed_UQ, expected_UQ, atol=1e-6)
        trusted = panel.prediction_trust == 1
        np.testing.assert_array_equal(imputed_UQ[trusted], predicted_UQ[trusted])
        assert abs(imputed_UQ - predicted_UQ)[spoiled.sites].max() > 0.1


def test_inducing_panels_keep_it(spoiled, tmp_path):
    array = np.arange(0, spoiled.clean.n_sites, 40)
    with (
        Panel.open(spoiled.path) as panel,
        spinimpute.build_inducing_panel(panel, tmp_path / "p.spip", array, 16) as inducing,
    ):
        np.testing.assert_array_equal(inducing.prediction_trust, panel.prediction_trust)


def test_writing_a_panel_again_keeps_it(spoiled, tmp_path):
    with Panel.open(spoiled.path) as panel:
        rewrite_panel(panel, tmp_path / "again.spin", {})
        with Panel.open(tmp_path / "again.spin") as again:
            for written, known in zip(again.doubts, panel.doubts, strict=True):
                np.testing.assert_array_equal(written, known)


def test_what_a_killed_build_leaves_is_found_again(spoiled, tmp_path):
    """All temporary files lie in the one folder beside the output that the next build of it removes."""
    seen: list[set[str]] = []

    def refine(panel: Panel, folder: Path) -> build.Refinement:
        refined = refine_panel(panel, folder, 1)
        seen.append({path.name for path in folder.iterdir()})
        seen.append({path.name.split(".spin.")[0] for path in tmp_path.iterdir()})
        return refined

    build.compile_panel(
        build.BuildJob(spoiled.path.with_suffix(".vcf"), tmp_path / "p.spin", refine=refine)
    ).close()
    assert seen == [{"stay.spin"}, {".p"}]
    assert [path.name for path in tmp_path.iterdir()] == ["p.spin"]
