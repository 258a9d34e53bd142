"""REF and ALT for files that state only the letters of their calls, or alleles in no particular order."""

from __future__ import annotations

from collections.abc import Iterable

from spinimpute.genotypes.sites import Sites

_COMPLEMENT = str.maketrans("ACGT", "TGCA")
UNKNOWN_ALLELE = "N"


def snp_places(panel: Sites) -> dict[int, list[tuple[str, str]]]:
    """REF and ALT of the panel's SNPs by position."""
    places: dict[int, list[tuple[str, str]]] = {}
    for position, ref, alt in zip(panel.position.tolist(), panel.ref, panel.alt, strict=True):
        if len(ref) == len(alt) == 1:
            places.setdefault(position, []).append((ref.upper(), alt.upper()))
    return places


def site_alleles(letters: Iterable[str], panel: list[tuple[str, str]]) -> tuple[str, str]:
    """REF and ALT of a panel SNP that the letters fit, of either strand; else the letters themselves."""
    found = set(letters)
    for complement in (False, True):
        for site in panel:
            ref, alt = (a.translate(_COMPLEMENT) for a in site) if complement else site
            if found <= {ref, alt}:
                return ref, alt
    different = sorted(found) or [UNKNOWN_ALLELE]
    return different[0], different[-1] if len(different) > 1 else UNKNOWN_ALLELE
