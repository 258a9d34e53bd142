"""Phasing against the panel: a pass beside a reference without tricks, and what must hold of the whole."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spinimpute.genotypes.bit_rows import pack_rows
from spinimpute.genotypes.intervals import Interval
from spinimpute.hmm.backward_values import backward_values
from spinimpute.hmm.parameters import CORE
from spinimpute.hmm.patterns import span_patterns
from spinimpute.hmm.steps import allele_emissions, group_lanes, jump_probabilities
from spinimpute.hmm.typed_alleles import MISSING
from spinimpute.phasing.passes import EXCHANGED, EXCHANGED_RIGHT, HALF, LaneDecisions, pass_forward
from spinimpute.phasing.phase import phase_haplotypes
from spinimpute.phasing.targets import (
    Decisions,
    TargetLanes,
    Targets,
    apply_decisions,
    apply_votes,
    fill_lanes,
    vote,
)
from tests.array_panel import ArrayPanel

pytestmark = pytest.mark.slow

MISMATCH = 0.01


def mosaic_panel(rng: np.random.Generator, n_typed: int, n: int, founders: int = 12) -> ArrayPanel:
    """Haplotypes that copy a few founders, and leave them every 40 sites."""
    founder_TF = rng.random((n_typed, founders)) < rng.uniform(0.1, 0.9, (n_typed, 1))
    leaves_TN = rng.random((n_typed, n)) < 1 / 40
    leaves_TN[0] = True
    copied_TN = np.where(leaves_TN, rng.integers(0, founders, (n_typed, n)), -1)
    for t in range(1, n_typed):
        copied_TN[t] = np.where(leaves_TN[t], copied_TN[t], copied_TN[t - 1])
    return ArrayPanel(
        np.take_along_axis(founder_TF, copied_TN, axis=1).astype(np.uint8), np.arange(n_typed) * 0.01
    )


def split(panel: ArrayPanel, n_queries: int) -> tuple[ArrayPanel, np.ndarray]:
    """Split off the last haplotypes, int8."""
    kept = panel.alleles_XN.shape[1] - n_queries
    return (
        ArrayPanel(np.ascontiguousarray(panel.alleles_XN[:, :kept]), panel.cM),
        panel.alleles_XN[:, kept:].astype(np.int8),
    )


def without_phase(truth_TQ: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Genotypes in REF, ALT order, and whether they are heterozygotes."""
    pairs_TX2 = truth_TQ.reshape(len(truth_TQ), -1, 2)
    return np.sort(pairs_TX2, axis=2).reshape(truth_TQ.shape), pairs_TX2[:, :, 0] != pairs_TX2[:, :, 1]


def run(panel: ArrayPanel, alleles_TQ: np.ndarray, unphased_TX: np.ndarray, threads: int = 1, **more: bool):
    ploidy = more.pop("ploidy", np.full(unphased_TX.shape[1], 2, np.uint8))
    return phase_haplotypes(panel, np.arange(len(panel.cM)), alleles_TQ, unphased_TX, ploidy, threads, **more)


def switches(phased_TQ: np.ndarray, truth_TQ: np.ndarray) -> int:
    total = 0
    for first in range(0, truth_TQ.shape[1], 2):
        het = truth_TQ[:, first] != truth_TQ[:, first + 1]
        same = phased_TQ[het, first] == truth_TQ[het, first]
        total += sum(a != b for a, b in pairwise(same.tolist()))
    return total


