"""How many copies of X a sample has, from its calls."""

import numpy as np
import pytest

from spinimpute.genotypes.haplotypes import Calls
from spinimpute.genotypes.ploidy import HAPLOID_DIPLOID, ResolvedPloidy, resolve_ploidy
from spinimpute.genotypes.sites import Sites

N = 40


def resolved(
    one_S: np.ndarray, second_S: np.ndarray | None = None, *, haploid_in_males: bool = True
) -> ResolvedPloidy:
    """Resolve one sample whose calls have one allele where `one_S` is true."""
    first = np.arange(N) % 2
    second = np.where(one_S, -2, first if second_S is None else second_S)
    sites = Sites("X", np.arange(1, N + 1) * 10, ["A"] * N, ["C"] * N, [""] * N)
    calls = Calls(sites, np.stack([first, second], axis=1)[:, None, :].astype(np.int8), ["s"], "")
    return resolve_ploidy(calls, np.full(N, np.nan), {}, all_haploid=False, haploid_in_males=haploid_in_males)


@pytest.mark.parametrize("n_one", [1, 4, 20, 36, 40])
def test_a_man_is_told_whatever_the_share_of_his_calls_with_one_allele(n_one: int) -> None:
    found = resolved(np.arange(N) < n_one)
    assert found.haplotypes.ploidy.tolist() == [1]
    assert found.haplotypes.alleles[:, 0].tolist() == [0, 1] * 20
    assert found.set_missing == {}


def test_heterozygous_calls_leave_it_to_the_majority() -> None:
    heterozygous = np.where(np.arange(N) > 30, 1 - np.arange(N) % 2, np.arange(N) % 2)
    woman = resolved(np.arange(N) < 5, heterozygous)
    assert (woman.haplotypes.ploidy.tolist(), woman.set_missing) == ([2], {HAPLOID_DIPLOID: 5})
    assert resolved(np.arange(N) < 30, heterozygous).haplotypes.ploidy.tolist() == [1]


def test_without_calls_of_one_allele_a_sample_stays_diploid() -> None:
    assert resolved(np.zeros(N, bool)).haplotypes.ploidy.tolist() == [2]


def test_where_men_have_two_copies_the_majority_counts() -> None:
    assert resolved(np.arange(N) < 5, haploid_in_males=False).haplotypes.ploidy.tolist() == [2]
