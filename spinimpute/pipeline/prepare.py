"""Reads a target and matches it to the panel: the first step of imputing, phasing and checking.

Axes: T matched sites, X samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
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
from spinimpute.targets.repair import ALT_TAKEN, Repaired, repair_and_match


@dataclass(frozen=True)
class Prepared:
    """A target, or its part on one part of chromosome X, with the alleles of the panel.

    Attributes
    ----------
    panel : ReferencePanel
        The panel of that part.
    resolved : ResolvedPloidy
        The target before repairs.
    repaired : Repaired
        The target with the panel's alleles, and its matched sites.
    jumps_per_cM : float or None
        Recombination scale by all typed sites of the target (`recombination_scale`), if only some are here;
        None if it is to be estimated from those that are.
    """

    panel: ReferencePanel
    resolved: ResolvedPloidy
    repaired: Repaired
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
        """Panel sites where somebody has a call; those of the array, if the panel is made for one; int64."""
        index, array = self.match.panel_index[self.called.sites_T], self.panel.array_index
        return index if array is None else index[np.isin(index, array)]

    def with_rate(self) -> Prepared:
        """With the recombination scale of its matched sites, unless it has one; none without haplotypes."""
        haplotypes = self.panel.haplotypes
        if self.jumps_per_cM is not None or haplotypes is None:
            return self
        return replace(self, jumps_per_cM=recombination_scale(haplotypes, self.match.panel_index))

    @property
    def name(self) -> str:
        """PAR1, non-PAR, PAR2, or the chromosome."""
        part = find_x_region(self.panel)
        return self.panel.chrom if part is None else f"{self.panel.chrom} {part.name}"


def prepare(
    panels: Sequence[ReferencePanel],
    vcf: str | Path,
    summary: ImputationSummary,
    target: TargetSettings = TargetSettings(),
    *,
    allow_unphased: bool = True,
    only: Region | None = None,
    force: bool = False,
) -> list[Prepared]:
    """Read a target, repair its alleles and match it to the panels.

    Parameters
    ----------
    panels : sequence of ReferencePanel
        The parts of one panel.
    vcf : str or Path
        The target.
    summary : ImputationSummary
        Counts and warnings are added to it.
    target : TargetSettings
        How the target is read.
    allow_unphased : bool
        Whether unphased heterozygotes are accepted. If not, repeated calls whose phases
        conflict are missing.
    only : Region or None
        Read no more than this, where the reader can read a part; if nothing is typed there, all is read. A
        part is not judged.
    force : bool
        Continue even if the target as a whole does not fit (`verdicts`).

    Returns
    -------
    list of Prepared
        One for each part of the chromosome; a part of chromosome X without typed sites is skipped with a
        warning.

    Raises
    ------
    InputError
        As `read_target`, `match_sites` and `check_called`, and without `force` if a verdict is a refusal.
    """

    def read(wanted: Region | None) -> list[ResolvedPloidy | None]:
        return read_target(
            vcf,
            panels,
            allow_unphased=allow_unphased,
            sexes=target.sexes,
            chain=target.chain,
            region=wanted,
            samples=target.samples,
        )

    try:
        resolved = read(only)
    except NoRecord:
        if only is None:
            raise
        resolved, only = read(None), None
    prepared: list[Prepared] = []
    failure: NoMatch | None = None
    for panel, part in zip(panels, resolved, strict=True):
        if part is None:
            _warn_of_untyped(summary, panel)
            continue
        try:
            repaired = repair_and_match(
                panel.sites, panel.frequency, part.haplotypes, target.ambiguous, allow_unphased
            )
        except NoMatch as error:
            failure = failure or error
            if len(panels) > 1:
                _warn_of_untyped(summary, panel)
            continue
        prepared.append(Prepared(panel, part, repaired))
    if not prepared:
        assert failure is not None, "a target without a site in any part is refused by its reader"
        raise failure
    if only is None:
        _judge(summary, vcf, prepared, force=force, lifted=target.chain is not None)
    for one in prepared:
        _count(summary, one)
    _warn_of_shared_samples(summary, prepared[0])
    return prepared


def _judge(
    summary: ImputationSummary,
    vcf: str | Path,
    prepared: Sequence[Prepared],
    *,
    force: bool,
    lifted: bool,
) -> None:
    """Note what is wrong with the target as a whole. Raises InputError for refusals without `force`."""
    called_X = np.logical_or.reduce([one.called.samples_X for one in prepared])
    check_called(summary, vcf, prepared[0].target.samples, called_X)
    found = [
        verdict
        for one in prepared
        for verdict in verdicts(
            one.panel,
            one.target,
            one.match,
            lifted=lifted,
            n_without_alt=one.repaired.counts().get(ALT_TAKEN, 0),
        )
    ]
    summary.refusals += [verdict.text for verdict in found if verdict.refused]
    if summary.refusals and not force:
        raise InputError("content", summary.refusals[0])
    summary.warnings += [verdict.text for verdict in found]


def _warn_of_untyped(summary: ImputationSummary, panel: ReferencePanel) -> None:
    part = find_x_region(panel)
    summary.warnings.append(
        f"no site of the panel is typed in {part.name if part else panel.chrom} ({panel.chrom}:"
        f"{panel.position[0]}-{panel.position[-1]}): its {panel.n_sites} sites are left out"
    )


def _count(summary: ImputationSummary, part: Prepared) -> None:
    """Fill in what is known before anything is imputed."""
    panel, target, match = part.panel, part.target, part.match
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
        (summary.repaired, part.repaired.counts()),
        (summary.unmatched, match.unmatched),
        (summary.mended_calls, part.resolved.lost),
        (summary.mended_calls, part.repaired.mended_calls()),
    ):
        for what, count in counts.items():
            total[what] = total.get(what, 0) + count
    summary.skipped = dict(target.skipped)  # of the whole file
    if (target.ploidy == 1).any():
        n_haploid = int((target.ploidy == 1).sum())
        summary.haploid.append(f"{part.name}: {n_haploid} of {len(target.samples)} samples have one copy")
    summary.warnings += [f"{doubt}: is it the right sample?" for doubt in part.resolved.doubts]


def _warn_of_shared_samples(summary: ImputationSummary, part: Prepared) -> None:
    shared = sorted(set(part.panel.samples) & set(part.target.samples))
    warning = (
        f"{len(shared)} target samples have the names of panel samples ({', '.join(shared[:3])}"
        f"{', ...' if len(shared) > 3 else ''}): if they are the same people, accuracy on them means nothing"
    )
    if shared and warning not in summary.warnings:  # of another chromosome
        summary.warnings.append(warning)