def reference(panel_SN, pair_2S, open_S, known_S, doubtful_S, jump_S, first, stop, is_first, locked):  # type: ignore[no-untyped-def]
    """The pass haplotype by haplotype, in double precision."""
    n_places, n = panel_SN.shape
    pair_2S = pair_2S.copy()

    def emission(allele: int, place: int, known: bool) -> np.ndarray:
        match = np.where(panel_SN[place] == allele, 1 - MISMATCH, MISMATCH)
        return match if known else np.full(n, 1 - MISMATCH)

    right_2SN = np.ones((2, n_places, n))
    for lane in range(2):
        for place in range(n_places - 1, 0, -1):
            seen = emission(pair_2S[lane, place], place, known_S[place] and not doubtful_S[place])
            values = seen * right_2SN[lane, place]
            right_2SN[lane, place - 1] = (1 - jump_S[place]) * values + jump_S[place] * values.mean()
    left_2N = np.full((2, n), 1 / n)
    decision_S, posterior_S, clear_S = np.zeros(n_places, int), np.ones(n_places), np.ones(n_places, bool)
    linked = first == 0
    for place in range(stop):
        left_2N = (1 - jump_S[place]) * left_2N + jump_S[place] * left_2N.sum(axis=1, keepdims=True) / n
        decision = 0
        if open_S[place] and place >= first:
            probabilities = []
            crossing = not is_first and not locked[0] <= place < locked[1]
            for candidate in range(4 if crossing else 2):
                probability = 1.0
                for lane in range(2):
                    allele = pair_2S[lane ^ (candidate & EXCHANGED), place]
                    right_N = right_2SN[lane ^ (candidate >> 1), place]
                    probability *= (left_2N[lane] * emission(allele, place, True) * right_N).sum()
                probabilities.append(probability)
            decision = int(np.argmax(probabilities))
            posterior_S[place] = probabilities[decision] / sum(probabilities)
            clear_S[place] = sorted(probabilities)[-2] < 0.99 * probabilities[decision]
            if linked or decision != 3:
                decision_S[place] = decision
            linked = True
        if decision & EXCHANGED:
            pair_2S[:, place] = pair_2S[::-1, place]
        for lane in range(2):
            left_2N[lane] *= emission(pair_2S[lane, place], place, known_S[place])
        if decision & EXCHANGED_RIGHT:
            left_2N = left_2N[::-1].copy()
    return decision_S, posterior_S, clear_S


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 70), st.integers(2, 40), st.booleans())
def test_a_pass_is_what_the_reference_says(seed: int, n_places: int, n: int, is_first: bool) -> None:
    rng = np.random.default_rng(seed)
    panel_SN = (rng.random((n_places, n)) < rng.uniform(0.05, 0.95, (n_places, 1))).astype(np.uint8)
    n_targets = int(rng.integers(1, HALF + 1))
    pair_H2S = rng.integers(0, 2, (HALF, 2, n_places)).astype(np.uint8)
    known_HS = rng.random((HALF, n_places)) < 0.9
    open_HS = (pair_H2S[:, 0] != pair_H2S[:, 1]) & known_HS & (rng.random((HALF, n_places)) < 0.8)
    doubtful_HS = open_HS & ((rng.random((HALF, n_places)) < 0.3) | is_first)
    first, stop = sorted(rng.integers(0, n_places + 1, 2).tolist()) if n_places > 8 else (0, n_places)
    stop = max(stop, first + 1) if first < n_places else n_places
    first = min(first, stop - 1)
    locked_H2 = np.sort(rng.integers(0, n_places + 1, (HALF, 2)), axis=1)
    locked_H2[::2] = 2 * n_places
    jump_S = jump_probabilities(np.cumsum(rng.exponential(0.02, n_places)), n)
    patterns = span_patterns(pack_rows(panel_SN), n_places)

    def emissions(known_HS: np.ndarray) -> np.ndarray:
        call_H2S = np.where(known_HS[:, None], pair_H2S, MISSING)
        return group_lanes(allele_emissions(np.concatenate([call_H2S[:, 0], call_H2S[:, 1]]), MISMATCH))[0]

    decided_places = Interval(first, stop)
    right = backward_values(patterns, emissions(known_HS & ~doubtful_HS), jump_S, decided_places)
    found = LaneDecisions.allocate(n_places)
    open_SH = open_HS.T.copy()
    open_SH[:, n_targets:] = False
    emission_S2L = emissions(known_HS)
    lanes = TargetLanes(emission_S2L, emission_S2L, open_SH, ~known_HS[:n_targets].all(axis=0))
    pass_forward(patterns, lanes, jump_S, right, decided_places, locked_H2, is_first, found)
    for h in range(n_targets):
        decision_S, posterior_S, clear_S = reference(
            panel_SN, pair_H2S[h], open_HS[h], known_HS[h], doubtful_HS[h], jump_S, first, stop, is_first,
            locked_H2[h],
        )  # fmt: skip
        decided = open_HS[h] & (np.arange(n_places) >= first) & (np.arange(n_places) < stop)
        # where two alternatives are equal rounding decides, and what follows may differ
        until = int(np.argmin(clear_S)) if not clear_S.all() else n_places
        compared = np.flatnonzero(decided[:until])
        np.testing.assert_array_equal(found.decision_SH[compared, h], decision_S[compared])
        np.testing.assert_allclose(found.posterior_SH[compared, h], posterior_S[compared], rtol=2e-3)
        if until < n_places:
            return


