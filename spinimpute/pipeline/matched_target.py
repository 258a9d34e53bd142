"""Read a target and match it to the panel: the first step of imputing, phasing and checking.

Axes: T matched sites, X samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from spinimpute.genotypes.haplotypes import Haplotypes
from spinimpute.genotypes.ploidy import ResolvedPloidy
from spinimpute.genotypes.sites import NoMatch, NoRecord, Region, SiteMatch
from spinimpute.hmm.recombination_scale import recombination_scale
from spinimpute.panels.reference import ReferencePanel
from spinimpute.panels.spin_files import find_x_region
from spinimpute.pipeline.settings import TargetSettings
from spinimpute.pipeline.verdicts import Called, check_called, verdicts
from spinimpute.quality.summary import ImputationSummary
from spinimpute.runtime.errors import InputError
from spinimpute.targets.reader import read_target
from spinimpute.targets.repair import ALT_TAKEN, RepairedTarget, repair_and_match


@dataclass(frozen=True)
class MatchedTarget:
    """A target with the alleles of a panel: of a chromosome, or of a pseudo-autosomal or other part of X.

    Attributes
    ----------
    panel : ReferencePanel
        The panel of that part.
    resolved : ResolvedPloidy
        The target before repairs.
    repaired : RepairedTarget
        The target with the panel's alleles, and its matched sites.
    jumps_per_cM : float or None
        Recombination scale by all typed sites of the target (`recombination_scale`), if only some were read;
        None if it is to be estimated from those that were.
    """

    panel: ReferencePanel
    resolved: ResolvedPloidy
    repaired: RepairedTarget
    jumps_per_cM: float | None = None

    @property
    def target(self) -> Haplotypes:
        """The repaired target."""
        return self.repaired.target

    @property
    def match(self) -> SiteMatch:
        """Which of its sites the panel has."""
        return self.repaired.match

    @cached_property
    def called(self) -> Called:
        """Which of the matched sites, and which samples, have calls."""
        return Called.of(self.target, self.match)

    @property
    def typed_index_used(self) -> np.ndarray:
        """Panel sites where any sample has a call, int64; with an inducing panel, those of its array."""
        index, array = self.match.panel_index[self.called.sites_T], self.panel.array_index
        return index if array is None else index[np.isin(index, array)]

    def with_rate(self) -> MatchedTarget:
        """Add the recombination scale of its matched sites, if it has none and the panel has haplotypes."""
        haplotypes = self.panel.haplotypes
        if self.jumps_per_cM is not None or haplotypes is None:
            return self
        return replace(self, jumps_per_cM=recombination_scale(haplotypes, self.match.panel_index))

    @property
    def name(self) -> str:
        """The chromosome, with PAR1, non-PAR or PAR2 for a part of X."""
        part = find_x_region(self.panel)
        return self.panel.chrom if part is None else f"{self.panel.chrom} {part.name}"


@dataclass
class TargetRead:
    """A target as `read_matched` returns it.

    Attributes
    ----------
    matched : list of MatchedTarget
        One for each part of the chromosome in which sites are typed.
    warnings, refusals : list of str
        Warnings to the user, and those for which a target is refused without `force`.
    """

    matched: list[MatchedTarget]
    warnings: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)

    def count(self, summary: ImputationSummary) -> None:
        """Add the counts and warnings of the target to a summary."""
        summary.warnings += self.warnings
        summary.refusals += self.refusals
        summary.count_skipped(self.matched[-1].target.skipped)  # of the whole file
        for one in self.matched:
            _count(summary, one)
            summary.warnings += [f"{doubt}: is it the right sample?" for doubt in one.resolved.doubts]
        for warning in _shared_samples(self.matched[0]):
            if warning not in summary.warnings:  # as for another chromosome
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

    Without `allow_unphased`, unphased heterozygotes are refused, and repeated calls whose phases conflict are
    missing. With `only`, no more than this region is read, where the reader can read a part, and the target
    is not judged as a whole. With `force`, a target that does not fit the panel is accepted.
    """

    def read(wanted: Region | None) -> list[ResolvedPloidy | None]:
        return read_target(
            vcf,
            panels,
            allow_unphased=allow_unphased,
            sexes=settings.sexes,
            chain=settings.chain,
            region=wanted,
            samples=settings.samples,
        )

    try:
        resolved = read(only)
    except NoRecord:
        if only is None:
            raise
        resolved, only = read(None), None
    found = TargetRead([])
    failure: NoMatch | None = None
    for panel, part in zip(panels, resolved, strict=True):
        if part is not None:
            try:
                repaired = repair_and_match(
                    panel.sites, panel.frequency, part.haplotypes, settings.ambiguous, allow_unphased
                )
                found.matched.append(MatchedTarget(panel, part, repaired))
                continue
            except NoMatch as error:
                failure = failure or error
        found.warnings.append(_untyped_part(panel))
    if not found.matched:
        assert failure is not None, "a target without a site in any part is refused by its reader"
        raise failure
    if only is None:
        _judge(found, vcf, lifted=settings.chain is not None)
    if found.refusals and not force:
        raise InputError("mismatch", found.refusals[0])
    return found


