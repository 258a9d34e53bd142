"""Relatives share what such relatives share."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spinimpute.training.pedigrees import (
    TWIN,
    Mosaic,
    add_relatives,
    family,
    founder,
    gather_alleles,
    meiosis,
)

N_SITES, LENGTH_CM = 2_000, 50.0
CM = np.linspace(0, LENGTH_CM, N_SITES)


def unlike_founders(n_haplotypes: int) -> np.ndarray:
    """Whose allele it is can be read off: haplotype h is h everywhere."""
    return np.tile(np.arange(n_haplotypes, dtype=np.uint8), (N_SITES, 1))


def founders_of(people: list, n_haplotypes: int) -> np.ndarray:
    return gather_alleles(people, unlike_founders(n_haplotypes), CM)


def shared(one_X2: np.ndarray, other_X2: np.ndarray) -> float:
    """Mean number of haplotypes that two people share by descent, 0 to 2."""
    orders = (other_X2, other_X2[:, ::-1])
    return float(np.max([(one_X2 == other).sum(1) for other in orders], axis=0).mean())


@given(seed=st.integers(0, 10_000), length=st.sampled_from([0.0, 1.0, 300.0]))
def test_a_haplotype_passed_on_is_of_the_parent_alone(seed: int, length: float) -> None:
    rng = np.random.default_rng(seed)
    grandparent = meiosis(founder(0, 1), length, rng), meiosis(founder(2, 3), length, rng)
    passed = meiosis(grandparent, length, rng)
    cM = np.linspace(0, length, 500)
    of_parent = np.stack([one.founders_at(cM) for one in grandparent])
    assert (of_parent == passed.founders_at(cM)).any(axis=0).all()
    assert passed.start_I[0] == 0
    assert (np.diff(passed.start_I) > 0).all()


def test_crossovers_are_as_many_as_the_map_says() -> None:
    rng = np.random.default_rng(1)
    pieces = [len(meiosis(founder(0, 1), 200.0, rng).start_I) - 1 for _ in range(2_000)]
    assert np.isclose(np.mean(pieces), 2.0, atol=0.1)
    assert np.isclose(np.var(pieces), 2.0, atol=0.25)


@pytest.mark.parametrize(
    ("kind", "expected"), [("parent", 1.0), ("child", 1.0), ("sib", 1.0), ("cousin", 0.25), (TWIN, 2.0)]
)
def test_relatives_share_half_an_eighth_or_all(kind: str, expected: float) -> None:
    rng = np.random.default_rng(2)
    found = []
    for _ in range(60):
        people = family(kind, iter([founder(2 * i, 2 * i + 1) for i in range(4)]), LENGTH_CM, rng)
        alleles = founders_of(list(people), 8)
        found.append(shared(alleles[::20, :2], alleles[::20, 2:]))
    assert np.isclose(np.mean(found), expected, atol=0.2 if kind in ("sib", "cousin") else 0)


def test_unknown_relatives() -> None:
    with pytest.raises(ValueError, match="aunt"):
        family("aunt", iter([]), 1.0, np.random.default_rng(1))


def test_pieces_at_their_edges() -> None:
    one = Mosaic(np.array([0.0, 1.0]), np.array([4, 7]))
    assert one.founders_at(np.array([-1.0, 0.0, 0.999, 1.0, 9.0])).tolist() == [4, 4, 4, 7, 7]


@given(seed=st.integers(0, 10_000), share=st.sampled_from([0.0, 0.5, 1.0]))
def test_relatives_lie_in_the_context(seed: int, share: float) -> None:
    rng = np.random.default_rng(seed)
    before = unlike_founders(60)
    after = before.copy()
    queries, context = np.arange(8).reshape(-1, 2), np.arange(8, 60).reshape(-1, 2)
    add_relatives(after, CM + 3.0, queries, context, rng, share)
    replaced = [pair for pair in context if (after[:, pair] != before[:, pair]).any()]
    if share != 0.5:
        assert len(replaced) == 4 * share
    # who has been replaced is of founders of one query's family, cousins perhaps of nobody that it knows
    for pair in replaced:
        families = [np.isin(after[:, pair], after[:, columns]).any() for columns in queries]
        assert sum(families) <= 1


def test_a_context_that_is_used_up_leaves_the_rest_unrelated() -> None:
    alleles = unlike_founders(10)
    add_relatives(alleles, CM, np.arange(8).reshape(-1, 2), np.array([[8, 9]]), np.random.default_rng(3), 1.0)
    assert np.array_equal(alleles[:, 2:8], unlike_founders(10)[:, 2:8])
