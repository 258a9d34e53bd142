"""Unite the sites of two panels, and check that the panels can be merged.

Sites are the same if they have equal position, REF and ALT. SNPs with REF and ALT exchanged are also the same
site: in one of the panels, REF differs from the genome. The alleles of the second panel are then exchanged.

Axes: S sites of the union, T sites in both panels.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from spinimpute.genotypes.builds import infer_build
from spinimpute.genotypes.records import RecordRows, record_order
from spinimpute.genotypes.sites import Sites, complement, same_chromosome
from spinimpute.panels.panel import Panel
from spinimpute.panels.trust.site_trust import SiteDoubts
from spinimpute.runtime.errors import InputError, argument, call

ABSENT = -1
MIN_SHARED = 0.1  # minimum share of the smaller panel's sites that both must have
MIN_SHARED_COMMON = 0.5  # share of common sites in both panels, below which a warning is given
COMMON = 0.05  # minimum minor allele frequency of a common site
MIN_SITES = 10  # minimum number of sites for a conclusion
MIN_COMPLEMENTS = 0.05  # share of complementary alleles, at shared positions, from which panels are refused
_MAX_STRAND_SITES = 5_000  # approximate number of sites for the early check of the strand
MAX_DISTANCE_CM = 1.0  # maximum distance to a site in both panels; alleles further away cannot be imputed


@dataclass(frozen=True, eq=False)
class SiteUnion:
    """The sites of two panels, sorted by position. Shared sites have the first panel's alleles and IDs."""

    sites: Sites
    cM: np.ndarray  # genetic positions by the first panel's map, float64 (S,)
    multiallelic: np.ndarray  # in either panel, and in neither beside a record of its REF, bool (S,)
    index_S: tuple[np.ndarray, np.ndarray]  # for each panel: index of the site in the panel, or ABSENT; int64
    swapped_S: np.ndarray  # sites whose REF and ALT are swapped in the second panel, bool

    @cached_property
    def shared_T(self) -> np.ndarray:
        """The sites in both panels, int64."""
        return np.flatnonzero((self.index_S[0] != ABSENT) & (self.index_S[1] != ABSENT))

    @cached_property
    def shared_before_S1(self) -> np.ndarray:
        """Number of sites in both panels before each site, int64 (S + 1,)."""
        return np.searchsorted(self.shared_T, np.arange(len(self.sites) + 1))

    @cached_property
    def records(self) -> RecordRows:
        """Which sites are one record."""
        return RecordRows.of(self.sites, self.multiallelic, np.zeros(len(self.sites)))

    def doubts(self, panels: tuple[Panel, Panel]) -> SiteDoubts:
        """Combine the doubts of both panels.

        A site gets the larger discordance of the two panels. If the discordance is confirmed in a panel, only
        confirmed values are used.
        """
        discordance_S, confirmed_S = np.zeros((2, len(self.sites)), np.uint8)
        for panel, index_S in zip(panels, self.index_S, strict=True):
            has_S = index_S != ABSENT
            for target_S, panel_values in (
                (discordance_S, panel.doubts.discordance),
                (confirmed_S, panel.doubts.confirmed_discordance),
            ):
                target_S[has_S] = np.maximum(target_S[has_S], panel_values[index_S[has_S]])
        return SiteDoubts(np.where(confirmed_S > 0, confirmed_S, discordance_S), confirmed_S > 0)

    def rows(self, panels: tuple[Panel, Panel], number: int, chosen: np.ndarray) -> np.ndarray:
        """Return the alleles of panel `number` at some sites that it has, as packed bits, uint8 (n, bytes).

        `chosen` are sites of the union, increasing. Raises InputError if the panel is damaged.
        """
        panel, index = panels[number], self.index_S[number][chosen]
        order = np.argsort(index)  # the panel may order the sites of one position differently
        packed = np.empty((len(chosen), -(-panel.n_haplotypes // 8)), np.uint8)
        packed[order] = panel.packed_rows(index[order])
        if number and (swapped := self.swapped_S[chosen]).any():
            ones = np.packbits(np.ones(panel.n_haplotypes, np.uint8))
            packed[swapped] ^= ones
        return packed


def unite_sites(first: Panel, second: Panel) -> SiteUnion:
    """Unite the sites of two panels. They must have passed `check_chromosome_and_build`.

    Raises InputError if the panels share too few sites, or if one extends far beyond the other.
    """
    partner, swapped = _match_sites(first.sites, second.sites)
    _check_strand(first, second, second.sites, partner, swapped)
    n_shared, min_shared = int((partner != ABSENT).sum()), _min_shared(first, second)
    if n_shared < min_shared:
        raise InputError(
            "content",
            f"panels {first.path} and {second.path} share {n_shared} sites of {first.n_sites} and "
            f"{second.n_sites}, too few to impute the sites that one of them lacks: "
            f"{_explain_few_shared(first, second, min_shared)}",
        )
    only_second = np.flatnonzero(partner == ABSENT)
    position = np.concatenate([first.position, second.position[only_second]])
    order = np.argsort(position, kind="stable")  # sites of the first panel come first
    index = np.concatenate([np.arange(first.n_sites), np.full(len(only_second), ABSENT)])
    second_index = np.full(first.n_sites, ABSENT)
    matched = np.flatnonzero(partner != ABSENT)
    second_index[partner[matched]] = matched
    second_index = np.concatenate([second_index, only_second])
    swapped_all = np.zeros(len(order), bool)
    swapped_all[partner[swapped]] = True
    multiallelic = np.concatenate([first.multiallelic, second.multiallelic[only_second]])
    multiallelic[partner[matched]] |= second.multiallelic[matched]
    multiallelic[: first.n_sites][_beside_a_record(first)] = False
    multiallelic[partner[matched][_beside_a_record(second)[matched]]] = False
    sites = Sites.concatenate([first.sites, second.sites.take(only_second)])
    # a sequence may be of a record with symbolic alleles in the second panel only
    of_second = second.sites.structural
    structural = {int(partner[row]): of_second[row] for row in of_second if partner[row] != ABSENT}
    union = _with_whole_records(
        SiteUnion(
            replace(sites, structural={**structural, **sites.structural}).take(order),
            np.concatenate([first.cM, _map_positions(first, second, second.position[only_second])])[order],
            multiallelic[order],
            (index[order], second_index[order]),
            swapped_all[order],
        )
    )
    _check_distances(first, second, union)
    return union


def _beside_a_record(panel: Panel) -> np.ndarray:
    """Return which sites are not in the multi-allelic record of their position and REF, bool (n_sites,).

    Its haplotypes may have ALT alleles of both.
    """
    position, ref, multiallelic = panel.position, panel.sites.ref, panel.multiallelic
    records = {(int(position[row]), ref[row].upper()) for row in np.flatnonzero(multiallelic)}
    beside = ~multiallelic & np.isin(position, position[multiallelic])
    for row in np.flatnonzero(beside).tolist():
        beside[row] = (int(position[row]), ref[row].upper()) in records
    return beside


def _with_whole_records(union: SiteUnion) -> SiteUnion:
    """Sort the sites of positions with several sites of multi-allelic records by `record_order`.

    So the ALTs of a record are neighbours, even if some are in one panel only.
    """
    position, order = union.sites.position, np.arange(len(union.sites))
    starts, counts = np.unique(position[union.multiallelic], return_counts=True)
    for at in starts[counts > 1].tolist():
        rows = np.arange(*np.searchsorted(position, [at, at + 1]))
        order[rows] = rows[record_order(union.sites.take(rows), union.multiallelic[rows])]
    if (np.diff(order) == 1).all():
        return union
    return SiteUnion(
        union.sites.take(order),
        union.cM[order],
        union.multiallelic[order],
        (union.index_S[0][order], union.index_S[1][order]),
        union.swapped_S[order],
    )


def few_shared_warning(panels: tuple[Panel, Panel], union: SiteUnion) -> str:
    """Return a warning if panels share too few of their common sites, else "".

    A common site within the range of the other panel should be in that panel, too, unless that panel has few
    sites.
    """
    names = " and ".join(panel.path.name for panel in panels)
    shares: list[tuple[float, int, int]] = []
    for panel, other, index_S in zip(panels, panels[::-1], union.index_S, strict=True):
        common = (np.minimum(panel.frequency, 1 - panel.frequency) >= COMMON) & (
            (panel.position >= other.position[0]) & (panel.position <= other.position[-1])
        )
        shared = np.zeros(panel.n_sites, bool)
        shared[index_S[union.shared_T]] = True
        if (n_common := int(common.sum())) < MIN_SITES:
            return ""
        n_shared = int((common & shared).sum())
        shares.append((n_shared / n_common, n_shared, n_common))
    share, n_shared, n_common = max(shares)
    if share >= MIN_SHARED_COMMON:
        return ""
    return (
        f"{names} share {n_shared} of {n_common} common sites in the range of both. Unless they are of "
        "different arrays, check the alleles of both by the same reference genome (bcftools norm --check-ref)"
    )


def check_early(first: Panel, second: Panel) -> None:
    """Raise InputError for panels that `unite_sites` would refuse.

    This is faster, because only positions and some alleles are compared. If they look unusable, `unite_sites`
    is called to raise the error.
    """
    shared_positions = np.flatnonzero(np.isin(second.position, first.position))
    second_sites = second.sites.take(shared_positions[:: max(1, len(shared_positions) // _MAX_STRAND_SITES)])
    _check_strand(first, second, second_sites, *_match_sites(first.sites, second_sites))
    pairs = (first, second), (second, first)
    shared = [np.isin(panel.position, other.position) for panel, other in pairs]
    few = shared[1].sum() < _min_shared(first, second)
    if few or any(
        (_distance_cM(panel.cM, panel.cM[both]) > MAX_DISTANCE_CM).any()
        for panel, both in zip((first, second), shared, strict=True)
    ):
        unite_sites(first, second)


def _match_sites(mine: Sites, theirs: Sites) -> tuple[np.ndarray, np.ndarray]:
    """Return the index in `mine` (or ABSENT) of each site `theirs`, and whether its alleles are exchanged."""
    partner, swapped = np.full(len(theirs), ABSENT), np.zeros(len(theirs), bool)
    start, stop = (np.searchsorted(mine.position, theirs.position, side) for side in ("left", "right"))
    used = np.zeros(len(mine), bool)
    for swap_alleles in (False, True):
        for i in np.flatnonzero((stop > start) & (partner == ABSENT)).tolist():
            ref, alt = theirs.alleles(i)
            if swap_alleles:
                ref, alt = alt, ref
                if len(ref) + len(alt) > 2:  # an insertion and a deletion are two sites
                    continue
            for j in range(start[i], stop[i]):
                if not used[j] and mine.alleles(j) == (ref, alt):
                    partner[i], swapped[i], used[j] = j, swap_alleles, True
                    break
    return partner, swapped


def _map_positions(first: Panel, second: Panel, position: np.ndarray) -> np.ndarray:
    """Return genetic positions in the first panel's map.

    Beyond the ends of the first panel, distances are those of the second panel's map.
    """
    cM = np.interp(position, first.position, first.cM)
    ends = first.position[[0, -1]]
    of_second = np.interp(position, second.position, second.cM)
    before, after = np.interp(ends, second.position, second.cM)
    cM = np.where(position < ends[0], first.cM[0] - np.maximum(before - of_second, 0), cM)
    return np.where(position > ends[1], first.cM[-1] + np.maximum(of_second - after, 0), cM)


def check_chromosome_and_build(first: Panel, second: Panel) -> None:
    """Raise InputError if panels are of different chromosomes or genome builds."""
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


def _min_shared(first: Panel, second: Panel) -> float:
    return max(1, MIN_SHARED * min(first.n_sites, second.n_sites))


def _check_strand(
    first: Panel, second: Panel, theirs: Sites, partner: np.ndarray, swapped: np.ndarray
) -> None:
    """Raise InputError if the second panel seems to be on the other strand.

    If a panel is on the other strand, its A/T and C/G sites (and no others) seem to have REF and ALT
    exchanged, and its other sites have complementary alleles. `theirs` are sites of the second panel,
    `partner` and `swapped` are the results of `_match_sites` for them.
    """
    ambiguous = sum(
        complement(theirs.ref[i]).upper() == theirs.alt[i].upper() for i in np.flatnonzero(swapped)
    )
    why = ""
    if swapped.sum() == ambiguous >= MIN_SITES:
        why = f"all {ambiguous} SNPs that have REF and ALT exchanged are A/T or C/G"
    else:
        at_shared_position = np.isin(theirs.position, first.position)
        unmatched = theirs.take((partner == ABSENT) & at_shared_position)
        complements = replace(
            unmatched, ref=[*map(complement, unmatched.ref)], alt=[*map(complement, unmatched.alt)]
        )
        n_complements = int((_match_sites(first.sites, complements)[0] != ABSENT).sum())
        if n_complements >= max(MIN_SITES, len(unmatched) / 2, MIN_COMPLEMENTS * at_shared_position.sum()):
            why = (
                f"{n_complements} of {len(unmatched)} sites with different alleles have complementary alleles"
            )
    if why:
        raise InputError(
            "mismatch",
            f"panels {first.path} and {second.path}: {why}, so one of them seems to be on the other "
            "strand. Set its alleles by the reference genome (bcftools +fixref) and build it again",
        )


def _explain_few_shared(first: Panel, second: Panel, least: float) -> str:
    """Explain, for a message, why two panels share fewer sites than `least`, and what to do."""
    (start, end), (other_start, other_end) = (panel.position[[0, -1]] for panel in (first, second))
    if end < other_start or other_end < start:
        return (
            f"they are of different regions, {first.chrom}:{start}-{end} and {second.chrom}:{other_start}-"
            f"{other_end}; build both of the same region"
        )
    first_keys, second_keys = (
        {(position, ref) for position, ref, _ in keys} for keys in (first.sites.keys(), second.sites.keys())
    )
    n_same_ref = len(first_keys & second_keys)
    if n_same_ref >= least:
        return (
            f"at {n_same_ref} positions they have the same REF but different ALT; write both VCFs the same "
            "way (bcftools norm --multiallelics -any) and build the panels again, or give one of them alone"
        )
    builds = _builds(first, second)
    other_sites = "they have different sites; give one of them alone"
    if all(builds):
        return other_sites
    return (
        "if they are of different genome builds, lift the VCF of one of them over (bcftools +liftover) and "
        f"build it again; if not, {other_sites}"
    )


def _check_distances(first: Panel, second: Panel, union: SiteUnion) -> None:
    """Raise InputError if a panel has sites that are far from all sites in both panels."""
    far_sites = np.flatnonzero(_distance_cM(union.cM, union.cM[union.shared_T]) > MAX_DISTANCE_CM)
    if len(far_sites):
        lacking = int(union.index_S[0][far_sites[0]] == ABSENT)
        has, lacks = ((first, second), (second, first))[lacking]
        first_site = f"{union.sites.chrom}:{union.sites.position[far_sites[0]]}"
        raise InputError(
            "arguments",
            f"panel {has.path} has {len(far_sites)} sites, the first at {first_site}, more than "
            f"{MAX_DISTANCE_CM:g} cM from every site that {lacks.path} has, too: build both of the same "
            f"region ({call('build_panel')} with {argument('region')})",
        )


def _distance_cM(cM: np.ndarray, shared_cM: np.ndarray) -> np.ndarray:
    """Return the distance of each genetic position to the nearest of `shared_cM`. Both are sorted."""
    right = np.searchsorted(shared_cM, cM)
    to_right = shared_cM[right.clip(max=len(shared_cM) - 1)] - cM
    to_left = cM - shared_cM[(right - 1).clip(min=0)]
    return np.minimum(np.abs(to_left), np.abs(to_right))
