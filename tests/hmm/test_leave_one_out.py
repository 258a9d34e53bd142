"""Leaving typed calls out: against brute force, and what it says of good and bad samples."""

import csv
from pathlib import Path

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
from spinimpute.hmm.steps import jump_probabilities
from spinimpute.quality.leave_one_out import LeaveOneOutQuality
from spinimpute.runtime.errors import InputError


class FakePanel:
    """What the passes ask of a panel: packed rows, map positions."""

    def __init__(self, alleles_TN: np.ndarray, cM_T: np.ndarray) -> None:
        self.alleles_TN, self.cM, self.n_haplotypes = alleles_TN, cM_T, alleles_TN.shape[1]

    def packed_rows(self, index: np.ndarray) -> np.ndarray:
        return np.packbits(self.alleles_TN[index], axis=1)


def brute_force(panel_TN: np.ndarray, cM_T: np.ndarray, alleles_T: np.ndarray, scale: float) -> np.ndarray:
    """P(ALT) at each site from all other calls, in double precision, forward and backward anew for each."""
    n_sites, n = panel_TN.shape
    jump_T = jump_probabilities(cM_T, n, scale).astype(float)
    out = np.empty(n_sites)
    for left_out in range(n_sites):
        emission_TN = np.where(panel_TN == alleles_T[:, None], 1 - MISMATCH, MISMATCH)
        emission_TN[alleles_T < 0] = 1
        emission_TN[left_out] = 1
        forward = np.full(n, 1 / n)
        for t in range(left_out + 1):
            forward = (1 - jump_T[t]) * forward + jump_T[t] * forward.sum() / n
            forward *= emission_TN[t]
            forward /= forward.sum()
        backward = np.ones(n)
        for t in range(n_sites - 1, left_out, -1):
            values = emission_TN[t] * backward
            backward = (1 - jump_T[t]) * values + jump_T[t] * values.mean()
            backward /= backward.sum()
        together = forward * backward
        out[left_out] = together[panel_TN[left_out] == 1].sum() / together.sum()
    return out


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), n_sites=st.integers(1, 90), n=st.integers(2, 40), q=st.integers(1, 20))
def test_equals_brute_force(seed: int, n_sites: int, n: int, q: int) -> None:
    rng = np.random.default_rng(seed)
    panel_TN = (rng.random((n_sites, n)) < rng.uniform(0.05, 0.95, (n_sites, 1))).astype(np.uint8)
    cM_T = np.cumsum(rng.exponential(0.02, n_sites))
    alleles_TQ = rng.integers(-1, 2, (n_sites, q)).astype(np.int8)
    panel = FakePanel(panel_TN, cM_T)
    found = leave_one_out_probabilities(panel, np.arange(n_sites), alleles_TQ, 2)  # type: ignore[arg-type]
    scale = most_likely_scale(panel_TN, cM_T)
    expected = np.stack([brute_force(panel_TN, cM_T, alleles_TQ[:, i], scale) for i in range(q)], axis=1)
    np.testing.assert_allclose(found, expected, atol=2e-4)


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
    er2 = quality.add(sites, frequency, alleles, probability, ploidy)
    first = np.cumsum(ploidy) - ploidy
    minor, minor_probability = (
        np.where(frequency[:, None] > 0.5, 1 - x, x) for x in (alleles.astype(float), probability)
    )
    true = np.stack([minor[:, a : a + k].sum(axis=1) for a, k in zip(first, ploidy, strict=True)], axis=1)
    dosage = np.stack(
        [minor_probability[:, a : a + k].sum(axis=1) for a, k in zip(first, ploidy, strict=True)], axis=1
    )
    known = np.stack(
        [(alleles[:, a : a + k] >= 0).all(axis=1) for a, k in zip(first, ploidy, strict=True)], axis=1
    )
    for t in range(n_sites):
        if len(set(true[t, known[t]])) > 1:
            expected = np.corrcoef(true[t, known[t]], dosage[t, known[t]])[0, 1] ** 2
            assert er2[t] == pytest.approx(expected, abs=1e-4)
        else:
            assert np.isnan(er2[t])
    assert quality.all() == pytest.approx(np.corrcoef(true[known], dosage[known])[0, 1] ** 2, abs=1e-4)
    for x, row in enumerate(quality.by_sample()):
        here = known[:, x]
        assert row["calls"] == here.sum()
        assert row["r2"] == pytest.approx(np.corrcoef(true[here, x], dosage[here, x])[0, 1] ** 2, abs=1e-4)
    windows = quality.by_window()
    assert [(w["start"], w["end"]) for w in windows] == [(1, 50), (51, 120)]
    assert sum(w["calls"] for w in windows) == known.sum()


