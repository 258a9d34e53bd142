"""Read a target and match its sites to the panel: the first step of `impute`, `phase`, `convert` and `check`.

Axes: T matched sites, X samples.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from spinimpute.genotypes.haplotypes import Haplotypes
from spinimpute.genotypes.ploidy import ResolvedPloidy
from spinimpute.genotypes.sites import NoMatch, NoRecord, Region, SiteMatch
from spinimpute.hmm.recombination_scale import recombination_scale
from spinimpute.panels.reference import ReferencePanel
from spinimpute.panels.spin_files import find_x_region
from spinimpute.pipeline.settings import TargetSettings
from spinimpute.pipeline.verdicts import check_called, verdicts
from spinimpute.quality.frequencies import BLOCK_SITES
from spinimpute.quality.summary import ImputationSummary
from spinimpute.runtime.errors import InputError
from spinimpute.targets.formats import read_target
from spinimpute.targets.repair import (
    ALT_TAKEN,
    CONTRADICTORY,
    STRAND_BY_FREQUENCY,
    SiteNote,
    repair_and_match,
)


class CallPresence(NamedTuple):
    """Boolean arrays: which matched sites, and which samples, have at least one call."""

    sites_T: np.ndarray
    samples_X: np.ndarray


@dataclass(frozen=True)
class MatchedTarget:
    """A target with the panel's REF and ALT, for a chromosome or a part of X (PAR1, PAR2 or the rest)."""

    panel: ReferencePanel
    resolved: ResolvedPloidy  # the target before repairs
    target: Haplotypes
    match: SiteMatch  # pairs of target sites and panel sites
    repairs: list[SiteNote]
    contradictory: int = 0  # calls set missing because records of the same site contradict each other
    jumps_per_cM: float | None = None  # recombination scale, from all typed sites; None: not yet estimated

    def strand_chosen(self) -> np.ndarray:
        """Return the panel sites whose strand was switched by allele frequencies, int64."""
        found = set()
        for note in self.repairs:
            if note.what == STRAND_BY_FREQUENCY:
                found.add((note.position, note.panel_ref, note.panel_alt))
        if not found:
            return np.empty(0, np.int64)
        sites, index = self.panel.sites, self.match.panel_index
        return index[[(int(sites.position[i]), sites.ref[i], sites.alt[i]) in found for i in index]]

    @cached_property
    def call_presence(self) -> CallPresence:
        """Which matched sites and samples have calls. Alleles are read in blocks to limit memory."""
        target, match = self.target, self.match
        sites_T = np.zeros(len(match.target_index), bool)
        max_allele_Q = np.full(target.alleles.shape[1], -1, np.int8)
        for start in range(0, len(sites_T), BLOCK_SITES):
            rows = slice(start, start + BLOCK_SITES)
            alleles = target.alleles[match.target_index[rows]]
            sites_T[rows] = alleles.max(axis=1) >= 0
            np.maximum(max_allele_Q, alleles.max(axis=0), out=max_allele_Q)
        first_X = np.cumsum(target.ploidy, dtype=np.int64) - target.ploidy
        return CallPresence(sites_T, np.maximum.reduceat(max_allele_Q, first_X) >= 0)

    @property
    def typed_index_used(self) -> np.ndarray:
        """Panel sites at which any sample has a call, int64. With an inducing panel: only its array sites."""
        index, array = self.match.panel_index[self.call_presence.sites_T], self.panel.array_index
        return index if array is None else index[np.isin(index, array)]

    def with_recombination_scale(self) -> MatchedTarget:
        """Return the target with a recombination scale. Unchanged if the panel has no haplotypes."""
        haplotypes = self.panel.haplotypes
        if self.jumps_per_cM is not None or haplotypes is None:
            return self
        return replace(self, jumps_per_cM=recombination_scale(haplotypes, self.match.panel_index))


