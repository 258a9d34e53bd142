"""Calls and haplotypes of a file, whatever its form."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from spinimpute.genotypes.sites import Sites


@dataclass(frozen=True, eq=False)
class Haplotypes:
    """Alleles of all haplotypes of a file at biallelic sites.

    Attributes
    ----------
    sites : Sites
        In file order.
    alleles : int8 (n_sites, n_haplotypes)
        0 REF, 1 ALT, -1 missing; haplotypes in sample order, two columns for a diploid sample and one for a
        haploid sample.
    samples : list of str
        Names.
    ploidy : uint8 (n_samples,)
        1 or 2.
    contig_line : str
        The chromosome's '##contig=<...>' of the header.
    skipped : dict of str to int
        Records, and ALT alleles of multi-allelic records, that were not taken, by reason.
    unphased : bool (n_sites, n_samples) or None
        Heterozygotes whose phase is unknown; None if there is none.
    halved : int64 (n_sites,) or None
        Unphased calls with one missing allele, of which the other one was set missing, too; None if there is
        none.
    """

    sites: Sites
    alleles: np.ndarray
    samples: list[str]
    ploidy: np.ndarray
    contig_line: str
    skipped: dict[str, int] = field(default_factory=dict)
    unphased: np.ndarray | None = None
    halved: np.ndarray | None = None

    @property
    def haplotype_sample(self) -> np.ndarray:
        """int64 (n_haplotypes,): the index of each haplotype's sample."""
        return np.repeat(np.arange(len(self.samples)), self.ploidy)


@dataclass(frozen=True, eq=False)
class Calls:
    """Calls of a file whose samples may change their ploidy from site to site.

    Attributes
    ----------
    sites, samples, contig_line, skipped, unphased, halved
        As in `Haplotypes`.
    calls : int8 (n_sites, n_samples, 2)
        0 REF, 1 ALT, -1 missing, and -2 for the second allele of a call with one allele.
    sexes : dict of str to bool
        Sample -> whether male, where the file states it.
    """

    sites: Sites
    calls: np.ndarray
    samples: list[str]
    contig_line: str
    skipped: dict[str, int] = field(default_factory=dict)
    unphased: np.ndarray | None = None
    sexes: dict[str, bool] = field(default_factory=dict)
    halved: np.ndarray | None = None

    def part(self, chosen: np.ndarray | slice) -> Calls:
        """Some of the sites."""
        unphased = None if self.unphased is None else self.unphased[chosen]
        halved = None if self.halved is None else self.halved[chosen]
        return replace(
            self, sites=self.sites.take(chosen), calls=self.calls[chosen], unphased=unphased, halved=halved
        )


def to_haplotypes(calls: Calls, ploidy: np.ndarray) -> Haplotypes:
    """The haplotypes of samples that have one ploidy everywhere.

    Parameters
    ----------
    calls : Calls
        Calls of that ploidy.
    ploidy : uint8 (n_samples,)
        1 or 2.

    Returns
    -------
    Haplotypes
        Of the same sites and samples. The array of calls may be changed in place.
    """
    return Haplotypes(
        calls.sites,
        select_haplotypes(calls.calls, haplotype_columns(ploidy)),
        calls.samples,
        ploidy,
        calls.contig_line,
        calls.skipped,
        calls.unphased,
        calls.halved,
    )


def haplotype_columns(ploidy: np.ndarray) -> np.ndarray | None:
    """Which of the 2 * n_samples columns of calls are haplotypes, int64; None for all of them."""
    if (ploidy == 2).all():
        return None
    return np.flatnonzero(np.stack([np.ones(len(ploidy), dtype=bool), ploidy == 2], axis=1))


def select_haplotypes(calls: np.ndarray, kept: np.ndarray | None) -> np.ndarray:
    """Turn calls into alleles of haplotypes.

    Parameters
    ----------
    calls : int8 (n_sites, n_samples, 2)
        As in `Calls`; changed in place if all columns are kept.
    kept : int64 (n_haplotypes,) or None
        The columns that are haplotypes, as of `haplotype_columns`.

    Returns
    -------
    int8 (n_sites, n_haplotypes)
        0, 1, or -1 (missing).
    """
    alleles = calls.reshape(len(calls), -1)
    alleles = alleles if kept is None else alleles[:, kept]
    return np.maximum(alleles, -1, out=alleles)


def sibling_haplotypes(haplotype_sample: np.ndarray) -> np.ndarray:
    """The sibling haplotype of each haplotype.

    Parameters
    ----------
    haplotype_sample : integers (A,)
        The sample of each haplotype; a sample's haplotypes, one or two, are next to each other.

    Returns
    -------
    int64 (A,)
        The other haplotype of the same sample; itself if there is none.
    """
    sample = np.asarray(haplotype_sample)
    same = sample[1:] == sample[:-1]
    return np.arange(len(sample)) + np.append(same, False) - np.insert(same, 0, False)
