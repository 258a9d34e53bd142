"""Genotype likelihoods of samples at a panel's sites, whatever they come from.

Phred-scaled: -10 log10 of a likelihood, less that of the likeliest genotype.

Axes: S sites, X samples; 3: copies of ALT, 0 to 2.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from spinimpute.genotypes.builds import HAPLOID_CHROMOSOMES
from spinimpute.genotypes.sites import Region, plain_chromosome, same_chromosome
from spinimpute.panels.reference import ReferencePanel
from spinimpute.panels.spin_files import haploid_in_males
from spinimpute.runtime.errors import InputError
from spinimpute.sequencing.fragments import FragmentBases

HIGHEST = 255  # Phred: what is less likely than this is as good as impossible
_MOST_READS = np.iinfo(np.uint16).max


@dataclass(frozen=True, eq=False)
class GenotypeLikelihoods:
    """What is known of samples at sites of a panel.

    Attributes
    ----------
    samples : list of str
        Names.
    ploidy : uint8 (X,)
        1 or 2.
    panel_index : int64 (S,)
        The panel's sites that there is something on, increasing.
    phred_SX3 : uint8 (S, X, 3)
        Phred-scaled likelihoods of 0, 1 and 2 copies of ALT: the smallest is 0, the largest 255 at most.
        They are 0, 0, 0 where nothing is known of a sample. A haploid sample has no copy or "two": its middle
        one is 255.
    depth_SX : uint16 (S, X) or None
        How many reads counted; None where that is not known.
    n_sites_file : int
        Biallelic sites that were looked at: ALT alleles of records, or the panel's SNPs, and indels if they
        are asked for, for reads.
    skipped : dict of str to int
        What was not taken, by reason.
    counted_index : int64
        The panel's sites at which reads were counted, increasing: there are none where `panel_index` lacks
        one of these. Empty where depth_SX is None.
    repaired : dict of str to int
        Sites by what was done to them, in the words of `targets.repair`.
    bases_X : sequence of FragmentBases
        Of each sample the bases of reads that its likelihoods are made of, or some of them: they say which
        alleles are of one haplotype. Empty where that is not known.
    """

    samples: list[str]
    ploidy: np.ndarray
    panel_index: np.ndarray
    phred_SX3: np.ndarray
    depth_SX: np.ndarray | None
    n_sites_file: int
    skipped: dict[str, int] = field(default_factory=dict)
    counted_index: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    repaired: dict[str, int] = field(default_factory=dict)
    bases_X: Sequence[FragmentBases] = ()

    @property
    def known_SX(self) -> np.ndarray:
        """Where something is known of a sample, bool (S, X)."""
        none_SX, one_SX, two_SX = np.moveaxis(self.phred_SX3, 2, 0)
        return (none_SX != two_SX) | ((none_SX != one_SX) & (self.ploidy == 2))

    def in_order(self, samples: list[str]) -> GenotypeLikelihoods:
        """With the samples in another order. Raises InputError if they are not the same."""
        order_X = _order_in(self.samples, samples)
        return replace(
            self,
            samples=samples,
            ploidy=self.ploidy[order_X],
            phred_SX3=self.phred_SX3[:, order_X],
            depth_SX=None if self.depth_SX is None else self.depth_SX[:, order_X],
            bases_X=[self.bases_X[x] for x in order_X] if self.bases_X else (),
        )

    def part(self, chosen: slice) -> GenotypeLikelihoods:
        """Some of the sites; the counts and the bases stay those of the whole."""
        return replace(
            self,
            panel_index=self.panel_index[chosen],
            phred_SX3=self.phred_SX3[chosen],
            depth_SX=None if self.depth_SX is None else self.depth_SX[chosen],
        )


def stored_phred(phred: np.ndarray, haploid: np.ndarray | bool) -> np.ndarray:
    """Likelihoods as they are kept: the smallest 0, in whole numbers, 255 at most.

    Parameters
    ----------
    phred : float or int16 (..., 3)
        Phred-scaled, on any level; finite.
    haploid : bool, of a shape that extends to (...)
        Where the middle one means nothing.

    Returns
    -------
    uint8 (..., 3)
        As in `GenotypeLikelihoods`.
    """
    of_homozygotes = np.minimum(phred[..., 0], phred[..., 2])
    lowest = np.where(haploid, of_homozygotes, np.minimum(of_homozygotes, phred[..., 1]))
    stored = np.rint(phred - lowest[..., None]).clip(0, HIGHEST).astype(np.uint8)
    stored[..., 1][np.broadcast_to(haploid, lowest.shape)] = HIGHEST
    return stored


def check_region(region: Region | None, panel: ReferencePanel) -> None:
    """Raise InputError for a region of another chromosome than the panel's."""
    if region and not same_chromosome(region.chrom, panel.chrom):
        raise InputError(
            "content", f"the region {region} is not on the panel's chromosome, {panel.chrom}; give one on it"
        )


