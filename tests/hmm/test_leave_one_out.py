"""Leaving typed calls out: against brute force, and what it says of good and bad samples."""

import gzip
from pathlib import Path
from unittest import mock

import cyvcf2
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import spinimpute
from spinimpute.genotypes.sites import Sites
from spinimpute.hmm import parameters
from spinimpute.hmm.leave_one_out import leave_one_out_probabilities
from spinimpute.hmm.parameters import MISMATCH
from spinimpute.hmm.recombination_scale import most_likely_scale
from spinimpute.hmm.steps import allele_emissions, jump_probabilities
from spinimpute.quality.leave_one_out import LeaveOneOutQuality, empirical_r2
from spinimpute.runtime.errors import InputError
from tests.array_panel import ArrayPanel
from tests.hmm.brute_force import forward_backward

pytestmark = pytest.mark.slow

WITH_ER2 = spinimpute.OutputSettings(leave_one_out=True)


def brute_force(panel_TN: np.ndarray, cM_T: np.ndarray, alleles_T: np.ndarray, scale: float) -> np.ndarray:
    """P(ALT) at each site from all other calls."""
    jump_T = jump_probabilities(cM_T, panel_TN.shape[1], scale)
    probability_T = np.empty(len(panel_TN))
    for left_out in range(len(panel_TN)):
        others_T = alleles_T.copy()
        others_T[left_out] = -1
        posterior_TN, _ = forward_backward(panel_TN, allele_emissions(others_T, MISMATCH), jump_T)
        probability_T[left_out] = posterior_TN[left_out, panel_TN[left_out] == 1].sum()
    return probability_T


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 10**6), n_sites=st.integers(1, 90), n=st.integers(2, 40), q=st.integers(1, 20),
    core=st.sampled_from([20, 256]),
)  # fmt: skip
def test_equals_brute_force(seed: int, n_sites: int, n: int, q: int, core: int) -> None:
    """With one window, and with several whose flanks reach all sites."""
    rng = np.random.default_rng(seed)
    panel_TN = (rng.random((n_sites, n)) < rng.uniform(0.05, 0.95, (n_sites, 1))).astype(np.uint8)
    panel = ArrayPanel(panel_TN, np.cumsum(rng.exponential(0.02, n_sites)))
    alleles_TQ = rng.integers(-1, 2, (n_sites, q)).astype(np.int8)
    with mock.patch.object(parameters, "CORE", core):
        found = leave_one_out_probabilities(panel, np.arange(n_sites), alleles_TQ, 2)  # type: ignore[arg-type]
    scale = most_likely_scale(panel_TN, panel.cM)
    expected = [brute_force(panel_TN, panel.cM, alleles_T, scale) for alleles_T in alleles_TQ.T]
    np.testing.assert_allclose(found, np.stack(expected, axis=1), atol=2e-4)