def test_a_spoiled_sample_is_found(example: Path, example_panel: spinimpute.Panel, tmp_path: Path) -> None:
    vcf = cyvcf2.VCF(str(example / "target.vcf.gz"))
    rng = np.random.default_rng(3)
    lines = [
        "##fileformat=VCFv4.2",
        "##contig=<ID=20>",
        '##FORMAT=<ID=GT,Number=1,Type=String,Description="">',
    ]
    lines.append(
        "\t".join(["#CHROM", "POS", "ID", "REF", "ALT", "QUAL", "FILTER", "INFO", "FORMAT", *vcf.samples])
    )
    for v in vcf:
        calls = ["|".join(map(str, call[:2])) for call in v.genotypes]
        if rng.random() < 0.3:
            calls[4] = f"{rng.integers(2)}|{rng.integers(2)}"
        lines.append("\t".join(["20", str(v.POS), ".", v.REF, v.ALT[0], ".", ".", ".", "GT", *calls]))
    path = tmp_path / "t.vcf"
    path.write_text("\n".join(lines) + "\n")
    plain = spinimpute.impute(path, tmp_path / "plain.bcf", example_panel)
    assert plain.leave_one_out is None
    summary = spinimpute.impute(
        path, tmp_path / "o.bcf", example_panel, output=spinimpute.OutputSettings(leave_one_out=True)
    )
    assert summary.leave_one_out is not None
    notes = {row["sample"]: row["note"] for row in summary.leave_one_out.by_sample()}
    assert [name for name, note in notes.items() if note] == [vcf.samples[4]]
    er2 = {row["position"]: row["er2"] for row in summary.leave_one_out.by_site()}
    for with_it, without in zip(
        cyvcf2.VCF(str(tmp_path / "o.bcf")), cyvcf2.VCF(str(tmp_path / "plain.bcf")), strict=True
    ):
        np.testing.assert_array_equal(with_it.format("DS"), without.format("DS"))
        assert without.INFO.get("ER2") is None
        written = with_it.INFO.get("ER2")
        if written is not None:
            assert with_it.INFO.get("TYPED")
            assert written == pytest.approx(er2[with_it.POS], abs=5.1e-4)
    assert sum(not np.isnan(value) for value in er2.values()) > 200
    summary.leave_one_out.write("sites", tmp_path / "sites.tsv")
    with (tmp_path / "sites.tsv").open() as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    assert len(rows) == summary.matched_sites


def test_inducing_points_refuse_it(example: Path, example_panel: spinimpute.Panel, tmp_path: Path) -> None:
    index = np.arange(5, example_panel.n_sites, 20)
    with (
        spinimpute.build_inducing_panel(example_panel, tmp_path / "p.spip", index, 8) as made,
        pytest.raises(InputError, match="leave-one-out needs haplotypes"),
    ):
        spinimpute.impute(
            example / "target.vcf.gz",
            tmp_path / "o.bcf",
            made,
            output=spinimpute.OutputSettings(leave_one_out=True),
        )


def test_the_map_matters(example_panel: spinimpute.Panel) -> None:
    """Close neighbours predict better than far ones: the probabilities come from the map that the panel
    has."""
    index = np.arange(5, example_panel.n_sites, 10)
    alleles = example_panel.alleles(0, example_panel.n_sites)[index].astype(np.int8)
    others = FakePanel(alleles[:, 40:].astype(np.uint8), example_panel.cM[index])
    far = FakePanel(alleles[:, 40:].astype(np.uint8), example_panel.cM[index] * 1_000)
    error = [
        np.abs(
            leave_one_out_probabilities(p, np.arange(len(index)), alleles[:, :40], 2) - alleles[:, :40]
        ).mean()  # type: ignore[arg-type]
        for p in (others, far)
    ]
    assert error[0] < 0.8 * error[1]