def known_ploidy(panel: ReferencePanel, samples: Sequence[str], sexes: dict[str, bool] | None) -> np.ndarray:
    """The ploidy that samples have by chromosome and sex.

    Parameters
    ----------
    panel : ReferencePanel
        Its chromosome, or its part of X, is asked for.
    samples : sequence of str
        X names.
    sexes : dict of str to bool or None
        Sample -> whether male.

    Returns
    -------
    uint8 (X,)
        1 or 2; 0 where neither chromosome nor sex decides.
    """
    if plain_chromosome(panel.chrom) in HAPLOID_CHROMOSOMES:
        return np.ones(len(samples), np.uint8)
    if not haploid_in_males(panel):
        return np.zeros(len(samples), np.uint8)
    copies = {True: 1, False: 2, None: 0}
    return np.array([copies[(sexes or {}).get(name)] for name in samples], np.uint8)


def merge_likelihoods(first: GenotypeLikelihoods, second: GenotypeLikelihoods) -> GenotypeLikelihoods:
    """What two independent inputs say of the same samples together, as an array and reads do.

    Parameters
    ----------
    first, second : GenotypeLikelihoods
        Of the same panel, not both of reads; the second's samples may have another order. A sample that is
        haploid in one of them is haploid: the other one may not state it.

    Returns
    -------
    GenotypeLikelihoods
        The sites of both, the samples in the first's order.

    Raises
    ------
    InputError
        The samples are not the same.
    """
    second = second.in_order(first.samples)
    haploid_X = (first.ploidy == 1) | (second.ploidy == 1)
    panel_index = np.union1d(first.panel_index, second.panel_index)
    shape = (len(panel_index), len(first.samples))
    sum_SX3 = np.zeros((*shape, 3), np.int16)
    depth_SX = np.zeros(shape, np.int32)
    for one in (first, second):
        at_S = np.searchsorted(panel_index, one.panel_index)
        sum_SX3[at_S] += one.phred_SX3
        if one.depth_SX is not None:
            depth_SX[at_S] += one.depth_SX
    no_depth = first.depth_SX is None and second.depth_SX is None
    return GenotypeLikelihoods(
        first.samples,
        np.where(haploid_X, 1, 2).astype(np.uint8),
        panel_index,
        stored_phred(sum_SX3, haploid_X),
        None if no_depth else stored_depth(depth_SX),
        first.n_sites_file + second.n_sites_file,
        dict(Counter(first.skipped) + Counter(second.skipped)),
        np.union1d(first.counted_index, second.counted_index),
        dict(Counter(first.repaired) + Counter(second.repaired)),
        first.bases_X or second.bases_X,
    )


def stored_depth(depth: np.ndarray) -> np.ndarray:
    """uint16: numbers of reads, the largest that it holds for more."""
    return np.clip(depth, 0, _MOST_READS).astype(np.uint16)


def _order_in(names: list[str], wanted: list[str]) -> np.ndarray:
    """Where each of the wanted samples is among the names."""
    missing, additional = sorted(set(wanted) - set(names)), sorted(set(names) - set(wanted))
    if missing or additional:
        only = [f"only one has {name}" for name in (missing[:1] + additional[:1])]
        raise InputError(
            "content",
            f"two inputs to be joined are not of the same samples: {', '.join(only)}. Give the samples the "
            "same names in both (bcftools reheader)",
        )
    place = {name: i for i, name in enumerate(names)}
    return np.array([place[name] for name in wanted], np.int64)