@dataclass
class TargetRead:
    """The result of `read_matched`: the matched target and warnings.

    `matched` has one entry for each part of the chromosome that has typed sites. `refusals` are the problems
    for which the target is refused without `force`.
    """

    matched: list[MatchedTarget] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)

    def count(self, summary: ImputationSummary) -> None:
        """Add to a summary: sizes of panel and target, repairs, missing and dropped calls, and warnings."""
        summary.warnings += self.warnings
        summary.refusals += self.refusals
        summary.count_skipped(self.matched[-1].target.skipped)  # counts of the whole file, equal in all parts
        for one in self.matched:
            panel, target, match = one.panel, one.target, one.match
            summary.panel_sites += panel.n_sites
            summary.panel_haplotypes = max(summary.panel_haplotypes, panel.n_haplotypes)
            summary.samples = len(target.samples)
            summary.haplotypes = max(summary.haplotypes, target.alleles.shape[1])
            summary.typed_sites += len(target.sites)
            summary.matched_sites += len(match.panel_index)
            first_X = np.cumsum(target.ploidy, dtype=np.int64) - target.ploidy
            min_allele_TX = np.minimum.reduceat(target.alleles[match.target_index], first_X, axis=1)
            summary.missing_calls += int((min_allele_TX < 0).sum())
            for total, counts in (
                (summary.repaired, Counter(repair.what for repair in one.repairs)),
                (summary.unmatched, match.unmatched),
                (summary.mended_calls, one.resolved.set_missing),
                (summary.mended_calls, {CONTRADICTORY: one.contradictory} if one.contradictory else {}),
            ):
                for what, count in counts.items():
                    total[what] = total.get(what, 0) + count
            n_haploid = int((target.ploidy == 1).sum())
            if n_haploid:
                part = find_x_region(panel)
                name = panel.chrom if part is None else f"{panel.chrom} {part.name}"
                summary.haploid.append(f"{name}: {n_haploid} of {len(target.samples)} samples have one copy")
            summary.warnings += [f"{warning}: is it the right sample?" for warning in one.resolved.doubts]
        first = self.matched[0]
        shared = sorted(set(first.panel.samples) & set(first.target.samples))
        if shared:
            rest = ", ..." if len(shared) > 3 else ""
            warning = (
                f"{len(shared)} target samples have the names of panel samples "
                f"({', '.join(shared[:3])}{rest}). If they are the same people, their accuracy says nothing "
                "about other people"
            )
            if warning not in summary.warnings:  # another chromosome may have added it
                summary.warnings.append(warning)


def read_matched(
    panels: Sequence[ReferencePanel],
    vcf: str | Path,
    settings: TargetSettings = TargetSettings(),
    *,
    allow_unphased: bool = True,
    only: Region | None = None,
    force: bool = False,
) -> TargetRead:
    """Read a target, repair its alleles and match it to the parts of a panel.

    Without `allow_unphased`, unphased heterozygotes raise InputError, and calls of duplicate records with
    conflicting phases are set missing. `only` is the region to read, if the file format supports this;
    then it is not checked whether the target as a whole fits the panel. With `force`, a target that
    does not fit the panel is accepted.
    """
    read = partial(
        read_target,
        vcf,
        panels,
        allow_unphased=allow_unphased,
        sexes=settings.sexes,
        chain=settings.chain,
        samples=settings.samples,
    )
    try:
        resolved = read(region=only)
    except NoRecord:
        if only is None:
            raise
        resolved, only = read(region=None), None
    result = TargetRead()
    failure: NoMatch | None = None
    for panel, part in zip(panels, resolved, strict=True):
        if part is not None:
            try:
                repaired = repair_and_match(
                    panel.sites, panel.frequency, part.haplotypes, settings.ambiguous, allow_unphased
                )
                target, match, repairs = repaired.target, repaired.match, repaired.repairs
                result.matched.append(
                    MatchedTarget(panel, part, target, match, repairs, repaired.contradictory)
                )
                continue
            except NoMatch as error:
                failure = failure or error
        x_part = find_x_region(panel)
        result.warnings.append(
            f"no panel site is typed in {x_part.name if x_part else panel.chrom} ({panel.chrom}:"
            f"{panel.position[0]}-{panel.position[-1]}): its {panel.n_sites} sites are left out"
        )
    if not result.matched:
        assert failure is not None, "a target without a site in any part is refused by its reader"
        raise failure
    if only is None:  # check whether the target as a whole fits the panel
        called_X = np.logical_or.reduce([one.call_presence.samples_X for one in result.matched])
        result.warnings += check_called(vcf, panels[0].chrom, result.matched[0].target.samples, called_X)
        for one in result.matched:
            n_without_alt = sum(repair.what == ALT_TAKEN for repair in one.repairs)
            for verdict in verdicts(
                one.panel,
                one.target,
                one.match,
                lifted=settings.chain is not None,
                n_without_alt=n_without_alt,
            ):
                result.warnings.append(verdict.text)
                if verdict.refused:
                    result.refusals.append(verdict.text)
    if result.refusals and not force:
        raise InputError("mismatch", result.refusals[0])
    return result
