"""Genetic maps in their three forms, interpolation, extrapolation, and files that are no map."""

import gzip
import tracemalloc
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spinimpute.genotypes.genetic_map import GeneticMap
from spinimpute.runtime.errors import InputError

pytestmark = pytest.mark.slow

POINTS = [(100, 0.5), (200, 0.5), (1100, 2.0)]
FORMS = {
    "plink": "".join(f"20 . {cM} {position}\n" for position, cM in POINTS),
    "plink_several": "19 . 7 50\n19 . 8 60\n"
    + "".join(f"chr20 rs {cM} {pos}\n" for pos, cM in POINTS)
    + "21 . 0 1\n",
    "shapeit": "pos\tchr\tcM\n" + "".join(f"{position}\t20\t{cM}\n" for position, cM in POINTS),
    "hapmap": "Chromosome\tPosition(bp)\tRate(cM/Mb)\tMap(cM)\n"
    + "".join(f"chr20\t{position}\t1.5\t{cM}\n" for position, cM in POINTS),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("chrom", ["20", "chr20"])
def test_all_forms_give_the_same_map(tmp_path: Path, form: str, compressed: bool, chrom: str) -> None:
    path = tmp_path / "any_name.txt"
    content = FORMS[form].encode()
    path.write_bytes(gzip.compress(content) if compressed else content)
    genetic_map = GeneticMap.read(path, chrom)
    np.testing.assert_allclose(
        genetic_map.cM(np.array([100, 150, 200, 650, 1100])), [0.5, 0.5, 0.5, 1.25, 2.0]
    )
    assert (genetic_map.first_position, genetic_map.last_position) == (100, 1100)
    assert "any_name.txt" in genetic_map.description
    assert "3 points" in genetic_map.description


def test_beyond_the_ends_the_mean_rate_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "map"
    path.write_text(FORMS["plink"])
    mean = 1.5 / 1000
    cM = GeneticMap.read(path, "20").cM(np.array([[1, 99], [1101, 5000]]))
    np.testing.assert_allclose(cM, [[0.5 - 99 * mean, 0.5 - mean], [2 + mean, 2 + 3900 * mean]])
    assert cM.dtype == np.float64


def test_constant_map() -> None:
    np.testing.assert_allclose(GeneticMap.constant().cM(np.array([1, 10**6, 2 * 10**8])), [1e-6, 1, 200])
    np.testing.assert_allclose(GeneticMap.constant(2.5).cM(np.array([10**6])), [2.5])
    assert GeneticMap.constant(2.5).description == "constant 2.5 cM/Mb"
    for rate in (0, -1, float("nan"), float("inf")):
        with pytest.raises(InputError, match="positive"):
            GeneticMap.constant(rate)


@settings(deadline=None)
@given(st.lists(st.integers(1, 10**8), min_size=2, max_size=20, unique=True).map(sorted), st.data())
def test_map_is_non_decreasing_and_passes_through_its_points(
    positions: list[int], data: st.DataObject
) -> None:
    steps = data.draw(st.lists(st.floats(0, 5), min_size=len(positions), max_size=len(positions)))
    steps[-1] += 0.1
    cM = np.cumsum(steps)
    genetic_map = GeneticMap(np.array(positions), cM)
    np.testing.assert_allclose(genetic_map.cM(np.array(positions)), cM)
    anywhere = np.sort(data.draw(st.lists(st.integers(1, 3 * 10**8), min_size=2, max_size=50)))
    assert (np.diff(genetic_map.cM(anywhere)) >= 0).all()


BAD = {
    "other_chromosome": ("19 . 0 1\n19 . 1 2\n", r"no row of chromosome 20, only of 19\."),
    "only_header": ("pos chr cM\n", "no row of chromosome 20"),
    "positions_fall": ("20 . 0 10\n20 . 1 9\n", r"line 2: position 9 after 10"),
    "positions_repeat": ("pos chr cM\n10 20 0\n10 20 1\n", r"line 3: position 10 after 10"),
    "cM_falls": ("20 . 1 10\n\n20 . 0.5 11\n", r"line 3: 0.5 cM after 1 cM"),
    "columns": ("20 . 1 10\n20 . 1\n", r"line 2: 3 columns, but a PLINK map has 4"),
    "position_no_number": ("20 . 1 10\n20 . 1 x\n", r"line 2: the position 'x' is not a whole number"),
    "position_with_underscore": (
        "20 . 1 10\n20 . 1 2_0\n",
        r"line 2: the position '2_0' is not a whole number",
    ),
    "cM_with_underscore": ("20 . 1 10\n20 . 1_2 20\n", r"line 2: the genetic position '1_2' is not a number"),
    "cM_no_number": ("20 . 1 10\n20 . NA 20\n", r"line 2: the genetic position 'NA' is not a number"),
    "cM_not_finite": ("20 . 1 10\n20 . nan 20\n", r"line 2: the genetic position 'nan' is not a number"),
    "one_point": ("20 . 1 10\n", r"one row"),
    "all_zero": ("20 . 0 10\n20 . 0 20\n", "has the genetic position 0 cM"),
    "another_header": (
        "position COMBINED_rate(cM/Mb) Genetic_Map(cM)\n1 2 3\n",
        r"line 1: this is not a genetic map",
    ),
    "prose": ("hello world\n", r"line 1: this is not a genetic map"),
    "empty": (" \n", "empty"),
    "binary": (b"\xff\xfe\x00\x01", "not text"),
    "blank_lines": (b"20 . 1 10\n" + b"\n" * 70_000, r"more than 65,536 empty lines in a row"),
    "cut_gzip": (gzip.compress(b"20 . 1 10\n" * 1000)[:-20], "damaged gzip"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_map_is_refused_with_file_and_line(tmp_path: Path, case: str) -> None:
    content, message = BAD[case]
    path = tmp_path / "bad.map"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError, match=message) as caught:
        GeneticMap.read(path, "20")
    assert str(path) in str(caught.value)


def test_blank_lines_take_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "map.gz"
    path.write_bytes(gzip.compress(b"20 . 1 10\n" + b" \n" * 10**6 + b"20 . 2 20\n"))
    tracemalloc.start()
    assert GeneticMap.read(path, "20").last_position == 20
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 3e6


@pytest.mark.parametrize(
    ("cM", "last", "said"),
    [
        (1.08, 62_000_100, r"1\.08 cM long by this map, 0\.0174 cM/Mb.*in Morgans, multiply .* by 100"),
        (0.02, 1_500_100, r"0\.02 cM long by this map, 0\.0133 cM/Mb.*in Morgans"),
        (170, 1_500_100, r"170 cM long by this map, 113 cM/Mb.*100 times too large, divide"),
        (1_500, 30_000_100, r"1500 cM"),
    ],
)
def test_a_map_that_may_be_in_another_unit(tmp_path: Path, cM: float, last: int, said: str) -> None:
    """Maps of whole chromosomes are refused; yeast and some regions have such rates."""
    path = tmp_path / "other.map"
    path.write_text(f"20 . 0 100\n20 . {cM} {last}\n")
    if last > 20_000_000:
        with pytest.raises(InputError, match=said):
            GeneticMap.read(path, "20")
    else:
        with pytest.warns(UserWarning, match=said):
            GeneticMap.read(path, "20")


@pytest.mark.parametrize(
    ("cM", "last"), [(0.009, 900_000), (300, 900_000), (26, 1_000_100), (0.2, 2_000_100)]
)
def test_what_some_species_or_small_regions_have_is_accepted(tmp_path: Path, cM: float, last: int) -> None:
    path = tmp_path / "true.map"
    path.write_text(f"20 . 0 100\n20 . {cM} {last}\n")
    with warnings.catch_warnings(action="error"):
        GeneticMap.read(path, "20")


def test_missing_map_and_folder_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "absent.map", tmp_path):
        with pytest.raises(InputError, match="cannot read the genetic map"):
            GeneticMap.read(path, "20")


def test_real_maps_agree_between_forms(shared_genotypes: Path) -> None:
    maps = shared_genotypes / "maps"
    positions = np.arange(1, 64_000_000, 9_973)
    plink = GeneticMap.read(maps / "plink.chr20.GRCh37.map", "chr20")
    shapeit = GeneticMap.read(maps / "chr20.b37.gmap.gz", "20")
    np.testing.assert_allclose(plink.cM(positions), shapeit.cM(positions), atol=1e-5)
