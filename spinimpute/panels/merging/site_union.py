"""The sites of two panels together: which are the same, and which only one of them has.

A site is its position, REF and ALT. Where one panel has the alleles of a SNP the other way round, one of them
does not have the REF of the genome: it is the same site, and the second panel is turned.

Axes: S sites of both together, T sites that both have.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from spinimpute.genotypes.builds import infer_build
from spinimpute.genotypes.sites import Sites, complement, same_chromosome
from spinimpute.panels.panel import Panel
from spinimpute.panels.trust.site_trust import SiteDoubts
from spinimpute.runtime.errors import InputError, argument, call

ABSENT = -1
LEAST_SHARED = 0.1  # of the sites of the panel that has fewer
MOSTLY_SHARED = 0.5  # of the common sites that both panels could have: below that there is a warning
COMMON = 0.05  # frequency of the rarer allele
ENOUGH = 10  # sites to tell something
OTHER_STRAND = 0.05  # of the sites at positions of both: if so many are complements, a panel is refused
_SAMPLED = 5_000  # sites whose strand is looked at before panels are merged
MOST_APART_CM = 1.0  # from a site of both: nothing further away can be filled in


@dataclass(frozen=True, eq=False)
class SiteUnion:
    """The sites of two panels together, by position.

    Attributes
    ----------
    sites : Sites
        With the first panel's chromosome name, and its alleles and IDs where it has them.
    cM : float64 (S,)
        Genetic positions, by the first panel's map.
    multiallelic : bool (S,)
        As of `Panel`, if either panel says so.
    index_S : (int64 (S,), int64 (S,))
        The site of each panel, or ABSENT.
    turned_S : bool (S,)
        Sites of which the second panel has REF and ALT exchanged.
    """

    sites: Sites
    cM: np.ndarray
    multiallelic: np.ndarray
    index_S: tuple[np.ndarray, np.ndarray]
    turned_S: np.ndarray

    @cached_property
    def shared_T(self) -> np.ndarray:
        """int64: the sites that both panels have."""
        return np.flatnonzero((self.index_S[0] != ABSENT) & (self.index_S[1] != ABSENT))

    @cached_property
    def shared_before_S1(self) -> np.ndarray:
        """int64 (S + 1,): how many of the sites before each one both panels have."""
        both_S = (self.index_S[0] != ABSENT) & (self.index_S[1] != ABSENT)
        return np.insert(np.cumsum(both_S), 0, 0)

    def doubts(self, panels: tuple[Panel, Panel]) -> SiteDoubts:
        """What either panel knows against the sites.

        The larger discordance; at sites that a panel confirms, the larger confirmed one.
        """
        found_S, confirmed_S = np.zeros((2, len(self.sites)), np.uint8)
        for panel, index_S in zip(panels, self.index_S, strict=True):
            has_S = index_S != ABSENT
            for known_S, of_panel in (
                (found_S, panel.doubts.discordance),
                (confirmed_S, panel.doubts.confirmed_discordance),
            ):
                known_S[has_S] = np.maximum(known_S[has_S], of_panel[index_S[has_S]])
        return SiteDoubts(np.where(confirmed_S > 0, confirmed_S, found_S), confirmed_S > 0)

    def rows(self, panels: tuple[Panel, Panel], number: int, chosen: np.ndarray) -> np.ndarray:
        """Alleles of a panel at some sites that it has, as packed bits.

        Parameters
        ----------
        panels : (Panel, Panel)
            Open.
        number : int
            0 or 1: which panel.
        chosen : int64 (n,)
            Sites, increasing.

        Returns
        -------
        uint8 (n, ceil(n_haplotypes / 8))
            Packed bits, 1 for ALT; those of no haplotype are 0.

        Raises
        ------
        InputError
            The panel is damaged.
        """
        panel, index = panels[number], self.index_S[number][chosen]
        order = np.argsort(index)  # a panel may have the sites of a position in another order
        packed = np.empty((len(chosen), -(-panel.n_haplotypes // 8)), np.uint8)
        packed[order] = panel.packed_rows(index[order])
        if number and (turned := self.turned_S[chosen]).any():
            ones = np.packbits(np.ones(panel.n_haplotypes, np.uint8))
            packed[turned] ^= ones
        return packed


def unite_sites(first: Panel, second: Panel) -> SiteUnion:
    """The sites of two panels together.

    Parameters
    ----------
    first, second : Panel
        Open, and alike (`check_alike`).

    Returns
    -------
    SiteUnion
        All sites of either panel.

    Raises
    ------
    InputError
        The panels have hardly a site alike, or one goes on where the other has ended.
    """
    partner, turned = _partners(first.sites, second.sites)
    _check_strand(first, second, second.sites, partner, turned)
    _check_shared(first, second, int((partner != ABSENT).sum()))
    only = np.flatnonzero(partner == ABSENT)
    position = np.concatenate([first.position, second.position[only]])
    order = np.argsort(position, kind="stable")  # the first panel's come first
    index = np.concatenate([np.arange(first.n_sites), np.full(len(only), ABSENT)])
    other = np.full(first.n_sites, ABSENT)
    matched = np.flatnonzero(partner != ABSENT)
    other[partner[matched]] = matched
    other = np.concatenate([other, only])
    turned_all = np.zeros(len(order), bool)
    turned_all[partner[turned]] = True
    multiallelic = np.concatenate([first.multiallelic, second.multiallelic[only]])
    multiallelic[partner[matched]] |= second.multiallelic[matched]
    union = SiteUnion(
        _sites(first, second, only, order),
        np.concatenate([first.cM, _on_map(first, second, second.position[only])])[order],
        multiallelic[order],
        (index[order], other[order]),
        turned_all[order],
    )
    _check_reach(first, second, union)
    return union


def why_hardly_shared(panels: tuple[Panel, Panel], union: SiteUnion) -> str:
    """A sentence on panels that share less of their common sites than can be expected; "" if they do not.

    A common site within the other panel's range should be there, too, unless that panel has few sites.
    """
    names = " and ".join(panel.path.name for panel in panels)
    found: list[tuple[float, int, int]] = []
    for panel, other, index_S in zip(panels, panels[::-1], union.index_S, strict=True):
        common = (np.minimum(panel.frequency, 1 - panel.frequency) >= COMMON) & (
            (panel.position >= other.position[0]) & (panel.position <= other.position[-1])
        )
        shared = np.zeros(panel.n_sites, bool)
        shared[index_S[union.shared_T]] = True
        if (n_common := int(common.sum())) < ENOUGH:
            return ""
        n_shared = int((common & shared).sum())
        found.append((n_shared / n_common, n_shared, n_common))
    share, n_shared, n_common = max(found)
    if share >= MOSTLY_SHARED:
        return ""
    return (
        f"{names} share {n_shared} of {n_common} common sites that both could have. Unless they are of "
        "different arrays, check the alleles of both by the same reference genome (bcftools norm --check-ref)"
    )


def check_positions(first: Panel, second: Panel) -> None:
    """Check in little time what positions, and some alleles, of two panels show of their sites.

    Parameters
    ----------
    first, second : Panel
        As of `unite_sites`.

    Raises
    ------
    InputError
        As of `unite_sites`, unless it takes more than positions to know: sites that both have are fewer than
        positions that both have.
    """
    some = np.flatnonzero(np.isin(second.position, first.position))
    theirs = second.sites.take(some[:: max(1, len(some) // _SAMPLED)])
    _check_strand(first, second, theirs, *_partners(first.sites, theirs))
    pairs = (first, second), (second, first)
    shared = [np.isin(panel.position, other.position) for panel, other in pairs]
    few = shared[1].sum() < _least_shared(first, second)
    if few or any(
        (_apart_cM(panel.cM, panel.cM[both]) > MOST_APART_CM).any()
        for panel, both in zip((first, second), shared, strict=True)
    ):
        unite_sites(first, second)


def _partners(mine: Sites, theirs: Sites) -> tuple[np.ndarray, np.ndarray]:
    """The first panel's site of each of the second one, or ABSENT; and whether its alleles are exchanged."""
    partner, turned = np.full(len(theirs), ABSENT), np.zeros(len(theirs), bool)
    start, stop = (np.searchsorted(mine.position, theirs.position, side) for side in ("left", "right"))
    taken = np.zeros(len(mine), bool)
    for exchanged in (False, True):
        for i in np.flatnonzero((stop > start) & (partner == ABSENT)).tolist():
            ref, alt = theirs.ref[i].upper(), theirs.alt[i].upper()
            if exchanged:
                ref, alt = alt, ref
                if len(ref) + len(alt) > 2:  # an insertion and a deletion are two sites
                    continue
            for j in range(start[i], stop[i]):
                if not taken[j] and mine.ref[j].upper() == ref and mine.alt[j].upper() == alt:
                    partner[i], turned[i], taken[j] = j, exchanged, True
                    break
    return partner, turned


