"""Regions, sites and the matching of a target's sites to a panel's."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spinimpute.genotypes.sites import (
    LAST_POSITION,
    ExclusiveAlleles,
    Region,
    Sites,
    chromosome_names,
    match_sites,
    plain_chromosome,
    same_chromosome,
)
from spinimpute.runtime.errors import InputError


def make_sites(keys: list[tuple[int, str, str]], chrom: str = "20") -> Sites:
    position = np.array([key[0] for key in keys], dtype=np.int64)
    names = [f"site{i}" for i in range(len(keys))]
    return Sites(chrom, position, [key[1] for key in keys], [key[2] for key in keys], names)


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("chr20", "20"),
        ("CHR20", "20"),
        ("20", "20"),
        ("chrX", "X"),
        ("x", "X"),
        ("chrM", "MT"),
        ("MT", "MT"),
        ("chrMT", "MT"),
        ("m", "MT"),
        ("chrxy", "XY"),
        ("chr23", "23"),
        ("9" * 5000, "9" * 5000),
        ("chr", "chr"),
        ("GL000207.1", "GL000207.1"),
    ],
)
def test_plain_chromosome(name: str, plain: str) -> None:
    assert plain_chromosome(name) == plain


@pytest.mark.parametrize(
    ("name", "other", "same"),
    [
        ("chr20", "20", True),
        ("X", "23", False),
        ("chr23", "chrX", True),
        ("25", "X", True),
        ("PAR1", "x", True),
        ("24", "Y", True),
        ("26", "chrM", True),
        ("23", "25", False),  # two autosomes of cattle
        ("23", "Y", False),
        ("20", "22", False),
    ],
)
def test_same_chromosome(name: str, other: str, same: bool) -> None:
    assert same_chromosome(name, other) == same


@pytest.mark.parametrize(
    ("chrom", "names", "meant"),
    [
        ("X", ["chr22", "chr23", "chr25"], {"chr23", "chr25"}),
        ("X", ["22", "23", "25", "X"], {"X"}),  # another species
        ("X", ["22", "PAR1", "X", "PAR2", "Y"], {"PAR1", "X", "PAR2"}),
        ("X", ["chrX", "chrXY", "25"], {"chrX", "chrXY"}),
        ("X", ["23", "25", "XY"], {"23", "25", "XY"}),
        ("Y", ["PAR1", "X", "Y"], {"Y"}),
        ("23", ["22", "23", "25", "X"], {"23"}),
        ("X", ["22", "23", "25", "29"], set()),
        ("25", ["22", "X"], set()),
        ("20", ["chr20", "21"], {"chr20"}),
        ("20", ["21"], set()),
    ],
)
def test_names_of_chromosome(chrom: str, names: list[str], meant: set[str]) -> None:
    assert chromosome_names(chrom, names) == meant


@pytest.mark.parametrize(
    ("text", "region"),
    [
        ("20", Region("20", 1, LAST_POSITION)),
        ("chr20:1,000-2,000", Region("chr20", 1000, 2000)),
        ("20:1000-", Region("20", 1000, LAST_POSITION)),
        ("20:1000", Region("20", 1000, 1000)),
        (" X:5-5 ", Region("X", 5, 5)),
    ],
)
def test_region_is_parsed_and_printed(text: str, region: Region) -> None:
    assert Region.parse(text) == region
    assert Region.parse(str(region)) == region


@pytest.mark.parametrize(
    "text", ["", ":1-2", "20:", "20:a-b", "20:5-4", "20:0-4", "20:-4", "20:1-2-3", "20:1:2", "20:,"]
)
def test_bad_region_is_refused_with_its_form(text: str) -> None:
    with pytest.raises(InputError, match=r"20:1000-2000"):
        Region.parse(text)


def test_take_and_concatenate() -> None:
    sites = make_sites([(1, "A", "C"), (2, "a", "g"), (5, "T", "TA")])
    assert sites.keys() == [(1, "A", "C"), (2, "A", "G"), (5, "T", "TA")]
    for chosen in (np.array([2, 0]), np.array([True, False, True]), slice(1, None)):
        taken = sites.take(chosen)
        expected = np.arange(3)[chosen]
        assert taken.id == [f"site{i}" for i in expected]
        assert taken.keys() == [sites.keys()[i] for i in expected]
    assert len(sites.take(np.array([], dtype=np.int64))) == 0
    joined = Sites.concatenate([sites.take(slice(0, 1)), sites.take(slice(1, 3))])
    assert joined.keys() == sites.keys()
    assert joined.id == sites.id


def test_every_reason_is_counted() -> None:
    panel = make_sites([(10, "A", "C"), (10, "A", "G"), (20, "C", "T"), (30, "G", "A")], "chr20")
    target = make_sites(
        [(5, "A", "C"), (10, "a", "g"), (10, "A", "T"), (20, "T", "C"), (30, "G", "A"), (30, "G", "A")]
    )
    match = match_sites(panel, target)
    assert match.panel_index.tolist() == [1, 3]
    assert match.target_index.tolist() == [1, 4]
    assert match.unmatched == {
        "position not in panel": 1,
        "alleles differ from the panel": 1,
        "REF and ALT swapped": 1,
        "duplicate of an earlier typed site": 1,
    }
    assert match.unmatched_index.tolist() == [0, 2, 3]


KEYS = st.lists(
    st.tuples(st.integers(1, 8), st.sampled_from("ACG"), st.sampled_from(["A", "C", "G", "GT"])), max_size=20
).map(lambda keys: sorted(keys, key=lambda key: key[0]))


@settings(deadline=None)
@given(KEYS, KEYS)
def test_matching_equals_brute_force(panel_keys: list, target_keys: list) -> None:
    panel, target = make_sites(panel_keys), make_sites(target_keys)
    pairs: dict[int, int] = {}
    lost, duplicates = [], 0
    for index, key in enumerate(target_keys):
        if key not in panel_keys:
            lost.append(index)
        elif panel_keys.index(key) in pairs:
            duplicates += 1
        else:
            pairs[panel_keys.index(key)] = index
    if not pairs:
        with pytest.raises(InputError, match="no target site is in the panel"):
            match_sites(panel, target)
        return
    match = match_sites(panel, target)
    assert dict(zip(match.panel_index.tolist(), match.target_index.tolist(), strict=True)) == pairs
    assert (np.diff(match.panel_index) > 0).all()
    assert match.unmatched_index.tolist() == lost
    assert sum(match.unmatched.values()) == len(lost) + duplicates


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        (
            make_sites([(10, "A", "C")], "chr21"),
            r"different chromosomes.*panel 20:10-20 \(2 sites\).*chr21:10-10",
        ),
        (make_sites([(100, "A", "C"), (200, "A", "C")]), r"20:10-20.*20:100-200.*another region"),
        (make_sites([(9, "A", "C"), (11, "A", "C")]), r"position not in panel: 2.*genome build"),
        (make_sites([(10, "C", "A"), (20, "T", "C")]), r"REF and ALT swapped: 2.*REF from the reference"),
        (make_sites([(10, "T", "G"), (20, "G", "A")]), r"alleles differ from the panel: 2.*strand"),
        (make_sites([]), r"without sites"),
    ],
)
def test_nothing_in_common_says_why(target: Sites, reason: str) -> None:
    panel = make_sites([(10, "A", "C"), (20, "C", "T")])
    with pytest.raises(InputError, match=reason):
        match_sites(panel, target)


EXCLUSIVE_ROWS = st.lists(
    st.tuples(st.integers(1, 3), st.sampled_from(["A", "AC"]), st.sampled_from(["C", "G", "GT", "TT", "T"])),
    min_size=1,
    max_size=10,
    unique=True,
)


@given(EXCLUSIVE_ROWS, st.data())
def test_a_typed_allele_excludes_the_others_of_its_kind(rows, data):
    position, ref, alt = zip(*sorted(rows), strict=True)
    n = len(rows)
    sites = Sites("20", np.array(position), list(ref), list(alt), ["."] * n)
    is_typed = np.array(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)))
    typed_index = np.flatnonzero(is_typed)
    rng = np.random.default_rng(data.draw(st.integers(0, 100)))
    typed_TQ = rng.integers(-1, 2, (len(typed_index), 4)).astype(np.int8)
    start = data.draw(st.integers(0, n - 1))
    stop = data.draw(st.integers(start + 1, n))
    expected = np.ones((n, 4), np.float32)
    for typed_Q, typed in zip(typed_TQ, typed_index, strict=True):
        for site in range(n):
            same_kind = (len(ref[site]) == len(alt[site])) == (len(ref[typed]) == len(alt[typed]))
            same = (position[site], ref[site]) == (position[typed], ref[typed]) and same_kind
            if same and site != typed:
                expected[site, typed_Q == 1] = 0
    found = np.ones((stop - start, 4), np.float32)
    ExclusiveAlleles.of(sites, typed_index).exclude(start, found, typed_TQ)
    np.testing.assert_array_equal(found, expected[start:stop])
