"""Letters of alleles: of the other strand, and REF and ALT for files that state only the letters of calls."""

from __future__ import annotations

from collections.abc import Iterable

from spinimpute.genotypes.sites import Sites

_COMPLEMENT = str.maketrans("ACGTNacgtn", "TGCANtgcan")
UNKNOWN_ALLELE = "N"


def complement(letters: str) -> str:
    """Bases as the other strand pairs with them, in the same order; other characters stay as they are."""
    return letters.translate(_COMPLEMENT)


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
    for other_strand in (False, True):
        for site in panel:
            ref, alt = map(complement, site) if other_strand else site
            if found <= {ref, alt}:
                return ref, alt
    different = sorted(found) or [UNKNOWN_ALLELE]
    return different[0], different[-1] if len(different) > 1 else UNKNOWN_ALLELE
