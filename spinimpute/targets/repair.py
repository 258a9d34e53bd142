"""Target sites whose alleles are those of the panel, but swapped or read from the other strand.

A/T and C/G look the same from both strands. Such a site is found to be on the other one by its allele
frequency alone, and this is asked only of a file in which other sites are on the other strand.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from spinimpute.genotypes.haplotypes import Haplotypes
from spinimpute.genotypes.sites import NoMatch, SiteMatch, Sites, complement, match_sites, same_chromosome
from spinimpute.runtime.errors import InputError, argument
from spinimpute.targets.duplicates import CONTRADICTORY, merge_duplicates
from spinimpute.targets.without_alt import site_without_alt

AMBIGUOUS = ("frequency", "keep", "drop")
SWAPPED = "REF and ALT swapped: exchanged"
OTHER_STRAND = "other strand: complemented"
BOTH = "other strand, REF and ALT swapped: complemented and exchanged"
STRAND_BY_FREQUENCY = "A/T or C/G on the other strand by frequency: exchanged"
STRAND_UNKNOWN = "A/T or C/G of unknown strand: left out"
ALT_TAKEN = "no ALT allele: the panel's is taken"
ALT_ELSEWHERE = "no ALT allele beside a record with one: left out"
EVIDENCE = math.log(100)  # so many times more probable must one strand be than the other


@dataclass(frozen=True, slots=True)
class SiteNote:
    """A remark on a target site, such as how it was repaired.

    Attributes
    ----------
    position : int
        1-based.
    id, ref, alt : str
        As in the file.
    panel_ref, panel_alt : str
        The alleles in the panel, "." if they are not known.
    what : str
        The remark.
    """

    position: int
    id: str
    ref: str
    alt: str
    panel_ref: str
    panel_alt: str
    what: str


@dataclass(frozen=True)
class Repaired:
    """A target after repair, matched to the panel.

    Attributes
    ----------
    target : Haplotypes
        With the alleles of the panel.
    match : SiteMatch
        Of its sites.
    repairs : list of SiteNote
        In the order of the file.
    target_index : int64
        The sites of the file that are still in target.
    contradictory : int
        Calls that were set missing because records of the same site contradict each other.
    """

    target: Haplotypes
    match: SiteMatch
    repairs: list[SiteNote]
    target_index: np.ndarray
    contradictory: int

    def counts(self) -> dict[str, int]:
        """Number of repairs by what was done."""
        counts: dict[str, int] = {}
        for repair in self.repairs:
            counts[repair.what] = counts.get(repair.what, 0) + 1
        return counts

    def mended_calls(self) -> dict[str, int]:
        """Number of calls that were set missing, by reason."""
        return {CONTRADICTORY: self.contradictory} if self.contradictory else {}


@dataclass(frozen=True)
class _Found:
    """A target site at the position of a panel site with the same alleles in some order and strand."""

    index: int
    panel_index: int
    swapped: bool
    other_strand: bool
    ambiguous: bool
    without_alt: bool

    @property
    def exact(self) -> bool:
        return not (self.swapped or self.other_strand)


def repair_and_match(
    panel: Sites,
    panel_frequency: np.ndarray,
    target: Haplotypes,
    ambiguous: str = "frequency",
    allow_unphased: bool = True,
) -> Repaired:
    """Exchange alleles and strands where that makes target sites panel sites, match them, merge duplicates.

    Parameters
    ----------
    panel : Sites
        All sites of the panel.
    panel_frequency : float64 (n_panel_sites,)
        Of the panel's ALT alleles.
    target : Haplotypes
        As read; it is not changed.
    ambiguous : str
        How A/T and C/G sites are treated. "keep": their letters are taken as they are; "drop": the sites are
        dropped; "frequency": taken as they are if no other site is on the other strand, otherwise decided by
        the frequencies of target and panel, or dropped.
    allow_unphased : bool
        As of `merge_duplicates`.

    Returns
    -------
    Repaired
        The target with the panel's alleles.

    Raises
    ------
    InputError
        As `match_sites`, and if `ambiguous` is none of these.
    """
    if ambiguous not in AMBIGUOUS:
        raise InputError(
            "content", f"unknown treatment of A/T and C/G sites {ambiguous!r}: {', '.join(AMBIGUOUS)}"
        )
    found = list(_find(panel, target.sites)) if same_chromosome(target.sites.chrom, panel.chrom) else []
    with_alt = {f.panel_index for f in found if not f.without_alt}
    taken = {f.panel_index for f in found if f.exact and not f.without_alt}
    # a repaired site never takes the place of one that needs no repair
    found = [f for f in found if f.exact or f.panel_index not in taken]
    same, flipped = (
        sum(f.other_strand is strand and not f.ambiguous and not f.without_alt for f in found)
        for strand in (False, True)
    )
    ref, alt, alleles = list(target.sites.ref), list(target.sites.alt), target.alleles
    kept = np.ones(len(ref), bool)
    exchanged: list[int] = []
    repairs: list[SiteNote] = []
    for f in found:
        what, swap = _treatment(f, ambiguous, same, flipped, panel_frequency, alleles)
        if f.without_alt and f.panel_index in with_alt:
            what = ALT_ELSEWHERE
        if what is None:
            continue
        panel_ref, panel_alt = panel.ref[f.panel_index], panel.alt[f.panel_index]
        position, name = int(target.sites.position[f.index]), target.sites.id[f.index]
        repairs.append(SiteNote(position, name, ref[f.index], alt[f.index], panel_ref, panel_alt, what))
        if what in (STRAND_UNKNOWN, ALT_ELSEWHERE):
            kept[f.index] = False
            continue
        ref[f.index], alt[f.index] = panel_ref, panel_alt
        if swap:
            exchanged.append(f.index)
    if exchanged:
        alleles = alleles.copy()
        rows = alleles[exchanged]
        alleles[exchanged] = np.where(rows >= 0, 1 - rows, rows)
    sites = replace(target.sites, ref=ref, alt=alt)
    target_index = np.flatnonzero(kept)
    repaired = replace(target, sites=sites, alleles=alleles)
    if not kept.all():
        unphased = None if target.unphased is None else target.unphased[target_index]
        repaired = replace(
            repaired,
            sites=sites.take(target_index),
            alleles=alleles[target_index],
            unphased=unphased,
            halved=None if target.halved is None else target.halved[target_index],
        )
    match = _matched(panel, repaired.sites, sum(repair.what == STRAND_UNKNOWN for repair in repairs))
    repaired, contradictory = merge_duplicates(repaired, match, allow_unphased)
    return Repaired(repaired, match, repairs, target_index, contradictory)


def _matched(panel: Sites, target: Sites, n_left_out: int) -> SiteMatch:
    """`match_sites`; its message names the sites of unknown strand that were left out before."""
    try:
        return match_sites(panel, target)
    except NoMatch as error:
        if not n_left_out:
            raise
        ambiguous = f"A/T or C/G of unknown strand and were left out ({argument('ambiguous')})"
        if len(target):
            raise NoMatch("content", f"{error}; {n_left_out} more are {ambiguous}") from error
        raise NoMatch(
            "mismatch",
            f"all {n_left_out} typed sites that the panel has are {ambiguous}: nothing is left to impute "
            f"from. If the file's letters are those of the reference strand, give "
            f"{argument('ambiguous', 'keep')}; "
            "otherwise give a target with other sites, too",
        ) from error


def _find(panel: Sites, target: Sites) -> Iterator[_Found]:
    first = np.searchsorted(panel.position, target.position, side="left").tolist()
    last = np.searchsorted(panel.position, target.position, side="right").tolist()
    position = target.position.tolist()
    for index, (start, stop) in enumerate(zip(first, last, strict=True)):
        if start == stop:
            continue
        ref, alt = target.ref[index].upper(), target.alt[index].upper()
        without_alt = alt == "."
        if without_alt:
            if site_without_alt(panel, position[index], ref) is None:
                continue
            alt = panel.alt[start].upper()
        here = [(panel.ref[i].upper(), panel.alt[i].upper()) for i in range(start, stop)]
        snp = len(ref) == len(alt) == 1
        other = (complement(ref), complement(alt))
        ambiguous = snp and other == (alt, ref)
        # a site that is one of several ALT alleles has all others coded as REF: no exchange is right
        split = any(
            0 <= i < len(position)
            and position[i] == position[index]
            and target.ref[i].upper() == ref
            and target.alt[i].upper() != alt
            for i in (index - 1, index + 1)
        )
        ways = [((ref, alt), False, False)]
        if not split:
            ways.append(((alt, ref), True, False))
        if snp and not ambiguous:
            ways.append((other, False, True))
            if not split:
                ways.append((other[::-1], True, True))
        for alleles, swapped, other_strand in ways:
            if alleles in here:
                site = start + here.index(alleles)
                yield _Found(index, site, swapped, other_strand, ambiguous, without_alt)
                break


def _treatment(
    found: _Found,
    ambiguous: str,
    same: int,
    flipped: int,
    panel_frequency: np.ndarray,
    alleles: np.ndarray,
) -> tuple[str | None, bool]:
    """What is said of a site (None if nothing is done), and whether its alleles are exchanged."""
    as_it_is = ALT_TAKEN if found.without_alt else None
    if not found.ambiguous:
        if found.exact:
            return as_it_is, False
        what = {(True, False): SWAPPED, (False, True): OTHER_STRAND, (True, True): BOTH}
        return what[found.swapped, found.other_strand], found.swapped
    as_written = (SWAPPED, True) if found.swapped else (as_it_is, False)
    if ambiguous == "drop":
        return STRAND_UNKNOWN, False
    if ambiguous == "keep" or not flipped:
        return as_written
    # how much more probable the calls are if the letters are those of the panel's strand
    calls = alleles[found.index]
    n_alt, n_ref = int((calls == 1).sum()), int((calls == 0).sum())
    if found.swapped:
        n_alt, n_ref = n_ref, n_alt
    p = float(np.clip(panel_frequency[found.panel_index], 1e-3, 1 - 1e-3))
    evidence = (n_alt - n_ref) * math.log(p / (1 - p)) + math.log((same + 1) / (flipped + 1))
    if evidence >= EVIDENCE:
        return as_written
    if evidence <= -EVIDENCE:
        # read from the other strand its letters are exchanged, once more if they were swapped
        return STRAND_BY_FREQUENCY, not found.swapped
    return STRAND_UNKNOWN, False
