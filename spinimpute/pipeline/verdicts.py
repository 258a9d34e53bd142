"""Checks whether a target as a whole fits the panel: sites, allele frequencies and untyped intervals.

`impute`, `phase` and `check` use the same thresholds and messages. Axis T: matched sites.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from spinimpute.genotypes.builds import infer_build
from spinimpute.genotypes.haplotypes import Haplotypes
from spinimpute.genotypes.intervals import Interval
from spinimpute.genotypes.sites import DUPLICATE, NoRecord, SiteMatch, Sites
from spinimpute.genotypes.untyped_intervals import (
    FAR_CM,
    IntervalCounts,
    count_sites,
    cut_equal_lengths,
    untyped_intervals,
)
from spinimpute.panels.reference import ReferencePanel
from spinimpute.quality.frequencies import Frequencies
from spinimpute.runtime.errors import InputError, argument

MIN_SHARE = 0.1  # required share of panel sites among the target's sites in the region of the panel
MIN_SHARE_OTHER_BUILD = 0.5  # required share if the headers have different genome builds
FEW_SITES = 20  # fewer unsuitable sites never cause a refusal

OUTLIER_SHARE = 0.05  # a larger share of sites with unlikely allele frequencies causes a warning
# Largest accepted share of sites at which ALT is about as common as REF in the panel. The share is
# nearly 1 for exchanged alleles (except at sites with very common alleles), below 0.1 for other populations.
EXCHANGED_SHARE = 0.3
# Smallest accepted correlation of frequencies. With few samples, no single site has an unlikely frequency.
MIN_CORRELATION = -0.2


@dataclass(frozen=True)
class Verdict:
    """A problem of a target in one sentence, and whether the target is refused without `force`."""

    text: str
    refused: bool


def check_called(vcf: str | Path, chrom: str, samples: Sequence[str], called_X: np.ndarray) -> list[str]:
    """Return a warning if some samples have no call at panel sites. Raises NoRecord if all have none."""
    uncalled = [name for name, called in zip(samples, called_X.tolist(), strict=True) if not called]
    if len(uncalled) == len(samples):
        raise NoRecord(
            "content",
            f"target {vcf}: all genotypes on {chrom} are missing at the sites that are in the panel, so "
            "there is nothing to impute from. Give a file with called genotypes",
        )
    if not uncalled:
        return []
    rest = f" and {len(uncalled) - 5} more" if len(uncalled) > 5 else ""
    return [
        f"{len(uncalled)} of {len(samples)} samples have no call at any panel site of {chrom} "
        f"({', '.join(uncalled[:5])}{rest}): they can be imputed from allele frequencies only"
    ]


def verdicts(
    panel: ReferencePanel, target: Haplotypes, match: SiteMatch, *, lifted: bool, n_without_alt: int = 0
) -> list[Verdict]:
    """Return the problems of a repaired target on a chromosome or a part of X; an empty list if it fits.

    lifted: whether the target was lifted over; then the genome build in its header is ignored. n_without_alt:
    see `check_site_overlap`.
    """
    builds = ("", "") if lifted else tuple(infer_build(x.contig_line, panel.chrom) for x in (target, panel))
    return [
        *check_site_overlap(panel.sites, target.sites, match, builds, n_without_alt),
        *_check_frequencies(Frequencies.count(panel, target, match), target),
    ]


def check_site_overlap(
    panel: Sites, target: Sites, match: SiteMatch, builds: Sequence[str] = ("", ""), n_without_alt: int = 0
) -> list[Verdict]:
    """Return a verdict if too few of the target's sites are panel sites, otherwise an empty list.

    Sites outside of the panel's range are not counted, because a panel may cover a part of a chromosome.
    `builds` are the genome builds of target and panel in their headers, or "". `n_without_alt` is the number
    of matched sites that have no ALT in the target. They are not counted, because the panel's ALT was used
    for them, and unmatched sites without ALT were not read.
    """
    inside = (target.position >= panel.position[0]) & (target.position <= panel.position[-1])
    n_inside = int(inside.sum()) - n_without_alt
    not_in_panel = [i for i in match.reasons if inside[i] and match.reasons[i] != DUPLICATE]
    n_found = n_inside - len(not_in_panel)
    builds_differ = bool(builds[0] and builds[1] and builds[0] != builds[1])
    build_sentence = (
        f"by the chromosome lengths in the headers, the target is on {builds[0]} and the panel on {builds[1]}"
    )
    min_share = MIN_SHARE_OTHER_BUILD if builds_differ else MIN_SHARE
    if len(not_in_panel) < FEW_SITES or n_found >= min_share * n_inside:
        if not builds_differ:
            return []
        text = f"{build_sentence}, but {n_found} of {n_inside} sites are panel sites: is one header wrong?"
        return [Verdict(text, refused=False)]
    counts = ", ".join(f"{reason}: {count}" for reason, count in Counter(match.reasons.values()).items())
    first = not_in_panel[0]
    why = (
        f"{build_sentence[0].upper()}{build_sentence[1:]}"
        if builds_differ
        else "The target is probably on another genome build than the panel"
    )
    text = (
        f"only {n_found} of the {n_inside} target sites in the panel's region are panel sites: {counts}; the "
        f"first is {target.chrom}:{target.position[first]} {target.ref[first]}>{target.alt[first]}, "
        f"{match.reasons[first]}. {why}. Lift the target over ({argument('chain')}), or add "
        f"{argument('force', True)} to impute anyway"
    )
    return [Verdict(text, refused=True)]


def _check_frequencies(frequencies: Frequencies, target: Haplotypes) -> list[Verdict]:
    """Return a verdict if allele frequencies differ from the panel's, otherwise an empty list."""
    outlier_T = frequencies.outlier_T
    n_outliers, n_exchanged = int(outlier_T.sum()), int(frequencies.exchanged_T.sum())
    n_known = int((frequencies.called_T > 0).sum())
    where = f"on {target.sites.chrom}"
    correlation = frequencies.correlation()
    exchanged = n_exchanged >= FEW_SITES and n_exchanged > EXCHANGED_SHARE * n_known
    if exchanged or correlation < MIN_CORRELATION:
        description = (
            f"at {n_exchanged} of {n_known} typed sites ALT is as common as REF is in the panel"
            if exchanged
            else "alleles that are common in the panel are rare in the target (the correlation of "
            f"frequencies at {n_known} typed sites is {correlation:.2f})"
        )
        text = (
            f"{description}, {where}: REF and ALT, or their calls, are probably exchanged in the target. Set "
            "them by the reference genome (bcftools +fixref, or plink2 --ref-from-fa force), or add "
            f"{argument('force', True)} to impute anyway"
        )
        # Refuse only if both measures agree: nearby sites are correlated, so few good samples may fail one.
        return [Verdict(text, refused=exchanged and correlation <= 0)]
    if n_outliers >= FEW_SITES and n_outliers > OUTLIER_SHARE * n_known:
        text = (
            f"at {n_outliers} of {n_known} typed sites {where}, ALT is far more or less common than in the "
            "panel: either the panel is of another population and imputes poorly, or alleles are exchanged "
            "(check --out lists the sites)"
        )
        return [Verdict(text, refused=False)]
    return []


