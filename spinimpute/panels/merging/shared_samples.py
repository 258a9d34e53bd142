"""Find samples that two panels share, so that the merged panel contains their haplotypes once.

Samples are shared if they have the same name and the same haplotypes at all sites in both panels. If only the
names are equal, the sample of the second panel is renamed ("NAME_2").

Axes: T sites in both panels, Y pairs of samples with the same name.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from spinimpute.panels.merging.site_union import SiteUnion
from spinimpute.panels.panel import Panel

_SITES_PER_STEP = 512


@dataclass(frozen=True, eq=False)
class SharedSamples:
    """Which samples and haplotypes of the second panel are kept in the merged panel."""

    same_name: list[str]  # samples of the second panel whose name also occurs in the first
    same: list[str]  # samples in `same_name` with equal haplotypes in both panels; only the first's are kept
    kept_N: np.ndarray  # haplotypes of the second panel that are kept, int64
    twin_N: tuple[np.ndarray, np.ndarray]  # haplotypes of the first panel, and their equals in the second
    samples: list[str]  # names in the merged panel of the second panel's samples that are kept; all unique
    ploidy: np.ndarray  # ploidy of `samples`, uint8


def find_shared_samples(
    panels: tuple[Panel, Panel], union: SiteUnion, among: Collection[str] | None = None
) -> SharedSamples:
    """Compare the samples with equal names in two panels.

    Only samples `among` these names (default: all) may be merged. Raises InputError if a panel is damaged.
    """
    first, second = panels
    first_index = {name: i for i, name in enumerate(first.samples)}
    pairs = [
        (first_index[name], j)
        for j, name in enumerate(second.samples)
        if name in first_index
        and first.ploidy[first_index[name]] == second.ploidy[j]
        and (among is None or name in among)
    ]
    twins, reversed_order = _find_equal_pairs(panels, union, np.array(pairs, np.int64).reshape(-1, 2))
    first_twin, second_twin = [], []
    for (i, j), is_swapped in zip(twins.tolist(), reversed_order.tolist(), strict=True):
        first_haplotypes, second_haplotypes = (
            np.flatnonzero(panel.haplotype_sample == x) for panel, x in ((first, i), (second, j))
        )
        first_twin.append(first_haplotypes)
        second_twin.append(second_haplotypes[::-1] if is_swapped else second_haplotypes)
    kept = np.setdiff1d(np.arange(second.n_samples), twins[:, 1])
    used_names = set(first.samples)
    names = []
    for j in kept.tolist():
        names.append(_unique_name(second.samples[j], used_names))
        used_names.add(names[-1])
    empty = np.zeros(0, np.int64)
    return SharedSamples(
        [name for name in second.samples if name in first_index],
        [second.samples[j] for j in twins[:, 1].tolist()],
        np.flatnonzero(np.isin(second.haplotype_sample, kept)),
        (np.concatenate([empty, *first_twin]), np.concatenate([empty, *second_twin])),
        names,
        second.ploidy[kept],
    )


def _find_equal_pairs(
    panels: tuple[Panel, Panel], union: SiteUnion, pairs_Y2: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the pairs of samples with equal haplotypes, and whether the two haplotypes are exchanged."""
    same_order, reversed_order = np.ones(len(pairs_Y2), bool), np.ones(len(pairs_Y2), bool)
    ends = [
        (np.cumsum(panel.ploidy.astype(np.int64)) - 1)[pairs_Y2[:, number]]
        for number, panel in enumerate(panels)
    ]
    starts = [
        end - panel.ploidy[pairs_Y2[:, number]] + 1
        for number, (end, panel) in enumerate(zip(ends, panels, strict=True))
    ]
    for done in range(0, len(union.shared_T), _SITES_PER_STEP):
        if not (same_order | reversed_order).any():
            break
        chosen = union.shared_T[done : done + _SITES_PER_STEP]
        alleles = [
            np.unpackbits(union.rows(panels, number, chosen), axis=1, count=panel.n_haplotypes)
            for number, panel in enumerate(panels)
        ]
        (a, b), (c, d) = (
            (rows[:, start], rows[:, end]) for rows, start, end in zip(alleles, starts, ends, strict=True)
        )
        same_order &= ((a == c) & (b == d)).all(axis=0)
        reversed_order &= ((a == d) & (b == c)).all(axis=0)
    equal = same_order | reversed_order
    return pairs_Y2[equal], ~same_order[equal]


def _unique_name(name: str, used_names: set[str]) -> str:
    number, unique = 1, name
    while unique in used_names:
        number += 1
        unique = f"{name}_{number}"
    return unique
