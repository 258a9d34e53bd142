"""The order of a panel's haplotypes, by which ties are decided."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

import spinimpute
from spinimpute.genotypes.intervals import Interval
from spinimpute.predictors.haplotype_attention.tile import HASHED_SITES, read_tile


def test_monomorphic_sites_in_a_long_gap(
    mosaic: Callable[..., np.ndarray], panel_of: Callable[..., spinimpute.Panel], tmp_path: Path
) -> None:
    """Not all sites of a long gap are hashed; the choice does not depend on monomorphic sites."""
    n = 2 * HASHED_SITES + 500
    alleles = mosaic(np.random.default_rng(1), n, 40)
    positions = 1_000 + 100 * np.arange(n)
    inserted = np.zeros((n // 2, 40), np.uint8)
    inserted[::3] = 1
    more = np.concatenate([positions, positions[::2] + 50])
    by_position = np.argsort(more)
    orders = []
    for name, rows, at in (
        ("a", alleles, positions),
        ("b", np.concatenate([alleles, inserted])[by_position], more[by_position]),
    ):
        with panel_of(tmp_path / f"{name}.spin", rows, positions=at) as panel:
            typed = np.searchsorted(panel.position, positions[[0, -1]])
            orders.append(read_tile(panel, typed, 0, Interval(0, panel.n_sites)).order_N)
    np.testing.assert_array_equal(*orders)
