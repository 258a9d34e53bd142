"""Chunks of a chromosome: each site in exactly one."""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spinimpute.genotypes.intervals import cut_chunks
from spinimpute.runtime.errors import InputError


class Positions(NamedTuple):
    chrom: str
    position: np.ndarray
    cM: np.ndarray


@st.composite
def panels(draw: st.DrawFn) -> list[Positions]:
    """One part or several, one behind the other; records may share a position."""
    parts, first = [], 1
    for _ in range(draw(st.integers(1, 3))):
        steps = draw(st.lists(st.integers(0, 50), min_size=1, max_size=40))
        position = first + np.cumsum(steps)
        cM = np.cumsum(np.asarray(steps) * draw(st.sampled_from([0.0, 0.01, 1.0])))
        parts.append(Positions("20", position, cM))
        first = int(position[-1]) + 1
    return parts


@given(parts=panels(), length=st.sampled_from([0.1, 5.0, 1000.0]), most=st.integers(1, 60))
def test_every_site_is_in_one_chunk(parts: list[Positions], length: float, most: int) -> None:
    chunks = cut_chunks(parts, length, most)
    position = np.concatenate([part.position for part in parts])
    inside = [(position >= c.region.start) & (position <= c.region.end) for c in chunks]
    assert (np.sum(inside, 0) == 1).all()
    assert [int(rows.sum()) for rows in inside] == [chunk.sites for chunk in chunks]
    assert all(a.region.end + 1 == b.region.start for a, b in pairwise(chunks))
    same_position = max(np.unique(position, return_counts=True)[1])
    assert max(chunk.sites for chunk in chunks) <= most + same_position - 1
    assert max(chunk.cM for chunk in chunks) <= length + 1e-9
    for part in parts[1:]:  # a chunk begins with each part
        assert part.position[0] in [chunk.region.start for chunk in chunks]


@given(parts=panels(), length=st.sampled_from([0.1, 5.0]), overlap=st.sampled_from([0.0, 0.05, 3.0, 1e9]))
def test_overlaps_reach_into_the_chunk_before(parts: list[Positions], length: float, overlap: float) -> None:
    """Not into its first half, and into no other part: `ligate` joins such chunks."""
    plain, chunks = (cut_chunks(parts, length, 8, o) for o in (0.0, overlap))
    assert [chunk.region.end for chunk in chunks] == [chunk.region.end for chunk in plain]
    firsts = {int(part.position[0]) for part in parts}
    position, cM = (np.concatenate([part[i] for part in parts]) for i in (1, 2))
    for before, core, chunk in zip([plain[0], *plain], plain, chunks, strict=False):
        rows = (position >= chunk.region.start) & (position <= chunk.region.end)
        assert chunk.sites == rows.sum()
        assert chunk.cM == pytest.approx(np.ptp(cM[rows]))
        if overlap == 0 or core.region.start in firsts:
            assert chunk == core
            continue
        assert before.region.start < chunk.region.start <= core.region.start
        first, stop = np.searchsorted(position, [before.region.start, core.region.start])
        wanted = np.arange((first + stop + 1) // 2, stop)
        wanted = wanted[cM[wanted] >= cM[stop] - overlap]
        if len(wanted) and position[wanted[0]] > before.region.start:
            assert chunk.region.start == position[wanted[0]]
        else:
            assert chunk.region == core.region


def test_a_length_of_nothing_is_refused() -> None:
    with pytest.raises(InputError, match="positive length"):
        cut_chunks([Positions("1", np.array([5]), np.array([0.0]))], 0.0)
    with pytest.raises(InputError, match=r"an overlap must be at least 0 cM, got -0\.5"):
        cut_chunks([Positions("1", np.array([5]), np.array([0.0]))], 1.0, 9, -0.5)
