"""What is wrong with a target as a whole: sites, builds and frequencies."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from spinimpute.genotypes.haplotypes import Haplotypes
from spinimpute.genotypes.sites import SiteMatch, Sites, match_sites
from spinimpute.pipeline.matched_target import MatchedTarget
from spinimpute.pipeline.verdicts import Verdict, check_called, check_site_overlap, verdicts
from spinimpute.runtime.errors import InputError

BUILDS = {"GRCh37": "##contig=<ID=20,length=63025520>", "GRCh38": "##contig=<ID=20,length=64444167>"}


def make_sites(keys: list[tuple[int, str, str]]) -> Sites:
    position = np.array([key[0] for key in keys], np.int64)
    return Sites("20", position, [key[1] for key in keys], [key[2] for key in keys], ["."] * len(keys))


def test_hardly_any_site_alike_is_refused():
    panel = make_sites([(10 * i, "A", "C") for i in range(1, 201)])
    good = [(10 * i, "A", "C") for i in range(1, 4)]
    wrong = [(10 * i + 1, "A", "C") for i in range(4, 60)]
    outside = [(5_000 + i, "A", "C") for i in range(100)]
    target = make_sites([*good, *wrong, *outside])
    (verdict,) = check_site_overlap(panel, target, match_sites(panel, target))
    assert verdict.refused
    assert "only 3 of the 59 target sites" in verdict.text
    assert "position not in panel: 156; the first is 20:41 A>C" in verdict.text
    assert (
        "another genome build than the panel. Lift the target over (chain=...), or add force=True"
        in verdict.text
    )
    for fine in ([*good, *outside], [*good, *wrong[:19]], [(10 * i, "A", "C") for i in range(1, 9)] + wrong):
        sites = make_sites(fine)
        assert check_site_overlap(panel, sites, match_sites(panel, sites)) == []


@pytest.mark.parametrize(("n_wrong", "refused"), [(0, False), (150, False), (250, True)])
def test_another_build_in_the_header(n_wrong, refused):
    panel = make_sites([(10 * i, "A", "C") for i in range(1, 401)])
    target = make_sites([(10 * i + (i <= n_wrong), "A", "C") for i in range(1, 401)])
    (verdict,) = check_site_overlap(panel, target, match_sites(panel, target), ("GRCh38", "GRCh37"))
    assert verdict.refused == refused
    said = "y the chromosome lengths in the headers, the target is on GRCh38 and the panel on GRCh37"
    assert said in verdict.text
    assert f"{400 - n_wrong} of " in verdict.text


def judged(
    rng: np.random.Generator, n_samples: int, frequency: Any, build: str = "GRCh37", lifted: bool = False
) -> list[Verdict]:
    """Of a target whose ALT alleles have the frequencies frequency(panel's)."""
    n_sites = 600
    expected_T = rng.beta(0.8, 1.6, n_sites)
    sites = make_sites([(10 * i, "A", "C") for i in range(1, n_sites + 1)])
    alleles = (rng.random((n_sites, 2 * n_samples)) < frequency(expected_T)[:, None]).astype(np.int8)
    alleles[rng.random(alleles.shape) < 0.02] = -1
    target = Haplotypes(
        sites, alleles, [f"s{i}" for i in range(n_samples)], np.full(n_samples, 2), BUILDS[build]
    )
    panel: Any = SimpleNamespace(
        sites=sites, chrom="20", contig_line=BUILDS["GRCh37"], frequency=expected_T, n_haplotypes=1_000
    )
    every = np.arange(n_sites)
    return verdicts(panel, target, SiteMatch(every, every, {}, {}), lifted=lifted)


@pytest.mark.parametrize("n_samples", [1, 10, 400])
def test_frequencies(rng, n_samples):
    def drifted(p_T: np.ndarray) -> np.ndarray:
        """As of another continent's people: F_ST is 0.15."""
        return rng.beta(p_T * 0.85 / 0.15, (1 - p_T) * 0.85 / 0.15)

    assert judged(rng, n_samples, lambda p_T: p_T) == []
    (exchanged,) = judged(rng, n_samples, lambda p_T: 1 - p_T)
    assert exchanged.refused == (n_samples > 1)  # what a single sample shows may be chance
    assert "REF and ALT, or their calls, are probably exchanged" in exchanged.text
    assert ("is as common as REF is in the panel" in exchanged.text) == (n_samples > 1)
    others = judged(rng, n_samples, drifted)
    assert [verdict.refused for verdict in others] == ([False] if n_samples == 400 else [])
    a_quarter = judged(rng, n_samples, lambda p_T: np.where(np.arange(len(p_T)) % 4 == 0, 1 - p_T, p_T))
    assert [verdict.refused for verdict in a_quarter] == ([False] if n_samples > 1 else [])


def test_one_haplotype_many_times_is_not_refused(rng):
    """An inbred line: at sites where it has the rarer alleles ALT is as common as REF is in the panel."""
    some = rng.random(600) < 0.4

    def line(p_T: np.ndarray) -> np.ndarray:
        return np.where(some[: len(p_T)], p_T < 0.5, p_T >= 0.5).astype(float)

    assert not any(verdict.refused for verdict in judged(rng, 200, line))


def test_calls_by_site_and_by_sample():
    """Sample b is haploid, c has no call at a site of the panel."""
    sites = make_sites([(10 * i, "A", "C") for i in range(1, 5)])
    alleles = np.array(
        [[-1, -1, -1, -1, -1], [-1, -1, 1, -1, -1], [0, 1, -1, -1, -1], [0, 0, 0, 0, 0]], np.int8
    )
    target = Haplotypes(sites, alleles, ["a", "b", "c"], np.array([2, 1, 2], np.uint8), BUILDS["GRCh37"])
    match = SiteMatch(np.array([3, 5, 8]), np.array([0, 1, 2]), {}, {})
    nothing: Any = None
    called = MatchedTarget(nothing, nothing, target, match, []).call_presence
    assert called.sites_T.tolist() == [False, True, True]
    assert called.samples_X.tolist() == [True, True, False]


def test_samples_without_a_call():
    assert check_called("t.vcf", "20", ["a", "b"], np.array([True, True])) == []
    names = list("abcdefgh")
    (warning,) = check_called("t.vcf", "20", names, np.arange(8) == 0)
    assert warning.startswith(
        "7 of 8 samples have no call at any panel site of 20 (b, c, d, e, f and 2 more)"
    )
    with pytest.raises(InputError, match=r"target t\.vcf: all genotypes on 20 are missing"):
        check_called("t.vcf", "20", names, np.zeros(8, bool))


def test_the_header_of_a_lifted_target_is_past(rng):
    assert judged(rng, 5, lambda p_T: p_T, "GRCh38", lifted=True) == []
    (told,) = judged(rng, 5, lambda p_T: p_T, "GRCh38")
    assert not told.refused
    assert "600 of 600 sites are panel sites: is one header wrong?" in told.text
