"""Genotype calls and haplotypes as read from a file of any format.

Readers return `Calls`. `ploidy` decides how many copies each sample has and turns them into `Haplotypes`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from spinimpute.genotypes.sites import Sites


@dataclass(frozen=True, eq=False)
class Haplotypes:
    """The alleles of all haplotypes of a file at biallelic sites."""

    sites: Sites  # in file order
    # int8 (n_sites, n_haplotypes), 0 REF, 1 ALT, -1 missing; 1 or 2 adjacent columns per sample
    alleles: np.ndarray
    samples: list[str]
    ploidy: np.ndarray  # uint8 (n_samples,), 1 or 2
    contig_line: str  # the chromosome's '##contig=<...>' of the header
    skipped: dict[str, int] = field(default_factory=dict)  # skipped records and ALT alleles, by reason
    # bool (n_sites, n_samples), heterozygotes of unknown phase; None if there are none
    unphased: np.ndarray | None = None
    # int64 (n_sites,), number of unphased calls that were set missing because one of their two alleles was
    # missing; None if there are none
    half_missing: np.ndarray | None = None


@dataclass(frozen=True, eq=False)
class Calls:
    """The calls of a file, in which the ploidy of a sample may change from site to site.

    `Haplotypes` explains the fields without a comment.
    """

    sites: Sites
    # int8 (n_sites, n_samples, 2), 0 REF, 1 ALT, -1 missing, -2 as second allele of a call with one allele
    calls: np.ndarray
    samples: list[str]
    contig_line: str
    skipped: dict[str, int] = field(default_factory=dict)
    unphased: np.ndarray | None = None
    sexes: dict[str, bool] = field(default_factory=dict)  # sample name -> True if male; unknown: not included
    half_missing: np.ndarray | None = None

    def part(self, chosen: np.ndarray | slice) -> Calls:
        """Return the calls at the chosen sites."""
        unphased = None if self.unphased is None else self.unphased[chosen]
        half_missing = None if self.half_missing is None else self.half_missing[chosen]
        sites, calls = self.sites.take(chosen), self.calls[chosen]
        return replace(self, sites=sites, calls=calls, unphased=unphased, half_missing=half_missing)


def to_haplotypes(calls: Calls, ploidy: np.ndarray) -> Haplotypes:
    """Convert calls to haplotypes. May change the calls in place.

    ploidy: number of haplotypes of each sample, 1 or 2, uint8 (n_samples,).
    """
    return Haplotypes(
        calls.sites,
        select_haplotypes(calls.calls, ploidy),
        calls.samples,
        ploidy,
        calls.contig_line,
        calls.skipped,
        calls.unphased,
        calls.half_missing,
    )


def select_haplotypes(calls: np.ndarray, ploidy: np.ndarray) -> np.ndarray:
    """Return the alleles of all haplotypes, int8 (n_sites, n_haplotypes): 0, 1 or -1 (missing).

    calls: see `Calls`. The array is changed in place if all samples are diploid.
    """
    alleles = calls.reshape(len(calls), -1)
    if (ploidy != 2).any():
        alleles = alleles[:, np.flatnonzero(np.stack([np.ones(len(ploidy), bool), ploidy == 2], axis=1))]
    return np.maximum(alleles, -1, out=alleles)


def sibling_haplotypes(haplotype_sample: np.ndarray) -> np.ndarray:
    """Return each haplotype's sibling: the other haplotype of the same sample, int64 (n_haplotypes,).

    The haplotype of a haploid sample is its own sibling. haplotype_sample: the sample of each haplotype; the
    haplotypes of a sample must be adjacent.
    """
    sample = np.asarray(haplotype_sample)
    same = sample[1:] == sample[:-1]
    return np.arange(len(sample)) + np.append(same, False) - np.insert(same, 0, False)
