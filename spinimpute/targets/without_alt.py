"""Records without an ALT allele, as exports of single samples have them where all alleles are REF.

The calls are those of a panel site if it is the only one at the position and has the same REF: an array may
have asked for one of several ALT alleles, and a single base says nothing of what is inserted behind it.
A record without ALT is left out if the target has a record with ALT for the same panel site.
"""

from __future__ import annotations

from collections.abc import Callable

from spinimpute.genotypes.sites import Sites
from spinimpute.targets.liftover import Lift


def site_without_alt(panel: Sites, position: int, ref: str) -> int | None:
    """The panel site whose REF a record without ALT has called; None if no site, or none alone, can be it."""
    site = int(panel.position.searchsorted(position))
    there = panel.position[site : site + 2] == position
    if not len(there) or not there[0] or there[1:].any():
        return None
    panel_ref = panel.ref[site].upper()
    return site if ref.upper() == panel_ref and len(panel.alt[site]) <= len(panel_ref) else None


def records_wanted(panel: Sites, lift: Lift | None) -> Callable[[int, str], bool]:
    """Whether a record without ALT, by position and REF in the file, is a panel site; lift: to its build."""

    def wanted(position: int, ref: str) -> bool:
        if lift is not None:
            lifted = lift.alleles(position, [ref])
            if isinstance(lifted, str):
                return False
            position, (ref,) = lifted
        return site_without_alt(panel, position, ref) is not None

    return wanted