def test_clear_phase_is_found(rng: np.random.Generator) -> None:
    panel, truth_TQ = split(mosaic_panel(rng, 300, 220), 20)
    unphased_TQ, het_TX = without_phase(truth_TQ)
    phased_TQ = run(panel, unphased_TQ, het_TX)
    np.testing.assert_array_equal(
        phased_TQ.reshape(300, -1, 2).sum(axis=2), truth_TQ.reshape(300, -1, 2).sum(axis=2)
    )
    assert switches(unphased_TQ, truth_TQ) > 200  # there is something to do
    assert switches(phased_TQ, truth_TQ) <= 0.03 * het_TX.sum()


def test_a_target_that_is_in_the_panel_is_phased_without_fault(rng: np.random.Generator) -> None:
    panel = mosaic_panel(rng, 2 * CORE + 50, 60)  # several windows: their edges must not show
    truth_TQ = panel.alleles_XN[:, :6].astype(np.int8)
    unphased_TQ, het_TX = without_phase(truth_TQ)
    assert switches(run(panel, unphased_TQ, het_TX), truth_TQ) == 0


def test_targets_help_each_other(rng: np.random.Generator) -> None:
    whole = mosaic_panel(rng, 200, 404, founders=40)
    panel, truth_TQ = split(whole, 400)  # two samples in the panel
    unphased_TQ, het_TX = without_phase(truth_TQ)
    together = switches(run(panel, unphased_TQ, het_TX), truth_TQ)
    alone = sum(
        switches(
            run(panel, unphased_TQ[:, q : q + 2], het_TX[:, q // 2 : q // 2 + 1]), truth_TQ[:, q : q + 2]
        )
        for q in range(0, 400, 2)
    )
    assert together < 0.7 * alone


def test_results_depend_on_neither_threads_nor_panel_order_nor_allele_order(rng: np.random.Generator) -> None:
    panel, truth_TQ = split(mosaic_panel(rng, 120, 80), 20)
    unphased_TQ, het_TX = without_phase(truth_TQ)
    expected = run(panel, unphased_TQ, het_TX)
    np.testing.assert_array_equal(run(panel, unphased_TQ, het_TX, threads=3), expected)
    shuffled = ArrayPanel(np.ascontiguousarray(rng.permutation(panel.alleles_XN, axis=1)), panel.cM)
    np.testing.assert_array_equal(run(shuffled, unphased_TQ, het_TX), expected)
    turned_TQ = unphased_TQ.reshape(120, -1, 2)[:, :, ::-1].reshape(unphased_TQ.shape)
    np.testing.assert_array_equal(run(panel, turned_TQ, het_TX), expected)


@pytest.mark.parametrize("most_others", [5, 30, 2_000])
def test_results_do_not_depend_on_how_many_groups_of_samples_share_a_task(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, most_others: int
) -> None:
    panel, truth_TQ = split(mosaic_panel(rng, 90, 160), 80)
    unphased_TQ, het_TX = without_phase(truth_TQ)
    unphased_TQ[np.repeat(rng.random((90, 40)) < 0.02, 2, axis=1)] = -1
    het_TX &= (unphased_TQ >= 0)[:, ::2]
    monkeypatch.setattr("spinimpute.phasing.phase.MAX_OTHER_HAPLOTYPES", most_others)
    monkeypatch.setattr("spinimpute.phasing.phase.TASKS", 1)
    together = run(panel, unphased_TQ, het_TX, fill=True)
    monkeypatch.setattr("spinimpute.phasing.phase.MAX_GROUPS", 1)
    np.testing.assert_array_equal(run(panel, unphased_TQ, het_TX, fill=True), together)


@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 10**6), most_others=st.sampled_from([7, 2_000]), fill=st.booleans())
def test_the_order_of_samples_does_not_matter(seed: int, most_others: int, fill: bool) -> None:
    """Samples are unphased, phased, partly phased, haploid, or have equal calls."""
    rng = np.random.default_rng(seed)
    panel, truth_TQ = split(mosaic_panel(rng, 90, 120), 60)
    calls_TQ, het_TX = without_phase(truth_TQ)
    calls_TQ[np.repeat(rng.random((90, 30)) < 0.02, 2, axis=1)] = -1
    copied = rng.integers(0, 30, 12)
    ploidy = np.where(np.arange(42) % 7 == 3, 1, 2)
    ploidy[copied] = ploidy[30:] = 2
    calls_TX2 = np.concatenate([calls_TQ.reshape(90, 30, 2), calls_TQ.reshape(90, 30, 2)[:, copied]], axis=1)
    unphased_TX = np.concatenate([het_TX, het_TX[:, copied]], axis=1) & (ploidy == 2)
    unphased_TX[:, 5] = False
    unphased_TX[::2, 6] = False
    unphased_TX &= calls_TX2[:, :, 0] >= 0

    def phased(order: np.ndarray) -> list[bytes]:
        kept_X2 = np.stack([np.ones(42, bool), ploidy[order] == 2], axis=1)
        alleles_TQ = np.ascontiguousarray(calls_TX2[:, order].reshape(90, -1)[:, kept_X2.ravel()])
        phased_TQ = run(panel, alleles_TQ, unphased_TX[:, order], ploidy=ploidy[order], fill=fill)
        samples = np.split(phased_TQ, np.cumsum(ploidy[order])[:-1], axis=1)
        return [samples[place].tobytes() for place in np.argsort(order)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("spinimpute.phasing.phase.MAX_OTHER_HAPLOTYPES", most_others)
        assert phased(rng.permutation(42)) == phased(np.arange(42))


def test_known_phase_stays(rng: np.random.Generator) -> None:
    panel, truth_TQ = split(mosaic_panel(rng, 150, 80), 20)
    unphased_TQ, het_TX = without_phase(truth_TQ)
    # known phase that the panel contradicts, at every third heterozygote of the odd samples
    known_TX = het_TX & (np.cumsum(het_TX, axis=0) % 3 == 0)
    known_TX[:, ::2] = False
    given_TX2 = unphased_TQ.reshape(150, -1, 2).copy()
    random_TX = known_TX & (rng.random(known_TX.shape) < 0.5)
    given_TX2[random_TX] = given_TX2[random_TX][:, ::-1]
    phased_TX2 = run(panel, given_TX2.reshape(150, -1), het_TX & ~known_TX).reshape(150, -1, 2)
    for x in range(10):
        at = np.flatnonzero(known_TX[:, x])
        relation = phased_TX2[at, x, 0] == given_TX2[at, x, 0]
        assert relation.all() or not relation.any()
    assert known_TX.sum() > 50
    untouched = run(panel, given_TX2.reshape(150, -1), np.zeros_like(het_TX))
    np.testing.assert_array_equal(untouched, given_TX2.reshape(150, -1))


def test_missing_calls_stay_or_are_filled(rng: np.random.Generator) -> None:
    panel, truth_TQ = split(mosaic_panel(rng, 150, 220), 20)
    unphased_TQ, het_TX = without_phase(truth_TQ)
    missing_TX = rng.random(het_TX.shape) < 0.05
    missing_TQ = np.repeat(missing_TX, 2, axis=1)
    calls_TQ = np.where(missing_TQ, -1, unphased_TQ).astype(np.int8)
    phased_TQ = run(panel, calls_TQ, het_TX & ~missing_TX)
    np.testing.assert_array_equal(phased_TQ < 0, missing_TQ)
    filled_TX = run(panel, calls_TQ, het_TX & ~missing_TX, fill=True).reshape(150, -1, 2).sum(axis=2)
    right_TX = filled_TX == truth_TQ.reshape(150, -1, 2).sum(axis=2)
    assert right_TX[~missing_TX].all()
    assert right_TX[missing_TX].mean() > 0.95
    assert missing_TX.sum() > 50


def test_the_second_of_two_alleles_is_filled_alone(rng: np.random.Generator) -> None:
    """A phased call may lack one of its alleles."""
    panel, truth_TQ = split(mosaic_panel(rng, 150, 220), 4)
    _, het_TX = without_phase(truth_TQ)
    for column in (0, 1):
        calls_TQ = truth_TQ[:, :2].copy()
        missing_T = (rng.random(150) < 0.3) & ~het_TX[:, 0]
        calls_TQ[missing_T, column] = -1
        filled_TQ = run(panel, calls_TQ, np.zeros((150, 1), bool), fill=True)
        assert truth_TQ[missing_T, column].sum() > 5
        assert (filled_TQ[missing_T, column] == truth_TQ[missing_T, column]).mean() > 0.9


def test_haploid_samples_are_left_alone_and_one_sample_and_site_will_do(rng: np.random.Generator) -> None:
    panel, truth_TQ = split(mosaic_panel(rng, 60, 43), 3)
    calls_TQ = truth_TQ.copy()
    het_T = calls_TQ[:, 1] != calls_TQ[:, 2]
    unphased_TX = np.stack([np.zeros(60, bool), het_T], axis=1)
    phased_TQ = run(panel, calls_TQ, unphased_TX, ploidy=np.array([1, 2], np.uint8))
    np.testing.assert_array_equal(phased_TQ[:, 0], truth_TQ[:, 0])
    np.testing.assert_array_equal(phased_TQ[:, 1:].sum(axis=1), truth_TQ[:, 1:].sum(axis=1))
    one = ArrayPanel(panel.alleles_XN[:1], panel.cM[:1])
    np.testing.assert_array_equal(run(one, np.array([[1, 0]], np.int8), np.array([[True]])).sum(axis=1), [1])


def test_two_alternatives_of_one_place_lie_apart(rng: np.random.Generator) -> None:
    panel, _ = split(mosaic_panel(rng, 40, 40), 2)
    panel.position[21] = panel.position[20]
    calls_TQ = np.zeros((40, 2), np.int8)
    calls_TQ[[5, 20, 21, 30], 1] = 1
    het_TX = (calls_TQ[:, 0] != calls_TQ[:, 1])[:, None]
    phased_TQ = run(panel, calls_TQ, het_TX)
    np.testing.assert_array_equal(phased_TQ[20], phased_TQ[21][::-1])


@pytest.mark.parametrize("name", ["chr22_1kg"])
def test_real_people_are_phased_about_as_well_as_by_the_best(shared_genotypes, name, tmp_path) -> None:  # type: ignore[no-untyped-def]
    import spinimpute
    from spinimpute.vcf.reader import read_haplotypes

    folder = shared_genotypes / name
    panel = tmp_path / "panel.spin"
    spinimpute.build_panel(
        folder / "panel.bcf", panel, shared_genotypes / "maps" / "plink.chr22.GRCh37.map"
    ).close()
    spinimpute.phase(folder / "target.unphased.vcf.gz", tmp_path / "phased.bcf", panel, threads=2)
    truth = read_haplotypes(folder / "target.phased.bcf").alleles
    phased = read_haplotypes(tmp_path / "phased.bcf").alleles
    n_links = (truth[:, ::2] != truth[:, 1::2]).sum() - truth.shape[1] // 2
    assert switches(phased, truth) / n_links < 0.018  # Beagle 5.4: 0.0144


def random_targets(seed: int, n_typed: int, n_samples: int) -> tuple[np.random.Generator, Targets]:
    """Samples to phase among other haplotypes."""
    rng = np.random.default_rng(seed)
    n_haplotypes = 2 * n_samples + int(rng.integers(4))
    first_X = rng.permutation(n_haplotypes // 2)[:n_samples] * 2
    column_X2 = np.stack([first_X, first_X + 1], axis=1).astype(np.int64)
    alleles_TQ = rng.integers(0, 2, (n_typed, n_haplotypes)).astype(np.uint8)
    known_TQ = rng.random(alleles_TQ.shape) < 0.8
    het_TX = alleles_TQ[:, column_X2[:, 0]] != alleles_TQ[:, column_X2[:, 1]]
    open_TX = np.ascontiguousarray(het_TX & known_TQ[:, column_X2].all(axis=2))
    mismatch_T = rng.uniform(0.001, 0.5, n_typed).astype(np.float32)
    none = np.empty(0, np.int64)
    return rng, Targets(alleles_TQ, known_TQ, open_TX, column_X2, none, none[:, None], mismatch_T)


sizes = given(st.integers(0, 10**6), st.integers(1, 40), st.integers(1, 2 * HALF))


@settings(deadline=None, max_examples=30)
@sizes
def test_lanes_hold_the_calls_of_targets(seed: int, n_typed: int, n_samples: int) -> None:
    rng, targets = random_targets(seed, n_typed, n_samples)
    doubtful_TX = targets.open_TX & (rng.random(targets.open_TX.shape) < 0.3)
    first_site, start = int(rng.integers(n_typed)), int(rng.integers(n_samples))
    group = Interval(start, min(start + HALF, n_samples))
    lanes = TargetLanes.allocate(n_typed - first_site)
    other = targets._replace(
        alleles_TQ=1 - targets.alleles_TQ,
        known_TQ=~targets.known_TQ,
        open_TX=~targets.open_TX,
        mismatch_T=targets.mismatch_T[::-1].copy(),
    )
    fill_lanes(other, ~doubtful_TX, first_site, Interval(0, 1), lanes)  # must leave nothing
    fill_lanes(targets, doubtful_TX, first_site, group, lanes)
    samples = np.minimum(np.arange(start, start + HALF), group.stop - 1)
    column_L = targets.column_X2[samples].T.ravel()
    known_SL = targets.known_TQ[first_site:, column_L]
    call_SL = np.where(known_SL, targets.alleles_TQ[first_site:, column_L], MISSING)
    seen_SL = np.where(np.tile(doubtful_TX[first_site:, samples], 2), MISSING, call_SL)
    for found_S2L, expected_SL in ((lanes.call_S2L, call_SL), (lanes.confident_S2L, seen_SL)):
        emission_LS2 = allele_emissions(expected_SL.T, targets.mismatch_T[first_site:])
        np.testing.assert_array_equal(found_S2L, group_lanes(emission_LS2)[0])
    n = group.stop - group.start
    np.testing.assert_array_equal(lanes.open_SH[:, :n], targets.open_TX[first_site:, group.slice])
    assert not lanes.open_SH[:, n:].any()
    np.testing.assert_array_equal(lanes.wanted_S, ~known_SL.all(axis=1))


@settings(deadline=None, max_examples=30)
@sizes
def test_decisions_are_applied_from_left_to_right(seed: int, n_typed: int, n_samples: int) -> None:
    rng, targets = random_targets(seed, n_typed, n_samples)
    alternatives = [0, EXCHANGED, EXCHANGED_RIGHT, EXCHANGED | EXCHANGED_RIGHT]
    decision_TX = np.where(targets.open_TX, rng.choice(alternatives, targets.open_TX.shape), 0).astype(
        np.uint8
    )
    likely_T2X = rng.random((n_typed, 2, n_samples)) < 0.5
    expected_TQ = targets.alleles_TQ.copy()
    for x, columns in enumerate(targets.column_X2):
        behind = False
        for t in range(n_typed):
            pair = list(expected_TQ[t, columns])
            if decision_TX[t, x] & EXCHANGED:
                pair.reverse()
            pair = [
                allele if targets.known_TQ[t, column] else int(likely)
                for allele, column, likely in zip(pair, columns, likely_T2X[t, :, x], strict=True)
            ]
            expected_TQ[t, columns] = pair[::-1] if behind else pair
            behind ^= bool(decision_TX[t, x] & EXCHANGED_RIGHT)
    apply_decisions(targets, Decisions(decision_TX, np.ones(decision_TX.shape, np.float32), likely_T2X))
    np.testing.assert_array_equal(targets.alleles_TQ, expected_TQ)


@settings(deadline=None, max_examples=30)
@sizes
def test_the_majority_wins(seed: int, n_typed: int, n_samples: int) -> None:
    rng, targets = random_targets(seed, n_typed, n_samples)
    votes_TX = np.zeros(targets.open_TX.shape, np.int8)
    same_VTX = rng.random((3, *targets.open_TX.shape)) < 0.5  # ALT lies where it lay before
    for same_TX in same_VTX:
        for x, (first, second) in enumerate(targets.column_X2):
            last = 0
            for t in np.flatnonzero(targets.open_TX[:, x]):
                last = last if same_TX[t, x] else 1 - last
                targets.alleles_TQ[t, [first, second]] = last, 1 - last
        vote(targets, votes_TX)
    np.testing.assert_array_equal(
        votes_TX, np.where(targets.open_TX, (2 * same_VTX.astype(int) - 1).sum(axis=0), 0)
    )
    before_TQ, free_X = targets.alleles_TQ.copy(), rng.random(n_samples) < 0.7
    apply_votes(targets, free_X, votes_TX)
    for x, (first, second) in enumerate(targets.column_X2):
        if not free_X[x]:
            np.testing.assert_array_equal(
                targets.alleles_TQ[:, [first, second]], before_TQ[:, [first, second]]
            )
            continue
        last = 0
        for t in np.flatnonzero(targets.open_TX[:, x]):
            last = last if same_VTX[:, t, x].sum() >= 2 else 1 - last
            assert tuple(targets.alleles_TQ[t, [first, second]]) == (last, 1 - last)
