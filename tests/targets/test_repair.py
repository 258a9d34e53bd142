"""Swapped alleles and other strands: what is repaired, what is left out, and that genotypes stay the same."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spinimpute.genotypes.haplotypes import Haplotypes
from spinimpute.genotypes.sites import DUPLICATE, NoMatch, Sites
from spinimpute.runtime.errors import InputError
from spinimpute.targets.repair import (
    BOTH,
    OTHER_STRAND,
    STRAND_BY_FREQUENCY,
    STRAND_UNKNOWN,
    SWAPPED,
    RepairedTarget,
    repair_and_match,
)

OTHER = {"A": "T", "C": "G", "G": "C", "T": "A"}


def sites(keys: list[tuple[int, str, str]]) -> Sites:
    return Sites(
        "20",
        np.array([key[0] for key in keys], dtype=np.int64),
        [key[1] for key in keys],
        [key[2] for key in keys],
        [f"s{i}" for i in range(len(keys))],
    )


def target_of(keys: list[tuple[int, str, str]], alleles: np.ndarray) -> Haplotypes:
    n = alleles.shape[1] // 2
    return Haplotypes(
        sites(keys),
        alleles.astype(np.int8),
        [f"p{i}" for i in range(n)],
        np.full(n, 2, np.uint8),
        "##contig=<ID=20>",
    )


def repair(
    panel: list[tuple[int, str, str]],
    target: list[tuple[int, str, str]],
    alleles: np.ndarray | None = None,
    frequency: float | list[float] = 0.2,
    ambiguous: str = "frequency",
) -> RepairedTarget:
    alleles = np.tile([0, 1], (len(target), 1)) if alleles is None else alleles
    frequencies = np.broadcast_to(np.asarray(frequency, float), len(panel))
    return repair_and_match(sites(panel), frequencies, target_of(target, alleles), ambiguous)


@pytest.mark.parametrize(
    ("ref", "alt", "what", "exchanged"),
    [
        ("A", "C", None, False),
        ("a", "c", None, False),
        ("C", "A", SWAPPED, True),
        ("T", "G", OTHER_STRAND, False),
        ("G", "T", BOTH, True),
    ],
)
def test_each_form_of_a_site(ref: str, alt: str, what: str | None, exchanged: bool) -> None:
    alleles = np.array([[0, 1, 1, -1]])
    done = repair([(10, "A", "C")], [(10, ref, alt)], alleles)
    assert [r.what for r in done.repairs] == ([] if what is None else [what])
    assert done.match.panel_index.tolist() == [0]
    assert done.target.alleles.tolist() == ([[1, 0, 0, -1]] if exchanged else [[0, 1, 1, -1]])
    if what is not None:
        (note,) = done.repairs
        assert (note.position, note.ref, note.alt, note.panel_ref, note.panel_alt) == (10, ref, alt, "A", "C")


def test_nothing_but_ambiguous_sites_is_said_so() -> None:
    panel = [(10, "A", "T"), (20, "C", "G"), (30, "A", "C")]
    with pytest.raises(NoMatch, match=r"all 2 typed sites in the panel are A/T or C/G .* ambiguous='keep'"):
        repair(panel, panel[:2], ambiguous="drop")
    with pytest.raises(NoMatch, match=r"no target site is in the panel.* 2 more are A/T or C/G"):
        repair(panel, [*panel[:2], (31, "A", "C")], ambiguous="drop")


def test_the_callers_alleles_are_not_changed() -> None:
    alleles = np.array([[0, 1]], np.int8)
    repair([(10, "A", "C")], [(10, "C", "A")], alleles)
    assert alleles.tolist() == [[0, 1]]


def test_indels_swap_but_have_no_strand() -> None:
    done = repair([(10, "AT", "A"), (20, "A", "AT")], [(10, "A", "AT"), (20, "T", "TA")])
    assert done.counts() == {SWAPPED: 1}
    assert done.match.unmatched == {"alleles differ from the panel": 1}


def test_a_repaired_site_never_displaces_an_exact_one() -> None:
    done = repair([(10, "A", "C")], [(10, "C", "A"), (10, "A", "C")], np.array([[0, 0], [1, 1]]))
    assert done.repairs == []
    assert done.match.target_index.tolist() == [1]


def test_duplicates_are_still_duplicates() -> None:
    done = repair([(10, "A", "C")], [(10, "C", "A"), (10, "C", "A")])
    assert done.counts() == {SWAPPED: 2}
    assert done.match.unmatched == {DUPLICATE: 1}


@settings(deadline=None)
@given(st.permutations(range(4)))
def test_which_calls_of_the_same_site_win_whatever_their_order(order: list[int]) -> None:
    """Columns: samples of two haplotypes, in each of which something else is to win."""
    calls = np.array(
        [
            [-1, -1, 0, 0, 0, 1, -1, 1, -1, -1, 0, 0, 0, 1],
            [0, 1, -1, -1, 1, 0, -1, -1, -1, -1, 1, 1, -1, -1],
            [-1, -1, 0, -1, 0, 1, 1, 1, -1, -1, 0, 0, 0, 1],
            [-1, -1, 0, 0, 0, 1, -1, -1, -1, -1, 0, 0, 0, 0],
        ]
    )[order]
    done = repair([(10, "A", "C"), (20, "A", "C")], [*[(10, "A", "C")] * 4, (20, "A", "C")],
                  np.vstack([calls, np.zeros(14)]))  # fmt: skip
    assert done.contradictory == 2
    first = done.match.target_index[0]
    assert done.target.alleles[first].tolist() == [0, 1, 0, 0, 0, 1, 1, 1, *[-1] * 6]
    assert done.target.unphased is not None
    assert done.target.unphased[first].tolist() == [False, False, True, *[False] * 4]


def test_a_phased_call_wins_over_an_unphased_one_of_the_same_site() -> None:
    target = replace(
        target_of([(10, "A", "C")] * 2, np.array([[0, 1, 1, 1, 0, 0], [1, 0, 0, 1, 1, 1]])),
        unphased=np.array([[True, False, False], [False, True, False]]),
    )
    done = repair_and_match(sites([(10, "A", "C")]), np.array([0.2]), target)
    assert done.target.alleles[0].tolist() == [1, 0, -1, -1, -1, -1]
    assert done.target.unphased is not None
    assert done.target.unphased[0].tolist() == [False, False, False]
    assert done.contradictory == 2
    assert target.alleles[0].tolist() == [0, 1, 1, 1, 0, 0]


def test_alternatives_of_one_record_are_not_exchanged() -> None:
    # 0 stands for REF and the other ALT: exchanging 0 and 1 would make C of G
    done = repair([(10, "C", "A"), (10, "A", "G")], [(10, "A", "C"), (10, "A", "G")])
    assert done.repairs == []
    assert done.match.panel_index.tolist() == [1]


PLAIN = [(i, "A", "C") for i in range(1, 9)]
FLIPPED = [(i, "T", "G") for i in range(1, 9)]


@pytest.mark.parametrize("ambiguous", ["frequency", "keep"])
def test_without_strand_flips_letters_are_believed(ambiguous: str) -> None:
    rare_in_panel_common_here = np.ones((9, 20))
    done = repair(
        [*PLAIN, (10, "A", "T")], [*PLAIN, (10, "A", "T")], rare_in_panel_common_here, 0.01, ambiguous
    )
    assert done.repairs == []
    swapped = repair([(10, "A", "T")], [(10, "T", "A")], np.array([[1, 1]]), 0.01, ambiguous)
    assert swapped.counts() == {SWAPPED: 1}
    assert swapped.target.alleles.tolist() == [[0, 0]]


def test_drop_leaves_every_ambiguous_site_out() -> None:
    done = repair([*PLAIN, (10, "C", "G")], [*PLAIN, (10, "C", "G")], ambiguous="drop")
    assert done.counts() == {STRAND_UNKNOWN: 1}
    assert len(done.target.sites) == 8
    assert done.target_index.tolist() == list(range(8))


@pytest.mark.parametrize(
    ("n_alt", "written", "what", "alleles_alt"),
    [
        (2, ("A", "T"), None, 2),  # as rare as in the panel
        (98, ("A", "T"), STRAND_BY_FREQUENCY, 2),  # as rare as in the panel once exchanged
        (98, ("T", "A"), SWAPPED, 2),
        (2, ("T", "A"), STRAND_BY_FREQUENCY, 2),  # swapped and on the other strand
    ],
)
def test_frequency_decides_in_a_file_with_flips(
    n_alt: int, written: tuple[str, str], what: str | None, alleles_alt: int
) -> None:
    half = [*PLAIN[:4], *FLIPPED[4:]]
    alleles = np.zeros((9, 100))
    alleles[8, :n_alt] = 1
    done = repair([*PLAIN, (10, "A", "T")], [*half, (10, *written)], alleles, 0.05)
    assert done.counts().get(OTHER_STRAND) == 4
    assert [r.what for r in done.repairs if r.position == 10] == ([] if what is None else [what])
    assert int(done.target.alleles[8].sum()) == alleles_alt


def test_even_frequencies_decide_nothing() -> None:
    alleles = np.tile([0, 1], (9, 50))
    done = repair([*PLAIN, (10, "A", "T")], [*FLIPPED, (10, "A", "T")], alleles, 0.5)
    # all other sites are on the other strand: so is this one, as far as one can tell
    assert done.counts()[STRAND_UNKNOWN] == 1
    assert 10 not in done.target.sites.position


def test_unknown_treatment() -> None:
    with pytest.raises(InputError, match=r"one of frequency, keep, drop, got 'guess'"):
        repair(PLAIN, PLAIN, ambiguous="guess")


@settings(deadline=None)
@given(st.integers(0, 10**6))
def test_planted_damage_is_found_and_undone(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = 40
    panel = [(i + 1, *rng.choice(list("ACGT"), 2, replace=False).tolist()) for i in range(n)]
    truth = (rng.random((n, 60)) < rng.uniform(0.02, 0.3, (n, 1))).astype(np.int8)
    target, alleles, planted = [], truth.copy(), {}
    for i, (position, ref, alt) in enumerate(panel):
        kind = rng.integers(0, 4) if OTHER[ref] != alt else 0
        if kind & 1:
            ref, alt = alt, ref
            alleles[i] = 1 - alleles[i]
        if kind & 2:
            ref, alt = OTHER[ref], OTHER[alt]
        target.append((position, ref, alt))
        if kind:
            planted[position] = {1: SWAPPED, 2: OTHER_STRAND, 3: BOTH}[int(kind)]
    done = repair(panel, target, alleles, truth.mean(axis=1).tolist(), ambiguous="keep")
    assert {r.position: r.what for r in done.repairs} == planted
    np.testing.assert_array_equal(done.match.panel_index, np.arange(n))
    np.testing.assert_array_equal(done.target.alleles, truth)
