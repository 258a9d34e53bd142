"""Doubts about the sites of two panels that are merged."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from spinimpute.genotypes.sites import Sites
from spinimpute.panels.merging.site_union import SiteUnion
from spinimpute.panels.trust.site_trust import SiteDoubts


def test_confirmed_doubts_stay_apart_from_others() -> None:
    """A site that the first panel's people predict well keeps the trust that the second one gives it."""
    n = 4
    panels = [
        SimpleNamespace(doubts=SiteDoubts(np.array(discordance, np.uint8), np.array(confirmed, bool)))
        for discordance, confirmed in (((160, 160, 0, 10), (0, 1, 0, 0)), ((60, 60, 80, 90), (1, 1, 0, 0)))
    ]
    everywhere = np.arange(n)
    sites = Sites("20", np.arange(1, n + 1), ["A"] * n, ["C"] * n, ["."] * n)
    union = SiteUnion(sites, np.zeros(n), np.zeros(n, bool), (everywhere, everywhere), np.zeros(n, bool))
    doubts = union.doubts((panels[0], panels[1]))  # type: ignore[arg-type]
    assert doubts.confirmed_discordance.tolist() == [60, 160, 0, 0]
    assert doubts.discordance.tolist() == [60, 160, 80, 90]