def _sites(first: Panel, second: Panel, only: np.ndarray, order: np.ndarray) -> Sites:
    added = second.sites.take(only)
    sites = first.sites
    both = Sites(
        sites.chrom,
        np.concatenate([sites.position, added.position]),
        sites.ref + added.ref,
        sites.alt + added.alt,
        sites.id + added.id,
    )
    return both.take(order)


def _on_map(first: Panel, second: Panel, position: np.ndarray) -> np.ndarray:
    """Genetic positions by the first panel's map; beyond its ends with the second one's distances."""
    cM = np.interp(position, first.position, first.cM)
    ends = first.position[[0, -1]]
    of_second = np.interp(position, second.position, second.cM)
    before, behind = np.interp(ends, second.position, second.cM)
    cM = np.where(position < ends[0], first.cM[0] - np.maximum(before - of_second, 0), cM)
    return np.where(position > ends[1], first.cM[-1] + np.maximum(of_second - behind, 0), cM)


def check_alike(first: Panel, second: Panel) -> None:
    """Raise InputError for panels of other chromosomes or genome builds."""
    if not same_chromosome(first.chrom, second.chrom):
        raise InputError(
            "content",
            f"panels {first.path} and {second.path} are of chromosomes {first.chrom} and {second.chrom}: "
            "give panels of one chromosome",
        )
    builds = _builds(first, second)
    if all(builds) and builds[0] != builds[1]:
        raise InputError(
            "mismatch",
            f"panels {first.path} and {second.path} are of the genome builds {builds[0]} and {builds[1]}: "
            "lift the VCF of one of them over (bcftools +liftover), and build it again",
        )


