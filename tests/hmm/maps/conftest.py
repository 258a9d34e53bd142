"""Panels with a hot spot of recombination."""

from collections.abc import Callable

import numpy as np
import pytest

from tests.array_panel import ArrayPanel


@pytest.fixture(scope="session")
def hot_panel() -> Callable[..., ArrayPanel]:
    """hot_panel(n, n_sites, hot): haplotypes that recombine in the slice `hot` only; 10 cM/Mb everywhere."""

    def build(n: int, n_sites: int, hot: slice) -> ArrayPanel:
        rng = np.random.default_rng(8)
        alleles_XN = rng.integers(0, 2, (n_sites, n)).astype(np.uint8)
        for h in range(30, n):
            source = int(rng.integers(h))
            for x in range(n_sites):
                if hot.start <= x < hot.stop and rng.random() < 0.1:
                    source = int(rng.integers(h))
                alleles_XN[x, h] = alleles_XN[x, source] ^ (rng.random() < 0.001)
        return ArrayPanel(alleles_XN, 0.01 * np.arange(n_sites))

    return build
