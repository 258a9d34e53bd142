"""Genotype likelihoods of samples at the panel's sites, the input of imputing sequenced samples.

`pileup` computes them from reads, and `variant_likelihoods` reads them from variant files. They are
Phred-scaled: -10 log10 (likelihood of the genotype / likelihood of the most likely genotype).

Axes: S sites, X samples, and an axis of length 3 for genotypes with 0, 1 and 2 ALT alleles.
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

MAX_PHRED = 255  # larger values are cut to this one
_MAX_READS = np.iinfo(np.uint16).max


@dataclass(frozen=True, eq=False)
class GenotypeLikelihoods:
    """Genotype likelihoods of samples at sites of a panel.

    Attributes
    ----------
    samples : list of str
        Names of the samples.
    ploidy : uint8 (X,)
        Ploidy of each sample, 1 or 2.
    panel_index : int64 (S,)
        Indices of the panel sites that have data, increasing.
    phred_SX3 : uint8
        Phred-scaled likelihoods of 0, 1 and 2 copies of ALT, from 0 to 255. The smallest of the three is 0.
        All three are 0 where a sample has no data. For a haploid sample the first value is for REF, the last
        for ALT, and the middle one is 255.
    depth_SX : uint16 or None
        Number of counted reads; None if unknown.
    n_sites_file : int
        Number of biallelic sites in the input. For variant files, it is the number of ALT alleles. For reads,
        it is the number of panel SNPs, plus the number of panel indels if indels are requested.
    skipped : dict of str to int
        Numbers of unused reads, bases and sites by reason.
    counted_index : int64
        Indices of the panel sites at which reads were counted, increasing. Sites that are here but not in
        `panel_index` had no reads. Empty if depth_SX is None.
    repaired : dict of str to int
        Number of repaired sites by kind of repair. The keys are the texts in `targets.repair`.
    bases_X : sequence of FragmentBases
        Bases of reads for each sample. They help phasing, because bases of one fragment lie on one haplotype.
        Some bases may be missing. Empty if the input has no reads.
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
        """Whether a sample has data at a site, bool."""
        no_alt_SX, one_alt_SX, two_alts_SX = np.moveaxis(self.phred_SX3, 2, 0)
        return (no_alt_SX != two_alts_SX) | ((no_alt_SX != one_alt_SX) & (self.ploidy == 2))

    def reorder_samples(self, samples: list[str]) -> GenotypeLikelihoods:
        """Return a copy with the samples in this order. Raises InputError if the sets of samples differ."""
        order_X = _order_in(self.samples, samples)
        return replace(
            self,
            samples=samples,
            ploidy=self.ploidy[order_X],
            phred_SX3=self.phred_SX3[:, order_X],
            depth_SX=None if self.depth_SX is None else self.depth_SX[:, order_X],
            bases_X=[self.bases_X[x] for x in order_X] if self.bases_X else (),
        )

    def take(self, rows: slice) -> GenotypeLikelihoods:
        """Return a copy with some sites. Counts, `counted_index` and `bases_X` still cover all sites."""
        return replace(
            self,
            panel_index=self.panel_index[rows],
            phred_SX3=self.phred_SX3[rows],
            depth_SX=None if self.depth_SX is None else self.depth_SX[rows],
        )


def stored_phred(phred: np.ndarray, haploid: np.ndarray | bool) -> np.ndarray:
    """Shift and round Phred-scaled likelihoods (..., 3) to the integers that `GenotypeLikelihoods` stores.

    `phred` may have any offset and must be finite. `haploid` is broadcast to (...). Where it is True, the
    middle value of `phred` is ignored.
    """
    homozygous = np.minimum(phred[..., 0], phred[..., 2])
    lowest = np.where(haploid, homozygous, np.minimum(homozygous, phred[..., 1]))
    stored = np.rint(phred - lowest[..., None]).clip(0, MAX_PHRED).astype(np.uint8)
    stored[..., 1][np.broadcast_to(haploid, lowest.shape)] = MAX_PHRED
    return stored


def check_region(region: Region | None, panel: ReferencePanel) -> None:
    """Raise InputError if the region is not on the panel's chromosome."""
    if region and not same_chromosome(region.chrom, panel.chrom):
        raise InputError(
            "mismatch", f"region {region} is not on the panel's chromosome. Give a region on {panel.chrom}."
        )


def known_ploidy(panel: ReferencePanel, samples: Sequence[str], sexes: dict[str, bool] | None) -> np.ndarray:
    """Return the ploidy of each sample, uint8 (X,): 1, 2, or 0 if only the data can tell.

    On haploid chromosomes, such as Y, it is 1. On the part of X that is haploid in males, it follows from the
    sex, and is 0 if the sex is unknown. Elsewhere it is 0. `sexes` maps samples to whether they are male.
    """
    if plain_chromosome(panel.chrom) in HAPLOID_CHROMOSOMES:
        return np.ones(len(samples), np.uint8)
    if not haploid_in_males(panel):
        return np.zeros(len(samples), np.uint8)
    copies = {True: 1, False: 2, None: 0}
    return np.array([copies[(sexes or {}).get(name)] for name in samples], np.uint8)


def merge_likelihoods(first: GenotypeLikelihoods, second: GenotypeLikelihoods) -> GenotypeLikelihoods:
    """Combine two independent inputs of the same samples and panel, such as an array and reads.

    At most one of them may have reads. The result has the sites of both, and the samples in the order of
    `first`. A sample that is haploid in one of them is haploid. Raises InputError if the samples differ.
    """
    second = second.reorder_samples(first.samples)
    haploid_X = (first.ploidy == 1) | (second.ploidy == 1)
    panel_index = np.union1d(first.panel_index, second.panel_index)
    shape = (len(panel_index), len(first.samples))
    sum_SX3 = np.zeros((*shape, 3), np.int16)
    depth_SX = np.zeros(shape, np.int32)
    for source in (first, second):
        row_S = np.searchsorted(panel_index, source.panel_index)
        sum_SX3[row_S] += source.phred_SX3
        if source.depth_SX is not None:
            depth_SX[row_S] += source.depth_SX
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
    """Return numbers of reads as uint16, limited to its maximum."""
    return np.clip(depth, 0, _MAX_READS).astype(np.uint16)


def _order_in(names: list[str], wanted: list[str]) -> np.ndarray:
    """Return the index of each wanted sample in `names`. Raises InputError if the sets differ."""
    missing, additional = sorted(set(wanted) - set(names)), sorted(set(names) - set(wanted))
    if missing or additional:
        only = " and ".join(f"{name} is in only one of them" for name in missing[:1] + additional[:1])
        raise InputError(
            "mismatch",
            f"the two inputs have different samples: {only}. Give the samples the same names in both "
            "(bcftools reheader).",
        )
    index_of = {name: i for i, name in enumerate(names)}
    return np.array([index_of[name] for name in wanted], np.int64)
