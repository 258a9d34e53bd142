"""Ploidy of samples on X, Y and the mitochondrial genome, and haplotypes of that ploidy.

Files write the haploid calls of males on X as `0`, as `0/0` or as both, and genotyping errors may make a few
of them heterozygous. Outside the pseudo-autosomal regions of X, a sample is haploid if one of these is true:

- Its sex is given as male.
- Most of its calls have one allele.
- Some of its calls have one allele, and none is heterozygous.
- It has less than MAX_MALE_SHARE of the heterozygotes that the panel's frequencies predict.

If its sex is given as female, it is diploid.

Axes: S sites, X samples.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from spinimpute.genotypes.haplotypes import Calls, Haplotypes, to_haplotypes
from spinimpute.genotypes.sites import Sites
from spinimpute.runtime.errors import InputError
from spinimpute.runtime.unpacking import why_unreadable

MIN_EXPECTED = 50.0  # expected heterozygotes that are needed to infer the sex of a sample
# Observed / expected heterozygotes. Males stay below the first value, even with genotyping errors. Females
# exceed the second value, even if their parents are related.
MAX_MALE_SHARE = 0.1
MIN_FEMALE_SHARE = 0.3
HETEROZYGOUS_HAPLOID = "heterozygous calls of haploid samples"
HALF_MISSING = "unphased calls with one missing allele"
HAPLOID_DIPLOID = "calls with one allele of diploid samples"

_MALE = {"1", "m", "male"}
_FEMALE = {"2", "f", "female"}
_COLUMN_NAMES = {"sex", "gender"}
_UNKNOWN = {"0", "-9", "na", "nan", "u", "unknown", ""}


@dataclass(frozen=True)
class ResolvedPloidy:
    """The haplotypes of a region in which each sample has one ploidy."""

    haplotypes: Haplotypes
    set_missing: dict[str, int]  # number of calls that were set missing, by reason
    # float64, observed / expected heterozygotes; NaN if fewer than MIN_EXPECTED are expected or not computed
    het_ratio_X: np.ndarray
    doubts: list[str]  # a warning for each sample whose calls contradict its given sex


def read_sexes(path: str | Path) -> dict[str, bool]:
    """Read the sexes of samples from a text file.

    Parameters
    ----------
    path : str or Path
        Sample and sex (M, F, 1, 2, male, female) in each line, or the columns of a PLINK .fam file (family,
        sample, father, mother, sex, phenotype).

    Returns
    -------
    dict of str to bool
        Sample name -> True if male. Samples of unknown sex (0, NA) are not included.

    Raises
    ------
    InputError
        A line is invalid, a sample has both sexes, or no sample has a sex.
    """
    path = Path(path)
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError("read", f"list of sexes {path}: {why_unreadable(error)}") from error
    sexes: dict[str, bool] = {}
    names = [fields[1] for fields in map(str.split, lines) if len(fields) in (3, 5, 6)]
    by_family = len(set(names)) < len(names)  # as in the reader of PLINK files
    for number, line in enumerate(lines, start=1):
        fields = line.split()
        if not fields or line.startswith("#"):
            continue
        if len(fields) not in (2, 3, 5, 6):
            raise InputError(
                "content",
                f"list of sexes {path}, line {number}: expected sample and sex (M, F, 1 or 2), or the "
                f"columns of a .fam file, got {len(fields)} columns",
            )
        sample, sex = (fields[0], fields[1]) if len(fields) < 5 else (fields[1], fields[4])
        if len(fields) == 3:  # family, sample, sex
            sample, sex = fields[1], fields[2]
        if by_family and len(fields) > 2:
            sample = f"{fields[0]}_{sample}"
        known = sex.lower()
        if known not in _MALE | _FEMALE | _UNKNOWN:
            if number == 1 and known in _COLUMN_NAMES:
                continue
            raise InputError(
                "content", f"list of sexes {path}, line {number}: {sex!r} is not a sex. Give M, F, 1 or 2"
            )
        if known in _UNKNOWN:
            continue
        if sexes.setdefault(sample, known in _MALE) != (known in _MALE):
            raise InputError(
                "content", f"list of sexes {path}, line {number}: {sample} has both sexes. Keep one line"
            )
    if not sexes:
        raise InputError("content", f"list of sexes {path}: no sample has a sex. Give M, F, 1 or 2")
    return sexes


def is_male(sex: str) -> bool | None:
    """Return whether a word for a sex is that of a male; None if the sex is unknown, or the word is."""
    word = sex.lower()
    return word in _MALE if word in _MALE | _FEMALE else None


def expected_heterozygosity(sites: Sites, panel: Sites, panel_frequency: np.ndarray) -> np.ndarray:
    """Return the probability that a diploid sample is heterozygous at each site, 2 p (1 - p), float64 (S,).

    p is the panel's ALT frequency at the site's position; alleles and strand are not compared. The result is
    NaN where the panel has no site.
    """
    panel_site = np.searchsorted(panel.position, sites.position)
    panel_site = np.minimum(panel_site, len(panel.position) - 1)
    p = panel_frequency[panel_site]
    return np.where(panel.position[panel_site] == sites.position, 2 * p * (1 - p), np.nan)


def heterozygote_ratio(calls: Calls, expected_S: np.ndarray) -> np.ndarray:
    """Return observed / expected heterozygotes among each sample's diploid calls, float64 (X,).

    The result is NaN if fewer than MIN_EXPECTED heterozygotes are expected.
    """
    both_SX = (calls.calls[:, :, 0] >= 0) & (calls.calls[:, :, 1] >= 0)
    both_SX &= np.isfinite(expected_S)[:, None]
    expected_X = np.zeros(both_SX.shape[1])
    # a matrix product would need a copy of both_SX as numbers
    for expected, both_X in zip(np.nan_to_num(expected_S), both_SX, strict=True):
        expected_X += expected * both_X
    observed_X = ((calls.calls[:, :, 0] != calls.calls[:, :, 1]) & both_SX).sum(axis=0)
    enough = expected_X >= MIN_EXPECTED
    return np.where(enough, observed_X / np.where(enough, expected_X, 1), np.nan)


def resolve_ploidy(
    calls: Calls, expected_S: np.ndarray, sexes: dict[str, bool], *, all_haploid: bool, haploid_in_males: bool
) -> ResolvedPloidy:
    """Give each sample one ploidy.

    A call of the other ploidy is kept if it is unambiguous (`0/0` of a male), otherwise set missing.
    all_haploid: all samples have one copy (Y, mitochondria). haploid_in_males: males have one copy (X outside
    the pseudo-autosomal regions). With neither, a sample has the ploidy of most of its calls. expected_S: see
    `expected_heterozygosity`. sexes: sample name -> True if male; samples of unknown sex are not included.
    """
    first, second = calls.calls[:, :, 0], calls.calls[:, :, 1]
    one_allele_SX, two_alleles_SX = (first >= 0) & (second == -2), (first >= 0) & (second >= 0)
    het_ratio_X = heterozygote_ratio(calls, expected_S)
    by_calls_X = one_allele_SX.sum(axis=0) > two_alleles_SX.sum(axis=0)
    doubts: list[str] = []
    if all_haploid:
        haploid_X = np.ones(len(calls.samples), bool)
    elif haploid_in_males:
        by_calls_X |= one_allele_SX.any(axis=0) & ~(two_alleles_SX & (first != second)).any(axis=0)
        haploid_X = by_calls_X | (het_ratio_X < MAX_MALE_SHARE)
        for x, name in enumerate(calls.samples):
            if name not in sexes:
                continue
            haploid_X[x] = sexes[name]
            if sexes[name] and het_ratio_X[x] > MIN_FEMALE_SHARE:
                doubts.append(
                    f"{name} is given as male, but has {het_ratio_X[x]:.0%} of a woman's heterozygotes"
                )
            elif not sexes[name] and (by_calls_X[x] or het_ratio_X[x] < MAX_MALE_SHARE):
                what = (
                    "calls with one allele"
                    if by_calls_X[x]
                    else f"{het_ratio_X[x]:.0%} of a woman's heterozygotes"
                )
                doubts.append(f"{name} is given as female, but has {what}")
    else:
        haploid_X = by_calls_X
    error_SX = haploid_X & two_alleles_SX & (first != second)
    one_allele_in_diploid_SX = ~haploid_X & one_allele_SX
    first = np.where(error_SX | one_allele_in_diploid_SX, -1, first)
    second = np.where(haploid_X, -2, np.where(one_allele_in_diploid_SX | (second == -2), -1, second))
    unphased = None if calls.unphased is None else calls.unphased & ~haploid_X
    haplotypes = to_haplotypes(
        Calls(
            calls.sites,
            np.stack([first, second], axis=2).astype(np.int8),
            calls.samples,
            calls.contig_line,
            calls.skipped,
            unphased if unphased is not None and unphased.any() else None,
            half_missing=calls.half_missing,
        ),
        np.where(haploid_X, 1, 2).astype(np.uint8),
    )
    set_missing = {
        HETEROZYGOUS_HAPLOID: int(error_SX.sum()),
        HAPLOID_DIPLOID: int(one_allele_in_diploid_SX.sum()),
        HALF_MISSING: 0 if haplotypes.half_missing is None else int(haplotypes.half_missing.sum()),
    }
    return ResolvedPloidy(
        haplotypes, {what: count for what, count in set_missing.items() if count}, het_ratio_X, doubts
    )
