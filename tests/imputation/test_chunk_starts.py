"""Chunks of a region: which typed sites they see, and how the header of a file tells where they lie."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import spinimpute
from spinimpute.imputation.chunk_starts import (
    MOST_STARTS,
    STARTS_LINE,
    starts_line,
    told_starts,
    typed_of_chunks,
)
from spinimpute.imputation.haplotype_chunk import CHUNK, chunks_between, with_flanks


def drawn(data: st.DataObject) -> tuple[Any, np.ndarray]:
    """A panel's positions and genetic map, some positions shared, and typed sites of it."""
    rng = np.random.default_rng(data.draw(st.integers(0, 10**6), "seed"))
    n_sites = data.draw(st.integers(1, 8_000), "sites")
    step = rng.choice([0, 1, 1, 50, 3_000], n_sites)
    position = 1 + np.cumsum(step)
    rate = data.draw(st.sampled_from([1e-7, 1e-6, 1e-5]), "rate")
    panel = SimpleNamespace(position=position, cM=position * rate, n_sites=n_sites)
    share = data.draw(st.sampled_from([0.01, 0.3, 0.9]), "typed")
    return panel, np.flatnonzero(rng.random(n_sites) < share) if rng.random() < 0.9 else np.arange(n_sites)


def seen_by(panel: Any, typed: np.ndarray, first: int, last: int) -> set[int]:
    """The typed sites that the chunks of [first, last) see, one chunk after the other as `prepare_chunk`."""
    seen: set[int] = set()
    for number in chunks_between(first, last, typed):
        gap = number * CHUNK
        n_gaps = min(CHUNK, len(typed) + 1 - gap)
        seen |= set(range(*with_flanks(panel.cM[typed], gap - 1, gap + n_gaps)))
    return seen


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_all_that_a_region_needs_and_whole_chunks_on_the_left(data: st.DataObject) -> None:
    panel, typed = drawn(data)
    if not len(typed):
        return
    first = data.draw(st.integers(0, panel.n_sites - 1), "first")
    last = data.draw(st.integers(first + 1, panel.n_sites), "last")
    needed = seen_by(panel, typed, first, last)
    low, high = typed_of_chunks(panel.cM, typed, first, last)
    assert low % CHUNK == 0
    assert low <= min(needed) < low + CHUNK
    assert high == max(needed) + 1

    told = told_starts(f"##x\n{starts_line(panel.position[typed])}\n", panel)
    assert told is not None
    start, end = told.around(int(panel.position[first]), int(panel.position[last - 1]))
    position = panel.position[typed]
    read = np.flatnonzero((position >= start) & (position <= (position[-1] if end is None else end)))
    assert read[0] % CHUNK == 0
    assert set(read) >= needed
    # no more than some chunks of what is not needed
    if len(np.unique(position)) == len(position):
        assert low - read[0] <= 2 * CHUNK + 1_024
        assert read[-1] - high <= 3 * CHUNK + 1_024


def test_the_line_stays_short(example_panel: spinimpute.Panel) -> None:
    line = starts_line(np.arange(1, 10_000_000))
    assert 0.9 * MOST_STARTS < line.count(":") <= MOST_STARTS
    assert len(line) < 20_000
    assert starts_line(np.arange(1, CHUNK + 2)) == f"{STARTS_LINE}{CHUNK} 0:1,1:{CHUNK + 1}"
    # the second chunk begins in the middle of a position: who reads from there would have a site too many
    assert starts_line(np.full(CHUNK + 1, 7)) == f"{STARTS_LINE}{CHUNK} 0:7"


@pytest.mark.parametrize(
    "told",
    [
        "",
        "0:{0}",
        "{chunk} 0:{0},1",
        "{chunk} 0:{0},1:x",
        "{chunk} 1:{0}",
        "{chunk} 0:{1},1:{0}",
        "{chunk} 0:{0},0:{1}",
        "{chunk} 0:{0},1:1",
        "{chunk} 0:99999999999999999999",
        "{chunk} 0:{0},1:999999999",
        "{chunk} ",
        "128 0:{0},1:{1}",
    ],
)
def test_a_line_that_is_not_right_does_not_count(
    told: str, example_panel: spinimpute.Panel, example: Path, tmp_path: Path
) -> None:
    """All of the file is read then."""
    first, second = (int(p) for p in example_panel.position[[0, 9]])
    line = STARTS_LINE + told.format(first, second, chunk=CHUNK)
    assert told_starts(line, example_panel) is None
    good = told_starts(f"{STARTS_LINE}{CHUNK} 0:{first},1:{second}", example_panel)
    assert good is not None
    assert good.position_C.tolist() == [first, second]

    ours, changed = tmp_path / "ours.vcf", tmp_path / "changed.vcf"
    spinimpute.convert(example / "target.vcf.gz", ours, example_panel)
    lines = ours.read_text().splitlines(keepends=True)
    (place,) = (i for i, line in enumerate(lines) if line.startswith(STARTS_LINE))
    lines[place] = f"{line}\n"
    changed.write_text("".join(lines))
    part = spinimpute.impute(changed, tmp_path / "o.vcf", example_panel, region="20:1-2000", buffer_cM=0)
    assert part.typed_sites == 246
