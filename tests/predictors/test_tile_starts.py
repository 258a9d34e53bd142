"""Tiles of a region: which typed sites they see, and how the header of a file states where they lie."""

import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import spinimpute
from spinimpute.genotypes.intervals import Interval
from spinimpute.genotypes.sites import Region
from spinimpute.pipeline.matched_target import MatchedTarget, read_matched
from spinimpute.pipeline.regions import (
    PanelInterval,
    PartToRead,
    RegionSelection,
    keep_needed_sites,
    part_to_read,
)
from spinimpute.pipeline.settings import TargetSettings
from spinimpute.predictors import typed_tiles
from spinimpute.predictors.typed_tiles import (
    MAX_FLANK,
    MAX_STARTS,
    STARTS_LINE,
    TILE_GAPS,
    add_flanks,
    flank_reach,
    read_starts_line,
    starts_line,
    tiles_between,
    typed_sites_of_tiles,
)


def drawn(data: st.DataObject) -> tuple[Any, np.ndarray]:
    """A panel's positions and genetic map, and typed sites."""
    rng = np.random.default_rng(data.draw(st.integers(0, 10**6), "seed"))
    n_sites = data.draw(st.integers(1, 8_000), "sites")
    shared = [0] if data.draw(st.booleans(), "shared positions") else []
    step = rng.choice([*shared, 1, 1, 50, 3_000], n_sites)
    position = 1 + np.cumsum(step)
    rate = data.draw(st.sampled_from([1e-7, 1e-6, 1e-5]), "rate")
    panel = SimpleNamespace(
        position=position,
        cM=position * rate,
        n_sites=n_sites,
        n_haplotypes=data.draw(st.sampled_from([40, 9_000]), "haplotypes"),
    )
    share = data.draw(st.sampled_from([0.01, 0.3, 0.9]), "typed")
    return panel, np.flatnonzero(rng.random(n_sites) < share) if rng.random() < 0.9 else np.arange(n_sites)


def visible_array_sites(panel: Any, typed: np.ndarray, first: int, last: int) -> set[int]:
    """The typed sites that the tiles of the sites [first, last) read."""
    seen: set[int] = set()
    for number in tiles_between(first, last, typed):
        gap = number * TILE_GAPS
        n_gaps = min(TILE_GAPS, len(typed) + 1 - gap)
        reach_cM = flank_reach(panel.n_haplotypes)
        seen |= set(range(*add_flanks(panel.cM[typed], Interval(gap - 1, gap + n_gaps), reach_cM)))
    return seen


@settings(deadline=None, max_examples=150)
@given(st.data(), st.sampled_from([2, 5, MAX_STARTS]))
def test_all_that_a_region_needs_and_whole_tiles_on_the_left(data: st.DataObject, most: int) -> None:
    """most: number of listed starts."""
    panel, typed = drawn(data)
    if not len(typed):
        return
    first = data.draw(st.integers(0, panel.n_sites - 1), "first")
    last = data.draw(st.integers(first + 1, panel.n_sites), "last")
    needed = visible_array_sites(panel, typed, first, last)
    low, high = typed_sites_of_tiles(panel.cM, typed, Interval(first, last), flank_reach(panel.n_haplotypes))
    assert low % TILE_GAPS == 0
    assert low <= min(needed) < low + TILE_GAPS
    assert high == max(needed) + 1

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typed_tiles, "MAX_STARTS", most)
        line = starts_line(panel.position[typed])
    assert line.count(":") <= most
    stated = read_starts_line(f"##x\n{line}\n", panel)
    assert stated is not None
    assert stated.n_typed == len(typed)
    start, end = stated.around(int(panel.position[first]), int(panel.position[last - 1]))
    position = panel.position[typed]
    read = np.flatnonzero((position >= start) & (position <= (position[-1] if end is None else end)))
    assert read[0] % TILE_GAPS == 0
    assert set(read) >= needed
    # no more than some tiles of what is not needed
    if most == MAX_STARTS and len(np.unique(position)) == len(position):
        assert low - read[0] <= 2 * TILE_GAPS + MAX_FLANK
        assert read[-1] - high <= 3 * TILE_GAPS + MAX_FLANK
    # a read that begins there, too, begins with a tile
    before = stated.start_before(int(panel.position[first]))
    assert np.searchsorted(position, before) % TILE_GAPS == 0
    assert before <= max(panel.position[first], position[0])


def test_the_line_stays_short() -> None:
    line = starts_line(np.arange(1, 10_000_000))
    assert 0.9 * MAX_STARTS < line.count(":") <= MAX_STARTS
    assert len(line) < 20_000
    before = f"{STARTS_LINE}{TILE_GAPS} {TILE_GAPS + 1} "
    assert starts_line(np.arange(1, TILE_GAPS + 2)) == f"{before}0:1,1:{TILE_GAPS + 1}"
    # the second tile begins in the middle of a position: reading from there would give a site too many
    assert starts_line(np.full(TILE_GAPS + 1, 7)) == f"{before}0:7"