def _judge(found: TargetRead, vcf: str | Path, *, lifted: bool) -> None:
    """Add warnings and refusals for a target as a whole."""
    called_X = np.logical_or.reduce([one.called.samples_X for one in found.matched])
    found.warnings += check_called(vcf, found.matched[0].target.samples, called_X)
    for one in found.matched:
        for verdict in verdicts(
            one.panel,
            one.target,
            one.match,
            lifted=lifted,
            n_without_alt=one.repaired.counts().get(ALT_TAKEN, 0),
        ):
            found.warnings.append(verdict.text)
            if verdict.refused:
                found.refusals.append(verdict.text)


def _untyped_part(panel: ReferencePanel) -> str:
    part = find_x_region(panel)
    return (
        f"no panel site is typed in {part.name if part else panel.chrom} ({panel.chrom}:"
        f"{panel.position[0]}-{panel.position[-1]}): its {panel.n_sites} sites are left out"
    )


def _count(summary: ImputationSummary, one: MatchedTarget) -> None:
    """Add the size of panel and target, and what was changed in the target."""
    panel, target, match = one.panel, one.target, one.match
    summary.panel_sites += panel.n_sites
    summary.panel_haplotypes = max(summary.panel_haplotypes, panel.n_haplotypes)
    summary.samples = len(target.samples)
    summary.haplotypes = max(summary.haplotypes, target.alleles.shape[1])
    summary.typed_sites += len(target.sites)
    summary.matched_sites += len(match.panel_index)
    first_X = np.cumsum(target.ploidy, dtype=np.int64) - target.ploidy
    least_TX = np.minimum.reduceat(target.alleles[match.target_index], first_X, axis=1)
    summary.missing_calls += int((least_TX < 0).sum())
    for total, counts in (
        (summary.repaired, one.repaired.counts()),
        (summary.unmatched, match.unmatched),
        (summary.mended_calls, one.resolved.lost),
        (summary.mended_calls, one.repaired.mended_calls()),
    ):
        for what, count in counts.items():
            total[what] = total.get(what, 0) + count
    if (target.ploidy == 1).any():
        n_haploid = int((target.ploidy == 1).sum())
        summary.haploid.append(f"{one.name}: {n_haploid} of {len(target.samples)} samples have one copy")


def _shared_samples(matched: MatchedTarget) -> list[str]:
    """Return a warning if samples of the target have the names of panel samples."""
    shared = sorted(set(matched.panel.samples) & set(matched.target.samples))
    if not shared:
        return []
    more = ", ..." if len(shared) > 3 else ""
    return [
        f"{len(shared)} target samples have the names of panel samples ({', '.join(shared[:3])}{more}). If "
        "they are the same people, their accuracy says nothing about other people"
    ]