def test_windows_hardly_matter(example_panel: spinimpute.Panel, monkeypatch: pytest.MonkeyPatch) -> None:
    index = np.arange(5, example_panel.n_sites, 10)
    alleles = example_panel.alleles(0, example_panel.n_sites)[index, :8].astype(np.int8)
    alone = leave_one_out_probabilities(example_panel, index, alleles, 1)
    np.testing.assert_array_equal(alone, leave_one_out_probabilities(example_panel, index, alleles, 3))
    monkeypatch.setattr(parameters, "CORE", 10_000)
    difference = np.abs(alone - leave_one_out_probabilities(example_panel, index, alleles, 1))
    assert difference.mean() < 1e-4  # flanks of 128 sites hold nearly all that matters
    assert difference.max() < 0.2


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10**6))
def test_numbers_are_correlations(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n_sites, ploidy = 120, rng.integers(1, 3, 9)
    alleles = rng.integers(-1, 2, (n_sites, ploidy.sum())).astype(np.int8)
    probability = rng.random(alleles.shape).astype(np.float32)
    frequency = rng.random(n_sites)
    sites = Sites("1", np.arange(1, n_sites + 1), ["A"] * n_sites, ["C"] * n_sites, ["."] * n_sites)
    quality = LeaveOneOutQuality([str(i) for i in range(9)])
    er2 = empirical_r2(quality.add(sites, frequency, alleles, probability, ploidy))
    columns = [slice(stop - k, stop) for stop, k in zip(np.cumsum(ploidy), ploidy, strict=True)]
    minor, minor_probability = (
        np.where(frequency[:, None] > 0.5, 1 - x, x) for x in (alleles.astype(float), probability)
    )
    true, dosage = (
        np.stack([x[:, c].sum(axis=1) for c in columns], axis=1) for x in (minor, minor_probability)
    )
    known = np.stack([(alleles[:, c] >= 0).all(axis=1) for c in columns], axis=1)
    for t in range(n_sites):
        if len(set(true[t, known[t]])) > 1:
            expected = np.corrcoef(true[t, known[t]], dosage[t, known[t]])[0, 1] ** 2
            assert er2[t] == pytest.approx(expected, abs=1e-4)
        else:
            assert np.isnan(er2[t])
    assert quality.overall_r2() == pytest.approx(np.corrcoef(true[known], dosage[known])[0, 1] ** 2, abs=1e-4)
    for x, row in enumerate(quality.by_sample()):
        here = known[:, x]
        assert row["calls"] == here.sum()
        assert row["r2"] == pytest.approx(np.corrcoef(true[here, x], dosage[here, x])[0, 1] ** 2, abs=1e-4)
    windows = quality.by_window()
    assert [(w["start"], w["end"]) for w in windows] == [(1, 50), (51, 120)]
    assert sum(w["calls"] for w in windows) == known.sum()


def test_a_spoiled_sample_is_found(example: Path, example_panel: spinimpute.Panel, tmp_path: Path) -> None:
    rng, lines = np.random.default_rng(3), []
    for line in gzip.decompress((example / "target.vcf.gz").read_bytes()).decode().splitlines():
        fields = line.split("\t")
        if line[0] != "#" and rng.random() < 0.3:
            fields[13] = f"{rng.integers(2)}|{rng.integers(2)}"
        lines.append("\t".join(fields))
    path = tmp_path / "t.vcf"
    path.write_text("\n".join(lines) + "\n")
    plain = spinimpute.impute(path, tmp_path / "plain.bcf", example_panel)
    assert plain.leave_one_out is None
    summary = spinimpute.impute(path, tmp_path / "o.bcf", example_panel, output=WITH_ER2)
    assert summary.leave_one_out is not None
    notes = {row["sample"]: row["note"] for row in summary.leave_one_out.by_sample()}
    assert [name for name, note in notes.items() if note] == [list(notes)[4]]
    er2 = {row["position"]: row["er2"] for row in summary.leave_one_out.by_site()}
    files = (cyvcf2.VCF(str(tmp_path / name)) for name in ("o.bcf", "plain.bcf"))
    for with_it, without in zip(*files, strict=True):
        np.testing.assert_array_equal(with_it.format("DS"), without.format("DS"))
        assert without.INFO.get("ER2") is None
        written = with_it.INFO.get("ER2")
        if written is not None:
            assert with_it.INFO.get("TYPED")
            assert written == pytest.approx(er2[with_it.POS], abs=5.1e-4)
    assert sum(not np.isnan(value) for value in er2.values()) > 200
    summary.leave_one_out.write("sites", tmp_path / "sites.tsv")
    assert len((tmp_path / "sites.tsv").read_text().splitlines()) == summary.matched_sites + 1


def test_inducing_points_refuse_it(example: Path, example_panel: spinimpute.Panel, tmp_path: Path) -> None:
    index = np.arange(5, example_panel.n_sites, 20)
    with (
        spinimpute.build_inducing_panel(example_panel, tmp_path / "p.spip", index, 8) as made,
        pytest.raises(InputError, match="leave-one-out needs haplotypes"),
    ):
        spinimpute.impute(example / "target.vcf.gz", tmp_path / "o.bcf", made, output=WITH_ER2)
