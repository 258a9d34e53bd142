"""What is wrong with a target as a whole: the same words and thresholds in `impute`, `phase` and `check`.

Axes: T matched sites.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from spinimpute.genotypes.builds import infer_build
from spinimpute.genotypes.haplotypes import Haplotypes
from spinimpute.genotypes.sites import DUPLICATE, SiteMatch, Sites
from spinimpute.genotypes.untyped_intervals import FAR_CM, count_sites, cut_equal_lengths, untyped_intervals
from spinimpute.panels.reference import ReferencePanel
from spinimpute.quality.frequencies import BLOCK_SITES, Frequencies
from spinimpute.quality.summary import ImputationSummary
from spinimpute.runtime.errors import InputError, argument

LEAST_SHARE = 0.1  # of a target's sites in the panel's region must be panel sites,
LEAST_SHARE_OF_OTHER_BUILD = 0.5  # more if the headers state different builds,
FEW_SITES = 20  # unless so few are concerned

ODD_SHARE = 0.05  # of the sites have odd frequencies: worth a warning
# Of the sites, nearer to the frequency of the panel's other allele: where alleles are exchanged those are all
# but the very common ones, where peoples differ less than a tenth.
EXCHANGED_SHARE = 0.3
# Of few samples no single site is odd, but all together: frequencies mostly go with the panel's
OPPOSITE = -0.2  # correlation of the frequencies of target and panel


@dataclass(frozen=True)
class Verdict:
    """A sentence on a target, and whether it is not imputed without --force."""

    text: str
    refused: bool


@dataclass(frozen=True)
class Called:
    """Where a target has calls, among the matched sites.

    Attributes
    ----------
    sites_T : bool (T,)
        Whether any sample has a call at the site.
    samples_X : bool (X,)
        Whether the sample has a call at any site.
    """

    sites_T: np.ndarray
    samples_X: np.ndarray

    @classmethod
    def of(cls, target: Haplotypes, match: SiteMatch) -> Called:
        """Look through the alleles of a repaired target."""
        sites_T = np.zeros(len(match.target_index), bool)
        most_Q = np.full(target.alleles.shape[1], -1, np.int8)
        for start in range(0, len(sites_T), BLOCK_SITES):
            some = slice(start, start + BLOCK_SITES)
            alleles = target.alleles[match.target_index[some]]
            sites_T[some] = alleles.max(axis=1) >= 0
            np.maximum(most_Q, alleles.max(axis=0), out=most_Q)
        first_X = np.cumsum(target.ploidy, dtype=np.int64) - target.ploidy
        return cls(sites_T, np.maximum.reduceat(most_Q, first_X) >= 0)


def check_called(
    summary: ImputationSummary, vcf: str | Path, samples: Sequence[str], called_X: np.ndarray
) -> None:
    """Warn of samples without a call; refuse a target without any.

    Parameters
    ----------
    summary : ImputationSummary
        Gets the warning.
    vcf : str or Path
        The target, for the message.
    samples : sequence of str
        Their names.
    called_X : bool (X,)
        As of `Called`, of the whole chromosome.

    Raises
    ------
    InputError
        No sample has a call.
    """
    without = [name for name, called in zip(samples, called_X.tolist(), strict=True) if not called]
    if len(without) == len(samples):
        raise InputError(
            "content",
            f"target {vcf}: every call is missing at the sites that the panel has: there is nothing to "
            "impute from. Give a file with called genotypes",
        )
    if without:
        more = f" and {len(without) - 5} more" if len(without) > 5 else ""
        summary.warnings.append(
            f"{len(without)} of {len(samples)} samples have no call at any site that the panel has "
            f"({', '.join(without[:5])}{more}): what is imputed for them is a guess by frequency"
        )


def verdicts(
    panel: ReferencePanel,
    target: Haplotypes,
    match: SiteMatch,
    *,
    lifted: bool,
    n_without_alt: int = 0,
) -> list[Verdict]:
    """Judge a repaired target, or its part on one part of chromosome X.

    Parameters
    ----------
    panel : ReferencePanel
        The panel.
    target : Haplotypes
        With the panel's alleles where they were repaired.
    match : SiteMatch
        Which of its sites are the panel's.
    lifted : bool
        It was lifted over: what its header states of the build is past.
    n_without_alt : int
        As of `sites_alike`.

    Returns
    -------
    list of Verdict
        None for a target that fits.
    """
    builds = ("", "") if lifted else tuple(infer_build(x.contig_line, panel.chrom) for x in (target, panel))
    return [
        *sites_alike(panel.sites, target.sites, match, builds, n_without_alt),
        *_frequencies_alike(Frequencies.of(panel, target, match), target),
    ]


def sites_alike(
    panel: Sites, target: Sites, match: SiteMatch, builds: Sequence[str] = ("", ""), n_without_alt: int = 0
) -> list[Verdict]:
    """Whether enough of a target's sites are panel sites.

    Sites beyond the panel's ends do not count: a panel may be of a part of a chromosome.

    Parameters
    ----------
    panel, target : Sites
        What was matched.
    match : SiteMatch
        As of `match_sites`.
    builds : (str, str)
        Genome builds of target and panel as the headers state them, or "".
    n_without_alt : int
        Matched sites that do not count: their ALT is the panel's, and others without ALT are not read.

    Returns
    -------
    list of Verdict
        One at most.
    """
    inside = (target.position >= panel.position[0]) & (target.position <= panel.position[-1])
    n_inside = int(inside.sum()) - n_without_alt
    lost = [i for i in match.reasons if inside[i] and match.reasons[i] != DUPLICATE]
    n_found = n_inside - len(lost)
    differ = bool(builds[0] and builds[1] and builds[0] != builds[1])
    stated = (
        f"by the chromosome's length in the headers the target is on {builds[0]} and the panel on {builds[1]}"
    )
    least = LEAST_SHARE_OF_OTHER_BUILD if differ else LEAST_SHARE
    if len(lost) < FEW_SITES or n_found >= least * n_inside:
        if not differ:
            return []
        text = f"{stated}, but {n_found} of {n_inside} sites are panel sites: is one of the headers wrong?"
        return [Verdict(text, refused=False)]
    counts = ", ".join(f"{reason}: {count}" for reason, count in Counter(match.reasons.values()).items())
    first = lost[0]
    why = (
        f"{stated[0].upper()}{stated[1:]}"
        if differ
        else "The target is probably on another genome build than the panel"
    )
    text = (
        f"only {n_found} of the {n_inside} target sites in the panel's region are panel sites: {counts}; the "
        f"first is {target.chrom}:{target.position[first]} {target.ref[first]}>{target.alt[first]}, "
        f"{match.reasons[first]}. {why}; lift it over ({argument('chain')}), or go on with "
        f"{argument('force', True)}"
    )
    return [Verdict(text, refused=True)]


def _frequencies_alike(frequencies: Frequencies, target: Haplotypes) -> list[Verdict]:
    """Whether the alleles are as common as in the panel; one verdict at most."""
    odd_T = frequencies.outlier_T
    n_odd, n_exchanged = int(odd_T.sum()), int(frequencies.exchanged_T.sum())
    n_known = int((frequencies.called_T > 0).sum())
    where = f"on {target.sites.chrom}"
    correlation = frequencies.correlation()
    exchanged = n_exchanged >= FEW_SITES and n_exchanged > EXCHANGED_SHARE * n_known
    if exchanged or correlation < OPPOSITE:
        found = (
            f"at {n_exchanged} of {n_known} typed sites ALT is as common as REF is in the panel"
            if exchanged
            else "where ALT is common in the panel it is rare in the target (the frequencies' correlation at "
            f"{n_known} typed sites is {correlation:.2f})"
        )
        text = (
            f"{found}, {where}: REF and ALT, or the calls of them, are probably exchanged in the target; set "
            "them by the reference genome (bcftools +fixref, or plink2 --ref-from-fa force), or go on with "
            f"{argument('force', True)}"
        )
        # sites of one haplotype are alike: a few sound samples may look exchanged by one of the two measures
        return [Verdict(text, refused=exchanged and correlation <= 0)]
    if n_odd >= FEW_SITES and n_odd > ODD_SHARE * n_known:
        text = (
            f"at {n_odd} of {n_known} typed sites, {where}, ALT is far more or less common than in the "
            "panel: either the panel is of other people, and imputes poorly, or alleles are exchanged (check "
            "--out lists the sites)"
        )
        return [Verdict(text, refused=False)]
    return []


def note_untyped(
    summary: ImputationSummary, panel: ReferencePanel, places: Sequence[tuple[np.ndarray, int, int]]
) -> None:
    """Note the stretches of some panel sites that have no typed site nearby, and warn of them.

    Parameters
    ----------
    summary : ImputationSummary
        Gets the stretches.
    panel : ReferencePanel
        The panel.
    places : sequence of (int64 (T,), int, int)
        The panel sites that are typed, increasing, and panel sites [first, last) that are imputed from them.
    """
    found = [
        stretch
        for typed_index, first, last in places
        for stretch in untyped_intervals(panel.chrom, panel.position, panel.cM, typed_index, first, last)
    ]
    found.sort(key=lambda stretch: (-stretch.imputed, stretch.start))
    summary.untyped += found
    if found:
        n_imputed = sum(stretch.imputed for stretch in found)
        more = "" if len(found) == 1 else f" and {len(found) - 1} smaller stretches, {n_imputed} in all"
        summary.warnings.append(
            f"hardly a site is typed in {found[0]}{more}: what is imputed more than {FAR_CM} cM from a typed "
            "site is little more than a guess by frequency"
        )


def check_typed_ratio(
    panel: ReferencePanel, typed_index: np.ndarray, first: int, last: int, least: float
) -> None:
    """Refuse a target that has typed too few sites of a fixed stretch of the panel.

    Parameters
    ----------
    panel : ReferencePanel
        The panel.
    typed_index : int64 (T,)
        The panel sites that are typed, increasing.
    first, last : int
        Only stretches that these panel sites [first, last) touch count.
    least : float
        Share of a stretch's sites.

    Raises
    ------
    InputError
        The share is smaller somewhere.
    """
    low = []
    for begin, stop in cut_equal_lengths(panel.cM):
        if begin < last and stop > first:
            stretch = count_sites(panel.chrom, panel.position, typed_index, begin, stop)
            if stretch.typed < least * (stop - begin):
                low.append(stretch)
    if low:
        more = f", and of {len(low) - 1} more stretches" if len(low) > 1 else ""
        share = low[0].typed / (low[0].typed + low[0].imputed)
        raise InputError(
            "arguments",
            f"of {low[0]}, {share:.4%} of the panel's sites are typed{more}: "
            f"{argument('min_typed_ratio')} asks for "
            f"{least:.4%}. Impute the rest by {argument('region')}, or lower the ratio",
        )
