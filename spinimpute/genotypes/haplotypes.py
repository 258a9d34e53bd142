"""Calls and haplotypes of a file, whatever its form."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from spinimpute.genotypes.sites import Sites


@dataclass(frozen=True, eq=False)
class Haplotypes:
    """Alleles of all haplotypes of a file at biallelic sites.

    alleles: int8 (n_sites, n_haplotypes), 0 REF, 1 ALT, -1 missing; haplotypes in sample order, two columns
    for a diploid sample and one for a haploid sample. ploidy: uint8 (n_samples,), 1 or 2.
    contig_line: the chromosome's '##contig=<...>' of the header. skipped: records (and ALT alleles of
    multi-allelic records) that were left out, by reason. unphased: bool (n_sites, n_samples), heterozygotes
    whose two alleles stand in an order that means nothing; None if there is none.
    """

    sites: Sites
    alleles: np.ndarray
    samples: list[str]
    ploidy: np.ndarray
    contig_line: str
    skipped: dict[str, int] = field(default_factory=dict)
    unphased: np.ndarray | None = None

    @property
    def haplotype_sample(self) -> np.ndarray:
        """int64 (n_haplotypes,): the index of each haplotype's sample."""
        return np.repeat(np.arange(len(self.samples)), self.ploidy)


@dataclass(frozen=True, eq=False)
class Calls:
    """Calls of a file whose samples may change their ploidy from site to site.

    calls: int8 (n_sites, n_samples, 2), 0 REF, 1 ALT, -1 missing, and -2 for the second allele of a call that
    has one. sexes: sample -> whether male, where the file states it. The rest as in `Haplotypes`.
    """

    sites: Sites
    calls: np.ndarray
    samples: list[str]
    contig_line: str
    skipped: dict[str, int] = field(default_factory=dict)
    unphased: np.ndarray | None = None
    sexes: dict[str, bool] = field(default_factory=dict)

    def part(self, chosen: np.ndarray | slice) -> Calls:
        """Some of the sites."""
        unphased = None if self.unphased is None else self.unphased[chosen]
        return replace(self, sites=self.sites.take(chosen), calls=self.calls[chosen], unphased=unphased)


def one_ploidy(calls: Calls, ploidy: np.ndarray) -> Haplotypes:
    """The haplotypes of samples that have 1 or 2 everywhere: ploidy, uint8 (n_samples,)."""
    return Haplotypes(
        calls.sites,
        select_haplotypes(calls.calls, columns_of(ploidy)),
        calls.samples,
        ploidy,
        calls.contig_line,
        calls.skipped,
        calls.unphased,
    )


def columns_of(ploidy: np.ndarray) -> np.ndarray | None:
    """Which of the 2 * n_samples call columns are haplotypes; None for all of them."""
    if (ploidy == 2).all():
        return None
    return np.flatnonzero(np.stack([np.ones(len(ploidy), dtype=bool), ploidy == 2], axis=1))


def select_haplotypes(calls: np.ndarray, kept: np.ndarray | None) -> np.ndarray:
    """int8 (n_sites, n_samples, 2) calls to int8 (n_sites, n_haplotypes) alleles, -1 missing."""
    alleles = calls.reshape(len(calls), -1)
    alleles = alleles if kept is None else alleles[:, kept]
    return np.maximum(alleles, -1, out=alleles)


def sibling_haplotypes(haplotype_sample: np.ndarray) -> np.ndarray:
    """int64 (A,): the other haplotype of the same sample; itself where there is none.

    haplotype_sample: (A,), a sample's haplotypes next to each other, one or two of each.
    """
    sample = np.asarray(haplotype_sample)
    same = sample[1:] == sample[:-1]
    return np.arange(len(sample)) + np.append(same, False) - np.insert(same, 0, False)