def find_untyped(
    panel: ReferencePanel, imputed: Sequence[tuple[np.ndarray, Interval]]
) -> list[IntervalCounts]:
    """Return the intervals of imputed panel sites without a typed site nearby.

    imputed: pairs of typed panel sites, int64 (T,), and the interval of panel sites imputed from them.
    """
    return [
        counts
        for typed_index, sites in imputed
        for counts in untyped_intervals(panel.chrom, panel.position, panel.cM, typed_index, sites)
    ]


def untyped_warning(untyped: list[IntervalCounts]) -> list[str]:
    """Sort the untyped intervals of all chromosomes, the largest first. Return a warning about them, if any.

    The sort is stable: equal intervals remain in the order of their chromosomes.
    """
    untyped.sort(key=lambda counts: -counts.imputed)
    if not untyped:
        return []
    n_imputed = sum(counts.imputed for counts in untyped)
    rest = (
        ""
        if len(untyped) == 1
        else f" and {len(untyped) - 1} smaller intervals ({n_imputed} imputed sites in all)"
    )
    return [
        f"hardly any site is typed in {untyped[0]}{rest}: sites more than {FAR_CM} cM from a typed site are "
        "imputed from little more than allele frequencies"
    ]


def check_typed_ratio(
    panel: ReferencePanel, typed_index: np.ndarray, sites: Interval, min_ratio: float
) -> None:
    """Raise InputError if too few sites are typed in a fixed interval of the panel that overlaps `sites`."""
    low = []
    for interval in cut_equal_lengths(panel.cM):
        if interval.start < sites.stop and interval.stop > sites.start:
            counts = count_sites(panel.chrom, panel.position, typed_index, interval)
            if counts.typed < min_ratio * interval.n_sites:
                low.append(counts)
    if low:
        rest = f", and in {len(low) - 1} more intervals" if len(low) > 1 else ""
        share = low[0].typed / (low[0].typed + low[0].imputed)
        raise InputError(
            "content",
            f"in {low[0]}, {share:.4%} of the panel sites are typed{rest}, and {argument('min_typed_ratio')} "
            f"requires {min_ratio:.4%}. Impute other regions with {argument('region')}, or lower the ratio",
        )