PREDICTOR = spinimpute.load_predictor()
WRONG = (
    "",
    "256 0:{0}",
    "{tile} 246 0:{0},1",
    "{tile} 246 0:{0},1:x",
    "{tile} 246 1:{0}",
    "{tile} 246 0:{1},1:{0}",
    "{tile} 246 0:{0},0:{1}",
    "{tile} 246 0:{0},1:1",
    "{tile} 246 0:99999999999999999999",
    "{tile} 246 0:{0},1:999999999",
    "{tile} 246 ",
    "{tile} x 0:{0}",
    "{tile} ",
    "128 246 0:{0},1:{1}",
)


@pytest.mark.parametrize("stated", WRONG)
def test_a_line_that_is_not_right_does_not_count(stated: str, example_panel: spinimpute.Panel) -> None:
    first, second = (int(p) for p in example_panel.position[[0, 9]])
    line = STARTS_LINE + stated.format(first, second, tile=TILE_GAPS)
    assert read_starts_line(line, example_panel) is None
    good = read_starts_line(f"{STARTS_LINE}{TILE_GAPS} 246 0:{first},1:{second}", example_panel)
    assert good is not None
    assert (good.n_typed, good.position_C.tolist()) == (246, [first, second])


@pytest.fixture(scope="module")
def ours(
    dense_target: Path, example_panel: spinimpute.Panel, tmp_path_factory: Any
) -> tuple[Path, MatchedTarget]:
    """A file that `convert` wrote, and its content."""
    path = tmp_path_factory.mktemp("ours") / "ours.vcf.gz"
    spinimpute.convert(dense_target, path, example_panel)
    (whole,) = read_matched([example_panel], path).matched
    return path, whole


def part_around(
    path: Path, panel: spinimpute.Panel, interval: PanelInterval, buffer_cM: float
) -> PartToRead | None:
    selection = RegionSelection([interval.region or Region("20", 1, 1)], buffer_cM, TargetSettings())
    return part_to_read(path, [panel], PREDICTOR, {panel.checksum: [interval]}, selection)


@settings(deadline=None, max_examples=40)
@given(
    st.integers(0, 44).map(lambda n: 101 * n), st.integers(1, 800),
    st.sampled_from([0.0, 0.1, 0.3, 0.5, 0.6, 0.8, 3.0]),
)  # fmt: skip
@example(3_200, 250, 0.5)  # a buffer that reaches into the middle of a tile that the region does not need
@example(3_200, 250, 0.6)
def test_what_is_read_and_used(
    ours: tuple[Path, MatchedTarget],
    example_panel: spinimpute.Panel,
    first: int,
    length: int,
    buffer_cM: float,
) -> None:
    """Whole tiles are read from the left, and all that the region needs."""
    path, whole = ours
    last = min(first + length, example_panel.n_sites)
    region = Region("20", *(int(p) for p in example_panel.position[[first, last - 1]]))
    to_read = part_around(path, example_panel, PanelInterval(Interval(first, last), region), buffer_cM)
    assert to_read is not None
    (read,) = read_matched([example_panel], path, only=to_read.region).matched
    index = whole.match.panel_index
    needed = visible_array_sites(example_panel, index, first, last)
    cM = example_panel.cM
    near = np.flatnonzero(
        (cM[index] >= cM[first] - buffer_cM) & (cM[index] <= cM[last - 1] + buffer_cM)
    ).tolist()
    for part in (read, whole):
        used = keep_needed_sites(part, PREDICTOR, Interval(first, last), buffer_cM).match.panel_index
        start = int(np.searchsorted(index, used[0]))
        np.testing.assert_array_equal(used, index[start : start + len(used)])
        assert start % TILE_GAPS == 0
        assert {*needed, *near} <= set(range(start, start + len(used)))
        assert start + len(used) == 1 + max(needed | set(near))


@pytest.mark.parametrize(
    ("options", "indexed"),
    [
        (["-q", "0.1:minor"], True),
        (["-t", "20:200000-2000000"], True),
        (["-t", "20:1-800000"], True),
        (["-s", "^{}"], True),
        ([], False),
    ],
    ids=["no rare sites", "without the start", "without the end", "fewer samples", "no index"],
)
def test_of_a_file_that_has_been_changed_all_is_read(
    ours: tuple[Path, MatchedTarget],
    example_panel: spinimpute.Panel,
    tmp_path: Path,
    options: list[str],
    indexed: bool,
) -> None:
    if shutil.which("bcftools") is None:
        pytest.skip("bcftools is not installed")
    path, region = tmp_path / "changed.vcf.gz", Region("20", 700_000, 720_000)
    options = [option.format(ours[1].target.samples[0]) for option in options]
    subprocess.run(["bcftools", "view", "--no-update", *options, "-Oz", "-o", path, ours[0]], check=True)
    if indexed:
        subprocess.run(["bcftools", "index", "-t", path], check=True)
    low, high = np.searchsorted(example_panel.position, [region.start, region.end + 1]).tolist()
    to_read = part_around(path, example_panel, PanelInterval(Interval(low, high), region), 0.0)
    assert (to_read is None) == ("-s" not in options), "tiles do not depend on samples"
