"""Repair target sites, match them to the panel, and merge several records of one site.

Strands: a target site may have the panel's alleles, but swapped (REF and ALT) or complemented (read from the
other strand). Both are corrected. A/T and C/G sites are ambiguous, because complementing only swaps their
alleles. An ambiguous site is switched to the other strand only if its allele frequency clearly requires it,
and only if other sites of the file are on the other strand.

Records without ALT: files of single samples have ALT "." where the sample only has REF. Such a record
matches a panel site if it is the only panel site at the position, has the same REF, and is not an insertion.
If there are several ALT alleles, we do not know which one the array tested. At an insertion, a REF of
one base does not show whether the sample carries it.

Duplicates: arrays have several probes for some sites, and merged files have several records of a site. Their
calls are merged in a way that does not depend on the order of the records. A known allele replaces a missing
one. Phased calls are compared by haplotype. If the records differ only in phase, the merged call is an
unphased heterozygote. If their genotypes differ, the merged call is missing.

Axes: D records of one site, Q haplotypes, X samples.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from spinimpute.genotypes.haplotypes import Haplotypes
from spinimpute.genotypes.sites import NoMatch, SiteMatch, Sites, complement, match_sites, same_chromosome
from spinimpute.runtime.errors import InputError, argument
from spinimpute.targets.liftover import Lift

AMBIGUOUS = ("frequency", "keep", "drop")
CONTRADICTORY = "contradictory calls of records of the same site"
SWAPPED = "REF and ALT swapped: exchanged"
OTHER_STRAND = "other strand: complemented"
BOTH = "other strand, REF and ALT swapped: complemented and exchanged"
STRAND_BY_FREQUENCY = "A/T or C/G on the other strand by frequency: exchanged"
STRAND_UNKNOWN = "A/T or C/G of unknown strand: left out"
ALT_TAKEN = "no ALT allele: the panel's is taken"
ALT_ELSEWHERE = "no ALT allele beside a record with one: left out"
MIN_LOG_ODDS = math.log(100)  # minimum log odds that assign an ambiguous site to a strand


@dataclass(frozen=True, slots=True)
class SiteNote:
    """A remark on a target site, such as its repair.

    `id`, `ref` and `alt` are as in the target's file. `panel_ref` and `panel_alt` are "." if unknown.
    """

    chrom: str
    position: int
    id: str
    ref: str
    alt: str
    panel_ref: str
    panel_alt: str
    what: str


@dataclass(frozen=True)
class RepairedTarget:
    """A target after repair, matched to the panel.

    `target` has the panel's alleles, and `match` assigns its sites to panel sites. `repairs` are in file
    order. `target_index`, int64, are the indices of the target's sites that were not dropped. `contradictory`
    is the number of calls that became missing because records of the same site contradict each other.
    """

    target: Haplotypes
    match: SiteMatch
    repairs: list[SiteNote]
    target_index: np.ndarray
    contradictory: int

    def counts(self) -> dict[str, int]:
        """Return the number of repairs of each kind."""
        return dict(Counter(repair.what for repair in self.repairs))


@dataclass(frozen=True)
class _PanelMatch:
    """A target site, and the panel site with the same alleles, possibly swapped or complemented."""

    index: int  # of the target site
    panel_index: int
    swapped: bool  # REF and ALT are swapped
    other_strand: bool  # the alleles are complemented
    ambiguous: bool  # A/T or C/G
    lacks_alt: bool  # the target's ALT is "."
    exact: bool  # neither swapped nor complemented


def repair_and_match(
    panel: Sites,
    panel_frequency: np.ndarray,
    target: Haplotypes,
    ambiguous: str = "frequency",
    allow_unphased: bool = True,
) -> RepairedTarget:
    """Repair the alleles of target sites, match the sites to the panel, and merge duplicates.

    `panel_frequency`, float64 (n_panel_sites,), are the panel's ALT frequencies. `ambiguous` is the treatment
    of A/T and C/G sites:

    - "keep" uses their alleles as written;
    - "drop" drops these sites;
    - "frequency" uses them as written if no unambiguous site of the file is on the other strand. Otherwise
      allele frequencies decide the strand, and sites without clear evidence are dropped.

    Calls whose phases conflict become unphased heterozygotes with `allow_unphased`, otherwise missing. Raises
    the errors of `match_sites`, and InputError for an unknown `ambiguous`.
    """
    if ambiguous not in AMBIGUOUS:
        raise InputError(
            "argument", f"{argument('ambiguous')} must be one of {', '.join(AMBIGUOUS)}, got {ambiguous!r}"
        )
    matches = (
        list(_find_matches(panel, target.sites)) if same_chromosome(target.sites.chrom, panel.chrom) else []
    )
    with_alt = {m.panel_index for m in matches if not m.lacks_alt}
    taken = {m.panel_index for m in matches if m.exact and not m.lacks_alt}
    # if an exact match to a panel site exists, other target sites are not repaired to match it
    matches = [m for m in matches if m.exact or m.panel_index not in taken]
    n_same, n_flipped = (
        sum(m.other_strand is strand and not m.ambiguous and not m.lacks_alt for m in matches)
        for strand in (False, True)
    )
    ref, alt, alleles = list(target.sites.ref), list(target.sites.alt), target.alleles
    kept = np.ones(len(ref), bool)
    swapped_rows: list[int] = []
    repairs: list[SiteNote] = []
    for m in matches:
        what, swap = _choose_repair(m, ambiguous, n_same, n_flipped, panel_frequency, alleles)
        if m.lacks_alt and m.panel_index in with_alt:
            what = ALT_ELSEWHERE
        if what is None:
            continue
        panel_ref, panel_alt = panel.ref[m.panel_index], panel.alt[m.panel_index]
        position, name = int(target.sites.position[m.index]), target.sites.id[m.index]
        named = (target.sites.chrom, position, name, ref[m.index], alt[m.index])
        repairs.append(SiteNote(*named, panel_ref, panel_alt, what))
        if what in (STRAND_UNKNOWN, ALT_ELSEWHERE):
            kept[m.index] = False
            continue
        ref[m.index], alt[m.index] = panel_ref, panel_alt
        if swap:
            swapped_rows.append(m.index)
    if swapped_rows:
        alleles = alleles.copy()
        rows = alleles[swapped_rows]
        alleles[swapped_rows] = np.where(rows >= 0, 1 - rows, rows)
    sites = replace(target.sites, ref=ref, alt=alt)
    target_index = np.flatnonzero(kept)
    repaired = replace(target, sites=sites, alleles=alleles)
    if not kept.all():
        repaired = replace(
            target,
            sites=sites.take(target_index),
            alleles=alleles[target_index],
            unphased=None if target.unphased is None else target.unphased[target_index],
            half_missing=None if target.half_missing is None else target.half_missing[target_index],
        )
    match = _match(panel, repaired.sites, sum(repair.what == STRAND_UNKNOWN for repair in repairs))
    contradictory = 0
    if match.duplicate_of:
        repaired, contradictory = _merge_duplicates(repaired, match, allow_unphased)
    return RepairedTarget(repaired, match, repairs, target_index, contradictory)


def _match(panel: Sites, target: Sites, n_left_out: int) -> SiteMatch:
    """Call `match_sites`. If no site matches, mention the dropped sites of unknown strand in the message."""
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
            f"all {n_left_out} typed sites in the panel are {ambiguous}. Nothing is left to impute "
            f"from. If the file's alleles are on the reference strand, give "
            f"{argument('ambiguous', 'keep')}. Otherwise give a target with further sites",
        ) from error


def _find_matches(panel: Sites, target: Sites) -> Iterator[_PanelMatch]:
    """Yield the match of each target site that has one, in file order. Exact matches are preferred."""
    first = np.searchsorted(panel.position, target.position, side="left").tolist()
    last = np.searchsorted(panel.position, target.position, side="right").tolist()
    position = target.position.tolist()
    for index, (start, stop) in enumerate(zip(first, last, strict=True)):
        if start == stop:
            continue
        ref, alt = target.alleles(index)
        lacks_alt = alt == "."
        if lacks_alt:
            if site_without_alt(panel, position[index], ref) is None:
                continue
            alt = panel.alt[start].upper()
        here = [panel.alleles(i) for i in range(start, stop)]
        snp = len(ref) == len(alt) == 1
        other = (complement(ref), complement(alt))
        ambiguous = snp and other == (alt, ref)
        # a multi-allelic record was split: 0 means REF or another ALT, so that swapping would be wrong
        split = any(
            0 <= i < len(position)
            and position[i] == position[index]
            and target.ref[i].upper() == ref
            and target.alt[i].upper() != alt
            for i in (index - 1, index + 1)
        )
        candidates = [((ref, alt), False, False)]
        if not split:
            candidates.append(((alt, ref), True, False))
        if snp and not ambiguous:
            candidates.append((other, False, True))
            if not split:
                candidates.append((other[::-1], True, True))
        for alleles, swapped, other_strand in candidates:
            if alleles in here:
                site = start + here.index(alleles)
                exact = not (swapped or other_strand)
                yield _PanelMatch(index, site, swapped, other_strand, ambiguous, lacks_alt, exact)
                break


def _choose_repair(
    match: _PanelMatch,
    ambiguous: str,
    n_same: int,
    n_flipped: int,
    panel_frequency: np.ndarray,
    alleles: np.ndarray,
) -> tuple[str | None, bool]:
    """Return the repair of a site (None if it needs none), and whether to swap its calls.

    `n_same` and `n_flipped` count the unambiguous sites on the panel's strand and on the other strand.
    """
    as_it_is = ALT_TAKEN if match.lacks_alt else None
    if not match.ambiguous:
        if match.exact:
            return as_it_is, False
        what = {(True, False): SWAPPED, (False, True): OTHER_STRAND, (True, True): BOTH}
        return what[match.swapped, match.other_strand], match.swapped
    as_written = (SWAPPED, True) if match.swapped else (as_it_is, False)
    if ambiguous == "drop":
        return STRAND_UNKNOWN, False
    if ambiguous == "keep" or not n_flipped:
        return as_written
    # log odds that the alleles are on the panel's strand, from the calls and from the other sites of the file
    calls = alleles[match.index]
    n_alt, n_ref = int((calls == 1).sum()), int((calls == 0).sum())
    if match.swapped:
        n_alt, n_ref = n_ref, n_alt
    p = float(np.clip(panel_frequency[match.panel_index], 1e-3, 1 - 1e-3))
    log_odds = (n_alt - n_ref) * math.log(p / (1 - p)) + math.log((n_same + 1) / (n_flipped + 1))
    if log_odds >= MIN_LOG_ODDS:
        return as_written
    if log_odds <= -MIN_LOG_ODDS:
        # the other strand means swapped alleles; if REF and ALT are swapped, too, the two swaps cancel out
        return STRAND_BY_FREQUENCY, not match.swapped
    return STRAND_UNKNOWN, False


def _merge_duplicates(target: Haplotypes, match: SiteMatch, allow_unphased: bool) -> tuple[Haplotypes, int]:
    """Merge the calls of all records of a site into the matched record.

    Return the target, and the number of calls that became missing.
    """
    records: dict[int, list[int]] = {}
    for duplicate, first in match.duplicate_of.items():
        records.setdefault(first, [first]).append(duplicate)
    alleles = target.alleles.copy()
    shape = (len(alleles), len(target.ploidy))
    unphased = np.zeros(shape, bool) if target.unphased is None else target.unphased.copy()
    n_contradictory = 0
    for first, rows in records.items():
        merged_Q, unphased_X, contradictory_X = _merge_calls(
            target.alleles[rows], unphased[rows], target.ploidy
        )
        if not allow_unphased:
            contradictory_X |= unphased_X
        n_contradictory += int(contradictory_X.sum())
        alleles[first] = np.where(np.repeat(contradictory_X, target.ploidy), -1, merged_Q)
        unphased[first] = unphased_X & ~contradictory_X
    some_unphased = target.unphased is not None or unphased.any()
    return replace(target, alleles=alleles, unphased=unphased if some_unphased else None), n_contradictory


def _merge_calls(
    alleles_DQ: np.ndarray, unphased_DX: np.ndarray, ploidy: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the merged alleles, int8 (Q,), and masks of unphased and of contradictory calls, bool (X,)."""
    first_X = np.cumsum(ploidy, dtype=np.int64) - ploidy
    phased_DQ = ~np.repeat(unphased_DX, ploidy, axis=1)
    ref_Q, alt_Q = (((alleles_DQ == allele) & phased_DQ).any(axis=0) for allele in (0, 1))
    merged_Q = np.where(alt_Q, 1, np.where(ref_Q, 0, -1)).astype(np.int8)
    conflict_X = np.logical_or.reduceat(ref_Q & alt_Q, first_X)
    n_ref_DX, n_alt_DX = (
        np.add.reduceat(alleles_DQ == allele, first_X, axis=1, dtype=np.int8) for allele in (0, 1)
    )
    heterozygous_X = ((n_ref_DX == 1) & (n_alt_DX == 1)).any(axis=0)
    homozygous_X = ((n_ref_DX == 2) | (n_alt_DX == 2)).any(axis=0)
    contradictory_X = np.where(heterozygous_X, homozygous_X, conflict_X)
    # in a heterozygote, the known allele of one haplotype determines the allele of its sibling
    x = np.flatnonzero(heterozygous_X)
    left, right = merged_Q[first_X[x]], merged_Q[first_X[x] + 1]
    unphased_X = np.zeros(len(ploidy), bool)
    unphased_X[x] = conflict_X[x] | (left == right)
    left = np.where(unphased_X[x], 0, np.where(left < 0, 1 - right, left))
    merged_Q[first_X[x]], merged_Q[first_X[x] + 1] = left, 1 - left
    return merged_Q, unphased_X & ~contradictory_X, contradictory_X


def site_without_alt(panel: Sites, position: int, ref: str) -> int | None:
    """Return the index of the panel site that a record without ALT matches, or None.

    It must be the only panel site at the position, have the same REF, and not be an insertion.
    """
    site = int(panel.position.searchsorted(position))
    at_position = panel.position[site : site + 2] == position
    if not len(at_position) or not at_position[0] or at_position[1:].any():
        return None
    panel_ref = panel.ref[site].upper()
    return site if ref.upper() == panel_ref and len(panel.alt[site]) <= len(panel_ref) else None


def select_without_alt(panel: Sites, lift: Lift | None) -> Callable[[int, str], bool]:
    """Return a function that selects the records without ALT to read.

    It returns True if the position and REF of a record, after `lift`, match a panel site.
    """

    def wanted(position: int, ref: str) -> bool:
        if lift is not None:
            lifted = lift.convert_alleles(position, [ref])
            if isinstance(lifted, str):
                return False
            position, (ref,) = lifted
        return site_without_alt(panel, position, ref) is not None

    return wanted
