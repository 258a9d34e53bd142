"""Rare alleles on the wrong haplotype of their carrier."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import spinimpute
from spinimpute.genotypes.bit_rows import pack_rows
from spinimpute.genotypes.genetic_map import GeneticMap
from spinimpute.panels.panel import MOVED, Panel
from spinimpute.panels.trust import rare_phase
from spinimpute.panels.trust.carrier_matches import MAX_CM, MAX_MISMATCHES, MIN_CM, fill_gains
from spinimpute.panels.trust.rare_phase import COMMON, MIN_GAINS, MIN_WRONG, find_moves
from spinimpute.training.simulation import SimulationSettings, simulate_segment

from ...conftest import vcf_text

pytestmark = pytest.mark.slow

WRONG = 0.1


def write_vcf(
    path: Path,
    position: np.ndarray,
    alleles_XN: np.ndarray,
    samples: list[str],
    alternate: list[str] | None = None,
) -> Path:
    """Write a phased VCF; samples whose second haplotype is 2 are haploid."""
    rows = zip(position.tolist(), alternate or ["C"] * len(position), alleles_XN.tolist(), strict=True)
    records = [
        (at, "A", alt, [str(a) if b == 2 else f"{a}|{b}" for a, b in zip(row[::2], row[1::2], strict=True)])
        for at, alt, row in rows
    ]
    path.write_text(vcf_text(records, samples))
    return path


@dataclass(frozen=True)
class Spoiled:
    """A simulated panel with a share WRONG of rare alleles on the wrong haplotype."""

    position: np.ndarray
    clean_XN: np.ndarray
    spoiled_XN: np.ndarray
    samples: list[str]
    folder: Path

    def build(self, name: str, alleles_XN: np.ndarray, keep_phase: bool = False) -> Panel:
        """Build a panel from a VCF of these alleles."""
        vcf = write_vcf(self.folder / f"{name}.vcf", self.position, alleles_XN, self.samples)
        out = self.folder / f"{name}.spin"
        genetic_map = GeneticMap.constant()
        return spinimpute.build_panel(vcf, out, genetic_map, force=True, keep_phase=keep_phase)


@pytest.fixture(scope="module")
def spoiled(tmp_path_factory: pytest.TempPathFactory) -> Spoiled:
    several = SimulationSettings(
        length=(600_000, 600_001), samples=(700, 701), recombination_rate=(1e-8, 1.01e-8), demes=1
    )
    segment = simulate_segment(3, several)
    n = segment.n_haplotypes
    clean_XN = segment.alleles(0, segment.n_sites)
    clean_XN[::7] ^= 1  # the rarer allele is REF at some sites
    spoiled_XN, rng = clean_XN.copy(), np.random.default_rng(0)
    for row in spoiled_XN:
        minor = int(row.sum() <= n // 2)
        carriers = np.flatnonzero(row == minor)
        if 2 <= len(carriers) < COMMON * n:
            for carrier in carriers[rng.random(len(carriers)) < WRONG]:
                if row[carrier ^ 1] != minor:
                    row[carrier], row[carrier ^ 1] = 1 - minor, minor
    samples = [f"s{i}" for i in range(n // 2)]
    return Spoiled(segment.position, clean_XN, spoiled_XN, samples, tmp_path_factory.mktemp("phase"))


def changes(one_XN: np.ndarray, other_XN: np.ndarray) -> set[tuple[int, int]]:
    """Sites and samples whose haplotypes differ between two panels."""
    differ_XS = (one_XN != other_XN).reshape(len(one_XN), -1, 2).any(axis=2)
    return {(int(x), int(s)) for x, s in np.argwhere(differ_XS)}


def test_wrong_phases_are_switched(spoiled: Spoiled) -> None:
    with spoiled.build("spoiled", spoiled.spoiled_XN) as panel:
        switched_XN = panel.alleles(0, panel.n_sites)
        moved = panel.provenance[MOVED]
        panel.verify()
    pairs = switched_XN.reshape(len(switched_XN), -1, 2).sum(axis=2)
    np.testing.assert_array_equal(pairs, spoiled.clean_XN.reshape((*pairs.shape, 2)).sum(axis=2))
    wrong, made = changes(spoiled.spoiled_XN, spoiled.clean_XN), changes(switched_XN, spoiled.spoiled_XN)
    assert len(wrong) > 500
    assert len(made & wrong) > 0.75 * len(wrong)
    assert len(made & wrong) > 0.9 * len(made)
    assert moved["alleles"] == len(made)
    assert len(moved["estimated wrong"]) >= 3
    for carriers, share in moved["estimated wrong"]:
        assert share == pytest.approx(WRONG, abs=0.05), carriers


def test_right_phases_are_kept(spoiled: Spoiled) -> None:
    with spoiled.build("clean", spoiled.clean_XN) as panel:
        np.testing.assert_array_equal(panel.alleles(0, panel.n_sites), spoiled.clean_XN)
        assert MOVED not in panel.provenance


def test_phase_can_be_kept(spoiled: Spoiled) -> None:
    with spoiled.build("kept", spoiled.spoiled_XN, keep_phase=True) as panel:
        np.testing.assert_array_equal(panel.alleles(0, panel.n_sites), spoiled.spoiled_XN)
        assert MOVED not in panel.provenance


def test_the_order_of_samples_does_not_matter(spoiled: Spoiled) -> None:
    order = np.random.default_rng(1).permutation(len(spoiled.samples))
    columns = (2 * order[:, None] + np.arange(2)).ravel()
    with spoiled.build("first", spoiled.spoiled_XN) as panel:
        first_XN = panel.alleles(0, panel.n_sites)
    with spoiled.build("other", np.ascontiguousarray(spoiled.spoiled_XN[:, columns])) as panel:
        np.testing.assert_array_equal(panel.alleles(0, panel.n_sites), first_XN[:, columns])


def test_windows_of_long_panels_make_little_difference(
    spoiled: Spoiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    with spoiled.build("whole", spoiled.spoiled_XN, keep_phase=True) as panel:
        whole = find_moves(panel)
        monkeypatch.setattr(rare_phase, "_BLOCK", 250)
        monkeypatch.setattr(rare_phase, "_FLANK", 250)
        parts = find_moves(panel)
    one = set(zip(whole.site_M.tolist(), whole.from_M.tolist(), strict=True))
    other = set(zip(parts.site_M.tolist(), parts.from_M.tolist(), strict=True))
    assert (np.diff(parts.site_M) >= 0).all()
    assert len(one & other) > 0.9 * max(len(one), len(other))


def test_haploid_males(spoiled: Spoiled) -> None:
    """Haploid samples keep their alleles, and others are compared with them."""
    alleles_XN = spoiled.spoiled_XN.copy()
    alleles_XN[:, 1:400:2] = 2  # 200 of the samples
    with spoiled.build("men", alleles_XN) as panel:
        switched_XN, moved = panel.alleles(0, panel.n_sites), panel.provenance[MOVED]
    before_XN = np.delete(alleles_XN, np.arange(1, 400, 2), axis=1)
    np.testing.assert_array_equal(switched_XN[:, :200], before_XN[:, :200])
    assert moved["alleles"] == (switched_XN != before_XN).sum() / 2 > 100


def gain_by_hand(
    alleles_TN: np.ndarray, place: int, cM: float, cM_T: np.ndarray, carriers: list[int], i: int
) -> float:
    """The gain by comparing haplotypes site by site."""

    def length(one: int, other: int, places: list[int]) -> float:
        differ = [t for t in places if alleles_TN[t, one] != alleles_TN[t, other]]
        return min(MAX_CM, abs(cM_T[differ[MAX_MISMATCHES]] - cM)) if len(differ) > MAX_MISMATCHES else MAX_CM

    def longest(one: int) -> float:
        left, right = list(range(place - 1, -1, -1)), list(range(place, len(cM_T)))
        return max(
            sum(math.log(length(one, other, side) + MIN_CM) for side in (left, right))
            for other in carriers
            if other != carriers[i]
        )

    return longest(carriers[i] ^ 1) - longest(carriers[i])


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10_000), st.integers(1, 150), st.integers(2, 6))
def test_gains_are_those_of_comparing_site_by_site(seed: int, n_sites: int, n_carriers: int) -> None:
    rng = np.random.default_rng(seed)
    founders = rng.integers(0, 2, (n_sites, 3)).astype(np.uint8)
    alleles_TN = founders[:, rng.integers(0, 3, 12)] ^ (rng.random((n_sites, 12)) < 0.05)
    cM_T = np.cumsum(rng.random(n_sites) * 0.05)
    place = int(rng.integers(0, n_sites + 1))
    cM = float(cM_T[place - 1]) if place else 0.0
    carriers = sorted(rng.choice(12, n_carriers, replace=False).tolist())
    gain_C = np.empty(n_carriers)
    fill_gains(
        pack_rows(alleles_TN.astype(np.uint8)), cM_T, np.array([place]), np.array([cM]),
        np.array([0, n_carriers]), np.array(carriers), np.arange(12) ^ 1, gain_C,
    )  # fmt: skip
    for i, carrier in enumerate(carriers):
        if carrier ^ 1 in carriers:
            assert np.isnan(gain_C[i])
        else:
            expected = gain_by_hand(alleles_TN, place, cM, cM_T, carriers, i)
            assert gain_C[i] == pytest.approx(expected, abs=1e-9)


def test_sizes_of_gains_that_are_switched() -> None:
    """Few gains may be mutations that arose twice; gains as frequent as losses are right phases."""
    losses_KI = np.full((5, 6), 10_000)
    gains_KI = np.array([[400] * 6, [40] * 6, [9_000, 3_000, 2_000, 1_500, 1_000, 1_000], [9] * 6, [9] * 6])
    losses_KI[3:] = [[200], [50]]
    assert gains_KI[3, 0] < MIN_GAINS
    wrong_K, moved_KI = rare_phase._estimate_wrong_phases(losses_KI, gains_KI)
    assert wrong_K[:2] == pytest.approx([400 / 10_400, 40 / 10_040])
    assert wrong_K[1] < MIN_WRONG < wrong_K[3]
    assert np.isnan(wrong_K[4])
    assert moved_KI[0].all()
    assert moved_KI[2].tolist() == [False, False, False, True, True, True]
    assert not moved_KI[[1, 3, 4]].any()


@pytest.fixture
def every_gain_is_a_wrong_phase(monkeypatch: pytest.MonkeyPatch) -> None:
    def every(losses_KI: np.ndarray, gains_KI: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.full(len(gains_KI), 0.5), np.ones(gains_KI.shape, bool)

    monkeypatch.setattr(rare_phase, "_estimate_wrong_phases", every)


@pytest.mark.usefixtures("every_gain_is_a_wrong_phase")
def test_of_two_carriers_that_both_gain_none_is_moved(spoiled: Spoiled) -> None:
    """Both siblings match the other carrier longer: one phase is wrong, but not known which."""
    alleles_XN = spoiled.clean_XN.copy()
    x = len(alleles_XN) // 2
    alleles_XN[x] = 0
    alleles_XN[x, [0, 2]] = 1
    alleles_XN[:x, 1], alleles_XN[x + 1 :, 1] = alleles_XN[:x, 2], alleles_XN[x + 1 :, 2]
    alleles_XN[:x, 3], alleles_XN[x + 1 :, 3] = alleles_XN[:x, 0], alleles_XN[x + 1 :, 0]
    with spoiled.build("two", alleles_XN, keep_phase=True) as panel:
        moves = find_moves(panel)
        assert x not in moves.site_M
        assert len(moves.site_M) > 0
    alleles_XN[:, 3] = alleles_XN[:, 5]  # of the second carrier no haplotype matches: the first one gains
    alleles_XN[x, 3] = 0
    with spoiled.build("one", alleles_XN, keep_phase=True) as panel:
        moves = find_moves(panel)
        assert moves.from_M[moves.site_M == x].tolist() == [0]


@pytest.mark.usefixtures("every_gain_is_a_wrong_phase")
def test_alleles_of_many_carriers_stay(spoiled: Spoiled, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rare_phase, "MAX_CARRIERS", (2, 4))
    with spoiled.build("many", spoiled.spoiled_XN, keep_phase=True) as panel:
        moves = find_moves(panel)
        count_X = np.minimum(panel.allele_count, panel.n_haplotypes - panel.allele_count)
        assert set(count_X[moves.site_M].tolist()) == {2, 3, 4}


def test_records_of_several_alternate_alleles_stay(spoiled: Spoiled) -> None:
    with spoiled.build("alone", spoiled.spoiled_XN, keep_phase=True) as panel:
        sites = np.unique(find_moves(panel).site_M)[:40:2]
    position = spoiled.position.copy()
    position[sites + 1] = position[sites]
    alleles = ["C"] * len(position)
    for x in (sites + 1).tolist():
        alleles[x] = "G"
    vcf = write_vcf(spoiled.folder / "several.vcf", position, spoiled.spoiled_XN, spoiled.samples, alleles)
    constant = GeneticMap.constant()
    with spinimpute.build_panel(vcf, spoiled.folder / "several.spin", constant, keep_phase=True) as panel:
        moves = find_moves(panel)
        assert len(moves.site_M) > 100
        assert not np.isin(moves.site_M, [*sites, *(sites + 1)]).any()


def test_surroundings_beyond_a_block_count(spoiled: Spoiled, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rare_phase, "_BLOCK", 20)
    found = []
    with spoiled.build("flanks", spoiled.spoiled_XN, keep_phase=True) as panel:
        for flank in (0, 400):
            monkeypatch.setattr(rare_phase, "_FLANK", flank)
            moves = find_moves(panel)
            made = set(zip(moves.site_M.tolist(), (moves.from_M // 2).tolist(), strict=True))
            found.append(len(made & changes(spoiled.spoiled_XN, spoiled.clean_XN)))
    assert found[1] > 1.2 * found[0]


def test_messages_of_the_command(spoiled: Spoiled) -> None:
    vcf = write_vcf(spoiled.folder / "c.vcf", spoiled.position, spoiled.spoiled_XN, spoiled.samples)
    build = [sys.executable, "-m", "spinimpute", "panel", "build", "--vcf", vcf, "-f", "-o"]
    built = subprocess.run([*build, spoiled.folder / "c.spin"], check=True, capture_output=True, text=True)
    assert "rare alleles moved to the other haplotype of their carrier" in built.stderr
    shares = re.findall(r"([\d.]+)% of alleles with [\d-]+", built.stderr)
    assert len(shares) >= 3
    assert all(5 < float(share) < 15 for share in shares)
    kept = subprocess.run(
        [*build, spoiled.folder / "k.spin", "--keep-phase"], check=True, capture_output=True, text=True
    )
    assert "moved" not in kept.stderr
    assert not list(spoiled.folder.glob(".*"))
    again = [sys.executable, "-m", "spinimpute", "panel", "build", "--vcf", spoiled.folder / "c.spin"]
    again += ["--keep-phase", "--inducing", "8", "--array", vcf, "-o", spoiled.folder / "c.spip"]
    refused = subprocess.run(again, capture_output=True, text=True)
    assert refused.returncode == 2
    assert "--keep-phase, --keep-map and --split-multiallelic when you build a panel" in refused.stderr
