"""Simulated sets, their flaws, and cases that are made from others."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.imputation.answers import read_answers, read_guess
from benchmarks.imputation.cases import Case, find_case, samples
from benchmarks.imputation.cast import Conditions
from benchmarks.imputation.derived import draw_targets, merged, only_targets, small_panel, thinned
from benchmarks.imputation.flaws import MISSED, WRONG_CALL, WRONG_PHASE, flawed_calls, flawed_panel
from benchmarks.imputation.related_set import relate
from benchmarks.imputation.simulated_set import History, Sizes, simulate, write_set
from spinimpute.genotypes.genetic_map import GeneticMap
from spinimpute.vcf.reader import read_haplotypes as read

pytestmark = pytest.mark.slow


def test_a_simulated_set_is_like_a_real_one(simulated: Case) -> None:
    panel, target, truth = (read(path) for path in (simulated.panel, simulated.target, simulated.truth))
    assert panel.alleles.shape[1] == simulated.panel_haplotypes == 120
    assert target.samples == truth.samples
    assert not set(panel.samples) & set(target.samples)
    assert truth.sites.keys() == panel.sites.keys()
    assert len(target.sites) == simulated.typed_sites == 15
    count = panel.alleles.sum(1, dtype=int)
    assert ((count > 0) & (count < 120)).all()
    rows = np.searchsorted(truth.sites.position, target.sites.position)
    assert np.array_equal(truth.alleles[rows], target.alleles)
    assert set(simulated.populations()) == {*panel.samples, *target.samples}
    cM = GeneticMap.read(simulated.genetic_map, "1").cM(np.array([1, 30_001]))
    assert np.isclose(cM[1] - cM[0], 0.05)
    assert simulated.bins == (0.0, 0.01, 0.05, 0.5)
    description = json.loads((simulated.panel.parent / "set.json").read_text())
    assert description["panel_sites"] == len(panel.sites)


def test_larger_panels_hold_the_smaller_and_seeds_count(tmp_path: Path, simulated: Case) -> None:
    history = History(people=80, length=30_000, centimorgans=0.05, seed=3)
    trees = simulate(history)
    write_set(trees, history, Sizes(40, 8, 15), tmp_path / "small")
    small, large = read(tmp_path / "small" / "panel.bcf"), read(simulated.panel)
    at = {key: row for row, key in enumerate(large.sites.keys())}
    rows = [at[key] for key in list(small.sites.keys())]
    assert small.samples == large.samples[:20]
    assert np.array_equal(small.alleles, large.alleles[rows][:, :40])
    target = read(tmp_path / "small" / "target.phased.bcf")
    assert target.samples == read(simulated.target).samples[:4]
    write_set(simulate(history), history, Sizes(120, 24, 15), tmp_path / "same")
    assert (tmp_path / "same" / "panel.bcf").read_bytes() == simulated.panel.read_bytes()


def test_thinned_arrays_are_nested_and_scored_on_the_same_sites(tmp_path: Path, simulated: Case) -> None:
    folders = [tmp_path / "2", tmp_path / "5"]
    for folder in folders:
        folder.mkdir()
    half, fifth = (thinned(simulated, part, 1, f) for part, f in zip((2, 5), folders, strict=True))
    positions = [set(read(case.target).sites.position.tolist()) for case in (simulated, half, fifth)]
    assert [len(of_case) for of_case in positions] == [15, 7, 3]
    assert positions[2] < positions[1] < positions[0]
    answers = read_answers(half)
    assert answers.truth.keys == read_answers(simulated).truth.keys
    assert answers.typed_position.tolist() == sorted(positions[1])
    other = tmp_path / "other"
    other.mkdir()
    assert set(read(thinned(simulated, 2, 2, other).target).sites.position.tolist()) != positions[1]


def test_small_panels_hold_what_varies_among_them(tmp_path: Path, simulated: Case) -> None:
    case = small_panel(simulated, 10, 1, tmp_path)
    panel, full = read(case.panel), read(simulated.panel)
    assert len(panel.samples) == 10
    assert [name for name in full.samples if name in set(panel.samples)] == panel.samples
    count = panel.alleles.sum(1, dtype=int)
    assert ((count > 0) & (count < 20)).all()
    columns = np.flatnonzero(np.isin(np.repeat(full.samples, 2), panel.samples))
    among = full.alleles[:, columns].sum(1, dtype=int)
    assert len(panel.sites) == ((among > 0) & (among < 20)).sum()


def test_single_people_are_merged_again(tmp_path, simulated, convert_vcf) -> None:
    names = draw_targets(simulated, 3, 1)
    assert names == [name for name in samples(simulated.target) if name in names]
    copies = []
    for name in names:
        folder = tmp_path / name
        folder.mkdir()
        copies.append(convert_vcf(only_targets(simulated, [name], folder).truth, folder / "copy.vcf.gz"))
    together = tmp_path / "together.bcf"
    merged(copies, together)
    case = only_targets(simulated, names, tmp_path)
    answers = read_answers(case)
    assert answers.people == names
    # the truth imputes itself without an error
    assert np.array_equal(read_guess(answers, together).dosage_XS, answers.true_XS)


def test_relatives_and_flaws(tmp_path: Path) -> None:
    history = History(people=120, length=30_000, centimorgans=0.05, seed=3)
    trees = simulate(history)
    cases = {}
    kinds = {"plain": Conditions(), "flawed": Conditions(flaws=True), "related": Conditions(relatives=0.5)}
    for name, conditions in kinds.items():
        write_set(trees, history, Sizes(120, 24, 15), tmp_path / name, conditions)
        cases[name] = find_case(str(tmp_path / name), tmp_path)
    plain, flawed, related = (read(case.panel) for case in cases.values())
    at = {key: row for row, key in enumerate(plain.sites.keys())}
    rows = [at[key] for key in list(flawed.sites.keys())]
    differs = flawed.alleles != plain.alleles[rows]
    assert 0 < differs.mean() < 0.02
    # what changes on one haplotype of a person changes on the other, too, or is missed
    count = plain.alleles[rows].sum(axis=1, dtype=int)
    assert differs[np.minimum(count, 120 - count) == 1].any(axis=1).mean() > 0.3
    assert np.array_equal(read(cases["flawed"].truth).alleles, read(cases["plain"].truth).alleles[rows])
    people = cases["related"].populations()
    names = read(cases["related"].truth).samples
    assert sum(people[name][1] != "unrelated" for name in names) == 6
    assert len(related.samples) == 60
    true = read(cases["related"].truth).alleles
    for name in names:
        relation = people[name][1]
        if relation == "unrelated":
            continue
        mine, its = names.index(name), related.samples.index(f"{relation}_of_{name}")
        pairs = itertools.product(true[:, 2 * mine :][:, :2].T, related.alleles[:, 2 * its :][:, :2].T)
        same = [np.array_equal(one, other) for one, other in pairs]
        assert any(same) or relation in ("sib", "cousin")


def test_targets_with_relatives_in_the_panel_of_a_case(tmp_path: Path, simulated: Case) -> None:
    relate(simulated, tmp_path / "related", 8, Conditions(relatives=1.0), seed=1)
    case = find_case(str(tmp_path / "related"), tmp_path)
    panel, truth, target = (read(path) for path in (case.panel, case.truth, case.target))
    founders = read(simulated.panel)
    left = [name for name in panel.samples if name in founders.samples]
    assert len(truth.samples) == 8
    # two people make parent and target, child and target, or sibs; four make cousins
    assert len(left) == len(founders.samples) - 2 * 2 * 3 - 2 * 4
    assert sorted(name.partition("_")[0] for name in panel.samples if name not in left) == sorted(
        ["parent", "child", "sib", "cousin"] * 2
    )
    assert set(target.sites.keys()) <= set(read(simulated.target).sites.keys())
    with pytest.raises(SystemExit, match="too small"):
        relate(simulated, tmp_path / "more", 59, Conditions(relatives=1.0), seed=1)


@pytest.mark.parametrize(
    ("carriers", "size"), [(1, 0), (2, 1), (10, 1), (11, 2), (100, 2), (101, 3), (900, 3)]
)
@pytest.mark.parametrize("flip", [False, True])
def test_rates(carriers: int, size: int, flip: bool) -> None:
    rng = np.random.default_rng(carriers)
    site = np.zeros(4_000, np.int8)
    site[2 * np.arange(carriers)] = 1  # nobody has it twice
    moved = missed = 0
    rounds = max(8_000 // carriers, 80)
    for _ in range(rounds):
        found = flawed_panel(site ^ flip, rng) ^ flip
        moved += int(found[1::2].sum())
        missed += carriers - int(found.sum())
        assert not found[2 * carriers :].any()
    n = rounds * carriers
    for count, rate in ((moved, WRONG_PHASE[size]), (missed, (1 - WRONG_PHASE[size]) * MISSED[size])):
        assert abs(count - n * rate) < 5 * np.sqrt(n * rate) + 1


def test_homozygotes_have_no_phase() -> None:
    site = np.zeros(100, np.int8)
    site[:2] = 1
    rng = np.random.default_rng(1)
    assert all(flawed_panel(site, rng)[:2].sum() >= 1 for _ in range(200))
    assert not any(flawed_panel(site, rng)[2:].any() for _ in range(200))


def test_calls() -> None:
    rng = np.random.default_rng(1)
    wrong = sum(int(flawed_calls(np.zeros(10_000, np.int8), rng).sum()) for _ in range(100))
    assert abs(wrong - 1e6 * WRONG_CALL) < 5 * np.sqrt(1e6 * WRONG_CALL)