def _builds(first: Panel, second: Panel) -> list[str]:
    return [infer_build(panel.contig_line, panel.chrom) for panel in (first, second)]


def _least_shared(first: Panel, second: Panel) -> float:
    return max(1, LEAST_SHARED * min(first.n_sites, second.n_sites))


def _check_strand(
    first: Panel, second: Panel, theirs: Sites, partner: np.ndarray, turned: np.ndarray
) -> None:
    """Raise InputError if the second panel seems to be on the other strand.

    There its A/T and C/G sites, and no others, seem to have REF and ALT exchanged; the others are complements
    of the first panel's. theirs: its sites, or some of them; partner, turned: as of `_partners`.
    """
    ambiguous = sum(
        complement(theirs.ref[i]).upper() == theirs.alt[i].upper() for i in np.flatnonzero(turned)
    )
    said = ""
    if turned.sum() == ambiguous >= ENOUGH:
        said = f"all {ambiguous} SNPs that have REF and ALT exchanged are A/T or C/G"
    else:
        there = np.isin(theirs.position, first.position)
        alone = theirs.take((partner == ABSENT) & there)
        other = replace(alone, ref=[*map(complement, alone.ref)], alt=[*map(complement, alone.alt)])
        complements = int((_partners(first.sites, other)[0] != ABSENT).sum())
        if complements >= max(ENOUGH, len(alone) / 2, OTHER_STRAND * there.sum()):
            said = f"{complements} of {len(alone)} sites with other alleles have their complements"
    if said:
        raise InputError(
            "mismatch",
            f"panels {first.path} and {second.path}: {said}, so that one of them seems to be on the other "
            "strand. Set its alleles by the reference genome (bcftools +fixref) and build it again",
        )


def _check_shared(first: Panel, second: Panel, n_shared: int) -> None:
    least = _least_shared(first, second)
    if n_shared < least:
        raise InputError(
            "content",
            f"panels {first.path} and {second.path} have {n_shared} sites alike of {first.n_sites} and "
            f"{second.n_sites}, too few to fill in what one of them lacks: {_why_few(first, second, least)}",
        )


def _why_few(first: Panel, second: Panel, least: float) -> str:
    """Why two panels have hardly a site alike, and what to do; least: how many it should be."""
    (start, end), (other_start, other_end) = (panel.position[[0, -1]] for panel in (first, second))
    if end < other_start or other_end < start:
        return (
            f"they are of other regions, {first.chrom}:{start}-{end} and {second.chrom}:{other_start}-"
            f"{other_end}; build both of the same one"
        )
    places, others = (
        {(position, ref) for position, ref, _ in keys} for keys in (first.sites.keys(), second.sites.keys())
    )
    n_alike = len(places & others)
    if n_alike >= least:
        return (
            f"{n_alike} positions have the same REF and another ALT; write both VCFs in the same way "
            "(bcftools norm --multiallelics -any) and build the panels again, or give one of them alone"
        )
    builds = _builds(first, second)
    other_sites = "they hold other sites; give one of them alone"
    if all(builds):
        return other_sites
    return (
        "if they are of other genome builds, lift the VCF of one of them over (bcftools +liftover) and build "
        f"it again; if not, {other_sites}"
    )


def _check_reach(first: Panel, second: Panel, union: SiteUnion) -> None:
    """Raise InputError where one panel has sites far from all that both have."""
    far = np.flatnonzero(_apart_cM(union.cM, union.cM[union.shared_T]) > MOST_APART_CM)
    if len(far):
        which = int(union.index_S[0][far[0]] == ABSENT)
        has, lacks = ((first, second), (second, first))[which]
        at = f"{union.sites.chrom}:{union.sites.position[far[0]]}"
        raise InputError(
            "arguments",
            f"panel {has.path} has {len(far)} sites, the first at {at}, more than {MOST_APART_CM:g} cM from "
            f"any that {lacks.path} has, too: build both of the same region ({call('build_panel')} with "
            f"{argument('region')})",
        )


def _apart_cM(cM: np.ndarray, shared_cM: np.ndarray) -> np.ndarray:
    """How far places are from the nearest of some, of which there is one at least; both increase."""
    right = np.searchsorted(shared_cM, cM)
    to_right = shared_cM[right.clip(max=len(shared_cM) - 1)] - cM
    to_left = cM - shared_cM[(right - 1).clip(min=0)]
    return np.minimum(np.abs(to_left), np.abs(to_right))
